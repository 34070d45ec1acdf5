"""The end of a tile beside the next one's first product: the same stores in every order, and where it is left alone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from tests.support.cases import odd_cases
from tests.support.compiling import Case, outcome, plain_module
from tests.support.invariants import assert_sound
from tests.support.programs import PROGRAMS
from tests.support.worlds import assert_same_stores
from wspec.decision import Decision
from wspec.ir import print_module, read
from wspec.ir.core import Operation, Value
from wspec.ir.loc import value_name
from wspec.ir.numbering import id_of, number
from wspec.passes.epilogue_overlap.choice import epilogue, hindrance
from wspec.passes.persistent.persist import persist
from wspec.plan.partition import hot_loops
from wspec.plan.plan import LoopSchedule, Plan
from wspec.plan.stores import OUTSIDE
from wspec.plan.tile_table import tile_loop

ODD = {case.name: case for case in odd_cases()}
FIT = ("attention_masked", "attention_masked_causal", "attention_two_loops", "attention_grouped")


def plan_of(case: Case, **options: object) -> Plan:
    plan = outcome(case, persistent=True, gate="off", **options).plan
    assert plan is not None
    return plan


@pytest.mark.parametrize("name", FIT)
@pytest.mark.parametrize("consumers", [1, 2])
def test_the_same_is_stored(name: str, consumers: int) -> None:
    """Proved too, by `outcome`: any trip counts, blocks with no tile, one, and several."""
    made = outcome(ODD[name], persistent=True, gate="off", epilogue_overlap=True, consumers=consumers)
    assert made.plan is not None and made.module is not None and made.plan.epilogue_overlap
    assert_sound(made.module, made.plan)
    for seed in range(4):
        assert_same_stores(plain_module(ODD[name]), made.module, seed)


@pytest.mark.parametrize("name", FIT)
def test_a_tile_stores_only_beside_the_next_one(name: str) -> None:
    made = outcome(ODD[name], persistent=True, gate="off", epilogue_overlap=True, consumers=1)
    assert made.module is not None
    function = next(op for op in made.module.walk() if op.name == "tt.func")
    inside = [op for op in function.walk() if op.name == "ttng.async_tma_copy_local_to_global"]
    assert [op.parent_op.name for op in inside if op.parent_op] == ["scf.if", "scf.if", "ttg.warp_specialize"]
    for store in inside:
        elsewhere = [_elsewhere(coordinate) for coordinate in store.operands[1:-1]]
        assert elsewhere == [OUTSIDE, *(0 for _ in elsewhere[1:])], "an H200 faults on negative ones"


def _elsewhere(coordinate: Value) -> int | None:
    """Where a store goes when there is no tile before."""
    chosen = coordinate.op
    assert chosen is not None and chosen.name == "arith.select"
    value = chosen.operands[2].op
    return None if value is None else value.int_attr("value")


def test_no_tensor_reaches_the_place_outside_and_no_sum_of_coordinates_overflows() -> None:
    assert 2**30 < OUTSIDE <= 2**31 - 256, "boxes have at most 256 rows"
    assert OUTSIDE % 16 == 0, "a row of one dimension begins at a multiple of 16 bytes"


def test_the_first_product_is_under_way_while_the_tile_before_is_stored() -> None:
    made = outcome(ODD["attention_masked"], persistent=True, gate="off", epilogue_overlap=True, keep_stages=True)
    lines = made.stages["async_dots"].splitlines()
    names = [line.split('"')[1] for line in lines if '"' in line and "." in line.split('"')[1]]
    first = names.index("ttng.warp_group_dot")
    assert names[first + 1] == "ttng.warp_group_dot_wait" and "pendings = 1" in _line(lines, names[first + 1])
    store = names.index("ttng.async_tma_copy_local_to_global")
    again = names.index("ttng.warp_group_dot_wait", first + 2)
    assert first < store < again, "stored before the product is waited for"


def _line(lines: list[str], name: str) -> str:
    return next(line for line in lines if f'"{name}"' in line)


# ------------------------------------------------------------------------------------------- the decision


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("gemm", "not issued ahead"),
        ("attention_persistent", "loop over tiles"),
        ("dot_behind", "does not stand in the loop over tiles"),
    ],
)
def test_where_it_cannot_be_the_plan_says_why(name: str, why: str) -> None:
    plan = plan_of(ODD[name], epilogue_overlap=True)
    assert not plan.epilogue_overlap and why in plan.epilogue_overlap.why_not


LOAD = """    %%extra = "tt.load"(%s) <{boundaryCheck = array<i32>, cache = 1 : i32, evict = 1 : i32,
        isVolatile = false, operandSegmentSizes = array<i32: 1, 0, 0>}> : (%s) -> %s loc("extra")
"""
LOADED = LOAD % ("%pointer", "!pointers", "!rows")
STORE = """    "tt.store"(%pointer, %log)"""
BARRIER = """    "gpu.barrier"() : () -> () loc("extra")
"""


@pytest.mark.parametrize(
    ("edit", "why", "at"),
    [
        (lambda text: text, "", None),
        (
            lambda text: _store_of(text, LOAD % ("%pointer", "!pointers", "!rows"), "%extra"),
            "cannot be carried",
            "extra",
        ),
        (lambda text: _store_of(text, LOAD % ("%p", "!tt.ptr<f32>", "f32"), "%log"), "", None),
        (lambda text: _store_of(text, BARRIER, "%log"), "more than to compute and to store: gpu.barrier", "extra"),
    ],
)
def test_what_stands_in_the_way_at_the_end(edit: Callable[[str], str], why: str, at: str | None) -> None:
    found = _found(edit((PROGRAMS / "deferred" / "input.ttgir").read_text()), lambda plan: plan)
    assert (found is None) == (not why)
    if found is not None:
        assert why in found[0] and (at is None or value_name(found[1].location) == at)


@pytest.mark.parametrize(
    ("edit", "why"),
    [
        (lambda plan: replace(plan, staging=()), "not stored through a buffer of its own"),
        (lambda plan: replace(plan, loops=(LoopSchedule(plan.loops[0].loop),)), "not issued ahead"),
    ],
)
def test_what_stands_in_the_way_in_the_plan(edit: Callable[[Plan], Plan], why: str) -> None:
    found = _found((PROGRAMS / "deferred" / "input.ttgir").read_text(), edit)
    assert found is not None and why in found[0]


def _store_of(text: str, before: str, value: str) -> str:
    return text.replace(STORE, before + STORE.replace("%log", value))


def _found(text: str, edit: Callable[[Plan], Plan]) -> tuple[str, Operation] | None:
    module = persist(read(text))
    function = next(op for op in module.walk() if op.name == "tt.func")
    number(function)
    plan = Plan.from_text((PROGRAMS / "deferred" / "plan.toml").read_text())
    store = next(id_of(op) for op in function.walk() if op.name == "tt.descriptor_store")
    return hindrance(hot_loops(function), edit(replace(plan, staging=((store, "", "own"),))))


def test_switched_off() -> None:
    plan = plan_of(ODD["attention_masked"], epilogue_overlap=False)
    assert plan.epilogue_overlap == Decision(None, "")


def test_without_tiles_there_is_nothing_to_defer() -> None:
    made = outcome(ODD["attention_masked"], persistent=False, epilogue_overlap=True)
    assert made.plan is not None and not made.plan.epilogue_overlap


def test_wspec_decides_by_what_bounds_the_loop() -> None:
    """At head dimension 64 the CUDA cores are the bound; a product waits for nobody."""
    assert plan_of(ODD["attention_masked"]).epilogue_overlap


def test_the_plan_leads_back_to_the_same_kernel() -> None:
    case = ODD["attention_two_loops"]
    first = outcome(case, persistent=True, gate="off", epilogue_overlap=True)
    assert first.plan is not None and first.module is not None
    plan = Plan.from_text(first.plan.to_text())
    again = outcome(case, plan=plan)
    assert plan == first.plan and again.module is not None
    assert print_module(again.module) == print_module(first.module)


def test_what_the_end_takes_over() -> None:
    """What a library computes stays in its tile, where the tile is is computed again."""
    made = outcome(ODD["attention_grouped"], persistent=True, gate="off", epilogue_overlap=True, keep_stages=True)
    assert made.module is not None
    module = read(made.stages["walk_tiles"])
    function = next(op for op in module.walk() if op.name == "tt.func")
    end = epilogue(tile_loop(function).regions[0].block)
    assert {op.name for op in end.effects} == {"tt.descriptor_store"}
    assert not {op.name for op in end.pure} & {"scf.for", "scf.if", "tt.load"}
    assert all(_is_loop_or_place(value.op) for value in end.taken)


def _is_loop_or_place(op: Operation | None) -> bool:
    return op is None or op.name == "scf.for"

"""The loop over tiles: what it leaves of the kernel, what its launcher must give it, and where it is refused."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest

from tests.support.cases import odd_cases
from tests.support.compiling import Case, expected_place, outcome, place
from tests.support.programs import PROGRAMS, function
from tests.support.simulate import World, stores_of_plain
from wspec.ir import print_module, read
from wspec.ir.core import Operation
from wspec.ir.loc import value_name
from wspec.ir.types import I32, FunctionType, PointerType, TypeAttr
from wspec.ir.verify import check_valid
from wspec.lab.persistent_launch import even_table
from wspec.passes.persistent.persist import TABLE, obstacle, persist
from wspec.tile_scheduler import PARTIALS
from wspec.tile_scheduler import names as tiles_names

ODD = {case.name: case for case in odd_cases()}


def module_of(name: str) -> Operation:
    return read((PROGRAMS / name / "input.ttgir").read_text())


def function_of(module: Operation) -> Operation:
    return next(op for op in module.walk() if op.name == "tt.func")


def count(root: Operation, name: str) -> int:
    return sum(op.name == name for op in root.walk())


# ---------------------------------------------------------------------------------------------- structure


@pytest.mark.parametrize("name", ["gemm", "tiles"])
def test_the_body_goes_into_a_loop_over_tiles(name: str) -> None:
    plain, made = function_of(module_of(name)), persist(module_of(name))
    check_valid(made)
    body = function_of(made).regions[0].block
    (loop,) = [op for op in body.ops if op.name == "scf.for"]
    for kind in ("ttng.warp_group_dot", "tt.descriptor_load", "tt.descriptor_store"):
        assert count(loop, kind) == count(function_of(made), kind) == count(plain, kind)
    assert body.ops[-2] is loop, "nothing but the end stands behind it"
    assert print_module(read(print_module(made))) == print_module(made)


def test_the_table_is_the_last_argument() -> None:
    made = function_of(persist(module_of("tiles")))
    before = function_of(module_of("tiles")).regions[0].block.args
    args = made.regions[0].block.args
    assert [value_name(arg.location) for arg in args] == [*(value_name(arg.location) for arg in before), TABLE]
    assert TABLE == tiles_names.TABLE, "the launcher calls it the same"
    kind = made.properties["function_type"]
    assert isinstance(kind, TypeAttr) and isinstance(kind.type, FunctionType)
    assert [arg.type for arg in args] == list(kind.type.inputs) and kind.type.inputs[-1] == PointerType(I32)


def test_the_tile_is_what_the_table_says() -> None:
    """Only the number of the block is still asked of the hardware."""
    made = function_of(persist(module_of("tiles")))
    assert count(made, "tt.get_program_id") == 1 and count(made, "tt.get_num_programs") == 0


def test_the_next_entry_is_loaded_behind_the_loops() -> None:
    (loop,) = [op for op in function_of(persist(module_of("tiles"))).regions[0].block.ops if op.name == "scf.for"]
    names = [op.name for op in loop.regions[0].block.ops]
    inner = names.index("scf.for")
    assert names[inner:].count("tt.load") == 3 and names.index("tt.descriptor_store") > inner
    assert max(i for i, name in enumerate(names) if name == "tt.load") < names.index("tt.descriptor_store")


# ------------------------------------------------------------------------------------------------ meaning


@pytest.mark.parametrize("grid", [(1, 1, 1), (3, 1, 1), (2, 3, 1), (2, 2, 3)])
@pytest.mark.parametrize("blocks", [1, 2, 5, 100])
def test_all_tiles_are_computed_once(grid: tuple[int, int, int], blocks: int) -> None:
    """The number of programs is that of the user's grid, whatever is launched."""
    plain, made = module_of("tiles"), persist(module_of("tiles"))
    launched, numbers = even_table(grid, blocks)
    table, integers = tuple(numbers.tolist()), {"n": 128}
    found = [
        stored
        for block in range(launched[0])
        for stored in stores_of_plain(made, World(integers, (block, 0, 0), launched, table=table))
    ]
    tiles = itertools.product(*(range(size) for size in grid))
    expected = [stored for tile in tiles for stored in stores_of_plain(plain, World(integers, tile, grid))]
    assert len(found) == len(expected) and set(found) == set(expected)


def test_an_unused_program_id() -> None:
    """Nothing in the grid's second axis matters to the kernel, its tiles are walked all the same."""
    made = persist(module_of("gemm"))
    launched, numbers = even_table((2, 3), 2)
    stored = [
        stores_of_plain(made, World({"k": 64}, (block, 0, 0), launched, table=tuple(numbers.tolist())))
        for block in range(2)
    ]
    assert [len(one) for one in stored] == [3, 3]


# ---------------------------------------------------------------------------------------------- obstacles

ATOMIC = """
    %row = "tt.get_program_id"() <{axis = 0 : i32}> : () -> i32 loc("row")
    %true = "arith.constant"() <{value = true}> : () -> i1
    %old = "tt.atomic_rmw"(%p, %row, %true) <{atomic_rmw_op = 5 : i32, scope = 1 : i32, sem = 4 : i32}>
        : (!tt.ptr<i32>, i32, i1) -> i32 loc("old")
"""
DEVICE = """
    %row = "tt.get_program_id"() <{axis = 0 : i32}> : () -> i32 loc("row")
    %stride = "arith.extsi"(%n) : (i32) -> i64 loc("stride")
    %one = "arith.constant"() <{value = 1 : i64}> : () -> i64 loc("one")
    %desc = "tt.make_tensor_descriptor"(%h, %n, %n, %stride, %one)
        <{operandSegmentSizes = array<i32: 1, 2, 2>, padding = 1 : i32}>
        : (!tt.ptr<f16>, i32, i32, i64, i64) -> !desc loc("desc")
"""


@pytest.mark.parametrize(
    ("body", "arguments", "reason", "at"),
    [
        (ATOMIC, "%p: !tt.ptr<i32>; %n: i32", "atomic operations", "old"),
        (DEVICE, "%h: !tt.ptr<f16>; %n: i32", "descriptors on the device", "desc"),
        ("", "%n: i32", "does not ask which program it is", None),
    ],
)
def test_what_keeps_a_kernel_from_walking(body: str, arguments: str, reason: str, at: str | None) -> None:
    found = obstacle(function(body, arguments))
    assert found is not None and reason in found[0]
    assert at is None or value_name(found[1].location) == at


def test_what_does_not() -> None:
    for name in ("gemm", "chain", "tiles", "turns"):
        assert obstacle(function_of(module_of(name))) is None


# ------------------------------------------------------------------------------------------- the decision


def decided(case: Case, **options: object) -> bool:
    """Whether blocks walk through tiles; the case's module then has the table, and the plan says what tiles cost."""
    made = outcome(case, **{"gate": "off", **options})
    assert made.plan is not None and made.module is not None
    args = function_of(made.module).regions[0].block.args
    names = [value_name(arg.location) for arg in args]
    said = made.plan.tile_loop is not None and len(made.plan.tile_loop.cost.loops) > 0
    assert (names[-1 - bool(made.plan.stream_k)] == TABLE) == made.plan.persistent == said
    assert (names[-1] == PARTIALS) == bool(made.plan.stream_k)
    return made.plan.persistent


def test_asked_for_or_not() -> None:
    assert decided(ODD["gemm"], persistent=True) and decided(ODD["gemm"], persistent=None)
    assert not decided(ODD["gemm"], persistent=False)


def test_a_kernel_with_a_loop_over_tiles_gets_no_second_one() -> None:
    assert not decided(ODD["persistent"], persistent=None)
    assert decided(ODD["persistent"], persistent=True), "who asks for it gets it"


def test_the_plan_leads_back_to_the_same_module() -> None:
    """The plan's numbers are those of the module with the loop, the module given is the one without."""
    first = outcome(ODD["gemm"], persistent=True)
    again = outcome(ODD["gemm"], plan=first.plan)
    assert first.module is not None and again.module is not None
    assert print_module(first.module) == print_module(again.module)


def test_asked_for_where_it_cannot_be() -> None:
    assert not decided(ODD["atomics"], persistent=None)
    made = outcome(ODD["atomics"], persistent=True)
    (remark,) = made.remarks
    assert made.module is None and made.plan is None
    assert remark.code == "not-persistent" and "atomic operations" in remark.message
    assert place(remark) == expected_place(replace(ODD["atomics"], at="atomic"))

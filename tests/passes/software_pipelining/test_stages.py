"""Which operations of a loop run late, and which dots may run on into the next iteration."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import pytest

from tests.support.cases import odd_cases
from tests.support.compiling import plain_module
from tests.support.programs import function, numbered, op_at, op_named, program
from tests.support.shipped import numbered_function, shipped
from wspec.ir.core import Operation
from wspec.ir.loc import value_name
from wspec.ir.numbering import id_of
from wspec.ir.shapes import DOTS
from wspec.model.machine import load_machine
from wspec.model.operations import loop_work
from wspec.passes.software_pipelining.stages import accumulators, choose_late, legal_late
from wspec.plan.graph import Dataflow
from wspec.plan.partition import find_sites, hot_loops
from wspec.plan.plan import LoopSchedule

ODD = {case.name: case for case in odd_cases()}


def is_load(op: Operation) -> bool:
    return op.name == "tt.descriptor_load"


def schedule_loop(loop: Operation, is_channel_load: Callable[[Operation], bool]) -> LoopSchedule:
    """What runs late."""
    return choose_late(loop, is_channel_load, load_machine("h200"))


def late(root: Operation, loop: Operation) -> list[str]:
    """The names of the late operations."""
    ids = set(schedule_loop(loop, is_load).stage1)
    return [value_name(op.location) or op.name for op in root.walk() if id_of(op) in ids]


def chain(middle: str = "", operand: str = "%p", last: str = "%o", extra: str = "") -> Operation:
    """A loop with a dot that feeds another one through `middle`."""
    return function(f"""
    %x = "tt.descriptor_load"(%a, %c0, %c0) @LOAD : (!desc, i32, i32) -> !tile loc("x")
    %x_s = "ttg.local_alloc"(%x) : (!tile) -> !buffer loc("x_s")
    %sum = "scf.for"(%c0, %n, %c64, %zero) ({{
    ^bb1(%i: i32 loc("i"), %acc: !acc loc("acc")):
      %y = "tt.descriptor_load"(%b, %i, %c0) @LOAD : (!desc64, i32, i32) -> !tile64 loc("y")
      %y_s = "ttg.local_alloc"(%y) : (!tile64) -> !buffer64 loc("y_s")
      %s = "ttng.warp_group_dot"(%x_s, %y_s, %zero) @DOT : (!buffer, !buffer64, !acc) -> !acc loc("s")
      {middle}
      %half = "arith.truncf"(%s) : (!acc) -> tensor<128x64xf16, #mma> loc("half")
      %p = "ttg.convert_layout"(%half) : (tensor<128x64xf16, #mma>) -> !operand loc("p")
      %z = "tt.descriptor_load"(%b, %c0, %i) @LOAD : (!desc64, i32, i32) -> !tile64 loc("z")
      %z_s = "ttg.local_alloc"(%z) : (!tile64) -> !buffer64 loc("z_s")
      %o = "ttng.warp_group_dot"({operand}, %z_s, %acc) @DOT : (!operand, !buffer64, !acc) -> !acc loc("o")
      {extra}
      "scf.yield"({last}) : (!acc) -> ()
    }}) : (i32, i32, i32, !acc) -> !acc loc("sum")
""")


# ----------------------------------------------------------------------------------------------------- the late part


def test_the_second_dot_and_its_load_are_late() -> None:
    root = chain()
    assert late(root, op_at(root, "sum")) == ["z", "z_s", "o"]


def test_what_depends_on_the_second_dot_is_late_too() -> None:
    root = chain(extra='%q = "arith.addf"(%o, %o) @FAST : (!acc, !acc) -> !acc loc("q")', last="%q")
    assert late(root, op_at(root, "sum")) == ["z", "z_s", "o", "q"]


def test_what_changes_the_late_state_is_late() -> None:
    """Scaling the accumulator before the second dot belongs to it; the scale itself comes from the early part."""
    scaled = '%w = "arith.mulf"(%acc, %s) @FAST : (!acc, !acc) -> !acc loc("w")'
    root = chain(scaled, extra='%q = "arith.addf"(%o, %w) @FAST : (!acc, !acc) -> !acc loc("q")', last="%q")
    assert late(root, op_at(root, "sum")) == ["w", "z", "z_s", "o", "q"]


def test_attention_keeps_its_softmax_early() -> None:
    root = numbered(plain_module(ODD["attention_masked"]))
    (loop,) = hot_loops(root)
    ids = set(schedule_loop(loop, is_load).stage1)
    body = loop.regions[0].block
    dots = [id_of(op) in ids for op in body.ops if op.name == "ttng.warp_group_dot"]
    exponentials = [id_of(op) in ids for op in body.ops if op.name == "math.exp2"]
    assert dots == [False, True]
    assert exponentials == [False, False]


@pytest.mark.parametrize("variant", ["d64", "d128", "d128_causal", "d256"])
def test_the_last_product_of_attention_is_late(variant: str) -> None:
    loops = hot_loops(numbered_function(shipped("attention.py:attention_fwd", variant)))
    for loop in loops:
        ids = set(schedule_loop(loop, is_load).stage1)
        late = {value_name(op.location) for op in loop.regions[0].block.ops if id_of(op) in ids and op.name in DOTS}
        assert late == {"acc"}


def test_nothing_is_late_where_loads_take_as_long_as_all_the_rest() -> None:
    """Dots and arithmetic of the loop take as long one after the other as its loads at the rate in the middle."""
    loop = hot_loops(numbered_function(shipped("attention.py:attention_fwd", "d128")))[0]
    machine = load_machine("h200")
    work = loop_work(loop, machine)
    rate = machine.tma_rate * work.tma / (work.mma + work.compute)
    for factor, expected in ((0.99, False), (1.01, True)):
        other = dataclasses.replace(machine, name="another", tma_rate=factor * rate)
        assert bool(choose_late(loop, is_load, other).stage1) == expected


@pytest.mark.parametrize("name", ["gemm", "two_loops", "branch", "persistent"])
def test_one_dot_has_nothing_to_run_beside(name: str) -> None:
    root = program(name)
    assert [schedule_loop(loop, is_load).stage1 for loop in hot_loops(root)] == [()] * len(hot_loops(root))


def test_dots_that_do_not_feed_each_other_stay_together() -> None:
    root = numbered(plain_module(ODD["two_products"]))
    (loop,) = hot_loops(root)
    assert schedule_loop(loop, is_load).stage1 == ()


def test_effects_keep_their_order() -> None:
    root = chain(extra='"tt.descriptor_store"(%a, %x, %c0, %i) : (!desc, !tile, i32, i32) -> ()')
    assert late(root, op_at(root, "sum")) == []


@pytest.mark.parametrize("takes_tiles", [False, True])
def test_a_loop_that_takes_tiles_is_not_late(takes_tiles: bool) -> None:
    """Of the last iteration it would run behind the loop, where the checker takes it for a loop of another length."""
    tile = '%more = "tt.descriptor_load"(%b, %c0, %j) @LOAD : (!desc64, i32, i32) -> !tile64 loc("more")'
    root = chain(
        extra=f"""
      %q = "scf.for"(%c0, %n, %c64, %o) ({{
      ^bb1(%j: i32, %so_far: !acc):
        {tile if takes_tiles else ""}
        %twice = "arith.addf"(%so_far, %so_far) @FAST : (!acc, !acc) -> !acc loc("twice")
        "scf.yield"(%twice) : (!acc) -> ()
      }}) : (i32, i32, i32, !acc) -> !acc loc("q")
""",
        last="%q",
    )
    assert late(root, op_at(root, "sum")) == ([] if takes_tiles else ["z", "z_s", "o", "q"])


def test_an_early_dot_that_needs_the_late_one_cannot_overlap() -> None:
    """The next first dot starts from the sum of the second ones: nothing is left to run beside."""
    root = chain()
    first = op_at(root, "s")
    loop = op_at(root, "sum")
    first.operands[2] = loop.regions[0].block.args[1]
    assert late(root, loop) == []


# ---------------------------------------------------------------------------------------------- late parts by hand


def ids(root: Operation, *names: str) -> frozenset[int]:
    return frozenset(id_of(op_at(root, name)) for name in names)


@pytest.mark.parametrize(
    ("names", "legal"),
    [
        (("z", "z_s", "o"), True),
        (("z", "o"), False),  # a buffer would have to be carried
        (("z_s", "o"), False),  # the tile of a ring is a buffer by then
        (("half", "p", "z", "z_s", "o"), True),  # carries more, but is right
        (("s", "half", "p", "z", "z_s", "o"), False),  # the buffer of the early load
        (("z",), False),
        (("s",), False),  # p would have to be late as well
    ],
)
def test_a_late_part_given_by_hand(names: tuple[str, ...], legal: bool) -> None:
    root = chain()
    found = legal_late(op_at(root, "sum"), ids(root, *names), is_load)
    assert found is legal


def test_operations_from_elsewhere_cannot_be_late() -> None:
    root = chain()
    legal = ids(root, "z", "z_s", "o")
    found = [legal_late(op_at(root, "sum"), legal | more, is_load) for more in (set(), ids(root, "x"), {10_000})]
    assert found == [True, False, False]


# ---------------------------------------------------------------------------------------------------- dots in flight


def in_flight(root: Operation) -> list[int]:
    """For each loop that multiplies, how many dots may run on."""
    loops = hot_loops(root)
    loads = {site.load for site in find_sites(Dataflow(root))}
    stream: Callable[[Operation], bool] = loads.__contains__
    return [len(accumulators(loop.regions[0].block, stream)) for loop in loops]


@pytest.mark.parametrize(
    ("name", "counts"),
    [("gemm", [1]), ("chain", [0]), ("two_loops", [1, 0]), ("persistent", [1])],
)
def test_dots_that_only_accumulate_may_run_on(name: str, counts: list[int]) -> None:
    assert in_flight(program(name)) == counts


@pytest.mark.parametrize(
    ("name", "count"),
    [
        ("gemm", 1),
        ("gemm_transposed", 1),
        ("two_products", 2),
        ("fp8_straight", 0),  # B is turned through registers into a buffer of the loop
        ("dequantized_a", 0),  # A is made in registers in the loop
        ("dequantized_b", 0),
        ("one_pointer", 1),
        ("load_in_branch", 0),
        ("block_scales", 0),  # the product is scaled before it is added
        ("branch_beside", 0),
        ("sum_past_a_branch", 0),  # the branch waits for its own product, and for all before it
    ],
)
def test_in_flight_needs_operands_that_stay(name: str, count: int) -> None:
    """The next iteration must not write what the dot of this one still reads."""
    assert in_flight(numbered(plain_module(ODD[name]))) == [count]


def test_an_accumulator_that_is_read_elsewhere_must_be_complete() -> None:
    root = program("gemm")
    loop, dot = op_named(root, "scf.for"), op_at(root, "dot")
    body = loop.regions[0].block
    reader = Operation.create("math.exp2", [body.args[1]], [dot.result.type])
    body.insert(body.ops.index(dot), reader)
    assert in_flight(root) == [0]

"""Cuts between anchors of small programs: what crosses, and what may not be divided."""

from __future__ import annotations

from tests.support.programs import function
from wspec.ir.core import Operation
from wspec.ir.loc import value_name
from wspec.ir.numbering import id_of
from wspec.model.machine import load_machine
from wspec.plan.graph import Dataflow
from wspec.planner.cuts import Cut, find_cuts


def two_dots(first_sum: str = "%zero", second_operand: str = "%p", right: str = "%z_s", extra: str = "") -> Operation:
    """A loop whose second dot takes what the first one gives, through a change of precision."""
    return function(f"""
    %x = "tt.descriptor_load"(%a, %c0, %c0) @LOAD : (!desc, i32, i32) -> !tile loc("x")
    %x_s = "ttg.local_alloc"(%x) : (!tile) -> !buffer loc("x_s")
    %sum = "scf.for"(%c0, %n, %c64, %zero) ({{
    ^bb1(%i: i32 loc("i"), %acc: !acc loc("acc")):
      %y = "tt.descriptor_load"(%b, %i, %c0) @LOAD : (!desc64, i32, i32) -> !tile64 loc("y")
      %y_s = "ttg.local_alloc"(%y) : (!tile64) -> !buffer64 loc("y_s")
      %s = "ttng.warp_group_dot"(%x_s, %y_s, {first_sum}) @DOT : (!buffer, !buffer64, !acc) -> !acc loc("s")
      %half = "arith.truncf"(%s) : (!acc) -> tensor<128x64xf16, #mma> loc("half")
      %p = "ttg.convert_layout"(%half) : (tensor<128x64xf16, #mma>) -> !operand loc("p")
      %z = "tt.descriptor_load"(%b, %c0, %i) @LOAD : (!desc64, i32, i32) -> !tile64 loc("z")
      {extra}
      %z_s = "ttg.local_alloc"(%z) : (!tile64) -> !buffer64 loc("z_s")
      %o = "ttng.warp_group_dot"({second_operand}, {right}, %acc) @DOT
        : (!operand, !buffer64, !acc) -> !acc loc("o")
      "scf.yield"(%o) : (!acc) -> ()
    }}) : (i32, i32, i32, !acc) -> !acc loc("sum")
""")


def cuts(root: Operation) -> list[Cut]:
    flow = Dataflow(root)
    return find_cuts(flow, list(flow.hot_loops), load_machine("h200"))


def names(root: Operation, numbers: frozenset[int]) -> set[str | None]:
    return {value_name(op.location) for op in root.walk() if id_of(op) in numbers}


def sent(cut: Cut) -> list[str | None]:
    return [value_name(value.op.location) for value in cut.values if value.op is not None]


def test_what_crosses_between_two_dots_is_the_smaller_form() -> None:
    """16 bits a number instead of 32, as near to its reader as can be; both places between the dots give this cut."""
    root = two_dots()
    (cut,) = cuts(root)
    assert sent(cut) == ["p"]
    assert (names(root, cut.before), names(root, cut.behind)) == ({"s"}, {"o"})
    assert not cut.converts and not cut.stores


def test_an_operand_of_the_second_dot_that_is_computed_from_a_tile_can_be_sent_too() -> None:
    """Arithmetic that no dot comes before is a place of its own, in kernels with several dots as well."""
    root = two_dots(
        extra="""%w = "arith.addf"(%z, %z) @FAST : (!tile64, !tile64) -> !tile64 loc("w")
      %w_s = "ttg.local_alloc"(%w) : (!tile64) -> !buffer64 loc("w_s")""",
        right="%w_s",
    )
    found = cuts(root)
    assert [sent(cut) for cut in found] == [["w"], ["p", "w"], ["p"]]
    assert [cut.converts for cut in found] == [True, False, False]
    assert names(root, found[0].before) == {"w"} and found[0].place < found[2].place < found[1].place


def test_what_one_iteration_takes_from_the_one_before_is_not_divided() -> None:
    """The first dot adds to what the second one gave: a value would have to go back."""
    root = two_dots(first_sum="%acc")
    (loop,) = Dataflow(root).hot_loops
    assert [names(root, frozenset(map(id_of, ops))) for ops in Dataflow(root).recurrences(loop)] == [
        {"s", "half", "p", "o"}
    ]
    assert cuts(root) == []

"""The dataflow graph: which edges there are, and what may touch the same memory."""

from __future__ import annotations

from tests.support.programs import function, op_at, op_named, program, value_at
from wspec.ir.core import Operation
from wspec.ir.loc import value_name
from wspec.ir.numbering import id_of
from wspec.plan.graph import Dataflow, may_alias, memory_base


def edges(root: Operation, kind: str) -> set[tuple[str, str]]:
    """(from, to) of the edges of a kind between operations that have names."""
    graph = Dataflow(root).graph
    name = {node: value_name(op.location) or op.name for node, op in graph.nodes(data="op")}
    return {(name[a], name[b]) for a, b, data in graph.edges(data=True) if data["kind"] == kind}


def test_every_operation_is_a_node() -> None:
    root = program("gemm")
    graph = Dataflow(root).graph
    assert list(graph.nodes) == list(range(len(list(root.walk()))))
    assert all(id_of(op) == node for node, op in graph.nodes(data="op"))


def test_results_that_are_operands() -> None:
    found = edges(program("gemm"), "ssa")
    assert {("a", "a_s"), ("a_s", "dot"), ("b_s", "dot"), ("sum", "half"), ("row", "a")} <= found
    assert ("zero", "dot") not in found


def test_values_carried_round_a_loop() -> None:
    root = program("gemm")
    assert edges(root, "carried") == {("dot", "dot")}
    graph = Dataflow(root).graph
    distances = {data["kind"]: data["distance"] for _, _, data in graph.edges(data=True)}
    assert distances["carried"] == 1 and distances["ssa"] == 0


def test_control_reaches_what_stands_inside() -> None:
    found = edges(program("branch"), "control")
    assert {("sum", "a"), ("sum", "next"), ("next", "b"), ("next", "dot")} <= found
    assert ("sum", "b") not in found


def test_memory_edges_join_a_store_and_later_accesses() -> None:
    root = function("""
    %t = "tt.descriptor_load"(%a, %c0, %c0) @LOAD : (!desc, i32, i32) -> !tile loc("t")
    "tt.descriptor_store"(%a, %t, %c0, %c0) : (!desc, !tile, i32, i32) -> () loc("store")
    %u = "tt.descriptor_load"(%a, %c0, %c64) @LOAD : (!desc, i32, i32) -> !tile loc("u")
    %v = "tt.descriptor_load"(%b, %c0, %c64) @LOAD : (!desc64, i32, i32) -> !tile64 loc("v")
""")
    assert edges(root, "memory") == {("t", "store"), ("store", "u")}


POINTERS = "%p: !tt.ptr<f16>; %q: !tt.ptr<f16>; %n: i32"
MOVED = """
    %two = "arith.constant"() <{value = 2 : i32}> : () -> i32 loc("two")
    %at = "tt.addptr"(%p, %two) : (!tt.ptr<f16>, i32) -> !tt.ptr<f16> loc("at")
    %x = "tt.load"(%at) @READ : (!tt.ptr<f16>) -> f16 loc("x")
    "tt.store"(%p, %x) @WRITE : (!tt.ptr<f16>, f16) -> () loc("same")
    "tt.store"(%q, %x) @WRITE : (!tt.ptr<f16>, f16) -> () loc("other")
    %address = "tt.ptr_to_int"(%q) : (!tt.ptr<f16>) -> i64 loc("address")
    %back = "tt.int_to_ptr"(%address) : (i64) -> !tt.ptr<f16> loc("back")
    "tt.store"(%back, %x) @WRITE : (!tt.ptr<f16>, f16) -> () loc("anywhere")
"""


def test_memory_is_told_apart_by_argument() -> None:
    root = function(MOVED, POINTERS)
    load, same, other, anywhere = (op_at(root, name) for name in ("x", "same", "other", "anywhere"))
    assert memory_base(load) is memory_base(same) is value_at(root, "p")
    assert memory_base(anywhere) is None
    assert may_alias(load, same)
    assert not may_alias(load, other)
    assert may_alias(load, anywhere), "what cannot be traced may be anywhere"


def test_a_pointer_carried_round_a_loop_is_traced_to_where_it_came_in() -> None:
    root = function(
        """
    %end = "scf.for"(%c0, %n, %c64, %p) ({
    ^bb1(%i: i32 loc("i"), %now: !tt.ptr<f16> loc("now")):
      %x = "tt.load"(%now) @READ : (!tt.ptr<f16>) -> f16 loc("x")
      %next = "tt.addptr"(%now, %c64) : (!tt.ptr<f16>, i32) -> !tt.ptr<f16> loc("next")
      "scf.yield"(%next) : (!tt.ptr<f16>) -> ()
    }) : (i32, i32, i32, !tt.ptr<f16>) -> !tt.ptr<f16> loc("end")
""",
        POINTERS,
    )
    assert memory_base(op_at(root, "x")) is value_at(root, "p")


def test_readers_are_found_at_any_depth() -> None:
    root = program("branch")
    loop = op_at(root, "sum")
    found = loop.regions[0].block.readers(value_at(root, "i"))
    assert [value_name(op.location) for op in found] == ["a", "inside", "b"]


def test_what_an_address_needs() -> None:
    """Through the loops around it: the counter of a loop needs the loop's bounds."""
    root = program("persistent")
    of_a = {value_name(op.location) for op in Dataflow(root).slice_of(op_at(root, "a").operands[1:])}
    of_b = {value_name(op.location) for op in Dataflow(root).slice_of(op_at(root, "b").operands[1:])}
    assert of_a == {"c0", "c64", "row", "start", "blocks"}
    assert of_b == {"c0", "c64"}


def test_what_the_result_of_a_branch_needs() -> None:
    root = function("""
    %is = "arith.cmpi"(%n, %c0) <{predicate = 4 : i64}> : (i32, i32) -> i1 loc("is")
    %x = "scf.if"(%is) ({
      %more = "arith.addi"(%n, %c64) <{overflowFlags = #arith.overflow<none>}> : (i32, i32) -> i32 loc("more")
      "scf.yield"(%more) : (i32) -> ()
    }, {
      "scf.yield"(%c0) : (i32) -> ()
    }) : (i1) -> i32 loc("x")
    %t = "tt.descriptor_load"(%a, %x, %c0) @LOAD : (!desc, i32, i32) -> !tile loc("t")
""")
    needed = Dataflow(root).slice_of(op_named(root, "tt.descriptor_load").operands)
    found = {value_name(op.location) for op in needed}
    assert found == {"is", "x", "more", "c0", "c64"}


TWO = """
    %x, %y = "scf.for"(%c0, %n, %c64, %c0, %c0) ({
    ^bb1(%i: i32 loc("i"), %p: i32 loc("p"), %q: i32 loc("q")):
      %one = "arith.addi"(%p, %c64) <{overflowFlags = #arith.overflow<none>}> : (i32, i32) -> i32 loc("one")
      %two = "arith.addi"(%q, %i) <{overflowFlags = #arith.overflow<none>}> : (i32, i32) -> i32 loc("two")
      "scf.yield"(%one, %two) : (i32, i32) -> ()
    }) : (i32, i32, i32, i32, i32) -> (i32, i32) loc("loop")
    %t = "tt.descriptor_load"(%a, %x, %y) @LOAD : (!desc, i32, i32) -> !tile loc("t")
"""


def test_each_result_of_a_loop_needs_its_own_part_of_it() -> None:
    root = function(TWO)
    flow, load = Dataflow(root), op_named(root, "tt.descriptor_load")
    names = [{value_name(op.location) for op in flow.slice_of(part)} for part in ([load.operands[1]], load.operands)]
    assert names[0] == {"loop", "one", "c0", "c64"}
    assert names[1] == names[0] | {"two"}


def test_recurrences_are_what_a_loop_computes_from_the_iteration_before() -> None:
    root = function(TWO)
    found = Dataflow(root).recurrences(op_at(root, "loop"))
    assert [{value_name(op.location) for op in ops} for ops in found] == [{"one"}, {"two"}]
    gemm = program("gemm")
    (loop,) = Dataflow(gemm).hot_loops
    assert [{value_name(op.location) for op in ops} for ops in Dataflow(gemm).recurrences(loop)] == [{"dot"}]


def test_users_and_conflicts_are_found_once() -> None:
    root = function(MOVED, POINTERS)
    flow = Dataflow(root)
    assert [value_name(op.location) for op in flow.users(value_at(root, "q"))] == ["other", "address"]
    assert [value_name(op.location) for op in flow.conflicts(op_at(root, "x"))] == ["same", "anywhere"]

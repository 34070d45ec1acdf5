"""The dataflow graph of one kernel, in networkx, and what the planner asks it.

`Dataflow` is the one place of such questions. It holds two views of the kernel. In `graph` nodes are operation ids
(`plan.number`), with the operation as attribute `op`, and edges carry `kind`:

    ssa      a result is an operand                       (distance 0)
    carried  a value yielded by one iteration is read in the next   (distance 1)
    memory   a store and a later access of the same memory, or the reverse
    control  a loop or branch and what stands inside it; its bounds or condition decide whether it runs

In `values` nodes are operations and the values between them, so that what goes through a loop or a branch can be told
apart: only the edges of one of its results lead to that result. Everything the planner decides, it decides from here;
nothing looks at a kernel's name.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property

import networkx as nx

from wspec.ir.core import Block, Operation, Value
from wspec.ir.numbering import id_of
from wspec.ir.shapes import DOTS

Node = Operation | Value  # of the graph of values

LOADS = frozenset({"tt.load", "tt.descriptor_load", "tt.descriptor_gather"})
STORES = frozenset(
    {"tt.store", "tt.descriptor_store", "tt.descriptor_reduce", "tt.descriptor_scatter", "tt.atomic_rmw",
     "tt.atomic_cas"}
)  # fmt: skip
BARRIERS = frozenset({"gpu.barrier", "ttg.barrier", "ttg.local_barrier"})  # of all the kernel's threads
_ADDRESS_OPS = frozenset(
    {"tt.addptr", "tt.splat", "tt.broadcast", "tt.expand_dims", "ttg.convert_layout", "tt.bitcast", "tt.reshape",
     "tt.trans", "tt.make_tensor_descriptor"}
)  # fmt: skip


@dataclass(frozen=True, eq=False)
class Dataflow:
    """A numbered function and its graph. Each view is made when it is first asked for; the function must not change."""

    function: Operation

    @cached_property
    def graph(self) -> nx.MultiDiGraph:
        """Operations, by number."""
        return _operations(self.function, self._users)

    @cached_property
    def values(self) -> nx.DiGraph:
        """Operations and values."""
        return _values(self.function)

    @cached_property
    def _deciding(self) -> dict[Value, list[Value]]:
        """Values of loops and branches, and what only decides whether, or how often, they are computed."""
        found = [pair for op in self.function.walk() if op.name in _CONTROL for pair in _decided(op)]
        return dict(found)

    @cached_property
    def _users(self) -> dict[Value, list[Operation]]:
        found: dict[Value, list[Operation]] = {}
        for op in self.function.walk():
            for value in dict.fromkeys(op.operands):
                found.setdefault(value, []).append(op)
        return found

    @cached_property
    def _slices(self) -> dict[tuple[frozenset[Value], Operation], frozenset[Operation]]:
        return {}

    @cached_property
    def _cycles(self) -> dict[Operation, list[frozenset[Operation]]]:
        return {}

    def users(self, value: Value) -> list[Operation]:
        """The operations that read the value, in program order."""
        return self._users.get(value, [])

    @cached_property
    def dots(self) -> tuple[Operation, ...]:
        return tuple(op for op in self.function.walk() if op.name in DOTS)

    @cached_property
    def stores(self) -> tuple[Operation, ...]:
        """What writes global memory."""
        return tuple(op for op in self.function.walk() if op.name in STORES)

    @cached_property
    def hot_loops(self) -> tuple[Operation, ...]:
        """The loops that multiply: each is the innermost loop around some dot. In program order."""
        innermost = {loop for dot in self.dots for loop in loops_around(dot)[:1]}
        return tuple(op for op in self.function.walk() if op in innermost)

    def slice_of(self, values: Iterable[Value], within: Operation | None = None) -> frozenset[Operation]:
        """The operations inside `within` (the function) that computing the values takes, through loops and branches,
        with their control."""
        within, start = within if within is not None else self.function, frozenset(values)
        if (start, within) not in self._slices:
            self._slices[start, within] = self._slice(start, within)
        return self._slices[start, within]

    def _slice(self, values: Iterable[Value], within: Operation) -> frozenset[Operation]:
        seen: set[Node] = set()
        found: set[Operation] = set()
        work: list[Node] = list(values)
        while work:
            node = work.pop()
            if node in seen:
                continue
            seen.add(node)
            op = _operation(node)
            if op is not None and op not in found:
                if not op.is_inside(within):
                    continue
                found.add(op)
            work += self.values.pred.get(node, ())
            work += self._deciding.get(node, ()) if isinstance(node, Value) else ()
        return frozenset(found)

    def reached(self, start: Iterable[Operation], *, backwards: bool = False) -> set[Node]:
        """Where the results of operations lead, themselves included; or all that leads to them."""
        edges = self.values.pred if backwards else self.values.succ
        work: list[Node] = list(start)
        found = set[Node](work)
        while work:
            new = [node for node in edges.get(work.pop(), ()) if node not in found]
            found.update(new)
            work += new
        return found

    def feeding(self, dot: Operation) -> frozenset[Operation]:
        """What the operands of a dot, not its sum, take of the loop around it."""
        return self.slice_of(dot.operands[:2], (*loops_around(dot), self.function)[0])

    def conflicts(self, access: Operation) -> list[Operation]:
        """The stores that may touch the memory of a load or store."""
        return [store for store in self.stores if store is not access and may_alias(access, store)]

    def recurrences(self, loop: Operation) -> list[frozenset[Operation]]:
        """The operations of each cycle of values round a loop: what one iteration computes from the one before.

        Cycles that share an operation are one.
        """
        if loop not in self._cycles:
            inside = {op for op in loop.walk() if op is not loop}
            nodes = [node for node in self.values if _operation(node) in inside]
            flow = self.values.subgraph([*nodes, *loop.regions[0].block.args])
            parts = (part for part in nx.strongly_connected_components(flow) if len(part) > 1)
            found = (frozenset(node for node in part if isinstance(node, Operation)) for part in parts)
            cycles = [ops for ops in found if ops]  # values that only change places are computed by nobody
            self._cycles[loop] = sorted(cycles, key=lambda ops: min(map(id_of, ops)))
        return self._cycles[loop]


def loops_around(op: Operation) -> list[Operation]:
    """The loops around an operation, innermost first."""
    return [outer for outer in op.ancestors() if outer.name == "scf.for"]


def _operation(node: Node) -> Operation | None:
    """Of a value the operation that makes it; None for an argument."""
    return node.op if isinstance(node, Value) else node


# ---------------------------------------------------------------------------------------------- operations


def _operations(function: Operation, users: dict[Value, list[Operation]]) -> nx.MultiDiGraph:
    graph = nx.MultiDiGraph()
    for op in function.walk():
        graph.add_node(id_of(op), op=op)
    for op in function.walk():
        for value in op.operands:
            if value.op is not None:
                graph.add_edge(id_of(value.op), id_of(op), kind="ssa", distance=0)
        _add_carried(graph, op, users)
        for block in op.blocks:
            for inner in block.ops:
                graph.add_edge(id_of(op), id_of(inner), kind="control", distance=0)
    _add_memory(graph, function)
    return graph


def _add_carried(graph: nx.MultiDiGraph, op: Operation, users: dict[Value, list[Operation]]) -> None:
    if op.name != "scf.for":
        return
    body = op.regions[0].block
    for index, value in enumerate(body.terminator.operands):
        if value.op is None:
            continue
        for user in users.get(body.args[1 + index], []):
            graph.add_edge(id_of(value.op), id_of(user), kind="carried", distance=1)


# -------------------------------------------------------------------------------------------------- values

_CONTROL = ("scf.for", "scf.if")  # values go through them, each by a way of its own
_NO_RESULT = frozenset({"scf.yield", "tt.func"})


def _values(function: Operation) -> nx.DiGraph:
    graph = nx.DiGraph()
    for op in function.walk():
        graph.add_edges_from(_through(op) if op.name in _CONTROL else _across(op))
    return graph


def _across(op: Operation) -> Iterator[tuple[Node, Node]]:
    """From its operands to an operation, from there to its results; the operations inside of it are part of it."""
    if op.name in _NO_RESULT:
        return
    for value in op.operands:
        yield value, op
    for block in op.blocks:
        for inner in block.ops:
            for value in inner.operands:
                yield value, op
    for result in op.results:
        yield op, result


def _through(op: Operation) -> Iterator[tuple[Node, Node]]:
    """Into a loop or a branch, round it and out of it."""
    blocks = [region.block for region in op.regions if region.blocks]
    carried = op.operands[3:] if op.name == "scf.for" else []
    for index, result in enumerate(op.results):
        inside = [block.args[1 + index] for block in blocks] if op.name == "scf.for" else []
        for source in [*(block.terminator.operands[index] for block in blocks), *carried[index : index + 1]]:
            for target in (result, *inside):
                yield source, target


def _decided(op: Operation) -> Iterator[tuple[Value, list[Value]]]:
    """What a loop or branch makes, each with the bounds or the condition."""
    loops = op.name == "scf.for"
    bounds = op.operands[:3] if loops else op.operands[:1]
    for target in (*op.results, *(op.regions[0].block.args if loops else [])):
        yield target, bounds


# -------------------------------------------------------------------------------------------------- memory


def memory_base(op: Operation) -> Value | None:
    """The pointer or descriptor an access goes through, traced back to where it enters the kernel; None: unknown."""
    value = op.operands[0]
    for _ in range(1000):
        owner = value.op
        if owner is None:
            block = value.owner
            parent = block.parent_op if isinstance(block, Block) else None
            if parent is None or parent.name == "tt.func":
                return value
            if parent.name != "scf.for" or value.index == 0:
                return None
            value = parent.operands[2 + value.index]
        elif owner.name in _ADDRESS_OPS:
            value = owner.operands[0]
        else:
            return None
    return None


def _add_memory(graph: nx.MultiDiGraph, function: Operation) -> None:
    accesses = [op for op in function.walk() if op.name in LOADS or op.name in STORES]
    for position, first in enumerate(accesses):
        for second in accesses[position + 1 :]:
            if (first.name in STORES or second.name in STORES) and may_alias(first, second):
                graph.add_edge(id_of(first), id_of(second), kind="memory", distance=0)


def may_alias(first: Operation, second: Operation) -> bool:
    """Two accesses touch the same memory if they go through the same argument, or one of them cannot be traced.

    Different arguments are taken not to overlap: each launch compares them (overlap.py).
    """
    a, b = memory_base(first), memory_base(second)
    return a is None or b is None or a is b

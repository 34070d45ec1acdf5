"""The dataflow graph of one kernel, in networkx.

Nodes are operation ids (`plan.number`), with the operation as attribute `op`. Edges carry `kind`:

    ssa      a result is an operand                       (distance 0)
    carried  a value yielded by one iteration is read in the next   (distance 1)
    memory   a store and a later access of the same memory, or the reverse
    control  a loop or branch and what stands inside it; its bounds or condition decide whether it runs

Everything the planner decides, it decides from here; nothing looks at a kernel's name.
"""

from __future__ import annotations

from collections.abc import Iterable

import networkx as nx

from wspec.ir.core import Block, Operation, Value
from wspec.ir.numbering import id_of

LOADS = frozenset({"tt.load", "tt.descriptor_load", "tt.descriptor_gather"})
STORES = frozenset(
    {"tt.store", "tt.descriptor_store", "tt.descriptor_reduce", "tt.descriptor_scatter", "tt.atomic_rmw",
     "tt.atomic_cas"}
)  # fmt: skip
_ADDRESS_OPS = frozenset(
    {"tt.addptr", "tt.splat", "tt.broadcast", "tt.expand_dims", "ttg.convert_layout", "tt.bitcast", "tt.reshape",
     "tt.trans", "tt.make_tensor_descriptor"}
)  # fmt: skip


def build_graph(function: Operation) -> nx.MultiDiGraph:
    """The graph of a numbered function."""
    graph = nx.MultiDiGraph()
    for op in function.walk():
        graph.add_node(id_of(op), op=op)
    for op in function.walk():
        _add_ssa(graph, op)
        _add_carried(graph, op)
        for region in op.regions:
            for block in region.blocks:
                for inner in block.ops:
                    graph.add_edge(id_of(op), id_of(inner), kind="control", distance=0)
    _add_memory(graph, function)
    return graph


def _add_ssa(graph: nx.MultiDiGraph, op: Operation) -> None:
    for value in op.operands:
        if value.op is not None:
            graph.add_edge(id_of(value.op), id_of(op), kind="ssa", distance=0)


def _add_carried(graph: nx.MultiDiGraph, op: Operation) -> None:
    if op.name != "scf.for":
        return
    body = op.regions[0].block
    for index, value in enumerate(body.terminator.operands):
        if value.op is None:
            continue
        for user in readers(body, body.args[1 + index]):
            graph.add_edge(id_of(value.op), id_of(user), kind="carried", distance=1)


def readers(block: Block, value: Value) -> list[Operation]:
    """The operations in `block`, at any depth, that use `value`."""
    return [op for top in block.ops for op in top.walk() if value in op.operands]


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

    Different arguments are taken not to overlap, as Triton's own pipeliner takes them.
    """
    a, b = memory_base(first), memory_base(second)
    return a is None or b is None or a is b


def needed_for(values: Iterable[Value], within: Operation) -> set[Operation]:
    """The operations inside `within` that computing `values` takes, through loops and branches, with their control."""
    found: set[Operation] = set()
    seen: set[Value] = set()
    work = list(values)
    while work:
        value = work.pop()
        if value in seen:
            continue
        seen.add(value)
        op = value.op
        if op is None:
            work += _sources_of_argument(value)
            continue
        if op in found or not op.is_inside(within):
            continue
        found.add(op)
        work += op.operands if op.name not in ("scf.for", "scf.if") else _sources_of_result(op, value.index)
        for region in op.regions if op.name not in ("scf.for", "scf.if") else []:
            work += [v for b in region.blocks for o in b.ops for v in o.operands]
    return found


def _sources_of_argument(value: Value) -> list[Value]:
    block = value.owner
    parent = block.parent_op if isinstance(block, Block) else None
    if parent is None or parent.name != "scf.for":
        return []
    if value.index == 0:
        return parent.operands[:3]
    body = parent.regions[0].block
    return [parent.operands[2 + value.index], body.terminator.operands[value.index - 1], *parent.operands[:3]]


def _sources_of_result(op: Operation, index: int) -> list[Value]:
    inner = [region.block.terminator.operands[index] for region in op.regions if region.blocks]
    if op.name == "scf.for":
        return [*op.operands[:3], op.operands[3 + index], *inner]
    return [op.operands[0], *inner]

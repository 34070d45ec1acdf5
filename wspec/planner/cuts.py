"""Where a kernel can be cut into a chain of tasks: sets of values that one task would send to the next.

Four ends are tried, each given by what must stay before the cut and what behind it:

    operands  tiles computed from loads before the dots that read them (a dequantized weight)
    chain     the first dots of a loop and the arithmetic on tiles behind them before its last dot (attention's P)
    product   the first dots alone before the last one (attention's S)
    store     the dots of a loop in a loop before the stores of the tile (a persistent kernel's output)

Between the two ends the cheapest cut of the dataflow graph is taken: a value costs its handshake and its way through
shared memory. What depends on nothing before the cut is not cut but computed on both sides.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import networkx as nx
from networkx.algorithms.flow import edmonds_karp

from wspec.ir.core import Block, Operation, Value
from wspec.ir.numbering import id_of
from wspec.ir.shapes import DOTS
from wspec.ir.types import ScalarType, TensorType
from wspec.model.machine import Machine
from wspec.model.operations import byte_size, cost
from wspec.plan.graph import STORES, needed_for
from wspec.plan.values import goes_through_tma

OPERANDS, CHAIN, PRODUCT, STORE = "operands", "chain", "product", "store"
MAX_VALUES = 6


@dataclass(frozen=True, slots=True)
class Cut:
    """Values that cross from the operations `before` to those `behind`."""

    kind: str
    values: tuple[Value, ...]
    before: frozenset[int]  # numbers of operations
    behind: frozenset[int]
    cycles: float  # handshakes and shared memory of all values, once


def find_cuts(function: Operation, loops: list[Operation], machine: Machine) -> list[Cut]:
    """The cheapest cut of each kind that the kernel has."""
    ends = {kind: find(function, loops, machine) for kind, find in _ENDS.items()}
    cuts = [_cheapest(function, kind, before, behind, machine) for kind, (before, behind) in ends.items() if before]
    return [cut for cut in cuts if cut is not None]


# ---------------------------------------------------------------------------------------------------- ends

Ends = tuple[list[Operation], list[Operation]]


def _dots(loops: Iterable[Operation]) -> list[Operation]:
    return [op for loop in loops for op in loop.walk() if op.name in DOTS]


def _operand_ends(function: Operation, loops: list[Operation], machine: Machine) -> Ends:
    """Arithmetic on whole tiles between the loads of a loop and its dots."""
    before: list[Operation] = []
    for dot in (dots := _dots(loops)):
        feeding = needed_for(dot.operands[:2], function)
        if any(op in feeding for op in dots):
            return [], []
        loop = next(op for op in dot.ancestors() if op.name == "scf.for")
        before += [op for op in feeding if op.is_inside(loop) and _is_tile_work(op, machine)]
    return list(dict.fromkeys(before)), [*dots, *_stores(function)]


def _is_tile_work(op: Operation, machine: Machine) -> bool:
    made = op.results[0].type if op.results else None
    if not isinstance(made, TensorType) or len(made.shape) != 2 or min(made.shape) == 1:
        return False
    return isinstance(made.element, ScalarType) and cost(op, machine).unit in ("fma", "exp")


def _product_ends(function: Operation, loops: list[Operation], machine: Machine) -> Ends:
    """Dots whose results lead to the operands of the loop's last dot in the same loop."""
    before: list[Operation] = []
    behind: list[Operation] = []
    for loop in loops:
        dots = _dots([loop])
        feeding = needed_for(dots[-1].operands[:2], loop)
        first = [dot for dot in dots[:-1] if dot in feeding]
        if first:
            before += first
            behind.append(dots[-1])
    return (before, [*behind, *_stores(function)]) if len(behind) == len(loops) else ([], [])


def _chain_ends(function: Operation, loops: list[Operation], machine: Machine) -> Ends:
    """Those, and all arithmetic on tiles between them and the last dot."""
    before, behind = _product_ends(function, loops, machine)
    if before:
        for loop in loops:
            feeding = needed_for(_dots([loop])[-1].operands[:2], loop)
            before += [op for op in loop.walk() if op in feeding and _is_tile_work(op, machine)]
    return before, behind


def _stores(function: Operation) -> list[Operation]:
    """The end of the chain makes them."""
    return [op for op in function.walk() if op.name in STORES]


def _store_ends(function: Operation, loops: list[Operation], machine: Machine) -> Ends:
    """Stores through descriptors that stand in a loop around the loop that multiplies."""
    stores = [op for op in function.walk() if op.name == "tt.descriptor_store"]
    others = [op for op in function.walk() if op.name in ("tt.store", "tt.atomic_rmw", "tt.atomic_cas")]
    around = [op for loop in loops for op in loop.ancestors() if op.name == "scf.for"]
    looped = [store for store in stores if any(store.parent_op is op for op in around)]
    return (_dots(loops), stores) if stores and looped == stores and not others else ([], [])


_ENDS = {OPERANDS: _operand_ends, CHAIN: _chain_ends, PRODUCT: _product_ends, STORE: _store_ends}


# ----------------------------------------------------------------------------------------------------- cut


def value_cycles(value: Value, machine: Machine) -> float:
    """What sending a value costs: a handshake each way, written once and read once."""
    return machine.mbarrier_latency + 2 * byte_size(value.type) / machine.smem_rate


def _can_send(value: Value, kind: str, body: Block) -> bool:
    """Whoever stores hands the buffer to TMA as it is; others take a value out of it."""
    type = value.type
    if not isinstance(type, TensorType) or not isinstance(type.element, ScalarType) or value.op is None:
        return False
    if len(type.shape) not in (1, 2, 3) or type.element.bits < 8:
        return False
    return kind != STORE or goes_through_tma(body, value)


def _cheapest(
    function: Operation, kind: str, before: list[Operation], behind: list[Operation], machine: Machine
) -> Cut | None:
    graph, body = nx.DiGraph(), function.regions[0].block
    for op in before:
        graph.add_edge("start", ("op", op))
    for op in behind:
        graph.add_edge(("op", op), "end")
    for op in function.walk():
        _add_operation(graph, op, lambda value: _can_send(value, kind, body), machine)
    if not nx.has_path(graph, "start", "end"):
        return None
    try:
        _, (near, _) = nx.minimum_cut(graph, "start", "end", flow_func=edmonds_karp)  # few ways lead across
    except nx.NetworkXUnbounded:  # something that cannot be sent would have to be
        return None
    values = [node[1] for node in near if node[0] == "in" and ("out", node[1]) not in near]
    if not 0 < len(values) <= MAX_VALUES:
        return None
    values.sort(key=lambda value: (id_of(value.op), value.index) if value.op is not None else (-1, 0))
    ids = (frozenset(map(id_of, before)), frozenset(map(id_of, behind)))
    return Cut(kind, tuple(values), *ids, sum(value_cycles(value, machine) for value in values))


def _add_operation(graph: nx.DiGraph, op: Operation, can_send: Callable[[Value], bool], machine: Machine) -> None:
    for value in op.results:
        if op.name not in ("scf.for", "scf.if"):
            graph.add_edge(("op", op), ("in", value))
        _add_value(graph, value, can_send(value), machine)
    if op.name in ("scf.for", "scf.if"):
        _add_control(graph, op, machine)
    elif op.name != "scf.yield":
        for value in op.operands:
            graph.add_edge(("out", value), ("op", op))


def _add_value(graph: nx.DiGraph, value: Value, can_be_sent: bool, machine: Machine) -> None:
    """Among equals a row is cheaper than a tile of one column; the nearest to where it is read is taken."""
    if can_be_sent:
        row = isinstance(value.type, TensorType) and len(value.type.shape) == 1
        graph.add_edge(("in", value), ("out", value), capacity=value_cycles(value, machine) + (0.0 if row else 0.01))
    else:
        graph.add_edge(("in", value), ("out", value))


def _add_control(graph: nx.DiGraph, op: Operation, machine: Machine) -> None:
    """Values flow into a loop or branch, round it and out of it."""
    blocks: list[Block] = [region.block for region in op.regions if region.blocks]
    carried = op.operands[3:] if op.name == "scf.for" else []
    for index, result in enumerate(op.results):
        sources = [block.terminator.operands[index] for block in blocks] + carried[index : index + 1]
        targets = [result] + [block.args[1 + index] for block in blocks if op.name == "scf.for"]
        for source in sources:
            for target in targets:
                graph.add_edge(("out", source), ("in", target))
        for target in targets[1:]:
            graph.add_edge(("in", target), ("out", target))  # what is carried round a loop is not sent from its start

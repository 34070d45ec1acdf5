"""Where a kernel can be cut into a chain of tasks: sets of values that one task would send to the next.

*Anchors* are the operations that say what a task is for: loads, arithmetic on tiles, dots, stores. They stand in order:

    loads | arithmetic on operands | first dots | arithmetic on what they give | second dots | ... | stores

A dot is a second one where the operands of it take a first one's result in the same loop. A cut has the anchors of one
or more places before it and the others behind it: those of a dequantized weight, of attention's S or P, of the output
tile of a persistent kernel are found in this way, and what the task before or behind is for is told by its anchors.

Between the two a minimum cut of the graph of values is taken: a value costs its handshake and its way through shared
memory. What depends on nothing before the cut is not cut but computed on both sides. What a loop carries round may not
be divided: a value would have to go back.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeGuard

import networkx as nx

from wspec.ir.core import Block, Operation, Value
from wspec.ir.numbering import id_of
from wspec.ir.shapes import DOTS, shape_of
from wspec.ir.types import ScalarType, TensorType
from wspec.model.machine import Machine
from wspec.model.operations import byte_size, cost
from wspec.plan.graph import LOADS, Dataflow, Node, loops_around
from wspec.plan.values import goes_through_tma

MAX_VALUES = 6
MAX_CUTS = 8
STORE = "tt.descriptor_store"


@dataclass(frozen=True, slots=True)
class Cut:
    """Values that cross from the operations `before` to those `behind`."""

    place: int  # among the anchors: a cut of a higher place lies beyond
    values: tuple[Value, ...]
    before: frozenset[int]  # numbers of operations
    behind: frozenset[int]
    multiplied: bool  # is there a dot before it?
    multiplies: bool  # is there one behind it?
    cycles: float  # handshakes and shared memory of all values, once

    @property
    def converts(self) -> bool:
        """Does the task before it compute operands?"""
        return not self.multiplied

    @property
    def stores(self) -> bool:
        """Does the task behind it do no more than hand finished tiles to TMA?"""
        return not self.multiplies


def find_cuts(flow: Dataflow, loops: list[Operation], machine: Machine) -> list[Cut]:
    """The cheapest cut of each place, in dataflow order; of those that send the same values the one that demands the
    least, and of too many the cheapest."""
    found: dict[tuple[Value, ...], Cut] = {}
    for ends in _places(flow, loops, machine):
        cut = _cheapest(flow, ends, machine)
        if cut is not None and (cut.values not in found or cut.before < found[cut.values].before):
            found[cut.values] = cut
    kept = set(sorted(found, key=lambda values: found[values].cycles)[:MAX_CUTS])
    return [cut for values, cut in found.items() if values in kept]


# ------------------------------------------------------------------------------------------------- anchors


@dataclass(frozen=True, slots=True)
class _Ends:
    """The anchors on both sides of a place."""

    place: int
    before: list[Operation]
    behind: list[Operation]

    @property
    def multiplied(self) -> bool:
        return any(op.name in DOTS for op in self.before)

    @property
    def multiplies(self) -> bool:
        return any(op.name in DOTS for op in self.behind)


def _places(flow: Dataflow, loops: list[Operation], machine: Machine) -> Iterator[_Ends]:
    """Every place between anchors, in dataflow order; behind arithmetic first, as it makes less of what it takes."""
    dots = [op for op in flow.dots if any(op.is_inside(loop) for loop in loops)]
    stages = _stages(flow, dots)
    work = [op for op in flow.function.walk() if _is_tile_work(op, machine)]
    feeding = frozenset[Operation]().union(*(flow.feeding(dot) for dot in dots))
    computed = [op for op in work if op in feeding]
    for stage in range(max(stages.values(), default=0)):
        if not all(any(dot.is_inside(loop) and stages[dot] > stage for dot in dots) for loop in loops):
            break
        later = [dot for dot in dots if stages[dot] > stage]
        beyond = flow.reached(later)
        first = [dot for dot in dots if stages[dot] <= stage]
        arithmetic = [op for op in computed if op not in beyond]
        if stage or _from_loads(flow, arithmetic):
            yield _Ends(2 * stage + 1, [*first, *arithmetic], [*later, *flow.stores])
        if stage:
            yield _Ends(2 * stage, first, [*later, *flow.stores])
    if stored := _stored_in_loops(flow, loops):
        yield _Ends(2 * len(dots), dots, stored)


def _stages(flow: Dataflow, dots: list[Operation]) -> dict[Operation, int]:
    """How many dots must be done before the operands of each are there, itself included, in its own loop."""
    stages: dict[Operation, int] = {}

    def stage(dot: Operation) -> int:
        if dot not in stages:
            feeding = flow.feeding(dot)
            first = (one for one in dots if one is not dot and one in feeding and dot not in flow.feeding(one))
            stages[dot] = 1 + max(map(stage, first), default=0)
        return stages[dot]

    return {dot: stage(dot) for dot in dots}


def _is_tile_work(op: Operation, machine: Machine) -> bool:
    made = op.results[0].type if op.results else None
    if not isinstance(made, TensorType) or len(made.shape) != 2 or min(made.shape) == 1:
        return False
    return isinstance(made.element, ScalarType) and cost(op, machine).unit in ("fma", "exp")


def _from_loads(flow: Dataflow, ops: list[Operation]) -> bool:
    """Is one of them computed from a tile that is loaded? A mask is not."""
    loads = (op for op in flow.function.walk() if op.name in LOADS)
    reached = flow.reached(load for load in loads if len(shape_of(load.results[0].type)) > 1)
    return any(op in reached for op in ops)


def _stored_in_loops(flow: Dataflow, loops: list[Operation]) -> list[Operation]:
    """The stores, where all go through descriptors and stand in a loop around one that multiplies."""
    around = {outer for loop in loops for outer in loops_around(loop)}
    tiles = all(store.name == STORE and store.parent_op in around for store in flow.stores)
    return list(flow.stores) if tiles else []


# ----------------------------------------------------------------------------------------------------- cut

IN, OUT = "in", "out"  # the two ends of a value that can be sent
FLOW = nx.algorithms.flow.edmonds_karp  # few ways have to be filled; preflow-push took 1.2 times as long
STEPS = 1000  # of a cycle: capacities are whole numbers, so that equal cuts are equal


def value_cycles(value: Value, machine: Machine) -> float:
    """What sending a value costs: a handshake each way, written once and read once."""
    return machine.mbarrier_latency + 2 * byte_size(value.type) / machine.smem_rate


def _capacity(value: Value, machine: Machine) -> int:
    """Among equals a row is cheaper than a tile of one column."""
    row = isinstance(value.type, TensorType) and len(value.type.shape) == 1
    return round(STEPS * (value_cycles(value, machine) + (0.0 if row else 0.01)))


def _can_send(node: Node, ends: _Ends, body: Block) -> TypeGuard[Value]:
    """Can the node be sent? What is carried round a loop is not sent from its start.

    A task that multiplies takes a value out of its buffer; one that only stores hands the buffer to TMA as it is.
    """
    if not isinstance(node, Value) or node.op is None:
        return False
    type = node.type
    if not isinstance(type, TensorType) or not isinstance(type.element, ScalarType):
        return False
    if len(type.shape) not in (1, 2, 3) or type.element.bits < 8:
        return False
    return ends.multiplies or goes_through_tma(body, node)


def _cheapest(flow: Dataflow, ends: _Ends, machine: Machine) -> Cut | None:
    """The minimum cut between the two ends that is nearest to where values are read; None where there is none."""
    before, behind = frozenset(ends.before), frozenset(ends.behind)
    if not before or not behind or _divides_a_recurrence(flow, before, behind):
        return None
    between = flow.reached(before) & flow.reached(behind, backwards=True)
    if not between & behind:
        return None
    body = flow.function.regions[0].block
    sent = {node: _capacity(node, machine) for node in between if _can_send(node, ends, body)}
    graph = nx.DiGraph()
    graph.add_edges_from(((node, IN), (node, OUT), {"capacity": capacity}) for node, capacity in sent.items())
    for node in between:
        source = (node, OUT) if node in sent else node
        targets = (to for to in flow.values.succ[node] if to in between)
        graph.add_edges_from((source, (to, IN) if to in sent else to) for to in targets)
    graph.add_edges_from(("start", op) for op in before & between)
    graph.add_edges_from((op, "end") for op in behind & between)
    try:
        _, (near, _) = nx.minimum_cut(graph, "start", "end", flow_func=FLOW)
    except nx.NetworkXUnbounded:  # something that cannot be sent would have to be
        return None
    values = [node for node in sent if (node, IN) in near and (node, OUT) not in near]
    if not 0 < len(values) <= MAX_VALUES:
        return None
    values.sort(key=lambda value: (id_of(value.op), value.index) if value.op is not None else (-1, 0))
    ids = (frozenset(map(id_of, before)), frozenset(map(id_of, behind)))
    cycles = sum(value_cycles(value, machine) for value in values)
    return Cut(ends.place, tuple(values), *ids, ends.multiplied, ends.multiplies, cycles)


def _divides_a_recurrence(flow: Dataflow, before: frozenset[Operation], behind: frozenset[Operation]) -> bool:
    cycles = (cycle for loop in flow.hot_loops for cycle in flow.recurrences(loop))
    return any(cycle & before and cycle & behind for cycle in cycles)

"""One loop as a modulo scheduling problem: nodes that keep units busy, edges with latency and distance.

A schedule gives each node a start; iteration j's starts are all `interval` cycles after iteration j-1's. No unit may be
booked twice at one place of the interval, and every edge holds: start(target) + distance * interval >= start(source) +
delay.

A warp group is scheduled on its fair share of the SM: what it does takes as many times longer as there are blocks that
share the SM, and its replicas share a tile. So the schedule holds however the groups stand to each other: a schedule
that needs them to take turns to the cycle would lose its overlap when they drift.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from wspec.ir.core import Block, Operation, Value
from wspec.ir.shapes import DOTS
from wspec.model.machine import Machine
from wspec.model.modulo.work import Work, rates, work
from wspec.plan.buffers import buffer_type, is_the_buffer
from wspec.plan.fill import fill_of

IsLoad = Callable[[Operation], bool]


@dataclass(frozen=True, slots=True)
class Node:
    """Something that takes time."""

    op: Operation
    busy: Mapping[str, float]  # cycles of each unit

    @property
    def cycles(self) -> float:
        """From its start until it is done."""
        return max(self.busy.values(), default=0.0)


@dataclass(frozen=True, slots=True)
class Edge:
    """`target` may start no earlier than `delay` cycles after the start of `source`, `distance` iterations before."""

    source: int
    target: int
    delay: float
    distance: int
    why: str = "value"  # "ring": a buffer is handed back and filled again; "order": of the code


@dataclass(frozen=True, slots=True)
class Problem:
    """One loop of one task. Cycles of an SM."""

    nodes: tuple[Node, ...]
    edges: tuple[Edge, ...]
    totals: Mapping[str, float] = field(default_factory=dict)  # unit -> cycles of an iteration, tile loads included

    def node_of(self, op: Operation) -> int | None:
        """The number of an operation's node."""
        return next((at for at, node in enumerate(self.nodes) if node.op is op), None)


def loop_problem(
    loop: Operation,
    machine: Machine,
    is_load: IsLoad,
    blocks: int = 1,
    depths: Mapping[Operation, int] | None = None,
    crossing: Callable[[Operation, Operation], float] = lambda source, target: 0.0,
) -> Problem:
    """The problem of a loop before it is divided into tasks.

    `blocks` thread blocks share the SM; `depths` gives the depth of the ring a load fills, which adds the way of a
    buffer round its ring: filled, read, handed back. `crossing` says how much longer a value is under way between two
    operations, because they belong to different tasks.
    """
    body = loop.regions[0].block
    numbers = rates(machine)
    prices = {op: _scaled(_price(op, machine, is_load), blocks) for op in body.ops[:-1]}
    prices |= _with_interference(prices, numbers.interference)
    with_loads = depths is not None
    kept = [op for op in prices if prices[op].busy and (with_loads or "tma" not in prices[op].busy)]
    numbered = {op: at for at, op in enumerate(kept)}
    edges: list[Edge] = []
    for op in kept:
        for source, distance, through in _sources(op, body, numbered):
            delay = _delay(op, source, prices, body, through, numbers.ready if is_load(source) else 0.0)
            edges.append(Edge(numbered[source], numbered[op], delay + crossing(source, op), distance))
    if depths is not None:
        edges += _ring_edges(edges, numbered, prices, depths, numbers.handshake)
    totals: dict[str, float] = {}
    for price in prices.values():
        for unit, cycles in price.busy.items():
            totals[unit] = totals.get(unit, 0.0) + cycles
    nodes = tuple(Node(op, prices[op].busy) for op in kept)
    return Problem(nodes, _strongest(edges), totals)


def _price(op: Operation, machine: Machine, is_load: IsLoad) -> Work:
    """An allocation that only names the tile a load brings costs nothing: the ring is the allocation."""
    source = op.operands[0].op if op.name == "ttg.local_alloc" and op.operands else None
    named = source is not None and is_load(source) and fill_of(source) is not None
    if named and source is not None and is_the_buffer(op, buffer_type(source)):
        return Work({})
    return work(op, machine)


def _scaled(price: Work, blocks: int) -> Work:
    return Work({unit: cycles * blocks for unit, cycles in price.busy.items()}, price.latency, price.streams)


def _with_interference(prices: Mapping[Operation, Work], lost: float) -> dict[Operation, Work]:
    """Where exponentials and other instructions mix, the exponential unit loses some cycles of each exponential."""
    exponentials = sum(price.busy.get("mufu", 0.0) for price in prices.values())
    others = sum(price.busy.get("fma", 0.0) + price.busy.get("alu", 0.0) for price in prices.values())
    if not exponentials:
        return {}
    slower = 1 + min(1.0, lost * others / exponentials)
    return {
        op: Work({**price.busy, "mufu": price.busy["mufu"] * slower}, price.latency, price.streams)
        for op, price in prices.items()
        if "mufu" in price.busy
    }


def _sources(op: Operation, body: Block, numbered: Mapping[Operation, int]) -> list[tuple[Operation, int, Value]]:
    """(node, distance, the value it makes) of all that an operation needs, through what costs nothing."""
    found: dict[tuple[Operation, int], Value] = {}
    seen: set[tuple[Value, int]] = set()
    todo = [(value, 0) for inner in op.walk() for value in inner.operands]
    while todo:
        value, distance = todo.pop()
        if (value, distance) in seen or distance > 2:
            continue
        seen.add((value, distance))
        if value.owner is body:
            if value.index:
                todo.append((body.terminator.operands[value.index - 1], distance + 1))
            continue
        source = value.op
        if source is None or source.parent is not body:
            continue
        if source in numbered:
            found.setdefault((source, distance), value)
        else:
            todo += [(one, distance) for inner in source.walk() for one in inner.operands]
    return [(source, distance, value) for (source, distance), value in found.items() if source is not op or distance]


def _delay(
    op: Operation, source: Operation, prices: Mapping[Operation, Work], body: Block, value: Value, ready: float
) -> float:
    """From the start of `source` to the start of `op`."""
    before, after = prices[source], prices[op]
    if source.name in DOTS and op.name in DOTS and _accumulates(op, value, body):
        return before.cycles  # the tensor core goes on with the accumulators it holds
    if before.streams and op.name not in DOTS:
        return before.latency + max(0.0, before.cycles - after.cycles)
    return before.cycles + before.latency + ready


def _accumulates(dot: Operation, value: Value, body: Block) -> bool:
    """Is the value the dot's accumulator, and nothing else of it, perhaps by way of the loop?"""
    carried = dot.operands[2]
    if carried is value:
        return value not in dot.operands[:2]
    return carried.owner is body and carried.index > 0 and body.terminator.operands[carried.index - 1] is value


def _ring_edges(
    edges: list[Edge],
    numbered: Mapping[Operation, int],
    prices: Mapping[Operation, Work],
    depths: Mapping[Operation, int],
    handshake: float,
) -> list[Edge]:
    """A buffer is filled again when its last reader is done and has said so: `depth` iterations later."""
    loads = {numbered[load]: depth for load, depth in depths.items() if load in numbered}
    ops = {at: op for op, at in numbered.items()}
    return [
        Edge(edge.target, edge.source, prices[ops[edge.target]].cycles + handshake, loads[edge.source], "ring")
        for edge in edges
        if edge.source in loads and not edge.distance
    ]


def _strongest(edges: list[Edge]) -> tuple[Edge, ...]:
    """One edge for each pair and distance."""
    best: dict[tuple[int, int, int], Edge] = {}
    for edge in edges:
        key = (edge.source, edge.target, edge.distance)
        if key not in best or best[key].delay < edge.delay:
            best[key] = edge
    return tuple(best.values())


def in_order(
    problem: Problem, stages: Mapping[int, int], origin: int, apart: Callable[[Operation], bool] = lambda op: False
) -> Problem:
    """The same for code in program order, with these stages: a warp group issues one instruction after the other.

    What belongs to an iteration and computes is done before the first dot of the next one is issued; dots run on. What
    stands before that dot is not begun before the dot of the iteration before it. What is `apart` is another task's.
    """
    more = [
        Edge(at, origin, node.cycles, 1 + stages.get(at, 0), "order")
        if at > origin
        else Edge(origin, at, 0.0, 1, "order")
        for at, node in enumerate(problem.nodes)
        if at != origin and "tensor" not in node.busy and "tma" not in node.busy and not apart(node.op)
    ]
    return replace(problem, edges=(*problem.edges, *more))

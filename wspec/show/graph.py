"""A picture of a kernel's dataflow graph: who runs each operation, and what flows where.

A `Picture` holds plain values only, so it can be written as JSON (one node or edge a line, to be compared with other
tools) and read back.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

import networkx as nx

from wspec.diagnostics import place_text
from wspec.ir import warp_specialize as ws
from wspec.ir.core import Operation, Value
from wspec.ir.loc import value_name
from wspec.ir.numbering import id_of
from wspec.ir.wgmma import DOT
from wspec.plan.plan import Plan

TASKS = ("producer", "consumer", "both", "ring", "")  # ring: an allocation that a channel's ring replaces
KINDS = ("ssa", "carried", "memory", "control")
_LOOPS = ("scf.for", "scf.while")


@dataclass(frozen=True, slots=True)
class Node:
    """One operation."""

    id: int
    op: str
    name: str  # what the source calls its result
    place: str  # file.py:12
    task: str  # one of TASKS
    loop: int  # the innermost loop around it; -1: none
    stage1: bool  # runs an iteration behind, by the plan


@dataclass(frozen=True, slots=True)
class Edge:
    """Something that flows, or an order that must be kept."""

    source: int
    target: int
    kind: str  # one of KINDS
    distance: int  # in iterations


@dataclass(frozen=True, slots=True)
class Loop:
    """A loop of the source; the operations in it are drawn in a frame."""

    id: int
    place: str


@dataclass(frozen=True, slots=True)
class Picture:
    """A graph to look at."""

    kernel: str
    loops: tuple[Loop, ...]
    nodes: tuple[Node, ...]
    edges: tuple[Edge, ...]

    def to_json(self) -> str:
        """One node or edge a line; `Picture.from_json` reads it back."""
        parts: dict[str, tuple[Any, ...]] = {"loops": self.loops, "nodes": self.nodes, "edges": self.edges}
        rows = [f' "{key}": [\n  {_rows(values)}\n ]' for key, values in parts.items()]
        return "{\n" + ",\n".join([f' "kernel": {json.dumps(self.kernel)}', *rows]) + "\n}\n"

    @staticmethod
    def from_json(text: str) -> Picture:
        """Raises ValueError for a text that is no picture."""
        data = json.loads(text)
        try:
            loops = tuple(Loop(**row) for row in data["loops"])
            nodes, edges = tuple(Node(**row) for row in data["nodes"]), tuple(Edge(**row) for row in data["edges"])
            made = Picture(str(data["kernel"]), loops, nodes, edges)
        except (KeyError, TypeError) as error:
            raise ValueError(f"not a graph as `wspec dump --stage graph` writes it: {error}") from None
        _check(made)
        return made

    def graph(self) -> nx.MultiDiGraph:
        """As networkx has it: node ids with the fields of Node, edges with `kind` and `distance`."""
        graph = nx.MultiDiGraph(kernel=self.kernel)
        for node in self.nodes:
            graph.add_node(node.id, **{f.name: getattr(node, f.name) for f in fields(Node) if f.name != "id"})
        for edge in self.edges:
            graph.add_edge(edge.source, edge.target, kind=edge.kind, distance=edge.distance)
        return graph

    def only(self, keep: Iterable[int], kinds: Iterable[str] = KINDS) -> Picture:
        """The part of it with these nodes and these kinds of edges."""
        kept, wanted = set(keep), set(kinds)
        nodes = tuple(node for node in self.nodes if node.id in kept)
        edges = (e for e in self.edges if e.kind in wanted and e.source in kept and e.target in kept)
        return Picture(self.kernel, self.loops, nodes, tuple(edges))


def _rows(values: Iterable[Any]) -> str:
    return ",\n  ".join(json.dumps(asdict(value)) for value in values)


def _check(made: Picture) -> None:
    known = {node.id for node in made.nodes}
    for edge in made.edges:
        if edge.source not in known or edge.target not in known:
            raise ValueError(f"the edge {edge.source} -> {edge.target} joins nodes that are not there")


# ---------------------------------------------------------------------------------------------- making one


def picture(graph: nx.MultiDiGraph, tasks: Mapping[int, str], plan: Plan | None = None) -> Picture:
    """The picture of a planner's graph (`wspec.plan.graph`), tasks and late operations as given."""
    late = {op for schedule in plan.loops for op in schedule.stage1} if plan is not None else set()
    ops: dict[int, Operation] = dict(graph.nodes(data="op"))
    nodes = tuple(_node(op, tasks, number in late) for number, op in ops.items() if op.name != "tt.func")
    known = {node.id for node in nodes}
    direct = (Edge(source, target, data["kind"], data["distance"]) for source, target, data in graph.edges(data=True))
    every = [*direct, *(edge for op in ops.values() for edge in _through_control(op))]
    edges = dict.fromkeys(edge for edge in every if edge.source in known and edge.target in known)
    function = next((op for op in ops.values() if op.name == "tt.func"), None)
    loops = tuple(Loop(number, place_text(op.location)) for number, op in ops.items() if op.name in _LOOPS)
    return Picture((function.str_attr("sym_name") if function else None) or "kernel", loops, nodes, tuple(edges))


def _node(op: Operation, tasks: Mapping[int, str], late: bool) -> Node:
    loop = next((id_of(around) for around in op.ancestors() if around.name in _LOOPS), -1)
    task = tasks.get(id_of(op), "ring" if tasks and op.name == "ttg.local_alloc" else "")
    return Node(id_of(op), op.name, value_name(op.location) or "", place_text(op.location), task, loop, late)


def _through_control(op: Operation) -> Iterator[Edge]:
    """What goes into a loop, and what comes out of loops and branches, joined to who makes it and who reads it.

    The planner's graph has the loop itself in between, which is drawn as a frame.
    """
    for value in op.operands:
        if value.op is not None and value.op.name in ("scf.for", "scf.if"):
            yield from (Edge(id_of(maker), id_of(op), "ssa", 0) for maker in _makers(value))
    if op.name == "scf.for":
        body = op.regions[0].block
        for init, inside in zip(op.operands[3:], body.args[1:], strict=True):
            for user in body.readers(inside):
                yield from (Edge(id_of(maker), id_of(user), "ssa", 0) for maker in _makers(init))


def _makers(value: Value) -> list[Operation]:
    """The operations that compute a value, seen through loops and branches."""
    op = value.op
    if op is None:
        return []
    if op.name not in ("scf.for", "scf.if"):
        return [op]
    yielded = [region.block.terminator.operands[value.index] for region in op.regions if region.blocks]
    return [maker for inner in yielded for maker in _makers(inner)]


def tasks_of(split: Operation) -> dict[int, str]:
    """Operation number -> task, from the module after the pass `split`."""
    op = ws.find(split)
    if op is None:
        return {}
    *consumers, producer = ws.task_blocks(op)
    moved = {id_of(o) for o in producer.walk()}
    kept = {id_of(o) for block in consumers for o in block.walk() if not _is_channel(o)}
    names = {(True, True): "both", (True, False): "producer", (False, True): "consumer"}
    return {number: names[number in moved, number in kept] for number in moved | kept if number >= 0}


def _is_channel(op: Operation) -> bool:
    """A wait for a buffer or a name of it: what stands where the producer took a load away."""
    return op.name.startswith("wspec.")


# ------------------------------------------------------------------------------------------ what to look at


def around_hot_loops(whole: Picture) -> Picture:
    """The operations of loops that multiply, what these read and what reads them; no constants, no control edges."""
    hot = {node.loop for node in whole.nodes if node.op == DOT and node.loop >= 0}
    if not hot:
        return without_clutter(whole)
    inside = {node.id for node in whole.nodes if node.loop in hot}
    near = {e.source for e in whole.edges if e.target in inside and e.kind != "control"}
    near |= {e.target for e in whole.edges if e.source in inside and e.kind != "control"}
    return without_clutter(whole.only(inside | near))


_CLUTTER = ("arith.constant", "scf.yield", "tt.reduce.return", "tt.return", *_LOOPS)


def without_clutter(whole: Picture) -> Picture:
    """Without constants, terminators, the insides of reductions, and loops (which are drawn as frames)."""
    inner = {e.target for e in whole.edges if e.kind == "control" and e.source in _reductions(whole)}
    keep = [n.id for n in whole.nodes if n.op not in _CLUTTER and n.id not in inner]
    return whole.only(keep, ("ssa", "carried", "memory"))


def _reductions(whole: Picture) -> set[int]:
    return {node.id for node in whole.nodes if node.op in ("tt.reduce", "tt.scan")}


def loops_of(whole: Picture) -> dict[int, list[Node]]:
    """Loop (-1: none) -> its nodes, in order."""
    found: dict[int, list[Node]] = {}
    for node in whole.nodes:
        found.setdefault(node.loop, []).append(node)
    return found


def counts(whole: Picture) -> dict[str, int]:
    """How many operations each task has."""
    found = Counter(node.task for node in whole.nodes)
    return {task: found[task] for task in dict.fromkeys((*TASKS, *found)) if found[task]}

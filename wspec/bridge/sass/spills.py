"""Where a binary goes to local memory: in the loops that multiply, or only outside of them."""

from __future__ import annotations

import networkx as nx

from wspec.bridge.sass.machine_code import Code, flow, read_sass

_TENSOR_CORE = frozenset({"HGMMA", "IGMMA", "QGMMA", "BGMMA"})
_LOCAL = frozenset({"LDL", "STL"})

Nodes = frozenset[int]


def spills_while_multiplying(sass: str) -> bool:
    """Does an innermost loop of those that multiply touch local memory, where spilled registers are?

    `sass` is what `nvdisasm -c` prints.
    """
    return any(_in_hot_loop(code) for code in read_sass(sass) if code.kernel)


def _in_hot_loop(code: Code) -> bool:
    roots = [instruction.name.partition(".")[0] for instruction in code.instructions]
    hot = [loop for loop in _loops(code) if any(roots[at] in _TENSOR_CORE for at in loop)]
    innermost = [loop for loop in hot if not any(other < loop for other in hot)]
    return any(roots[at] in _LOCAL for loop in innermost for at in loop)


def _loops(code: Code) -> list[Nodes]:
    """The natural loops, each as the places of its instructions."""
    graph = nx.DiGraph()
    graph.add_node(0)
    for at, instruction in enumerate(code.instructions):
        after = flow(instruction)
        if after.falls and at + 1 < len(code.instructions):
            graph.add_edge(at, at + 1)
        graph.add_edges_from((at, code.labels[target]) for target in after.targets if target in code.labels)
    order = nx.immediate_dominators(graph, 0)
    found: dict[int, set[int]] = {}
    for end, start in graph.edges:
        if end in order and _dominates(order, start, end):
            found.setdefault(start, {start}).update(_body(graph, start, end))
    return [frozenset(body) for body in found.values()]


def _dominates(order: dict[int, int], one: int, other: int) -> bool:
    """Is `one` on every way to `other`? A dominator other than the entry stands before in the walk up."""
    while other != one:
        above = order.get(other, other)
        if above == other:
            return False
        other = above
    return True


def _body(graph: nx.DiGraph, start: int, end: int) -> set[int]:
    """What reaches the jump back without passing the loop's head."""
    body, work = {start, end}, [end]
    while work:
        at = work.pop()
        if at == start:
            continue
        for before in graph.predecessors(at):
            if before not in body:
                body.add(before)
                work.append(before)
    return body

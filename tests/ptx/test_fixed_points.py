"""Worklists, against networkx and against all ways of a small graph."""

from __future__ import annotations

import operator
import random
from collections.abc import Iterator

import networkx as nx
import pytest

from wspec.ptx.fixed_points import all_from, live_before, states_before
from wspec.ptx.flow import loop_of

BLOCKS = range(7)


def drawn(seed: int) -> nx.DiGraph:
    draw = random.Random(seed)
    graph = nx.DiGraph((draw.choice(BLOCKS), draw.choice(BLOCKS)) for _ in range(draw.randint(4, 12)))
    graph.add_nodes_from(BLOCKS)
    return graph


@pytest.mark.parametrize("seed", range(40))
def test_what_is_reached(seed: int) -> None:
    graph = drawn(seed)
    assert all_from((0, 1), graph.successors) == {0, 1} | nx.descendants(graph, 0) | nx.descendants(graph, 1)
    rest = graph.subgraph([block for block in BLOCKS if block != 2])
    assert loop_of(2, 3, graph.predecessors) == {2, 3} | nx.ancestors(rest, 3)


@pytest.mark.parametrize("seed", range(40))
def test_what_holds_on_some_way_or_on_all(seed: int) -> None:
    """Bits that blocks set: of those before a block, on some way to it or on all."""
    graph = drawn(seed)

    def behind(block: int, bits: int) -> Iterator[tuple[int, int]]:
        yield from ((way, bits | 1 << block) for way in graph.successors(block))

    some, every = (states_before({0: 0}, behind, join) for join in (operator.or_, operator.and_))
    reached = {0} | nx.descendants(graph, 0)
    assert set(some) == set(every) == reached
    for block in reached:
        before = {other for other in reached if nx.has_path(graph, other, block)}
        before -= {block} if not any(nx.has_path(graph, way, block) for way in graph.successors(block)) else set()
        assert some[block] == sum(1 << other for other in before)
        dominating = [other for other in reached - {block} if other == 0 or not _leads_past(graph, other, block)]
        assert every[block] == (sum(1 << other for other in dominating) if block else 0)


def _leads_past(graph: nx.DiGraph, other: int, block: int) -> bool:
    """From the entry to the block, without the other one."""
    rest = graph.subgraph([one for one in BLOCKS if one != other])
    return bool(nx.has_path(rest, 0, block))


@pytest.mark.parametrize("seed", range(40))
def test_what_is_needed_later(seed: int) -> None:
    """A name is live where some way leads to a block that uses it, through none that makes it."""
    graph, draw = drawn(seed), random.Random(seed)
    uses, makes = ({block: set(draw.sample("abc", draw.randint(0, 2))) for block in BLOCKS} for _ in range(2))
    live = live_before({block: list(graph.successors(block)) for block in BLOCKS}, uses, makes)
    for name in "abc":
        through = graph.copy()
        through.remove_edges_from([edge for edge in graph.edges if name in makes[edge[0]]])
        for block in BLOCKS:
            ends = {block} | nx.descendants(through, block)
            assert (name in live[block]) == any(name in uses[end] for end in ends), (name, block)

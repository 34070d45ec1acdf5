"""docs/house.svg is drawn from the imports as they are, with every room on the floor of its layer."""

from __future__ import annotations

import functools

import networkx as nx

from tests.support.goldens import ROOT, assert_golden
from tests.test_layers import LAYERS, graph, part
from wspec.lab import house
from wspec.lab.house import FLOORS, arrows, svg


@functools.cache
def imported() -> nx.DiGraph:
    """What every file imports, read once."""
    return house.imports()


def test_the_picture_is_of_the_house_as_it_is(update: bool) -> None:
    assert_golden(ROOT / "docs" / "house.svg", svg(), update)


def test_floors_are_layers() -> None:
    drawn = [sorted(room.name for room in floor) for floor in reversed(FLOORS)]
    assert drawn == [sorted(layer) for layer in LAYERS]


def test_its_imports_are_those_of_the_files() -> None:
    assert set(imported().edges) == {(part(a), part(b)) for a, b in graph().edges if part(a) != part(b)}


def test_arrows_say_all_that_is_imported() -> None:
    """What has no arrow of its own is reached by others."""
    drawn = nx.DiGraph(arrows(imported()))
    assert [(a, b) for a, b in imported().edges if not nx.has_path(drawn, a, b)] == []


def test_an_arrow_upwards_is_drawn() -> None:
    graph = imported().copy()
    graph.add_edge("ir", "plan")
    assert ("ir", "plan") in arrows(graph)

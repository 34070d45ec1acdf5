"""`wspec graph`: pictures, and the graph as JSON."""

from __future__ import annotations

import re
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import networkx as nx
import pytest

from tests.cli.helpers import ELEMENTWISE, KERNEL, done, refused
from tests.support.goldens import ROOT
from wspec.plan.plan import Plan
from wspec.show import draw
from wspec.show.graph import Picture


@pytest.fixture(scope="module")
def json() -> str:
    return done("dump", KERNEL, "--stage", "graph")


@pytest.fixture(scope="module")
def json_file(json: str, tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("graph") / "graph.json"
    path.write_text(json)
    return str(path)


def test_it_comes_back(json: str, json_file: str) -> None:
    assert Picture.from_json(json).to_json() == json
    assert done("graph", json_file, "--all", "--format", "json") == json
    assert done("graph", json_file) == done("graph", KERNEL)


def test_tasks(json: str) -> None:
    nodes = {(node.op, node.name): node for node in Picture.from_json(json).nodes}
    assert nodes["tt.descriptor_load", "k"].task == "producer"
    assert nodes["math.exp2", "p"].task == "consumer" and not nodes["math.exp2", "p"].stage1
    assert nodes["ttg.local_alloc", "q"].task == "ring"
    assert nodes["arith.muli", "row"].task == "both"
    assert nodes["ttng.warp_group_dot", "acc"].stage1 and nodes["ttng.warp_group_dot", "acc"].place.endswith(":26")


def test_the_graph_is_one_of_dataflow(json: str) -> None:
    graph = Picture.from_json(json).graph()
    within = nx.DiGraph((a, b) for a, b, kind in graph.edges(data="kind") if kind == "ssa" and a != b)
    assert nx.is_directed_acyclic_graph(within)
    names = dict(graph.nodes(data="name"))
    carried = {names[a] for a, b, data in graph.edges(data=True) if data["distance"] == 1 and nx.has_path(within, b, a)}
    assert carried == {"new_top", "total", "acc", ""}, "what is read of the next tile's entry has no name"


def test_dot() -> None:
    text = done("graph", KERNEL)
    nodes = dict(re.findall(r'^ +n(\d+) \[label="(.*?)"', text, re.M))
    assert re.search(r'label="loop \S*tour_kernel.py:17"', text)
    assert {end for edge in re.findall(r"n(\d+) -> n(\d+)", text) for end in edge} <= set(nodes)
    assert "ttng.warp_group_dot\\nacc :26 stage1" in nodes.values() and text.count("{") == text.count("}")
    for color in ("producer", "consumer", "ring"):
        assert draw.COLORS[color] in text
    assert not any("constant" in label for label in nodes.values())
    everything = done("graph", KERNEL, "--all")
    assert "arith.constant" in everything and "style=dotted" in everything


def test_svg_with_matplotlib(json_file: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("matplotlib")
    monkeypatch.setattr(draw.shutil, "which", lambda _: None)
    done("graph", json_file, "-o", str(tmp_path / "graph.svg"))
    text = (tmp_path / "graph.svg").read_text()
    assert ElementTree.fromstring(text).tag.endswith("svg") and "ttng.warp_group_dot" in text
    done("graph", json_file, "-o", str(tmp_path / "again.svg"))
    assert (tmp_path / "again.svg").read_text() == text


def test_svg_with_graphviz(json_file: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dot = tmp_path / "dot"
    dot.write_text('#!/bin/sh\nread -r first\necho "<svg $1 $first/>"\n')
    dot.chmod(0o755)
    monkeypatch.setattr(draw.shutil, "which", lambda _: str(dot))
    assert done("graph", json_file, "--format", "svg") == '<svg -Tsvg digraph "attend" {/>\n'
    dot.write_text("#!/bin/sh\necho no fonts >&2\nexit 1\n")
    assert "dot failed: no fonts" in refused("graph", json_file, "--format", "svg")


def test_svg_with_nothing(json_file: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(draw.shutil, "which", lambda _: None)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert "takes Graphviz's `dot`, or matplotlib" in refused("graph", json_file, "--format", "svg")


def test_a_kernel_that_is_left_alone() -> None:
    text = done("graph", f"{ELEMENTWISE}:add_kernel")
    assert "tt.load" in text and "unassigned" in text


@pytest.mark.parametrize(
    "text", ["", "{}", "[]", '{"kernel": "k", "loops": [], "nodes": [], "edges": [{"source": 1}]}']
)
def test_what_is_no_graph(text: str, tmp_path: Path) -> None:
    (tmp_path / "graph.json").write_text(text)
    assert "graph.json: " in refused("graph", str(tmp_path / "graph.json"))


def test_tasks_of_a_chain(tmp_path: Path) -> None:
    """Every task has a box for each replica, every ring as many cells as it is deep."""
    place = str(tmp_path / "tasks.svg")
    done("graph", f"{ROOT}/kernels/quantized.py:int4_weights_kernel", "--chain", "on", "--tasks", "-o", place)
    plan = Plan.from_text(
        done("plan", f"{ROOT}/kernels/quantized.py:int4_weights_kernel", "--chain", "on", "--toml", "--no-runners-up")
    )
    drawn = ElementTree.parse(place).getroot()
    boxes = drawn.findall("{*}rect")[1:]
    assert len(plan.tasks) == 3
    assert sum(box.get("rx") == "5" for box in boxes) == sum(task.replicas for task in plan.tasks)
    assert sum(box.get("rx") == "0" for box in boxes) == sum(channel.depth for channel in plan.channels)
    texts = [text.text for text in drawn.findall("{*}text")]
    assert {task.name for task in plan.tasks} <= set(texts)


def test_tasks_that_are_not_there(json_file: str) -> None:
    assert "no tasks: " in refused("graph", f"{ELEMENTWISE}:softmax_kernel", "--tasks")
    assert "takes a kernel" in refused("graph", json_file, "--tasks")
    assert "--tasks draws SVG, not dot" in refused("graph", KERNEL, "--tasks", "--format", "dot")

"""Pictures as dot text and as SVG: through Graphviz where it is installed, else with matplotlib."""

from __future__ import annotations

import io
import itertools
import shutil
import subprocess
from collections.abc import Mapping
from typing import Any

import networkx as nx

from wspec.show.graph import Node, Picture, counts, loops_of

COLORS: Mapping[str, str] = {
    "producer": "#f7c873", "consumer": "#a9cdf0", "both": "#c9e4b4", "ring": "#e3e3e3", "": "#ffffff",
}  # fmt: skip
MEANINGS = {
    "producer": "the producer runs it",
    "consumer": "the consumers run it",
    "both": "every task runs a copy",
    "ring": "a channel's ring replaces it",
    "": "no task",
}
EDGE_STYLES: Mapping[str, tuple[str, str]] = {  # kind -> (color, style)
    "ssa": ("#444444", "solid"),
    "carried": ("#c0392b", "dashed"),
    "memory": ("#8e44ad", "bold"),
    "control": ("#aaaaaa", "dotted"),
}


class CannotDraw(Exception):
    """Nothing here can make an SVG."""


def label(node: Node) -> str:
    """Operation, name in the source, source line."""
    line = node.place.rpartition(":")[2]
    second = " ".join(filter(None, (node.name, f":{line}" if line else "", "stage1" if node.stage1 else "")))
    return f"{node.op}\n{second}".strip()


# ------------------------------------------------------------------------------------------------- as dot


def to_dot(picture: Picture) -> str:
    """The picture in Graphviz's language. Loops are frames."""
    lines = [
        f"digraph {_quote(picture.kernel)} {{",
        f"  label={_quote(title(picture))}; labelloc=t; fontname=Helvetica;",
        '  node [shape=box, style="filled,rounded", fontname=Helvetica, fontsize=10, margin="0.08,0.04"];',
        "  edge [arrowsize=0.6];",
    ]
    for loop, nodes in loops_of(picture).items():
        lines += _frame(picture, loop, nodes)
    for edge in picture.edges:
        color, style = EDGE_STYLES[edge.kind]
        loose = ", constraint=false" if edge.kind in ("carried", "control") else ""
        lines.append(f'  n{edge.source} -> n{edge.target} [color="{color}", style={style}{loose}];')
    return "\n".join([*lines, *_legend(picture), "}", ""])


def title(picture: Picture) -> str:
    """The kernel and how many operations of each task are shown."""
    shown = ", ".join(f"{count} {task or 'unassigned'}" for task, count in counts(picture).items())
    return f"{picture.kernel}: {shown}"


def _frame(picture: Picture, loop: int, nodes: list[Node]) -> list[str]:
    inner = [f'    n{n.id} [label={_quote(label(n))}, fillcolor="{COLORS[n.task]}"];' for n in nodes]
    if loop < 0:
        return inner
    place = {found.id: found.place for found in picture.loops}.get(loop, "")
    head = f"  subgraph cluster_{loop} {{ label={_quote(f'loop {place}')}; fontsize=10; color=gray;"
    return [head, *inner, "  }"]


def _legend(picture: Picture) -> list[str]:
    shown = [task for task in counts(picture) if task]
    if not shown:
        return []
    nodes = [f'    l_{task} [label={_quote(MEANINGS[task])}, fillcolor="{COLORS[task]}"];' for task in shown]
    return ["  subgraph cluster_legend { label=tasks; fontsize=10; color=gray;", *nodes, "  }"]


def _quote(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


# ------------------------------------------------------------------------------------------------- as SVG


def to_svg(picture: Picture) -> str:
    """The picture as SVG. Raises CannotDraw where there is neither Graphviz nor matplotlib."""
    if (dot := shutil.which("dot")) is not None:
        done = subprocess.run([dot, "-Tsvg"], input=to_dot(picture), capture_output=True, text=True, check=False)
        if done.returncode == 0:
            return done.stdout
        raise CannotDraw(f"dot failed: {done.stderr.strip()}")
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        raise CannotDraw("drawing an SVG takes Graphviz's `dot`, or matplotlib") from None
    return _with_matplotlib(picture)


def _with_matplotlib(picture: Picture) -> str:
    import matplotlib
    from matplotlib.figure import Figure

    places, layers, width = layout(picture)
    figure = Figure(figsize=(max(8.0, 1.9 * width), max(3.5, 0.85 * layers)))
    axes = figure.add_axes((0.02, 0.02, 0.96, 0.94))
    axes.set_axis_off()
    axes.set_xlim(-width / 2 - 0.6, width / 2 + 0.6)
    axes.set_ylim(-layers + 0.3, 1.3)  # room for arcs below the title
    axes.set_title(title(picture), fontsize=10)
    framed = loops_of(picture)
    for loop in picture.loops:
        _draw_frame(axes, [places[node.id] for node in framed.get(loop.id, [])], f"loop {loop.place}")
    for edge in picture.edges:
        _draw_edge(axes, places[edge.source], places[edge.target], edge.kind)
    for node in picture.nodes:
        box = {"boxstyle": "round,pad=0.3", "facecolor": COLORS[node.task], "edgecolor": "#666666"}
        axes.text(*places[node.id], label(node), ha="center", va="center", fontsize=7, bbox=box, zorder=3)
    _draw_legend(axes, picture)
    out = io.StringIO()
    with matplotlib.rc_context({"svg.hashsalt": "wspec", "svg.fonttype": "none"}):
        figure.savefig(out, format="svg", metadata={"Date": None})
    return out.getvalue()


def _draw_frame(axes: Any, places: list[tuple[float, float]], text: str) -> None:
    """A box around the nodes of a loop, with its name at the top."""
    from matplotlib.patches import Rectangle

    if not places:
        return
    left, right = min(x for x, _ in places) - 0.55, max(x for x, _ in places) + 0.55
    low, high = min(y for _, y in places) - 0.42, max(y for _, y in places) + 0.58
    box = Rectangle((left, low), right - left, high - low, facecolor="#f6f6f6", edgecolor="#999999", zorder=0)
    axes.add_patch(box)
    axes.text(left + 0.05, high - 0.04, text, ha="left", va="top", fontsize=7, color="#666666", zorder=2)


def _draw_edge(axes: Any, start: tuple[float, float], end: tuple[float, float], kind: str) -> None:
    color, style = EDGE_STYLES[kind]
    far = max(1.0, abs(end[0] - start[0]) + abs(end[1] - start[1]))
    curve = min(0.25, 1.2 / far) if kind == "carried" else 0.05  # an arc stays near its ends however long it is
    arrow = {
        "arrowstyle": "-|>", "color": color, "shrinkA": 12, "shrinkB": 12,
        "linestyle": {"bold": "solid"}.get(style, style), "connectionstyle": f"arc3,rad={curve}",
        "linewidth": 2.0 if style == "bold" else 0.8,
    }  # fmt: skip
    axes.annotate("", xy=end, xytext=start, arrowprops=arrow, zorder=1)


def _draw_legend(axes: Any, picture: Picture) -> None:
    from matplotlib.patches import Patch

    shown = [task for task in counts(picture) if task]
    if shown:
        handles = [Patch(facecolor=COLORS[task], edgecolor="#666666", label=MEANINGS[task]) for task in shown]
        axes.legend(handles=handles, fontsize=7, loc="lower right")


def layout(picture: Picture) -> tuple[dict[int, tuple[float, float]], int, int]:
    """(node -> place, layers, widest layer): places in a layer by who is above.

    What stands together in one loop has layers of its own, one part of the program below the other, so that a loop can
    be framed; inside a part they go by the longest way from its top.
    """
    graph = nx.DiGraph()
    graph.add_nodes_from(node.id for node in picture.nodes)
    graph.add_edges_from((e.source, e.target) for e in picture.edges if e.kind != "carried" and e.source < e.target)
    layers: list[list[int]] = []
    for _, run in itertools.groupby(sorted(picture.nodes, key=lambda node: node.id), key=lambda node: node.loop):
        part = graph.subgraph([node.id for node in run])
        layers += [sorted(layer) for layer in nx.topological_generations(part)]
    places: dict[int, tuple[float, float]] = {}
    for depth, layer in enumerate(layers):
        order = sorted(layer, key=lambda node: (_above(graph, node, places), node))
        for at, node in enumerate(order):
            places[node] = (at - (len(order) - 1) / 2, -float(depth))
    return places, len(layers), max((len(layer) for layer in layers), default=1)


def _above(graph: nx.DiGraph, node: int, places: Mapping[int, tuple[float, float]]) -> float:
    """The middle of the nodes above that lead here."""
    xs = [places[source][0] for source in graph.predecessors(node) if source in places]
    return sum(xs) / len(xs) if xs else 0.0

"""A picture of the house: which room of wspec imports which. `python -m wspec.lab.house docs/house.svg`.

Rooms and floors are named here; arrows are read from the import statements of all files, so that the picture says what
is so. An arrow that follows from others (a room imports one that imports the other) is left out.
"""

from __future__ import annotations

import argparse
import ast
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from xml.sax.saxutils import escape

import networkx as nx

import wspec

HERE = Path(wspec.__file__).parent
COMPILES, PROVES, TRITON, USER, LAB = "#d6e6f5", "#d9ecd0", "#f8e0bd", "#e8dcf0", "#e9e9e9"
MEANINGS = {
    USER: "what a user touches",
    TRITON: "knows Triton",
    COMPILES: "compiles: TTGIR in, TTGIR out",
    PROVES: "reads the IR alone: proves, runs on the CPU",
    LAB: "never imported by a launch",
}


@dataclass(frozen=True, slots=True)
class Room:
    """A package or module of wspec, and where its box stands."""

    name: str  # "": wspec itself
    does: str
    kind: str  # its colour
    x: int  # of its middle, pixels


FLOORS: tuple[tuple[Room, ...], ...] = (
    (Room("cli", "the command line", LAB, 620),),
    (Room("lab", "measure, calibrate, simulate", LAB, 620),),
    (Room("kernels", "plain kernels to try", LAB, 620), Room("startup", "WSPEC=1", USER, 980)),
    (Room("", "import wspec", USER, 620),),
    (Room("everywhere", "wspec.enable", USER, 620),),
    (Room("api", "wspec.compile, offline", USER, 620),),
    (Room("tune", "which plans to time", COMPILES, 980),),
    (Room("outcome", "what became of a kernel", USER, 380), Room("ledger", "... and of all", USER, 160)),
    (
        Room("proof", "the checker, for the bridge", PROVES, 160),
        Room("verdict", "the compiler, for the bridge", COMPILES, 620),
        Room("specs", "kernels in TOML files", LAB, 1110),
    ),
    (Room("show", "plans in words and tables", USER, 380), Room("bridge", "Triton, cache, launch", TRITON, 840)),
    (Room("pipeline", "the passes in order", COMPILES, 620),),
    (Room("planner", "asks the rooms, makes the plan", COMPILES, 620),),
    (Room("passes", "one optimization a room", COMPILES, 620),),
    (Room("plan", "plan, graph, exclusions", COMPILES, 620),),
    (Room("model", "machine, work, one estimate", COMPILES, 620),),
    (Room("host_descriptors", "what a launch makes of pointers", COMPILES, 620),),
    (
        Room("execute", "runs TTGIR on the CPU", PROVES, 1290),
        Room("check", "no deadlock, no race", PROVES, 160),
        Room("options", "one table of options", USER, 400),
        Room("target", "what is Hopper", COMPILES, 736),
        Room("tile_scheduler", "which block does which tile", COMPILES, 950),
    ),
    (Room("diagnostics", "remarks with a place", USER, 400),),
    (
        Room("ptx", "reads PTX", PROVES, 390),
        Room("ir", "operations, types, text", COMPILES, 620),
        Room("decision", "a value, or why not", COMPILES, 950),
        Room("version", "one number", COMPILES, 1180),
        Room("build_pth", "when a wheel is built", LAB, 160),
    ),
)
"""From the top down; a room imports rooms of lower floors."""

ROOMS = {room.name: room for floor in FLOORS for room in floor}
FLOOR_OF = {room.name: number for number, floor in enumerate(FLOORS) for room in floor}
WIDTH, BOX, HEIGHT, FLOOR = 1410, 206, 40, 70


def imports() -> nx.DiGraph:
    """An edge from each room to each other room that a file of it imports."""
    found = nx.DiGraph()
    found.add_nodes_from(ROOMS)
    for path in _files():
        inside = path.relative_to(HERE).with_suffix("").parts
        room = "" if inside == ("__init__",) else inside[0]
        found.add_edges_from((room, other) for other in _imported(path) if other != room)
    return found


def _files() -> list[Path]:
    """Of the whole package; in a checkout wspec/passes and wspec/kernels are links to folders beside it."""
    walked = os.walk(HERE, followlinks=True)
    return sorted(Path(folder, name) for folder, _, names in walked for name in names if name.endswith(".py"))


def _imported(path: Path) -> Iterator[str]:
    """The rooms that a file's imports name, wherever in it they stand."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module is not None:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        else:
            continue
        for parts in (name.split(".") for name in names):
            if parts[0] == "wspec":
                yield parts[1] if len(parts) > 1 and parts[1] in ROOMS else ""


def arrows(graph: nx.DiGraph) -> list[tuple[str, str]]:
    """The edges that do not follow from others, and those that run upwards, which nothing excuses."""
    upwards = [(a, b) for a, b in graph.edges if FLOOR_OF[a] >= FLOOR_OF[b]]
    down = nx.DiGraph([(a, b) for a, b in graph.edges if FLOOR_OF[a] < FLOOR_OF[b]])
    return sorted([*nx.transitive_reduction(down).edges, *upwards])


def svg() -> str:
    """The picture."""
    height = _top(len(FLOORS))
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" '
        'font-family="Helvetica, Arial, sans-serif" font-size="13">',
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="8" markerHeight="8" orient="auto">'
        '<path d="M0 0 L8 4 L0 8 z" fill="#555"/></marker></defs>',
        f'<rect width="{WIDTH}" height="{height}" fill="white"/>',
    ]
    lines += [_arrow(ROOMS[a], ROOMS[b]) for a, b in arrows(imports())]
    lines += [_box(room, _top(FLOOR_OF[room.name])) for room in ROOMS.values()]
    lines += [_meaning(number, *one) for number, one in enumerate(MEANINGS.items())]
    return "\n".join([*lines, "</svg>", ""])


def _top(floor: int) -> int:
    """Of the boxes of a floor."""
    return 20 + FLOOR * floor


def _arrow(source: Room, target: Room) -> str:
    """Down from a box, sideways between two floors, and down to the other box; red where it runs upwards."""
    shift = (target.x - source.x) // 20
    x, end = source.x + shift, target.x - shift
    above, below = FLOOR_OF[source.name], FLOOR_OF[target.name]
    if above >= below:
        path = f"M{x} {_top(above)} L{end} {_top(below) + HEIGHT}"
    else:
        gaps = range(above, below)
        gap = next((one for one in gaps if _is_free(x, above + 1, one) and _is_free(end, one + 1, below - 1)), above)
        y, to = _top(gap) + HEIGHT, _top(gap + 1)
        path = f"M{x} {_top(above) + HEIGHT} V{y} C{x} {to} {end} {y} {end} {to} V{_top(below)}"
    color = "#555" if above < below else "#c0392b"
    return f'<path d="{path}" fill="none" stroke="{color}" stroke-width="1.2" marker-end="url(#tip)"/>'


def _is_free(x: int, first: int, last: int) -> bool:
    """Does no box stand at this place on the floors from the first to the last?"""
    return all(abs(room.x - x) > BOX // 2 for floor in FLOORS[first : last + 1] for room in floor)


def _box(room: Room, top: int) -> str:
    name = f"wspec.{room.name}" if room.name else "wspec"
    return (
        f'<rect x="{room.x - BOX // 2}" y="{top}" width="{BOX}" height="{HEIGHT}" rx="5" fill="{room.kind}" '
        f'stroke="#666"/>\n<text x="{room.x}" y="{top + 17}" text-anchor="middle" font-weight="bold">{escape(name)}'
        f'</text>\n<text x="{room.x}" y="{top + 33}" text-anchor="middle" font-size="12">{escape(room.does)}</text>'
    )


def _meaning(number: int, color: str, means: str) -> str:
    top = 24 + 24 * number
    return (
        f'<rect x="20" y="{top}" width="18" height="14" fill="{color}" stroke="#666"/>\n'
        f'<text x="46" y="{top + 12}">{escape(means)}</text>'
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("file", type=Path, help="the SVG to write")
    parser.parse_args().file.write_text(svg(), encoding="utf-8")


if __name__ == "__main__":
    main()

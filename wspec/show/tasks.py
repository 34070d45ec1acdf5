"""A picture of a plan: its tasks as boxes, the rings between them as rows of buffers, from the loads to the stores."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape

from wspec.plan.plan import Channel, Plan, Task
from wspec.show.draw import COLORS
from wspec.show.tables import kib

BOX, HEIGHT, GAP = 196, 62, 26
CELL, CELL_HEIGHT = 34, 26
COLUMN = 250
TOP, SIDE = 44, 20
KINDS: Mapping[str, str] = {"producer": "producer", "consumer": "consumer", "helper": "both"}
"""A task's kind -> the name of its colour."""


@dataclass(frozen=True, slots=True)
class _Place:
    """The middle of a box, and half of how wide and high it is."""

    x: int
    y: int
    wide: int
    high: int


def svg(plan: Plan) -> str:
    """The picture, columns from left to right: what loads, its rings, then each task behind what it reads."""
    columns = _columns(plan)
    rows = max(sum(_height(one) + GAP for one in column) - GAP for column in columns)
    places = _places(columns, TOP + rows // 2)
    width, height = 2 * SIDE + COLUMN * (len(columns) - 1) + BOX, TOP + rows + SIDE
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        'font-family="Helvetica, Arial, sans-serif" font-size="12">',
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="8" markerHeight="8" orient="auto">'
        '<path d="M0 0 L8 4 L0 8 z" fill="#555"/></marker></defs>',
        f'<rect width="{width}" height="{height}" fill="white"/>',
        f'<text x="{SIDE}" y="22" font-weight="bold">{escape(_title(plan))}</text>',
    ]
    for channel in plan.channels:
        ring = places[channel.name]
        lines += [_arrow(places[one], ring) for one in _regions(plan, plan.filling(channel))]
        lines += [_arrow(ring, places[one]) for task in plan.readers(channel) for one in _regions(plan, task)]
        lines += _ring(channel, plan.copies(channel), ring)
    for task in plan.tasks:
        lines += [_task(plan, task, places[one]) for one in _regions(plan, task)]
    return "\n".join([*lines, "</svg>", ""])


def _title(plan: Plan) -> str:
    shared = f"{plan.blocks_per_sm} block{'s' if plan.blocks_per_sm > 1 else ''} an SM"
    return f"{plan.kernel}: a block of {plan.total_warps} warps, {kib(plan.smem_bytes)} of shared memory, {shared}"


# ------------------------------------------------------------------------------------------------------- places

Thing = tuple[Task, int] | Channel


def _columns(plan: Plan) -> list[list[Thing]]:
    """Tasks in even columns, each ring in the one behind the task that fills it; none is empty."""
    level = {plan.producer.name: 0}
    for task in plan.computing:
        sources = [plan.filling(channel).name for channel in plan.channels if task in plan.readers(channel)]
        level[task.name] = 2 + max((level[name] for name in sources), default=0)
    columns: list[list[Thing]] = [[] for _ in range(max(level.values()) + 1)]
    for task in plan.tasks:
        columns[level[task.name]] += [(task, replica) for replica in range(task.replicas)]
    for channel in plan.channels:
        columns[level[plan.filling(channel).name] + 1].append(channel)
    return columns


def _places(columns: Sequence[Sequence[Thing]], middle: int) -> dict[str, _Place]:
    """Of every ring and region by its name; each column stands around the same middle."""
    found: dict[str, _Place] = {}
    for at, column in enumerate(columns):
        x = SIDE + BOX // 2 + COLUMN * at
        y = middle - (sum(_height(one) + GAP for one in column) - GAP) // 2
        for one in column:
            wide = CELL * one.depth if isinstance(one, Channel) else BOX
            found[_name(one)] = _Place(x, y + _height(one) // 2, wide // 2, _height(one) // 2)
            y += _height(one) + GAP
    return found


def _height(one: Thing) -> int:
    return CELL_HEIGHT if isinstance(one, Channel) else HEIGHT


def _name(one: Thing) -> str:
    return one.name if isinstance(one, Channel) else f"{one[0].name} {one[1]}"


def _regions(plan: Plan, task: Task) -> list[str]:
    return [_name((task, replica)) for replica in range(task.replicas)]


# ------------------------------------------------------------------------------------------------------ drawing


def _task(plan: Plan, task: Task, place: _Place) -> str:
    warps = f"{task.warps} warp{'s' if task.warps > 1 else ''}, {task.registers} registers a thread"
    rows = (task.name, task.kind, warps) if task.name != task.kind else (task.name, warps)
    texts = [
        _text(place.x, place.y - 4 + 16 * (at - (len(rows) - 1) / 2) + 8, row, at == 0) for at, row in enumerate(rows)
    ]
    return "\n".join([_rect(place, COLORS[KINDS[task.kind]], 5), *texts])


def _ring(channel: Channel, copies: int, place: _Place) -> list[str]:
    """A row of buffers, and above it whose they are."""
    size = f"{channel.depth} x {kib(channel.buffer_bytes)}" + (f", divided by {copies}" if copies > 1 else "")
    lines = [_text(place.x, place.y - place.high - 6, f"{channel.name}: {size}", False)]
    for at in range(channel.depth):
        middle = place.x - place.wide + CELL * at + CELL // 2
        lines.append(_rect(_Place(middle, place.y, CELL // 2, place.high), COLORS["ring"], 0))
    return lines


def _rect(place: _Place, color: str, round_by: int) -> str:
    x, y = place.x - place.wide, place.y - place.high
    return (
        f'<rect x="{x}" y="{y}" width="{2 * place.wide}" height="{2 * place.high}" rx="{round_by}" fill="{color}" '
        'stroke="#666"/>'
    )


def _text(x: float, y: float, text: str, bold: bool) -> str:
    weight = ' font-weight="bold"' if bold else ""
    return f'<text x="{x:g}" y="{y:g}" text-anchor="middle"{weight}>{escape(text)}</text>'


def _arrow(start: _Place, end: _Place) -> str:
    """From the right side of a box to the left side of another one."""
    x, to = start.x + start.wide, end.x - end.wide - 2
    middle = (x + to) // 2
    return (
        f'<path d="M{x} {start.y} C{middle} {start.y} {middle} {end.y} {to} {end.y}" fill="none" stroke="#555" '
        'stroke-width="1.2" marker-end="url(#tip)"/>'
    )

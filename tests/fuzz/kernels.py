"""Drawn kernels: the grid and its tiles, loops one after the other, what is stored at the end."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from hypothesis import strategies as st

from tests.fuzz.access import Habit, store
from tests.fuzz.loops import branch, gather, loop
from tests.fuzz.motifs import Body, dot, fixed
from tests.fuzz.program import Assign, Bin, Expr, Extent, For, If, Pid, Program, Programs, Stmt, TileStore, Type, Var
from tests.fuzz.sketch import Dim, Frame, Level, Sketch, State, Tile, integer
from tests.fuzz.values import narrowed, transformed

DTYPES = ("fp16", "fp16", "bf16", "bf16", "fp8e4nv", "fp8e5", "i8", "fp32")
ACCESSES = (("host",),) * 6 + (("host", "device"), ("device",), ("host", "host", "pointer"), *(("pointer",),) * 3)
I32 = Type("i32")
MOST_COLUMNS = 2  # tiles of columns


@st.composite
def programs(draw: st.DrawFn) -> Program:
    """Kernels with one to three loops."""
    sketch = Sketch(draw)
    habit = Habit(sketch.pick(*DTYPES), sketch.pick(*ACCESSES), sketch.pick((False, False, True), (False,), (True,)))
    rows, columns = sketch.pick(128, 128, 64, 128, 128, 64, 256), sketch.pick(64, 32, 64, 128)
    make = sketch.pick(_grid, _grid, _single, _heads, _persistent)
    frame, root, wrap, grid = make(sketch, rows, columns)
    body = Body(sketch, frame, habit, root, None)
    _phases(body)
    if sketch.chance(6):
        _guard(sketch, frame, root)
    statements = wrap(tuple(root.statements))
    return Program(tuple(sketch.knobs), grid, tuple(sketch.scalars), tuple(sketch.buffers), statements)


# ---------------------------------------------------------------------------------------------------- frames

Wrap = Callable[[tuple[Stmt, ...]], tuple[Stmt, ...]]
Made = tuple[Frame, Level, Wrap, tuple[Extent, ...]]


def _grid(sketch: Sketch, rows: int, columns: int) -> Made:
    """A program for each tile of a matrix."""
    high, wide = sketch.knob("high", 1, 2), sketch.knob("wide", 1, MOST_COLUMNS)
    root = Level()
    row = sketch.assign(root, "row", Bin("*", Pid(0), integer(rows)))
    column = sketch.assign(root, "column", Bin("*", Pid(1), integer(columns)))
    slot = sketch.assign(root, "slot", Bin("+", Bin("*", Pid(0), Programs(1)), Pid(1)))
    places = _along(sketch, "row", rows, row, high), _along(sketch, "column", columns, column, wide)
    frame = Frame(*places, slot, Extent(((high, MOST_COLUMNS),)))
    root.conditions += [Bin("==", Pid(1), integer(0)), *_asked(sketch)]
    return frame, root, lambda body: body, (Extent(((high, 1),)), Extent(((wide, 1),)))


def _single(sketch: Sketch, rows: int, columns: int) -> Made:
    """A program for each block of rows, which takes all columns."""
    high, root = sketch.knob("high", 1, 2), Level()
    row = sketch.assign(root, "row", Bin("*", Pid(0), integer(rows)))
    column = replace(fixed(columns), key="column")
    frame = Frame(_along(sketch, "row", rows, row, high), column, Pid(0), Extent(((high, 1),)))
    root.conditions += [Bin("==", Pid(0), integer(0)), *_asked(sketch)]
    return frame, root, lambda body: body, (Extent(((high, 1),)),)


def _heads(sketch: Sketch, rows: int, columns: int) -> Made:
    """As `_single`, for each of several matrices: tensors have three dimensions."""
    frame, root, wrap, grid = _single(sketch, rows, columns)
    heads = sketch.knob("heads", 2, 1)
    slot = sketch.assign(root, "slot", Bin("+", Bin("*", Pid(0), Programs(1)), Pid(1)))
    count = Extent(((heads, 1),))
    frame = replace(frame, slot=slot, slots=_scaled(frame.slots, 2), lead=Pid(1), leads=count)
    return frame, root, wrap, (*grid, count)


def _persistent(sketch: Sketch, rows: int, columns: int) -> Made:
    """Few programs, each of which works through many tiles."""
    high, wide, programs = sketch.knob("high", 2, 1, 3), sketch.knob("wide", 1, 2), sketch.knob("programs", 1, 2, 3)
    root, outside = Level(), Level()
    m, n = (
        sketch.scalar(stem, Extent(((knob, size),))) for stem, knob, size in (("m", high, rows), ("n", wide, columns))
    )
    across = sketch.assign(outside, "across", Bin("//", n, integer(columns)))
    tiles = sketch.assign(outside, "tiles", Bin("*", Bin("//", m, integer(rows)), across))
    tile = Var("tile", I32)
    row = sketch.assign(root, "row", Bin("*", Bin("//", tile, across), integer(rows)))
    column = sketch.assign(root, "column", Bin("*", Bin("%", tile, across), integer(columns)))
    places = _along(sketch, "row", rows, row, high), _along(sketch, "column", columns, column, wide)
    frame = Frame(*places, tile, Extent(((high, MOST_COLUMNS),)))
    root.conditions += [Bin("==", Bin("%", tile, integer(2)), integer(0)), *_asked(sketch)]
    sketch.fused = sketch.chance(4)
    hints = (("flatten", 1),) if sketch.fused else ()

    def wrap(body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
        return (*outside.statements, For(tile.name, Pid(0), tiles, Programs(0), body, hints))

    return frame, root, wrap, (Extent(((programs, 1),)),)


def _along(sketch: Sketch, key: str, size: int, offset: Expr, count: str) -> Dim:
    cut = sketch.pick(0, 16)
    return Dim(key, size, offset, Extent(((count, size),), -cut, 16), Extent(((count, size),)))


def _scaled(extent: Extent, by: int) -> Extent:
    return Extent(tuple((name, factor * by) for name, factor in extent.terms), extent.constant * by)


def _asked(sketch: Sketch) -> list[Expr]:
    """A truth that an argument decides."""
    return [Bin(">", sketch.scalar("choice", Extent(((sketch.knob("choice", 1, 0), 1),))), integer(0))]


# ---------------------------------------------------------------------------------------------------- phases


def _phases(body: Body) -> None:
    """Loops one after the other, with what stands between them, and the stores."""
    sketch, root = body.sketch, body.level
    for _ in range(sketch.pick(1, 1, 1, 2, 2, 3)):
        if sketch.chance(8):
            branch(body, loop)
            gather(root)
        else:
            loop(body)
        if sketch.chance(8):
            _between(body)
    if sketch.chance(8):
        dot(body)
    _store_all(body)


def _between(body: Body) -> None:
    """Work on what a loop has left before the next one starts."""
    if body.level.tiles:
        tile = body.sketch.pick(*reversed(body.level.tiles))
        body.level.tiles.append(transformed(body.sketch, body.level, tile))


def _store_all(body: Body) -> None:
    """Every variable that loops have updated, and every tile that is left, goes to memory."""
    sketch, root = body.sketch, body.level
    values = {tile.value for tile in root.tiles}
    for state in list(root.states):
        _store_state(body, state)
    carried = {state.var for state in root.states}
    left = [tile for tile in root.tiles if tile.value in values and tile.value not in carried][-1:]
    if not left and not any(buffer.output for buffer in sketch.buffers):
        left += [made for made in (dot(body),) if made is not None]
    for tile in left:
        store(sketch, body.frame, root, tile.value, (tile.rows, tile.columns))
    if sketch.chance(2):
        _store_over_input(body)


def _store_over_input(body: Body) -> None:
    """A tile over one that was loaded, where no other program of the grid reads it."""
    frame, root = body.frame, body.level
    tiles = [tile for tile in root.tiles if (tile.rows.key, tile.columns.key) == ("row", "column")]
    place = (frame.row.extent, frame.column.extent), (frame.row.size, frame.column.size)
    like = [b for b in body.sketch.buffers if (b.dims, b.box) == place and not b.output and b.dtype in ("fp16", "bf16")]
    if tiles and like and frame.column.offset == integer(0):
        buffer = body.sketch.pick(*like)
        value = narrowed(body.sketch.pick(*tiles).value, buffer.dtype)
        root.statements.append(TileStore(buffer.name, (frame.row.offset, frame.column.offset), value))


def _store_state(body: Body, state: State) -> None:
    sketch, root, value = body.sketch, body.level, state.var
    if len(state.dims) == 2 and value.of.dtype == "fp32" and sketch.chance(2):
        tile = transformed(sketch, root, Tile(value, state.dims[0], state.dims[1]), 2)
        store(sketch, body.frame, root, tile.value, state.dims)
    else:
        store(sketch, body.frame, root, value, state.dims)


def _guard(sketch: Sketch, frame: Frame, root: Level) -> None:
    """Everything but where the tile is goes under a condition."""
    where = [isinstance(one, Assign) and one.name in ("row", "column", "slot") for one in root.statements]
    head = where.index(False)
    limit = sketch.scalar("rows", Extent(((sketch.knob("guard", 2, 1, 0), frame.row.size),)))
    rest, condition = tuple(root.statements[head:]), Bin("<", frame.row.offset, limit)
    root.statements[head:] = [If(condition, rest, returns=sketch.chance(2))]

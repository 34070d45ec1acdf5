"""Drawn pieces of a loop's body: dots in their variety, the updates of what a loop carries, stores."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tests.fuzz.access import Habit, load_elements, operand, store
from tests.fuzz.program import Bin, Cast, Dot, Expr, Extent, Full, Lit, Reduce, Trans, Un
from tests.fuzz.sketch import MIN_INNER, Dim, Frame, Level, Sketch, State, Tile, Vector, integer
from tests.fuzz.values import across, factor, narrowed, transformed, vector

LESS = 0.0625  # keeps the numbers of a chain of dots small


@dataclass(frozen=True, slots=True)
class Body:
    """Where a piece is to be put."""

    sketch: Sketch
    frame: Frame
    habit: Habit
    level: Level
    place: Dim | None  # what the innermost loop walks along


def fixed(size: int) -> Dim:
    """A dimension that is there in whole."""
    extent = Extent(constant=size)
    return Dim(f"fixed{size}", size, integer(0), extent, extent)


# ------------------------------------------------------------------------------------------------------ dots


def dot(body: Body) -> Tile | None:
    """A dot of one kind or another; what it yields, unless that went into an accumulator."""
    chainable = [t for t in body.level.all_tiles() if t.rows.size >= 64 and t.columns.size >= 32]
    kinds: list[Callable[[Body], tuple[Dot, Dim, Dim]]] = [_product]
    kinds += [_scores, _product] if body.place is not None else []
    kinds += [_chain, _chain] if chainable else []
    kinds += [_turned_chain] if any(t.columns.size >= 64 for t in chainable) and body.sketch.chance(4) else []
    made, rows, columns = body.sketch.pick(*kinds)(body)
    return _collect(body, made, rows, columns)


def _widths(body: Body) -> list[Dim]:
    """What the columns of a result may be: those of the frame, of a loop further out, or a size of their own."""
    outer = [place for level in body.level.up() for place in level.places if place is not body.place]
    return [body.frame.column, body.frame.column, *outer, fixed(body.sketch.pick(64, 32, 64, 128))]


def _load(body: Body, rows: Dim, columns: Dim, dtype: str, level: Level | None = None, turn: bool = False) -> Expr:
    return operand(body.sketch, body.frame, body.habit, level or body.level, rows, columns, dtype, turn)


def _product(body: Body) -> tuple[Dot, Dim, Dim]:
    """Both operands streamed along the loop; outside of loops along a size of their own."""
    dtype = body.habit.dtype
    inner = body.place if body.place is not None else fixed(64)
    columns = body.sketch.pick(*_widths(body))
    a = _load(body, body.frame.row, inner, dtype)
    b = _load(body, inner, columns, dtype, turn=dtype == "fp32")
    return Dot(a, b), body.frame.row, columns


def _scores(body: Body) -> tuple[Dot, Dim, Dim]:
    """A tile loaded before the loop (or in it) against one streamed along the loop."""
    place = body.place
    assert place is not None
    inner = fixed(body.sketch.pick(64, 32, 64, 128))
    hoisted = body.level.home if not body.sketch.chance(4) else body.level
    a = _load(body, body.frame.row, inner, body.habit.dtype, hoisted)
    b = _load(body, inner, place, body.habit.dtype, turn=not body.sketch.chance(4))
    return Dot(a, b), body.frame.row, place


def _narrow_type(body: Body) -> str:
    """The type in which a computed tile meets a loaded one."""
    dtype = body.habit.dtype
    return "fp16" if dtype in ("i8", "fp32") else dtype


def _chain(body: Body) -> tuple[Dot, Dim, Dim]:
    """A computed tile against a loaded one."""
    found = [t for t in body.level.all_tiles() if t.rows.size >= 64 and t.columns.size >= 32]
    tile, dtype = body.sketch.pick(*reversed(found)), _narrow_type(body)
    columns = body.sketch.pick(*_widths(body))
    hoisted = tile.columns.key.startswith("fixed") and body.place is not None and body.sketch.chance(2)
    b = _load(body, tile.columns, columns, dtype, body.level.home if hoisted else None)
    return Dot(narrowed(tile.value, dtype, LESS), b), tile.rows, columns


def _turned_chain(body: Body) -> tuple[Dot, Dim, Dim]:
    """A computed tile, turned, against a loaded one: its columns become rows."""
    found = [t for t in body.level.all_tiles() if t.rows.size >= 64 and t.columns.size >= 64]
    tile, dtype = body.sketch.pick(*reversed(found)), _narrow_type(body)
    columns = body.sketch.pick(*_widths(body))
    b = _load(body, tile.rows, columns, dtype)
    return Dot(Trans(narrowed(tile.value, dtype, LESS)), b), tile.columns, columns


def _collect(body: Body, made: Dot, rows: Dim, columns: Dim) -> Tile | None:
    """Into an accumulator, where the result lies at the same place in every iteration, or as a tile of its own."""
    stays = body.place is not None and body.place.key not in (rows.key, columns.key)
    if stays and not body.sketch.chance(4):
        _accumulate(body, made, rows, columns)
        return None
    value: Expr = made
    if made.type.dtype == "i32":
        value = Cast(body.sketch.assign(body.level, "s", value), "fp32")
    tile = Tile(body.sketch.assign(body.level, "s", value), rows, columns)
    body.level.tiles.append(tile)
    return tile


def _accumulate(body: Body, made: Dot, rows: Dim, columns: Dim) -> None:
    sketch, dtype = body.sketch, made.type.dtype
    state = _state(body, "acc", (rows, columns), Full((rows.size, columns.size), 0, dtype))
    before: Expr = state.var
    how = sketch.number(0, 5)
    if how == 1 and dtype == "fp32":
        before = Bin("*", before, Lit(sketch.pick(0.5, 0.25)))
    elif how == 2 and dtype == "fp32":
        before = Bin("*", before, across(vector(sketch, body.level, rows), 0))
    if how == 3:
        value: Expr = Bin("+", before, Dot(made.a, made.b))
    elif how == 4 and dtype == "fp32":
        value = Bin("+", before, Bin("*", Dot(made.a, made.b), factor(sketch)))
    else:
        value = Dot(made.a, made.b, before)
    sketch.update(body.level, state, value)


def _state(body: Body, stem: str, dims: tuple[Dim, ...], start: Expr, role: str = "sum") -> State:
    """A variable of these dimensions that starts before the loop, or one there is already."""
    home = body.level.home
    if home.parent is not None and body.sketch.chance(4):
        home = home.home  # carried through the loop around as well
    dims = _anchored(home, dims)
    keys = [d.key for d in dims]
    known = [s for s in body.level.all_states() if [d.key for d in s.dims] == keys and s.role == role]
    known = [s for s in known if s.var.of == start.type]
    if known and not body.sketch.chance(3):
        return body.sketch.pick(*known)
    return body.sketch.state(home, stem, start, dims, role)


def _anchored(level: Level, dims: tuple[Dim, ...]) -> tuple[Dim, ...]:
    """Dimensions that move with loops inside the level are, seen from there, only a size."""
    still = {place.key for around in level.up() for place in around.places} | {"row", "column"}
    return tuple(dim if dim.key in still else fixed(dim.size) for dim in dims)


# --------------------------------------------------------------------------------------------------- updates


def soften(body: Body, tile: Tile) -> Tile:
    """The online softmax: largest and sum of each row so far; accumulators of these rows decay."""
    sketch, level, rows = body.sketch, body.level, tile.rows
    low = sketch.pick(-1.0e6, float("-inf"))
    top = _state(body, "top", (rows,), Full((rows.size,), low, "fp32"), "max")
    total = _state(body, "total", (rows,), Full((rows.size,), 0, "fp32"))
    new = sketch.assign(level, "new", Bin("max", top.var, Reduce("max", tile.value, 1)))
    p = sketch.assign(level, "p", Un("exp2", Bin("-", tile.value, across(new, 0))))
    decay = sketch.assign(level, "decay", Un("exp2", Bin("-", top.var, new)))
    sketch.update(level, total, Bin("+", Bin("*", total.var, decay), Reduce("sum", p, 1)))
    sketch.update(level, top, new)
    level.vectors.append(Vector(decay, rows))
    found = Tile(p, rows, tile.columns)
    level.tiles.append(found)
    return found


def summarize(body: Body, tile: Tile) -> None:
    """A sum or an extreme of a tile along an axis, or both, into what the loop carries."""
    sketch, level = body.sketch, body.level
    axis, op = sketch.pick(1, 1, 0), sketch.pick("sum", "max")
    dim = tile.rows if axis == 1 else tile.columns
    value: Expr = Reduce(op, tile.value, axis)
    dims: tuple[Dim, ...] = (dim,)
    if sketch.chance(6):
        value, dims = Reduce(op, value, 0), ()
    shape = tuple(d.size for d in dims)
    role = "max" if op == "max" else "sum"
    start: Expr = Full(shape, 0, "fp32") if shape else Lit(0.0)
    state = _state(body, "peak" if op == "max" else "total", dims, start, role)
    if op == "max":
        sketch.update(level, state, Bin("max", state.var, value))
    else:
        before: Expr = Bin("*", state.var, Lit(0.5)) if sketch.chance(3) else state.var
        sketch.update(level, state, Bin("+", before, value))


def remember(body: Body, tile: Tile) -> None:
    """Carry the tile itself, or add it to what is carried."""
    state = _state(body, "kept", (tile.rows, tile.columns), Full(tile.value.type.shape, 0, "fp32"))
    value: Expr = tile.value
    if not body.sketch.chance(3):
        value = Bin("+", Bin("*", state.var, Lit(0.5)), tile.value)
    body.sketch.update(body.level, state, value)


def peek(body: Body) -> Tile | None:
    """A tile loaded for a dot that is also read as numbers."""
    known = [t for level in body.level.up() for what, t in level.operands if what[2] != "fp32"]
    if not known:
        return None
    tile = body.sketch.pick(*known)
    found = Tile(body.sketch.assign(body.level, "f", Cast(tile.value, "fp32")), tile.rows, tile.columns)
    body.level.tiles.append(found)
    return found


def addend(body: Body, rows: Dim, columns: Dim) -> Tile:
    """A tile that is loaded and meets no dot."""
    sketch = body.sketch
    if sketch.chance(2):
        dtype = body.habit.dtype if body.habit.dtype in MIN_INNER else "fp16"
        value = _load(body, rows, columns, dtype)
    else:
        value = load_elements(sketch, rows, columns, sketch.pick("fp16", "fp32"), masked=sketch.chance(2))
    value = Cast(value, "fp32") if value.type.dtype != "fp32" else value
    found = Tile(sketch.assign(body.level, "extra", value), rows, columns)
    body.level.tiles.append(found)
    return found


def store_tile(body: Body, tile: Tile) -> None:
    """A store inside the loop."""
    store(body.sketch, body.frame, body.level, tile.value, (tile.rows, tile.columns))


def react(body: Body, tile: Tile) -> None:
    """Something done with a tile."""
    for _ in range(body.sketch.pick(1, 2)):
        kind = body.sketch.number(0, 7)
        if kind <= 2:
            summarize(body, tile)
        elif kind <= 4:
            remember(body, tile)
        elif kind == 5:
            store_tile(body, tile)
        else:
            tile = transformed(body.sketch, body.level, tile)
            body.level.tiles.append(tile)

"""Drawn arithmetic on tiles and vectors, in fp32."""

from __future__ import annotations

from collections.abc import Callable

from tests.fuzz.program import (
    Arange,
    Bin,
    Buffer,
    Cast,
    Expand,
    Expr,
    Extent,
    Lit,
    PtrLoad,
    Reduce,
    Un,
    Where,
)
from tests.fuzz.sketch import Dim, Level, Sketch, Tile, Vector, integer

HIDDEN = -1024.0  # what masks put in place of scores
CEILING = {"fp8e4nv": 240.0, "fp8e5": 4096.0}  # far from where casts to these types would overflow


def indices(dim: Dim) -> Expr:
    """Where the elements of a dimension lie."""
    return Bin("+", dim.offset, Arange(dim.size))


def bound(sketch: Sketch, dim: Dim) -> Expr:
    """The end of a dimension as a scalar of the kernel."""
    return sketch.scalar("end", dim.extent)


def across(vector: Expr, axis: int) -> Expr:
    """A vector of rows (axis 0) or of columns (axis 1), ready to meet a tile."""
    return Expand(vector, 1 - axis)


# --------------------------------------------------------------------------------------------------- scalars


def factor(sketch: Sketch) -> Expr:
    """A number to multiply with: powers of two keep whole numbers exact."""
    if sketch.chance(4):
        return sketch.scalar("factor", Extent(((sketch.knob("scale", 500, 125, 300), 1),)), "fp32")
    return Lit(sketch.pick(0.5, 0.25, 2.0, -1.0, 0.3))


def condition(sketch: Sketch, level: Level) -> Expr:
    """A scalar truth: of the loops' positions, of arguments, of program ids; sometimes of what was computed."""
    known = [s.var for s in level.all_states() if len(s.dims) < 2 and s.var.of.dtype == "fp32"]
    if known and sketch.chance(6):
        one = sketch.pick(*known)
        return Bin(">", Reduce("max", one, 0) if one.of.shape else one, Lit(0.75))
    return sketch.pick(*level.all_conditions())


# --------------------------------------------------------------------------------------------------- vectors


def vector(sketch: Sketch, level: Level, dim: Dim) -> Expr:
    """One number for each row or column: computed before, or loaded."""
    found = [v for v in level.all_vectors() if v.dim.key == dim.key]
    found += [Vector(s.var, s.dims[0]) for s in level.all_states() if [d.key for d in s.dims] == [dim.key]]
    if found and not sketch.chance(3):
        return sketch.pick(*found).value
    made = Vector(load_vector(sketch, level, dim), dim)
    level.vectors.append(made)
    return made.value


def load_vector(sketch: Sketch, level: Level, dim: Dim) -> Expr:
    """Through pointers, with a mask where the tensor may end before the tile."""
    masked = dim.full is None or sketch.chance(3)
    extent = dim.extent if masked or dim.full is None else dim.full
    buffer = sketch.buffer("vector", Buffer("", "fp32", (extent,), "pointer"), share=not sketch.chance(3))
    at = indices(dim)
    mask = _inside(sketch, dim, at) if masked else None
    return sketch.assign(level, "v", PtrLoad(buffer.name, at, "fp32", mask, sketch.pick(0.0, 1.0)))


def _inside(sketch: Sketch, dim: Dim, at: Expr) -> Expr:
    """Which of these places are in the tensor. Places may be negative where nothing bounds them."""
    below = Bin("<", at, bound(sketch, dim))
    return below if dim.full is not None else Bin("and", below, Bin(">=", at, integer(0)))


def inside(sketch: Sketch, rows: Dim, columns: Dim) -> Expr:
    """Which elements of a tile are in the tensor."""
    row = across(_inside(sketch, rows, indices(rows)), 0)
    return Bin("and", row, across(_inside(sketch, columns, indices(columns)), 1))


def reduced(sketch: Sketch, tile: Tile, op: str, axis: int) -> Vector:
    return Vector(Reduce(op, tile.value, axis), tile.columns if axis == 0 else tile.rows)


# ----------------------------------------------------------------------------------------------------- tiles


def transformed(sketch: Sketch, level: Level, tile: Tile, most: int = 3) -> Tile:
    """The tile after a chain of elementwise operations, each a statement of its own."""
    for _ in range(sketch.number(0, most)):
        step = sketch.pick(*_STEPS)
        value = step(sketch, level, tile)
        tile = Tile(sketch.assign(level, "t", value), tile.rows, tile.columns)
    return tile


def _scaled(sketch: Sketch, level: Level, tile: Tile) -> Expr:
    return Bin("*", tile.value, factor(sketch))


def _shifted(sketch: Sketch, level: Level, tile: Tile) -> Expr:
    return Bin(sketch.pick("+", "-"), tile.value, Lit(sketch.pick(1.0, 0.5)))


def _clipped(sketch: Sketch, level: Level, tile: Tile) -> Expr:
    return Bin(sketch.pick("max", "min"), tile.value, Lit(sketch.pick(0.0, 2.0)))


def _unary(sketch: Sketch, level: Level, tile: Tile) -> Expr:
    return Un(sketch.pick("abs", "neg"), tile.value)


def _root(sketch: Sketch, level: Level, tile: Tile) -> Expr:
    return Un("sqrt", Un("abs", tile.value))


def _power(sketch: Sketch, level: Level, tile: Tile) -> Expr:
    """2 to a number that is not large."""
    return Un("exp2", Bin("min", Bin("*", tile.value, Lit(0.25)), Lit(3.0)))


def _by_vector(sketch: Sketch, level: Level, tile: Tile) -> Expr:
    axis = sketch.pick(0, 1)
    with_vector = vector(sketch, level, (tile.rows, tile.columns)[axis])
    return Bin(sketch.pick("*", "+", "-"), tile.value, across(with_vector, axis))


def _divided(sketch: Sketch, level: Level, tile: Tile) -> Expr:
    axis = sketch.pick(0, 1)
    by = Bin("+", Un("abs", vector(sketch, level, (tile.rows, tile.columns)[axis])), Lit(1.0))
    return Bin("/", tile.value, across(by, axis))


def _masked(sketch: Sketch, level: Level, tile: Tile) -> Expr:
    """Hide what lies above a diagonal, or outside the tensors."""
    if sketch.chance(2):
        mask: Expr = Bin(">=", across(indices(tile.rows), 0), across(indices(tile.columns), 1))
    else:
        mask = inside(sketch, tile.rows, tile.columns)
    return Where(mask, tile.value, Lit(sketch.pick(0.0, HIDDEN)))


def _chosen(sketch: Sketch, level: Level, tile: Tile) -> Expr:
    """One scalar truth decides for the whole tile."""
    return Where(condition(sketch, level), tile.value, Bin("*", tile.value, Lit(0.5)))


def _with_other(sketch: Sketch, level: Level, tile: Tile) -> Expr:
    key = (tile.rows.key, tile.columns.key)
    others = [t.value for t in level.all_tiles() if (t.rows.key, t.columns.key) == key]
    others += [s.var for s in level.all_states() if tuple(d.key for d in s.dims) == key and s.var.of.dtype == "fp32"]
    return Bin(sketch.pick("+", "-", "max"), tile.value, sketch.pick(*others, tile.value))


def _rounded(sketch: Sketch, level: Level, tile: Tile) -> Expr:
    return Cast(Cast(tile.value, sketch.pick("fp16", "bf16")), "fp32")


def _centred(sketch: Sketch, level: Level, tile: Tile) -> Expr:
    """Less the largest of its row, or column."""
    axis = sketch.pick(1, 1, 0)
    top = sketch.assign(level, "top", reduced(sketch, tile, "max", axis).value)
    return Bin("-", tile.value, across(top, 1 - axis))


Step = Callable[[Sketch, Level, Tile], Expr]
_STEPS: tuple[Step, ...] = (
    _scaled,
    _shifted,
    _clipped,
    _unary,
    _root,
    _power,
    _by_vector,
    _divided,
    _masked,
    _chosen,
    _with_other,
    _rounded,
    _centred,
)


def narrowed(tile: Expr, dtype: str, less: float = 1.0) -> Expr:
    """A tile in fp32 as an operand of a dot, or for a store, kept from overflowing."""
    scaled = tile if less == 1.0 else Bin("*", tile, Lit(less))
    if dtype in CEILING:
        limit = CEILING[dtype]
        scaled = Bin("max", Bin("min", scaled, Lit(limit)), Lit(-limit))
    return scaled if dtype == "fp32" else Cast(scaled, dtype)

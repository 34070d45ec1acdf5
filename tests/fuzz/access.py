"""Drawn loads and stores of tiles: through descriptors of the host or the device, or through pointers."""

from __future__ import annotations

from dataclasses import dataclass

from tests.fuzz.program import (
    Arange,
    Bin,
    Buffer,
    Cast,
    Expr,
    Extent,
    PtrLoad,
    PtrStore,
    TileLoad,
    TileStore,
    Trans,
    Type,
)
from tests.fuzz.sketch import MIN_INNER, Dim, Frame, Level, Sketch, Tile, integer
from tests.fuzz.values import across, indices, inside, narrowed

BYTES = {"fp32": 4, "fp16": 2, "bf16": 2, "fp8e4nv": 1, "fp8e5": 1, "i8": 1, "i32": 4}


@dataclass(frozen=True, slots=True)
class Habit:
    """What one program likes: how its operands are typed and where they come from."""

    dtype: str
    accesses: tuple[str, ...]  # what loads of operands choose from
    turned: tuple[bool, ...]


def operand(
    sketch: Sketch, frame: Frame, habit: Habit, level: Level, rows: Dim, columns: Dim, dtype: str, turn: bool = False
) -> Expr:
    """A matrix loaded for a dot: one that is there already, or a new one, stored either way round."""
    key = (rows.key, columns.key, dtype)
    known = [tile for around in level.up() for what, tile in around.operands if what == key]
    if known and not sketch.chance(3):
        return sketch.pick(*known).value
    turned = turn or sketch.pick(*habit.turned)
    first, second = (columns, rows) if turned else (rows, columns)
    stored = dtype
    if dtype in ("fp16", "bf16") and sketch.chance(12):
        stored = "i8" if min(first.size, second.size) >= MIN_INNER["i8"] else dtype
    value = _load(sketch, frame, sketch.pick(*habit.accesses), first, second, stored)
    if stored != dtype:
        value = Cast(sketch.assign(level, "w", value), dtype)
    if sketch.chance(3):
        return Trans(value) if turned else value
    name: Expr = sketch.assign(level, "x", value)
    name = Trans(name) if turned else name
    level.operands.append((key, Tile(name, rows, columns)))
    return name


def _load(sketch: Sketch, frame: Frame, access: str, rows: Dim, columns: Dim, dtype: str) -> Expr:
    if access == "pointer":
        return load_elements(sketch, rows, columns, dtype, masked=sketch.chance(2))
    dims, box, offsets = _boxed(frame, rows, columns)
    buffer = sketch.buffer("in", Buffer("", dtype, dims, access, box), share=not sketch.chance(4))
    return TileLoad(buffer.name, offsets, Type(dtype, (rows.size, columns.size)))


def _boxed(frame: Frame, rows: Dim, columns: Dim) -> tuple[tuple[Extent, ...], tuple[int, ...], tuple[Expr, ...]]:
    """(extents, box, offsets) of a descriptor's tensor, with the frame's first coordinate if it has one."""
    dims, box, offsets = (rows.extent, columns.extent), (rows.size, columns.size), (rows.offset, columns.offset)
    if frame.lead is None:
        return dims, box, offsets
    return (frame.leads, *dims), (1, *box), (frame.lead, *offsets)


def load_elements(sketch: Sketch, rows: Dim, columns: Dim, dtype: str, masked: bool) -> Expr:
    """A tile through pointers."""
    dims, at, mask = _addressed(sketch, rows, columns, masked)
    buffer = sketch.buffer("in", Buffer("", dtype, dims, "pointer"), share=not sketch.chance(4))
    return PtrLoad(buffer.name, at, dtype, mask, 0.0)


def _addressed(sketch: Sketch, rows: Dim, columns: Dim, masked: bool) -> tuple[tuple[Extent, ...], Expr, Expr | None]:
    """(extents, index in memory, mask) of a tile. There is always a mask where the tile may stick out."""
    mask, dims = None, (rows.full, columns.full)
    if masked or rows.full is None or columns.full is None:
        mask, dims = inside(sketch, rows, columns), (rows.extent, columns.extent)
    found = tuple(extent for extent in dims if extent is not None)
    stride = sketch.scalar("stride", found[1])
    at = Bin("+", Bin("*", across(indices(rows), 0), stride), across(indices(columns), 1))
    return found, at, mask


# ----------------------------------------------------------------------------------------------------- stores


def store(sketch: Sketch, frame: Frame, level: Level, value: Expr, dims: tuple[Dim, ...]) -> None:
    """A value where no other tile of the result goes."""
    if len(dims) == 2:
        _store_tile(sketch, frame, level, value, *_placed(frame, dims[0], dims[1]))
        return
    size = dims[0].size if dims else 1
    buffer = sketch.buffer(
        "out", Buffer("", value.type.dtype, (_times(frame.slots, size),), "pointer", (), True), False
    )
    if not dims:
        level.statements.append(PtrStore(buffer.name, frame.slot, value))
        return
    at = Bin("+", Bin("*", frame.slot, integer(size)), Arange(size))
    mask = Bin("<", indices(dims[0]), sketch.scalar("end", dims[0].extent)) if sketch.chance(3) else None
    level.statements.append(PtrStore(buffer.name, at, value, mask))


def _times(extent: Extent, size: int) -> Extent:
    return Extent(tuple((name, factor * size) for name, factor in extent.terms), extent.constant * size)


def _placed(frame: Frame, rows: Dim, columns: Dim) -> tuple[Dim, Dim]:
    """Where a tile may be stored: at its own place if that is no other's, else at one that goes by the slot."""
    if (rows.key, columns.key) == ("row", "column"):
        return rows, columns
    every = _times(frame.slots, rows.size)
    return Dim("", rows.size, Bin("*", frame.slot, integer(rows.size)), every, every), columns


def _store_tile(sketch: Sketch, frame: Frame, level: Level, value: Expr, rows: Dim, columns: Dim) -> None:
    dtype = value.type.dtype
    if dtype == "fp32":
        dtype = sketch.pick("fp16", "fp32", "bf16")
        value = narrowed(value, dtype)
    access = sketch.pick("host", "host", "device", "pointer")
    if access == "pointer":
        dims, at, mask = _addressed(sketch, rows, columns, sketch.chance(2))
        buffer = sketch.buffer("out", Buffer("", dtype, dims, "pointer", (), True), False)
        level.statements.append(PtrStore(buffer.name, at, value, mask))
        return
    if rows.key == "row":
        dims, box, offsets = _boxed(frame, rows, columns)
    else:
        dims, box, offsets = (rows.extent, columns.extent), (rows.size, columns.size), (rows.offset, columns.offset)
    buffer = sketch.buffer("out", Buffer("", dtype, dims, access, box, True), False)
    level.statements.append(TileStore(buffer.name, offsets, value))

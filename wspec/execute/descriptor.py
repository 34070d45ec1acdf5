"""TMA descriptors: blocks of a strided tensor in global memory, with edges."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch

from wspec.execute.atomics import REDUCE
from wspec.execute.elements import from_raw, raw
from wspec.execute.errors import ExecutionError
from wspec.execute.memory import GlobalMemory

_TMA_BYTES = 16  # what base addresses and strides are multiples of


@dataclass(frozen=True, slots=True)
class Descriptor:
    """A strided tensor in global memory, and the block that one copy moves.

    In a kernel's signature a descriptor made on the host is followed by its shape, an i32 for each dimension, and its
    strides in elements, an i64 for each; `Descriptor.parameters` are those.
    """

    address: int  # of the first element, in bytes
    shape: tuple[int, ...]
    strides: tuple[int, ...]  # in elements
    block: tuple[int, ...]
    dtype: torch.dtype
    padding: str = "zero"  # what a copy reads outside: "zero" or "nan"
    signed: bool = True  # integer elements, for minima and maxima

    @property
    def parameters(self) -> tuple[int, ...]:
        """The values of the arguments that follow the descriptor in a kernel's signature."""
        return (*self.shape, *self.strides)


def describe(
    memory: GlobalMemory,
    tensor: torch.Tensor,
    block: Sequence[int],
    padding: str = "zero",
    *,
    shape: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
    name: str = "",
) -> Descriptor:
    """The descriptor that a host makes of a tensor, which becomes accessible; `shape` and `strides` replace its own.

    Raises ExecutionError for what no TMA descriptor can describe.
    """
    desc = Descriptor(
        memory.register(tensor, name),
        tuple(tensor.shape if shape is None else shape),
        tuple(tensor.stride() if strides is None else strides),
        tuple(block),
        tensor.dtype,
        padding,
    )
    check(desc)
    return desc


def check(desc: Descriptor) -> None:
    """Raises ExecutionError where the hardware's rules for descriptors are broken."""
    size, rank = desc.dtype.itemsize, len(desc.block)
    if not len(desc.shape) == len(desc.strides) == rank or not 1 <= rank <= 5:
        raise ExecutionError(
            f"a descriptor of {len(desc.shape)} sizes and {len(desc.strides)} strides with a block of {rank} dimensions"
        )
    if desc.padding not in ("zero", "nan"):
        raise ExecutionError(f"a descriptor pads with zero or nan, not with {desc.padding}")
    if desc.address % _TMA_BYTES:
        raise ExecutionError(f"the base of a descriptor, {desc.address:#x}, is not a multiple of {_TMA_BYTES} bytes")
    if desc.strides[-1] != 1:
        raise ExecutionError(f"the last stride of a descriptor is {desc.strides[-1]}, and must be 1")
    odd = [stride for stride in desc.strides[:-1] if stride * size % _TMA_BYTES or stride < 0]
    if odd:
        raise ExecutionError(f"a descriptor's stride of {odd[0] * size} bytes is not a multiple of {_TMA_BYTES}")
    if desc.block[-1] * size < _TMA_BYTES:
        raise ExecutionError(f"the rows of a descriptor's block have {desc.block[-1] * size} bytes, less than 16")


# ------------------------------------------------------------------------------------------------ blocks


def read_tile(memory: GlobalMemory, desc: Descriptor, coordinates: Sequence[int]) -> torch.Tensor:
    """The block at `coordinates`, of the block's shape: a copy. What lies outside the tensor is zero or NaN."""
    _check_start(desc, coordinates)
    return load_block(memory, desc, coordinates)


def write_tile(memory: GlobalMemory, desc: Descriptor, coordinates: Sequence[int], tile: torch.Tensor) -> None:
    """Write a tile of as many elements as the block; what lies behind the end of a dimension is dropped.

    A row's last 16 bytes are written whole, the part of them behind its end too, as an H200 does.
    """
    _check_store(desc, coordinates)
    store_block(memory, _in_whole_pieces(desc), coordinates, tile)


def reduce_tile(
    memory: GlobalMemory, desc: Descriptor, coordinates: Sequence[int], tile: torch.Tensor, kind: int
) -> None:
    """Combine a tile with what is there; `kind` is the integer of `tt.descriptor_reduce` (1 add, 2 min, 3 max, ...).

    As with `write_tile`, a row's last 16 bytes are changed whole.
    """
    combine = REDUCE[desc.signed].get(kind)
    if combine is None:
        raise ExecutionError(f"descriptor reductions of kind {kind} are unknown")
    _check_store(desc, coordinates)
    desc = _in_whole_pieces(desc)
    window = _window(desc, coordinates)
    view = _view(memory, desc, window)
    memory.note_view("changes", _address(desc, window), view)
    _assign(view, combine(view.clone(), tile.reshape(desc.block)[window.in_tile]))


def gather_rows(memory: GlobalMemory, desc: Descriptor, rows: torch.Tensor, column: int, width: int) -> torch.Tensor:
    """`width` elements from `column` on of each row of a matrix: (len(rows), width); zero or NaN outside of it."""
    out = raw(torch.full((rows.numel(), width), _fill(desc), dtype=desc.dtype))
    wanted, inside, span = _rows(desc, rows, column, width)
    if wanted.numel() and span.stop > span.start:
        matrix = memory.strided(desc.address, desc.shape, desc.strides, desc.dtype)
        first = column + span.start
        for row in wanted.tolist():
            memory.note_view("reads", *_row_of(desc, matrix, row, first, span))
        out[inside, span] = raw(matrix)[wanted, first : first + span.stop - span.start]
    return from_raw(out, desc.dtype)


def scatter_rows(memory: GlobalMemory, desc: Descriptor, rows: torch.Tensor, column: int, values: torch.Tensor) -> None:
    """Write (len(rows), width) values into rows of a matrix from `column` on; what lies outside is dropped."""
    wanted, inside, span = _rows(desc, rows, column, values.shape[-1])
    if wanted.numel() and span.stop > span.start:
        matrix = memory.strided(desc.address, desc.shape, desc.strides, desc.dtype)
        first = column + span.start
        for row in wanted.tolist():
            memory.note_view("writes", *_row_of(desc, matrix, row, first, span))
        raw(matrix)[wanted, first : first + span.stop - span.start] = raw(values)[inside, span]


def _row_of(desc: Descriptor, matrix: torch.Tensor, row: int, first: int, span: slice) -> tuple[int, torch.Tensor]:
    """The address of a part of a row, and that part."""
    offset = row * desc.strides[0] + first * desc.strides[1]
    part = matrix[row, first : first + span.stop - span.start]
    return desc.address + offset * desc.dtype.itemsize, part


def _check_start(desc: Descriptor, coordinates: Sequence[int]) -> None:
    """An H200 faults (illegal instruction) on blocks that do not start at a multiple of 16 bytes in their rows."""
    if coordinates and coordinates[-1] * desc.dtype.itemsize % _TMA_BYTES:
        where = f"{coordinates[-1]}, which is not a multiple of {_TMA_BYTES} bytes"
        raise ExecutionError(f"a block of a descriptor at column {where}")


def _check_store(desc: Descriptor, coordinates: Sequence[int]) -> None:
    """An H200 faults (illegal instruction) on stores at negative coordinates, which loads may have."""
    _check_start(desc, coordinates)
    if any(at < 0 for at in coordinates):
        raise ExecutionError(f"a block is stored at negative coordinates: {', '.join(map(str, coordinates))}")


def _in_whole_pieces(desc: Descriptor) -> Descriptor:
    """The descriptor as the copy engine writes by it: rows end at a multiple of 16 bytes."""
    end, item = desc.shape[-1], desc.dtype.itemsize
    whole = -(-end * item // _TMA_BYTES) * _TMA_BYTES // item
    return desc if whole == end else replace(desc, shape=(*desc.shape[:-1], whole))


def _rows(desc: Descriptor, rows: torch.Tensor, column: int, width: int) -> tuple[torch.Tensor, torch.Tensor, slice]:
    """(the rows that exist, where they stand in `rows`, which of the columns exist)."""
    if len(desc.shape) != 2:
        raise ExecutionError(f"rows are gathered from a matrix, not from {len(desc.shape)} dimensions")
    inside = ((rows >= 0) & (rows < desc.shape[0])).reshape(-1).nonzero().reshape(-1)
    start = max(0, -column)
    return rows.reshape(-1)[inside].long(), inside, slice(start, max(start, min(width, desc.shape[1] - column)))


# ------------------------------------------------------------------- blocks, wherever they start: no TMA


def load_block(memory: GlobalMemory, desc: Descriptor, coordinates: Sequence[int]) -> torch.Tensor:
    """`read_tile` without the hardware's rules."""
    window = _window(desc, coordinates)
    inside = raw(_view(memory, desc, window))
    memory.note_view("reads", _address(desc, window), inside)
    if inside.shape == desc.block:
        return from_raw(inside.clone(memory_format=torch.contiguous_format), desc.dtype)
    tile = raw(torch.full(desc.block, _fill(desc), dtype=desc.dtype))
    tile[window.in_tile] = inside
    return from_raw(tile, desc.dtype)


def store_block(memory: GlobalMemory, desc: Descriptor, coordinates: Sequence[int], tile: torch.Tensor) -> None:
    """`write_tile` without the hardware's rules; what lies before the start of a dimension is dropped too."""
    window = _window(desc, coordinates)
    view, values = _view(memory, desc, window), tile.reshape(desc.block)[window.in_tile]
    memory.note_view("writes", _address(desc, window), view, lambda: torch.equal(raw(view), raw(values)))
    _assign(view, values)


# ----------------------------------------------------------------------------------------------- windows


@dataclass(frozen=True, slots=True)
class _Window:
    """The part of a block that lies inside the tensor."""

    first: tuple[int, ...]  # in the tensor
    sizes: tuple[int, ...]
    in_tile: tuple[slice, ...]


def _window(desc: Descriptor, coordinates: Sequence[int]) -> _Window:
    if len(coordinates) != len(desc.block):
        raise ExecutionError(f"{len(coordinates)} coordinates for a descriptor of {len(desc.block)} dimensions")
    starts = [max(0, at) for at in coordinates]
    ends = [min(at + size, end) for at, size, end in zip(coordinates, desc.block, desc.shape, strict=True)]
    sizes = tuple(max(0, end - start) for start, end in zip(starts, ends, strict=True))
    places = [start - at for start, at in zip(starts, coordinates, strict=True)]
    in_tile = tuple(slice(place, place + size) for place, size in zip(places, sizes, strict=True))
    return _Window(tuple(starts), sizes, in_tile)


def _view(memory: GlobalMemory, desc: Descriptor, window: _Window) -> torch.Tensor:
    return memory.strided(_address(desc, window), window.sizes, desc.strides, desc.dtype)


def _address(desc: Descriptor, window: _Window) -> int:
    offset = sum(at * stride for at, stride in zip(window.first, desc.strides, strict=True))
    return desc.address + offset * desc.dtype.itemsize


def _assign(view: torch.Tensor, values: torch.Tensor) -> None:
    raw(view).copy_(raw(values))


def _fill(desc: Descriptor) -> float:
    return math.nan if desc.padding == "nan" and desc.dtype.is_floating_point else 0

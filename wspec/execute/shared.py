"""Shared memory of one program: buffers, views of them, and what is in them besides bytes.

Every element has a state beside its value: written, never written, about to be overwritten by a copy, and so on. What
is not there holds poison (NaN, or 0xAA in every byte of an integer), so that a program that is run without checks
shows it too. Layouts are ignored: a view is the tensor it stands for, whatever the swizzle. One exception follows from
that: the same bytes read as another shape or type (`ttg.memdesc_reinterpret`) are a buffer of its own, and writing
through one view makes the other unreadable where their bytes overlap.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import torch

from wspec.diagnostics import place_text
from wspec.execute.barrier import Barrier
from wspec.execute.effects import Effect
from wspec.execute.errors import ExecutionError
from wspec.ir.core import Operation, Value
from wspec.ir.loc import value_name

BARRIER_BYTES = 8
SWIZZLED_BYTES = 128  # of a row, at most (CUDA driver API, CU_TENSOR_MAP_SWIZZLE_128B)
WRITTEN, EMPTY, FLYING, LOST, FREED, TAKEN = range(6)
_STATES = {
    EMPTY: "has never been written",
    FLYING: "is being filled by a copy that need not be there yet",
    LOST: "was overwritten through another view of the same bytes",
    FREED: "was freed",
    TAKEN: "was overwritten by who has the same bytes for another buffer",
}


@dataclass(eq=False, slots=True)
class Buffer:
    """One allocation, or the same bytes under another type."""

    op: Operation  # that allocates it or gives it its type
    data: torch.Tensor
    state: torch.Tensor  # int8, one for each element of data
    base_bytes: int = 0  # of its first byte, in the allocation
    group: list[Buffer] = field(default_factory=list)  # all that may share bytes with it, itself included
    under: Buffer | None = None  # what it is another type of
    filling: list[tuple[View, Effect]] = field(default_factory=list)  # copies on their way
    readers: list[tuple[View, Effect]] = field(default_factory=list)  # dots and stores that may still read
    barriers: dict[int, Barrier] = field(default_factory=dict)  # by element

    @staticmethod
    def allocate(op: Operation, shape: tuple[int, ...], dtype: torch.dtype) -> Buffer:
        made = Buffer(op, torch.empty(shape, dtype=dtype), torch.empty(shape, dtype=torch.int8))
        made.group.append(made)
        made.forget(EMPTY)
        return made

    def forget(self, state: int) -> None:
        """Nothing is in it any more, for that reason."""
        fill_poison(self.data)
        self.state.fill_(state)

    def whole(self) -> View:
        return View(self, self.data)

    @property
    def allocation(self) -> Buffer:
        """Itself, or what it is another type of."""
        return self if self.under is None else self.under.allocation

    @property
    def cell_bytes(self) -> int:
        """What the swizzle keeps together: the last two dimensions of a buffer."""
        rows = self.data.shape[-2:]
        return math.prod(rows) * self.data.element_size()

    def lose(self, first: int, last: int, state: int) -> None:
        """Bytes [first, last) of the allocation were written through another type, or for another buffer."""
        size, cell = self.data.numel() * self.data.element_size(), self.cell_bytes
        first, last = max(first - self.base_bytes, 0), min(last - self.base_bytes, size)
        if first >= last:
            return
        touched = slice(first // cell, -(-last // cell))
        fill_poison(self.data.view(-1, *self.data.shape[-2:])[touched])
        self.state.view(-1, *self.state.shape[-2:])[touched].fill_(state)


class View:
    """A part of a buffer, or all of it, seen as a tensor."""

    __slots__ = ("buffer", "children", "data", "first", "last", "path", "state")

    def __init__(self, buffer: Buffer, data: torch.Tensor, path: str = "") -> None:
        self.buffer = buffer
        self.data = data
        self.state = buffer.state.as_strided(data.shape, data.stride(), data.storage_offset())
        self.path = path  # "[2]", for people
        self.children: dict[object, View] = {}  # views made of this one before, by the operation and what it says
        size = data.element_size()
        self.first = int(data.storage_offset()) * size  # bytes of the buffer that it spans: [first, last)
        reach = sum((n - 1) * stride for n, stride in zip(data.shape, data.stride(), strict=True))
        self.last = self.first + (reach + 1) * size

    def part(self, data: torch.Tensor, path: str = "") -> View:
        """The view of some of this one's elements."""
        return View(self.buffer, data, self.path + path)

    def under_type(self, op: Operation, shape: tuple[int, ...], dtype: torch.dtype) -> View:
        """The same bytes as another buffer. The shape may be smaller than these."""
        made = Buffer.allocate(op, shape, dtype)
        made.group, made.under = self.buffer.group, self.buffer
        made.group.append(made)
        made.base_bytes = self.buffer.base_bytes + self.first
        made.forget(LOST if bool((self.state == WRITTEN).any()) else EMPTY)
        return made.whole()

    @property
    def barrier_key(self) -> int:
        return int(self.data.storage_offset())

    @property
    def cells(self) -> tuple[int, int]:
        """Bytes of the allocation, in whole cells."""
        cell, base = self.buffer.cell_bytes, self.buffer.base_bytes
        return base + self.first // cell * cell, base + -(-self.last // cell) * cell

    def overlaps(self, other: View) -> bool:
        """Is there a byte in both? Under different types: a cell."""
        if self.buffer is not other.buffer:
            if self.buffer.group is not other.buffer.group:
                return False
            (first, last), (other_first, other_last) = self.cells, other.cells
            return first < other_last and other_first < last
        if self.first >= other.last or other.first >= self.last:
            return False
        return (self.is_dense and other.is_dense) or self._shares_element(other)

    def covers(self, other: View) -> bool:
        """Is every byte of the other one among its own, as far as can be told?"""
        if self.buffer.group is not other.buffer.group or not self.is_dense:
            return False
        start, its_start = self.buffer.base_bytes, other.buffer.base_bytes
        return start + self.first <= its_start + other.first and its_start + other.last <= start + self.last

    def without(self, other: View) -> list[View]:
        """What of it is left where the other is written over it: itself, where that cannot be told.

        Bytes of another buffer lie as this one's do only as far as rows are no wider than what is swizzled together.
        """
        if other.covers(self):
            return []
        size, base = self.data.element_size(), self.buffer.base_bytes
        row = other.data.shape[-1] * other.data.element_size() if other.data.ndim else 0
        alike = self.buffer is other.buffer or row <= SWIZZLED_BYTES
        if self.buffer.group is not other.buffer.group or not (self.is_dense and other.is_dense and alike):
            return [self]
        first, last = (other.buffer.base_bytes + at - base for at in (other.first, other.last))
        if first >= self.last or last <= self.first or first % size or last % size:
            return [self]
        parts = [(begin, end) for begin, end in ((self.first, first), (last, self.last)) if begin < end]
        whole = self.buffer.data
        return [View(self.buffer, whole.as_strided(((end - begin) // size,), (1,), begin // size), self.path)
                for begin, end in parts]  # fmt: skip

    @property
    def is_dense(self) -> bool:
        return self.data.numel() * self.data.element_size() == self.last - self.first

    def _shares_element(self, other: View) -> bool:
        marks = torch.zeros(self.buffer.data.numel(), dtype=torch.bool)
        mine, others = (
            marks.as_strided(data.shape, data.stride(), data.storage_offset()) for data in (self.data, other.data)
        )
        mine.fill_(True)
        return bool(others.any())

    # ---- contents

    def poison_state(self) -> int:
        """0 when every element was written; else why some element cannot be read."""
        return int(self.state.max()) if self.state.numel() else WRITTEN

    def put(self, tensor: torch.Tensor) -> None:
        """Write all of it; what other types of the same bytes held is lost. The shape may differ in dimensions of 1."""
        self.data.copy_(tensor if tensor.shape == self.data.shape else tensor.reshape(self.data.shape))
        self.state.zero_()
        self._lose_others()

    def await_copy(self) -> None:
        """A copy into it begins."""
        fill_poison(self.data)
        self.state.fill_(FLYING)
        self._lose_others()

    def claim(self) -> None:
        """The bytes are written by somebody who takes them for something else: what was in them is lost.

        Raises ExecutionError for those of a barrier that is in use.
        """
        self._lose_others()

    def _lose_others(self) -> None:
        buffer = self.buffer
        start = buffer.base_bytes
        for other in buffer.group:
            for key in other.barriers:
                at = other.base_bytes + key * BARRIER_BYTES
                if start + self.first < at + BARRIER_BYTES and at < start + self.last:
                    held = name_of(other.op.results[0]) or "a buffer"
                    raise ExecutionError(f"it overwrites a barrier that is in use, number {key} in {held}")
        if len(buffer.group) > 1:
            for other in buffer.group:
                if other is not buffer:
                    other.lose(*self.cells, LOST if other.allocation is buffer.allocation else TAKEN)

    def busy(self) -> tuple[str, Operation] | None:
        """Who may still fill or read some of it: (what it is doing, its operation)."""
        for buffer in self.buffer.group:
            for view, effect in buffer.filling:
                if view.overlaps(self):
                    return "a copy may still be filling it", effect.op
            for view, effect in buffer.readers:
                if view.overlaps(self):
                    return f"{effect.what} may still be reading it", effect.op
        return None

    def why_poison(self) -> tuple[str, Operation | None]:
        """Why it cannot be read, and the operation to blame."""
        state = self.poison_state()
        if state == FLYING:
            for view, effect in self.buffer.filling:
                if view.overlaps(self):
                    return _STATES[state], effect.op
        if state == EMPTY and bool((self.state == WRITTEN).any()):
            return f"in part {_STATES[state]}", None
        return _STATES[state], None


def fill_poison(tensor: torch.Tensor) -> None:
    """NaN, or 0xAA in every byte."""
    tensor.fill_(poison_of(tensor.dtype))


def poison_of(dtype: torch.dtype) -> float:
    """The value that stands for poison in tensors of that type."""
    if dtype.is_floating_point:
        return float("nan")
    if dtype is torch.bool:
        return True
    return int.from_bytes(b"\xaa" * dtype.itemsize, "little", signed=dtype.is_signed)


def name_of(value: Value) -> str:
    """What the source calls it; "" when it does not."""
    return value_name(value.op.location if value.op is not None else value.location) or ""


def describe(value: Value, view: View) -> str:
    """A buffer for people: `k[1] (128x64xbf16 of the buffer at attention.py:42)`."""
    name = name_of(value) or name_of(view.buffer.op.results[0]) or "a buffer"
    shape = "x".join(map(str, view.data.shape))
    where = place_text(view.buffer.op.location)
    kind = str(view.data.dtype).removeprefix("torch.")
    return f"{name}{view.path} ({shape} {kind}{f' of the buffer at {where}' if where else ''})"

"""Tensor maps without Triton: encoded by the driver, or written, once it was learned from it what stands where.

How a map is laid out is nobody's promise. So maps that differ in one bit of one size or stride are compared. If each
bit of a size less one, and of a stride in units of 16 bytes, is one bit of the map that nothing else changes, a map is
these bits put together. That is compared with the driver's own maps of random numbers before it is relied on.
"""

from __future__ import annotations

import ctypes
import random
import struct
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from wspec.bridge import cuda
from wspec.bridge.cuda import MAP_ALIGNMENT, MAP_BYTES

_PROMOTE_128 = 2  # CU_TENSOR_MAP_L2_PROMOTION_L2_128B
_UNIT = 16  # bytes that divide a stride
MOST_STRIDE = 1 << 40  # bytes
_SIZE_BITS, _STRIDE_BITS = 31, 32  # of what is written: sizes are int32 beside the map, longer strides are seldom
_COMPARED = 64  # maps of random numbers


class Unlike(Exception):
    """An argument, or something of Triton's, is not what is expected: its own launcher knows what to do."""


def legal_strides(shape: Sequence[int], strides: Sequence[int], size: int) -> list[int] | None:
    """As a tensor map takes them, of elements of that many bytes; None where it cannot.

    The stride of a dimension of length 1 is never used, yet the hardware checks it, so it is replaced by a legal one.
    """
    unit, most = _UNIT // size, MOST_STRIDE // size
    found = [*strides]
    last = found.pop()
    if last != 1 and shape[-1] > 1:
        return None
    for dim, stride in enumerate(found):
        if shape[dim] <= 1:
            found[dim] = unit
        elif not 0 < stride < most or stride % unit:
            return None
    found.append(1)
    return found


class TensorMaps:
    """Encodes tensor maps that agree in all but the tensor (cuTensorMapEncodeTiled), as Triton's launcher does."""

    def __init__(self, kind: int, size: int, box: Sequence[int], swizzle: int) -> None:
        """`kind`: CUtensorMapDataType; `size`: bytes of an element. Raises OSError or AttributeError without CUDA."""
        self.size, self.rank = size, len(box)
        rank = self.rank
        names = [f"n{dim}" for dim in range(rank)], [f"s{dim}" for dim in range(rank)]
        turned = [*names[0][::-1], *(f"s{dim} * {size}" for dim in reversed(range(rank - 1)))]  # the driver's, in bytes
        memory = ctypes.create_string_buffer(MAP_BYTES + MAP_ALIGNMENT)
        start = ctypes.addressof(memory)
        at = -start % MAP_ALIGNMENT
        sizes, there = (ctypes.c_uint64 * (2 * rank))(), ctypes.c_void_p()  # strides lie behind sizes
        given = (
            ctypes.c_void_p(start + at), ctypes.c_int(kind), ctypes.c_uint32(rank), there,
            sizes, ctypes.c_void_p(ctypes.addressof(sizes) + 8 * rank), (ctypes.c_uint32 * rank)(*box[::-1]),
            (ctypes.c_uint32 * rank)(*[1] * rank), ctypes.c_int(0), ctypes.c_int(swizzle), ctypes.c_int(_PROMOTE_128),
            ctypes.c_int(0),
        )  # fmt: skip
        space: dict[str, Any] = {
            "call": cuda.encode_call(), "given": given, "sizes": sizes, "there": there,
            "pack": struct.Struct(f"<{2 * rank - 1}Q").pack_into, "memory": memory, "found": slice(at, at + MAP_BYTES),
            "lock": threading.Lock(),
        }  # fmt: skip
        source = _ENCODE.format(numbers=", ".join(names[0] + names[1]), turned=", ".join(turned))
        exec(compile(source, "<wspec tensor map>", "exec"), space)
        self.encode: Callable[..., bytes | None] = space["encode"]
        """The map of a tensor at an address, of its sizes and strides, the last of which is 1, all one by one; None if
        the driver refuses."""

    def at(self, address: int) -> Layout | None:
        """How maps of tensors at the address are laid out beside that, where that could be learned."""
        try:
            fields = _fields(self, address)
            ones = self._encoded(address, [0] * self.rank + [1] * (self.rank - 1))
            found = Layout(self.size, self.rank, _without(ones, fields, self.rank), fields)
            return found if self._is_right(found, address) else None
        except _NotSo:
            return None

    def _encoded(self, address: int, numbers: Sequence[int]) -> int:
        """Of sizes less one, and of strides in units."""
        unit, rank = _UNIT // self.size, self.rank
        found = self.encode(address, *[one + 1 for one in numbers[:rank]], *[one * unit for one in numbers[rank:]], 1)
        if found is None:
            raise _NotSo
        return int.from_bytes(found, "little")

    def _is_right(self, found: Layout, address: int) -> bool:
        """Of random sizes and strides, half of them all round?"""
        draw, rank = random.Random(0), self.rank
        bits = [_SIZE_BITS] * rank + [_STRIDE_BITS] * (rank - 1)
        for at in range(_COMPARED):
            drawn = [draw.getrandbits(draw.randint(1, most)) for most in bits]
            if at % 2:
                unit = 1 << draw.randint(2, 10)
                drawn = [max(one - one % unit, unit) for one in drawn]
            numbers = [max(one, 1) - (which < rank) for which, one in enumerate(drawn)]
            if found.of(address, numbers) != self._encoded(address, numbers):
                return False
        return True


_ENCODE = """
def encode(address, {numbers}):
    with lock:
        pack(sizes, 0, {turned})
        there.value = address
        status = call(*given)
        return None if status else memory[found]
"""


class _NotSo(Exception):
    """A map is not laid out as simply as that."""


@dataclass(frozen=True, slots=True)
class _Field:
    """Bits of a size less one, or of a stride in units, and where in a map they stand."""

    source: int  # which of sizes and strides
    low: int
    bits: int
    place: int

    @property
    def mask(self) -> int:
        return (1 << self.bits) - 1


@dataclass(frozen=True, slots=True)
class Layout:
    """Of the maps of one type: what is always there but for the address, and where sizes and strides stand."""

    size: int  # bytes of an element
    rank: int
    constant: int
    fields: tuple[_Field, ...]

    def of(self, address: int, numbers: Sequence[int]) -> int:
        """The map of sizes less one and strides in units, as a number."""
        found = self.constant | address
        for one in self.fields:
            found |= (numbers[one.source] >> one.low & one.mask) << one.place
        return found


def _without(ones: int, fields: Sequence[_Field], rank: int) -> int:
    """What is left of a map of strides of one unit, at address 0."""
    for one in fields:
        if one.source >= rank and one.low == 0:
            ones &= ~(1 << one.place)
    return ones >> 64 << 64


_known: dict[tuple[int, int], tuple[_Field, ...]] = {}
"""By the number of dimensions and the bytes of an element."""


def _fields(maps: TensorMaps, address: int) -> tuple[_Field, ...]:
    """Where sizes and strides stand. Raises _NotSo."""
    key = (maps.rank, maps.size)
    if key not in _known:
        _known[key] = tuple(_joined(list(_bits(maps, address))))
    return _known[key]


def _bits(maps: TensorMaps, address: int) -> Iterator[_Field]:
    """Each bit by itself."""
    rank, taken = maps.rank, (1 << 64) - 1  # by the address
    start = [0] * rank + [2] * (rank - 1)
    least = maps._encoded(address, start)
    for source in range(2 * rank - 1):
        for bit in range(_SIZE_BITS if source < rank else _STRIDE_BITS):
            numbers = [*start]
            numbers[source] ^= 1 << bit
            before = least
            if source >= rank and bit == 1:  # a stride is not 0
                numbers[source], before = 3, maps._encoded(address, [*start[:source], 1, *start[source + 1 :]])
            change = maps._encoded(address, numbers) ^ before
            place = change.bit_length() - 1
            if change.bit_count() != 1 or taken >> place & 1:
                raise _NotSo
            taken |= change
            yield _Field(source, bit, 1, place)


def _joined(bits: Sequence[_Field]) -> list[_Field]:
    """Neighbours that stay neighbours in one word, together."""
    found: list[_Field] = []
    for one in bits:
        last = found[-1] if found else None
        if last and last.source == one.source and last.place + last.bits == one.place and one.place % 64:
            found[-1] = _Field(last.source, last.low, last.bits + 1, last.place)
        else:
            found.append(one)
    return found

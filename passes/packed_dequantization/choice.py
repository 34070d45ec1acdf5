"""Tiles of floats that are a few bits of a byte: which operations compute one, and what it takes four bytes at a time.

    (q & 15).to(bf16) - 8        ((q << 4) >> 4).to(bf16)        ((q >> 4) & 15).to(bf16)

Triton computes such a tile element by element: each shift and mask of a byte is an instruction, as is putting four of
them into the register from which they are converted. A register holds four bytes as they come from memory. There a
shift and a mask serve four elements, a permutation puts two of them into the low bits of two floats whose exponent
makes that bit worth one, and a subtraction of two floats at a time takes off what the exponent added:

    byte        b                       f = ((b >> shift) & mask) ^ flip
    bfloat16    0x4300 | f = 128 + f    at most 7 bits
    float16     0x6400 | f = 1024 + f   at most 8 bits

A whole signed byte as a bfloat16 has a bit too many. Its lower seven bits make 128 + f, its sign makes 128 or 256, and
the difference of the two is the number. That is what Triton does itself, but on four bytes at a time, where a thread
that holds the operand of a product has them in pairs. Two at a time need no packing first.

What is found is not a pattern of operations but their meaning: they are evaluated for all 256 bytes, and must be whole
numbers f + offset for one shift, mask, flip and offset, each step exact in the float's type. So nothing is rounded, by
them or by the packed form.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from wspec.ir.core import Operation, Value
from wspec.ir.numbering import id_of
from wspec.ir.types import DenseAttr, Layout, ScalarType, TensorType, Type
from wspec.model.machine import Machine
from wspec.model.operations import Iteration, cost, elements

THREADS = 32  # of a warp


@dataclass(frozen=True, slots=True)
class Format:
    """A float type: `magic` is its upper byte where the lowest bit is worth 1, of `value`; integers are exact to
    `exact`."""

    name: str
    magic: int
    value: int
    width: int  # bits that a field may have
    exact: int


FORMATS = {"bf16": Format("bf16", 0x43, 128, 7, 256), "f16": Format("f16", 0x64, 1024, 8, 2048)}


@dataclass(frozen=True, slots=True)
class Field:
    """((byte >> shift) & (2^width - 1)) ^ flip, plus offset, as a number of `format`."""

    format: str
    shift: int
    width: int
    flip: int
    offset: int

    def of(self, byte: int) -> int:
        """What becomes of the byte, from 0 to 255."""
        return (((byte >> self.shift) & ((1 << self.width) - 1)) ^ self.flip) + self.offset

    @property
    def subtracted(self) -> int:
        """The bits of what is taken off, twice in a register."""
        number = float(FORMATS[self.format].value - self.offset)
        if self.format == "f16":
            bits = struct.unpack("<H", struct.pack("<e", number))[0]
        else:
            bits = struct.unpack("<I", struct.pack("<f", number))[0] >> 16
        return int(bits) * 0x10001

    @property
    def pack(self) -> int:
        """Bytes that are taken at a time."""
        return 2 if self.is_signed_byte else 4

    @property
    def is_signed_byte(self) -> bool:
        return self == Field("bf16", 0, 8, 0x80, -128)

    @property
    def masks(self) -> bool:
        """Does anything but the field stay in a byte when it is shifted, or is a bit of it turned?"""
        return self.width < 8 or self.flip != 0

    @property
    def instructions(self) -> int:
        """For `pack` elements: a shift, a mask, two permutations, two subtractions; or, of a signed byte, a
        permutation, two masks and a subtraction."""
        return 4 if self.is_signed_byte else (self.shift > 0) + self.masks + 4


@dataclass(frozen=True, slots=True)
class Packed:
    """A tile of floats, `result`, that is a field of the bytes of `source`; `ops` compute it, in order."""

    source: Value
    result: Operation
    ops: tuple[Operation, ...]
    field: Field


def find_packed(ops: Iterable[Operation], warps: int) -> list[Packed]:
    """The tiles among `ops` that can be computed several bytes at a time.

    `warps`: of the task; each thread must hold whole registers of bytes.
    """
    listed = list(ops)
    users: dict[Value, list[Operation]] = {}
    for op in listed:
        for value in op.operands:
            users.setdefault(value, []).append(op)
    found = (_packed(op, users) for op in listed if op.name in _CONVERSIONS)
    return [one for one in found if one is not None and _whole(one, warps)]


def _whole(packed: Packed, warps: int) -> bool:
    """Does each thread hold whole registers of bytes, and a signed byte's neighbour but no more of them?"""
    type = packed.source.type
    if packed.field.is_signed_byte and not _in_pairs(type):
        return False
    return elements(type) % (THREADS * warps * packed.field.pack) == 0


def _in_pairs(type: Type) -> bool:
    layout = type.encoding if isinstance(type, TensorType) else None
    return isinstance(layout, Layout) and layout.name == "ttg.dot_op" and str(layout.get("kWidth")) == "2"


def packed_tiles(function: Operation, warps: int) -> tuple[int, ...]:
    """The numbers of the operations whose results are computed several bytes at a time."""
    return tuple(id_of(one.result) for one in find_packed(function.walk(), warps))


def with_packed(work: Iteration, loop: Operation | None, machine: Machine) -> Iteration:
    """An iteration's work when the tiles of a loop that can be are computed several bytes at a time."""
    if loop is None:
        return work
    saved = 0.0
    for packed in find_packed(loop.walk(), 1):
        taken = elements(packed.source.type) * packed.field.instructions / packed.field.pack / machine.fma
        saved += max(0.0, sum(cost(op, machine).busy_cycles for op in packed.ops) - taken)
    return replace(work, fma=work.fma - saved)


# ------------------------------------------------------------------------------------- what operations compute

Step = Callable[[int], int | None]  # what an operation makes of a number; None: nothing that is known here

_INTEGER: dict[str, Callable[[int, int], int | None]] = {
    "arith.andi": lambda a, b: a & b,
    "arith.ori": lambda a, b: a | b,
    "arith.xori": lambda a, b: a ^ b,
    "arith.shli": lambda a, b: a << b if 0 <= b < 8 else None,
    "arith.shrui": lambda a, b: (a & 0xFF) >> b if 0 <= b < 8 else None,
    "arith.shrsi": lambda a, b: a >> b if 0 <= b < 8 else None,
}
_CONVERSIONS = frozenset(("arith.sitofp", "arith.uitofp"))


def _packed(conversion: Operation, users: dict[Value, list[Operation]]) -> Packed | None:
    source, type = conversion.operands[0], conversion.result.type
    if not _of(source.type, "i8") or not isinstance(type, TensorType) or not isinstance(type.element, ScalarType):
        return None
    format = FORMATS.get(type.element.name)
    if format is None:
        return None
    ops, steps = [conversion], [_converted(conversion)]
    while (op := source.op) is not None and (step := _integer(op)) is not None:
        ops.insert(0, op)
        steps.insert(0, step)
        source = op.operands[0]
    while len(after := users.get(ops[-1].result, [])) == 1 and (step := _shifted(after[0], ops[-1].result)) is not None:
        ops.append(after[0])
        steps.append(step)
    at = ops.index(conversion)
    while len(ops) > at:  # what follows the conversion may leave the whole numbers
        table = _table(steps, at, format)
        field = _field(table, format) if table is not None else None
        if field is not None:
            return Packed(source, ops[-1], tuple(ops), field)
        ops.pop(), steps.pop()
    return None


def _of(type: Type, name: str) -> bool:
    return isinstance(type, TensorType) and type.element == ScalarType(name)


def _integer(op: Operation) -> Step | None:
    """An operation on bytes and a constant; the tile is its first operand."""
    compute = _INTEGER.get(op.name)
    if compute is None or not _of(op.result.type, "i8") or (number := op.operands[1].splat) is None:
        return None  # Triton puts constants second

    def step(value: int) -> int | None:
        made = compute(value, number)
        return None if made is None else (made & 0xFF) - (made & 0x80) * 2

    return step


def _converted(op: Operation) -> Step:
    return (lambda value: value) if op.name == "arith.sitofp" else (lambda value: value & 0xFF)


def _shifted(op: Operation, value: Value) -> Step | None:
    """A whole number added to or taken off a float."""
    if op.name not in ("arith.addf", "arith.subf") or op.operands[0] is not value:
        return None
    made = op.operands[1].op
    constant = made.attr("value") if made is not None and made.name == "arith.constant" else None
    try:
        number = float(constant.text) if isinstance(constant, DenseAttr) else math.nan
    except ValueError:
        return None
    if not number.is_integer():
        return None
    offset = int(number) if op.name == "arith.addf" else -int(number)
    return lambda before: before + offset


def _table(steps: list[Step], floats: int, format: Format) -> list[int] | None:
    """What becomes of each byte; None where a float on the way, from step `floats` on, need not be exact."""
    table = []
    for byte in range(256):
        value: int | None = byte - (byte & 0x80) * 2
        for at, step in enumerate(steps):
            value = step(value) if value is not None else None
            if value is None or (at >= floats and abs(value) > format.exact):
                return None
        assert value is not None
        table.append(value)
    return table


def _field(table: list[int], format: Format) -> Field | None:
    """The bits of the byte that make the table, if some do."""
    signed = Field(format.name, 0, 8, 0x80, -128)
    if signed.is_signed_byte and all(signed.of(byte) == value for byte, value in enumerate(table)):
        return signed
    for shift in range(8):
        for width in range(1, min(8 - shift, format.width) + 1):
            for flip in (0, 1 << (width - 1)):
                field = Field(format.name, shift, width, flip, table[0] - flip)
                if abs(format.value - field.offset) <= format.exact and all(
                    field.of(byte) == value for byte, value in enumerate(table)
                ):
                    return field
    return None

"""Launches of a kernel whose numbers are drawn: such as its TTGIR may tell apart.

LLVM writes a quotient by a constant as a product with a magic number, which may be wrong at multiples of the constant
alone and beside them, or for large numbers alone. So numbers are drawn there too. And sizes that loops and branches
hang on are nothing now and then, one after the other, as that leads to what nothing else leads to.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Mapping

from wspec.bridge.ptx.scalars import DIVISIONS, bits_of
from wspec.bridge.ptx.tiles import constant_of
from wspec.ir import warp_specialize as ws
from wspec.ir.core import Block, Operation, Value
from wspec.ir.types import I1, ArrayAttr, DictAttr, IntegerAttr, PointerType, ScalarType
from wspec.ptx.drawn_launch import MIXED, SMALL, Launch, base_of
from wspec.ptx.fixed_points import all_from

FEWEST = 2  # launches, of any numbers
_FOR_DIVISIONS = 6  # of a kernel that divides by a constant that is no power of two

_SIZES = ((1, 200), (200, 1200), (1, 3000))
"""From where to where sizes and strides are drawn, from launch to launch."""

_NOTHING = 3
"""Of so many sizes one is nothing, once each has been so by itself."""

_BLOCKS = (8, 4, 4)  # at most, along each axis
_HANGS = {"scf.for": 3, "scf.if": 1}  # so many operands say how often the regions run


class Draws:
    """Of a function."""

    def __init__(self, function: Operation) -> None:
        self._arguments = list(_arguments(function))
        self._divisors = tuple(sorted(_divisors(function)))
        self._decide = sorted(_deciding(function))
        self._magic = _magic(self._divisors)
        self.fewest = _FOR_DIVISIONS if self._magic else FEWEST
        """Launches that show the most of what may be wrong."""

    def launch(self, number: int) -> Launch:
        """The launch of this number."""
        draw = random.Random(number)
        low, high = _SIZES[number % len(_SIZES)]
        divisors = self._divisors if number >= FEWEST else ()
        nothing = self._nothing(number - FEWEST, draw)
        arguments: list[int | None] = []
        sizes: dict[int, int] = {}
        for at, (arg, divisor) in enumerate(self._arguments):
            kind = arg.type
            if isinstance(kind, PointerType):
                arguments.append(base_of(at) + (draw.randrange(1 << 20) << 8))
                sizes[at] = max(kind.pointee.bits // 8, 1) if isinstance(kind.pointee, ScalarType) else 8
            elif isinstance(kind, ScalarType) and not kind.is_float:
                found = _near(draw.randint(low, high), divisors, draw)
                found = 0 if at in nothing else max(found // divisor, 1) * divisor
                arguments.append(found & (1 << kind.bits) - 1)
            else:
                arguments.append(None)
        counts = [draw.randint(1, most) for most in _BLOCKS]
        x, y, z = (draw.randrange(count) for count in counts)
        if self._magic and number >= FEWEST and number % 2:
            x = max(_near(draw.randrange(_BLOCKS[0] * self._magic[-1]), self._magic, draw), 0)
            counts[0] = max(counts[0], x + 1)
        seed, largest = draw.getrandbits(62), MIXED if number % len(_SIZES) else SMALL  # all are small at a time
        return Launch(seed, arguments, sizes, (x, y, z), (counts[0], counts[1], counts[2]), largest, divisors)

    def _nothing(self, number: int, draw: random.Random) -> set[int]:
        """The arguments that are nothing, of those that something hangs on."""
        if number < 0 or not self._decide:
            return set()
        if number < len(self._decide):
            return {self._decide[number]}
        return {at for at in self._decide if not draw.randrange(_NOTHING)}


def divides(function: Operation) -> bool:
    """By a constant that is no power of two, and with nothing else that LLVM may write as half a product?"""
    return bool(_magic(_divisors(function))) and all(op.name != "tt.mulhiui" for op in function.walk())


def _magic(divisors: Iterable[int]) -> tuple[int, ...]:
    """Those that are no powers of two."""
    return tuple(one for one in divisors if one & one - 1)


def _near(number: int, divisors: tuple[int, ...], draw: random.Random) -> int:
    """A multiple of one of these, one less or one more, for half of all numbers."""
    if not divisors or draw.getrandbits(1):
        return number
    divisor = draw.choice(divisors)
    return number // divisor * divisor + draw.randint(-1, 1)


def _arguments(function: Operation) -> Iterator[tuple[Value, int]]:
    """With what each is a multiple of."""
    attributes = function.attr("arg_attrs")
    each = attributes.items if isinstance(attributes, ArrayAttr) else ()
    for number, arg in enumerate(function.regions[0].block.args):
        entry = each[number] if number < len(each) else None
        found = dict(entry.items).get("tt.divisibility") if isinstance(entry, DictAttr) else None
        yield arg, found.value if isinstance(found, IntegerAttr) else 1


def _source(value: Value, captured: Mapping[Value, Value]) -> Value | None:
    """What a task's argument, or all elements of a tensor, are; None of anything else."""
    if value in captured:
        return captured[value]
    return value.op.operands[0] if value.op is not None and value.op.name == "tt.splat" else None


def _divisors(function: Operation) -> set[int]:
    """The constants that something is divided by."""
    captured, found = _captured(function), set[int]()
    for op in function.walk():
        if op.name in DIVISIONS:
            by = op.operands[1]
            while (source := _source(by, captured)) is not None:
                by = source
            value = constant_of(by.op) if by.op is not None and by.op.name == "arith.constant" else None
            found |= {value} if value is not None and 1 < value < 1 << bits_of(by.type) - 1 else set()
    return found


def _captured(function: Operation) -> dict[Value, Value]:
    """What the arguments of partitions stand for."""
    regions = [op for op in function.walk() if op.name == ws.NAME]
    pairs = ((block.args, op.operands) for op in regions for block in ws.partition_blocks(op))
    return {arg: value for args, operands in pairs for arg, value in zip(args, operands, strict=True)}


def _deciding(function: Operation) -> set[int]:
    """The arguments, by number, that loops, branches and predicates hang on. What is loaded hangs on none."""
    captured = _captured(function)
    work: list[Value] = []
    for op in function.walk():
        work += op.operands[: _HANGS.get(op.name, 0)]
        if op.name == "scf.while":
            work.append(op.regions[0].block.terminator.operands[0])
        work += (one for one in op.operands if one.type == I1)

    def sources(value: Value) -> Iterator[Value]:
        if value in captured:
            return _integers((captured[value],))
        op = value.owner.parent_op if isinstance(value.owner, Block) else value.owner
        return _integers(() if op is None or op is function or op.name == "tt.load" else _carried(op))

    found = all_from(_integers(work), sources)
    return {arg.index for arg in function.regions[0].block.args if arg in found}


def _integers(values: Iterable[Value]) -> Iterator[Value]:
    return (value for value in values if isinstance(value.type, ScalarType) and not value.type.is_float)


def _carried(op: Operation) -> list[Value]:
    """What results and arguments of blocks are made of."""
    inside = [block.terminator for region in op.regions for block in region.blocks if block.ops]
    return [*op.operands, *(value for one in inside for value in one.operands)]

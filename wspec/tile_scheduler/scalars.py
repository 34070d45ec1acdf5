"""Integers of a launch that are known before it runs: constants, arguments, program ids, arithmetic on them.

`Slice` takes them out of a function; `evaluate` computes them for all program ids at once.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from wspec.ir.core import Block, Operation, Value
from wspec.ir.types import ScalarType
from wspec.tile_scheduler.integers import BINARY, PREDICATES, Array, compared, unsigned, wrapped, wrapped_int

# Without operands; `value` is the number, the argument's position, the axis.
_LEAVES = ("constant", "argument", "program_id", "num_programs")
_CASTS = {
    "arith.extsi": "cast",
    "arith.trunci": "cast",
    "arith.index_cast": "cast",
    "arith.extui": "cast_unsigned",
    "arith.index_castui": "cast_unsigned",
}
_NUMBERED = {  # operation -> (scalar, the attribute that becomes its value)
    "arith.constant": ("constant", "value"),
    "arith.cmpi": ("cmpi", "predicate"),
    "tt.get_program_id": ("program_id", "axis"),
    "tt.get_num_programs": ("num_programs", "axis"),
}
_ARITY = {
    **dict.fromkeys(_LEAVES, 0),
    **dict.fromkeys(BINARY, 2),
    "cmpi": 2,  # `value` is the predicate
    "select": 3,
    "cast": 1,
    "cast_unsigned": 1,
}
_INTEGER = re.compile(r"i([1-9]\d?)|index")


class Unknown(Exception):
    """A value that is not known before the launch runs; the text says what it depends on."""


@dataclass(frozen=True, slots=True)
class Scalar:
    """An integer of `bits` bits, computed from those at the positions `operands` of the same list, all before it."""

    name: str
    bits: int
    operands: tuple[int, ...] = ()
    value: int = 0

    def problem(self, position: int) -> str | None:
        """Why the scalar cannot stand at that position; None if it can."""
        if self.name not in _ARITY:
            return f"unknown operation {self.name!r:.40}"
        if not 1 <= self.bits <= 64:
            return f"{self.bits} bits"
        if len(self.operands) != _ARITY[self.name]:
            return f"{len(self.operands)} operands"
        if any(not 0 <= at < position for at in self.operands):
            return "an operand that does not come before it"
        if not self._is_value_allowed():
            return f"value {self.value}"
        return None

    def _is_value_allowed(self) -> bool:
        match self.name:
            case "constant":
                return wrapped_int(self.value, self.bits) == self.value
            case "argument":
                return self.value >= 0
            case "program_id" | "num_programs":
                return 0 <= self.value < 3
            case "cmpi":
                return 0 <= self.value < PREDICATES
        return self.value == 0


class Slice:
    """The scalars that values of a function come from."""

    def __init__(self, function: Operation) -> None:
        self.scalars: list[Scalar] = []
        self._entry = function.regions[0].blocks[0]
        self._positions: dict[Scalar, int] = {}
        self._of: dict[Value, int] = {}

    def position(self, value: Value) -> int:
        """Where in `scalars` the value stands, put there with all it comes from. Raises Unknown."""
        work = [value]
        while work:
            top = work[-1]
            sources = self._sources(top) if top not in self._of else []
            missing = [source for source in sources if source not in self._of]
            if missing:
                work += missing
                continue
            work.pop()
            if top not in self._of:
                self._of[top] = self._put(self._scalar(top, tuple(self._of[source] for source in sources)))
        return self._of[value]

    def _put(self, scalar: Scalar) -> int:
        """Where the scalar stands, added if it is new."""
        found = self._positions.setdefault(scalar, len(self.scalars))
        self.scalars += [scalar] if found == len(self.scalars) else []
        return found

    def kept(self, used: Iterable[int]) -> tuple[tuple[Scalar, ...], dict[int, int]]:
        """The scalars that those at the positions `used` take, and where each has moved to."""
        needed = set(used)
        for at in range(len(self.scalars) - 1, -1, -1):
            if at in needed:
                needed.update(self.scalars[at].operands)
        moved = {at: index for index, at in enumerate(sorted(needed))}
        kept = [self.scalars[at] for at in sorted(needed)]
        return tuple(Scalar(s.name, s.bits, tuple(moved[at] for at in s.operands), s.value) for s in kept), moved

    def _sources(self, value: Value) -> list[Value]:
        """What the value is computed from. Raises Unknown."""
        op = value.op
        if op is None:
            if value.owner is not self._entry:
                raise Unknown(_of_block(value))
            return []
        if op.name == "scf.if" and [len(region.blocks) for region in op.regions] == [1, 1]:
            return [op.operands[0], *(region.block.terminator.operands[value.index] for region in op.regions)]
        if _kind(op) is None:
            raise Unknown(f"it depends on {op.name}")
        return list(op.operands)

    def _scalar(self, value: Value, operands: tuple[int, ...]) -> Scalar:
        """Raises Unknown for what is no integer."""
        match = _INTEGER.fullmatch(value.type.name) if isinstance(value.type, ScalarType) else None
        bits = int(match.group(1) or 64) if match else 0
        if not 1 <= bits <= 64:
            what = "an argument" if value.op is None else value.op.name
            raise Unknown(f"it depends on {what} of type {value.type}")
        if value.op is None:
            return Scalar("argument", bits, (), value.index)
        name, number = ("select", 0) if value.op.name == "scf.if" else _kind(value.op) or ("", 0)
        return Scalar(name, bits, operands, wrapped_int(number, bits) if name == "constant" else number)


def _kind(op: Operation) -> tuple[str, int] | None:
    """(name, value) of the scalar that an operation without regions computes; None when there is none."""
    name = op.name.removeprefix("arith.")
    if op.name.startswith("arith.") and (name in BINARY or name == "select"):
        return name, 0
    if op.name in _CASTS:
        return _CASTS[op.name], 0
    if op.name not in _NUMBERED:
        return None
    name, attribute = _NUMBERED[op.name]
    number = op.int_attr(attribute)
    return None if number is None else (name, number)


def _of_block(value: Value) -> str:
    around = value.owner.parent_op if isinstance(value.owner, Block) else None
    if around is not None and around.name == "scf.for":
        return "it depends on " + ("the counter of a loop" if value.index == 0 else "a value carried around a loop")
    return "it depends on an argument of a block"


def parameters_of(scalars: Sequence[Scalar]) -> tuple[int, ...]:
    """The positions of the function's arguments whose values are needed, ascending."""
    return tuple(sorted({scalar.value for scalar in scalars if scalar.name == "argument"}))


def evaluate(scalars: Sequence[Scalar], grid: tuple[int, int, int], values: Mapping[int, int]) -> list[Array]:
    """The scalars for every program id, as arrays [gz, gy, gx] or of size 1 where nothing depends on the dimension."""
    arrays: list[Array] = []
    with np.errstate(all="ignore"):
        for scalar in scalars:
            arrays.append(_value(scalar, scalars, arrays, grid, values))
    return arrays


def _value(
    scalar: Scalar,
    scalars: Sequence[Scalar],
    arrays: list[Array],
    grid: tuple[int, int, int],
    values: Mapping[int, int],
) -> Array:
    a = [arrays[at] for at in scalar.operands]
    bits = scalar.bits
    match scalar.name:
        case "constant":
            return _single(scalar.value)
        case "argument":
            return _single(wrapped_int(int(values[scalar.value]), bits))
        case "program_id":
            shape = [1, 1, 1]
            shape[2 - scalar.value] = grid[scalar.value]
            return wrapped(np.arange(grid[scalar.value], dtype=np.int64).reshape(shape), bits)
        case "num_programs":
            return _single(wrapped_int(grid[scalar.value], bits))
        case "cmpi":
            return wrapped(compared(scalar.value, a[0], a[1], scalars[scalar.operands[0]].bits), bits)
        case "select":
            return wrapped(np.where(a[0] != 0, a[1], a[2]), bits)
        case "cast":
            return wrapped(a[0], bits)
        case "cast_unsigned":
            return wrapped(unsigned(a[0], scalars[scalar.operands[0]].bits).view(np.int64), bits)
    return wrapped(BINARY[scalar.name](a[0], a[1], bits), bits)


def _single(number: int) -> Array:
    return np.full((1, 1, 1), number, np.int64)

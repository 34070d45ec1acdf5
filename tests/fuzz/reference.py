"""What a program computes, by going through it: the opinion that no compiler had a hand in.

Numbers are `bounded.Bounded`: float64 next to the error that float32 may make. Programs of the grid run one after the
other, which is right because no two of them touch the same memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np

from tests.fuzz import bounded as nb
from tests.fuzz.bounded import Array, Bounded
from tests.fuzz.program import (
    FLOATS,
    INTEGERS,
    Arange,
    Assign,
    Bin,
    Cast,
    Dot,
    Expand,
    Expr,
    For,
    Full,
    If,
    Lit,
    Pid,
    Program,
    ProgramError,
    Programs,
    PtrLoad,
    PtrStore,
    Reduce,
    Stmt,
    TileLoad,
    TileStore,
    Trans,
    Un,
    Var,
    Where,
)

Environment = dict[str, Bounded]


class Unsure(Exception):
    """Rounding decides which way the program goes: there is nothing to compare with."""


@dataclass(slots=True)
class Memory:
    """A tensor as the reference sees it: numbers, errors, and which elements were written."""

    value: Array
    error: Array
    written: np.ndarray[tuple[int, ...], np.dtype[np.bool_]]

    @staticmethod
    def of(value: Array) -> Memory:
        value = np.array(value, dtype=np.float64)
        return Memory(value, np.zeros_like(value), np.zeros(value.shape, dtype=bool))


@dataclass(frozen=True, slots=True)
class Launch:
    """Numbers of a launch: the grid and every knob's value."""

    grid: tuple[int, ...]
    knobs: Mapping[str, int]


def run(program: Program, launch: Launch, tensors: Mapping[str, Array]) -> dict[str, Memory]:
    """The memory of every tensor after the launch.

    `tensors` holds each one's numbers before it. Raises Unsure, and ProgramError for a program that means nothing.
    """
    memory = {name: Memory.of(value) for name, value in tensors.items()}
    scalars = {scalar.name: nb.exact(_scalar(scalar.value(launch.knobs))) for scalar in program.scalars}
    for place in np.ndindex(*launch.grid):
        _Thread(program, launch.grid, tuple(map(int, place)), memory, dict(scalars)).block(program.body)
    return memory


def _scalar(value: int | float) -> float:
    return value if isinstance(value, int) else float(np.float32(value))


@dataclass(slots=True)
class _Thread:
    """One program of the grid."""

    program: Program
    grid: tuple[int, ...]
    place: tuple[int, ...]
    memory: dict[str, Memory]
    values: Environment = field(default_factory=dict)

    # ---- statements

    def block(self, body: tuple[Stmt, ...]) -> None:
        for statement in body:
            self._statement(statement)

    def _statement(self, statement: Stmt) -> None:
        match statement:
            case Assign(name, value):
                self.values[name] = self.evaluate(value)
            case For(name, _, _, _, body, _):
                for position in self._positions(statement):
                    self.values[name] = nb.exact(position)
                    self.block(body)
            case If(condition, then, orelse):
                self.block(then if self._known(condition) else orelse)
            case TileStore(name, offsets, value):
                self._store_tile(name, [self._known(offset) for offset in offsets], self.evaluate(value))
            case PtrStore(name, index, value, mask):
                self._store_elements(name, self.evaluate(index), self.evaluate(value), mask)
            case _:
                raise ProgramError(f"no statement: {statement}")

    def _positions(self, loop: For) -> Iterator[int]:
        low, high, step = (self._known(bound) for bound in (loop.low, loop.high, loop.step))
        if step == 0:
            raise ProgramError("a step of 0")
        return iter(range(low, high, step))

    def _known(self, value: Expr) -> int:
        """A scalar that decides something."""
        found = self.evaluate(value)
        if found.shape:
            raise ProgramError(f"{value.type} where a scalar is needed")
        if not found.sure:
            raise Unsure
        return int(found.value)

    # ---- memory

    def _store_tile(self, name: str, offsets: list[int], tile: Bounded) -> None:
        memory, box = self.memory[name], self.program.buffer(name).box
        inside, part = _overlap(memory.value.shape, offsets, box)
        if any(piece.stop <= piece.start for piece in inside):
            return
        memory.value[inside] = tile.value.reshape(box)[part]
        memory.error[inside] = tile.error.reshape(box)[part]
        memory.written[inside] = True

    def _load_tile(self, load: TileLoad) -> Bounded:
        memory, box = self.memory[load.buffer], self.program.buffer(load.buffer).box
        inside, part = _overlap(memory.value.shape, [self._known(offset) for offset in load.offsets], box)
        value, error = np.zeros(box), np.zeros(box)
        if all(piece.stop > piece.start for piece in inside):
            value[part], error[part] = memory.value[inside], memory.error[inside]
        return Bounded(value.reshape(load.of.shape), error.reshape(load.of.shape))

    def _elements(self, name: str, index: Bounded, mask: Expr | None) -> tuple[np.ndarray, np.ndarray]:
        """(flat index, which of them count). Raises ProgramError outside the tensor."""
        at = index.value.astype(np.int64)
        wanted = np.ones(at.shape, dtype=bool)
        if mask is not None:
            found = self.evaluate(mask)
            if not found.sure:
                raise Unsure
            wanted = np.broadcast_to(found.value != 0, at.shape)
        if not index.sure or (at[wanted] < 0).any() or (at[wanted] >= self.memory[name].value.size).any():
            raise ProgramError(f"an access outside {name}")
        return at, wanted

    def _store_elements(self, name: str, index: Bounded, value: Bounded, mask: Expr | None) -> None:
        at, wanted = self._elements(name, index, mask)
        memory = self.memory[name]
        memory.value.reshape(-1)[at[wanted]] = np.broadcast_to(value.value, at.shape)[wanted]
        memory.error.reshape(-1)[at[wanted]] = np.broadcast_to(value.error, at.shape)[wanted]
        memory.written.reshape(-1)[at[wanted]] = True

    def _load_elements(self, load: PtrLoad) -> Bounded:
        at, wanted = self._elements(load.buffer, self.evaluate(load.index), load.mask)
        memory = self.memory[load.buffer]
        value, error = np.full(at.shape, float(load.other)), np.zeros(at.shape)
        value[wanted] = memory.value.reshape(-1)[at[wanted]]
        error[wanted] = memory.error.reshape(-1)[at[wanted]]
        return Bounded(value, error)

    # ---- values

    def evaluate(self, value: Expr) -> Bounded:
        found = self._evaluate(value)
        if found.shape != value.type.shape:
            raise ProgramError(f"{value.type} came out as {found.shape}")
        if value.type.dtype == "i32" and (np.abs(found.value) >= 2.0**31).any():
            raise ProgramError("an integer overflows")
        return found

    def _evaluate(self, value: Expr) -> Bounded:
        match value:
            case Lit(number, dtype) | Full(_, number, dtype):
                number = float(np.float32(number)) if dtype == "fp32" else number
                return nb.exact(np.full(value.type.shape, float(number)))
            case Var(name, _):
                return self.values[name]
            case Pid(axis):
                return nb.exact(self.place[axis])
            case Programs(axis):
                return nb.exact(self.grid[axis])
            case Arange(count):
                return nb.exact(np.arange(count))
            case TileLoad():
                return self._load_tile(value)
            case PtrLoad():
                return self._load_elements(value)
            case Where(condition, a, b):
                parts = (self.evaluate(part) for part in (condition, a, b))
                return nb.select(*(_spread(part, value.type.shape) for part in parts))
        return self._operation(value)

    def _operation(self, value: Expr) -> Bounded:
        match value:
            case Bin(op, a, b):
                return _binary(op, a.type.dtype, self.evaluate(a), self.evaluate(b))
            case Un(op, x):
                return _UNARY[op](self.evaluate(x))
            case Cast(x, dtype):
                return _cast(self.evaluate(x), x.type.dtype, dtype)
            case Expand(x, axis):
                found = self.evaluate(x)
                return Bounded(np.expand_dims(found.value, axis), np.expand_dims(found.error, axis))
            case Trans(x):
                found = self.evaluate(x)
                return Bounded(found.value.T, found.error.T)
            case Reduce(op, x, axis):
                return _reduce(op, x.type.dtype, self.evaluate(x), axis)
            case Dot(a, b, acc):
                before = None if acc is None else self.evaluate(acc)
                return _dot(a.type.dtype, self.evaluate(a), self.evaluate(b), before)
        raise ProgramError(f"no expression: {value}")


def _overlap(
    shape: tuple[int, ...], offsets: list[int], box: tuple[int, ...]
) -> tuple[tuple[slice, ...], tuple[slice, ...]]:
    """Where a box at an offset lies in a tensor, and which part of the box that is."""
    inside = [slice(max(0, o), min(size, o + extent)) for size, o, extent in zip(shape, offsets, box, strict=True)]
    part = [slice(piece.start - o, piece.stop - o) for piece, o in zip(inside, offsets, strict=True)]
    return tuple(inside), tuple(part)


def _spread(x: Bounded, shape: tuple[int, ...]) -> Bounded:
    return Bounded(np.broadcast_to(x.value, shape), np.broadcast_to(x.error, shape))


def _quotient(a: Array, b: Array) -> Array:
    if (b == 0).any():
        raise ProgramError("an integer is divided by 0")
    return np.asarray(np.trunc(a / b))


_INTEGERS: dict[str, Callable[[Array, Array], Array]] = {
    "+": np.add,
    "-": np.subtract,
    "*": np.multiply,
    "//": _quotient,
    "%": lambda a, b: a - b * _quotient(a, b),
    "max": np.maximum,
    "min": np.minimum,
}
_FLOATS: dict[str, Callable[[Bounded, Bounded], Bounded]] = {
    "+": nb.add,
    "-": nb.subtract,
    "*": nb.multiply,
    "/": nb.divide,
    "max": nb.maximum,
    "min": nb.minimum,
}
_UNARY: dict[str, Callable[[Bounded], Bounded]] = {
    "neg": nb.negative,
    "abs": nb.absolute,
    "exp2": nb.exp2,
    "sqrt": nb.sqrt,
}
_TRUTHS = ("<", "<=", ">", ">=", "==", "!=")


def _binary(op: str, dtype: str, a: Bounded, b: Bounded) -> Bounded:
    if op in _TRUTHS:
        return nb.compare(op, a, b)
    if op == "and":
        return nb.both(a, b)
    if dtype in INTEGERS:
        if not (a.sure and b.sure):
            raise Unsure
        return nb.exact(_INTEGERS[op](a.value, b.value))
    if dtype != "fp32":
        raise ProgramError(f"{op} in {dtype}: rounding there is not modelled")
    return _FLOATS[op](a, b)


def _reduce(op: str, dtype: str, x: Bounded, axis: int) -> Bounded:
    if op != "sum":
        return nb.extreme(op, x, axis)
    return nb.exact(x.value.sum(axis)) if dtype in INTEGERS else nb.total(x, axis)


def _dot(dtype: str, a: Bounded, b: Bounded, acc: Bounded | None) -> Bounded:
    if dtype == "i8":
        return nb.exact(a.value @ b.value + (0.0 if acc is None else acc.value))
    return nb.product(a, b, acc, tf32=dtype == "fp32")


def _cast(x: Bounded, before: str, after: str) -> Bounded:
    if after in INTEGERS:
        raise ProgramError("casts to integers are not modelled")
    if after == "fp32":
        return nb.rounded(x.value, x.error) if before in INTEGERS else x
    if before not in (*FLOATS, "i8"):
        raise ProgramError(f"a cast of {before} to {after} rounds twice")
    return nb.cast(x, after)


__all__ = ["Bounded", "Launch", "Memory", "Unsure", "run"]

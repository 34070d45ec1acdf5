"""Abstract kernels: a small typed language with loops, dots, loads and stores.

A program is printed as a Triton kernel (`printer.py`) and evaluated as it stands (`reference.py`); the two know nothing
of each other. Tiles are of one or two dimensions. Everything is a frozen value; `codec.py` writes and reads it as JSON.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from functools import cached_property

FLOATS = ("fp32", "fp16", "bf16", "fp8e4nv", "fp8e5")
INTEGERS = ("i32", "i8")
COMPARISONS = ("<", "<=", ">", ">=", "==", "!=")
ARITHMETIC = ("+", "-", "*", "/", "//", "%", "max", "min")
LOGIC = ("and",)
UNARY = ("neg", "abs", "exp2", "sqrt")
REDUCTIONS = ("sum", "max", "min")


class ProgramError(Exception):
    """A program that means nothing: operands of the wrong type, an address out of bounds."""


@dataclass(frozen=True, slots=True)
class Type:
    """The type of a value: a scalar if there is no shape."""

    dtype: str
    shape: tuple[int, ...] = ()

    def __str__(self) -> str:
        return f"{self.dtype}{list(self.shape) or ''}"


def broadcast(a: tuple[int, ...], b: tuple[int, ...]) -> tuple[int, ...]:
    """The shape of an elementwise operation. Raises ProgramError."""
    if not a or not b:
        return a or b
    if len(a) != len(b) or any(m != n and 1 not in (m, n) for m, n in zip(a, b, strict=True)):
        raise ProgramError(f"shapes {a} and {b} do not go together")
    return tuple(max(m, n) for m, n in zip(a, b, strict=True))


# ----------------------------------------------------------------------------------------------- expressions


@dataclass(frozen=True)
class Expr:
    """A value without effects. `type` is computed from the parts."""

    @cached_property
    def type(self) -> Type:
        return self._type()

    def _type(self) -> Type:
        raise NotImplementedError


@dataclass(frozen=True)
class Lit(Expr):
    """A number. It takes the type of what it meets."""

    value: float
    dtype: str = "fp32"

    def _type(self) -> Type:
        return Type(self.dtype)


@dataclass(frozen=True)
class Var(Expr):
    """A variable or a scalar argument."""

    name: str
    of: Type

    def _type(self) -> Type:
        return self.of


@dataclass(frozen=True)
class Un(Expr):
    """One of UNARY."""

    op: str
    x: Expr

    def _type(self) -> Type:
        return self.x.type


@dataclass(frozen=True)
class Bin(Expr):
    """One of ARITHMETIC, COMPARISONS or LOGIC, elementwise; integer division and remainder are those of C."""

    op: str
    a: Expr
    b: Expr

    def _type(self) -> Type:
        shape = broadcast(self.a.type.shape, self.b.type.shape)
        if self.a.type.dtype != self.b.type.dtype:
            raise ProgramError(f"{self.a.type} {self.op} {self.b.type}")
        return Type("i1" if self.op in COMPARISONS else self.a.type.dtype, shape)


@dataclass(frozen=True)
class Where(Expr):
    """`a` where the condition holds, else `b`."""

    condition: Expr
    a: Expr
    b: Expr

    def _type(self) -> Type:
        shape = broadcast(self.condition.type.shape, broadcast(self.a.type.shape, self.b.type.shape))
        return Type(self.a.type.dtype, shape)


@dataclass(frozen=True)
class Cast(Expr):
    """Another element type; to a smaller one it rounds to the nearest."""

    x: Expr
    dtype: str

    def _type(self) -> Type:
        return Type(self.dtype, self.x.type.shape)


@dataclass(frozen=True)
class Full(Expr):
    """A tile of one number."""

    shape: tuple[int, ...]
    value: float
    dtype: str

    def _type(self) -> Type:
        return Type(self.dtype, self.shape)


@dataclass(frozen=True)
class Arange(Expr):
    """0, 1, ... count - 1."""

    count: int

    def _type(self) -> Type:
        return Type("i32", (self.count,))


@dataclass(frozen=True)
class Expand(Expr):
    """A vector as a row (axis 0) or a column (axis 1) of a matrix."""

    x: Expr
    axis: int

    def _type(self) -> Type:
        (size,) = self.x.type.shape
        return Type(self.x.type.dtype, (1, size) if self.axis == 0 else (size, 1))


@dataclass(frozen=True)
class Trans(Expr):
    """A matrix turned."""

    x: Expr

    def _type(self) -> Type:
        rows, columns = self.x.type.shape
        return Type(self.x.type.dtype, (columns, rows))


@dataclass(frozen=True)
class Reduce(Expr):
    """One of REDUCTIONS along an axis."""

    op: str
    x: Expr
    axis: int

    def _type(self) -> Type:
        shape = self.x.type.shape
        return Type(self.x.type.dtype, (*shape[: self.axis], *shape[self.axis + 1 :]))


@dataclass(frozen=True)
class Dot(Expr):
    """`a @ b`, or `acc + a @ b`; in fp32, or in i32 for i8."""

    a: Expr
    b: Expr
    acc: Expr | None = None

    def _type(self) -> Type:
        (rows, inner), (other, columns) = self.a.type.shape, self.b.type.shape
        found = Type("i32" if self.a.type.dtype == "i8" else "fp32", (rows, columns))
        if inner != other or self.a.type.dtype != self.b.type.dtype or (self.acc and self.acc.type != found):
            raise ProgramError(f"dot of {self.a.type} and {self.b.type} onto {self.acc and self.acc.type}")
        return found


@dataclass(frozen=True)
class Pid(Expr):
    """`tl.program_id(axis)`."""

    axis: int

    def _type(self) -> Type:
        return Type("i32")


@dataclass(frozen=True)
class Programs(Expr):
    """`tl.num_programs(axis)`."""

    axis: int

    def _type(self) -> Type:
        return Type("i32")


@dataclass(frozen=True)
class TileLoad(Expr):
    """The box of a descriptor at an offset; zero outside the tensor."""

    buffer: str
    offsets: tuple[Expr, ...]
    of: Type

    def _type(self) -> Type:
        return self.of


@dataclass(frozen=True)
class PtrLoad(Expr):
    """Elements of a tensor by their index in memory; `other` where the mask does not hold."""

    buffer: str
    index: Expr
    dtype: str
    mask: Expr | None = None
    other: float = 0.0

    def _type(self) -> Type:
        return Type(self.dtype, self.index.type.shape)


# ------------------------------------------------------------------------------------------------ statements


@dataclass(frozen=True)
class Stmt:
    """Something done."""


@dataclass(frozen=True)
class Assign(Stmt):
    """`name = value`."""

    name: str
    value: Expr


@dataclass(frozen=True)
class For(Stmt):
    """`for name in tl.range(low, high, step, **hints)`. Negative steps must be literals."""

    name: str
    low: Expr
    high: Expr
    step: Expr
    body: tuple[Stmt, ...]
    hints: tuple[tuple[str, int], ...] = ()  # arguments of tl.range that do not change what is computed


@dataclass(frozen=True)
class If(Stmt):
    """A conditional on a scalar; an empty `orelse` is no else.

    The last statement of a kernel may be written as a return where the condition does not hold (`returns`).
    """

    condition: Expr
    then: tuple[Stmt, ...]
    orelse: tuple[Stmt, ...] = ()
    returns: bool = False


@dataclass(frozen=True)
class TileStore(Stmt):
    """A tile into the box of a descriptor at an offset; what is outside the tensor is dropped."""

    buffer: str
    offsets: tuple[Expr, ...]
    value: Expr


@dataclass(frozen=True)
class PtrStore(Stmt):
    """Elements into a tensor by their index in memory, where the mask holds."""

    buffer: str
    index: Expr
    value: Expr
    mask: Expr | None = None


# -------------------------------------------------------------------------------------------------- programs


@dataclass(frozen=True, slots=True)
class Extent:
    """A number of a launch: constant + sum of factor * knob, at least `least`."""

    terms: tuple[tuple[str, int], ...] = ()
    constant: int = 0
    least: int = -(1 << 31)

    def value(self, knobs: Mapping[str, int]) -> int:
        return max(self.least, self.constant + sum(factor * knobs[name] for name, factor in self.terms))

    def divisible(self, by: int) -> bool:
        """Is it a multiple of `by` in every launch?"""
        unbounded = Extent().least
        parts = (self.constant, *(factor for _, factor in self.terms), 0 if self.least == unbounded else self.least)
        return all(part % by == 0 for part in parts)


@dataclass(frozen=True, slots=True)
class Knob:
    """A number that a launch may choose; the first choice is the simplest."""

    name: str
    choices: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Scalar:
    """A scalar argument of the kernel. A float takes a thousandth of its extent."""

    name: str
    dtype: str
    extent: Extent

    def value(self, knobs: Mapping[str, int]) -> int | float:
        found = self.extent.value(knobs)
        return found if self.dtype == "i32" else found / 1000


@dataclass(frozen=True, slots=True)
class Buffer:
    """A tensor argument. How the kernel sees it: "host" or "device" descriptor of a box, or "pointer".

    `below` bounds the numbers of an input of integers (0 <= x < below); None: small numbers of either sign.
    """

    name: str
    dtype: str
    dims: tuple[Extent, ...]
    access: str
    box: tuple[int, ...] = ()
    output: bool = False
    below: Extent | None = None


@dataclass(frozen=True)
class Program:
    """A kernel, and what it may be launched with."""

    knobs: tuple[Knob, ...]
    grid: tuple[Extent, ...]
    scalars: tuple[Scalar, ...]
    buffers: tuple[Buffer, ...]
    body: tuple[Stmt, ...]

    def buffer(self, name: str) -> Buffer:
        return next(buffer for buffer in self.buffers if buffer.name == name)


Node = Expr | Stmt


def walk(part: object) -> Iterator[Node]:
    """Every statement and expression of a program, a body or a node, in the order of the source."""
    if isinstance(part, Program):
        yield from walk(part.body)
    elif isinstance(part, tuple):
        for one in part:
            yield from walk(one)
    elif isinstance(part, Expr | Stmt):
        yield part
        for field in fields(part):
            yield from walk(getattr(part, field.name))

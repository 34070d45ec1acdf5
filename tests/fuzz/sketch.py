"""A program while it is being drawn: its arguments, the level at which statements are added, and what is in scope."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import TypeVar

from hypothesis import strategies as st

from tests.fuzz.program import Assign, Buffer, Expr, Extent, Knob, Lit, Scalar, Stmt, Type, Var

T = TypeVar("T")

MIN_INNER = {"fp16": 16, "bf16": 16, "fp8e4nv": 32, "fp8e5": 32, "i8": 32, "fp32": 16}


@dataclass(frozen=True, slots=True)
class Dim:
    """One dimension of a tile: where it lies, and how long the tensors are that it walks along."""

    key: str  # tiles whose dimensions have equal keys belong together
    size: int
    offset: Expr
    extent: Extent  # of the tensors; tiles may stick out
    full: Extent | None = None  # of tensors in which no tile sticks out; None if there is no such bound


@dataclass(frozen=True, slots=True)
class Tile:
    """A matrix in scope."""

    value: Expr
    rows: Dim
    columns: Dim


@dataclass(frozen=True, slots=True)
class Vector:
    """A vector in scope."""

    value: Expr
    dim: Dim


@dataclass(frozen=True, slots=True)
class State:
    """A variable that is updated: by loops and in branches."""

    var: Var
    dims: tuple[Dim, ...]
    role: str = "sum"  # what its updates do: "sum", "max" or "offset"


@dataclass(eq=False, slots=True)
class Level:
    """A block of statements, with what has been computed in it."""

    parent: Level | None = None
    is_branch: bool = False
    statements: list[Stmt] = field(default_factory=list)
    tiles: list[Tile] = field(default_factory=list)  # fp32
    operands: list[tuple[tuple[str, ...], Tile]] = field(default_factory=list)  # loaded for a dot: (what, where)
    vectors: list[Vector] = field(default_factory=list)  # fp32
    states: list[State] = field(default_factory=list)
    conditions: list[Expr] = field(default_factory=list)  # scalar truths
    places: list[Dim] = field(default_factory=list)  # dimensions that loops walk along

    def up(self) -> Iterator[Level]:
        """This level and those around it."""
        level: Level | None = self
        while level is not None:
            yield level
            level = level.parent

    @property
    def home(self) -> Level:
        """Where the variables start that this level updates: before the loop around it, outside of branches."""
        level = self._outside_branches()
        return level if level.parent is None else level.parent._outside_branches()

    def _outside_branches(self) -> Level:
        level = self
        while level.is_branch and level.parent is not None:
            level = level.parent
        return level

    @property
    def depth(self) -> int:
        """How many loops there are around."""
        return sum(1 for level in self.up() if level.parent is not None and not level.is_branch)

    def all_tiles(self) -> list[Tile]:
        return [tile for level in self.up() for tile in level.tiles]

    def all_vectors(self) -> list[Vector]:
        return [vector for level in self.up() for vector in level.vectors]

    def all_states(self) -> list[State]:
        return [state for level in self.up() for state in level.states]

    def all_conditions(self) -> list[Expr]:
        return [condition for level in self.up() for condition in level.conditions]


@dataclass(frozen=True, slots=True)
class Frame:
    """Which tile of the result a program of the grid works on."""

    row: Dim
    column: Dim
    slot: Expr  # a number of its own for each tile
    slots: Extent
    lead: Expr | None = None  # the first coordinate of tensors with three dimensions
    leads: Extent = field(default_factory=Extent)


class Sketch:
    """Draws from hypothesis and collects the arguments. The first choice of everything is the simplest."""

    def __init__(self, draw: st.DrawFn) -> None:
        self.draw = draw
        self.knobs: list[Knob] = []
        self.scalars: list[Scalar] = []
        self.buffers: list[Buffer] = []
        self.count: dict[str, int] = {}
        self.fused = False  # Triton makes one loop of this one and the one around it

    # ---- choices

    def pick(self, *choices: T) -> T:
        return self.draw(st.sampled_from(choices))

    def chance(self, one_in: int) -> bool:
        """True once in so many times."""
        return self.draw(st.integers(0, one_in - 1)) == one_in - 1

    def number(self, low: int, high: int) -> int:
        return self.draw(st.integers(low, high))

    # ---- arguments

    def name(self, stem: str) -> str:
        """A name not used before."""
        index = self.count[stem] = self.count.get(stem, -1) + 1
        return f"{stem}{index or ''}"

    def knob(self, stem: str, *choices: int) -> str:
        name = self.name(stem)
        self.knobs.append(Knob(name, choices))
        return name

    def scalar(self, stem: str, extent: Extent, dtype: str = "i32") -> Var:
        """An argument of that value; one there is already, if any."""
        for scalar in self.scalars:
            if scalar.extent == extent and scalar.dtype == dtype:
                return Var(scalar.name, Type(dtype))
        self.scalars.append(Scalar(self.name(stem), dtype, extent))
        return Var(self.scalars[-1].name, Type(dtype))

    def buffer(self, stem: str, like: Buffer, share: bool) -> Buffer:
        """A tensor argument; with `share`, one there is already that is the same but for the name."""
        for buffer in self.buffers:
            if share and replace(buffer, name="") == replace(like, name=""):
                return buffer
        self.buffers.append(replace(like, name=self.name(stem)))
        return self.buffers[-1]

    # ---- variables

    def assign(self, level: Level, stem: str, value: Expr) -> Var:
        """A new variable with a value."""
        var = Var(self.name(stem), value.type)
        level.statements.append(Assign(var.name, value))
        return var

    def state(self, home: Level, stem: str, start: Expr, dims: tuple[Dim, ...], role: str = "sum") -> State:
        """A new variable that loops update."""
        state = State(self.assign(home, stem, start), dims, role)
        home.states.append(state)
        return state

    def update(self, level: Level, state: State, value: Expr) -> None:
        level.statements.append(Assign(state.var.name, value))


def integer(value: int) -> Lit:
    return Lit(value, "i32")

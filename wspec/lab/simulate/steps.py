"""A block of operations as steps that a walk repeats with concrete numbers."""

from __future__ import annotations

from dataclasses import dataclass

from wspec.ir.core import Operation, Value
from wspec.lab.simulate.actions import Action, Flow, Kind
from wspec.lab.simulate.scalars import Function


@dataclass(eq=False, slots=True)
class Compute:
    """An integer from others. Unknown operands make it unknown."""

    target: Value
    function: Function
    operands: tuple[Value, ...]


@dataclass(eq=False, slots=True)
class Program:
    """A program id, or the number of programs."""

    target: Value
    axis: int
    count: bool


@dataclass(eq=False, slots=True)
class Root:
    """An allocation in shared memory."""

    target: Value
    number: int


@dataclass(eq=False, slots=True)
class Index:
    """One buffer of a ring; without an index another name of the same."""

    target: Value
    source: Value
    index: Value | None


@dataclass(eq=False, slots=True)
class Offset:
    """A pointer so many elements further."""

    target: Value
    pointer: Value
    more: Value


@dataclass(eq=False, slots=True)
class Load:
    """An integer from an array that was given."""

    target: Value
    pointer: Value


@dataclass(eq=False, slots=True)
class Emit:
    """Actions that are always the same."""

    actions: tuple[Action, ...]


@dataclass(eq=False, slots=True)
class AtBarrier:
    """An action at an mbarrier that numbers decide."""

    kind: Kind
    op: Operation
    barrier: Value
    number: Value | int  # a phase, or a count
    predicate: Value | None
    flow: Flow | None = None  # of a copy
    after: float = 0.0  # from its end until the waiting warp goes on
    early: bool = False  # a wait is tried before the arithmetic in front of it


@dataclass(eq=False, slots=True)
class For:
    """scf.for."""

    op: Operation
    body: list[Step]
    mark: Action
    carried: list[tuple[Value, Value, Value, Value]]  # those that are needed: argument, first, next, result
    innermost: bool


@dataclass(eq=False, slots=True)
class While:
    """scf.while."""

    op: Operation
    before: list[Step]
    after: list[Step]
    mark: Action


@dataclass(eq=False, slots=True)
class If:
    """scf.if."""

    op: Operation
    arms: tuple[list[Step], list[Step]]
    results: tuple[list[tuple[Value, Value]], list[tuple[Value, Value]]]  # those that are needed: result, yielded


@dataclass(eq=False, slots=True)
class Specialize:
    """ttg.warp_specialize: the default region's steps; the partitions are codes of their own."""

    op: Operation
    fork: Action
    join: Action
    default: list[Step]
    partitions: list[TaskCode]


Step = Compute | Program | Root | Index | Offset | Load | Emit | AtBarrier | For | While | If | Specialize


SCALAR = (Compute, Program, Root, Index, Offset, Load)
"""Steps that take no time of their own."""


@dataclass(eq=False, slots=True)
class TaskCode:
    """The steps of a task."""

    name: str
    warps: int
    steps: list[Step]
    captured: list[tuple[Value, Value]]  # argument, value outside

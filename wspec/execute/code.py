"""Operations decoded into steps: once for a module, then run for every program of the grid.

A value lives in a numbered slot of its task's frame. A step is a Python function of the task; what makes it up (slots,
attributes, types) was looked up when it was decoded. There are three kinds: plain steps; points, before which other
tasks get a turn; and flows, generators that may give turns and wait in their midst.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from wspec.execute.errors import ExecutionError
from wspec.execute.machine import Item, Steps, Task, Wait
from wspec.ir.core import Block, Operation, Region, Value

Kind = Literal["plain", "point", "flow"]
PLAIN: Final = "plain"
POINT: Final = "point"
FLOW: Final = "flow"
Act = Callable[[Task], None]
Flow = Callable[[Task], Generator[Wait | None, None, None]]


@dataclass(frozen=True, slots=True)
class Step:
    """One operation."""

    kind: Kind
    act: Callable[[Task], Any]  # an Act, or a Flow


def plain(act: Act) -> Step:
    """Nobody else can tell when it happens."""
    return Step(PLAIN, act)


def point(act: Act) -> Step:
    """Others may go first."""
    return Step(POINT, act)


def flow(act: Flow) -> Step:
    """It waits, or has steps inside that may."""
    return Step(FLOW, act)


@dataclass(slots=True)
class Code:
    """A block: its steps, and the slots of what its terminator hands out."""

    steps: tuple[tuple[Kind, Callable[[Task], Any]], ...] = ()
    results: tuple[int, ...] = ()
    args: tuple[int, ...] = ()
    terminator: Operation | None = None

    @property
    def is_plain(self) -> bool:
        return all(kind == PLAIN for kind, _ in self.steps)


def run_plain(code: Code, task: Task) -> None:
    """Run a block of plain steps."""
    task.machine.spend(len(code.steps) + 1)
    for _, act in code.steps:
        act(task)


def run(code: Code, task: Task) -> Steps:
    """Run a block."""
    task.machine.spend(len(code.steps) + 1)
    for kind, act in code.steps:
        if kind is PLAIN:
            act(task)
        elif kind is FLOW:
            yield from act(task)
        else:
            yield None
            act(task)


TERMINATORS = frozenset(
    ("scf.yield", "scf.condition", "cf.br", "cf.cond_br", "tt.return", "ttg.warp_yield", "ttg.warp_return")
)


class Slots:
    """Numbers for the values of a function, and what the frame of a fresh task holds: constants."""

    def __init__(self) -> None:
        self.numbers: dict[Value, int] = {}
        self.initial: list[Item] = []

    def of(self, value: Value) -> int:
        """The slot of a value; a new one when it is first asked for."""
        found = self.numbers.get(value)
        if found is None:
            found = self.numbers[value] = len(self.initial)
            self.initial.append(None)
        return found

    def all(self, values: list[Value]) -> tuple[int, ...]:
        return tuple(self.of(value) for value in values)

    def frame(self) -> list[Item]:
        return self.initial.copy()


Decode = Callable[[Operation, "Decoder"], Step]


@dataclass(slots=True)
class Decoder:
    """Decodes one function with the decoders of all operations that are not mere values."""

    decoders: dict[str, Decode]
    otherwise: Decode  # everything else
    function: Callable[[str, Operation], Function]  # of that name; the operation asks
    slots: Slots = field(default_factory=Slots)

    def block(self, block: Block) -> Code:
        """Decode a block; its last operation is its terminator. Raises ExecutionError for a strange one."""
        if block.terminator.name not in TERMINATORS:
            name = block.terminator.name
            raise ExecutionError(f"a block that ends with {name} is not supported", block.terminator.location)
        code = Code(args=self.slots.all(block.args), terminator=block.terminator)
        steps = [self.step(op) for op in block.ops[:-1]]
        code.steps = tuple((step.kind, step.act) for step in steps if step is not NOTHING)
        code.results = self.slots.all(block.terminator.operands)
        return code

    def only_block(self, region: Region, op: Operation) -> Code:
        """The block of a region that has one. Raises ExecutionError for others."""
        if len(region.blocks) != 1:
            raise ExecutionError(f"{op.name}: a region with {len(region.blocks)} blocks is not supported", op.location)
        return self.block(region.block)

    def step(self, op: Operation) -> Step:
        return self.decoders.get(op.name, self.otherwise)(op, self)


@dataclass(slots=True)
class Function:
    """A decoded function; calls refer to it before it is complete."""

    op: Operation
    slots: Slots = field(default_factory=Slots)
    body: Step | None = None  # runs it in a frame whose arguments are set
    args: tuple[int, ...] = ()
    results: tuple[int, ...] = ()  # where `body` leaves what the function returns
    warps: int = 4


def _nothing(task: Task) -> None:
    """Nothing to do."""


NOTHING = plain(_nothing)
"""Left out of blocks: constants, which are in the frame already, and operations without meaning here."""

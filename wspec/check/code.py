"""What a task does, as far as the checker cares: flat lists of steps over registers.

A register holds an integer, a `View` of shared memory, a `Running` tensor core result, or None for what is not known.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from wspec.check.conditions import Condition, Threshold
from wspec.check.findings import Kind
from wspec.ir.core import Operation, Value
from wspec.ir.shared_memory import Placement


class View(NamedTuple):
    """A part of shared memory: an allocation, the indices taken of it, and a box inside that."""

    root: int  # number of the allocation
    path: tuple[int, ...] = ()
    box: tuple[tuple[int, int], ...] = ()  # (start, size) per dimension; () for all of it
    whole: bool = False  # seen as something else: indices and boxes no longer say which part it is
    offset: int | None = 0  # of what is seen as something else: where it begins in that part, in bytes; None: unknown

    @property
    def region(self) -> View:
        """The part of memory, however it is seen."""
        return View(self.root, self.path, self.box) if self.whole else self

    def overlaps(self, other: View) -> bool:
        """May the two share bytes?"""
        if self.root != other.root:
            return False
        if any(a != b for a, b in zip(self.path, other.path, strict=False)):
            return False
        if len(self.path) != len(other.path) or not self.box or not other.box:
            return True
        return all(a < b + m and b < a + n for (a, n), (b, m) in zip(self.box, other.box, strict=True))


@dataclass(frozen=True, slots=True)
class Running:
    """The result of a tensor core operation of this number, which may not be complete."""

    epoch: int


Content = int | View | Running | None


@dataclass(slots=True, eq=False)
class Step:
    """Something a task does; `op` is what it comes from."""

    op: Operation


@dataclass(slots=True, eq=False)
class Compute(Step):
    """`dst = function(*sources)` when all sources are integers, else unknown."""

    dst: int
    function: Callable[..., int]
    sources: tuple[int, ...]


@dataclass(slots=True, eq=False)
class Forget(Step):
    """A value that cannot be known."""

    dst: int


@dataclass(slots=True, eq=False)
class Constant(Step):
    dst: int
    value: int


@dataclass(slots=True, eq=False)
class Select(Step):
    """Which of two values depends on a condition."""

    dst: int
    register: int | None
    condition: Condition
    then: int
    other: int


@dataclass(slots=True, eq=False)
class Decide(Step):
    """A condition as an integer: `value` when it holds, otherwise 0."""

    dst: int
    register: int | None
    condition: Condition
    value: int


@dataclass(slots=True, eq=False)
class Move(Step):
    """All at once."""

    pairs: tuple[tuple[int, int], ...]  # (destination, source)


@dataclass(slots=True, eq=False)
class Index(Step):
    """`dst = source[index]`; how many there are."""

    dst: int
    source: int
    index: int
    count: int
    bytes: int = 0  # of one, when the slots of what is seen as barriers are told apart; otherwise 0


@dataclass(slots=True, eq=False)
class Part(Step):
    """A box of a view; None: all of it."""

    dst: int
    source: int
    box: tuple[tuple[int, int], ...] | None
    kept: bool  # indices still mean the same


@dataclass(slots=True, eq=False)
class Branch(Step):
    """Go on when the condition holds, otherwise at `target`."""

    register: int | None
    condition: Condition
    target: int = -1


@dataclass(slots=True, eq=False)
class Jump(Step):
    target: int = -1


@dataclass(slots=True, eq=False)
class Enter(Step):
    """Begin a loop."""

    space: int
    position: int | None  # register of the position
    lower: int | None


@dataclass(slots=True, eq=False)
class Head(Step):
    """The test of a loop: leave to `target` when there is no further iteration."""

    space: int
    runs: Threshold | None  # None: a while loop, whose condition is a Branch
    position: int | None
    bounds: tuple[int, int, int] | None  # lower, upper, step when they are constant and the iterations few
    target: int = -1


@dataclass(slots=True, eq=False)
class Next(Step):
    """The end of an iteration; the position takes a step."""

    target: int
    space: int
    position: int | None
    by: int | None


@dataclass(slots=True, eq=False)
class Leave(Step):
    """The loop is over."""

    space: int


@dataclass(slots=True, eq=False)
class Allocate(Step):
    dst: int
    root: int
    filled: bool


@dataclass(slots=True, eq=False)
class Scratch(Step):
    """An operation uses memory of its own: written and, if `read`, read by the threads of the task, done when the step
    is."""

    root: int
    read: bool


@dataclass(slots=True, eq=False)
class Access(Step):
    """An ordinary read or write of a buffer by the threads of the task, done when the step is."""

    view: int
    writes: bool


@dataclass(slots=True, eq=False)
class Release(Step):
    """A buffer is given up: whoever used it must be done, and what it held is gone."""

    view: int


@dataclass(slots=True, eq=False)
class Barriered(Step):
    """An operation on an mbarrier."""

    barrier: int
    predicate: Predicate | None


@dataclass(slots=True, eq=False)
class Predicate:
    register: int | None
    condition: Condition


@dataclass(slots=True, eq=False)
class Init(Step):
    barrier: int
    count: int


@dataclass(slots=True, eq=False)
class Invalidate(Step):
    barrier: int


@dataclass(slots=True, eq=False)
class Expect(Barriered):
    bytes: int = 0


@dataclass(slots=True, eq=False)
class Arrive(Barriered):
    count: int = 1


@dataclass(slots=True, eq=False)
class Wait(Barriered):
    phase: int = 0


@dataclass(slots=True, eq=False)
class Copy(Barriered):
    """TMA from global memory into a buffer; `bytes` arrive on the barrier when it is done."""

    view: int = 0
    bytes: int = 0
    room: int = 0  # bytes of the buffer


@dataclass(slots=True, eq=False)
class StoreTile(Step):
    """TMA from a buffer to global memory."""

    view: int


@dataclass(slots=True, eq=False)
class WaitStores(Step):
    """Until at most `pending` tile stores have not read their buffers."""

    pending: int


@dataclass(slots=True, eq=False)
class CopyElements(Step):
    """cp.async from global memory into a buffer."""

    view: int


@dataclass(slots=True, eq=False)
class CommitElements(Step):
    pass


@dataclass(slots=True, eq=False)
class WaitElements(Step):
    """Until at most `pending` committed groups of cp.async are not done."""

    pending: int


@dataclass(slots=True, eq=False)
class ArriveElements(Step):
    """Arrive on a barrier when all cp.async so far are done."""

    barrier: int
    count: int


@dataclass(slots=True, eq=False)
class Dot(Step):
    """wgmma on buffers."""

    views: tuple[int, ...]
    accumulator: int | None
    dst: int | None
    asynchronous: bool


@dataclass(slots=True, eq=False)
class WaitDots(Step):
    """Until at most `pending` tensor core operations are not complete; the values go through it."""

    pending: int
    pairs: tuple[tuple[int, int], ...]  # (destination, source)


@dataclass(slots=True, eq=False)
class Use(Step):
    """The value of a tensor core operation is used: it must be complete."""

    register: int


@dataclass(slots=True, eq=False)
class Fence(Step):
    """Ordinary accesses before it are seen by asynchronous ones after it."""


@dataclass(slots=True, eq=False)
class Named(Step):
    """`bar.sync` or `bar.arrive`."""

    number: int
    threads: int
    waits: bool


@dataclass(slots=True, eq=False)
class Fork(Step):
    """Start the partitions; `captured`: per partition, (register there, register here)."""

    tasks: tuple[int, ...]
    captured: tuple[tuple[tuple[int, int], ...], ...]


@dataclass(slots=True, eq=False)
class Join(Step):
    """Wait until the partitions are done."""

    tasks: tuple[int, ...]


@dataclass(slots=True, eq=False)
class Stuck(Step):
    """Something the checker cannot follow, or that is wrong in itself."""

    code: str
    message: str
    kind: Kind = "undecided"


@dataclass(slots=True, eq=False)
class Done(Step):
    pass


@dataclass(frozen=True, slots=True, eq=False)
class Loop:
    """A loop of a task: its steps are from `first` to before `last`."""

    op: Operation
    space: int
    first: int
    last: int
    extent: int | None  # None: its iterations are counted


@dataclass(slots=True)
class Code:
    """One task."""

    name: str
    warps: int
    steps: list[Step] = field(default_factory=list)
    values: list[Value] = field(default_factory=list)  # register -> the value it holds
    moduli: list[int] = field(default_factory=list)  # register -> what of an integer matters: 0 all, m the rest by m
    loops: list[Loop] = field(default_factory=list)

    @property
    def registers(self) -> int:
        return len(self.values)


@dataclass(slots=True)
class Program:
    """A kernel as the checker sees it: task 0 is the code around, with the default region in it."""

    codes: list[Code]
    roots: list[Operation]  # allocation -> the operation; scratch counts as one where its bytes are another's too
    floor: int  # integers below it are told apart whatever their modulus
    module: Operation
    placement: Placement | None = None  # where the back end puts them; None: not known

"""Is a launch right in every order that barriers allow? Found out without trying them.

The steps of each task (`trace.py`) are nodes of a graph, with what must come before what as edges: the order of each
task, and from what completes a phase of a barrier to the waits for it. One run says which phase each arrival and each
wait belongs to; that no other run could say anything else is then asserted of the graph: an arrival comes when the
phase before is complete, and a wait looks before the phase after its own can be complete. If so, the graph is that of
every run, and two accesses of a buffer are ordered in all of them or a race.

This proves something about one launch. That is less than what the checker claims, and it shares nothing with it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from tests.mutants.trace import OutOfRange, Place, Slot, Step, traces
from wspec.ir.core import Operation

ASYNCHRONOUS = ("copy", "gather", "store", "dot")
PROXY = ("copy", "store", "dot")  # steps of the copy engine and of the tensor cores
BY_THREADS = ("read", "write", "gather")  # whose accesses those see behind a fence


class Wrong(Exception):
    """What is wrong in some order."""


def what_is_wrong(module: Operation, place: Place) -> str | None:
    """None: nothing, whatever the order. Raises Unknown where the program cannot be followed."""
    try:
        graph = _Graph(traces(module, place))
        graph.run()
        graph.check()
    except (OutOfRange, Wrong) as error:
        return str(error)
    return None


@dataclass(eq=False, slots=True)
class _Barrier:
    """A barrier during the run; nodes are numbers."""

    count: int
    pending: int
    bytes: int = 0
    arrived: list[int] = field(default_factory=list)  # nodes that belong to this phase
    complete: list[int] = field(default_factory=list)  # node that completed each phase
    arrivals: list[tuple[int, int, bool]] = field(default_factory=list)  # node, phase, brings or expects bytes
    waits: list[tuple[int, int]] = field(default_factory=list)  # node, phases that were complete
    start: int | None = None  # node of its initialization
    end: int | None = None  # and of its end

    @property
    def phase(self) -> int:
        return len(self.complete)


@dataclass(eq=False, slots=True)
class _Named:
    """A named barrier during the run."""

    threads: int = 0  # that are there
    came: list[int] = field(default_factory=list)  # nodes of this use
    opened: list[int] = field(default_factory=list)  # node at which each use was over
    uses: dict[int, int] = field(default_factory=dict)  # of each task, the last


@dataclass(eq=False, slots=True)
class _Access:
    step: Step
    task: int
    start: int
    end: int | None  # node; None while it runs

    @property
    def writes(self) -> bool:
        return self.step.kind in ("copy", "gather", "write")


class _Graph:
    def __init__(self, tasks: Sequence[list[Step]]) -> None:
        self.tasks = tasks
        self.before: list[int] = []  # node -> the nodes that come before it in every run, as bits
        self.last: list[int | None] = [None] * len(tasks)  # of each task
        self.barriers: dict[Slot, _Barrier] = {}
        self.over: list[_Barrier] = []  # that were invalidated
        self.named: dict[int, _Named] = {}
        self.accesses: dict[Slot, list[_Access]] = {}
        self.running: list[list[_Access]] = [[] for _ in tasks]  # dots, oldest first
        self.storing: list[list[_Access]] = [[] for _ in tasks]
        self.gathering: list[list[_Access]] = [[] for _ in tasks]
        self.fences: list[list[int]] = [[] for _ in tasks]
        self.copies: list[int] = []  # nodes at which they are done

    # ---- the graph

    def node(self, *before: int | None) -> int:
        found = 0
        for one in before:
            if one is not None:
                found |= self.before[one] | 1 << one
        self.before.append(found)
        return len(self.before) - 1

    def step_node(self, task: int, *before: int | None) -> int:
        node = self.last[task] = self.node(self.last[task], *before)
        return node

    def comes_first(self, one: int | None, other: int) -> bool:
        return one is not None and (one == other or bool(self.before[other] >> one & 1))

    # ---- one run

    def run(self) -> None:
        """Each task as far as it goes, over and over. Raises Wrong."""
        places = [0] * len(self.tasks)
        while places[0] < len(self.tasks[0]):
            if not self.take(0, self.tasks[0][places[0]]):
                raise Wrong("a wait before the tasks")
            places[0] += 1
        self.last[1:] = [self.last[0]] * (len(self.tasks) - 1)
        moved = True
        while moved:
            moved = False
            for task, steps in enumerate(self.tasks):
                while places[task] < len(steps) and self.take(task, steps[places[task]]):
                    places[task] += 1
                    moved = True
        stuck = [steps[place] for place, steps in zip(places, self.tasks, strict=True) if place < len(steps)]
        if stuck:
            raise Wrong(f"deadlock: {len(stuck)} tasks wait")

    def take(self, task: int, step: Step) -> bool:
        """One step; False for a wait that cannot pass yet."""
        if step.barrier is not None:
            return self.at_barrier(task, step, step.barrier)
        if step.named is not None:
            return self.at_named(task, step, *step.named)
        if step.kind == "dot wait":
            self.end(self.running[task], step.number, self.step_node(task))
        elif step.kind == "store wait":
            self.end(self.storing[task], step.number, self.step_node(task))
        elif step.kind == "fence":
            self.fences[task].append(self.step_node(task))
        elif step.kind == "use":
            if any(access.step is step.result for access in self.running[task]):
                raise Wrong("the result of a dot is used while it runs")
        else:
            access = self.access(task, step, self.step_node(task))
            if step.kind == "dot":
                self.running[task].append(access)
            elif step.kind == "store":
                self.storing[task].append(access)
            elif step.kind == "gather":
                self.gathering[task].append(access)
        return True

    @staticmethod
    def end(running: list[_Access], pending: int, node: int) -> None:
        """All but the last `pending` are over."""
        for access in running[: max(0, len(running) - pending)]:
            access.end = node
        del running[: max(0, len(running) - pending)]

    def access(self, task: int, step: Step, node: int) -> _Access:
        found = _Access(step, task, node, None if step.kind in ASYNCHRONOUS else node)
        for slot in step.slots:
            self.accesses.setdefault(slot, []).append(found)
        return found

    # ---- barriers

    def at_barrier(self, task: int, step: Step, slot: Slot) -> bool:
        barrier = self.barriers.get(slot)
        if step.kind == "init":
            if barrier is not None or step.number < 1:
                raise Wrong("a barrier is initialized twice, or to wait for nothing")
            self.barriers[slot] = _Barrier(step.number, step.number, start=self.step_node(task))
            return True
        if barrier is None:
            raise Wrong("a barrier is used that is not initialized")
        if step.kind == "wait":
            return self.wait(task, step, barrier)
        node = self.step_node(task)
        if step.kind == "inval":
            barrier.end = node
            self.over.append(self.barriers.pop(slot))
            return True
        if step.kind == "copy":
            self.copy(task, step, node, barrier)
        elif step.kind == "landed":
            self.landed(task, step, node, barrier)
        else:
            self.arrive(step, node, barrier)
        self.settle(barrier)
        return True

    def wait(self, task: int, step: Step, barrier: _Barrier) -> bool:
        if barrier.phase % 2 == step.number:
            return False
        here = self.last[task]
        known = sum(here is not None and self.comes_first(node, here) for node in barrier.complete)
        wanted = known + (known % 2 == step.number)  # the first it passes at
        if wanted > barrier.phase:
            return False
        node = self.step_node(task, barrier.complete[wanted - 1] if wanted else None)
        barrier.waits.append((node, wanted))
        return True

    def arrive(self, step: Step, node: int, barrier: _Barrier) -> None:
        arrivals = 1 if step.kind == "expect" else step.number
        if arrivals > barrier.pending:
            raise Wrong("more arrivals than a phase waits for")
        barrier.pending -= arrivals
        barrier.bytes += step.number if step.kind == "expect" else 0
        barrier.arrived.append(node)
        barrier.arrivals.append((node, barrier.phase, step.kind == "expect"))

    def copy(self, task: int, step: Step, node: int, barrier: _Barrier) -> None:
        """It is done at once in this run; in the graph, when its barrier says so."""
        access = self.access(task, step, node)
        access.end = self.node(node)
        barrier.bytes -= step.number
        barrier.arrived.append(access.end)
        barrier.arrivals.append((node, barrier.phase, True))
        self.copies.append(access.end)

    def landed(self, task: int, step: Step, node: int, barrier: _Barrier) -> None:
        """The arrival comes when the copies by cp.async that the threads began before have landed."""
        arrival = self.node(node)
        self.end(self.gathering[task], 0, arrival)
        self.copies.append(arrival)
        self.arrive(step, arrival, barrier)

    def settle(self, barrier: _Barrier) -> None:
        if barrier.pending == 0 and barrier.bytes == 0:
            before = barrier.complete[-1] if barrier.complete else None
            barrier.complete.append(self.node(before, *barrier.arrived))
            barrier.arrived = []
            barrier.pending = barrier.count

    def at_named(self, task: int, step: Step, number: int, expected: int) -> bool:
        """It opens for all who came; who comes next must know of it, or might have been taken for one of those."""
        barrier = self.named.setdefault(number, _Named())
        if step.kind == "meet":
            use = barrier.uses[task]
            if use == len(barrier.opened):
                return False
            self.step_node(task, barrier.opened[use])
            return True
        node = self.step_node(task)
        if barrier.opened and not self.comes_first(barrier.opened[-1], node):
            raise Wrong("a named barrier is used again before its last use is over")
        barrier.uses[task] = len(barrier.opened)
        barrier.came.append(node)
        barrier.threads += step.number
        if barrier.threads > expected:
            raise Wrong("more threads come to a named barrier than it is for")
        if barrier.threads == expected:
            barrier.opened.append(self.node(*barrier.came))
            barrier.threads, barrier.came = 0, []
        return True

    # ---- what must hold in the graph

    def check(self) -> None:
        """Raises Wrong."""
        if any(self.running) or any(self.storing) or any(self.gathering):
            raise Wrong("a task ends while a dot, a store or a copy of it runs")
        barriers = [*self.barriers.values(), *self.over]
        if any(barrier.bytes for barrier in barriers):
            raise Wrong("bytes that were expected and those that came differ")
        if any(not any(self.comes_first(copy, last) for last in self.last if last is not None) for copy in self.copies):
            raise Wrong("the kernel may end while a copy is on its way")
        for barrier in barriers:
            self.check_life(barrier)
            self.check_phases(barrier)
        for accesses in self.accesses.values():
            self.check_accesses(accesses)

    def check_life(self, barrier: _Barrier) -> None:
        """Everything between initialization and end, in every run."""
        for node in (*(node for node, _, _ in barrier.arrivals), *(node for node, _ in barrier.waits)):
            ended = barrier.end is not None and not self.comes_first(node, barrier.end)
            if ended or not self.comes_first(barrier.start, node):
                raise Wrong("a barrier may be used before it is initialized, or after its end")

    def check_phases(self, barrier: _Barrier) -> None:
        for node, wanted in barrier.waits:
            if wanted < barrier.phase and not self.comes_first(node, barrier.complete[wanted]):
                raise Wrong("a wait may look when the phase after its own is complete")
        counts_bytes = any(bytes for _, _, bytes in barrier.arrivals)
        for place, (node, phase, _) in enumerate(barrier.arrivals):
            if all(self.comes_first(wait, node) for wait, _ in barrier.waits):
                continue  # nobody looks any more
            begun = phase == 0 or self.comes_first(barrier.complete[phase - 1], node)
            in_line = all(self.comes_first(earlier, node) for earlier, _, _ in barrier.arrivals[:place])
            if not begun and (counts_bytes or not in_line):
                raise Wrong("an arrival may come before its phase has begun")

    def check_accesses(self, accesses: list[_Access]) -> None:
        for place, one in enumerate(accesses):
            written = any(other.writes and self.comes_first(other.end, one.start) for other in accesses)
            if not one.writes and not written:
                raise Wrong("a buffer is read that may not have been written")
            for other in accesses[:place]:
                if one.writes or other.writes:
                    self.check_pair(one, other)

    def check_pair(self, one: _Access, other: _Access) -> None:
        for first, second in ((one, other), (other, one)):
            if first.end != second.start and self.comes_first(first.end, second.start):
                if first.step.kind in BY_THREADS and second.step.kind in PROXY and not self.fenced(first, second):
                    raise Wrong("no fence between what threads did to a buffer and what copy engine or tensor cores do")
                return
        raise Wrong(f"race: a {one.step.kind} and a {other.step.kind} of one buffer have no order")

    def fenced(self, first: _Access, second: _Access) -> bool:
        """Does a task pass a fence behind the first access, before the second?

        That of the first access; for a copy by cp.async, which its threads do not wait for, one that knows it landed.
        """
        fences = self.fences[first.task]
        if first.step.kind == "gather":
            fences = [fence for task in self.fences for fence in task]
        behind = (fence for fence in fences if self.comes_first(first.end, fence))
        return any(self.comes_first(fence, second.start) for fence in behind)

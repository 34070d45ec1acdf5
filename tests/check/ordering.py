"""Proxy fences, from one schedule of a run that is right in all of them: is there one on the way between two accesses?

Ordinary accesses of threads and the asynchronous ones of TMA and wgmma see each other only when a fence lies on a path
of the happens-before graph from the first to the second. A task's own accesses before a TMA write of its own are left
to Triton's back end.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from tests.check.concrete import Event, Part, Run
from tests.check.interleavings import At, Wrong

_THREADS = ("load", "store")


@dataclass
class _Graph:
    edges: dict[At, set[At]] = field(default_factory=dict)

    def add(self, before: At, after: At) -> None:
        self.edges.setdefault(before, set()).add(after)

    def reached(self, start: At) -> set[At]:
        """Everything that comes after an event."""
        found: set[At] = set()
        pending = [start]
        while pending:
            for after in self.edges.get(pending.pop(), ()):
                if after not in found:
                    found.add(after)
                    pending.append(after)
        return found


def check_fences(run: Run) -> None:
    """Raises Wrong where an asynchronous access may not see an ordinary one. The run must have no other fault."""
    graph = _happens_before(run)
    events = {(t, at): e for t, task in enumerate(run.tasks) for at, e in enumerate(task)}
    fences = {at: graph.reached(at) for at, event in events.items() if event.kind == "fence"}
    for first, before in events.items():
        if before.kind not in _THREADS or before.part is None:
            continue
        after = graph.reached(first)
        by_reader = before.kind == "load"  # that a read is over shows only where its value is
        counts = {fence for fence in fences if fence in after and not (by_reader and fence[0] != first[0])}
        fenced = {at for fence in counts for at in fences[fence]}
        writes = [at for at in after if events[at].kind in ("store", "copy") and _parts_meet(before, events[at])]
        for second in after - fenced:
            event = events[second]
            if not _needs_fence(before, event, first[0] == second[0]):
                continue
            if not any(second in graph.reached(write) for write in writes):  # nobody has written it in between
                raise Wrong("missing-fence", event.line)


def _needs_fence(before: Event, event: Event, same_task: bool) -> bool:
    if not _parts_meet(before, event):
        return False
    if event.kind == "copy":
        return not same_task
    return event.kind in ("dot", "tma_store") and before.kind == "store"


def _parts_meet(one: Event, other: Event) -> bool:
    return any(a.overlaps(b) for a in _parts(one) for b in _parts(other))


def _parts(event: Event) -> Iterator[Part]:
    if event.kind == "dot":
        yield from event.others
    elif event.part is not None:
        yield event.part


def _happens_before(run: Run) -> _Graph:
    """The order of one schedule: tasks in turn, each as far as it gets."""
    graph = _Graph()
    positions = [0] * len(run.tasks)
    started = {0}
    phases: dict[Part, list[list[At]]] = {}  # per barrier and completion: who arrived for it
    counts: dict[Part, list[int]] = {}  # count, arrived, bytes; of a named barrier: threads arrived
    moved = True
    while moved:
        moved = False
        for task, events in enumerate(run.tasks):
            while task in started and positions[task] < len(events):
                at = (task, positions[task])
                if not _take(run, graph, at, positions, started, phases, counts):
                    break
                if at[1] + 1 < len(events):
                    graph.add(at, (task, at[1] + 1))
                positions[task] += 1
                moved = True
    assert all(at == len(events) for at, events in zip(positions, run.tasks, strict=True)), "the run does not end"
    return graph


def _take(
    run: Run, graph: _Graph, at: At, positions: list[int], started: set[int],
    phases: dict[Part, list[list[At]]], counts: dict[Part, list[int]],
) -> bool:  # fmt: skip
    event = run.tasks[at[0]][at[1]]
    if event.kind == "fork":
        started.update(event.others)
        for other in event.others:
            if run.tasks[other]:
                graph.add(at, (other, 0))
    if event.kind == "join":
        if any(positions[other] < len(run.tasks[other]) for other in event.others):
            return False
        for other in event.others:
            if run.tasks[other]:
                graph.add((other, len(run.tasks[other]) - 1), at)
    barrier = event.barrier
    if barrier is None:
        return True
    if event.kind.startswith("bar_"):
        return _meet(run, graph, at, phases.setdefault(barrier, [[]]), counts.setdefault(barrier, [0]))
    if event.kind == "init":
        phases[barrier], counts[barrier] = [[]], [event.number, 0, 0]
    elif event.kind == "wait":
        completed = len(phases[barrier]) - 1
        if completed % 2 == event.number:
            return False
        for arrival in phases[barrier][completed - 1] if completed else ():
            graph.add(arrival, at)
    else:
        _arrive(event, at, phases[barrier], counts[barrier])
    return True


def _meet(run: Run, graph: _Graph, at: At, uses: list[list[At]], threads: list[int]) -> bool:
    """A named barrier: `uses` are those who arrived, by use of it."""
    event = run.tasks[at[0]][at[1]]
    use = next((one for one in uses if at in one), None)
    if use is None:
        use = uses[-1]
        use.append(at)
        threads[0] += 32 * run.warps[at[0]]
        if threads[0] == event.number:
            threads[0] = 0
            uses.append([])
            for first in use:
                for second in use:
                    if run.tasks[second[0]][second[1]].kind == "bar_sync" and first != second:
                        graph.add(first, second)
    return event.kind == "bar_arrive" or use is not uses[-1]


def _arrive(event: Event, at: At, phases: list[list[At]], counts: list[int]) -> None:
    phases[-1].append(at)
    counts[1] += {"arrive": event.number, "expect": 1, "copy": 0}[event.kind]
    counts[2] += {"arrive": 0, "expect": event.number, "copy": -event.number}[event.kind]
    if counts[1] == counts[0] and counts[2] == 0:
        counts[1] = 0
        phases.append([])

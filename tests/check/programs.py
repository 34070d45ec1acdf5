"""Random small kernels of producers and consumers, as scripts, and random faults in them."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

T = TypeVar("T")
OPS = ("wait", "expect", "copy", "arrive", "load", "store", "fence", "dot", "acc = dot_wait", "tma_store", "store_wait")


class Pick(Protocol):
    """Chooses one of some options."""

    def __call__(self, options: Sequence[T], /) -> T: ...


@dataclass(frozen=True, slots=True)
class Ring:
    """A ring of tiles; `wraps`: its place is a slot and a phase and not a counter."""

    name: str
    depth: int
    wraps: bool

    @property
    def slot(self) -> str:
        return f"{self.name}_slot" if self.wraps else f"{self.name}_count % {self.depth}"

    @property
    def phase(self) -> str:
        return f"{self.name}_phase" if self.wraps else f"{self.name}_count // {self.depth} & 1"

    @property
    def begin(self) -> str:
        return f"{self.name}_slot, {self.name}_phase = 0, 0" if self.wraps else f"{self.name}_count = 0"

    @property
    def advance(self) -> list[str]:
        if not self.wraps:
            return [f"{self.name}_count = {self.name}_count + 1"]
        s, p, w = f"{self.name}_slot", f"{self.name}_phase", f"{self.name}_last"
        return [
            f"{s} = {s} + 1",
            f"{w} = {s} == {self.depth}",
            f"{s} = select({w}, 0, {s})",
            f"{p} = select({w}, {p} ^ 1, {p})",
        ]


@dataclass
class Program:
    """The lines of a script, whose conditions are bits of `p`."""

    lines: list[str] = field(default_factory=list)
    depth: int = 1
    story: list[str] = field(default_factory=list)

    @property
    def text(self) -> str:
        return "\n".join(self.lines) + "\n"

    def put(self, indent: int, *lines: str) -> None:
        self.lines += ["    " * indent + line for line in lines]


@dataclass(frozen=True, slots=True)
class Use:
    """One tile goes through a ring."""

    ring: Ring


@dataclass(frozen=True, slots=True)
class Loop:
    """`bounds`: lower and upper, as text."""

    name: str
    bounds: str
    body: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Guard:
    """Only when a condition holds."""

    condition: str
    body: tuple[Any, ...]


Node = Use | Loop | Guard


@dataclass(frozen=True, slots=True)
class Worker:
    """A task: the rings it fills and those it reads. `dots`: it multiplies what it reads; `lag`: it releases late."""

    fills: tuple[Ring, ...]
    reads: tuple[Ring, ...]
    warps: int = 4
    dots: bool = False
    lag: bool = False


def make(pick: Pick) -> Program:
    """A right program: every task walks the same loops, and hands on or takes a tile where they say so."""
    found = Program()
    rings = [Ring("ab"[number], pick((1, 2, 2, 3)), pick((False, True))) for number in range(pick((1, 1, 2)))]
    found.depth = max(ring.depth for ring in rings)
    nodes = _nodes(found, pick, rings, ())
    rings = [ring for ring in rings if any(_passes(node, ring) for node in nodes)]
    workers = _workers(pick, rings)
    found.story.append(f"{nodes} {workers}")
    found.put(0, "def kernel(n, m, p):")
    for ring in rings:
        readers = sum(ring in worker.reads for worker in workers)
        found.put(1, f"{ring.name}, {ring.name}_full = buffer({ring.depth}, 64, 64), barriers({ring.depth}, 1)")
        found.put(1, f"{ring.name}_empty = barriers({ring.depth}, {readers})")
    found.put(1, "fence()", "with specialize():")
    for worker in workers:
        found.put(2, f"with task({worker.warps}):")
        found.put(3, *(ring.begin for ring in (*worker.fills, *worker.reads)))
        found.put(3, *(f"{ring.name}_any = 0" for ring in worker.reads if _late_release(worker, ring)))
        found.put(3, *(["acc = zeros(64, 64)"] if worker.dots else []))
        _walk(found, worker, nodes, 3)
    return found


def _workers(pick: Pick, rings: Sequence[Ring]) -> list[Worker]:
    """Consumers first; the last one has TMA or threads fill the first ring."""
    shape = pick(("plain", "plain", "two readers", "chain" if len(rings) > 1 else "plain", "two writers"))
    by_threads = pick((False, False, True))
    all, flags = tuple(rings), {"dots": pick((False, True)), "lag": pick((False, False, True))}
    if shape == "chain":
        return [Worker((), all[1:], **flags), Worker(all[1:], all[:1]), Worker(all[:1], (), 1)]
    readers = [Worker((), all, **flags)] * (2 if shape == "two readers" else 1)
    if shape == "two writers":
        return [*readers, *(Worker((ring,), (), pick((1, 4))) for ring in rings)]
    return [*readers, Worker(all, (), 4 if by_threads else 1)]


def _nodes(found: Program, pick: Pick, rings: Sequence[Ring], around: tuple[str, ...]) -> tuple[Node, ...]:
    kinds: tuple[str, ...] = ("loop", "loop", "uses") if not around else ("uses", "uses", "loop", "guard")
    kinds = kinds if len(around) < 2 else ("uses", "uses", "guard")
    result: list[Node] = []
    for _ in range(pick((1, 1, 1, 2))):
        kind = pick(kinds)
        if kind == "uses":
            result += [Use(ring) for ring in (rings if pick((True, False)) else [pick(rings)])]
        elif kind == "loop":
            name = "ijk"[len(around)]
            bounds = pick(("0, n", "0, n", "0, n", "1, n", "0, n - 1", "0, n + 1", "0, 2", "0, m", *_inner(around)))
            result.append(Loop(name, bounds, _nodes(found, pick, rings, (*around, name))))
        else:
            conditions = (
                f"(p >> {around[-1]}) & 1 == 1",
                f"{around[-1]} > 0",
                f"{around[-1]} + 1 < n",
                "n > 1",
                "m > 0",
            )
            condition = pick(conditions)
            uses: tuple[Node, ...] = tuple(Use(ring) for ring in rings)
            result.append(Guard(condition, uses))
    return tuple(result)


def _inner(around: tuple[str, ...]) -> tuple[str, ...]:
    return (f"0, {around[-1]}", f"0, (p >> {around[-1]}) & 1", f"0, n - {around[-1]}") if around else ()


def _walk(found: Program, worker: Worker, nodes: Sequence[Node], at: int) -> None:
    start = len(found.lines)
    for node in nodes:
        if isinstance(node, Use):
            _pass_on(found, worker, node.ring, at)
        elif _concerns(worker, node):
            head = f"for {node.name} in range({node.bounds}, 1):" if isinstance(node, Loop) else f"if {node.condition}:"
            found.put(at, head)
            _walk(found, worker, node.body, at + 1)
    if len(found.lines) == start:
        found.put(at, "pass")


def _concerns(worker: Worker, node: Node) -> bool:
    return any(_passes(node, ring) for ring in (*worker.fills, *worker.reads))


def _passes(node: Node, ring: Ring) -> bool:
    """Does a tile go through the ring there?"""
    return node.ring == ring if isinstance(node, Use) else any(_passes(inner, ring) for inner in node.body)


def _late_release(worker: Worker, ring: Ring) -> bool:
    """Does the task release a tile when it has the next one?"""
    return worker.lag and not ring.wraps and ring.depth > 1


def _pass_on(found: Program, worker: Worker, ring: Ring, at: int) -> None:
    tile, full, empty = (f"{ring.name}{which}[{ring.slot}]" for which in ("", "_full", "_empty"))
    if ring in worker.reads:
        found.put(at, f"wait({full}, {ring.phase})")
        if worker.dots:
            found.put(at, f"acc = dot({tile}, {tile}, acc)", "acc = dot_wait(0, acc)")
        else:
            found.put(at, f"load({tile})", "fence()")
        if _late_release(worker, ring):
            found.put(at, f"if {ring.name}_any == 1:")
            found.put(at + 1, f"arrive({ring.name}_empty[({ring.name}_count + {ring.depth - 1}) % {ring.depth}])")
            found.put(at, f"{ring.name}_any = 1")
        else:
            found.put(at, f"arrive({empty})")
    elif ring in worker.fills:
        found.put(at, f"wait({empty}, ({ring.phase}) ^ 1)")
        if worker.warps == 4:
            found.put(at, f"store({tile})", "fence()", f"arrive({full})")
        else:
            found.put(at, f"expect({full}, 8192)", f"copy({tile}, {full})")
    else:
        return
    found.put(at, *ring.advance)


# ---------------------------------------------------------------------------------------------------- signals


@dataclass(frozen=True, slots=True)
class Signal:
    """A task tells another one to go on, and hears back that it has: channel `number`."""

    number: int
    sender: int
    receiver: int


@dataclass(frozen=True, slots=True)
class Act:
    """A task does something with a buffer."""

    task: int
    text: str


@dataclass(frozen=True, slots=True)
class Meet:
    """Two tasks meet at a named barrier; the second may only arrive."""

    number: int
    tasks: tuple[int, int]
    second: str


Step = Signal | Act | Meet | Node


def make_signals(pick: Pick) -> Program:
    """Tasks that send each other signals, always right, and read and write buffers in between, right or wrong."""
    found = Program()
    tasks, buffers = pick((2, 2, 3)), pick((1, 2))
    channels = [Signal(number, *pick(_PAIRS[tasks])) for number in range(pick((1, 2, 3)))]
    steps = _steps(pick, tasks, buffers, channels, ())
    found.story.append(f"{steps}")
    found.put(0, "def kernel(n, m, p):")
    for number in range(buffers):
        found.put(1, f"b{number} = buffer(1, 64, 64)", f"store(b{number}[0])")
    for number in range(len(channels)):
        found.put(1, f"go{number}, back{number} = barriers(1, 1), barriers(1, 1)")
    found.put(1, "fence()", "with specialize():")
    for task in range(tasks):
        found.put(2, "with task(4):")
        found.put(3, *(f"c{number} = 0" for number in range(len(channels))), "acc = zeros(64, 64)")
        _act(found, task, steps, 3)
        found.put(3, "acc = dot_wait(0, acc)", "store_wait(0)")
    return found


_PAIRS = {2: ((0, 1), (1, 0)), 3: ((0, 1), (1, 0), (1, 2), (2, 0), (0, 2))}
_ACTS = ("load({b})", "load({b})", "store({b})", "store({b})", "acc = dot({b}, {b}, acc)", "acc = dot_wait(0, acc)",
         "acc = dot_wait(1, acc)", "fence()", "tma_store({b})", "store_wait(0)", "store_wait(1)")  # fmt: skip


def _steps(
    pick: Pick, tasks: int, buffers: int, channels: Sequence[Signal], around: tuple[str, ...]
) -> tuple[Step, ...]:
    result: list[Step] = []
    for _ in range(pick((2, 3, 4))):
        kind = pick(
            (
                "signal",
                "signal",
                "meet",
                "act",
                "act",
                "act",
                *(["loop"] if len(around) < 2 else []),
                *(["guard"] if around else []),
            )
        )
        if kind == "signal":
            result.append(pick(channels))
        elif kind == "meet":
            result.append(Meet(pick((8, 8, 9)), pick(_PAIRS[tasks]), pick(("bar_sync", "bar_sync", "bar_arrive"))))
        elif kind == "act":
            text = pick(_ACTS).format(b=f"b{pick(tuple(range(buffers)))}[0]")
            result.append(Act(pick(tuple(range(tasks))), text))
        elif kind == "loop":
            name = "ijk"[len(around)]
            body = _steps(pick, tasks, buffers, channels, (*around, name))
            result.append(Loop(name, pick(("0, n", "0, n", "0, 2", "0, m", "1, n")), body))
        else:
            condition = pick((f"(p >> {around[-1]}) & 1 == 1", f"{around[-1]} > 0", f"{around[-1]} + 1 < n"))
            result.append(Guard(condition, _steps(pick, tasks, buffers, channels, (around[-1],) * 3)))
    return tuple(result)


def _act(found: Program, task: int, steps: Sequence[Step], at: int) -> None:
    start = len(found.lines)
    for step in steps:
        match step:
            case Act(task=who, text=text) if who == task:
                found.put(at, text)
            case Signal(number=number, sender=sender) if sender == task:
                found.put(at, f"wait(back{number}[0], c{number} + 1 & 1)", f"arrive(go{number}[0])")
                found.put(at, f"c{number} = c{number} + 1")
            case Signal(number=number, receiver=receiver) if receiver == task:
                found.put(at, f"wait(go{number}[0], c{number} & 1)", f"arrive(back{number}[0])")
                found.put(at, f"c{number} = c{number} + 1")
            case Meet(number=number, tasks=(first, second), second=how) if task in (first, second):
                found.put(at, f"{'bar_sync' if task == first else how}({number}, 256)")
            case Loop(name=name, bounds=bounds, body=body):
                found.put(at, f"for {name} in range({bounds}, 1):")
                _act(found, task, body, at + 1)
            case Guard(condition=condition, body=body):
                found.put(at, f"if {condition}:")
                _act(found, task, body, at + 1)
    if len(found.lines) == start:
        found.put(at, "pass")


# ---------------------------------------------------------------------------------------------------- faults


def spoil(found: Program, pick: Pick) -> None:
    """Change one line, or a few; the program may still be right."""
    kind = pick(tuple(_FAULTS))
    places = [at for at, line in enumerate(found.lines) if _FAULTS[kind][0](line.strip())]
    if not places:
        return
    at = pick(places)
    found.story.append(f"{kind} at line {at + 1}: {found.lines[at].strip()}")
    _FAULTS[kind][1](found.lines, at, pick)


def _is_op(line: str) -> bool:
    return line.startswith(OPS)


def _drop(lines: list[str], at: int, pick: Pick) -> None:
    lines[at] = _indent(lines[at]) + "pass"


def _twice(lines: list[str], at: int, pick: Pick) -> None:
    lines.insert(at, lines[at])


def _swap(lines: list[str], at: int, pick: Pick) -> None:
    if at + 1 < len(lines) and _indent(lines[at]) == _indent(lines[at + 1]) and not lines[at + 1].endswith(":"):
        lines[at], lines[at + 1] = lines[at + 1], lines[at]


def _phase(lines: list[str], at: int, pick: Pick) -> None:
    lines[at] = re.sub(r"\], (.*)\)$", r"], (\1) ^ 1)", lines[at])


def _slot(lines: list[str], at: int, pick: Pick) -> None:
    name = re.search(r"\b([ab])(?:_full|_empty)?\[", lines[at])
    assert name is not None
    depth = next(line for line in lines if line.strip().startswith(f"{name[1]}, "))
    count = re.search(r"buffer\((\d)", depth)
    assert count is not None
    lines[at] = re.sub(r"\[([^]]*)\]", rf"[(\1 + 1) % {count[1]}]", lines[at], count=1)


def _trips(lines: list[str], at: int, pick: Pick) -> None:
    change = pick(("0, n + 1", "0, n - 1", "1, n", "0, 2 * n"))
    lines[at] = lines[at].replace("0, n", change)


def _late(lines: list[str], at: int, pick: Pick) -> None:
    """Only in some iterations."""
    lines[at] = f"{_indent(lines[at])}if i {pick(('>', '<=', '!='))} {pick((0, 1, 2))}: {lines[at].strip()}"


def _unguarded(lines: list[str], at: int, pick: Pick) -> None:
    lines[at] = _indent(lines[at]) + pick(("if True:", "if (p >> i) & 1 == 0:", "if (p >> i + 1) & 1 == 1:"))


def _count(lines: list[str], at: int, pick: Pick) -> None:
    lines[at] = re.sub(r"barriers\((\d), (\d)\)", lambda m: f"barriers({m[1]}, {int(m[2]) + 1})", lines[at])


def _bytes(lines: list[str], at: int, pick: Pick) -> None:
    lines[at] = lines[at].replace("8192", pick(("4096", "16384")))


def _out(lines: list[str], at: int, pick: Pick) -> None:
    """Take an operation out of its loop, to the front of it."""
    heads = [number for number in range(at) if lines[number].strip().startswith("for")]
    if not heads:
        return
    head = heads[-1]
    lines.insert(head, _indent(lines[head]) + lines[at].strip())
    lines[at + 1] = _indent(lines[at + 1]) + "pass"


def _restart(lines: list[str], at: int, pick: Pick) -> None:
    """Begin a ring anew in front of a loop."""
    task = max(number for number in range(at) if lines[number].strip().startswith("with task"))
    begins = [
        line.strip() for line in lines[task:at] if re.fullmatch(r"[ab]_\w+(, [ab]_phase)? = 0(, 0)?", line.strip())
    ]
    if begins:
        lines.insert(at, _indent(lines[at]) + pick(begins))


def _indent(line: str) -> str:
    return line[: len(line) - len(line.lstrip())]


Fault = tuple[Callable[[str], bool], Callable[[list[str], int, Pick], None]]
_FAULTS: dict[str, Fault] = {
    "drop": (_is_op, _drop),
    "twice": (_is_op, _twice),
    "swap": (_is_op, _swap),
    "phase": (lambda line: line.startswith("wait"), _phase),
    "slot": (lambda line: _is_op(line) and re.search(r"\b[ab]\w*\[", line) is not None, _slot),
    "trips": (lambda line: line.startswith("for i in range(0, n,"), _trips),
    "stage1": (lambda line: _is_op(line) and not line.startswith("acc"), _late),
    "unguarded": (lambda line: line.startswith("if (p"), _unguarded),
    "count": (lambda line: "barriers(" in line, _count),
    "bytes": (lambda line: line.startswith("expect"), _bytes),
    "out": (_is_op, _out),
    "restart": (lambda line: line.startswith("for i"), _restart),
}

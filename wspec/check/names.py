"""What tasks, buffers and barriers are called, and findings in words."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Literal, get_args

from wspec.check import code as c
from wspec.check.clock import Once
from wspec.check.findings import Finding, Kind
from wspec.check.state import Barrier, State, Touch
from wspec.check.tracked_values import WAIT, Flow
from wspec.ir.core import Operation, Value
from wspec.ir.loc import Location, value_name
from wspec.ir.types import MemDescType

_LANDED = "ttng.async_copy_mbarrier_arrive"
_FEED = ("ttng.async_tma_copy_global_to_local", "ttng.async_tma_gather")


Role = Literal["reads", "writes", "arrives", "waits", "uses"]
ROLES: tuple[Role, ...] = get_args(Role)


class Names:
    """Speaks of a program in the words of its source."""

    def __init__(self, program: c.Program, flow: Flow) -> None:
        self.program = program
        self.roots = {op: number for number, op in enumerate(program.roots)}
        self.flow = flow
        self.fed: set[int] = set()  # barriers that copies complete
        self.barriers: set[int] = set()
        self.called = self._names_of_roots()
        self.tasks = self._names_of_tasks()

    # ---- names

    def root(self, value: Value) -> int | None:
        """The allocation a buffer, a barrier or a view of one belongs to; None when that cannot be seen.

        Where it may be one of several: the first, for its name. `may_be` gives all.
        """
        seen = 0
        while seen < 100:
            seen += 1
            op = value.op
            if op is not None and op in self.roots:
                return self.roots[op]
            sources = op.operands[:1] if op is not None and op.name.startswith("ttg.memdesc_") else None
            if op is not None and op.name == WAIT:
                sources = [op.operands[value.index]]
            found = sources if sources is not None else list(self.flow.sources(value))
            if not found:
                return None
            value = found[0]
        return None

    def may_be(self, value: Value) -> frozenset[int]:
        """The allocations a buffer, a barrier or a view may belong to; when that cannot be seen, all."""
        found: set[int] = set()
        pending = Once([value])
        for one in pending:
            op = one.op
            if op is not None and op in self.roots:
                found.add(self.roots[op])
            elif op is not None and op.name.startswith("ttg.memdesc_"):
                pending.add(op.operands[:1])
            elif op is not None and op.name == WAIT:
                pending.add([op.operands[one.index]])
            elif op is not None and op.name == "arith.select":
                pending.add(op.operands[1:])
            else:
                sources = list(self.flow.sources(one))
                if not sources:
                    return frozenset(range(len(self.program.roots)))
                pending.add(sources)
        return frozenset(found)

    def _names_of_roots(self) -> dict[int, str]:
        votes: dict[int, Counter[str]] = {}
        fills: dict[int, str] = {}
        for op in self.program.module.walk():
            if op.name.startswith("ttng.") and "barrier" in op.name and op.operands:
                root = self.root(op.operands[0])
                if root is not None:
                    self.barriers.add(root)
                    self.fed.update([root] if op.name == _LANDED else [])
            if op.name in _FEED:
                barrier, buffer = [v for v in op.operands if "memdesc" in str(v.type)[:12]][:2]
                roots = self.root(barrier), self.root(buffer)
                if roots[0] is not None:
                    self.fed.add(roots[0])
                if roots[1] is not None and (name := value_name(op.location) or value_name(_made(buffer))):
                    fills.setdefault(roots[1], name)
            if op.name.startswith("ttg.memdesc_") and (name := value_name(op.location)):
                root = self.root(op.operands[0])
                if root is not None:
                    votes.setdefault(root, Counter())[name] += 1
        found = {}
        for number, op in enumerate(self.program.roots):
            if op.name != "ttg.local_alloc":
                found[number] = f"the scratch of {op.name}"
                continue
            own = fills.get(number) or value_name(op.location)
            best = votes.get(number, Counter()).most_common(1)
            found[number] = own or (best[0][0] if best else f"buffer {number}")
        return found

    def of_step(self, step: c.Step) -> Iterator[tuple[Role, frozenset[int]]]:
        """What a step does to which allocations."""
        for role, value in _roles(step):
            if isinstance(step, c.Allocate | c.Scratch):
                yield role, frozenset((step.root,))
            elif value is not None:
                yield role, self.may_be(value)

    def _names_of_tasks(self) -> list[str]:
        kinds = []
        for code in self.program.codes:
            dots = any(isinstance(step, c.Dot) for step in code.steps)
            loads = any(isinstance(step, c.Copy | c.CopyElements) for step in code.steps)
            kinds.append("mma" if dots else "load" if loads else code.name)
        if len(kinds) == 1:
            return ["kernel"]
        total = Counter(kinds)
        used: Counter[str] = Counter()
        names = []
        for kind in kinds:
            names.append(f"{kind} {used[kind]}" if total[kind] > 1 else kind)
            used[kind] += 1
        return names

    def task(self, index: int) -> str:
        return f"task '{self.tasks[index]}'" if len(self.tasks) > 1 else "the kernel"

    def view(self, view: c.View) -> str:
        """`full[k].0`, `k.0`, ..."""
        name, path = self.called[view.root], view.path
        if view.root in self.barriers:
            name = f"{'full' if view.root in self.fed else 'empty'}[{name}]"
        return ".".join([name, *map(str, path[:1])])

    def last_op(self, index: int) -> Operation:
        return self.program.codes[index].steps[-1].op

    # ---- findings

    def race(
        self, index: int, view: c.View, touch: Touch, writes: bool, before: Touch, wrote: bool, part: c.View
    ) -> Finding:
        """`part` is what was touched before: of the same allocation, or of one that has the same bytes."""
        now, then = _verb(touch, writes), _verb(before, wrote)
        other = f"{self.task(before.task)} may still be {_ing(before, wrote)} it"
        message = f"{self.task(index)} {now} {self.view(view)} while {other}"
        same = part.root == view.root
        if not same:
            other = f"{self.task(before.task)} may still be {_ing(before, wrote)} {self.view(part)}"
            message = f"{self.task(index)} {now} {self.view(view)}, which has the same memory, while {other}"
        path = (
            (f"{self.tasks[before.task]}  {then} {self.view(view if same else part)}", before.op.location),
            (f"{self.tasks[index]}  {now} {self.view(view)}, and nothing makes it come after", touch.op.location),
        )
        if writes and not wrote:
            note = (
                "release the buffer only after its last read is complete, and wait for that release before filling it"
            )
        elif wrote and not writes:
            note = "wait on the barrier that this copy completes before reading the buffer"
        else:
            note = "two writes need an order: wait for the release of the buffer before filling it again"
        return Finding("error", "race", message, touch.op.location, path, note)

    def unfenced(self, index: int, view: c.View, touch: Touch, before: Touch, wrote: bool, part: c.View) -> Finding:
        what = "wrote" if wrote else "read"
        does = f"{self.task(index)} {_verb(touch, touch.unit == 'tile')} {self.view(view)}"
        it = "it" if part.root == view.root else f"{self.view(part)}, in the same memory,"
        message = f"{does} through the asynchronous proxy; threads {what} {it} and no proxy fence comes between"
        was = view if part.root == view.root else part
        path = (
            (f"{self.tasks[before.task]}  {_verb(before, wrote)} {self.view(was)}", before.op.location),
            (f"{self.tasks[index]}  {touch.op.name}", touch.op.location),
        )
        after = "write" if wrote else "read"
        note = f"put a ttng.fence_async_shared after the {after}, before the barrier that hands the buffer on"
        # What another task wrote has been there since a barrier: PTX wants a fence, but no run was ever wrong.
        handed_on = touch.unit != "tile" and before.task != touch.task
        by_copy = before.op.name == "ttg.async_copy_global_to_local"
        kind: Kind = "undecided" if handed_on or by_copy else "error"
        return Finding(kind, "missing-fence", message, touch.op.location, path, note)

    def unfinished(self, view: c.View, before: Touch) -> Finding:
        message = f"the kernel may end while {before.op.name} still uses {self.view(view)}"
        return Finding("error", "in-flight", message, before.op.location, note="wait for it before the end")

    def wrong_size(self, index: int, op: Operation, view: c.Content, box: int, room: int) -> Finding:
        buffer = self.view(view) if isinstance(view, c.View) else "a buffer"
        message = f"{self.task(index)} copies {box} bytes into {buffer}, which has {room}"
        note = "make the box of the descriptor as large as the buffer"
        return Finding("error", "bytes", message, op.location, note=note)

    def early_arrival(self, index: int, op: Operation, view: c.View) -> Finding:
        message = f"{self.task(index)} may arrive on {self.view(view)} before its phase has begun"
        note = "wait for what shows that the phase before is complete; otherwise two phases count the same arrival"
        return Finding("error", "arrivals", message, op.location, note=note)

    def over_arrival(self, op: Operation, view: c.View, barrier: Barrier) -> Finding:
        path = tuple((f"{self.tasks[task]}  arrives", other.location) for task, other in barrier.arrivals[-4:])
        message = (
            f"{self.view(view)} gets {barrier.arrived} arrivals in one phase and is initialized for {barrier.count}"
        )
        return Finding("error", "arrivals", message, op.location, path, "make the count and the arrivals agree")

    def missed_phase(self, task: int, wait: Operation, view: c.View, barrier: Barrier) -> Finding:
        phase = f"phase {(barrier.completions - 1) % 2} of {self.view(view)}"
        message = f"{self.task(task)} may miss {phase}: the phase after it can be complete before it looks"
        late = barrier.arrivals[-3:]
        path = tuple((f"{self.tasks[other]}  arrives for the phase after", op.location) for other, op in late)
        note = "let the task that waits arrive before the barrier is used again"
        return Finding("error", "phase", message, wait.location, path, note)

    def early_wait(self, index: int, op: Operation, view: c.View, barrier: Barrier) -> Finding:
        what = f"{self.task(index)} waits for phase {(barrier.completions - 1) % 2} of {self.view(view)}"
        message = f"{what} and may see the one two before instead, which has the same parity"
        note = "make sure that the phase in between is complete before this wait"
        return Finding("error", "phase", message, op.location, note=note)

    def deadlock(self, state: State, barrier_of: Callable[[c.View], c.View | None]) -> Finding:
        """Who waits for what, and what the others would have to do first."""
        steps: list[tuple[str, Location]] = []
        note = ""
        width = max(map(len, self.tasks))
        first: Operation | None = None
        waiting = []
        for index, task in enumerate(state.tasks):
            if not task.active or task.done:
                continue
            step = self.program.codes[index].steps[task.pc]
            name = f"{self.tasks[index]:<{width}}"
            if isinstance(step, c.Wait):
                view, phase = task.registers[step.barrier], task.registers[step.phase]
                assert isinstance(view, c.View)
                key = barrier_of(view)
                assert key is not None
                view, barrier = key, state.barriers[key]
                first = first or step.op
                waiting.append(self.tasks[index])
                steps.append((f"{name}  waits for {self.view(view)} phase {phase}", step.op.location))
                steps += self._lacking(state, view, barrier, width)
                note = note or self._advice(view, barrier, phase)
            elif isinstance(step, c.Named):
                first = first or step.op
                waiting.append(self.tasks[index])
                steps.append((f"{name}  waits on named barrier {step.number}", step.op.location))
        place = first.location if first is not None else self.program.module.location
        who = " and ".join(f"'{one}'" for one in waiting)
        if len(waiting) > 1:
            message = f"tasks {who} wait for each other forever"
        else:
            message = f"task {who} waits forever" if len(self.tasks) > 1 else "the kernel waits forever"
        return Finding("error", "deadlock", message, place, tuple(steps) + choices(state), note)

    def _lacking(self, state: State, view: c.View, barrier: Barrier, width: int) -> list[tuple[str, Location]]:
        """What the barrier still needs, and where those stand who could give it."""
        found: list[tuple[str, Location]] = []
        if barrier.arrived >= barrier.count and barrier.bytes:
            size = abs(barrier.bytes)
            what = f"{size} bytes never come" if barrier.bytes > 0 else f"{size} bytes more come than are expected"
            text = f"{'':<{width}}  all arrived, but {what}"
            return [(text, (barrier.arrivals[-1][1] if barrier.arrivals else self.program.module).location)]
        for index, code in enumerate(self.program.codes):
            later = [s for s in code.steps if isinstance(s, c.Arrive | c.Expect) and self._about(s, view)]
            if later:
                task = state.tasks[index]
                over = " but has ended" if task.done else ""
                text = f"{self.tasks[index]:<{width}}  arrives on it here{over}"
                found.append((text, later[0].op.location))
        if not found:
            found.append((f"{'':<{width}}  nobody arrives on it", self.program.roots[view.root].location))
        return found[:3]

    def _about(self, step: c.Arrive | c.Expect, view: c.View) -> bool:
        return self.root(step.op.operands[0]) == view.root

    def _advice(self, view: c.View, barrier: Barrier, phase: c.Content) -> str:
        if barrier.bytes and barrier.arrived >= barrier.count:
            return f"{self.view(view)} expects bytes that no copy brings; make the expected size that of the copies"
        if barrier.completions == 0 and phase == 0 and view.root not in self.fed:
            return f"{self.view(view)} is still in phase 0; a producer's first wait must ask for phase 1"
        if barrier.arrived:
            return f"{self.view(view)} has {barrier.arrived} of {barrier.count} arrivals in this phase"
        return ""


def choices(state: State) -> tuple[tuple[str, Location], ...]:
    """The last decisions that led to a state."""
    return tuple((f"when {text}", op.location) for op, text in state.taken[-2:])


def _roles(step: c.Step) -> Iterator[tuple[Role, Value | None]]:
    """What a step does to which buffers or barriers."""
    buffers = [value for value in step.op.operands if isinstance(value.type, MemDescType)]
    match step:
        case c.Scratch(read=read):
            yield "writes", None
            if read:
                yield "reads", None
        case c.Allocate(filled=filled):
            again = filled or any(op.name in ("scf.for", "scf.while") for op in step.op.ancestors())
            yield "writes" if again else "uses", None
        case c.Access(writes=writes):
            yield "writes" if writes else "reads", buffers[0]
        case c.Release():
            yield "writes", buffers[0]
        case c.Copy():
            yield "arrives", buffers[0]
            yield "writes", buffers[1]
        case c.StoreTile():
            yield "reads", buffers[0]
        case c.CopyElements():
            yield "writes", buffers[0]
        case c.Dot():
            yield from (("reads", value) for value in buffers)
        case c.Wait():
            yield "waits", buffers[0]
        case c.Arrive() | c.Expect() | c.ArriveElements():
            yield "arrives", buffers[0]
        case c.Init() | c.Invalidate():
            yield "uses", buffers[0]


def _made(value: Value) -> Location:
    return value.op.location if value.op is not None else value.location


def _verb(touch: Touch, writes: bool) -> str:
    if touch.op.name in _FEED:
        return "fills"
    return "writes" if writes else "reads"


def _ing(touch: Touch, writes: bool) -> str:
    return "filling" if touch.op.name in _FEED else "writing" if writes else "reading"

"""Does the machine code synchronize in the order of the PTX that it was made of?

Both are automata: which synchronizing instruction may follow which. Every way through the machine code, whose
predicates are followed from where they are tested to where they are tested again, must be a way through the PTX; so
loops may be unrolled and peeled, and code doubled. What ptxas adds on its own is let pass: waits for products and for
copies, proxy fences, and a second try where registers are asked for; behind the acquisition of a descriptor also the
end of a group of stores, where no wait leaves groups under way. What it leaves out, too: a wait for products of which
all are done, and one for copies that stands earlier, as among products, with nothing copied since. It moves the end of
a group of stores past what has nothing to do with it: that is looked at together with stores and waits for them alone.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from wspec.bridge.sass.skeleton import Block, Label, Step, skeleton, without_retries
from wspec.ptx import flow
from wspec.ptx.effects import BULK_COPIES
from wspec.ptx.errors import PtxError
from wspec.ptx.operands import Number, Operand, Register, number_of
from wspec.ptx.syntax import Instruction, Module
from wspec.ptx.validation.validate import Validation

MOST_STATES = 100_000
_EXTRA = frozenset(("product wait", "copies wait", "fence", "product fence"))
_STORES = frozenset(("store", "reduce", "commit", "flush", "copies wait"))
_ENDS = frozenset(("commit", "flush"))
_COUNTED = frozenset(("product wait", "copies wait", "fewer", "more"))
_REGISTERS = frozenset(("fewer", "more"))
_FOR_ALL = Label("product wait", 0)
_PRODUCTS_DONE, _COPIES_DONE = 1, 2
_COPIES = frozenset(("store", "reduce", "commit", "flush", "element", "element commit"))
_PTX = (
    ("mbarrier.try_wait", "wait"), ("mbarrier.test_wait", "wait"), ("mbarrier.arrive.expect_tx", "expect"),
    ("mbarrier.arrive", "arrive"), ("mbarrier.init", "init"), ("mbarrier.inval", "inval"),
    ("cp.async.mbarrier.arrive", "element arrive"), ("cp.async.ca", "element"), ("cp.async.cg", "element"),
    ("cp.async.commit_group", "element commit"), ("cp.async.bulk.commit_group", "commit"),
    ("cp.reduce.async.bulk.tensor", "reduce"), ("fence.proxy.async", "fence"), ("griddepcontrol.wait", "grid wait"),
    ("griddepcontrol.launch", "grid launch"), ("wgmma.mma_async", "product"), ("wgmma.fence", "product fence"),
)  # fmt: skip


def keeps_order(said: Validation, expected: Expected | None, cubin: bytes) -> Validation:
    """What is said of a PTX, with what its machine code makes of it. Never raises. `expected`: of the PTX.

    Where PTX, binary or its ways cannot be followed they are not compared, and nothing is refused for that.
    """
    code = None if expected is None else skeleton(cubin)
    found = Compared(followed=False) if expected is None or code is None else compare(expected, code)
    if found.difference:
        return Validation(f"{said.summary}; SASS: another order", f"in the machine code {found.difference}")
    return Validation(f"{said.summary}; SASS: {'the same order' if found.followed else 'not compared'}")


_ALL = (
    frozenset(label for _, label in _PTX) | _STORES | _COUNTED | {"bar.sync", "bar.arrive", "load", "arrive or expect"}
)


@dataclass(frozen=True, slots=True)
class Compared:
    """What came of it."""

    difference: str = ""  # where the machine code does what the PTX does not; "" of none
    followed: bool = True  # False: too many states


@dataclass(frozen=True, slots=True)
class Expected:
    """What the entry of a PTX does: once of everything, once of stores alone."""

    blocks: Sequence[flow.Block]
    labels: Sequence[Sequence[tuple[Instruction, Label]]]
    all: Automaton
    stores: Automaton

    @staticmethod
    def of(module: Module) -> Expected | None:
        """None where its control flow cannot be read."""
        try:
            blocks = flow.blocks_of(module.entry())
            labels = [[(one, label) for one in executed(block) if (label := label_of(one))] for block in blocks]
            whole, stores = (Automaton(blocks, labels, kinds) for kinds in (_ALL - _ENDS, _STORES))
        except PtxError:
            return None
        return Expected(blocks, labels, whole, stores)

    def without_registers(self) -> Automaton:
        """Of everything but `setmaxnreg`."""
        return Automaton(self.blocks, self.labels, self.all.kinds - _REGISTERS)


def executed(block: flow.Block) -> Iterator[Instruction]:
    """Without those under a predicate that is false there: what LLVM leaves of a first iteration that it took out of
    its loop, in which nothing is handed back. ptxas drops them."""
    never: set[str] = set()
    for one in block.instructions:
        if one.guard not in never or one.unless:
            yield one
        never = {name for name in never if name.split("#")[0] not in one.text}
        if one.opcode == "mov.pred" and not one.guard:
            to, what = one.operands
            if isinstance(to, Register) and what == Number("0"):
                never.add(to.name)


def compare(expected: Expected, code: Sequence[Block]) -> Compared:
    """What the PTX does, and its machine code.

    ptxas may leave out every `setmaxnreg` (C7507, "ignored to maintain minimum register requirements"): then no warp
    waits for registers, and all have those of the launch.
    """
    there = {step.label.name for block in code for step in block.steps if step.label is not None}
    whole = expected.all if there & _REGISTERS else expected.without_registers()
    parts = [_compare(one, code) for one in (whole, expected.stores)]
    return next((one for one in parts if one.difference), next((one for one in parts if not one.followed), Compared()))


def _compare(ptx: Automaton, code: Sequence[Block]) -> Compared:
    return _walk(ptx, code) or _lost(ptx, code) or Compared()


def _lost(ptx: Automaton, code: Sequence[Block]) -> Compared | None:
    """Is an instruction under a predicate nowhere in the machine code?"""
    nearest = Nearest(ptx)
    if (stopped := _walk(nearest, without_retries(code))) is not None:
        return stopped
    lost = nearest.lost()
    return None if lost is None else Compared(f"{_shown(lost)}, which the PTX has under a predicate, is not found")


def _walk(ptx: Automaton | Nearest, code: Sequence[Block]) -> Compared | None:
    """All ways through the machine code; None where nothing is in the way."""
    steps = [_left(block.steps, ptx.kinds) for block in code]
    begin = (0, 0, 0, ptx.begin)  # block, known predicates, those that hold, what may come next in the PTX
    seen, work = {begin}, [begin]
    while work:
        number, known, holding, may = work.pop()
        block = code[number]
        for now in _through(steps[number], (known, holding, may), ptx):
            if isinstance(now, str):
                return Compared(now)
            known, holding, after = now
            if block.ends and _may(block.guard, block.unless, known, holding) and not ptx.may_end(after):
                return Compared("it ends where the PTX goes on")
            for way, taken in _ways(block):
                if block.guard is not None:
                    expected = taken != block.unless
                    if known >> block.guard & 1 and bool(holding >> block.guard & 1) != expected:
                        continue
                    bit = 1 << block.guard
                    on = known | bit, holding | bit if expected else holding & ~bit
                else:
                    on = known, holding
                need = code[way].needs
                state = way, on[0] & need, on[0] & on[1] & need, after
                if state not in seen:
                    seen.add(state)
                    work.append(state)
        if len(seen) > MOST_STATES:
            return Compared(followed=False)
    return None


def _left(steps: Sequence[Step], kinds: frozenset[str]) -> list[Step]:
    """Those that are looked at; of the others, what they change."""
    return [
        one if one.label is None or one.label.name in kinds else Step(None, None, False, one.changes) for one in steps
    ]


def _ways(block: Block) -> Iterator[tuple[int, bool]]:
    yield from ((way, True) for way in block.taken)
    if block.falls is not None:
        yield block.falls, False


def _may(guard: int | None, unless: bool, known: int, holding: int) -> bool:
    """May something under a predicate be executed?"""
    return guard is None or not known >> guard & 1 or bool(holding >> guard & 1) != unless


May = tuple[int, ...]
"""What may come next in the PTX, a set of points as a set of bits, and what is done, all products or copies; then more
sets of points. Empty: nothing."""

_Now = tuple[int, int, May]  # known predicates, those that hold, what may come next


def _through(steps: Sequence[Step], begin: _Now, ptx: Automaton | Nearest) -> Iterator[_Now | str]:
    """What may be behind them; or what the PTX does not do."""
    ways = {begin}
    for step in steps:
        found: set[_Now] = set()
        for known, holding, may in ways:
            if step.label is None:
                found.add((known & ~step.changes, holding & ~step.changes, may))
                continue
            bit = 0 if step.guard is None else 1 << step.guard
            if _may(step.guard, step.unless, known, holding):
                after = ptx.after(may, step.label)
                if not after:
                    yield f"{_shown(step.label)} stands where the PTX has nothing like it"
                    return
                on = holding & ~bit if step.unless else holding | bit
                found.add(((known | bit) & ~step.changes, on & ~step.changes, after))
            if bit and _may(step.guard, not step.unless, known, holding):
                off = holding | bit if step.unless else holding & ~bit
                found.add(((known | bit) & ~step.changes, off & ~step.changes, may))
        ways = found
    yield from ways


def _shown(label: Label) -> str:
    numbers = label[1:] if label.name in ("bar.sync", "bar.arrive") else label[1:2] if label.name in _COUNTED else ()
    return f"{label.name} {', '.join(map(str, numbers))}".rstrip()


# --------------------------------------------------------------------------------------------------- of the PTX


@dataclass(slots=True)
class Point:
    """An instruction that synchronizes."""

    label: Label
    number: int
    guard: str  # its predicate; "" of one that is always executed
    next: int = 0  # the set of points that come right behind it
    follow: int = 0  # and those behind what may be left out


class Automaton:
    """Of the PTX, as far as these kinds go. Sets of points are sets of bits; the last one is the end."""

    def __init__(
        self,
        blocks: Sequence[flow.Block],
        labels: Sequence[Sequence[tuple[Instruction, Label]]],  # of each block, those of its instructions that have one
        kinds: frozenset[str] = _ALL,
    ) -> None:
        self.kinds = kinds
        self.points: list[Point] = []
        self._of: dict[Label, int] = {}
        inside: list[list[Point]] = [[] for _ in blocks]
        for block in blocks:
            for one, label in labels[block.number]:
                if label.name in kinds:
                    guard = f"{'!' if one.unless else ''}{one.guard}" if one.guard else ""
                    inside[block.number].append(Point(label, len(self.points), guard))
                    self.points.append(inside[block.number][-1])
        self.end = len(self.points)
        self._optional = sum(1 << point.number for point in self.points if point.guard)
        products, copies = (
            sum(1 << point.number for point in self.points if point.label.name == f"{kind} wait")
            for kind in ("product", "copies")
        )
        self._waits = (0, products, copies, products | copies)  # that have nothing to wait for, by what is done
        waits = [point.label for point in self.points if point.label.name == "copies wait"]
        self.extra = _EXTRA if any(label.first for label in waits) else _EXTRA | {"flush"}
        first = self._link(blocks, inside)
        self.first = first
        self.begin: May = (self._closed(first, self._optional), _PRODUCTS_DONE)
        for point in self.points:
            again = 1 << point.number if point.label.name == "more" else 0  # until it is given them
            point.follow = self._closed(point.next, self._optional) | again

    def _link(self, blocks: Sequence[flow.Block], inside: Sequence[Sequence[Point]]) -> int:
        """What comes right behind what; the points that come first."""
        first = [0] * len(blocks)
        changed = True
        while changed:
            changed = False
            for block in reversed(blocks):
                turn = block.turn
                now = 1 << self.end if turn is not None and turn.name in flow.ENDS else 0
                for way in block.follow:
                    now |= first[way]
                for point in reversed(inside[block.number]):
                    point.next, now = now, 1 << point.number
                changed = changed or now != first[block.number]
                first[block.number] = now
        return first[0]

    def _closed(self, points: int, optional: int) -> int:
        """With all that comes behind those that may be left out."""
        left = points & optional
        while left:
            more = 0
            for number in bits_of(left):
                more |= self.points[number].next
            left = more & ~points & optional
            points |= more
        return points

    def like(self, label: Label) -> int:
        """The points that an instruction of the machine code may be."""
        if label not in self._of:
            self._of[label] = sum(1 << point.number for point in self.points if _is(point.label, label))
        return self._of[label]

    def after(self, may: May, label: Label) -> May:
        """What may come behind an instruction of the machine code; nothing where it may not come."""
        before, done = self.now(may), may[1]
        found = before if label.name in self.extra else 0
        for number in bits_of(before & self.like(label)):
            found |= self.points[number].follow
        return (found, _done(done, label)) if found else ()

    def now(self, may: May) -> int:
        """The points that may come: where all products or copies are done, also those behind waits for them."""
        return self._closed(may[0], self._optional | self._waits[may[1]]) if may[1] else may[0]

    def past_waits(self, points: int, done: int) -> int:
        """With all that comes behind waits for what is done."""
        return self._closed(points, self._waits[done])

    def may_end(self, may: May) -> bool:
        return bool(self.now(may) >> self.end & 1)


class Nearest:
    """Of the same, with each instruction of the machine code taken for the nearest that it may be: what is under one
    predicate is executed together, and of others as few as possible are left out. Notes what was found."""

    def __init__(self, ptx: Automaton) -> None:
        self._ptx, self.kinds = ptx, ptx.kinds
        self._found = 0
        self._ranks: dict[tuple[int, int], May] = {}
        self.begin: May = (*ptx.begin, *self._ranked(ptx.first, "", ptx.begin[1]))

    def _ranked(self, points: int, guard: str, done: int) -> May:
        """Points, those behind what is left out, and so on; `guard`: of what was executed.

        Where all products or copies are done, a wait for them is nothing that is left out.
        """
        first = self._ptx.past_waits(points, done)
        ranks, seen = [first], first
        while True:
            more = 0
            for number in bits_of(ranks[-1]):
                point = self._ptx.points[number] if number < self._ptx.end else None
                if point is not None and point.guard and point.guard != guard:
                    more |= point.next
            more = self._ptx.past_waits(more, done) & ~seen
            if not more:
                return tuple(ranks)
            ranks.append(more)
            seen |= more

    def after(self, may: May, label: Label) -> May:
        full, done, *ranks = may
        on = self._ptx.after((full, done), label)
        like = self._ptx.like(label)
        found = next((rank & like for rank in ranks if rank & like), 0)
        if not found and label.name in self._ptx.extra:
            return (*on, *ranks)
        found = found or self._ptx.now((full, done)) & like
        self._found |= found
        return (*on, *self._merged(found, on[1])) if on else ()

    def _merged(self, found: int, done: int) -> May:
        key = found, done
        if key not in self._ranks:
            points = map(self._point, bits_of(found))
            each = [self._ranked(point.next & ~(1 << point.number), point.guard, done) for point in points]
            longest = max(map(len, each), default=0)
            self._ranks[key] = tuple(sum_of(ranks[at] for ranks in each if at < len(ranks)) for at in range(longest))
        return self._ranks[key]

    def _point(self, number: int) -> Point:
        return self._ptx.points[number]

    def may_end(self, may: May) -> bool:
        return self._ptx.may_end(may)

    def lost(self) -> Label | None:
        """Of an instruction under a predicate that no instruction of the machine code was taken for. One beside another
        of the same kind, under another predicate, may be that one: either is executed. Not so of copies, which
        follow each other where they arrive at one barrier."""
        for point in self._ptx.points:
            if point.guard and not self._found >> point.number & 1:
                beside = [other for other in self._ptx.points if other.label == point.label
                          and other.guard not in ("", point.guard) and point.label.name != "load"
                          and (other.next >> point.number & 1 or point.next >> other.number & 1)]  # fmt: skip
                if not any(self._found >> other.number & 1 for other in beside):
                    return point.label
        return None


def _done(done: int, label: Label) -> int:
    """What is done behind an instruction, given what was done before it."""
    if label.name == "product":
        return done & ~_PRODUCTS_DONE
    if label == _FOR_ALL:
        return done | _PRODUCTS_DONE
    if label.name in _COPIES:
        return done & ~_COPIES_DONE
    return done | _COPIES_DONE if label == Label("copies wait", 0) else done


def bits_of(found: int) -> Iterator[int]:
    """The numbers of a set."""
    while found:
        lowest = found & -found
        yield lowest.bit_length() - 1
        found ^= lowest


def sum_of(sets: Iterable[int]) -> int:
    """All numbers of some sets."""
    return functools.reduce(operator.or_, sets, 0)


def _is(point: Label, label: Label) -> bool:
    """May an instruction of the machine code be that of the PTX?"""
    if label.name == "arrive or expect":
        return point.name in ("arrive", "expect")
    if label.name == "flush":
        return point.name == "commit"
    if label.name in ("product wait", "copies wait"):
        return point.name == label.name and label.first <= point.first  # for as much, or more
    return point == label


def label_of(one: Instruction) -> Label | None:
    """What an instruction of the PTX does; None of what computes, or need not be there again. Raises PtxError."""
    name, place = _named(one.opcode)
    if name is None:
        return None
    if name == _REDUCING_BARRIER:
        raise PtxError(f"'{one}' is not compared")
    return Label(name, *map(_number, one.operands[:place]))


_REDUCING_BARRIER = "bar.red"


@functools.lru_cache(maxsize=1024)
def _named(opcode: str) -> tuple[str | None, int]:
    """A label's name and how many operands, from the first on, are its numbers."""
    if opcode.startswith(("bar.", "barrier.")) and not opcode.startswith("bar.warp"):
        kind = "bar.arrive" if ".arrive" in opcode else "bar.sync"
        return (_REDUCING_BARRIER if ".red" in opcode else kind), 2
    if opcode.startswith("wgmma.wait_group"):
        return "product wait", 1
    if opcode.startswith(("cp.async.wait_group", "cp.async.bulk.wait_group")):
        return "copies wait", 1
    if opcode.startswith("setmaxnreg."):
        return ("fewer" if ".dec" in opcode else "more"), 1
    if opcode.startswith(BULK_COPIES):
        reduces = opcode.startswith("cp.reduce")
        return ("reduce" if reduces else "load" if ".mbarrier::complete_tx" in opcode else "store"), 0
    return next((label for begin, label in _PTX if opcode.startswith(begin)), None), 0


def _number(operand: Operand) -> int:
    if (found := number_of(operand)) is None:
        raise PtxError("a number of a barrier is not known")
    return found

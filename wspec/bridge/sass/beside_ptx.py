"""Does the machine code synchronize in the order of the PTX that it was made of?

Both are automata: which synchronizing instruction may follow which. Every way through the machine code, whose
predicates are followed from where they are tested to where they are tested again, must be a way through the PTX; so
loops may be unrolled and peeled, and code doubled. What ptxas adds on its own is let pass: waits for products and for
copies, proxy fences, and a second try where registers are asked for.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from wspec.bridge.sass.skeleton import Block, Label, Step
from wspec.ptx import flow
from wspec.ptx.errors import PtxError
from wspec.ptx.operands import Number, Operand
from wspec.ptx.syntax import Function, Instruction

MOST_STATES = 100_000
_EXTRA = frozenset(("product wait", "copies wait", "fence", "product fence"))
_PTX = (
    ("mbarrier.try_wait", "wait"), ("mbarrier.test_wait", "wait"), ("mbarrier.arrive.expect_tx", "expect"),
    ("mbarrier.arrive", "arrive"), ("mbarrier.init", "init"), ("mbarrier.inval", "inval"),
    ("cp.async.mbarrier.arrive", "element arrive"), ("cp.async.ca", "element"), ("cp.async.cg", "element"),
    ("cp.async.commit_group", "element commit"), ("cp.async.bulk.commit_group", "commit"),
    ("cp.reduce.async.bulk.tensor", "reduce"), ("fence.proxy.async", "fence"), ("griddepcontrol.wait", "grid wait"),
    ("griddepcontrol.launch", "grid launch"), ("wgmma.mma_async", "product"), ("wgmma.fence", "product fence"),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Compared:
    """What came of it."""

    difference: str = ""  # where the machine code does what the PTX does not; "" of none
    followed: bool = True  # False: too many states


def compare(entry: Function, code: Sequence[Block]) -> Compared:
    """Raises PtxError where the PTX's control flow cannot be read."""
    ptx = _Automaton(entry)
    begin = (0, 0, 0, ptx.begin)  # block, known predicates, those that hold, what may come next in the PTX
    seen, work = {begin}, [begin]
    while work:
        number, known, holding, may = work.pop()
        block = code[number]
        for now in _through(block.steps, (known, holding, may), ptx):
            if isinstance(now, str):
                return Compared(now)
            known, holding, after = now
            if block.ends and _may(block.guard, block.unless, known, holding) and not after >> ptx.end & 1:
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
    return Compared()


def _ways(block: Block) -> Iterator[tuple[int, bool]]:
    yield from ((way, True) for way in block.taken)
    if block.falls is not None:
        yield block.falls, False


def _may(guard: int | None, unless: bool, known: int, holding: int) -> bool:
    """May something under a predicate be executed?"""
    return guard is None or not known >> guard & 1 or bool(holding >> guard & 1) != unless


_Now = tuple[int, int, int]  # known predicates, those that hold, what may come next in the PTX


def _through(steps: Sequence[Step], begin: _Now, ptx: _Automaton) -> Iterator[_Now | str]:
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
    name, *numbers = label
    return f"{name} {', '.join(map(str, numbers))}".rstrip()


@dataclass(slots=True)
class _Point:
    label: Label
    number: int
    may_be_left_out: bool
    follow: int = 0  # the set of points that may come next


@dataclass(slots=True)
class _Automaton:
    """Of the PTX. Sets of points are sets of bits; the last one is the end."""

    entry: Function
    points: list[_Point] = field(default_factory=list)
    begin: int = 0
    end: int = 0
    _of: dict[Label, int] = field(default_factory=dict)  # the points that a label of the machine code may be

    def __post_init__(self) -> None:
        blocks = flow.blocks_of(self.entry)
        inside: list[list[_Point]] = [[] for _ in blocks]
        for block in blocks:
            for one in block.instructions:
                label = label_of(one)
                if label is not None:
                    inside[block.number].append(_Point(label, len(self.points), bool(one.guard)))
                    self.points.append(inside[block.number][-1])
        self.end = len(self.points)
        first = [0] * len(blocks)
        changed = True
        while changed:
            changed = False
            for block in reversed(blocks):
                now = self._behind(block, first)
                for point in reversed(inside[block.number]):
                    point.follow = now
                    if point.label[0] == "more":
                        point.follow |= 1 << point.number  # until it is given them
                    now = 1 << point.number | (now if point.may_be_left_out else 0)
                changed = changed or now != first[block.number]
                first[block.number] = now
        self.begin = first[0]

    def _behind(self, block: flow.Block, first: Sequence[int]) -> int:
        turn, found = block.turn, 0
        if turn is not None and turn.name in flow.ENDS:
            found |= 1 << self.end
        for way in block.follow:
            found |= first[way]
        return found

    def after(self, may: int, label: Label) -> int:
        """What may come behind an instruction of the machine code; nothing where it may not come."""
        if label not in self._of:
            self._of[label] = sum(1 << point.number for point in self.points if _is(point.label, label))
        left = may & self._of[label]
        found = may if label[0] in _EXTRA else 0
        while left:
            point = left & -left
            found |= self.points[point.bit_length() - 1].follow
            left ^= point
        return found


def _is(point: Label, label: Label) -> bool:
    """May an instruction of the machine code be that of the PTX?"""
    if label[0] == "arrive or expect":
        return point[0] in ("arrive", "expect")
    if label[0] in ("product wait", "copies wait"):
        return point[0] == label[0] and label[1] <= point[1]  # for as much, or more
    return point == label


def label_of(one: Instruction) -> Label | None:
    """What an instruction of the PTX does; None of what the machine code need not have, or computes. Raises PtxError."""
    opcode = one.opcode
    if one.name in ("bar", "barrier") and not opcode.startswith("bar.warp"):
        kind = "bar.arrive" if ".arrive" in opcode else "bar.sync"
        if ".red" in opcode:
            raise PtxError(f"'{one}' is not compared")
        return (kind, *(_number(operand) for operand in one.operands), *([0] if len(one.operands) < 2 else []))
    if opcode.startswith("wgmma.wait_group"):
        return ("product wait", _number(one.operands[0]))
    if opcode.startswith(("cp.async.wait_group", "cp.async.bulk.wait_group")):
        return ("copies wait", _number(one.operands[0]))
    if one.name == "setmaxnreg":
        return ("fewer" if ".dec" in opcode else "more", _number(one.operands[0]))
    if opcode.startswith(("cp.async.bulk.tensor.", "cp.reduce.async.bulk.tensor.")):
        reduces = opcode.startswith("cp.reduce")
        return ("reduce" if reduces else "load" if ".mbarrier::complete_tx" in opcode else "store",)
    return next(((label,) for begin, label in _PTX if opcode.startswith(begin)), None)


def _number(operand: Operand) -> int:
    if isinstance(operand, Number) and operand.value is not None:
        return operand.value
    raise PtxError("a number of a barrier is not known")

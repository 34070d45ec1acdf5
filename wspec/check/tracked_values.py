"""Which values the checker has to follow, and how exactly."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from wspec.check import assembly, scalars
from wspec.check.clock import Once, look, timed
from wspec.check.linear import constant
from wspec.ir import warp_specialize as ws
from wspec.ir.core import Block, Operation, Value
from wspec.ir.ops import info
from wspec.ir.types import MemDescType

STRUCTURE = frozenset(("scf.for", "scf.if", "scf.while", "scf.yield", "scf.condition", ws.NAME, "ttg.warp_yield"))
_ROUNDING = frozenset(("arith.divsi", "arith.divui", "arith.remsi", "arith.remui", "arith.shrsi", "arith.shrui"))
_RISING = frozenset(("arith.addi", "arith.muli", "arith.extsi", "arith.trunci", "arith.index_cast", "arith.maxsi"))
MAX_FLOOR = 32
MAX_STEPS = 5000  # of values looked at for one question
MAX_COUNTED = 24  # constant loops with more iterations than this are taken for loops of any length
_GROWING = frozenset(
    ("arith.addi", "arith.subi", "arith.muli", "arith.shli", "arith.divsi", "arith.divui", "arith.shrsi", "arith.shrui",
     "arith.extsi", "arith.extui", "arith.trunci", "arith.index_cast", "arith.maxsi", "arith.maxui")
)  # fmt: skip
DOT, WAIT = "ttng.warp_group_dot", "ttng.warp_group_dot_wait"


def is_active(op: Operation) -> bool:
    """May the operation, or one inside it, touch shared memory or a barrier, or do something unknown?"""
    return any(_is_active(inner) for inner in op.walk())


def _is_active(op: Operation) -> bool:
    if any(isinstance(value.type, MemDescType) for value in (*op.operands, *op.results)):
        return True
    row = info(op.name)
    if row is None:
        return True
    if op.name == assembly.NAME:
        return assembly.is_active(op)
    return op.name in (DOT, WAIT, ws.NAME) or bool((row.reads | row.writes) & {"shared", "barrier"})


class Flow:
    """Where values come from through loops, conditionals and partitions; a snapshot of one function."""

    def __init__(self, root: Operation) -> None:
        self.root = root
        self.floor = 0  # integers below it are told apart whatever their modulus
        self._unbounded: dict[Value, bool] = {}
        self._steps = 0  # of one question
        self.captured: dict[Value, Value] = {}
        self.targets: dict[Value, list[Value]] = {}  # value -> block arguments and results that take it over
        for op in timed(root.walk()):
            for target, source in _moves(op):
                self.targets.setdefault(source, []).append(target)
            if op.name == ws.NAME:
                for block in ws.partition_blocks(op):
                    self.captured.update(zip(block.args, op.operands, strict=False))

    def sources(self, value: Value) -> Iterator[Value]:
        """What a block argument or the result of a structured operation may be."""
        if value in self.captured:
            yield self.captured[value]
            return
        op = value.op
        if op is None:
            block = value.owner
            parent = block.parent_op if isinstance(block, Block) else None
            if parent is not None and parent.name == "scf.for":
                yield from _for_sources(parent, value.index - 1)
        elif op.name == "scf.for":
            yield from _for_sources(op, value.index)
        elif op.name == "scf.if":
            yield from (region.block.terminator.operands[value.index] for region in op.regions if region.blocks)
        elif op.name == ws.NAME:
            yield ws.default_block(op).terminator.operands[value.index]

    def unbounded(self, value: Value) -> bool:
        """Does the integer grow with the iterations of a loop that may have any number of them?"""
        if value not in self._unbounded:
            pending, found = Once([value]), False  # each value once: through many branches the ways are too many
            for one in pending:
                found = self._begins_to_grow(one)
                if found:
                    break
                pending.add(self._grown_from(one))
            self._unbounded[value] = found
        return self._unbounded[value]

    def _begins_to_grow(self, value: Value) -> bool:
        """Is it the position of a loop that may have any number of iterations, or added to in each of them?"""
        block = value.owner
        loop = block.parent_op if value.op is None and isinstance(block, Block) else None
        if loop is None or loop.name != "scf.for" or few_iterations(loop):
            return False
        return value.index == 0 or _adds(loop, value)

    def _grown_from(self, value: Value) -> Iterable[Value]:
        """What it grows with."""
        op = value.op
        if op is not None and op.name in _GROWING:
            return () if remainder(op) is not None else op.operands
        if op is not None and op.name not in STRUCTURE:
            return ()
        block = value.owner
        loop = block.parent_op if op is None and isinstance(block, Block) else None
        return () if loop is not None and loop.name == "scf.for" and value.index == 0 else self.sources(value)

    def positive(self, value: Value, inside: frozenset[Value] = frozenset()) -> bool:
        """Can the integer never be negative, short of an overflow? No as well where that takes too long to see."""
        look()
        self._steps = self._steps + 1 if inside else 0
        if value in inside:
            return True
        if self._steps > MAX_STEPS:
            return False
        op, inside = value.op, inside | {value}
        if op is not None and op.name not in STRUCTURE:
            if op.name == "arith.constant":
                return (constant(op) or 0) >= 0
            if op.name == "arith.select":
                return all(self.positive(operand, inside) for operand in op.operands[1:])
            if remainder(op) is not None or op.name in _ROUNDING:
                return self.positive(op.operands[0], inside)
            if op.name == "arith.andi":
                return any(self.positive(operand, inside) for operand in op.operands)
            if scalars.wraps(op):
                return False
            if op.name == "arith.trunci" and scalars.bits(op.results[0].type) < 32:
                return False  # where bits are cut off on purpose
            if op.name in _RISING:
                return all(self.positive(operand, inside) for operand in op.operands)
            return op.name == "arith.extui"
        sources = list(self.sources(value))
        return bool(sources) and all(self.positive(source, inside) for source in sources)

    def rounds_well(self, value: Value) -> bool:
        """Is the integer one that cannot be negative, less at most MAX_FLOOR? `floor` is raised to what is taken off.

        Its remainders and quotients then only depend on its remainder by some number, from `floor` on.
        """
        off = 0
        while value.op is not None and value.op.name in ("arith.addi", "arith.subi") and not scalars.wraps(value.op):
            by = _constant(value.op.operands[1])
            if by is None or remainder(value.op) is not None:
                break
            off += by if value.op.name == "arith.subi" else -by
            value = value.op.operands[0]
        if off > MAX_FLOOR or not self.positive(value):
            return False
        self.floor = max(self.floor, off)
        return True

    def running(self) -> set[Value]:
        """Values that may come from a tensor core operation that is not complete."""
        dots = (op for op in self.root.walk() if op.name == DOT and str(op.attr("isAsync")) == "true")
        waits: dict[Value, list[Value]] = {}
        for op in self.root.walk():
            if op.name == WAIT:
                for result, operand in zip(op.results, op.operands, strict=True):
                    waits.setdefault(operand, []).append(result)
        found = Once(dot.results[0] for dot in dots)
        for value in found:
            found.add(self.targets.get(value, []) + waits.get(value, []))
        return found.seen


def remainder(op: Operation) -> tuple[Value, int] | None:
    """(x, c) when the operation is the last of `x - x / c * c`: the remainder by a constant."""
    if op.name != "arith.subi" or scalars.wraps(op):
        return None
    product = op.operands[1].op
    if product is None or product.name != "arith.muli":
        return None
    quotient, by = product.operands[0].op, _constant(product.operands[1])
    if quotient is None or by is None or quotient.name not in ("arith.divsi", "arith.divui"):
        return None
    if quotient.operands[0] is not op.operands[0] or _constant(quotient.operands[1]) != by or by < 1:
        return None
    return op.operands[0], by


def _constant(value: Value) -> int | None:
    return constant(value.op) if value.op is not None and value.op.name == "arith.constant" else None


def _adds(loop: Operation, carried: Value) -> bool:
    """Does each iteration add to a carried value?"""
    source: Value = loop.regions[0].block.terminator.operands[carried.index - 1]
    steps = 0
    while source.op is not None and source.op.name in ("arith.addi", "arith.subi") and steps < 20:
        steps += 1
        left, right = source.op.operands
        source = left if right.op is not None and right.op.name == "arith.constant" else right
    return source is carried and steps > 0


def bounds(loop: Operation) -> tuple[int, int, int] | None:
    """Lower bound, upper bound and step of a loop with few iterations, all constant."""
    lower, upper, step = (_constant(v) for v in loop.operands[:3])
    if lower is None or upper is None or step is None or step <= 0:
        return None
    return (lower, upper, step) if upper - lower <= MAX_COUNTED * step else None


def few_iterations(loop: Operation) -> bool:
    """Are the iterations counted one by one?"""
    return bounds(loop) is not None


def _for_sources(loop: Operation, index: int) -> Iterator[Value]:
    if index < 0:
        yield from (loop.operands[0], loop.operands[2])
    else:
        yield from (loop.operands[3 + index], loop.regions[0].block.terminator.operands[index])


def _moves(op: Operation) -> Iterator[tuple[Value, Value]]:
    """(taker, taken) of values handed over by a loop or a conditional."""
    if op.name == "scf.for":
        block = op.regions[0].block
        yield from zip(block.args[1:], op.operands[3:], strict=True)
        yield from zip(block.args[1:], block.terminator.operands, strict=True)
        yield from zip(op.results, block.terminator.operands, strict=True)
        yield from zip(op.results, op.operands[3:], strict=True)
    elif op.name == "scf.if":
        for region in op.regions:
            if region.blocks:
                yield from zip(op.results, region.block.terminator.operands, strict=True)
    elif op.name == ws.NAME:
        yield from zip(op.results, ws.default_block(op).terminator.operands, strict=True)


def followed(flow: Flow, roots: Iterable[Value], unknown: frozenset[Value]) -> set[Value]:
    """The roots and everything they are computed from, as far as that can be known; `unknown` is not.

    What only goes into values that are not known is left out: asking for it would tell cases apart for nothing.
    """
    roots = list(roots)
    found = _ancestors(flow, roots) - unknown
    integers = [value for value in found if scalars.is_scalar(value.type)]
    users: dict[Value, list[Value]] = {}
    for value in timed(integers):
        for part in _parts(flow, value):
            users.setdefault(part, []).append(value)
    pending = integers
    while pending:
        look()
        value = pending.pop()
        if value in found and not _knowable(flow, value, found):
            found.remove(value)
            pending += users.get(value, ())
    return _ancestors(flow, roots, found)


def _knowable(flow: Flow, value: Value, known: set[Value]) -> bool:
    """May an integer be known when those are?"""
    op = value.op
    if op is None or op.name in STRUCTURE:
        sources = list(flow.sources(value))
        return bool(sources) and all(source in known for source in sources)
    if op.name == "arith.constant":
        return constant(op) is not None
    if op.name == "arith.select":
        return all(operand in known for operand in op.operands[1:])
    if op.name in ("arith.extui", "arith.extsi") and str(op.operands[0].type) == "i1":
        return True
    parts = _parts(flow, value)
    return bool(parts) and all(part in known for part in parts)


def _ancestors(flow: Flow, roots: Iterable[Value], among: set[Value] | None = None) -> set[Value]:
    """The roots and what they are computed from, of the values `among` (all)."""
    found = Once(value for value in roots if among is None or value in among)
    for value in found:
        found.add(part for part in _parts(flow, value) if among is None or part in among)
    return found.seen


def _parts(flow: Flow, value: Value) -> list[Value]:
    op = value.op
    if op is None or op.name in STRUCTURE:
        return list(flow.sources(value))
    if op.name == "arith.cmpi" and any(flow.unbounded(operand) for operand in op.operands):
        return []
    if scalars.function(op) is not None or op.name == "arith.select":
        return op.operands
    if isinstance(value.type, MemDescType) and op.name != "ttg.local_alloc":
        return op.operands
    if op.name == WAIT:
        return [op.operands[value.index]]
    return []


def moduli(flow: Flow, exact: Iterable[Value], values: set[Value]) -> dict[Value, int]:
    """Of each followed integer, what matters: see `scalars.operand_moduli`. `exact` values matter as they are."""
    found: dict[Value, int] = {}
    pending: list[tuple[Value, int]] = [(value, scalars.EXACT) for value in exact if value in values]
    while pending:
        look()
        value, wanted = pending.pop()
        before = found.get(value, scalars.NOTHING)
        after = scalars.join(before, wanted)
        if value in found and after == before:
            continue
        found[value] = after
        op = value.op
        if op is None or op.name in STRUCTURE:
            pending += [(source, after) for source in flow.sources(value) if source in values]
        elif scalars.function(op) is not None or op.name == "arith.select":
            if not _parts(flow, value):
                continue
            rest = remainder(op)
            if rest is not None and flow.rounds_well(rest[0]):
                if rest[0] in values:
                    pending.append((rest[0], rest[1] if after != scalars.NOTHING else after))
                continue
            known = tuple(_constant(v) for v in op.operands)
            if op.name in _ROUNDING and not flow.rounds_well(op.operands[0]):
                known = (None,) * len(known)
            wants = zip(op.operands, scalars.operand_moduli(op, after, known), strict=True)
            pending += [(operand, wish) for operand, wish in wants if operand in values]
    return found

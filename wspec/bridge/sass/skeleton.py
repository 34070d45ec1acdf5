"""What a kernel's machine code keeps of the instructions by which threads wait for each other, in which order.

Places and phases of mbarriers are not read, nor which registers a tile is in; of named barriers the number and how many
threads, of waits how many may be under way, of `USETMAXREG` how many registers.
"""

from __future__ import annotations

import functools
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from wspec.bridge.sass.calls import FAMILY, GOING_ON, TURNING, NotFollowed, called
from wspec.bridge.sass.cubin import INSTRUCTION_BYTES, KernelCode, kernel_code
from wspec.bridge.sass.decode import turn_of
from wspec.bridge.sass.encodings import LINES
from wspec.ptx.fixed_points import all_from


class Label(NamedTuple):
    """What an instruction does, with up to two numbers."""

    name: str
    first: int = 0
    second: int = 0


_COMMIT = Label("commit")
_UNIFORM = 8  # of 16 predicates P0 to P6 are the first, and these from here on UP0 to UP6
_NONE = 7  # PT
_ALL = 0x7F7F
_R2P = 0x004
_ACQUIRE = 0x9B9  # UTMACCTL, of a descriptor that the kernel made
_MOSTLY = ((81, 0), (84, 0), (81, _UNIFORM), (84, _UNIFORM))
_TURNS = frozenset((0x147, 0x149, 0x14D))  # BRA, BRX, EXIT

_PLAIN: dict[int, str] = {
    0x5A7: "wait", 0x9B0: "element arrive", 0xFAE: "element", 0x9AF: "element commit", 0x5B4: "load", 0x3B5: "store",
    0x3B6: "reduce", 0x9B7: "commit", 0x3C6: "fence", 0x82E: "grid wait", 0x82D: "grid launch", 0x9F0: "product",
    0xDF0: "product", 0x9F3: "product", 0xDF3: "product", 0x9F1: "product", 0xDF1: "product",
}  # fmt: skip
_OTHERS = (0xB1D, 0x9A7, 0x5B2, 0x9B1, 0x9C5, 0x91A, 0x9C8)
_FAMILIES = frozenset(opcode & FAMILY for opcode in (*_PLAIN, *_OTHERS))
_OF_UNIFORM = frozenset((0x5B2, 0x5B4, 0x3B5, 0x3B6, 0x9B7, 0x9C8))  # under uniform predicates


class Step(NamedTuple):
    """An instruction of a block: what it does, or None; the predicate it is under; and the predicates it changes."""

    label: Label | None
    guard: int | None  # which of 16 predicates; None of one that is always executed
    unless: bool
    changes: int  # a set of 16


@dataclass(frozen=True, slots=True)
class Block:
    """Instructions that are executed one after the other, as far as they matter; where it goes on."""

    steps: tuple[Step, ...]
    taken: tuple[int, ...]  # blocks, where its last instruction jumps
    falls: int | None
    ends: bool  # an exit is its last instruction
    guard: int | None = None  # of the jump or the exit
    unless: bool = False
    needs: int = 0  # the predicates that matter from its beginning on

    @property
    def ways(self) -> tuple[int, ...]:
        """The blocks that may follow."""
        return self.taken if self.falls is None else (*self.taken, self.falls)

    @property
    def last(self) -> Label | None:
        """What its last instruction does that does something."""
        return next((step.label for step in reversed(self.steps) if step.label is not None), None)


class Unknown(Exception):
    """An instruction is not known here."""


def skeleton(cubin: bytes) -> tuple[Block, ...] | None:
    """The blocks, the entry first; None where where a way leads is not known, or what an instruction does that may be
    one of those."""
    try:
        kernel = kernel_code(cubin)
        return None if kernel is None else _blocks(kernel)
    except (Unknown, NotFollowed, struct.error, IndexError, ValueError):
        return None


def _blocks(kernel: KernelCode) -> tuple[Block, ...]:
    words = list(struct.iter_unpack("<QQ", kernel.code))
    calls, end = called(words, kernel.jumps, _computes)
    words, jumps = words[:end], kernel.jumps
    size = len(words)
    turns: dict[int, tuple[bool, list[int]]] = {}  # place -> may the next one follow, and which others
    for place, (low, high) in enumerate(words):
        if low & FAMILY in _TURNS:
            found = turn_of(place * INSTRUCTION_BYTES, low, high, jumps)
            if found is None:
                raise Unknown
            way, _ = found
            turns[place] = way.falls, [int(label, 16) // INSTRUCTION_BYTES for label in way.targets]
        elif low & FAMILY in TURNING and low & FAMILY not in GOING_ON and place not in calls:
            raise Unknown
    targets = [target for _, others in turns.values() for target in others]
    if any(target >= size for target in targets):
        raise Unknown
    ordered = sorted({0, *targets, *(place + 1 for place in turns)} - {size})
    number = {first: at for at, first in enumerate(ordered)}
    blocks: list[Block] = []
    for first, end in zip(ordered, [*ordered[1:], size], strict=True):
        falls, others = turns.get(end - 1, (True, []))
        if falls and end == size and calls:  # into the functions
            raise Unknown
        guard, unless = _guard(words[end - 1][0], False) if end - 1 in turns else (None, False)
        steps = tuple(_steps(words, first, end, calls))
        taken, ends = tuple(number[target] for target in others), end - 1 in turns and not others
        blocks.append(Block(steps, taken, number.get(end) if falls else None, ends, guard, unless))
    return _with_needs(blocks)


def _steps(words: Sequence[tuple[int, int]], first: int, end: int, calls: Mapping[int, int]) -> Iterator[Step]:
    for place in range(first, end):
        low, high = words[place]
        label = label_of(low, high)
        changes = calls[place] if place in calls else predicates_of(low, high)
        if label == _COMMIT and place > first and words[place - 1][0] & 0xFFF == _ACQUIRE:
            label = Label("flush")  # that of ptxas 13, or the PTX's own
        if label is not None:
            yield Step(label, *_guard(low, low & 0xFFF in _OF_UNIFORM), changes)
        elif changes:
            yield Step(None, None, False, changes)


def _computes(low: int, high: int) -> int:
    """The predicates that an instruction may change. Raises Unknown for one that does something to other threads."""
    if label_of(low, high) is not None:
        raise Unknown
    return predicates_of(low, high)


def predicates_of(low: int, high: int) -> int:
    """The predicates that an instruction may change, as a set of 16.

    Of families that encodings.py knows it tells where predicates are named that they make; of others those that are
    named where most are, from bit 81 and 84 on.
    """
    family = low & FAMILY
    if family == _R2P:
        return _ALL
    if family in TURNING:
        return 0
    found = 0
    for bit, first in _results().get(family, _MOSTLY):
        name = high >> bit - 64 & 7
        if name != _NONE:
            found |= 1 << name + first
    return found


@functools.lru_cache(maxsize=1)
def _results() -> dict[int, tuple[tuple[int, int], ...]]:
    """Family -> where it names predicates that it makes, and the first of those that are meant."""
    found: dict[int, set[tuple[int, int]]] = {}
    for _, code, _, written, *_ in LINES:
        fields = found.setdefault(int(code, 16) & FAMILY, set())
        for one in written.split(","):
            if one.startswith(("P", "UP")):
                fields.add((int(one.lstrip("UP")), _UNIFORM if one.startswith("U") else 0))
    return {family: tuple(sorted(fields)) for family, fields in found.items()}


def _guard(low: int, is_uniform: bool) -> tuple[int | None, bool]:
    """The predicate that an instruction is under, and whether it must not hold. Raises Unknown for one that never
    holds."""
    name, unless = low >> 12 & 7, bool(low >> 15 & 1)
    if name == _NONE and unless:
        raise Unknown
    return (None, False) if name == _NONE else (name + (_UNIFORM if is_uniform else 0), unless)


def label_of(low: int, high: int) -> Label | None:
    """What an instruction's bits say that it does to other threads; None of any other. Raises Unknown."""
    opcode = low & 0xFFF
    if opcode in _PLAIN:
        return Label(_PLAIN[opcode])
    match opcode:
        case 0xB1D:  # BAR with numbers
            kind, number, threads = high >> 13 & 7, low >> 54 & 15, low >> 42 & 0xFFF
            if kind in (0, 1):
                return Label("bar.arrive" if kind else "bar.sync", number, threads)
            raise Unknown
        case 0x9A7:  # SYNCS.ARRIVE: bits 20 and 21 say what is added, 8 to 10 other kinds
            if high >> 8 & 7 or high >> 21 & 1:
                raise Unknown
            return Label("arrive" if high >> 20 & 1 else "arrive or expect")
        case 0x5B2:  # SYNCS.EXCH
            return Label("init")
        case 0x9B1:  # SYNCS.CCTL.IV
            return Label("inval")
        case 0x9C5:  # WARPGROUP.DEPBAR, .ARRIVE
            return Label("product wait", high >> 8 & 7) if high >> 16 & 1 else Label("product fence")
        case 0x91A:  # DEPBAR
            return Label("copies wait", low >> 38 & 63) if low >> 47 & 1 else None
        case 0x9C8:  # USETMAXREG
            return Label("fewer" if high >> 8 & 15 == 5 else "more", low >> 32 & 0x1FF)
    if opcode & FAMILY in _FAMILIES:  # as BAR whose numbers are in registers
        raise Unknown
    return None


def _with_needs(blocks: list[Block]) -> tuple[Block, ...]:
    """Which predicates decide something before they are changed, from each block's beginning on."""
    uses, makes = [], []
    for block in blocks:
        used = made = 0
        for step in (*block.steps, Step(None, block.guard, block.unless, 0)):
            if step.guard is not None and not made >> step.guard & 1:
                used |= 1 << step.guard
            made |= step.changes
        uses.append(used)
        makes.append(made)
    needs, changed = list(uses), True
    while changed:
        changed = False
        for at in reversed(range(len(blocks))):
            after = 0
            for way in blocks[at].ways:
                after |= needs[way]
            now = uses[at] | after & ~makes[at]
            changed, needs[at] = changed or now != needs[at], now
    return tuple(replace(one, needs=need) for one, need in zip(blocks, needs, strict=True))


def without_retries(blocks: Sequence[Block]) -> list[Block]:
    """The same, with each wait, and each demand for registers, tried once.

    ptxas tries a wait once where it stands, and again and again at the end of the code.
    """
    found = list(blocks)
    before: list[set[int]] = [set() for _ in blocks]
    for at, block in enumerate(blocks):
        for way in block.ways:
            before[way].add(at)
    for at, block in enumerate(blocks):
        tried = [step.label for step in block.steps if step.label is not None]
        if len(tried) != 1 or tried[0].name not in ("wait", "more"):
            continue
        again = _comes_back(blocks, at)
        for other in again:
            one = found[other]
            taken = tuple(way for way in one.taken if way != at)
            found[other] = replace(one, taken=taken, falls=None if one.falls == at else one.falls)
        others = [blocks[other].last for other in before[at] - again]
        if again and others and all(last == tried[0] for last in others):
            steps = tuple(step._replace(label=None, guard=None) for step in block.steps)
            found[at] = replace(found[at], steps=steps)
    return found


def _comes_back(blocks: Sequence[Block], start: int) -> set[int]:
    """The blocks from which it is entered again with nothing done between that is known here."""

    def idle(at: int) -> Iterator[int]:
        return (way for way in blocks[at].ways if way != start and blocks[way].last is None)

    return {at for at in all_from((start,), idle) if start in blocks[at].ways}

"""What a kernel's machine code keeps of the instructions by which threads wait for each other, in which order.

Places and phases of mbarriers are not read, nor which registers a tile is in; of named barriers the number and how many
threads, of waits how many may be under way, of `USETMAXREG` how many registers.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from wspec.bridge.sass.cubin import kernel_code
from wspec.bridge.sass.decode import decoded
from wspec.bridge.sass.program import Program


class Label(NamedTuple):
    """What an instruction does, with up to two numbers."""

    name: str
    first: int = 0
    second: int = 0


PREDICATES = 320  # the first of them in sets of registers: P0 to P6, then, from 328 on, UP0 to UP6
_UNIFORM = 8
_NONE = 7  # PT

_PLAIN: dict[int, str] = {
    0x5A7: "wait", 0x9B0: "element arrive", 0xFAE: "element", 0x9AF: "element commit", 0x5B4: "load", 0x3B5: "store",
    0x3B6: "reduce", 0x9B7: "commit", 0x3C6: "fence", 0x82E: "grid wait", 0x82D: "grid launch", 0x9F0: "product",
    0xDF0: "product", 0x9F3: "product", 0xDF3: "product", 0x9F1: "product", 0xDF1: "product",
}  # fmt: skip
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
    """The blocks, the entry first; None where anything in the binary is not known."""
    kernel, program = kernel_code(cubin), _decoded(cubin)
    if kernel is None or program is None:
        return None
    try:
        return _blocks(list(struct.iter_unpack("<QQ", kernel.code)), program)
    except Unknown:
        return None


def _decoded(cubin: bytes) -> Program | None:
    try:
        return decoded(cubin)
    except (struct.error, IndexError, ValueError):
        return None


def _blocks(words: list[tuple[int, int]], program: Program) -> tuple[Block, ...]:
    size, turns, labels = len(words), program.turns, program.labels
    ordered = sorted({0, *labels.values(), *(place + 1 for place in turns)} - {size})
    number = {first: at for at, first in enumerate(ordered)}
    found: list[Block] = []
    for first, end in zip(ordered, [*ordered[1:], size], strict=True):
        way, (low, _) = turns.get(end - 1), words[end - 1]
        falls = number.get(end) if way is None or way.falls else None
        taken = () if way is None else tuple(number[labels[target]] for target in way.targets)
        guard, unless = (None, False) if way is None else _guard(low, False)
        steps = tuple(_steps(words, program, first, end))
        found.append(Block(steps, taken, falls, way is not None and not taken, guard, unless))
    return _with_needs(found)


def _steps(words: list[tuple[int, int]], program: Program, first: int, end: int) -> Iterator[Step]:
    for place in range(first, end):
        low, high = words[place]
        label = label_of(low, high)
        changes = program.writes[place] >> PREDICATES
        if label is not None:
            yield Step(label, *_guard(low, low & 0xFFF in _OF_UNIFORM), changes)
        elif changes:
            yield Step(None, None, False, changes)


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
        case 0x31D | 0x51D | 0x71D | 0x91D | 0xD1D | 0xF1D:  # BAR whose numbers are in registers
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
    found, seen, work = set[int](), {start}, [start]
    while work:
        at = work.pop()
        for way in blocks[at].ways:
            if way == start:
                found.add(at)
            elif way not in seen and blocks[way].last is None:
                seen.add(way)
                work.append(way)
    return found

"""A kernel's code as what its instructions do to registers, and where each goes on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field

from wspec.bridge.sass.machine_code import UPPER_HALVES, WGMMA, Code, Flow, effects, flow

_ON = Flow()


@dataclass(frozen=True, slots=True)
class Program:
    """One section of code. Sets of registers are as in machine_code.py; instructions go by their places."""

    reads: Sequence[int]
    writes: Sequence[int]
    turns: Mapping[int, Flow]  # those after which it may be another than the next one's turn
    labels: Mapping[str, int]
    guarded: Set[int] = frozenset()  # those that may not be executed when their turn comes
    upper_halves: Mapping[int, int] = field(default_factory=dict)
    """Products, and the registers that they take upper halves of matrix descriptors from."""


def program_of(code: Code) -> Program:
    """That of a section of a disassembly."""
    done = [effects(instruction) for instruction in code.instructions]
    flows = {place: flow(instruction) for place, instruction in enumerate(code.instructions)}
    turns = {place: way for place, way in flows.items() if way.targets or way.calls or way.returns or not way.falls}
    guarded = {place for place, one in enumerate(code.instructions) if not one.is_certain}
    roots = [one.root for one in code.instructions]
    halves = {place: done[place].reads & UPPER_HALVES for place, root in enumerate(roots) if root in WGMMA}
    reads, writes = [one.reads for one in done], [one.writes for one in done]
    return Program(reads, writes, turns, code.labels, guarded, halves)


@dataclass(slots=True)
class Block:
    """Instructions that are executed one after the other."""

    first: int
    end: int
    needs: int = 0  # read before they are assigned in it
    gives: int = 0
    next: list[int] = field(default_factory=list)  # the first instructions of the blocks that may follow
    callee: int | None = None  # the block of the function that it calls at its end
    calls: bool = False
    returns: bool = False


def blocks(program: Program) -> dict[int, Block]:
    """Those of a section, by their first instructions."""
    reads, writes, turns, labels = program.reads, program.writes, program.turns, program.labels
    size = len(reads)
    ordered = sorted({0, *labels.values(), *(place + 1 for place in turns)} - {size})
    found = {}
    for first, end in zip(ordered, [*ordered[1:], size], strict=True):
        needs = gives = 0
        for place in range(first, end):
            needs |= reads[place] & ~gives
            gives |= writes[place]
        block = found[first] = Block(first, end, needs, gives)
        way = turns.get(end - 1, _ON)
        block.next = [labels[label] for label in way.targets if labels.get(label, size) < size]
        if way.falls and end < size:
            block.next.append(end)
        block.returns, block.calls = way.returns, bool(way.calls)
        if labels.get(way.calls, size) < size:
            block.callee = labels[way.calls]
    return found

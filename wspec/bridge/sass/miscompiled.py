"""Did ptxas make code that reads a register which nobody has assigned?

"Assigned on every way from the kernel's entry" is a forward problem over sets of registers: what holds before a block
is what holds behind all blocks before it. A function is entered with what all its callers have assigned, and adds to
each of them what it assigns on every way to its return. An instruction under a predicate counts as executed: what it
assigns is often read under the same predicate.
"""

from __future__ import annotations

import traceback
from dataclasses import dataclass, field

from wspec.bridge.backend import Finished
from wspec.bridge.reproducer import failure, first_line, write_reproducer
from wspec.bridge.sass.machine_code import EVERYTHING, Code, Instruction, effects, flow, names, read_sass
from wspec.bridge.sass.resources import ptxas_version, sass
from wspec.diagnostics import Remark
from wspec.ir.loc import FileLoc, Location
from wspec.options import Options


@dataclass(frozen=True, slots=True)
class Unassigned:
    """An instruction that reads registers which no instruction has assigned on some way there."""

    instruction: Instruction
    registers: tuple[str, ...]

    def __str__(self) -> str:
        read = " and ".join(self.registers)
        return f"{self.instruction.address:#x} ({self.instruction}) reads {read}, which some way there does not assign"


def refusal(name: str, place: Location, finished: Finished, options: Options) -> Remark | None:
    """Why the binary of kernel `name`, whose source is at `place`, may not run; None when it may. Never raises."""
    try:
        found = unassigned(sass(finished.cubin, lines=True))
        if not found:
            return None
        details, first = "\n".join(map(str, found)), found[0].instruction
        message = f"ptxas {ptxas_version()} miscompiled the specialized {name}: the instruction at {found[0]}"
        code, place = "miscompiled", FileLoc(first.file, first.line, 0) if first.file else place
    except Exception as error:
        details, code = traceback.format_exc(), "internal-error"
        message = f"wspec cannot read the binary of the specialized {name}: {type(error).__name__}: {first_line(error)}"
    return failure(code, message, place, write_reproducer(name, finished.final, details, options))


def sass_line(found: list[Unassigned]) -> str:
    """What `unassigned` found, in a line."""
    return f"SASS: the instruction at {found[0]}" if found else "SASS: every register is assigned before it is read"


def unassigned(text: str) -> list[Unassigned]:
    """Those of a disassembly (`nvdisasm -c`), in program order; each register once."""
    found: list[Unassigned] = []
    for code in read_sass(text):
        if code.kernel and code.instructions:
            found += _Analysis(code).unassigned()
    return found


@dataclass(slots=True)
class _Block:
    """Instructions that are executed one after the other."""

    first: int
    end: int
    needs: int = 0  # read before they are assigned in it
    gives: int = 0
    next: list[int] = field(default_factory=list)  # the first instructions of the blocks that may follow
    callee: int | None = None  # the block of the function that it calls at its end
    calls: bool = False
    returns: bool = False


class _Analysis:
    """Of one section of code. Blocks go by their first instruction."""

    def __init__(self, code: Code) -> None:
        self.code = code
        self.blocks = _blocks(code)
        self._adds: dict[int, int] = {}  # function -> what it has assigned when it returns

    def unassigned(self) -> list[Unassigned]:
        before, _ = self._solve(0, 0)
        found, told = [], 0
        for first in sorted(before):
            state, block = before[first] | told, self.blocks[first]
            if not block.needs & ~state:
                continue
            for instruction in self.code.instructions[first : block.end]:
                done = effects(instruction)
                if missing := done.reads & ~state:
                    found.append(Unassigned(instruction, tuple(names(missing))))
                    told |= missing
                state |= done.writes | missing
        return found

    def _solve(self, entry: int, state: int) -> tuple[dict[int, int], int]:
        """(what is assigned before each block that is reached, what is assigned at every return)."""
        before, at_return, todo = {entry: state}, EVERYTHING, [entry]
        while todo:
            first = todo.pop()
            block = self.blocks[first]
            after = before[first] | block.gives
            ways = [(place, after) for place in block.next]
            if block.calls:
                added = EVERYTHING if block.callee is None else self._added(block.callee)
                ways = [(place, after | added) for place in block.next]
                if block.callee is not None:
                    ways.append((block.callee, after))
            if block.returns:
                at_return &= after
            for place, known in ways:
                old = before.get(place, EVERYTHING)
                if place not in before or old & ~known:
                    before[place] = old & known
                    todo.append(place)
        return before, at_return

    def _added(self, function: int) -> int:
        """What the function assigns on every way to its return; everything where it does not return."""
        if function not in self._adds:
            self._adds[function] = EVERYTHING  # for one that calls itself
            self._adds[function] = self._solve(function, 0)[1]
        return self._adds[function]


def _blocks(code: Code) -> dict[int, _Block]:
    flows = {place: flow(instruction) for place, instruction in enumerate(code.instructions)}
    turns = {place: way for place, way in flows.items() if way.targets or way.calls or way.returns or not way.falls}
    size = len(code.instructions)
    starts = {0, *code.labels.values(), *(place + 1 for place in turns)} - {size}
    ordered = sorted(starts)
    found = {}
    for first, end in zip(ordered, [*ordered[1:], size], strict=True):
        block = found[first] = _Block(first, end)
        for instruction in code.instructions[first:end]:
            done = effects(instruction)
            block.needs |= done.reads & ~block.gives
            block.gives |= done.writes
        way = flows[end - 1]
        block.next = [code.labels[label] for label in way.targets if code.labels.get(label, size) < size]
        if way.falls and end < size:
            block.next.append(end)
        block.returns, block.calls = way.returns, bool(way.calls)
        if code.labels.get(way.calls, size) < size:
            block.callee = code.labels[way.calls]
    return found

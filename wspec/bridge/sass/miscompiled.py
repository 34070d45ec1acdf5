"""Did ptxas make code that does something else than its PTX: above all, reads a register which nobody has assigned?

"Assigned on every way from the kernel's entry" is a forward problem over sets of registers: what holds before a block
is what holds behind all blocks before it. A function is entered with what all its callers have assigned, and adds to
each of them what it assigns on every way to its return. An instruction under a predicate counts as executed: what it
assigns is often read under the same predicate.

What instructions read and assign comes from the binary itself where all of it is known (decode.py), and from nvdisasm
otherwise, and whenever there is something to say.
"""

from __future__ import annotations

import functools
import operator
import struct
import traceback
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from wspec.bridge.backend import Finished
from wspec.bridge.reproducer import failure, first_line, write_reproducer
from wspec.bridge.sass.clobbered import Clobbered, clobbered
from wspec.bridge.sass.decode import decoded
from wspec.bridge.sass.descriptors import Stale, may_be_stale, stale
from wspec.bridge.sass.kept_operands import Products, products_of
from wspec.bridge.sass.machine_code import EVERYTHING, Code, Instruction, names, read_sass
from wspec.bridge.sass.program import Program, blocks, program_of
from wspec.bridge.sass.resources import ptxas_version, sass
from wspec.diagnostics import Remark
from wspec.ir.loc import FileLoc, Location
from wspec.options import Options
from wspec.ptx.fixed_points import states_before


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
        found = wrong_places(finished.products, finished.cubin)
        if not found:
            return None
        details, first = "\n".join(map(str, found)), found[0].instruction
        message = f"ptxas {ptxas_version()} miscompiled the specialized {name}: the instruction at {found[0]}"
        code, place = "miscompiled", FileLoc(first.file, first.line, 0) if first.file else place
    except Exception as error:
        details, code = traceback.format_exc(), "internal-error"
        message = f"wspec cannot read the binary of the specialized {name}: {type(error).__name__}: {first_line(error)}"
    return failure(code, message, place, write_reproducer(name, finished.final, details, options))


def wrong_places(products: Products, cubin: bytes) -> Sequence[Unassigned | Stale | Clobbered]:
    """Where ptxas is seen to have done something else than the PTX says, in program order. `products`: of the PTX."""
    return wrong_by_itself(cubin) or clobbered(products, cubin)


def of_plain(name: str, place: Location, ptx: str, cubin: bytes) -> Remark | None:
    """What is said of the plain kernel where ptxas overwrites an operand in it, which nobody can help. Never raises."""
    try:
        found = clobbered(products_of(ptx), cubin)
    except Exception:  # of what Triton alone would have run as well
        return None
    if not found:
        return None
    message = f"ptxas {ptxas_version()} miscompiles {name} as Triton compiles it: the instruction at {found[0]}"
    note = "its results are wrong with wspec and without, whenever it is the plain kernel that runs"
    return Remark("miscompiled", message, place, note=note, severity="warning")


def is_surely_right(cubin: bytes) -> bool:
    """Is every register assigned, and every descriptor from one place, as far as can be told without a disassembler?
    Where not, that is to be asked.

    Never raises: a binary that is not as we know them is for nvdisasm.
    """
    try:
        program = decoded(cubin)
    except (struct.error, IndexError, ValueError):
        return False
    return program is not None and not _Analysis(program).unassigned() and not may_be_stale(program)


def wrong_by_itself(cubin: bytes) -> list[Unassigned | Stale]:
    """What cannot be right whatever the PTX says, in program order; nvdisasm is asked only where there may be some."""
    return [] if is_surely_right(cubin) else wrong_in(sass(cubin, lines=True))


def sass_line(found: Sequence[Unassigned | Stale]) -> str:
    """What `wrong_by_itself` found, in a line."""
    return f"SASS: the instruction at {found[0]}" if found else "SASS: every register is assigned before it is read"


def wrong_in(text: str) -> list[Unassigned | Stale]:
    """Of a disassembly (`nvdisasm -c`), in program order: what reads registers that are not assigned, each once, and
    descriptors that may be something else."""
    found: list[Unassigned | Stale] = []
    for code in read_sass(text):
        if code.kernel and code.instructions:
            found += unassigned(code)
            found += stale(code)
    return sorted(found, key=lambda one: one.instruction.address)


def unassigned(code: Code) -> Iterator[Unassigned]:
    """Those of a section, in program order; each register once."""
    for place, missing in _Analysis(program_of(code)).unassigned():
        yield Unassigned(code.instructions[place], tuple(names(missing)))


class _Analysis:
    """Of one section of code. Blocks go by their first instruction."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.blocks = blocks(program)
        self._adds: dict[int, int] = {}  # function -> what it has assigned when it returns

    def unassigned(self) -> list[tuple[int, int]]:
        """(place, the registers that it reads and that some way there does not assign); each register once."""
        before, _ = self._solve(0, 0)
        found, told = [], 0
        for first in sorted(before):
            state, block = before[first] | told, self.blocks[first]
            if not block.needs & ~state:
                continue
            for place in range(first, block.end):
                if missing := self.program.reads[place] & ~state:
                    found.append((place, missing))
                    told |= missing
                state |= self.program.writes[place] | missing
        return found

    def _solve(self, entry: int, state: int) -> tuple[dict[int, int], int]:
        """(what is assigned before each block that is reached, what is assigned at every return)."""
        before = states_before({entry: state}, self._behind, operator.and_)
        returns = (state | self.blocks[first].gives for first, state in before.items() if self.blocks[first].returns)
        return before, functools.reduce(operator.and_, returns, EVERYTHING)

    def _behind(self, first: int, state: int) -> Iterator[tuple[int, int]]:
        """What is assigned before the blocks that may follow one."""
        block = self.blocks[first]
        after, added = state | block.gives, 0
        if block.calls:
            added = EVERYTHING if block.callee is None else self._added(block.callee)
        yield from ((place, after | added) for place in block.next)
        if block.callee is not None:
            yield block.callee, after

    def _added(self, function: int) -> int:
        """What the function assigns on every way to its return; everything where it does not return."""
        if function not in self._adds:
            self._adds[function] = EVERYTHING  # for one that calls itself
            self._adds[function] = self._solve(function, 0)[1]
        return self._adds[function]

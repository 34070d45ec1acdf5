"""Did ptxas overwrite a wgmma's left operand that a loop needs again?

Where a product in a loop takes registers that were loaded before the loop (Q of attention, say) and another product of
that loop takes registers too, ptxas may give both the same registers: the second round multiplies what the first has
computed. Seen with 12.8.93, 12.9.86 and 13.0.88, in kernels of Triton as in ours; nothing is wrong with the PTX.

So the PTX is asked which operands stay the same in the innermost loop around their wgmma: nothing in the loop writes
their registers. In the machine code every value that reaches such an operand's registers has to come from before the
loop, or be computed from what does. Products are matched in the order of both texts; where number, shapes and kinds of
operands do not agree nothing is said.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from wspec.bridge.sass.kept_operands import Kind, Products, innermost, shape_of
from wspec.bridge.sass.machine_code import Code, Instruction, read_sass
from wspec.bridge.sass.program import Block, Program, blocks, program_of
from wspec.bridge.sass.resources import sass

WGMMA = frozenset({"HGMMA", "IGMMA", "QGMMA", "BGMMA"})
_OPERAND_REGISTERS = 4  # of a thread: 64 rows by 32 bytes over 128 threads
_SPILLS = frozenset({"LDL", "LDC", "ULDC", "S2R", "S2UR"})
"""What they bring does not change: constants, and what the thread itself has put aside."""
_ELSEWHERE = (*WGMMA, "LD", "LDG", "LDS", "LDSM", "LDGSTS", "ATOM", "ATOMG", "ATOMS", "SHFL", "R2UR", "VOTE", "VOTEU")
"""What they bring is not computed from the thread's own registers alone."""


@dataclass(frozen=True, slots=True)
class Clobbered:
    """A product whose left operand another instruction of the loop overwrites."""

    instruction: Instruction
    by: Instruction
    register: str

    def __str__(self) -> str:
        there = f"{self.instruction.address:#x} ({self.instruction})"
        return f"{there} needs {self.register} again, which {self.by.address:#x} ({self.by}) overwrites in the loop"


def clobbered(products: Products, cubin: bytes) -> list[Clobbered]:
    """Those of a kernel, in program order; `products`: of its PTX. The binary is disassembled only where there is
    something to look for."""
    if not any(stays for _, stays in products):
        return []
    return [one for code in read_sass(sass(cubin, lines=True)) if code.kernel for one in _of_code(code, products)]


# ---------------------------------------------------------------------------------------------------- machine code


def _of_code(code: Code, products: Products) -> Iterator[Clobbered]:
    places = [at for at, one in enumerate(code.instructions) if one.name.partition(".")[0] in WGMMA]
    if [_kind(code.instructions[at]) for at in places] != [kind for kind, _ in products]:
        return
    program = program_of(code)
    search = _Search(code, program, blocks(program))
    for at, (_, stays) in zip(places, products, strict=True):
        if stays and (found := search.overwritten(at)) is not None:
            yield found


def _kind(one: Instruction) -> Kind:
    left = one.operands.split(",")[1].strip()
    return Kind(shape_of(one.name), left.startswith("R"))


class _Search:
    """Where the values in registers come from."""

    def __init__(self, code: Code, program: Program, parts: Mapping[int, Block]) -> None:
        self.code, self.program, self.parts = code, program, parts
        self.block_of = {at: first for first, part in parts.items() for at in range(first, part.end)}
        self.before: dict[int, list[int]] = {}
        for first, part in parts.items():
            for after in part.next:
                self.before.setdefault(after, []).append(first)
        self.around = innermost({first: part.next for first, part in parts.items()}, 0)

    def overwritten(self, at: int) -> Clobbered | None:
        """What overwrites the left operand of the product at this place in the loop around it."""
        product = self.code.instructions[at]
        loop = self.around.get(self.block_of[at])
        if loop is None:
            return None
        first = int(product.operands.split(",")[1].strip().partition(".")[0].removeprefix("R"))
        for number in range(first, first + _OPERAND_REGISTERS):
            for place in self._reaching(1 << number, at):
                if self.block_of[place] in loop and not self._stays(place, loop, set()):
                    return Clobbered(product, self.code.instructions[place], f"R{number}")
        return None

    def _stays(self, place: int, loop: frozenset[int], seen: set[int]) -> bool:
        """Is what this instruction of the loop writes the same in every round?"""
        if place in seen:
            return True
        seen.add(place)
        root = self.code.instructions[place].name.partition(".")[0]
        if root in _SPILLS:
            return True
        if root in _ELSEWHERE:
            return False
        return all(
            self._stays(source, loop, seen)
            for bit in _bits(self.program.reads[place])
            for source in self._reaching(bit, place)
            if self.block_of[source] in loop
        )

    def _reaching(self, bit: int, at: int) -> set[int]:
        """The instructions whose value of that register may be there before the one at `at`."""
        found: set[int] = set()
        seen: set[int] = set()
        todo = [(self.block_of[at], at)]
        while todo:
            first, end = todo.pop()
            for place in range(end - 1, first - 1, -1):
                if self.program.writes[place] & bit:
                    found.add(place)
                    if self.code.instructions[place].guard in ("", "PT", "UPT"):
                        break
            else:
                for before in self.before.get(first, ()):
                    if before not in seen:
                        seen.add(before)
                        todo.append((before, self.parts[before].end))
        return found


def _bits(found: int) -> Iterator[int]:
    while found:
        low = found & -found
        yield low
        found ^= low

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

from collections.abc import Iterator
from dataclasses import dataclass

from wspec.bridge.sass.kept_operands import Kind, Products, innermost, shape_of
from wspec.bridge.sass.machine_code import WGMMA, Code, Instruction, read_sass
from wspec.bridge.sass.program import program_of
from wspec.bridge.sass.reaching import Reaching, single
from wspec.bridge.sass.resources import sass

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
    places = [at for at, one in enumerate(code.instructions) if one.root in WGMMA]
    if [_kind(code.instructions[at]) for at in places] != [kind for kind, _ in products]:
        return
    search = _Search(code)
    for at, (_, stays) in zip(places, products, strict=True):
        if stays and (found := search.overwritten(at)) is not None:
            yield found


def _kind(one: Instruction) -> Kind:
    left = one.operands.split(",")[1].strip()
    return Kind(shape_of(one.name), left.startswith("R"))


class _Search:
    """Where the values in registers come from."""

    def __init__(self, code: Code) -> None:
        self.code, self.program = code, program_of(code)
        self.reaching = Reaching(self.program)
        self.block_of = self.reaching.block_of
        self.around = innermost({first: part.next for first, part in self.reaching.parts.items()}, 0)

    def overwritten(self, at: int) -> Clobbered | None:
        """What overwrites the left operand of the product at this place in the loop around it."""
        product = self.code.instructions[at]
        loop = self.around.get(self.block_of[at])
        if loop is None:
            return None
        first = int(product.operands.split(",")[1].strip().partition(".")[0].removeprefix("R"))
        for number in range(first, first + _OPERAND_REGISTERS):
            for place in self.reaching.at(at, 1 << number):
                if self.block_of[place] in loop and not self._stays(place, loop, set()):
                    return Clobbered(product, self.code.instructions[place], f"R{number}")
        return None

    def _stays(self, place: int, loop: frozenset[int], seen: set[int]) -> bool:
        """Is what this instruction of the loop writes the same in every round?"""
        if place in seen:
            return True
        seen.add(place)
        root = self.code.instructions[place].root
        if root in _SPILLS:
            return True
        if root in _ELSEWHERE:
            return False
        return all(
            self._stays(source, loop, seen)
            for register in single(self.program.reads[place])
            for source in self.reaching.at(place, register)
            if self.block_of[source] in loop
        )

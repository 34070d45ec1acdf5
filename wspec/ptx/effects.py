"""What an instruction does beside computing, and which registers it reads and writes.

By the PTX ISA's chapters "Instruction Set" and "State Spaces". An instruction that is in none of the sets here may do
anything.
"""

from __future__ import annotations

import re

from wspec.ptx.operands import registers
from wspec.ptx.syntax import Instruction


def _set(words: str) -> frozenset[str]:
    return frozenset(words.split())


ARITHMETIC = _set(
    "add sub mul mad fma neg abs min max div rem rcp sqrt rsqrt sin cos tanh ex2 lg2 and or xor not cnot shl shr shf "
    "bfe bfi bfind brev prmt lop3 selp setp set slct cvt cvta mov testp copysign popc clz dp4a dp2a sad mul24 mad24 "
    "isspacep"
)
"""They compute from their operands and touch nothing else."""

EXCHANGES = frozenset(("shfl", "vote", "elect", "match", "redux", "activemask"))
"""They compute from what the threads of a warp hold."""

BULK_COPIES = ("cp.async.bulk.tensor.", "cp.reduce.async.bulk.tensor.")
"""How the opcodes begin of copies of boxes of a tensor."""

COPIES_OF_ELEMENTS = ("cp.async.ca.", "cp.async.cg.")
"""The same, of elements that each thread copies."""

ACCESSES = frozenset(("ld", "st", "atom", "red"))
_SPACES = ("global", "shared", "param", "local", "const")
_WITHOUT_TARGET = _set(
    "st red bar barrier cp fence membar bra brx ret exit trap setmaxnreg griddepcontrol prefetch prefetchu stmatrix "
    "nanosleep tensormap discard applypriority pmevent brkpt"
)
_NO_TARGET_OF = {
    "mbarrier": frozenset(("init", "inval", "expect_tx", "complete_tx")),
    "wgmma": frozenset(("fence", "commit_group", "wait_group")),
    "barrier": frozenset(("sync", "arrive")),
}
_PLAIN = re.compile(r"[^{|\[(]*")
_KNOWN = ARITHMETIC | EXCHANGES | ACCESSES | _WITHOUT_TARGET | {"mbarrier", "wgmma", "ldmatrix", "createpolicy"}


def space(instruction: Instruction) -> str:
    """The state space of an access: global, shared, param, local, const, or "" for a generic address."""
    words = (word.partition(":")[0] for word in instruction.opcode.split(".")[1:])
    return next((word for word in words if word in _SPACES), "")


def has_known_registers(instruction: Instruction) -> bool:
    """May `reads` and `writes` be asked?"""
    return instruction.name in _KNOWN


def has_target(instruction: Instruction) -> bool:
    """Does it write its first operand?"""
    without = _NO_TARGET_OF.get(instruction.name)
    if without is not None:
        return not any(word in without for word in instruction.opcode.split(".")[1:2])
    return instruction.name not in _WITHOUT_TARGET


def writes(instruction: Instruction) -> tuple[str, ...]:
    """The registers that it writes; `_` is none. Raises PtxError.

    Read off the text where that is plain: most operands are never read otherwise.
    """
    if not has_target(instruction):
        return ()
    text = instruction.text
    head, found, _ = text.partition(",")
    if not instruction.declared and found and head.isascii():
        if _PLAIN.fullmatch(head):
            name = head.strip()
            return () if name == "_" else (name,)
        if text.lstrip().startswith("{") and "}" in text:
            inside = text[text.index("{") + 1 : text.index("}")]
            return tuple(name for name in (part.strip() for part in inside.split(",")) if name != "_")
    operands = instruction.operands
    return tuple(name for name in registers(operands[0]) if name != "_") if operands else ()


def reads(instruction: Instruction) -> tuple[str, ...]:
    """The registers that it reads, the predicate among them."""
    operands = instruction.operands
    keeps = instruction.name == "wgmma" or not has_target(instruction)  # an accumulator is read and written
    found = [name for operand in operands[0 if keeps else 1 :] for name in registers(operand)]
    return (*found, instruction.guard) if instruction.guard else tuple(found)

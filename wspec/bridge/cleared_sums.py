"""Sums that are cleared once, where LLVM clears them twice.

A loop that may make no round stands under a branch, and gives zero then. LLVM clears the sums for that way in
front of the branch, where both ways pass, and for the loop once more behind it:

    mov.b32 %r1, 0f00000000;              mov.b32 %r1, 0f00000000;
    mov.b32 %r2, %r1;                     mov.b32 %r2, %r1;
    ...                                   ...
    @%p1 bra $NO_ROUND;              =>   @%p1 bra $NO_ROUND;
    mov.b32 %r1, 0f00000000;              // cleared already
    mov.b32 %r2, %r1;                     // cleared already

(ptxas does not see it either.) What is taken out gives a register a constant that it has on the only way there: nothing
but this text has been run since the last label, and nothing in it has written the register.
"""

from __future__ import annotations

import re

from wspec.bridge.ptx_code import instruction

_MOVE = re.compile(r"^mov\.b32\s+(%r\d+),\s*(%r\d+|-?\d+|0f[0-9A-Fa-f]{8});$")
_REGISTER = re.compile(r"%r\d+\b")
_READS_ONLY = re.compile(r"^(@!?%p\d+\s+)?(bra|setp)\b")


def cleared_once(ptx: str) -> tuple[str, int]:
    """(the PTX without moves that give a register the constant it has, how many were taken out)."""
    lines = ptx.split("\n")
    known: dict[str, str] = {}  # register -> the constant that it has for sure
    taken = 0
    for at, line in enumerate(lines):
        text = instruction(line)
        if text.endswith(":") or _is_label(line):
            known = {}
        elif move := _MOVE.match(text):
            register, value = move[1], known.get(move[2], move[2])
            if known.get(register) == value:
                lines[at] = "\t// cleared already"
                taken += 1
            elif value.startswith("%"):
                known.pop(register, None)
            else:
                known[register] = value
        elif text and not _READS_ONLY.match(text):
            for register in _REGISTER.findall(line):
                known.pop(register, None)
    return "\n".join(lines), taken


def _is_label(line: str) -> bool:
    """Also one of inline assembly, or the begin or end of its block: it may be gone to from elsewhere."""
    return bool(re.match(r"^\s*([$\w]+:|\{|\})", line))

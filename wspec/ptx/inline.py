"""Inline assembly: the PTX that a kernel's author, or a pass, wrote by hand."""

from __future__ import annotations

from wspec.ptx.errors import PtxError
from wspec.ptx.flow import BRANCHES, ENDS, blocks_of
from wspec.ptx.parser import read_body
from wspec.ptx.syntax import Function


def read_inline(text: str) -> Function:
    """The statements of a text in which `$0` stands for an operand. Raises PtxError, also for LLVM's other escapes."""
    for escape in ("$$", "${", "$("):
        if escape in text:
            raise PtxError(f"{escape} of inline assembly is not read")
    return read_body(text)


def is_straight(function: Function) -> bool:
    """Does control only go forwards, and leave at the end? Raises PtxError for branches that cannot be read."""
    if any(one.name in ENDS for one in function.instructions):
        return False
    if not any(one.name in BRANCHES for one in function.instructions):
        return True
    return all(way > block.number for block in blocks_of(function) for way in block.follow)

"""What is read from a line of PTX: its instruction, and what that may do."""

from __future__ import annotations

import functools
import re

GROUP = 128  # threads of a warp group

_ARRIVE = re.compile(r"^@%?\w+\s+mbarrier\.arrive\.shared(::cta)?\.b64\s")
# What neither touches shared memory as threads do nor lets others do so: arithmetic, and what other memories hold.
_CLEAN = re.compile(
    r"^\$L\w+[,;]$|"  # a line of a table of branches
    r"^(@!?%?\w+\s+)?(add|sub|mul|mad|fma|neg|abs|min|max|div|rem|rcp|sqrt|ex2|lg2|and|or|xor|not|shl|shr|bfe|bfi|prmt|lop3|"
    r"selp|setp|set|slct|cvt|cvta|mov|shfl|vote|elect|popc|clz|brev|testp|copysign|bra|brx|dp4a|"
    r"(ld|st|atom|red)(\.\w+|::)*\.(global|param|const|local)|ld\.param|st\.param|"
    r"wgmma|bar\.arrive|mbarrier\.(try_wait|arrive)|setmaxnreg|griddepcontrol|prefetch)\b"
)
_NOWHERE = re.compile(r"^([a-zA-Z_]\w*|\$L__tmp\d+):$")  # labels nobody goes to
_GROUP_SYNC = re.compile(rf"^bar\.sync\s+\d+,\s*{GROUP}\s*;")
_ORDERED = re.compile(r"^(@!?%?\w+\s+)?(wgmma|bar|mbarrier|setmaxnreg|bra|brx)\b")
_MEMORY = re.compile(r"^(@!?%?\w+\s+)?(ld|st|atom|red|griddepcontrol|prefetch)\b")


_LINES = 1 << 14  # to be remembered: several edits ask the same of every line


@functools.lru_cache(maxsize=_LINES)
def instruction(line: str) -> str:
    """The line's instruction or label; empty for comments, directives and braces."""
    text = line.split("//", 1)[0].strip()
    nothing = not text or text[0] in "{}." or (text[-1] == ":" and _NOWHERE.match(text))
    return "" if nothing else text


@functools.lru_cache(maxsize=_LINES)
def is_clean(text: str) -> bool:
    """Does it leave shared memory alone, or touch it as no thread does?"""
    return bool(_CLEAN.match(text))


@functools.lru_cache(maxsize=_LINES)
def speaks(text: str) -> bool:
    """Is it more than arithmetic and other memories?"""
    return not is_clean(text) or bool(_ORDERED.match(text))


def is_arithmetic(text: str) -> bool:
    """Does it only compute, from registers and values of other threads of its warp?"""
    return not speaks(text) and not _MEMORY.match(text) and not text.startswith("$L")


def is_group_barrier(text: str) -> bool:
    """A barrier of all threads of one warp group."""
    return bool(_GROUP_SYNC.match(text))


def is_arrival(text: str) -> bool:
    """One thread's arrival at an mbarrier of its block."""
    return bool(_ARRIVE.match(text))

"""Rows of a tile whose exponentials are computed beside each other.

A thread has several rows of a tile of scores. Where registers are short, ptxas computes one row to its end,
exponentials and sum, before it begins with the maximum of the next: fewer values are alive then. Each row is a chain of
instructions that wait for each other, and there is nothing to fill the pauses with. So the maxima are made to depend on
the last of them, and no exponential can come before all are known:

    max.f32 %a, ...;                           max.f32 %a, ...;
    max.f32 %b, ...;                =>         max.f32 %b, ...;
                                               setp.ne.b32 known, %b, IMPOSSIBLE;
                                               selp.b32 %a, %a, %b, known;
"""

from __future__ import annotations

from wspec.bridge.ptx.code import Lines
from wspec.bridge.ptx.exchanges import taken_up
from wspec.bridge.ptx.held_waits import IMPOSSIBLE
from wspec.ptx.effects import writes
from wspec.ptx.flow import blocks_of
from wspec.ptx.syntax import Module


def interleave_rows(module: Module, lines: Lines) -> int:
    """Tie the maxima of a thread's rows in the lines; how many of them. Raises PtxError."""
    tied = 0
    for block in blocks_of(module.entry()):
        found = (one for one in taken_up(block.instructions) if one is not None and lines.line_of(one) is not None)
        maxima = sorted(found, key=lambda one: one.start)
        if len(maxima) < 2:
            continue
        *others, last = maxima
        known, (value,) = f"%wspec_rows{tied}", writes(last)
        text = ["", "\t{", f"\t.reg .pred {known};", f"\tsetp.ne.b32 {known}, {value}, {IMPOSSIBLE:#x};"]
        text += (f"\tselp.b32 {row}, {row}, {value}, {known};" for one in others for row in writes(one))
        place = lines.line_of(last)
        assert place is not None
        lines.change(place[1], place[1], "\n".join([*text, "\t}"]))
        tied += len(others)
    return tied

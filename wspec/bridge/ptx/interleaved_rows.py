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

from collections.abc import Iterator, Sequence

from wspec.bridge.ptx.code import Lines
from wspec.bridge.ptx.held_waits import F32, IMPOSSIBLE
from wspec.ptx.effects import reads, writes
from wspec.ptx.flow import BRANCHES
from wspec.ptx.syntax import Instruction, Label


def interleave_rows(body: Sequence[Instruction | Label], lines: Lines) -> int:
    """Tie the maxima of a body's rows in the lines; how many of them. Raises PtxError."""
    tied = 0
    for number, code in enumerate(_straight(body)):
        maxima = [one for one in _maxima(code) if lines.line_of(one) is not None]
        if len(maxima) < 2:
            continue
        *others, last = maxima
        known, (value,) = f"%wspec_rows{number}", writes(last)
        block = ["", "\t{", f"\t.reg .pred {known};", f"\tsetp.ne.b32 {known}, {value}, {IMPOSSIBLE:#x};"]
        block += (f"\tselp.b32 {row}, {row}, {value}, {known};" for one in others for row in writes(one))
        place = lines.line_of(last)
        assert place is not None
        lines.change(place[1], place[1], "\n".join([*block, "\t}"]))
        tied += len(others)
    return tied


def _straight(body: Sequence[Instruction | Label]) -> Iterator[list[Instruction]]:
    """Instructions that follow each other on every way."""
    code: list[Instruction] = []
    for one in body:
        if isinstance(one, Instruction) and one.name not in BRANCHES:
            code.append(one)
        elif code:
            yield code
            code = []
    if code:
        yield code


def _maxima(code: Sequence[Instruction]) -> list[Instruction]:
    """The instructions that give what came from other threads last and an exponential needs, one for each row, in the
    order of the text."""
    newest: dict[str, Instruction] = {}  # register -> the last exchange that it depends on
    order: dict[Instruction, int] = {}
    users: dict[str, Instruction] = {}  # register of an exchange -> the first float32 instruction that reads it
    needed: dict[Instruction, None] = {}
    for one in code:
        made = writes(one)
        if not made:
            continue
        read = reads(one)
        if one.name == "shfl":
            order[one] = len(order)
            newest[made[0]] = one
            continue
        latest = max((newest[name] for name in read if name in newest), key=order.__getitem__, default=None)
        if one.name in F32 and one.opcode.endswith(".f32") and not one.guard:
            for name in read:
                users.setdefault(name, one)
        elif one.name == "ex2" and latest is not None:
            needed[latest] = None
        for name in made:
            if latest is None:
                newest.pop(name, None)
            else:
                newest[name] = latest
    found = (users[writes(one)[0]] for one in needed if writes(one)[0] in users)
    return sorted(found, key=lambda one: one.start)

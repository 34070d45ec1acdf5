"""Waits for products that come no earlier than the code says.

A wait for products has no operands that ptxas knows of, so it moves one up to the last instruction that it keeps in
order: to the front of exponentials that were to run beside the products. Then a warp group waits twice, for the tensor
core and for the exponential unit. What a wait does not pass is an arrival at an mbarrier, and what an arrival does not
pass is what its predicate is computed from:

    wgmma.wait_group 1;                   wgmma.wait_group 1;
    @leader mbarrier.arrive [empty];      max, shfl, max, ex2 ...
    max, shfl, max, ex2 ...          =>   setp.ne.b32 known, %max, IMPOSSIBLE;
    wgmma.wait_group 0;                   @(leader and known) mbarrier.arrive [empty];
                                          wgmma.wait_group 0;

So the buffer is handed back a little later, when the last value is known that came from other threads and that an
exponential needs; from there on each exponential has what it needs and they follow each other without a pause. Only
arithmetic may stand between the arrival and the wait, so nobody can be waiting for the one to get to the other.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from wspec.bridge.ptx.code import instruction, is_arithmetic, is_arrival, is_group_barrier

IMPOSSIBLE = 0x7FC0DEAD
"""A NaN that no float32 instruction gives: theirs is 0x7fffffff (PTX ISA, floating-point instructions)."""

_WAIT = re.compile(r"^wgmma\.wait_group\.sync\.aligned\s+(\d+)\s*;")
_PREDICATED = re.compile(r"^@(%\w+)\s+(.*)$")
_COMPUTES = re.compile(r"^(?:@!?%\w+\s+)?([\w.:]+)\s+([^;]*);")
_REGISTER = re.compile(r"%\w+")
_F32 = re.compile(r"^(max|min|add|sub|mul|fma)(\.\w+)*\.f32$")


@dataclass(frozen=True, slots=True)
class _Held:
    """An arrival that is put off. Lines of the text."""

    arrival: int
    wait: int
    value: str  # the register it then needs


def with_held_waits(ptx: str) -> tuple[str, int]:
    """(the PTX with waits held, how many)."""
    lines = ptx.split("\n")
    code = [instruction(line) for line in lines]
    found = [held for at in range(len(code)) if (held := _held(code, at)) is not None]
    before: dict[int, list[str]] = {}
    for number, held in enumerate(found):
        match = _PREDICATED.match(code[held.arrival])
        assert match is not None
        known = f"%wspec_known{number}"
        lines[held.arrival] = "\t// an arrival stood here that waits for a value"
        before[held.wait] = [
            "\t{",
            f"\t.reg .pred {known};",
            f"\tsetp.ne.b32 {known}, {held.value}, {IMPOSSIBLE:#x};",
            f"\tand.pred {known}, {known}, {match[1]};",
            f"\t@{known} {match[2]}",
            "\t}",
        ]
    out: list[str] = []
    for at, line in enumerate(lines):
        out += [*before.get(at, ()), line]
    return "\n".join(out), len(found)


def _held(code: Sequence[str], at: int) -> _Held | None:
    """The arrival behind the wait at this line, if it can be put off to the next wait and there is what to wait for."""
    first = _WAIT.match(code[at])
    if first is None or int(first[1]) == 0:
        return None
    behind = (i for i in range(at + 1, len(code)) if code[i] and not is_arithmetic(code[i]))
    arrival = next((i for i in behind if not is_group_barrier(code[i])), None)
    if arrival is None or not is_arrival(code[arrival]) or _PREDICATED.match(code[arrival]) is None:
        return None
    wait = next((i for i in range(arrival + 1, len(code)) if code[i] and not is_arithmetic(code[i])), None)
    second = _WAIT.match(code[wait]) if wait is not None else None
    if wait is None or second is None or int(second[1]) >= int(first[1]):
        return None
    value = _last_exchanged(code[arrival + 1 : wait])
    return _Held(arrival, wait, value) if value else None


def _last_exchanged(code: Sequence[str]) -> str:
    """The register of the last value that comes from other threads and that an exponential needs; empty without one."""
    newest: dict[str, int] = {}  # register -> the last exchange it depends on
    exchanged: list[str] = []
    needed = -1
    for text in code:
        name, target, sources = _parts(text)
        if not target:
            continue
        latest = max((newest.get(one, -1) for one in sources), default=-1)
        if name.startswith("shfl."):
            latest = len(exchanged)
            exchanged.append(target)
        elif name.startswith("ex2."):
            needed = max(needed, latest)
        newest[target] = latest
    if needed < 0:
        return ""
    for text in code:
        name, target, sources = _parts(text)
        if _F32.match(name) and exchanged[needed] in sources:
            return target
    return ""


def _parts(text: str) -> tuple[str, str, list[str]]:
    """(instruction, the register it writes, those it reads); empty strings for what is none."""
    match = _COMPUTES.match(text)
    registers = _REGISTER.findall(match[2]) if match is not None else []
    return (match[1], registers[0], registers[1:]) if match is not None and registers else ("", "", [])

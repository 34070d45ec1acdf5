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

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from wspec.bridge.ptx.code import Lines, is_arithmetic, is_arrival, is_group_barrier, pending_products
from wspec.bridge.ptx.exchanges import taken_up
from wspec.ptx.effects import writes
from wspec.ptx.syntax import Instruction, Label

IMPOSSIBLE = 0x7FC0DEAD
"""A NaN that no float32 instruction gives: theirs is 0x7fffffff (PTX ISA, floating-point instructions)."""

_STOOD = "\t// an arrival stood here that waits for a value"


@dataclass(frozen=True, slots=True)
class _Held:
    """An arrival that is put off."""

    arrival: Instruction
    wait: Instruction
    value: str  # the register it then needs


def hold_waits(body: Sequence[Instruction | Label], lines: Lines) -> int:
    """Hold the waits of a body in the lines; how many. Raises PtxError."""
    found = [one for one in _all_held(body) if _stand_alone(lines, one)]
    for number, held in enumerate(found):
        known, arrival = f"%wspec_known{number}", held.arrival
        lines.replace(arrival, _STOOD)
        place = lines.line_of(held.wait)
        assert place is not None
        block = [
            "\t{",
            f"\t.reg .pred {known};",
            f"\tsetp.ne.b32 {known}, {held.value}, {IMPOSSIBLE:#x};",
            f"\tand.pred {known}, {known}, {arrival.guard};",
            f"\t@{known} {arrival.opcode} {arrival.text};",
            "\t}\n",
        ]
        lines.change(place[0], place[0], "\n".join(block))
    return len(found)


def _stand_alone(lines: Lines, held: _Held) -> bool:
    return lines.line_of(held.arrival) is not None and lines.line_of(held.wait) is not None


def _all_held(body: Sequence[Instruction | Label]) -> list[_Held]:
    waits = (at for at, one in enumerate(body) if isinstance(one, Instruction) and (pending_products(one) or 0) > 0)
    return [held for at in waits if (held := _held(body, at)) is not None]


def _held(body: Sequence[Instruction | Label], at: int) -> _Held | None:
    """The arrival behind the wait at this place, if it can be put off to the next wait and has what to wait for."""
    first = body[at]
    arrival = _next(body, at, lambda one: not is_arithmetic(one) and not is_group_barrier(one))
    stood = body[arrival] if arrival is not None else None
    if arrival is None or not isinstance(stood, Instruction) or not is_arrival(stood):
        return None
    wait = _next(body, arrival, lambda one: not is_arithmetic(one))
    second = body[wait] if wait is not None else None
    if wait is None or not isinstance(first, Instruction) or not isinstance(second, Instruction):
        return None
    pending, before = pending_products(second), pending_products(first)
    if pending is None or before is None or pending >= before:
        return None
    between = [one for one in body[arrival + 1 : wait] if isinstance(one, Instruction)]
    last = next(reversed(taken_up(between)), None)
    return _Held(stood, second, writes(last)[0]) if last is not None else None


def _next(body: Sequence[Instruction | Label], at: int, wanted: Callable[[Instruction], bool]) -> int | None:
    """The next wanted instruction behind a place, where no label comes before."""
    for place in range(at + 1, len(body)):
        one = body[place]
        if isinstance(one, Label) or wanted(one):
            return place
    return None

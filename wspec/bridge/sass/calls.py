"""Functions that ptxas put behind a kernel's code, as for divisions of 64 bits: that a call of one only computes.

A call is then an instruction like another, which changes some predicates. Seen is that nothing in the function
synchronizes or leaves it but by its return; that what it returns through was not changed on the way; and that every
call put the address of the next instruction there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from wspec.bridge.sass.cubin import INSTRUCTION_BYTES
from wspec.bridge.sass.decode import jump_target, turn_of, written
from wspec.bridge.sass.machine_code import registers

Word = tuple[int, int]

CALL, RET = 0x944, 0x950
FAMILY = 0x1FF  # the bits of an opcode that do not say which operands are registers and which numbers
_CALL_FAMILY = 0x144
TURNING = range(0x140, 0x160)  # what goes elsewhere is among these families
GOING_ON = frozenset((0x141, 0x142, 0x145, 0x146, 0x148, 0x155, 0x156, 0x15D))  # BSYNC BREAK BSSY YIELD ...
_PLAIN = 0x3C00000  # the upper half of a call or return without its distance
_DISTANCE = 0x3FFFF
_WIDEST = 4
_SCHEDULING = (1 << 105 - 64) - 1
_NO_REGISTER, _ALWAYS = 255, 7
_MOV, _MOV_NUMBER, _IMAD, _IMAD_NUMBER = 0x202, 0x802, 0x224, 0x424
_MOVE, _IMAD_MOVE = 0xF00, 0x78E0000  # their upper halves, without scheduling and registers


class Link(int):
    """The number of a register that holds what the caller left there."""


class NotFollowed(Exception):
    """What a call does is not known."""


def called(
    words: Sequence[Word], jumps: Mapping[int, tuple[int, ...]], changes: Callable[[int, int], int]
) -> tuple[Mapping[int, int], int]:
    """(place of a call in the kernel -> the predicates that it may change, the place where functions begin).

    A function reaches from where it is called to the next one. `jumps`: those that cubin.py has; `changes`: the
    predicates that an instruction may change, raising what it raises for one that synchronizes. Raises NotFollowed.
    """
    calls = {place: _called(place, word) for place, word in enumerate(words) if word[0] & FAMILY == _CALL_FAMILY}
    first = sorted(set(calls.values()))
    if not first:
        return {}, len(words)
    targets = _targets(words, jumps)
    functions = {
        start: _Function(_returns(words, start, end, targets), _changed(words, start, end, changes))
        for start, end in zip(first, [*first[1:], len(words)], strict=True)
    }
    for place, start in calls.items():  # none is in a function, which would not have been followed
        held = [_held(words, place, register, targets) for register in functions[start].link]
        if held != [(place + 1) * INSTRUCTION_BYTES, 0][: len(held)]:
            raise NotFollowed
    return {place: functions[start].changes for place, start in calls.items()}, first[0]


class _Function(NamedTuple):
    """What a call of it comes to."""

    link: tuple[int, ...]  # where the address to return to is: the lower half and, if it is not always 0, the upper one
    changes: int  # predicates


def _called(place: int, word: Word) -> int:
    low, high = word
    if low & 0xFFF != CALL or not _is_plain(high) or low >> 24 & 0x3FF:
        raise NotFollowed
    return jump_target(place * INSTRUCTION_BYTES, low, high) // INSTRUCTION_BYTES


def _targets(words: Sequence[Word], jumps: Mapping[int, tuple[int, ...]]) -> frozenset[int]:
    """The places that are jumped to."""
    found: set[int] = set()
    for place, (low, high) in enumerate(words):
        turn = turn_of(place * INSTRUCTION_BYTES, low, high, jumps) if low & FAMILY in TURNING else None
        if turn is not None:
            found |= {int(label, 16) // INSTRUCTION_BYTES for label in turn[0].targets}
    return frozenset(found)


def _is_plain(high: int) -> bool:
    return high & _SCHEDULING & ~_DISTANCE == _PLAIN


def _changed(words: Sequence[Word], first: int, end: int, changes: Callable[[int, int], int]) -> int:
    """The predicates that it may change. Every way stays inside until its return."""
    found, seen, work = 0, set[int](), [first]
    while work:
        place = work.pop()
        if place in seen:
            continue
        if not first <= place < end:
            raise NotFollowed
        seen.add(place)
        low, high = words[place]
        family = low & FAMILY
        if low & 0xFFF == RET:
            if low >> 12 & _ALWAYS != _ALWAYS:
                work.append(place + 1)
            continue
        if family in TURNING and family not in GOING_ON:
            turn = turn_of(place * INSTRUCTION_BYTES, low, high, {})
            if turn is None or not turn[0].targets:  # an exit, a call, or what is not known
                raise NotFollowed
            work += [int(label, 16) // INSTRUCTION_BYTES for label in turn[0].targets]
            if turn[0].falls:
                work.append(place + 1)
            continue
        found |= changes(low, high)
        work.append(place + 1)
    return found


def _returns(words: Sequence[Word], first: int, end: int, targets: frozenset[int]) -> tuple[int, ...]:
    """The registers in which its caller leaves the address to return to, see `_Function`."""
    found: set[tuple[int, ...]] = set()
    for place in range(first, end):
        low, high = words[place]
        if low & 0xFFF != RET:
            continue
        if not _is_plain(high) or jump_target(place * INSTRUCTION_BYTES, low, high) != 0:
            raise NotFollowed  # addresses are counted from elsewhere
        lower = low >> 24 & 0xFF
        halves = [_origin(words, place, first, one, targets) for one in (lower, lower + 1)]
        link: tuple[int, ...] = tuple(one for one in halves if isinstance(one, Link))
        if link[:1] != (halves[0],) or (len(link) == 1 and halves[1] != 0):
            raise NotFollowed
        found.add(link)
    if len(found) != 1:
        raise NotFollowed
    (held,) = found
    for low, high in words[first:end]:
        if any(_writes(low, high) & registers("R", one) for one in held):
            raise NotFollowed
    return held


def _origin(words: Sequence[Word], place: int, first: int, register: int, targets: frozenset[int]) -> Link | int:
    """The register that is copied to this one right before a place, or the number; itself where it is not written."""
    if not any(_writes(*word) & registers("R", register) for word in words[first:place]):
        return Link(register)
    low, high = words[_last_write(words, place, register, targets)]
    number = _number(low, high)
    return Link(_copied(low, high)) if number is None else number


def _held(words: Sequence[Word], place: int, register: int, targets: frozenset[int]) -> int:
    """The number in a register at a place."""
    number = _number(*words[_last_write(words, place, register, targets)])
    if number is None:
        raise NotFollowed
    return number


def _last_write(words: Sequence[Word], place: int, register: int, targets: frozenset[int]) -> int:
    """Where a register is written on the only way to a place."""
    while place not in targets and place > 0:
        place -= 1
        low, high = words[place]
        if low & FAMILY in TURNING:
            break
        if _writes(low, high) & registers("R", register):
            return place
    raise NotFollowed


def _writes(low: int, high: int) -> int:
    """The registers that an instruction may write. All that encodings.py knows name the first one at the same bits, and
    write no more than four but for products, which synchronize."""
    if low & FAMILY in TURNING:
        return 0
    found = written(low, high)
    return registers("R", low >> 16 & 0xFF, _WIDEST) if found is None else found


def _number(low: int, high: int) -> int | None:
    """What a move of a number writes; None of anything else."""
    if low >> 12 & 15 == _ALWAYS:
        if low & 0xFFF == _MOV_NUMBER and high & _SCHEDULING == _MOVE:
            return low >> 32
        if low & 0xFFF == _IMAD_NUMBER and high & _SCHEDULING == _IMAD_MOVE | _NO_REGISTER:
            return low >> 32 if low >> 24 & 0xFF == _NO_REGISTER else None
    return None


def _copied(low: int, high: int) -> int:
    """The register that a move copies."""
    if low >> 12 & 15 == _ALWAYS:
        if low & 0xFFF == _MOV and high & _SCHEDULING == _MOVE:
            return low >> 32 & 0xFF
        is_move = low & 0xFFF == _IMAD and high & _SCHEDULING & ~0xFF == _IMAD_MOVE
        if is_move and low >> 24 & 0xFF == low >> 32 & 0xFF == _NO_REGISTER:
            return high & 0xFF
    raise NotFollowed

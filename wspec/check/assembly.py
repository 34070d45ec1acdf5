"""Inline assembly, as the checker sees it: the named barriers in it, what it does with global memory, and whether its
results are alike in all threads.

Read are instructions that compute, that access global memory, and `bar.sync` and `bar.arrive` of a number and a count
that stand there, without a predicate, in code without branches. All else is undecided.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

from wspec.ir.assembly import AWAIT_WORD, SET_WORD
from wspec.ir.core import Operation
from wspec.ir.types import StringAttr
from wspec.ptx.effects import ACCESSES, ARITHMETIC, EXCHANGES, reads, space, writes
from wspec.ptx.errors import PtxError
from wspec.ptx.flow import BRANCHES
from wspec.ptx.inline import is_straight, read_inline
from wspec.ptx.operands import Number, registers
from wspec.ptx.syntax import Instruction

NAME = "tt.elementwise_inline_asm"
_UNIFORM = ("%ctaid", "%nctaid", "%ntid", "%gridid", "%nsmid")  # special registers alike in all threads of a block
_OF_MEMORY = frozenset((AWAIT_WORD, SET_WORD))  # of ours, with a loop; why it ends is argued in docs/passes.md
_SYNCS = ("bar.sync", "barrier.sync", "bar.cta.sync", "barrier.cta.sync")
_ARRIVES = ("bar.arrive", "barrier.arrive", "bar.cta.arrive", "barrier.cta.arrive")
_ORDER_ONLY = ("membar.", "fence.sc.", "fence.acq_rel.", "nanosleep.")  # they add order, and time, to what is there


@dataclass(frozen=True, slots=True)
class Meeting:
    """A use of a named barrier."""

    waits: bool
    number: int
    threads: int | None  # None: all of the block


@dataclass(frozen=True, slots=True)
class Meaning:
    """Of a text."""

    meetings: tuple[Meeting, ...] = ()
    differs: bool = True  # may a result differ from thread to thread, or from time to time?
    unknown: str = ""  # what cannot be followed
    written: frozenset[str] = frozenset()  # operands that are written, whatever happens
    loads: bool = True  # may it read global memory?
    stores: bool = True  # may it write there?


def is_active(op: Operation) -> bool:
    """Does it synchronize, or may it?"""
    found = meaning(text_of(op))
    return bool(found.meetings or found.unknown)


def differs(op: Operation) -> bool:
    """Is it assembly with a result that may differ from thread to thread, or from time to time?"""
    if op.name != NAME:
        return False
    found = meaning(text_of(op))
    return found.differs or any(f"${number}" not in found.written for number in range(len(op.results)))


def text_of(op: Operation) -> str:
    """Its text, as the author wrote it."""
    text = op.attr("asm_string")
    return text.plain if isinstance(text, StringAttr) else ""


def of(op: Operation) -> Meaning:
    """What inline assembly does."""
    return meaning(text_of(op))


@functools.lru_cache(maxsize=512)
def meaning(text: str) -> Meaning:
    """What a text does; what cannot be read may do anything. Never raises."""
    if text in _OF_MEMORY:
        return Meaning()
    try:
        function = read_inline(text)
        instructions = function.instructions
        straight = is_straight(function)
        found = [_meeting(one) for one in instructions]
        why = next((f"inline assembly with {one.opcode} is not followed" for one in instructions if _odd(one)), "")
        written = _written(instructions)
        differ = written is None or any(map(_differs, instructions))
        loads, stores = (any(map(touches, instructions)) for touches in (_loads, _stores))
    except PtxError as error:
        return Meaning(unknown=f"inline assembly cannot be read: {error.message}")
    meetings = tuple(one for one in found if one is not None)
    branches = any(one.name in BRANCHES for one in instructions)
    if not straight or (branches and meetings):
        why = why or "branches in inline assembly are not followed"
    return Meaning(meetings, differ, why, written or frozenset(), loads, stores)


def _meeting(one: Instruction) -> Meeting | None:
    """The use of a named barrier that an instruction is, where it can be followed."""
    opcode = one.opcode.removesuffix(".aligned")
    if one.guard or opcode not in (*_SYNCS, *_ARRIVES):
        return None
    numbers = [operand.value if isinstance(operand, Number) else None for operand in one.operands]
    if None in numbers or not 1 <= len(numbers) <= 2 or (opcode in _ARRIVES and len(numbers) == 1):
        return None
    number, *threads = numbers
    assert number is not None
    return Meeting(opcode in _SYNCS, number, threads[0] if threads else None)


def _odd(one: Instruction) -> bool:
    """May it do what is not followed?"""
    if one.name in ARITHMETIC or one.name in EXCHANGES or one.name in BRANCHES:
        return False
    if one.name in ACCESSES:
        return space(one) not in ("global", "param", "const", "local")  # another one may be shared memory
    if one.opcode.startswith(_ORDER_ONLY) or one.opcode == "bar.warp.sync":
        return False
    return _meeting(one) is None


def _loads(one: Instruction) -> bool:
    """May it read global memory? What is not followed may do so."""
    return _odd(one) or (one.name in ("ld", "atom") and space(one) == "global")


def _stores(one: Instruction) -> bool:
    """May it write there?"""
    return _odd(one) or (one.name in ("st", "red", "atom") and space(one) == "global")


def _written(instructions: list[Instruction]) -> frozenset[str] | None:
    """The registers that are written on every way; None where one is read that may not have been, and holds anything.

    What stands under a predicate, or behind a branch, may not be executed.
    """
    known: set[str] = set()
    sure = True
    for one in instructions:
        asked = (name for name in reads(one) if name[0] not in "$%" or name == "$0")  # those behind it may be operands
        if any(name not in known for name in asked):
            return None
        sure = sure and one.name not in BRANCHES
        known.update(() if one.guard or not sure else writes(one))
    return frozenset(known)


def _differs(one: Instruction) -> bool:
    if one.name in EXCHANGES or one.name in ACCESSES:
        return True
    special = (name for operand in one.operands for name in registers(operand) if name.startswith("%"))
    return any("#" not in name and not name.startswith(_UNIFORM) for name in special)

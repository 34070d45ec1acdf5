"""Instructions by which threads synchronize, and what of them matters to others."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from wspec.ptx.effects import BULK_COPIES, COPIES_OF_ELEMENTS
from wspec.ptx.errors import PtxError
from wspec.ptx.forms import Form
from wspec.ptx.operands import Address, Operand, number_of
from wspec.ptx.roles import is_meeting
from wspec.ptx.syntax import Instruction


class Event(NamedTuple):
    """What happens: its numbers (counts, bytes, pendings), the mbarrier's place, the phase, and the buffers' places.

    Places are bytes from the beginning of the block's shared memory. Of a bulk copy also the parameter that is its
    tensor map, where that is known, and of each of its boxes the coordinates, the innermost first; of copies of
    elements how many bytes each takes.
    """

    kind: str
    numbers: tuple[int, ...] = ()
    at: int | None = None
    phase: int | None = None
    buffers: tuple[int, ...] = ()
    tensor: int | None = None
    coordinates: tuple[tuple[Form, ...], ...] = ()
    size: int = 0


ELSEWHERE = -1
"""A place or a phase that is looked at another time."""
_WHOLE_WARP = (-1, 0xFFFFFFFF)
FENCE = Event("fence")
MEETING = Event("meeting")
"""All threads of the block wait for each other, before their tasks and behind them."""


@dataclass(frozen=True, slots=True)
class Shape:
    """What an instruction's event is made of."""

    kind: str
    who: str = "all"  # threads of the task: all, one (exactly), each (that does it adds to the number), some, any
    numbers: tuple[Operand | int, ...] = ()
    at: Operand | None = None
    phase: Operand | None = None
    buffer: Operand | None = None
    tensor: Address | None = None  # of a bulk copy: the tensor map and the coordinates
    size: int = 0  # of a copy of elements: bytes


def may_speak(one: Instruction) -> bool:
    """May it be an event?"""
    return one.name in ("bar", "barrier", "mbarrier", "fence", "wgmma", "cp")


def shape_of(one: Instruction, own: frozenset[int], number: int | None = None) -> Shape | None:
    """The event of an instruction; None for what is let pass. `own`: barriers of a task's own threads. `number`: of a
    barrier whose number stands in a register.

    Raises PtxError for what is not known.
    """
    opcode = one.opcode
    if opcode.startswith("wgmma.mma_async"):
        return None  # its many operands are not read
    operands = one.operands
    if one.name in ("bar", "barrier"):
        if is_meeting(one):
            return Shape(MEETING.kind)
        if opcode == "bar.warp.sync":
            if one.guard or number_of(operands[0]) not in _WHOLE_WARP:
                raise PtxError(f"'{one}' is not a barrier of a whole warp")
            return None
        if is_group_barrier(one, own, number):
            return None
        return Shape(opcode, numbers=operands)
    if one.name == "mbarrier":
        return _of_mbarrier(one)
    if opcode.startswith("fence.proxy.async"):
        if one.guard:
            raise PtxError(f"'{one}' is not of all threads")
        return Shape("fence")
    if opcode.startswith("wgmma.commit_group"):
        return Shape("product")
    if opcode.startswith("wgmma.wait_group"):
        return Shape("product wait", numbers=operands[:1])
    if one.name == "cp":
        return _of_copy(one)
    return None


def is_group_barrier(one: Instruction, own: frozenset[int], number: int | None = None) -> bool:
    """Do threads of one task wait for each other, as Triton lets them? `own`: the barriers for that. `number`: that of
    this one, where it stands in a register."""
    if one.opcode not in ("bar.sync", "barrier.sync") or len(one.operands) != 2:
        return False
    return (number_of(one.operands[0]) if number is None else number) in own


def _of_mbarrier(one: Instruction) -> Shape:
    opcode, operands = one.opcode, one.operands
    if opcode.startswith("mbarrier.init."):
        return Shape("init", "one", (operands[1],), operands[0])
    if opcode.startswith("mbarrier.inval."):
        return Shape("inval", "one", (), operands[0])
    if opcode.startswith("mbarrier.arrive.expect_tx."):
        return Shape("expect", "one", (operands[2],), operands[1])
    if opcode.startswith("mbarrier.arrive.shared"):
        return Shape("arrive", "each", (operands[2] if len(operands) > 2 else 1,), operands[1])
    if opcode.startswith("mbarrier.try_wait.parity."):
        return Shape("wait", "all", (), operands[1], operands[2])
    raise PtxError(f"'{one}' is not compared")


def _of_copy(one: Instruction) -> Shape | None:
    opcode, operands = one.opcode, one.operands
    if one.guard and opcode.startswith(("cp.async.bulk.commit_group", "cp.async.bulk.wait_group")):
        return None  # of a thread that makes a descriptor (ttng.tensormap_create)
    if opcode.startswith("cp.async.bulk.commit_group"):
        return Shape("commit")
    if opcode.startswith("cp.async.bulk.wait_group"):  # with `.read` or, which is more, without
        return Shape("store wait", numbers=operands[:1])
    if opcode.startswith(BULK_COPIES):
        if ".mbarrier::complete_tx" in opcode:
            return Shape("load", "some", (), operands[2], None, operands[0], _tensor(operands[1]))
        return Shape("store", "some", buffer=operands[1], tensor=_tensor(operands[0]))
    if opcode.startswith("cp.async.mbarrier.arrive."):
        return Shape("element arrive", "all", (), operands[0])
    if opcode.startswith(COPIES_OF_ELEMENTS):
        return Shape("element", "any", buffer=operands[0], size=number_of(operands[2]) or 0)
    if opcode.startswith("cp.async.commit_group"):
        return Shape("element commit")
    if opcode.startswith("cp.async.wait_group"):
        return Shape("element wait", numbers=operands[:1])
    raise PtxError(f"'{one}' is not compared")


def _tensor(operand: Operand) -> Address | None:
    return operand if isinstance(operand, Address) else None

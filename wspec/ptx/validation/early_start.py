"""A kernel that may begin while the one before it runs: whatever that one may write is touched behind a wait only.

On every way to an access of the GPU's memory a thread has executed `griddepcontrol.wait`, or has met all threads of the
block at a `barrier.sync`, one of which had. The one exception are loads through a parameter that is said to point to
what no kernel writes.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Iterator, Sequence

from wspec.ptx.effects import ACCESSES, ARITHMETIC, EXCHANGES, space, writes
from wspec.ptx.errors import PtxError
from wspec.ptx.fixed_points import states_before
from wspec.ptx.flow import BRANCHES, ENDS, Block, blocks_of
from wspec.ptx.operands import Address, Register, Symbol, registers
from wspec.ptx.registers import Writers
from wspec.ptx.roles import Walk, is_meeting
from wspec.ptx.syntax import Function, Instruction

WAIT = "griddepcontrol.wait"
_ALLOWED = (WAIT, "griddepcontrol.launch_dependents")
_HARMLESS = frozenset(
    ("bar", "barrier", "mbarrier", "wgmma", "fence", "membar", "setmaxnreg", "griddepcontrol", "ldmatrix", "stmatrix",
     "createpolicy", "nanosleep")
)  # fmt: skip
_ENDS_OF_COPIES = ("cp.async.bulk.commit_group", "cp.async.bulk.wait_group", "cp.async.commit_group",
                   "cp.async.wait_group", "cp.async.wait_all", "cp.async.mbarrier.arrive")  # fmt: skip


def show_early_start(after: Function, come: Iterable[Instruction], constant: str) -> None:
    """Raises PtxError where memory may be touched too early.

    `constant`: the parameter that points to what no kernel writes, or "".
    """
    for one in come:
        if one.opcode not in _ALLOWED or one.guard:
            raise PtxError(f"'{one}' has come")
    blocks = blocks_of(after)
    if not any(one.opcode == WAIT for block in blocks for one in block.instructions):
        return  # then it is launched like any other
    met = _first_has_waited(blocks)
    steps = [[one for one in block.instructions if _matters(one)] for block in blocks]

    def behind(number: int, waited: bool) -> Iterator[tuple[int, bool]]:
        waited = waited or any(_waits(one, met) for one in steps[number])
        yield from ((way, waited) for way in blocks[number].follow)

    sources = Sources(after)
    for number, waited in states_before({0: False}, behind, operator.and_).items():
        for one in steps[number]:
            waited = waited or _waits(one, met)
            if not waited and _touches(one) and not sources.is_load_from(one, constant):
                raise PtxError(f"'{one}' may touch what the kernel before this one writes, and has not waited for it")


def show_unread(after: Function, gone: Sequence[Instruction]) -> None:
    """Raises PtxError where the value of a constant that is gone is read."""
    for one in gone:
        name = writes(one)[0]
        for other in after.instructions:
            if other.guard == name or (name in other.text and name in _all(other)):
                raise PtxError(f"'{one}' is gone, and '{other}' needs it")


def _all(one: Instruction) -> set[str]:
    return {name for operand in one.operands for name in registers(operand)}


def _matters(one: Instruction) -> bool:
    return not (one.name in ARITHMETIC or one.name in EXCHANGES or one.name in BRANCHES or one.name in ENDS)


def _waits(one: Instruction, met: bool) -> bool:
    return not one.guard and (one.opcode == WAIT or (met and is_meeting(one)))


def _touches(one: Instruction) -> bool:
    """May it touch the GPU's memory?"""
    if one.name in ACCESSES:
        return space(one) not in ("shared", "param", "local", "const")
    return one.name not in _HARMLESS and not one.opcode.startswith(_ENDS_OF_COPIES)


def _first_has_waited(blocks: Sequence[Block]) -> bool:
    """Has thread 0 waited when it comes to the first barrier of all threads? False where its way is not known."""
    walk = Walk(blocks, 0, {})
    try:
        walk.until_meeting()
    except PtxError:
        return False
    return any(one.opcode == WAIT and not one.guard for one in walk.seen)


# ------------------------------------------------------------------------------------ where an address comes from


class Sources:
    """The parameters that registers of addresses come from."""

    def __init__(self, function: Function) -> None:
        self._writers = Writers(function)

    def is_load_from(self, one: Instruction, parameter: str) -> bool:
        """Is it a load of global memory at an address that is made of that parameter, and of integers?"""
        if one.name != "ld" or space(one) != "global" or len(one.operands) != 2 or not parameter:
            return False
        address = one.operands[1]
        if not isinstance(address, Address) or not isinstance(address.base, Register):
            return False
        return self._origins(address.base.name) == {parameter}

    def _origins(self, start: str) -> set[str]:
        """Parameters, and "?" for what is not known."""
        found: set[str] = set()
        seen, work = {start}, [start]
        while work:
            name = work.pop()
            makers = self._writers.of(name)
            if not makers:
                found.add("?")
            for one in makers:
                for source in self._taken(one, found):
                    if source not in seen:
                        seen.add(source)
                        work.append(source)
        return found

    @staticmethod
    def _taken(one: Instruction, found: set[str]) -> list[str]:
        """The registers that a pointer is made of; what is no register goes to `found`."""
        if one.opcode == "ld.param.b64" and isinstance(one.operands[1], Address):
            base = one.operands[1].base
            found.add(base.name if isinstance(base, Symbol) and not one.operands[1].offset else "?")
            return []
        if one.opcode.startswith("mad.wide.") and isinstance(one.operands[3], Register):
            return [one.operands[3].name]
        if one.opcode.startswith(("cvt.s64.", "cvt.u64.", "mul.wide.")):
            return []  # of 32 bits
        if one.name in ("add", "sub", "mov", "shl", "or") and not one.guard:
            return [operand.name for operand in one.operands[1:] if isinstance(operand, Register)]
        found.add("?")
        return []

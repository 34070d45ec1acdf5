"""Which warps of a specialized kernel execute which part of it.

Triton's kernels of several tasks begin so: the first warps go one way, make the mbarriers, write a table of bytes to
shared memory and meet all others at `barrier.sync 1`; the others wait there, each reads its byte, and goes where it
says; then all meet again, and the tasks begin. What a warp does until then hangs on its number alone, so it is
evaluated here, for the first thread of each warp.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from wspec.ptx.arithmetic import computed
from wspec.ptx.effects import has_known_registers, writes
from wspec.ptx.errors import PtxError
from wspec.ptx.fixed_points import all_from
from wspec.ptx.flow import Block
from wspec.ptx.operands import Address, Number, Operand, Register, Several, Symbol
from wspec.ptx.syntax import Function, Instruction

WARP = 32
_THREADS = re.compile(r"\.(?:reqntid|maxntid)\s+(\d+)")
_SIZES = {"b8": 1, "b16": 2, "b32": 4, "u8": 1, "u16": 2, "u32": 4}

MEETING_BARRIER = 1  # all threads of the block meet there

Value = int | tuple[str, int]
"""An integer, or so many bytes behind a variable."""


@dataclass(frozen=True, slots=True)
class Role:
    """A part of the kernel, and the warps that execute it."""

    warps: tuple[int, ...]
    blocks: frozenset[int]
    start: tuple[int, int]  # a block, and a place in it
    partition: int | None  # the number that says it: of a partition, or of nothing to do; None of who begins
    way: tuple[int, ...] = ()  # the blocks up to the start, with that of the start

    @property
    def threads(self) -> int:
        return WARP * len(self.warps)


def is_meeting(one: Instruction) -> bool:
    """A barrier of all threads of the block, as Triton writes it."""
    return (
        one.opcode in ("barrier.sync", "bar.sync") and not one.guard and one.operands == (Number(str(MEETING_BARRIER)),)
    )


def roles_of(function: Function, blocks: Sequence[Block]) -> list[Role]:
    """The roles. Raises PtxError where the kernel does not begin as Triton's do."""
    threads = _THREADS.search(function.header)
    if threads is None:
        raise PtxError("how many threads the kernel has is not said")
    memory: dict[tuple[str, int], int] = {}
    first = Walk(blocks, 0, memory)
    first.until_meeting()
    first.until_meeting()
    found: dict[tuple[int, int | None], tuple[list[int], set[int], Walk]] = {}  # LLVM merges partitions that are equal
    for warp in range(int(threads[1]) // WARP):
        walk = Walk(blocks, WARP * warp, dict(memory))
        walk.until_meeting()
        stop = walk.number  # where those that are done come back to
        walk.until_meeting()
        warps, inside, _ = found.setdefault((walk.number, walk.partition), ([], set(), walk))
        warps.append(warp)
        if not inside:
            inside |= _reached(blocks, walk.number, stop)
            inside |= set() if walk.loaded else set(walk.passed)
    shared = {0} if len(found) > 1 else set()
    return [
        Role(
            tuple(warps),
            frozenset(inside - shared),
            (walk.number, walk.place) if walk.loaded else (0, 0),
            walk.partition,
            tuple(number for number, _ in itertools.groupby(walk.passed)) if walk.loaded else (),
        )
        for warps, inside, walk in found.values()
    ]


def _reached(blocks: Sequence[Block], start: int, stop: int) -> set[int]:
    return all_from((start,), lambda number: (way for way in blocks[number].follow if way != stop))


@dataclass(slots=True)
class Walk:
    """The way of one thread, as far as it is known. `memory` takes what it stores to known places."""

    blocks: Sequence[Block]
    thread: int
    memory: dict[tuple[str, int], int]
    number: int = 0  # of the block
    place: int = 0  # in it
    known: dict[str, Value] = field(default_factory=dict)
    passed: list[int] = field(default_factory=list)  # blocks
    seen: list[Instruction] = field(default_factory=list)
    loaded: list[int] = field(default_factory=list)  # integers, from shared memory

    @property
    def partition(self) -> int | None:
        """The last number that it loaded."""
        return self.loaded[-1] if self.loaded else None

    def until_meeting(self) -> None:
        """Go on to the next barrier of all threads, and pass it. Raises PtxError where the way is not known."""
        self.known["%tid.x"] = self.thread
        for _ in range(len(self.blocks) + 1):
            block = self.blocks[self.number]
            self.passed.append(self.number)
            while self.place < len(block.instructions):
                one = block.instructions[self.place]
                self.place += 1
                self.seen.append(one)
                if is_meeting(one):
                    return
                self._execute(one)
            self._turn(block)
        raise PtxError(f"thread {self.thread} does not come to a barrier of all")

    def _turn(self, block: Block) -> None:
        turn, ways = block.turn, block.follow
        self.place = 0
        if turn is None or (turn.name == "bra" and not turn.guard):
            way = ways[0] if ways else None
        elif turn.name == "bra" and isinstance(taken := self.known.get(turn.guard), int):
            way = ways[0 if bool(taken) != turn.unless else 1]
        elif turn.name == "brx" and not turn.guard:
            index = self._value(turn.operands[0])
            way = ways[index] if isinstance(index, int) and index < len(ways) else None
        else:
            way = None
        if way is None:
            raise PtxError(f"where thread {self.thread} goes at '{turn}' is not known")
        self.number = way

    # ---- values

    def _value(self, operand: Operand) -> Value | None:
        match operand:
            case Number():
                return operand.value
            case Symbol(name):
                return name, 0
            case Register(name, False):
                return self.known.get(name)
        return None

    def _place(self, operand: Operand) -> tuple[str, int] | None:
        if not isinstance(operand, Address) or operand.rest:
            return None
        base = self._value(operand.base)
        return (base[0], base[1] + operand.offset) if isinstance(base, tuple) else None

    def _execute(self, one: Instruction) -> None:
        if not has_known_registers(one):
            raise PtxError(f"what '{one}' does is not known")
        if one.opcode.startswith("st.shared"):
            self._store(one)
        made = writes(one)
        result = self._result(one) if len(made) == 1 and not one.guard else None
        for name in made:
            self.known.pop(name, None)
        if result is not None:
            self.known[made[0]] = result

    def _store(self, one: Instruction) -> None:
        place, data = self._place(one.operands[0]), one.operands[1]
        size = _SIZES.get(one.opcode.rpartition(".")[2])
        if place is None or size is None or one.guard:
            self.memory.clear()
            return
        for number, item in enumerate(data.items if isinstance(data, Several) else (data,)):
            value = self._value(item)
            for byte in range(size):
                at = (place[0], place[1] + number * size + byte)
                self.memory.pop(at, None)
                if isinstance(value, int):
                    self.memory[at] = value >> (8 * byte) & 255

    def _result(self, one: Instruction) -> Value | None:
        if one.opcode.startswith("ld.shared.") and len(one.operands) == 2:
            place, size = self._place(one.operands[1]), _SIZES.get(one.opcode.rpartition(".")[2])
            bytes_ = [self.memory.get((place[0], place[1] + at)) for at in range(size or 0)] if place else []
            known = [value for value in bytes_ if value is not None]
            if len(known) != size:
                return None
            self.loaded.append(sum(value << (8 * at) for at, value in enumerate(known)))
            return self.loaded[-1]
        values = [self._value(operand) for operand in one.operands[1:]]
        words = one.opcode.split(".")
        match words[0], values:
            case "mov" | "cvt", [value] if value is not None:
                return value if isinstance(value, tuple) else computed(one.opcode, (value,))
            case "shfl", [value, 0, *_] if words[2] == "idx":
                return value  # of lane 0, which this thread is
            case "add", [tuple((name, offset)), int(by)] | [int(by), tuple((name, offset))]:
                return name, offset + by
            case "selp", [then, other, int(flag)]:
                return then if flag else other
            case _, [int(), int()]:
                return computed(one.opcode, tuple(value for value in values if isinstance(value, int)))
        return None

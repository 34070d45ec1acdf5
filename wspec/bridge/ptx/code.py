"""What an instruction means to the edits, and how a text is edited."""

from __future__ import annotations

from wspec.ptx.effects import ACCESSES, ARITHMETIC, EXCHANGES, space
from wspec.ptx.operands import number_of
from wspec.ptx.syntax import Instruction

GROUP = 128  # threads of a warp group

_ORDERED = frozenset(("wgmma", "bar", "mbarrier", "setmaxnreg", "bra", "brx"))
_ELSEWHERE = frozenset(("wgmma", "setmaxnreg", "griddepcontrol", "prefetch", "bra", "brx"))
_MEMORY = ACCESSES | {"griddepcontrol", "prefetch"}


def is_clean(instruction: Instruction) -> bool:
    """Does it leave shared memory alone, or touch it as no thread does?"""
    name = instruction.name
    if name in ARITHMETIC or name in EXCHANGES or name in _ELSEWHERE:
        return True
    if name in ACCESSES:
        return space(instruction) in ("global", "param", "const", "local")
    if name == "mbarrier":
        return instruction.opcode.startswith(("mbarrier.try_wait", "mbarrier.arrive"))
    return instruction.opcode.startswith("bar.arrive")


def speaks(instruction: Instruction) -> bool:
    """Is it more than arithmetic and other memories?"""
    return instruction.name in _ORDERED or not is_clean(instruction)


def is_arithmetic(instruction: Instruction) -> bool:
    """Does it only compute, from registers and values of other threads of its warp?"""
    return not speaks(instruction) and instruction.name not in _MEMORY


def is_sync(instruction: Instruction) -> bool:
    """A barrier of any threads, at which they wait."""
    return instruction.opcode in ("bar.sync", "bar.sync.aligned", "barrier.sync", "barrier.sync.aligned")


def is_group_barrier(instruction: Instruction, threads: int = GROUP) -> bool:
    """A barrier of all threads of one warp group, or of a task of so many."""
    if instruction.opcode != "bar.sync" or instruction.guard:
        return False
    operands = instruction.operands
    return len(operands) == 2 and number_of(operands[1]) == threads


def meets(instruction: Instruction, threads: int) -> bool:
    """Do so many threads that go the same way meet here, at least?"""
    if not is_sync(instruction) or instruction.guard:
        return False
    return len(instruction.operands) < 2 or (number_of(instruction.operands[1]) or 0) >= threads


def is_setup_barrier(instruction: Instruction) -> bool:
    """A barrier of the warps that set a kernel up; tasks have other numbers."""
    is_plain = instruction.opcode == "bar.sync" and not instruction.guard
    return is_plain and number_of(instruction.operands[0]) == 0


def is_arrival(instruction: Instruction) -> bool:
    """One thread's arrival at an mbarrier of its block."""
    arrives = instruction.opcode in ("mbarrier.arrive.shared::cta.b64", "mbarrier.arrive.shared.b64")
    return arrives and bool(instruction.guard) and not instruction.unless


def pending_products(instruction: Instruction) -> int | None:
    """How many groups of products may be under way behind a wait for products; None of what is none."""
    if instruction.opcode != "wgmma.wait_group.sync.aligned" or instruction.guard:
        return None
    return number_of(instruction.operands[0])


def line_at(text: str, at: int) -> tuple[int, int]:
    """The line of a place in the text, with its line end: (start, end)."""
    start, end = text.rfind("\n", 0, at) + 1, text.find("\n", at)
    return start, len(text) if end < 0 else end + 1


class Lines:
    """A text whose lines are replaced, or get others before or behind them."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._changes: dict[tuple[int, int], str] = {}

    def line_of(self, instruction: Instruction) -> tuple[int, int] | None:
        """The line of an instruction that has lines of its own, without the line end; None where others share it."""
        start, end = line_at(self._text, instruction.start)
        end -= self._text[end - 1 : end] == "\n"
        before = self._text[start : instruction.start].strip()
        behind = self._text[instruction.end : end].strip()
        return None if before or (behind and not behind.startswith("//")) else (start, end)

    def replace(self, instruction: Instruction, by: str) -> None:
        """Another text for the lines of an instruction that has lines of its own."""
        span = self.line_of(instruction)
        assert span is not None
        self._changes[span] = by

    def change(self, start: int, end: int, by: str) -> None:
        """Another text from a place to another one; they may be the same."""
        self._changes[start, end] = by

    def text(self) -> str:
        """With all changes."""
        parts, end = [], 0
        for (start, stop), by in sorted(self._changes.items()):
            parts += [self._text[end:start], by]
            end = stop
        return "".join((*parts, self._text[end:]))

"""Basic blocks of a function and where each goes on."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from wspec.ptx.errors import PtxError
from wspec.ptx.fixed_points import all_from
from wspec.ptx.operands import Operand, Symbol
from wspec.ptx.syntax import Function, Instruction, Label

BRANCHES = frozenset(("bra", "brx"))
ENDS = frozenset(("ret", "exit", "trap"))


@dataclass(slots=True, eq=False)
class Block:
    """Instructions that are executed one after the other; only the last one may branch."""

    number: int
    labels: list[str] = field(default_factory=list)
    instructions: list[Instruction] = field(default_factory=list)
    follow: list[int] = field(default_factory=list)  # targets of its branch, then what it falls into

    @property
    def spins(self) -> bool:
        """Is it the loop of one wait?"""
        return self.number in self.follow and self.instructions[0].opcode.startswith("mbarrier.try_wait")

    @property
    def turn(self) -> Instruction | None:
        """The branch or end that it ends with."""
        last = self.instructions[-1] if self.instructions else None
        return last if last is not None and (last.name in BRANCHES or last.name in ENDS) else None


def reached(function: Function) -> list[Instruction | Label]:
    """The body without the labels that no branch names: those of debuggers. Raises PtxError."""
    labels = {one.name for one in function.body if isinstance(one, Label)}
    used = {name for turn in _branches(function) for name in targets(turn, function, labels)}
    return [one for one in function.body if isinstance(one, Instruction) or one.name in used]


def _branches(function: Function) -> Iterator[Instruction]:
    return (one for one in function.body if isinstance(one, Instruction) and one.name in BRANCHES)


def blocks_of(function: Function) -> list[Block]:
    """The blocks in the order of the text; the first is entered. Raises PtxError for a branch that cannot be read."""
    blocks = [Block(0)]
    current, is_over = blocks[0], False  # behind a branch or an end
    for one in reached(function):
        if (is_over and isinstance(one, Instruction)) or (isinstance(one, Label) and current.instructions):
            current, is_over = Block(len(blocks)), False
            blocks.append(current)
        if isinstance(one, Label):
            current.labels.append(one.name)
        else:
            current.instructions.append(one)
            is_over = one.name in BRANCHES or one.name in ENDS
    named = {label: block.number for block in blocks for label in block.labels}
    for block in blocks:
        turn = block.turn
        if turn is not None and turn.name in BRANCHES:
            block.follow += [named[target] for target in targets(turn, function, named)]
        falls = turn is None or bool(turn.guard)
        if falls and block.number + 1 < len(blocks):
            block.follow.append(block.number + 1)
        elif falls and block.instructions and function.name:
            raise PtxError(f"{function.name} goes on behind its end")
    return blocks


def loops_of(blocks: Sequence[Block], start: int, inside: Container[int]) -> dict[int, set[int]]:
    """The loops among some blocks: the block that each is entered at -> its blocks."""
    state: dict[int, bool] = {}  # whether it is still on the way that is gone
    before: dict[int, list[int]] = {}
    back: list[tuple[int, int]] = []
    way = [(start, iter(blocks[start].follow))]
    state[start] = True
    while way:
        number, follow = way[-1]
        following = next((one for one in follow if one in inside), None)
        if following is None:
            state[number] = False
            way.pop()
            continue
        before.setdefault(following, []).append(number)
        if following not in state:
            state[following] = True
            way.append((following, iter(blocks[following].follow)))
        elif state[following]:
            back.append((number, following))
    found: dict[int, set[int]] = {}
    for last, first in back:
        found.setdefault(first, set()).update(loop_of(first, last, lambda number: before.get(number, ())))
    return found


def loop_of(first: int, last: int, before: Callable[[int], Iterable[int]]) -> set[int]:
    """The blocks of a loop that is entered at one block and goes back there from another."""
    return all_from((first, last), lambda number: () if number == first else before(number))


def targets(branch: Instruction, function: Function, known: Container[str]) -> tuple[str, ...]:
    """The unique names of the labels that a branch may go to, among those that are known. Raises PtxError."""
    operands = branch.operands
    if branch.name == "bra" and len(operands) == 1:
        return (_label(branch, operands[0], known),)
    if branch.name == "brx" and len(operands) == 2 and isinstance(operands[1], Symbol):
        for table in _names(branch, operands[1].name):
            if table in function.tables:
                return tuple(_label(branch, Symbol(name), known) for name in function.tables[table])
    raise PtxError(f"where does {branch} go?")


def _label(branch: Instruction, operand: Operand, known: Container[str]) -> str:
    if isinstance(operand, Symbol):
        for name in _names(branch, operand.name):
            if name in known:
                return name
    raise PtxError(f"where does {branch} go?")


def _names(branch: Instruction, name: str) -> list[str]:
    """What a name may stand for there, the innermost block first."""
    return [*(f"{name}#{block}" for block in reversed(branch.blocks)), name]

"""Barriers whose numbers stand in registers, as where LLVM has merged the ends of two tasks."""

from __future__ import annotations

import pytest

from wspec.bridge.ptx.side_by_side import _show_group_barriers
from wspec.ptx import flow
from wspec.ptx.barrier_numbers import BarrierNumbers
from wspec.ptx.errors import PtxError
from wspec.ptx.parser import read
from wspec.ptx.registers import Writers
from wspec.ptx.roles import Role
from wspec.ptx.syntax import Instruction
from wspec.ptx.validation.group_barriers import show_own

HEAD = """
.version 8.7
.target sm_90a
.address_size 64
.visible .entry kernel()
.reqntid 256
{
	.reg .pred %p<9>;
	.reg .b32 %r<99>;
"""
BODY = """
	@%p1 bra 	$L__second;
	mov.b32 	%r9, 2;
	bar.sync 	2, 128;
	bra.uni 	$L__end;
$L__second:
	mov.b32 	%r9, 3;
$L__again:
	bar.sync 	3, 128;
	@%p2 bra 	$L__again;
$L__end:
	bar.sync 	%r9, 128;
	ret;
}
"""
FIRST, SECOND, AGAIN, END = 1, 2, 3, 4


class Text:
    """Of two tasks with one end: warps 0 to 3 go the first way, warps 4 to 7 the second."""

    def __init__(self, *changes: tuple[str, str]) -> None:
        body = BODY
        for old, new in changes:
            assert old in body
            body = body.replace(old, new, 1)
        entry = read(HEAD + body).entry()
        self.blocks = flow.blocks_of(entry)
        self.first = Role((0, 1, 2, 3), frozenset((FIRST, END)), (FIRST, 0), 0, (0, FIRST))
        self.second = Role((4, 5, 6, 7), frozenset((SECOND, AGAIN, END)), (SECOND, 0), 1, (0, SECOND))
        self.barriers = BarrierNumbers(self.blocks, Writers(entry))

    @property
    def end(self) -> Instruction:
        return self.blocks[END].instructions[0]

    def numbers(self) -> tuple[int | None, int | None]:
        return self.barriers.of(self.end, self.first), self.barriers.of(self.end, self.second)

    def show(self) -> None:
        _show_group_barriers(self.blocks, [self.first, self.second], frozenset((0, 2, 3)), self.barriers)

    def show_gone(self) -> None:
        """As if the first task's own barrier were gone."""
        gone = [one for one in self.blocks[FIRST].instructions if one.name == "bar"]
        show_own(self.blocks, [self.first, self.second], gone, self.barriers)


def test_each_task_has_its_own_number() -> None:
    text = Text()
    assert text.numbers() == (2, 3)
    text.show()
    text.show_gone()


@pytest.mark.parametrize(
    ("change", "numbers"),
    [
        (("mov.b32 	%r9, 2;", "mov.b32 	%r8, 2;"), (None, 3)),  # never set
        (("mov.b32 	%r9, 2;", "@%p2 mov.b32 	%r9, 2;"), (None, 3)),  # perhaps set
        (("mov.b32 	%r9, 2;", "mov.b32 	%r9, %r7;"), (None, 3)),
        (("bar.sync 	3, 128;", "bar.sync 	3, 128;\n	mov.b32 	%r9, 4;"), (2, None)),  # set to two numbers
        (("@%p1 bra", "mov.b32 	%r9, 7;\n	@%p1 bra"), (None, None)),
        (("bar.sync 	%r9", "mov.b32 	%r9, 2;\n	bar.sync 	%r9"), (2, None)),
    ],
)
def test_what_is_not_known(change: tuple[str, str], numbers: tuple[int | None, int | None]) -> None:
    text = Text(change)
    end = next(one for one in text.blocks[END].instructions if one.name == "bar")
    assert (text.barriers.of(end, text.first), text.barriers.of(end, text.second)) == numbers
    with pytest.raises(PtxError, match="is not known"):
        text.show_gone()


def test_a_way_on_which_the_register_is_not_set() -> None:
    late = "@%p2 bra 	$L__again;", "@%p2 bra 	$L__again;\n	mov.b32 	%r9, 3;\n"
    past = "bar.sync 	3, 128;\n", "bar.sync 	3, 128;\n	@%p3 bra 	$L__end;\n"
    text = Text(("mov.b32 	%r9, 3;\n", ""), late, past)
    numbered = {block.number: block for block in text.blocks}
    end = next(one for one in numbered[max(numbered)].instructions if one.name == "bar")
    second = Role((4, 5, 6, 7), frozenset(range(2, len(text.blocks))), (2, 0), 1, (0, 2))
    assert text.barriers.of(end, second) is None


def test_two_tasks_at_one_barrier() -> None:
    text = Text(("mov.b32 	%r9, 3;", "mov.b32 	%r9, 2;"))
    with pytest.raises(PtxError, match="is not a barrier of the 128 threads of its task"):
        text.show()
    with pytest.raises(PtxError, match="not shown that it is of one task alone"):
        text.show_gone()


def test_a_barrier_of_more_threads() -> None:
    with pytest.raises(PtxError, match="is not a barrier of the 128 threads of its task"):
        Text(("bar.sync 	%r9, 128;", "bar.sync 	%r9, 256;")).show()

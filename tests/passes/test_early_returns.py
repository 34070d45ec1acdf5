"""Kernels that return early, drawn: nested, they compute what they computed as blocks and jumps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import hypothesis
import torch
from hypothesis import strategies as st

from wspec import ir
from wspec.execute import run
from wspec.ir.verify import check_valid
from wspec.passes.early_returns import nest_returns


@dataclass(frozen=True)
class Branch:
    """Where a bit of the argument is set, the first statements, else the others."""

    bit: int
    yes: tuple[object, ...]
    no: tuple[object, ...]


RETURN = "return"
SETTINGS = hypothesis.settings(max_examples=120, deadline=None, database=None, derandomize=True)
statements = st.recursive(
    st.lists(st.one_of(st.integers(1, 9), st.just(RETURN)), max_size=2).map(tuple),
    lambda inner: st.lists(
        st.one_of(st.integers(1, 9), st.builds(Branch, st.integers(0, 3), inner, inner)), min_size=1, max_size=3
    ).map(tuple),
    max_leaves=8,
)


class Writer:
    """The text of a program: a number that each statement makes thrice as large and adds to; a return stores it."""

    def __init__(self) -> None:
        self.blocks: list[str] = []
        self.count = 0
        self.last = self.name()  # the block that stores what is left at the end
        self.after = [self.last]  # where statements go on, innermost last

    def name(self) -> int:
        self.count += 1
        return self.count

    def write(self, body: Sequence[object], value: str, lines: list[str]) -> str | None:
        """Append statements to the lines of a block; the number's name behind them, None where they all return."""
        for at, one in enumerate(body):
            if one == RETURN:
                self.finish([*lines, *self.stored(value)])
                return None
            if isinstance(one, Branch):  # what follows is in other blocks
                return self.branch(one, body[at + 1 :], value, lines)
            value = self.grown(value, int(str(one)), lines)
        self.finish([*lines, f'"cf.br"({value})[^bb{self.after[-1]}] : (i32) -> ()'])
        return value

    def branch(self, one: Branch, rest: Sequence[object], value: str, lines: list[str]) -> str | None:
        yes, no, join, bit = (self.name() for _ in range(4))
        lines += [
            f'%m{bit} = "arith.constant"() <{{value = {1 << one.bit} : i32}}> : () -> i32',
            f'%a{bit} = "arith.andi"(%n, %m{bit}) : (i32, i32) -> i32',
            f'%t{bit} = "arith.cmpi"(%a{bit}, %m{bit}) <{{predicate = 0 : i64}}> : (i32, i32) -> i1',
            f'"cf.cond_br"(%t{bit})[^bb{yes}, ^bb{no}] <{{operandSegmentSizes = array<i32: 1, 0, 0>}}> : (i1) -> ()',
        ]
        self.finish(lines)
        self.after.append(join)
        ends = [self.write(side, value, [f"^bb{at}:"]) for side, at in ((one.yes, yes), (one.no, no))]
        self.after.pop()
        if ends == [None, None]:
            return None
        return self.write(rest, f"%j{join}", [f"^bb{join}(%j{join}: i32):"]) or "returned"

    def grown(self, value: str, by: int, lines: list[str]) -> str:
        at = self.name()
        flags = "<{overflowFlags = #arith.overflow<none>}>"
        lines += [
            f'%c{at} = "arith.constant"() <{{value = {by} : i32}}> : () -> i32',
            f'%x{at} = "arith.muli"({value}, %three) {flags} : (i32, i32) -> i32',
            f'%v{at} = "arith.addi"(%x{at}, %c{at}) {flags} : (i32, i32) -> i32',
        ]
        return f"%v{at}"

    def stored(self, value: str) -> list[str]:
        properties = "<{boundaryCheck = array<i32>, cache = 1 : i32, evict = 1 : i32}>"
        return [f'"tt.store"(%p, {value}) {properties} : (!tt.ptr<i32>, i32) -> ()', '"tt.return"() : () -> ()']

    def finish(self, lines: list[str]) -> None:
        self.blocks.append("\n".join(lines))


def text_of(body: Sequence[object]) -> str:
    writer = Writer()
    begin = ["^bb0(%p: !tt.ptr<i32>, %n: i32):", '%three = "arith.constant"() <{value = 3 : i32}> : () -> i32']
    begin.append('%start = "arith.constant"() <{value = 0 : i32}> : () -> i32')
    writer.write(body, "%start", begin)
    blocks = writer.blocks
    first = next(block for block in blocks if block.startswith("^bb0("))
    rest = [block for block in blocks if block is not first]
    if any(f"[^bb{writer.last}]" in block for block in blocks):
        rest.append("\n".join([f"^bb{writer.last}(%end: i32):", *writer.stored("%end")]))
    properties = '<{function_type = (!tt.ptr<i32>, i32) -> (), sym_name = "drawn"}>'
    inside = "\n".join([first, *rest])
    return (
        f'"builtin.module"() ({{\n"tt.func"() {properties} ({{\n{inside}\n}}) : () -> ()\n}}) '
        '{"ttg.num-warps" = 4 : i32} : () -> ()\n'
    )


def values(module: ir.Operation) -> list[int]:
    """What is stored, for each argument."""
    found = []
    for n in range(16):
        out = torch.full((1,), -1, dtype=torch.int32)
        run(module, 1, [out, n])
        found.append(int(out))
    return found


@SETTINGS
@hypothesis.given(statements)
def test_the_same_is_stored(body: tuple[object, ...]) -> None:
    text = text_of(body)
    hypothesis.note(text)
    module = ir.read(text)
    expected = values(ir.read(text))
    nest_returns(module)
    check_valid(module)
    function = next(op for op in module.walk() if op.name == "tt.func")
    assert len(function.regions[0].blocks) == 1
    assert values(module) == expected

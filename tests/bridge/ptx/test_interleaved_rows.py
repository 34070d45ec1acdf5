"""Maxima of a thread's rows wait for the last of them where ptxas would compute rows one after the other."""

from __future__ import annotations

import re

import pytest

from tests.support.shipped import offline
from wspec import bridge
from wspec.bridge.ptx.edits import PtxEdits
from wspec.bridge.sass.rows_in_turn import rows_in_turn

HEAD = ".visible .entry kernel()\n{\n	@%p9 bra 	$L__BB0_2;\n"
TAIL = "$L__BB0_2:\n	ret;\n}\n"
TILE = "tensordesc<bf16[1, 1, 64, 64]>"
NARROW = ("--const", "BLOCK_N=64", "--arg", f"k_desc={TILE}", "--arg", f"v_desc={TILE}")


def row(base: int) -> str:
    """A maximum over threads, in registers from `base` on; %r(base + 2) is known to all of them."""
    return f"""	shfl.sync.bfly.b32 	%r{base + 1}, %r{base}, 1, 31, -1;
	max.f32 	%r{base + 2}, %r{base}, %r{base + 1};
"""


def exponential(base: int) -> str:
    return f"	sub.f32 	%r{base + 3}, %r{base}, %r{base + 2};\n	ex2.approx.ftz.f32 	%r{base + 4}, %r{base + 3};\n"


def made(body: str, in_turn: bool = True) -> str:
    return PtxEdits(interleave_rows=True).apply(HEAD + body + TAIL, in_turn=in_turn)


def ties(text: str) -> list[tuple[str, str]]:
    """(a value, what it waits for)."""
    return re.findall(r"selp\.b32 (%r\d+), \1, (%r\d+), %wspec_rows\d+;", text)


def test_maxima_wait_for_the_last_one() -> None:
    text = made(row(10) + row(20) + row(30) + exponential(10) + exponential(20) + exponential(30))
    assert ties(text) == [("%r12", "%r32"), ("%r22", "%r32")]
    test = text.index("setp.ne.b32 %wspec_rows0, %r32, 0x7fc0dead;")
    assert text.index("max.f32 	%r32") < test < text.index("selp") < text.index("sub.f32")


def test_the_last_one_is_the_last_of_the_text() -> None:
    shuffles, maxima = zip(*(row(base).split("\n", 1) for base in (10, 20)), strict=True)
    text = made("\n".join(shuffles) + "\n" + maxima[1] + maxima[0] + exponential(10) + exponential(20))
    assert ties(text) == [("%r22", "%r12")]


@pytest.mark.parametrize(
    "body",
    [
        row(10) + exponential(10),  # one row
        row(10) + row(20) + exponential(10),  # the other one's maximum is for something else
        row(10) + exponential(10) + "	@%p1 bra 	$L__BB0_2;\n" + row(20) + exponential(20),  # not always both
        row(10) + "	add.s32 	%r20, %r12, 1;\n" + row(20) + exponential(20),  # one after the other in any case
        "	max.f32 	%r12, %r10, %r11;\n	max.f32 	%r22, %r20, %r21;\n" + exponential(10) + exponential(20),
    ],
)
def test_nothing_else_is_tied(body: str) -> None:
    assert made(body) == HEAD + body + TAIL


def test_nothing_is_done_where_ptxas_does_well_or_nobody_asks() -> None:
    body = row(10) + row(20) + exponential(10) + exponential(20)
    assert ties(made(body)) and not ties(made(body, in_turn=False))
    assert not ties(PtxEdits(elide_barriers=True).apply(HEAD + body + TAIL, in_turn=True))


@pytest.mark.parametrize("beside", [True, False])
def test_a_team_of_four_computes_its_rows_beside_each_other(beside: bool) -> None:
    """Attention with few registers for each of four groups, on what ptxas makes of it."""
    flags = (*NARROW, "--coarsening", "4", "--gate", "off", "--interleave-rows", str(int(beside)))
    one = offline("attention.py:attention_fwd", "d64", *flags)
    verdict = one.compiler.judge(bridge.lower(one.source)[1])
    found = bridge.finish(str(verdict.text), one.source, verdict.edits)
    assert found.validation.refusal == "" and ("rows beside others" in found.validation.summary) == beside
    assert rows_in_turn(found.cubin) != beside

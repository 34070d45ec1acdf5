"""An arrival in front of a wait for products is put off until exponentials have their operands; nothing else is."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from tests.support.goldens import ROOT
from wspec import bridge
from wspec.bridge.ptx.edits import PtxEdits
from wspec.bridge.sass.resources import ptxas_version
from wspec.cli.inputs import open_kernel
from wspec.cli.parser import make_parser

FIRST = "	wgmma.wait_group.sync.aligned 1;\n"
SECOND = "	wgmma.wait_group.sync.aligned 0;\n"
ARRIVE = "	@%p1 mbarrier.arrive.shared::cta.b64 _, [%r2];\n"
ROW = """	max.f32 	%r10, %r11, %r12;
	shfl.sync.bfly.b32 	%r13, %r10, 1, 31, -1;
	max.f32 	%r14, %r10, %r13;
"""
EXPONENTIAL = "	sub.f32 	%r20, %r11, %r14;\n	ex2.approx.ftz.f32 	%r21, %r20;\n"
SUM = """	shfl.sync.bfly.b32 	%r23, %r21, 1, 31, -1;
	add.f32 	%r24, %r21, %r23;
"""


HEAD = ".visible .entry kernel()\n{\n	@%p9 bra 	$L__BB0_2;\n"


def changed(body: str) -> tuple[str, int]:
    """(the code, how many are held)."""
    whole = HEAD + body + ("" if "$L__BB0_2:" in body else "$L__BB0_2:\n") + "	ret;\n}\n"
    made = PtxEdits(hold_waits=True).apply(whole)
    return made, made.count("// an arrival stood here")


def held(body: str) -> list[str]:
    """The registers that arrivals now wait for, in order."""
    made, count = changed(body)
    found = re.findall(r"setp\.ne\.b32 %\w+, (%\w+), 0x7fc0dead;", made)
    assert len(found) == count and made.count("mbarrier.arrive") == body.count("mbarrier.arrive")
    return found


def test_the_arrival_waits_for_what_exponentials_get_from_other_threads() -> None:
    made, count = changed(FIRST + ARRIVE + ROW + EXPONENTIAL + SUM + SECOND)
    assert count == 1
    lines = [line.strip() for line in made.split("\n")]
    arrival = next(at for at, line in enumerate(lines) if "mbarrier.arrive" in line)
    assert lines[arrival - 2 : arrival + 1] == [
        "setp.ne.b32 %wspec_known0, %r14, 0x7fc0dead;",
        "and.pred %wspec_known0, %wspec_known0, %p1;",
        "@%wspec_known0 mbarrier.arrive.shared::cta.b64 _, [%r2];",
    ]
    assert lines[arrival + 2] == SECOND.strip() and lines.index("ex2.approx.ftz.f32 	%r21, %r20;") < arrival


def test_a_barrier_of_the_group_in_front_of_the_arrival_stays_where_it_is() -> None:
    made, count = changed(FIRST + "	bar.sync 	0, 128;\n" + ARRIVE + ROW + EXPONENTIAL + SECOND)
    assert count == 1 and made.index("bar.sync") < made.index("max.f32")


@pytest.mark.parametrize(
    "between",
    [
        ROW + SUM,  # no exponential
        EXPONENTIAL + SUM,  # none that needs another thread's value
        ROW + "	bar.sync 	1, 256;\n" + EXPONENTIAL,  # somebody may come only after the arrival
        ROW + "	bar.arrive 	1, 256;\n" + EXPONENTIAL,
        ROW + "	mbarrier.try_wait.parity.shared.b64 %p2, [%r1], %r3;\n" + EXPONENTIAL,
        ROW + "	@%p3 bra 	$L__BB0_2;\n" + EXPONENTIAL,
        ROW + "$L__BB0_2:\n" + EXPONENTIAL,
        ROW + "	st.shared.b32 	[%r1], %r14;\n" + EXPONENTIAL,
        ROW + "	ld.global.b32 	%r30, [%rd1];\n" + EXPONENTIAL,
    ],
)
def test_only_arithmetic_may_be_passed(between: str) -> None:
    assert held(FIRST + ARRIVE + between + SECOND) == []


def test_only_an_arrival_between_two_waits_is_put_off() -> None:
    body = ROW + EXPONENTIAL
    assert held(SECOND + ARRIVE + body + SECOND) == []  # all products are done
    assert held(FIRST + ARRIVE + body + FIRST) == []  # the second waits for no more than the first
    assert held(FIRST + body + SECOND) == []
    assert held(FIRST + ARRIVE.replace("@%p1 ", "") + body + SECOND) == []  # by every thread


@pytest.mark.parametrize("hold", [True, False])
def test_ptxas_keeps_a_held_wait_behind_exponentials(hold: bool) -> None:
    """In the loop of attention, from a product's wait to the next: what this file is for, on what ptxas makes of it."""
    if not hold and not ptxas_version().startswith("12."):
        pytest.skip("ptxas 13.4 (Triton 3.9) leaves exponentials there by itself in some of the loops")
    offline = open_kernel(
        make_parser().parse_args(["plan", f"{ROOT}/kernels/attention.py:attention_fwd", "--variant", "d128"])
    ).offline
    made = replace(offline.compiler.judge(bridge.lower(offline.source)[1]), edits=bridge.PtxEdits(True, hold))
    code = bridge.sass_text(bridge.finish(str(made.text), offline.source, made.edits).cubin)
    waits = re.split(r"WARPGROUP\.DEPBAR\.LE gsb0, 0x1", code)[1:]
    assert len(waits) == 4  # two loops of two groups
    for behind in waits:
        between, later = behind.split("WARPGROUP.DEPBAR.LE gsb0, 0x0", 1)
        assert later
        assert ("MUFU.EX2" in between) == hold

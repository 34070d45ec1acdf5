"""Moves that give a register the constant it has are taken out, all others stay."""

from __future__ import annotations

import pytest

from wspec.bridge.cleared_sums import cleared_once

CLEAR = "\tmov.b32 \t%r1, 0f00000000;\n\tmov.b32 \t%r2, %r1;\n"
BRANCH = "\t@%p1 bra \t$L__BB0_2;\n// %bb.1:\n"


def left(text: str) -> list[str]:
    """The moves that stay."""
    made, count = cleared_once(text)
    stay = [line.strip() for line in made.split("\n") if line.strip().startswith("mov")]
    assert len(made.split("\n")) == len(text.split("\n"))
    assert count == text.count("\tmov") - len(stay)
    return stay


def test_behind_a_branch() -> None:
    assert left(CLEAR + BRANCH + CLEAR) == ["mov.b32 \t%r1, 0f00000000;", "mov.b32 \t%r2, %r1;"]


def test_a_comparison_between() -> None:
    assert len(left(CLEAR + "\tsetp.lt.s32 \t%p1, %r1, %r2;\n" + BRANCH + CLEAR)) == 2


@pytest.mark.parametrize(
    "between",
    [
        "$L__BB0_1:\n",  # it may be gone to from elsewhere
        "WAIT:\n",
        "\tadd.s32 \t%r1, %r2, 1;\n\tadd.s32 \t%r2, %r2, 1;\n",
        "\t@%p2 mov.b32 \t%r1, 1;\n\t@%p2 mov.b32 \t%r2, 1;\n",
        "\tld.global.v2.b32 {%r1, %r2}, [%rd1];\n",
        "\t{ .reg .b32 t; mov.b32 %r1, t; mov.b32 %r2, t; }\n",
        "\tmov.b32 \t%r1, %r9;\n\tmov.b32 \t%r2, 0f3F800000;\n",
    ],
)
def test_what_may_change_between(between: str) -> None:
    kept = CLEAR.strip().split("\n")
    assert [line.strip() for line in kept] == left(CLEAR + between + CLEAR)[-2:]


def test_another_constant() -> None:
    text = "\tmov.b32 \t%r1, 0;\n\tmov.b32 \t%r1, 1;\n\tmov.b32 \t%r1, 1;\n\tmov.b32 \t%r1, 0;\n"
    assert [move.split()[-1] for move in left(text)] == ["0;", "1;", "0;"]


def test_longer_names_are_others() -> None:
    assert len(left("\tmov.b32 \t%r1, 0;\n\tadd.s32 \t%r10, %r11, 1;\n\tmov.b32 \t%r1, 0;\n")) == 1

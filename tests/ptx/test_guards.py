"""Ways that no thread goes, because one predicate stands at several branches."""

from __future__ import annotations

import pytest

from tests.ptx.test_thread_order import MEET, READ_OTHERS, WRITE, show
from wspec.ptx.errors import PtxError

SET = "setp.lt.s32 %p2, %r20, 1;"


@pytest.mark.parametrize("again", ["", "add.s32 %r20, %r20, 1;"])
def test_what_is_skipped_together(again: str) -> None:
    """The barrier is passed where the read is come to: both stand behind a branch on one predicate."""
    show(WRITE, SET, "@%p2 bra $L__past;", MEET, "$L__past:", again, "@%p2 bra $L__end;", READ_OTHERS, "$L__end:")


@pytest.mark.parametrize(
    ("between", "branch"),
    [
        ("", "@%p3 bra $L__end;"),
        ("", "@!%p2 bra $L__end;"),
        (SET, "@%p2 bra $L__end;"),  # perhaps of another number
        ("@%p2 bra $L__other;\n$L__other:", "@!%p2 bra $L__end;"),
    ],
)
def test_what_is_not_skipped_together(between: str, branch: str) -> None:
    with pytest.raises(PtxError, match="wrote"):
        show(WRITE, SET, "@%p2 bra $L__past;", MEET, "$L__past:", between, branch, READ_OTHERS, "$L__end:")


def test_a_predicate_is_another_one_in_the_next_round() -> None:
    """The write of a round that passed the barrier, and the read of one that did not."""
    loop = ("$L__again:", SET, "@%p2 bra $L__past;", WRITE, "$L__past:", "@!%p2 bra $L__over;", READ_OTHERS,
            "$L__over:", "@%p4 bra $L__again;")  # fmt: skip
    with pytest.raises(PtxError, match="wrote"):
        show(*loop)
    show(*loop[:3], MEET, *loop[3:5], MEET, *loop[5:])

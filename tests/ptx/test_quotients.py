"""Products with magic numbers: LLVM's are quotients, and those that are one more or less are none."""

from __future__ import annotations

import pytest

from wspec.ptx.errors import PtxError
from wspec.ptx.parser import read_body
from wspec.ptx.quotients import show_quotients


def show(*lines: str) -> None:
    show_quotients(read_body("\n".join(lines)).instructions)


def signed(magic: int, shift: int, bits: int = 32) -> tuple[str, ...]:
    by = (f"shr.s{bits} %r4, %r2, {shift};",) if shift else ()
    return f"mul.hi.s{bits} %r2, %r1, {magic};", f"shr.u{bits} %r3, %r2, {bits - 1};", *by


def with_sum(magic: int) -> tuple[str, ...]:
    """The magic number is too large for a sign: x is added."""
    return (f"mul.hi.s32 %r2, %r1, {magic};", "add.s32 %r3, %r2, %r1;", "shr.u32 %r4, %r3, 31;", "shr.s32 %r5, %r3, 2;")


MAGIC = [
    (signed, (715827883, 6)),  # by 384
    (signed, (1431655766, 0)),  # by 3
    (signed, (15629, 9, 16)),  # by 2147, which is only just exact
    (signed, (7378697629483820647, 1, 64)),  # by 5
    (with_sum, (-1840700269,)),  # by 7
]


@pytest.mark.parametrize(("made", "words"), MAGIC)
def test_with_a_sign(made: object, words: tuple[int, ...]) -> None:
    assert callable(made)
    show(*made(*words))
    for by in (-1, 1):
        with pytest.raises(PtxError):
            show(*made(words[0] + by, *words[1:]))


def test_without_a_sign() -> None:
    """LLVM may know that numbers are small, so that one more is right too; one less is wrong at the divisor itself."""
    show("mul.hi.u32 %r2, %r1, -1431655765;", "shr.u32 %r3, %r2, 1;")  # by 3
    show("mul.hi.u32 %r2, %r1, -1431655764;", "shr.u32 %r3, %r2, 1;")
    with pytest.raises(PtxError):
        show("mul.hi.u32 %r2, %r1, -1431655766;", "shr.u32 %r3, %r2, 1;")


@pytest.mark.parametrize(
    "lines",
    [
        ("mul.hi.s32 %r2, %r1, 12345;", "xor.b32 %r3, %r2, %r1;"),  # a hash
        ("mul.hi.u32 %r2, %r1, 12345;", "shr.u32 %r3, %r2, 1;", "shr.u32 %r4, %r2, 2;"),
        ("mul.hi.s32 %r2, %r1, %r5;", "shr.u32 %r3, %r2, 31;"),
    ],
)
def test_what_is_no_division(lines: tuple[str, ...]) -> None:
    show(*lines)

"""Matrix descriptors that something else may stand in: found, and nothing where each way brings the same constant."""

from __future__ import annotations

import pytest

from wspec.bridge.sass.descriptors import may_be_stale, stale
from wspec.bridge.sass.machine_code import read_sass
from wspec.bridge.sass.program import program_of

BEHIND_ITS_LOOP = """\
.text.k:
  USHF.L.U32 UR23, UR22, 0xb, URZ
  @!P1 BRA `(.L_x_1)
  UIADD3 UR22, UP1, UR12, 0x2, URZ
  UMOV UR9, URZ
  UIADD3.X UR23, UR9, -0x7fffffe0, URZ, UP1, !UPT
.L_x_0:
  HGMMA.64x64x16.F32 R56, R44, gdesc[UR20], R56, gsb0
  @P0 BRA `(.L_x_0)
.L_x_1:
  @P2 BRA `(.L_x_2)
  HGMMA.64x64x16.F32 R56, R24, gdesc[UR20], R56, gsb0
.L_x_2:
  EXIT
"""
"""What ptxas 12.8.93 made of a loop whose last product is behind it."""
MADE_ON_BOTH_WAYS = BEHIND_ITS_LOOP.replace("USHF.L.U32 UR23, UR22, 0xb, URZ", "UMOV UR23, %s")


def found(lines: str) -> list[str]:
    texts = [line.strip() for line in lines.splitlines()]
    places = [line for line in texts if line and not line.endswith(":")]
    numbered = [
        f"        /*{0x10 * places.index(line):04x}*/ {line} ;" if line in places else line for line in texts if line
    ]
    (code,) = read_sass("\n".join(numbered))
    told = [f"{one.instruction.operands.split(',')[1].strip()}: {one.by.name}" for one in stale(code)]
    assert may_be_stale(program_of(code)) or not told
    return told


def test_a_descriptor_made_on_one_way_alone() -> None:
    assert found(BEHIND_ITS_LOOP) == ["R24: USHF.L.U32"]


@pytest.mark.parametrize("constant, right", [("-0x7fffffe0", True), ("-0x7fffffdf", True), ("0x40000040", False)])
def test_constants_have_to_agree_but_for_a_carry(constant: str, right: bool) -> None:
    """-0x7fffffdf is what a carry of the lower half would make of it."""
    assert found(MADE_ON_BOTH_WAYS % constant) == ([] if right else ["R24: UMOV"])


@pytest.mark.parametrize(
    "made",
    [
        "LDL R3, [R1+0x8]\n  R2UR UR23, R3",
        "UMOV UR5, 0x80000020\n  UMOV UR23, UR5",
        "MOV R3, 0x80000020\n  R2UR UR23, R3",
        "IMAD.U32 R3, RZ, RZ, 0x80000020\n  R2UR UR23, R3",
        "UMOV UR7, 0x80000020\n  UIADD3.64 UR22, UR6, 0x2, URZ",
        "UMOV UR7, URZ\n  UMOV UR11, 0x7fffffe0\n  UIADD3.64 UR22, UR6, -UR10, URZ",
        "ULDC UR23, c[0x4][0x18]",
    ],
)
def test_constants_are_followed(made: str) -> None:
    assert found(BEHIND_ITS_LOOP.replace("USHF.L.U32 UR23, UR22, 0xb, URZ", made)) == []


def test_special_registers_are_no_constants() -> None:
    assert found(BEHIND_ITS_LOOP.replace("USHF.L.U32 UR23, UR22, 0xb, URZ", "S2UR UR23, SR_CTAID.X")) == ["R24: S2UR"]


def test_under_a_predicate_the_old_value_may_stay() -> None:
    lines = """\
.text.k:
  S2UR UR23, SR_CTAID.X
  @!UP0 UMOV UR23, 0x40000040
  HGMMA.64x64x16.F32 R56, R24, gdesc[UR20], R56, gsb0
  EXIT
"""
    assert found(lines) == ["R24: S2UR"]
    assert found(lines.replace("@!UP0 ", "")) == []

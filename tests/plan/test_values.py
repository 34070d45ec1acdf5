"""What a value that goes from task to task is read as."""

from __future__ import annotations

import pytest

from wspec.ir.types import SMEM, Layout, MemDescType, ScalarType
from wspec.plan.values import is_a_left_factor


@pytest.mark.parametrize(("bits", "transposed", "may"), [(16, True, True), (16, False, True), (32, False, True),
                                                         (32, True, False), (8, True, False)])  # fmt: skip
def test_left_factors(bits: int, transposed: bool, may: bool) -> None:
    """Libtriton ends the process where one of 32 bits lies in columns."""
    fields = (("swizzlingByteWidth", 128), ("transposed", transposed), ("elementBitWidth", bits))
    element = ScalarType(f"f{bits}" if bits > 8 else "i8")
    assert is_a_left_factor(MemDescType((64, 64), element, Layout("ttg.nvmma_shared", fields), SMEM)) == may

"""Kernels as people write them leave the same numbers as plain ones (tests/outside/written)."""

from __future__ import annotations

import pytest
import torch
import triton

from tests.outside.written.__main__ import SAME, compared
from tests.outside.written.launches import CASES, Case

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("case", CASES, ids=str)
def test_it_computes_the_same(case: Case) -> None:
    triton.set_allocator(lambda size, alignment, stream: torch.empty(size, dtype=torch.int8, device="cuda"))
    found = compared(case)
    assert found.verdict in SAME, found

"""Kernels on which other specializers fail (tests/outside/breakers.py), on a GPU."""

from __future__ import annotations

import pytest
import torch
import triton

import wspec
from tests.outside.breakers import BREAKERS, output

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("gate", ["off", "model"])
@pytest.mark.parametrize("name", BREAKERS)
def test_numbers(name: str, gate: str) -> None:
    breaker = BREAKERS[name]
    triton.set_allocator(lambda size, alignment, stream: torch.empty(size, device="cuda", dtype=torch.int8))
    kernel = wspec.compile(breaker.kernel, gate=gate, remarks="off")
    arguments = breaker.arguments("cuda")
    for _ in range(3):
        output(breaker, arguments).zero_()
        kernel[breaker.grid](*arguments, **breaker.constants, num_warps=breaker.warps, num_stages=breaker.stages)
        expected = breaker.expected(arguments)
        found = output(breaker, arguments).double()
        torch.testing.assert_close(found, expected, rtol=breaker.tolerance, atol=breaker.tolerance)

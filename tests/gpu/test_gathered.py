"""A product with gathered rows on a GPU: tiles of A copied by cp.async, against plain Triton and float32."""

from __future__ import annotations

import functools
from typing import Any

import pytest
import torch

import wspec
from wspec.kernels.gathered import gathered_matmul, gathered_matmul_kernel, gathered_matmul_reference
from wspec.kernels.matmul import Config, matmul, matmul_pointer_kernel, matmul_reference
from wspec.lab.bench.accuracy import Error

pytestmark = pytest.mark.gpu

LARGE, SMALL = Config(128, 256, 64, 8, 3), Config(64, 128, 64, 4, 3)
# Rows of A, gathered rows, columns of B, length of a row: whole tiles, ragged ones, less than one, many blocks.
SHAPES = [
    (512, 512, 512, 512),
    (300, 129, 264, 208),
    (1000, 1, 8, 16),
    (64, 63, 248, 64),
    (4096, 2000, 1304, 1040),
    (8192, 8192, 4096, 4096),
]
LAUNCHES = 200


@functools.cache
def specialized(persistent: bool) -> Any:
    """Strict, so that a plain kernel cannot pass for a specialized one."""
    return wspec.compile(gathered_matmul_kernel, gate="off", strict=True, persistent=persistent)


@functools.cache
def inputs(rows: int, m: int, n: int, k: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    draw = torch.Generator("cuda").manual_seed(rows + m)
    a = torch.randn(rows, k, generator=draw, device="cuda").bfloat16()
    b = torch.randn(k, n, generator=draw, device="cuda").bfloat16()
    index = torch.randint(rows, (m,), generator=draw, device="cuda", dtype=torch.int32)
    return a, index, b


@pytest.mark.parametrize("persistent", [False, True])
@pytest.mark.parametrize("config", [LARGE, SMALL], ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_numbers(shape: tuple[int, int, int, int], config: Config, persistent: bool) -> None:
    """Close to float32, and the same bits as the plain kernel: both add the same products in the same order."""
    given = inputs(*shape)
    ours = gathered_matmul(*given, config=config, kernel=specialized(persistent))
    plain = gathered_matmul(*given, config=config, kernel=gathered_matmul_kernel)
    error = Error.of(ours, gathered_matmul_reference(*given))
    assert error.relative < 1e-2, error
    assert torch.equal(ours, plain)


@pytest.mark.parametrize("persistent", [False, True])
@pytest.mark.parametrize("config", [LARGE, SMALL], ids=str)
@pytest.mark.parametrize("shape", [SHAPES[1], SHAPES[4]], ids=str)
def test_every_launch_gives_the_same_bits(shape: tuple[int, int, int, int], config: Config, persistent: bool) -> None:
    """Two hundred launches: a tile that is read before it has landed would differ in some of them."""
    given, kernel = inputs(*shape), specialized(persistent)
    first = gathered_matmul(*given, config=config, kernel=kernel)
    for _ in range(LAUNCHES):
        assert torch.equal(gathered_matmul(*given, config=config, kernel=kernel), first)


@pytest.mark.parametrize("persistent", [False, True])
@pytest.mark.parametrize(("m", "n", "k"), [(512, 512, 512), (304, 272, 208), (2000, 1304, 1040)])
def test_both_operands_through_pointers(m: int, n: int, k: int, persistent: bool) -> None:
    draw = torch.Generator("cuda").manual_seed(m)
    a = torch.randn(m, k, generator=draw, device="cuda").bfloat16()
    b = torch.randn(k, n, generator=draw, device="cuda").bfloat16()
    kernel = wspec.compile(matmul_pointer_kernel, gate="off", strict=True, persistent=persistent)
    for config in (Config(128, 128, 64, 8, 3), Config(128, 256, 64, 8, 3), Config(64, 128, 32, 4, 3)):
        ours = matmul(a, b, variant="pointer", config=config, kernel=kernel)
        error = Error.of(ours, matmul_reference(a, b))
        assert error.relative < 1e-2, error
        assert all(torch.equal(matmul(a, b, variant="pointer", config=config, kernel=kernel), ours) for _ in range(20))

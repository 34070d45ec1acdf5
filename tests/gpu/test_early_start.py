"""Products that start early in a row, each of the last one's result: the bits of products that wait for each other."""

from __future__ import annotations

import pytest
import torch

from wspec.kernels.quantized import matmul_int4_weights, matmul_int8_weights, plain_kernel, specialized_kernel
from wspec.lab.bench.in_a_row import same_in_a_row
from wspec.lab.bench.quantized import Case, make_inputs

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize(("bits", "rows", "blocks"), [(8, 16, 2), (8, 128, 1), (4, 64, 1)])
def test_products_in_a_row(bits: int, rows: int, blocks: int) -> None:
    case = Case(bits, rows, 4096, 4096)
    sets = [make_inputs(case, torch.device("cuda"), seed) for seed in range(3)]
    weights = [(weight, scale / case.k**0.5) for _, weight, scale in sets]
    product = matmul_int8_weights if bits == 8 else matmul_int4_weights
    late = specialized_kernel(bits, blocks, programmatic_launch=False)

    def early(a: torch.Tensor, number: int) -> torch.Tensor:
        return product(a, *weights[number % 3])

    def alone(a: torch.Tensor, number: int) -> torch.Tensor:
        return product(a, *weights[number % 3], kernel=late)

    ours, theirs = early(sets[0][0], 0), product(sets[0][0], *weights[0], kernel=plain_kernel(bits))
    assert float((ours.float() - theirs.float()).norm() / theirs.float().norm()) < 0.01
    assert same_in_a_row(early, alone, [a for a, *_ in sets[:2]], steps=12)

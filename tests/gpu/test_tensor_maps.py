"""Tensor maps that are written are the driver's, bit for bit, on a Hopper GPU."""

from __future__ import annotations

import random

import pytest
import torch

from tests.support.written_maps import Written
from wspec.bridge.tensor_maps import TensorMaps, legal_strides

pytestmark = pytest.mark.gpu

KINDS = {1: 0, 2: 9, 4: 7}  # CUtensorMapDataType: uint8, bfloat16, float32


@pytest.mark.parametrize("swizzle", [0, 1, 3])
@pytest.mark.parametrize("rank", [2, 3, 4, 5])
@pytest.mark.parametrize("size", [1, 2, 4])
def test_written_as_the_driver_does(size: int, rank: int, swizzle: int) -> None:
    """Where this fails, launches of a length that was never seen go the ordinary way."""
    address = torch.empty(1 << 20, device="cuda").data_ptr()
    inner = (128, 32, 0, 128)[swizzle] or 64
    maps = TensorMaps(KINDS[size], size, [1, 1, 8, 16, inner // size][-rank:], swizzle)
    layout = maps.at(address)
    assert layout is not None
    written, draw = Written(layout), random.Random(rank)
    for _ in range(500):
        shape = [
            draw.choice([1, draw.randint(1, 300), draw.getrandbits(draw.randint(1, 31)) or 1]) for _ in range(rank)
        ]
        strides = [16 // size * max(1, draw.getrandbits(draw.randint(1, 32))) for _ in range(rank - 1)]
        strides = [draw.choice([0, 7]) if n == 1 else s for n, s in zip(shape, strides, strict=False)] + [1]
        legal = legal_strides(shape, strides, size)
        assert legal is not None
        there = maps.encode(address, *shape, *legal)
        assert there is not None
        found = written.of(address, shape, strides)
        assert found is not None and found[: len(there)] == there

"""What the tensor core need not wait for: scalars of a tile's end, and zeros."""

from __future__ import annotations

import pytest
import torch

import wspec
from wspec.kernels import matmul

CONFIG = matmul.Config(128, 128, 64)


def stage(**options: bool) -> str:
    """The first consumer of a product, after async_dots."""
    a = torch.empty(256, 256, dtype=torch.bfloat16)
    launch = matmul.Launch.of(a, a, a, variant="descriptor", config=CONFIG)
    kernel = wspec.compile(matmul.plain_kernel("descriptor"), gate="off", **options)
    text = kernel.dump("async_dots", *launch.args, **launch.meta)
    return text[: text.index('"ttg.warp_yield"')]


def test_where_a_tile_is_stored_is_computed_while_products_run() -> None:
    text = stage(persistent=True)
    dot, place, done = (text.index(part) for part in ('"ttng.warp_group_dot"(', '"arith.divsi"', "pendings = 0"))
    assert dot < place < done < text.index('"ttng.async_tma_copy_local_to_global"')


@pytest.mark.parametrize("walks", [False, True])
def test_products_overwrite_only_where_there_was_a_tile_before(walks: bool) -> None:
    (dot,) = [line for line in stage(persistent=walks).splitlines() if '"ttng.warp_group_dot"(' in line]
    operands = dot.split('"(')[1].split(")")[0].split(", ")
    assert len(operands) == (4 if walks else 3)

"""What a descriptor's store writes where its tensor ends inside of 16 bytes: a card's bytes and the executor's."""

from __future__ import annotations

import itertools

import pytest
import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

from wspec.execute.descriptor import describe, read_tile, reduce_tile, write_tile
from wspec.execute.memory import GlobalMemory

pytestmark = pytest.mark.gpu

BLOCK = (16, 64)
ADD = 1  # tt.descriptor_reduce's
COUNTS = (1, 7, 8, 9, 16, 31, 33, 63, 64, 65, 100)


@triton.jit
def copied(source, target, row, column, KIND: tl.constexpr):
    tile = source.load([0, 0])
    if KIND == "add":
        target.atomic_add([row, column], tile)
    else:
        target.store([row, column], tile)


@triton.jit
def fetched(source, target, row, column):
    target.store([0, 0], source.load([row, column]))


def _filled(rows: int, columns: int, dtype: torch.dtype) -> torch.Tensor:
    """Small integers, none of them zero."""
    return (torch.randint(1, 8, (rows, columns)) * torch.randint(0, 2, (rows, columns)).mul(2).sub(1)).to(dtype)


@pytest.mark.parametrize("kind", ["store", "add"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.int8], ids=str)
@pytest.mark.parametrize("columns", COUNTS)
def test_stores(columns: int, dtype: torch.dtype, kind: str) -> None:
    if kind == "add" and dtype == torch.int8:
        pytest.skip("the copy engine does not add bytes")
    torch.manual_seed(columns)
    for rows, start in itertools.product((5, 16, 24), (0, 16)):
        tile, before = _filled(*BLOCK, dtype), _filled(32, 128, dtype)
        shape, memory = [rows, columns], GlobalMemory()
        expected = before.clone()
        put = describe(memory, expected, BLOCK, shape=shape, strides=(128, 1))
        if kind == "add":
            reduce_tile(memory, put, (0, start), tile, ADD)
        else:
            write_tile(memory, put, (0, start), tile)
        held = before.cuda()
        target = TensorDescriptor(held, shape, [128, 1], list(BLOCK))
        copied[(1,)](TensorDescriptor.from_tensor(tile.cuda(), list(BLOCK)), target, 0, start, KIND=kind)
        assert torch.equal(held.cpu(), expected), (rows, start, (held.cpu() != expected).nonzero().tolist())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.int8], ids=str)
@pytest.mark.parametrize("columns", COUNTS)
def test_loads(columns: int, dtype: torch.dtype) -> None:
    torch.manual_seed(columns)
    for rows, start in itertools.product((5, 24), (-16, 0, 16)):
        whole, memory = _filled(32, 128, dtype), GlobalMemory()
        expected = read_tile(
            memory, describe(memory, whole, BLOCK, shape=[rows, columns], strides=(128, 1)), (-1, start)
        )
        out = torch.zeros(BLOCK, dtype=dtype, device="cuda")
        source = TensorDescriptor(whole.cuda(), [rows, columns], [128, 1], list(BLOCK))
        fetched[(1,)](source, TensorDescriptor.from_tensor(out, list(BLOCK)), -1, start)
        assert torch.equal(out.cpu(), expected), (rows, start)

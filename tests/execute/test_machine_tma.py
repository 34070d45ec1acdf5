"""TMA: edges, predicates, rows that are gathered and scattered, reductions."""

from __future__ import annotations

import pytest
import torch

from tests.execute.small import MMA, SIZE, Code, Small, Tensors, launch
from wspec.execute import Kernel, ProgramError, Random
from wspec.ir.core import Value
from wspec.ir.types import I1, I32, DenseAttr, TensorType, i32

ROWS = TensorType((SIZE,), I32, MMA)
CHOSEN = (3, 3, 0, 15, 1, 2, 14, 5, 4, 6, 7, 8, 9, 10, 11, 12)


def rows(code: Code) -> Value:
    text = "[" + ", ".join(map(str, CHOSEN)) + "]"
    return code.op("arith.constant", [], [ROWS], {"value": DenseAttr(text, ROWS)}).result


def test_rows_are_gathered() -> None:
    kernel = Small()
    code = kernel.outside
    barrier, buffer = code.barrier("full"), code.buffer("b")
    code.expect(barrier)
    operands = [kernel.x, rows(code), code.number(0), barrier, buffer, code.number(1, I1)]
    code.op("ttng.async_tma_gather", operands)
    code.wait(barrier, 0)
    code.write(kernel.y, code.load(buffer))
    ready = kernel.ready()
    for seed in range(3):
        tensors, _ = launch(ready, Random(seed))
        assert torch.equal(tensors.y, tensors.x[list(CHOSEN)])


def test_rows_are_scattered() -> None:
    kernel = Small()
    code = kernel.outside
    buffer = code.buffer("b", code.tile_of(kernel.x))
    code.fence()
    code.op("ttng.async_tma_scatter", [kernel.y, rows(code), code.number(0), buffer])
    code.put_wait()
    tensors, _ = launch(kernel.ready())
    expected = torch.full((SIZE, SIZE), torch.nan).half()
    for at, row in enumerate(CHOSEN):
        expected[row] = tensors.x[at]
    assert torch.equal(tensors.y.nan_to_num(7), expected.nan_to_num(7))


def reduced(kind: int) -> Kernel:
    kernel = Small()
    code = kernel.outside
    buffer = code.buffer("b", code.tile_of(kernel.x))
    code.fence()
    zero = code.number(0)
    for _ in range(2):
        code.op("ttng.async_tma_reduce", [kernel.y, zero, zero, buffer], [], {"kind": i32(kind)})
    code.put_wait()
    return kernel.ready()


@pytest.mark.parametrize(("kind", "times"), [(1, 2), (3, 1)])
def test_tiles_are_combined_with_what_is_there(kind: int, times: int) -> None:
    tensors = Tensors()
    tensors.y.zero_()
    reduced(kind).run(1, tensors.arguments)
    expected = tensors.x * times if kind == 1 else tensors.x.clamp(min=0)
    assert torch.equal(tensors.y, expected)


def test_what_is_outside_is_zero_and_is_not_written() -> None:
    """A descriptor of 10 rows: the copy brings zeros for the others, and counts their bytes."""
    kernel = Small()
    code = kernel.outside
    barrier, buffer = code.barrier("full"), code.buffer("b")
    code.fetch(kernel.x, barrier, buffer)
    code.wait(barrier, 0)
    code.write(kernel.z, code.load(buffer))
    code.put(kernel.y, buffer)
    code.put_wait()
    tensors = Tensors()
    arguments = {**tensors.arguments, "x": tensors.x[:10], "y": tensors.y[:7]}
    kernel.ready().run(1, arguments)
    assert torch.equal(tensors.z[:10], tensors.x[:10]) and not tensors.z[10:].any()
    assert torch.equal(tensors.y[:7], tensors.x[:7]) and bool(tensors.y[7:].isnan().all())


def test_copies_that_are_not_wanted() -> None:
    kernel = Small()
    code = kernel.outside
    barrier, buffer = code.barrier("full"), code.buffer("b")
    code.fetch(kernel.x, barrier, buffer, wanted=0)
    code.fetch(kernel.x, barrier, buffer)
    code.wait(barrier, 0)
    code.write(kernel.y, code.load(buffer))
    tensors, result = launch(kernel.ready())
    assert torch.equal(tensors.y, tensors.x) and not result.faults


def test_a_block_must_fit_its_buffer() -> None:
    kernel = Small()
    code = kernel.outside
    barrier = code.barrier("full")
    code.fetch(kernel.x, barrier, code.ring("wide", 2))
    with pytest.raises(ProgramError, match=r"a block of \(16, 16\) torch.float16, but the buffer holds \(2, 16, 16\)"):
        launch(kernel.ready())

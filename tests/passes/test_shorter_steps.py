"""Loops whose tiles leave room for few buffers go half as far in a step, and store the same.

Tensors hold small integers: the executor's sums are not in the tensor core's order.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

from tests.support.verified import specialize
from wspec import bridge
from wspec.api import offline
from wspec.execute import Kernel
from wspec.execute.arguments import parameters
from wspec.ir import read
from wspec.ir.core import Operation
from wspec.ir.types import TensorDescType
from wspec.ir.verify import check_valid
from wspec.lab.bench.pointer_kernels import product
from wspec.lab.persistent_launch import descriptors_of
from wspec.options import Options
from wspec.pipeline import prepare

OPTIONS = Options(gate="off", persistent=False)
TYPES = dict.fromkeys(("a_ptr", "b_ptr", "c_ptr"), "*bf16:16") | dict.fromkeys(("M", "N", "K"), "i32")
TYPES |= dict.fromkeys(("stride_am", "stride_bk", "stride_cm"), "i32:16")
TYPES |= dict.fromkeys(("stride_ak", "stride_bn", "stride_cn"), "i32:1")


@triton.jit
def two_products(a, b, c, out, other, K, DEEP: tl.constexpr, TAKEN: tl.constexpr):
    """out = a b, other = a c^T, 128 x 128 each. TAKEN 1: the kernel looks at a tile too; 2: a tile is there before."""
    x = a.load([0, 0])
    first, second = tl.zeros((128, 128), tl.float32), tl.zeros((128, 128), tl.float32)
    for k in range(0, K, DEEP):
        if TAKEN != 2:
            x = a.load([0, k])
        first = tl.dot(x, b.load([k, 0]), first)
        y = c.load([0, k])
        second = tl.dot(x, y.T, second)
        if TAKEN == 1:
            second += tl.sum(x.to(tl.float32), 1)[:, None]
    out.store([0, 0], first)
    other.store([0, 0], second)


def prepared(kernel: Any, types: Mapping[str, str], values: Mapping[str, Any]) -> tuple[Operation, Operation]:
    """The module as Triton's front end leaves it, and prepared."""
    made = offline(kernel, types, values, num_warps=4, num_stages=3)
    text = bridge.lower(made.source)[1]
    module = read(text)
    prepare(module, Options())
    check_valid(module)
    return read(text), module


def boxes(module: Operation) -> list[tuple[int, ...]]:
    """Of the descriptors among a kernel's arguments."""
    function = next(op for op in module.walk() if op.name == "tt.func")
    types = [arg.type for arg in function.regions[0].block.args]
    return [type.block.shape for type in types if isinstance(type, TensorDescType)]


def two(deep: int, taken: int = 0) -> tuple[Operation, Operation]:
    high = f"tensordesc<bf16[128, {deep}]>"
    types = {
        "a": high, "b": f"tensordesc<bf16[{deep}, 128]>", "c": high,
        "out": "tensordesc<fp32[128, 128]>", "other": "tensordesc<fp32[128, 128]>", "K": "i32",
    }  # fmt: skip
    return prepared(two_products, types, {"DEEP": deep, "TAKEN": taken})


def test_boxes() -> None:
    assert boxes(two(128)[1]) == [(128, 64), (64, 128), (128, 64), (128, 128), (128, 128)]
    assert boxes(two(64)[1])[0] == (128, 64), "there is room"
    assert all(boxes(two(128, taken)[1])[0] == (128, 128) for taken in (1, 2))


@pytest.mark.parametrize("k", [0, 40, 64, 128, 130, 400])
def test_two_products(k: int) -> None:
    plain, _ = two(128)
    outcome = specialize(two(128)[0], OPTIONS)
    assert outcome.module is not None and outcome.plan is not None
    assert min(one.depth for one in outcome.plan.channels) >= 3
    draw = torch.Generator().manual_seed(k)
    a, c = (torch.randint(-3, 4, (128, max(8, k + -k % 8)), generator=draw).bfloat16() for _ in range(2))
    b = torch.randint(-3, 4, (max(1, k), 128), generator=draw).bfloat16()
    found = []
    for module, deep in ((plain, 128), (outcome.module, 64)):
        given = [(a[:, :k] if k else a, [128, deep]), (b, [deep, 128]), (c[:, :k] if k else c, [128, deep])]
        outputs = [torch.zeros(128, 128), torch.zeros(128, 128)]
        described = [TensorDescriptor(one, list(one.shape), list(one.stride()), box) for one, box in given]
        described += [TensorDescriptor.from_tensor(one, [128, 128]) for one in outputs]
        Kernel(module).run((1, 1, 1), [*described, k])
        found.append(outputs)
    assert all(torch.equal(one, other) for one, other in zip(*found, strict=True))
    assert k == 0 or found[0][0].any()


@pytest.mark.parametrize("sizes", [(100, 144, 272), (128, 128, 16), (130, 256, 512)])
def test_pointers(sizes: tuple[int, int, int]) -> None:
    """Through descriptors that the launch makes, with boxes of half the depth."""
    meta = {"BLOCK_M": 128, "BLOCK_N": 128, "BLOCK_K": 128, "GROUP": 8}
    plain, module = prepared(product, TYPES, meta)
    assert boxes(module)[:2] == [(128, 64), (64, 128)]
    outcome = specialize(plain.clone({}), OPTIONS)
    assert outcome.module is not None and outcome.promotion is not None
    assert [one.block for one in outcome.promotion.descriptors[:2]] == [(128, 64), (64, 128)]
    m, n, k = sizes
    draw = torch.Generator().manual_seed(m)
    a, b = (torch.randint(-3, 4, shape, generator=draw).bfloat16() for shape in ((m, k), (k, n)))
    grid, found = (triton.cdiv(m, 128) * triton.cdiv(n, 128), 1, 1), []
    for form, promotion in ((plain, None), (outcome.module, outcome.promotion)):
        c = torch.zeros(m, n).bfloat16()
        given: dict[str, Any] = {"a_ptr": a, "b_ptr": b, "c_ptr": c, "M": m, "N": n, "K": k}
        given |= {"stride_am": k, "stride_bk": n, "stride_cm": n}
        kernel = Kernel(form)
        known = parameters(kernel.function)
        given |= descriptors_of(promotion, known, grid, given)
        kernel.run(grid, {one.name: given[one.name] for one in known})
        found.append(c)
    assert torch.equal(*found) and found[0].any()

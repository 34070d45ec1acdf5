"""Launches of kernels whose pointers became descriptors: what they pass, and when the plain kernel runs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

import wspec
from tests.bridge.fake_card import Card
from tests.bridge.fake_driver import FakeDriver
from wspec.bridge import promoted
from wspec.bridge.promoted import Descriptors
from wspec.host_descriptors import SPAN, Term
from wspec.lab.bench.loaded_kernels import packed_attention
from wspec.lab.bench.pointer_kernels import attention, product

META = {"BLOCK_M": 128, "BLOCK_N": 128, "BLOCK_K": 64, "GROUP": 8, "num_warps": 8, "num_stages": 3}


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch, fresh_cache: Path) -> FakeDriver:
    fake = FakeDriver()
    monkeypatch.setattr(triton.runtime.driver, "_active", fake)
    return fake


def launched(driver: FakeDriver, kernel: Any, a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> tuple[Any, ...]:
    """The arguments of the launch that a product comes to."""
    (m, k), n = a.shape, b.shape[1]
    grid = (triton.cdiv(m, 128) * triton.cdiv(n, 128),)
    kernel[grid](a, b, c, m, n, k, *a.stride(), *b.stride(), *c.stride(), **META)
    (done,) = driver.launches
    driver.launches.clear()
    return tuple(done.arguments)


def tensors(m: int, n: int, k: int, pitch: int = 0) -> list[torch.Tensor]:
    return [torch.zeros(rows, columns + pitch).bfloat16()[:, :columns] for rows, columns in ((m, k), (k, n), (m, n))]


def test_a_launch_makes_descriptors(driver: FakeDriver) -> None:
    kernel = wspec.compile(product, persistent=False, gate="off", remarks="off")
    a, b, c = tensors(256, 512, 128)
    made = [one for one in launched(driver, kernel, a, b, c) if isinstance(one, TensorDescriptor)]
    assert [list(one.shape) for one in made] == [[256, 128], [128, 512], [256, 512]]
    assert [list(one.strides) for one in made] == [[128, 1], [512, 1], [512, 1]]
    assert [one.base.data_ptr() for one in made] == [one.data_ptr() for one in (a, b, c)]
    assert [list(one.block_shape) for one in made] == [[128, 64], [64, 128], [128, 128]]
    other = tensors(256, 512, 128)
    again = [one for one in launched(driver, kernel, *other) if isinstance(one, TensorDescriptor)]
    assert [one.base.data_ptr() for one in again] == [one.data_ptr() for one in other], "an address is never kept"


def test_the_plain_kernel_runs_where_rows_do_not_fit(driver: FakeDriver, capsys: pytest.CaptureFixture[str]) -> None:
    kernel = wspec.compile(product, persistent=False, gate="off")
    for pitch, expected in ((0, True), (8, True), (4, False), (1, False)):
        arguments = launched(driver, kernel, *tensors(256, 512, 128, pitch))
        assert any(isinstance(one, TensorDescriptor) for one in arguments) == expected, pitch
    assert "no multiple of 16" in capsys.readouterr().err


@pytest.mark.parametrize("strict", [False, True])
def test_products_alone_have_boxes_where_what_is_stored_cannot(
    driver: FakeDriver, capsys: pytest.CaptureFixture[str], strict: bool
) -> None:
    """Rows of C, which goes to no product, are no multiple of 16 bytes apart: A and B are boxes still."""
    kernel = wspec.compile(product, persistent=False, gate="off", strict=strict)
    (a, b, _), (*_, uneven) = tensors(256, 512, 128), tensors(256, 512, 128, 4)
    for _ in range(2):
        arguments = launched(driver, kernel, a, b, uneven)
        made = [one for one in arguments if isinstance(one, TensorDescriptor)]
        assert [one.base.data_ptr() for one in made] == [a.data_ptr(), b.data_ptr()]
        assert any(one is uneven for one in arguments)
    said = capsys.readouterr().err
    assert strict or (said.count("keep their pointers in this launch") == 1 and "no multiple of 16" in said)
    assert len([one for one in launched(driver, kernel, *tensors(256, 512, 128)) if hasattr(one, "block_shape")]) == 3


@triton.jit
def with_bias(a_ptr, b_ptr, bias_ptr, c_ptr, n, k, bias_row, TILE: tl.constexpr):
    """A product and a tensor of its size, which may be one row for all."""
    rows = tl.program_id(0) * TILE + tl.arange(0, TILE)
    columns = tl.program_id(1) * TILE + tl.arange(0, TILE)
    sums = tl.zeros((TILE, TILE), tl.float32)
    for at in range(0, k, 64):
        part = at + tl.arange(0, 64)
        a = tl.load(a_ptr + rows[:, None] * k + part[None, :])
        b = tl.load(b_ptr + part[:, None] * n + columns[None, :])
        sums = tl.dot(a, b, sums)
    bias = tl.load(bias_ptr + rows[:, None] * bias_row + columns[None, :])
    tl.store(c_ptr + rows[:, None] * n + columns[None, :], (sums + bias).to(tl.bfloat16))


def test_a_bias_that_is_one_row_for_all(driver: FakeDriver) -> None:
    kernel = wspec.compile(with_bias, persistent=False, gate="off", remarks="off")
    (a, b, bias), (*_, c) = tensors(256, 512, 128), tensors(256, 512, 128)
    for tensor, boxes in ((bias, 4), (bias[:1].expand(256, 512), 2)):
        kernel[(2, 4)](a, b, tensor, c, 512, 128, tensor.stride(0), TILE=128, num_warps=8)
        (done,) = driver.launches
        driver.launches.clear()
        assert sum(isinstance(one, TensorDescriptor) for one in done.arguments) == boxes


def test_it_stays_out_of_the_cache_of_others(driver: FakeDriver) -> None:
    """What a launch makes is stored with the kernel, and read again."""
    for _ in range(2):
        kernel = wspec.compile(product, persistent=False, gate="off", remarks="off")
        arguments = launched(driver, kernel, *tensors(256, 512, 128))
        assert sum(isinstance(one, TensorDescriptor) for one in arguments) == 3


@pytest.mark.parametrize("length", [1000, 4096])
def test_terms_of_heads_become_dimensions(driver: FakeDriver, length: int) -> None:
    """What is made is what the tensor's own descriptor would be: dimensions without a mask end where it does."""
    kernel = wspec.compile(attention, persistent=False, gate="off", remarks="off")
    q = torch.zeros(2, 3, length, 64).bfloat16()
    numbers = (0.1, *q.stride()[:3], 3, length)
    tile = {"BLOCK_M": 128, "BLOCK_N": 128, "DIM": 64, "CAUSAL": False, "num_warps": 8, "num_stages": 2}
    kernel[(triton.cdiv(length, 128), 6)](q, q.clone(), q.clone(), torch.zeros_like(q), *numbers, **tile)
    made = [one for one in driver.launches[0].arguments if isinstance(one, TensorDescriptor)]
    assert len(made) == 4
    assert all((tuple(one.shape), tuple(one.strides)) == (tuple(q.shape), q.stride()) for one in made)


def packed() -> tuple[list[torch.Tensor], Callable[[], None]]:
    """The tensors q, k, v and out of packed sequences, and a launch on them."""
    kernel = wspec.compile(packed_attention, persistent=False, gate="off")
    tensors = [torch.zeros(300, heads, 128).bfloat16() for heads in (4, 2, 2, 4)]
    q, k, *_ = tensors
    starts = torch.tensor([0, 100, 300], dtype=torch.int32)
    tile = {"D": 128, "SHARED": 2, "CAUSAL": True, "BLOCK_M": 64, "BLOCK_N": 64, "num_warps": 4, "num_stages": 2}
    return tensors, lambda: kernel[(4, 4, 2)](*tensors, starts, 0.1, q.stride(0), k.stride(0), **tile)


def test_numbers_that_the_kernel_loads(driver: FakeDriver, monkeypatch: pytest.MonkeyPatch) -> None:
    """Descriptors of packed sequences begin as far before their tensor as they reach behind it, loads' in memory."""
    card = Card()
    monkeypatch.setattr(promoted, "grounds", lambda device: card.grounds)
    tensors, launch = packed()
    launch()
    launch()
    made = [one for one in driver.launches[0].arguments if isinstance(one, TensorDescriptor)]
    assert len(made) == 4 and len(card.ranges) == 1  # all loads share one
    for one, tensor in zip(made, tensors, strict=True):
        row = 2 * tensor.stride(0)
        (dim,) = (dim for dim, size in enumerate(one.shape) if size * row >= 2 * SPAN)
        begins = one.base.data_ptr()
        assert begins == tensor.data_ptr() - one.shape[dim] // 2 * row - 64 * row
        assert list(one.block_shape)[dim] == 1 and begins % 16 == 0
        assert card.holds(begins) == (tensor is not tensors[3])  # stores do not look it up


def test_where_no_memory_can_be(
    driver: FakeDriver, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The plain kernel runs, and a remark says why."""
    monkeypatch.setattr(promoted, "grounds", lambda device: Card(refused=1 << 20).grounds)
    packed()[1]()
    assert not any(isinstance(one, TensorDescriptor) for one in driver.launches[0].arguments)
    assert "no memory so far before a tensor" in capsys.readouterr().err


def test_addresses_may_be_numbers(driver: FakeDriver) -> None:
    """As Triton takes them: a descriptor is of what lies there, where the kernel's offset begins."""
    types = dict.fromkeys(("a_ptr", "b_ptr", "c_ptr"), "*bf16:16")
    types |= dict.fromkeys(("M", "N", "K", "stride_am", "stride_bk", "stride_cm"), "i32:16")
    types |= dict.fromkeys(("stride_ak", "stride_bn", "stride_cn"), "i32:1")
    compiled = wspec.offline(product, types, META, gate="off", persistent=False)
    promotion = compiled.outcome().result.promotion
    assert promotion is not None
    moved = replace(promotion.descriptors[0], offset=(Term(64),))
    made = Descriptors(compiled.source, replace(promotion, descriptors=(moved, *promotion.descriptors[1:])))
    numbers = (256, 512, 128, 128, 1, 512, 1, 512, 1)
    found = made.of((8, 1, 1), (None, None, None, 4096, 8192, 12288, *numbers))
    assert [one.base.data_ptr() for one in found if not isinstance(one, str)] == [4096 + 128, 8192, 12288]
    assert isinstance(made.of((8, 1, 1), (None, None, None, None, 8192, 12288, *numbers)), str)
    before = replace(promotion.descriptors[0], offset=(Term(-4096),))
    made = Descriptors(compiled.source, replace(promotion, descriptors=(before, *promotion.descriptors[1:])))
    assert isinstance(made.of((8, 1, 1), (None, None, None, 4096, 8192, 12288, *numbers)), str)

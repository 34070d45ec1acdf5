"""What a launch runs when arguments share memory, through Triton's own launch path and a driver that writes it down."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
import torch
import triton
from triton.tools.tensor_descriptor import TensorDescriptor

import wspec
from tests.bridge.fake_driver import FakeDriver
from tests.support.aliased_kernels import bound_elsewhere
from wspec import api, bridge
from wspec.bridge.overlap_guard import Guard, places
from wspec.bridge.spans import Reach, share
from wspec.diagnostics import WspecError

BLOCKS = {"BM": 64, "BN": 64, "BK": 64}
OPTIONS: dict[str, Any] = {"gate": "off", "persistent": False}


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch, fresh_cache: Path) -> FakeDriver:
    fake = FakeDriver()
    monkeypatch.setattr(triton.runtime.driver, "_active", fake)
    monkeypatch.setattr(api, "_announced", set())
    return fake


def launched(kernel: Any, driver: FakeDriver, *arguments: Any, **meta: Any) -> int:
    """The threads of a block that the launch has: the plain kernel has 128, the specialized one more."""
    driver.launches.clear()
    kernel[(1,)](*arguments, **meta)
    (one,) = driver.launches
    return 32 * int(one.packed_metadata[0])


def tensors() -> list[Any]:
    made = [TensorDescriptor.from_tensor(torch.zeros(64, 256, dtype=torch.float16), [64, 64]) for _ in range(3)]
    return [*made, torch.zeros(4, dtype=torch.int32), torch.zeros(4, dtype=torch.int32)]


def test_a_launch_runs_the_plain_kernel_where_arguments_overlap(
    driver: FakeDriver, capsys: pytest.CaptureFixture[str]
) -> None:
    kernel = wspec.compile(bound_elsewhere, **OPTIONS)
    a, b, c, bound, after = tensors()
    meta = {**BLOCKS, "num_warps": 4}
    special = launched(kernel, driver, a, b, c, bound, after, **meta)
    assert special > 128
    for given in ((a, b, c, bound, bound), (a, b, a, bound, after), (a, c, c, bound, after)):
        capsys.readouterr()
        assert launched(kernel, driver, *given, **meta) == 128
        assert "share memory in this launch, which runs the plain kernel [arguments-overlap]" in capsys.readouterr().err
        assert driver.launches[0].arguments[:5] == given, "the arguments are the caller's"
    assert launched(kernel, driver, a, a, c, bound, after, **meta) == special, "nothing is stored there"
    assert launched(kernel, driver, a, b, c, bound[:1], bound[1:], **meta) == special, "side by side"
    assert capsys.readouterr().err == ""


def test_it_is_said_once_and_strictly_it_is_an_error(driver: FakeDriver, capsys: pytest.CaptureFixture[str]) -> None:
    a, b, c, bound, _ = tensors()
    kernel = wspec.compile(bound_elsewhere, **OPTIONS)
    for _ in range(3):
        kernel[(1,)](a, b, c, bound, bound, **BLOCKS, num_warps=4)
    assert capsys.readouterr().err.count("[arguments-overlap]") == 1
    strict = wspec.compile(bound_elsewhere, strict=True, **OPTIONS)
    with pytest.raises(WspecError, match=r"bound_ptr and next_ptr share memory.*\[arguments-overlap\]"):
        strict[(1,)](a, b, c, bound, bound, **BLOCKS, num_warps=4)


def test_pairs_are_kept_with_the_kernel_and_shown(fresh_cache: Path) -> None:
    box = "tensordesc<fp16[64, 64]>"
    types = {"a_desc": box, "b_desc": box, "c_desc": box, "bound_ptr": "*i32", "next_ptr": "*i32"}
    for _ in range(2):  # the second comes from the cache
        report = wspec.offline(bound_elsewhere, types, BLOCKS, num_warps=4, **OPTIONS).outcome()
        assert report.specialized and "proved" in report.proof
        loaded = ("a_desc", "b_desc", "bound_ptr")
        stored = {(one, "next_ptr") for one in (*loaded, "c_desc")} | {(one, "c_desc") for one in loaded[:2]}
        assert set(report.guarded) == stored | {("c_desc", "bound_ptr"), ("bound_ptr", "next_ptr")}
        assert "a launch runs the plain kernel where two of these share memory: a_desc and c_desc," in str(report)


def test_tuples_and_descriptors_have_places() -> None:
    kinds = {"d": "tensordesc<bf16[64, 64]>", "B": "constexpr", "p": ("*fp32", "i32", "constexpr", "*fp16"), "q": "*i8"}
    found = places(kinds)
    assert found[:5] == [("d", (0,))] * 5
    assert found[5:] == [("p[0]", (2, 0)), ("p[1]", (2, 1)), ("p[3]", (2, 3)), ("q", (3,))]
    guard = Guard(found, [(5, 8), (0, 8)])
    x, y = torch.zeros(64, 64, dtype=torch.float32), torch.zeros(64, 64, dtype=torch.bfloat16)
    desc = TensorDescriptor.from_tensor(y, [64, 64])
    apart = (None, None, None, desc, 1, (x, 1, 2, y), y.clone())
    assert guard.overlap(guard.ranges(apart), apart) is None
    shared = (*apart[:-1], y[3])
    found_pair = guard.overlap(guard.ranges(shared), shared)
    assert found_pair is not None and [guard.names[at] for at in found_pair] == ["d", "q"]


def test_no_pairs_no_guard() -> None:
    assert bridge.names_of((), {}) == []
    kernel = object()
    from wspec.bridge.overlap_guard import guarded

    assert guarded(kernel, None, ()) is kernel  # type: ignore[arg-type]


# ------------------------------------------------------------------------------------------------------ spans


def elements(tensor: torch.Tensor) -> set[int]:
    """The addresses of all bytes of a tensor, one by one."""
    offsets = torch.zeros((), dtype=torch.int64)
    for size, stride in zip(tensor.shape, tensor.stride(), strict=True):
        offsets = (offsets[..., None] + torch.arange(size) * stride).reshape(-1)
    size = tensor.element_size()
    return {tensor.data_ptr() + int(at) * size + byte for at in offsets.reshape(-1) for byte in range(size)}


def views(memory: torch.Tensor, draw: random.Random) -> torch.Tensor:
    """A view of some of the memory, with strides of any kind."""
    typed = memory.view(draw.choice([torch.int8, torch.int16, torch.float32]))
    rank = draw.randrange(4)
    while True:
        sizes = [draw.randrange(1, 6) for _ in range(rank)]
        strides = [draw.choice([0, 1, 2, 3, 4, 5, 8, 12, 16, 24, 32]) for _ in range(rank)]
        reach = sum((size - 1) * stride for size, stride in zip(sizes, strides, strict=True))
        if reach < typed.numel():
            return typed.as_strided(sizes, strides, draw.randrange(typed.numel() - reach))


def test_sharing_is_told_exactly() -> None:
    draw, memory = random.Random(7), torch.zeros(512, dtype=torch.int8)
    found = {True: 0, False: 0}
    for _ in range(1500):
        one, other = views(memory, draw), views(memory, draw)
        truth = bool(elements(one) & elements(other))
        assert share(one, other) == truth, (one.shape, one.stride(), other.shape, other.stride())
        start, end = Reach().bounds(one)
        assert start <= min(elements(one)) and max(elements(one)) < end
        found[truth] += 1
    assert min(found.values()) > 100


def test_views_of_one_tensor_that_lie_between_each_other() -> None:
    packed = torch.zeros(2, 100, 3, 4, 16)
    q, k, v = packed.unbind(2)
    assert not share(q, k) and not share(k, v) and share(q, packed) and share(q[:, 5:], q[:, :6])
    assert not share(q[:, 5:], q[:, :5])


def test_descriptors_reach_what_they_say() -> None:
    memory = torch.zeros(128, 64, dtype=torch.float16)
    above, below = (TensorDescriptor(memory[at:], [64, 64], [64, 1], [16, 16]) for at in (0, 64))
    assert not share(above, below) and share(above, memory[63:]) and not share(above, memory[64:])
    assert Reach().bounds(above) == (memory.data_ptr(), memory.data_ptr() + 64 * 64 * 2) == Reach().bounds(above)
    whole = TensorDescriptor.from_tensor(memory, [16, 16])
    assert Reach().bounds(whole) == Reach().bounds(memory) == Reach().bounds(whole)


def test_what_does_not_say_where_it_ends_may_overlap_anything() -> None:
    class Pointer:
        def data_ptr(self) -> int:
            return 4096

    assert share(Pointer(), torch.zeros(1)) and Reach().bounds(Pointer()) == (0, 1 << 64)


def test_nothing_overlaps_no_elements() -> None:
    memory = torch.zeros(64)
    assert not share(memory[:0], memory) and not share(memory, memory[8:8])

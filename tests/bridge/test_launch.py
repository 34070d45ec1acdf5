"""Launching through Triton's own path, with a driver that only records."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch
import triton
import triton.language as tl
from triton import knobs
from triton.runtime import _allocation
from triton.runtime.jit import JITFunction
from triton.tools.tensor_descriptor import TensorDescriptor

import wspec
from tests.bridge.fake_driver import FakeDriver
from tests.bridge.sample_kernels import GEMM_BLOCKS, FakeSpecialize, add, device_descriptor, gemm
from wspec import api, bridge


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch, fresh_cache: Path) -> FakeDriver:
    fake = FakeDriver()
    monkeypatch.setattr(triton.runtime.driver, "_active", fake)
    return fake


@pytest.fixture
def specialize(monkeypatch: pytest.MonkeyPatch) -> FakeSpecialize:
    fake = FakeSpecialize()
    monkeypatch.setattr("wspec.pipeline.specialize", fake)
    return fake


def _x() -> torch.Tensor:
    return torch.empty(1024)


def test_the_warm_path_is_tritons() -> None:
    for name in ("run", "__getitem__", "warmup", "_pack_args", "_do_compile", "_call_hook", "preload"):
        assert getattr(api.CompiledFunction, name) is getattr(JITFunction, name)


def test_forms_of_a_launch(driver: FakeDriver, specialize: FakeSpecialize) -> None:
    kernel, x = wspec.compile(add), _x()
    kernel[(8,)](x, x, 1024)
    kernel[(8, 2)](x, y_ptr=x, n=1024)
    kernel[lambda meta: (triton.cdiv(1024, meta["BLOCK"]), 1, 1)](x, x, 1024, BLOCK=256, num_warps=2)
    kernel.run(x, x, 1024, grid=(4,), warmup=False)
    driver.stream = 9
    kernel[(8,)](x, x, 1024)
    assert [launch.grid for launch in driver.launches] == [(8, 1, 1), (8, 2, 1), (4, 1, 1), (4, 1, 1), (8, 1, 1)]
    assert [launch.stream for launch in driver.launches] == [7, 7, 7, 7, 9]
    assert driver.launches[2].arguments[3] == 256 and driver.launches[2].packed_metadata[0] == 2
    assert all(launch.kernel == "add" for launch in driver.launches)
    assert specialize.calls == 2  # BLOCK=128 and BLOCK=256


def test_a_grid_of_tensors(driver: FakeDriver, specialize: FakeSpecialize) -> None:
    """As `(triton.cdiv(lengths.max(), BLOCK),)` is one: Triton takes what has an __index__."""
    wspec.compile(add)[(torch.tensor(8), torch.tensor([2]))](_x(), _x(), 1024)
    (launch,) = driver.launches
    assert launch.grid == (8, 2, 1) and all(type(size) is int for size in launch.grid)


def test_warmup_and_plain_compiled_kernel(driver: FakeDriver, specialize: FakeSpecialize) -> None:
    kernel = wspec.compile(add)
    compiled = kernel.warmup(torch.float32, torch.float32, 1024, grid=(1,))
    assert isinstance(compiled, triton.compiler.CompiledKernel) and "wspec" in compiled.asm
    compiled[(2, 1, 1)](_x(), _x(), 1024, 128)
    assert driver.launches[0].grid == (2, 1, 1)


def test_host_descriptors(driver: FakeDriver, specialize: FakeSpecialize) -> None:
    a = TensorDescriptor.from_tensor(torch.empty(256, 256, dtype=torch.float16), [128, 64])
    b = TensorDescriptor.from_tensor(torch.empty(256, 256, dtype=torch.float16), [64, 128])
    kernel = wspec.compile(gemm)
    kernel[(2, 2)](a, b, torch.empty(256, 256, dtype=torch.float16), 256, 256, **GEMM_BLOCKS, num_warps=8)
    assert driver.launches[0].arguments[:2] == (a, b)
    assert driver.launches[0].packed_metadata[0] == 8


def test_device_descriptors_bring_an_allocator(driver: FakeDriver, specialize: FakeSpecialize) -> None:
    for kernel in (wspec.compile(device_descriptor), wspec.compile(device_descriptor, enabled=False, remarks="off")):
        token = _allocation._allocator.set(_allocation._NULL_ALLOCATOR)
        try:
            kernel[(1,)](_x(), _x(), 1024, BLOCK=64)
            assert _allocation._allocator.get() is not _allocation._NULL_ALLOCATOR
            mine = lambda size, alignment, stream: None  # noqa: E731
            triton.set_allocator(mine)
            kernel[(1,)](_x(), _x(), 1024, BLOCK=64)
            assert _allocation._allocator.get() is mine
        finally:
            _allocation._allocator.reset(token)
    assert len(driver.launches) == 4


def test_a_declined_kernel_is_tritons_own_binary(driver: FakeDriver, specialize: FakeSpecialize) -> None:
    specialize.action = "decline"
    kernel = wspec.compile(add, remarks="off")
    ours = kernel.warmup(torch.float32, torch.float32, 1024, grid=(1,))
    plain = add.warmup(torch.float32, torch.float32, 1024, grid=(1,))
    assert ours.hash == plain.hash and ours.asm["cubin"] == plain.asm["cubin"]
    wspec.compile(add, remarks="off").warmup(torch.float32, torch.float32, 1024, grid=(1,))
    assert specialize.calls == 1  # the second time the decision came from the cache


def test_a_gpu_that_is_not_hopper(driver: FakeDriver, specialize: FakeSpecialize) -> None:
    driver.target = triton.backends.compiler.GPUTarget("cuda", 80, 32)
    kernel = wspec.compile(add, remarks="off").warmup(torch.float32, torch.float32, 1024, grid=(1,))
    assert specialize.calls == 0 and "wspec" not in kernel.asm and ".target sm_80" in kernel.asm["ptx"]


def _bench(call: Any, quantiles: Any) -> list[float]:
    call()
    return [1.0, 1.0, 1.0]


CONFIGS = [triton.Config({"BLOCK": 128}, num_warps=4), triton.Config({"BLOCK": 256}, num_warps=8)]


@triton.jit
def copy_block(x_ptr, y_ptr, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(y_ptr + i, tl.load(x_ptr + i))


def test_over_and_under_autotune(driver: FakeDriver, specialize: FakeSpecialize) -> None:
    tune = triton.autotune(CONFIGS, key=[], do_bench=_bench)
    over, under = wspec.compile(tune(copy_block)), tune(wspec.compile(copy_block))
    for kernel in (over, under):
        driver.launches.clear()
        specialize.calls = 0
        kernel[(1,)](_x(), _x())
        assert len(driver.launches) == 3  # two configurations measured, the best one run
        assert kernel.best_config in CONFIGS
    assert isinstance(over, triton.runtime.Autotuner) and specialize.calls == 0  # `under` found `over`'s results


def test_autotune_keeps_the_plain_kernel_apart(driver: FakeDriver, specialize: FakeSpecialize) -> None:
    plain = triton.autotune(CONFIGS, key=[], do_bench=_bench)(copy_block)
    plain[(1,)](_x(), _x())
    kernel = wspec.compile(plain)
    assert kernel.cache == {} and plain.cache and type(plain) is triton.runtime.Autotuner
    assert type(plain.fn) is JITFunction and isinstance(kernel.fn, bridge.WspecFunction)
    assert kernel.fn.cache_key != plain.fn.cache_key  # or the autotuner's disk cache would mix them up


def test_heuristics(driver: FakeDriver, specialize: FakeSpecialize) -> None:
    heuristic = triton.heuristics({"BLOCK": lambda args: 2 * args["n"]})
    kernel = wspec.compile(heuristic(add))
    kernel[(1,)](_x(), _x(), 64)
    assert driver.launches[0].arguments[3] == 128


def test_async_compile(driver: FakeDriver, specialize: FakeSpecialize) -> None:
    kernel = wspec.compile(add)
    with ThreadPoolExecutor(2) as pool, triton.AsyncCompileMode(pool):
        kernel.warmup(torch.float32, torch.float32, 1024, grid=(1,), BLOCK=64)
        kernel.warmup(torch.float32, torch.float32, 1024, grid=(1,), BLOCK=32)
    kernel[(1,)](_x(), _x(), 1024, BLOCK=64)
    assert specialize.calls == 2 and len(driver.launches) == 1


def test_hooks(driver: FakeDriver, specialize: FakeSpecialize, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []
    monkeypatch.setattr(knobs.runtime, "jit_cache_hook", lambda **kwargs: bool(seen.append(kwargs["repr"])))
    monkeypatch.setattr(knobs.runtime, "jit_post_compile_hook", lambda **kwargs: bool(seen.append("after")))
    kernel = wspec.compile(add)
    kernel.add_pre_run_hook(lambda *args, **kwargs: seen.append("before run"))
    kernel[(1,)](_x(), _x(), 1024)
    assert seen[0] == "before run" and seen[1].startswith("add[num_warps=4") and seen[2] == "after"


def test_settings_of_the_plain_function_are_kept() -> None:
    metadata = lambda grid, kernel, args: {"flops": 1}  # noqa: E731
    plain = triton.jit(
        add.fn, do_not_specialize=["n"], noinline=True, debug=True, launch_metadata=metadata, repr=lambda _: "name"
    )
    kernel = wspec.compile(plain)
    assert [p.do_not_specialize for p in kernel.params] == [False, False, True, False]
    assert kernel.noinline and kernel.debug and kernel.launch_metadata is metadata and kernel.repr(None) == "name"
    assert kernel.__name__ == "add" and kernel.arg_names == add.arg_names and kernel.src == add.src


def test_as_a_device_function(driver: FakeDriver, specialize: FakeSpecialize) -> None:
    caller_of_ours[(1,)](_x())
    assert driver.launches[0].kernel == "caller_of_ours" and specialize.calls == 0


@wspec.compile
@triton.jit
def helper_of_ours(x):
    return x * 2


@triton.jit
def caller_of_ours(x_ptr):
    i = tl.arange(0, 64)
    tl.store(x_ptr + i, helper_of_ours(tl.load(x_ptr + i)))

"""Every way to launch, on a Hopper GPU: specialized kernels must behave as plain ones, and start as fast."""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

import wspec
from tests.bridge.sample_kernels import GEMM_BLOCKS, add, device_descriptor, gemm
from wspec.diagnostics import WspecError

pytestmark = pytest.mark.gpu

M = N = K = 1024
GRID = (M // 128, N // 128)


@triton.jit
def device_gemm(a_ptr, b_ptr, c_ptr, M, N, K, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr):
    a_desc = tl.make_tensor_descriptor(a_ptr, [M, K], [K, 1], [BLOCK_M, BLOCK_K])
    b_desc = tl.make_tensor_descriptor(b_ptr, [K, N], [N, 1], [BLOCK_K, BLOCK_N])
    row, column = tl.program_id(0) * BLOCK_M, tl.program_id(1) * BLOCK_N
    acc = tl.zeros([BLOCK_M, BLOCK_N], tl.float32)
    for k in tl.range(0, K, BLOCK_K):
        acc = tl.dot(a_desc.load([row, k]), b_desc.load([k, column]), acc)
    offsets = (row + tl.arange(0, BLOCK_M))[:, None] * N + (column + tl.arange(0, BLOCK_N))[None, :]
    tl.store(c_ptr + offsets, acc.to(tl.float16))


@pytest.fixture
def tensors() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    torch.manual_seed(0)
    a = torch.randn(M, K, device="cuda", dtype=torch.float16)
    b = torch.randn(K, N, device="cuda", dtype=torch.float16)
    return a, b, torch.empty(M, N, device="cuda", dtype=torch.float16)


def _descriptors(a: torch.Tensor, b: torch.Tensor) -> tuple[TensorDescriptor, TensorDescriptor]:
    return TensorDescriptor.from_tensor(a, [128, 64]), TensorDescriptor.from_tensor(b, [64, 128])


def _check(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> None:
    torch.testing.assert_close(c, a @ b, rtol=1e-2, atol=1e-1)
    c.zero_()


def _specialized() -> Any:
    """The descriptor GEMM; strict, so that a plain kernel cannot pass for a specialized one."""
    return wspec.compile(gemm, strict=True, gate="off")


Tensors = tuple[torch.Tensor, torch.Tensor, torch.Tensor]


def test_host_descriptors_and_argument_forms(tensors: Tensors) -> None:
    a, b, c = tensors
    kernel, (a_desc, b_desc) = _specialized(), _descriptors(a, b)
    kernel[GRID](a_desc, b_desc, c, K, N, **GEMM_BLOCKS, num_warps=8)
    _check(a, b, c)
    kernel[GRID](a_desc, b_desc, N=N, c_ptr=c, K=K, BLOCK_M=128, BLOCK_N=128, BLOCK_K=64, num_warps=8, num_stages=2)
    _check(a, b, c)
    kernel[lambda meta: (M // meta["BLOCK_M"], N // meta["BLOCK_N"], 1)](
        a_desc, b_desc, c, K, N, 128, 128, 64, num_warps=8
    )
    _check(a, b, c)
    kernel.run(a_desc, b_desc, c, K, N, grid=GRID, warmup=False, **GEMM_BLOCKS, num_warps=8)
    _check(a, b, c)
    report = kernel.outcome(a_desc, b_desc, c, K, N, **GEMM_BLOCKS, num_warps=8)
    assert report.specialized and report.resources.usetmaxreg and report.resources.spill_bytes == 0


@pytest.mark.parametrize("warps", [4, 8])
def test_warp_counts(tensors: Tensors, warps: int) -> None:
    a, b, c = tensors
    kernel = wspec.compile(gemm, gate="off")
    kernel[GRID](*_descriptors(a, b), c, K, N, **GEMM_BLOCKS, num_warps=warps)
    _check(a, b, c)


def test_other_constexprs_compile_anew(tensors: Tensors) -> None:
    a, b, c = tensors
    kernel = _specialized()
    for block_n in (64, 128):
        b_desc = TensorDescriptor.from_tensor(b, [64, block_n])
        grid = (M // 128, N // block_n)
        blocks = {"BLOCK_M": 128, "BLOCK_N": block_n, "BLOCK_K": 64}
        kernel[grid](_descriptors(a, b)[0], b_desc, c, K, N, **blocks, num_warps=8)
        _check(a, b, c)


def test_trip_counts(tensors: Tensors) -> None:
    a, b, c = tensors
    kernel = _specialized()
    for k in (0, 64, 128, 192, 1024):
        kernel[GRID](*_descriptors(a, b), c, k, N, **GEMM_BLOCKS, num_warps=8)
        _check(a[:, :k], b[:k], c)


def test_device_descriptors_without_an_allocator(tensors: Tensors) -> None:
    a, b, c = tensors
    kernel = wspec.compile(device_gemm, gate="off")
    done: list[bool] = []

    def launch() -> None:  # a new thread has no allocator of its own
        kernel[GRID](a, b, c, M, N, K, **GEMM_BLOCKS, num_warps=8)
        torch.cuda.synchronize()
        done.append(True)

    for _ in range(2):
        thread = threading.Thread(target=launch)
        thread.start()
        thread.join()
        _check(a, b, c)
    assert done == [True, True]
    x = torch.arange(256, device="cuda", dtype=torch.float32)
    y = torch.empty_like(x)
    wspec.compile(device_descriptor)[(2,)](x, y, 256, BLOCK=128)
    assert torch.equal(y, 2 * x)


def test_streams(tensors: Tensors) -> None:
    a, b, c = tensors
    kernel, stream = _specialized(), torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        kernel[GRID](*_descriptors(a, b), c, K, N, **GEMM_BLOCKS, num_warps=8)
    stream.synchronize()
    _check(a, b, c)


def test_a_grid_of_tensors(tensors: Tensors) -> None:
    a, b, c = tensors
    _specialized()[tuple(map(torch.tensor, GRID))](*_descriptors(a, b), c, K, N, **GEMM_BLOCKS, num_warps=8)
    _check(a, b, c)


@pytest.mark.parametrize("kind", ["host", "device"])
def test_cuda_graphs(tensors: Tensors, kind: str) -> None:
    a, b, c = tensors
    a_desc, b_desc = _descriptors(a, b)
    on_host, on_device = _specialized(), wspec.compile(device_gemm, gate="off")

    def launch() -> None:
        if kind == "host":
            on_host[GRID](a_desc, b_desc, c, K, N, **GEMM_BLOCKS, num_warps=8)
        else:
            on_device[GRID](a, b, c, M, N, K, **GEMM_BLOCKS, num_warps=8)

    launch()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        launch()
    for _ in range(3):
        c.zero_()
        a.normal_()
        graph.replay()
        torch.cuda.synchronize()
        torch.testing.assert_close(c, a @ b, rtol=1e-2, atol=1e-1)


def _set_blocks(args: dict[str, Any]) -> None:
    args["a_desc"].block_shape = [args["BLOCK_M"], args["BLOCK_K"]]
    args["b_desc"].block_shape = [args["BLOCK_K"], args["BLOCK_N"]]


CONFIGS = [
    triton.Config({"BLOCK_M": 128, "BLOCK_N": n, "BLOCK_K": 64}, num_warps=8, num_stages=s, pre_hook=_set_blocks)
    for n, s in ((128, 3), (64, 2))
]


@pytest.mark.parametrize("over", [True, False])
def test_autotune(tensors: Tensors, over: bool) -> None:
    a, b, c = tensors
    tune = triton.autotune(CONFIGS, key=["K", "N"])
    kernel: Any = wspec.compile(tune(gemm), gate="off") if over else tune(wspec.compile(gemm, gate="off"))
    grid = lambda meta: (M // meta["BLOCK_M"], N // meta["BLOCK_N"])  # noqa: E731
    for _ in range(2):
        kernel[grid](*_descriptors(a, b), c, K, N)
        _check(a, b, c)
    assert kernel.best_config in CONFIGS


def test_left_alone_and_strict() -> None:
    x = torch.randn(1000, device="cuda")
    y = torch.empty_like(x)
    wspec.compile(add)[(8,)](x, y, 1000)
    assert torch.equal(y, x + x)
    with pytest.raises(WspecError, match="no-loop"):
        wspec.compile(add, strict=True)[(8,)](x, y, 1000)


def test_repeated_runs_are_identical(tensors: Tensors) -> None:
    a, b, c = tensors
    kernel, descriptors = _specialized(), _descriptors(a, b)
    kernel[GRID](*descriptors, c, K, N, **GEMM_BLOCKS, num_warps=8)
    first = c.clone()
    for _ in range(20):
        c.zero_()
        kernel[GRID](*descriptors, c, K, N, **GEMM_BLOCKS, num_warps=8)
        assert torch.equal(c, first)


def _host_microseconds(launch: Callable[[], object], launches: int = 200) -> float:
    """Host time of one launch: the queue is kept short, so that no launch waits for the GPU."""
    torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(launches):
        launch()
    elapsed = time.perf_counter() - start
    torch.cuda.synchronize()
    return elapsed / launches * 1e6


def test_a_warm_launch_takes_no_longer_on_the_host(tensors: Tensors, record_property: Any) -> None:
    """Within 20 % of plain Triton: medians of 15 interleaved rounds on a grid of one block."""
    a, b, c = tensors
    (a_desc, b_desc), ours = _descriptors(a, b), _specialized()
    kernels = {"plain": gemm, "wspec": ours}
    launches: dict[str, Callable[[], object]] = {
        name: (lambda kernel=kernel: kernel[(1, 1)](a_desc, b_desc, c, 64, N, **GEMM_BLOCKS, num_warps=8))
        for name, kernel in kernels.items()
    }
    for launch in launches.values():
        _host_microseconds(launch)
    rounds = [{name: _host_microseconds(launch) for name, launch in launches.items()} for _ in range(15)]
    plain, wspec_time = (statistics.median(one[name] for one in rounds) for name in ("plain", "wspec"))
    record_property("plain_us", plain)
    record_property("wspec_us", wspec_time)
    print(f"host time of a warm launch: plain {plain:.2f} us, wspec {wspec_time:.2f} us")
    assert wspec_time <= 1.2 * plain

"""A kernel of ours inside torch.compile, down to Inductor's code, with a driver that writes launches down."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import triton
import triton.language as tl
from torch._higher_order_ops.triton_kernel_wrap import kernel_side_table
from torch._inductor.utils import run_and_get_code
from triton.tools.tensor_descriptor import TensorDescriptor

import wspec
from tests.bridge.fake_driver import FakeDriver
from tests.support import host_tables
from tests.support.goldens import ROOT
from tests.support.seldom import one_of
from wspec import api
from wspec.bridge import inductor, persistent


@triton.jit
def product(a_ptr, b_ptr, c_ptr, m, k, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """c [m, BN] of a [m, k] and b [k, BN]."""
    a_desc = tl.make_tensor_descriptor(a_ptr, [m, k], [k, 1], [BM, BK])
    b_desc = tl.make_tensor_descriptor(b_ptr, [k, BN], [BN, 1], [BK, BN])
    row = tl.program_id(0)
    acc = tl.zeros([BM, BN], tl.float32)
    for at in range(0, k, BK):
        acc = tl.dot(a_desc.load([row * BM, at]), b_desc.load([at, 0]), acc)
    places = (row * BM + tl.arange(0, BM))[:, None] * BN + tl.arange(0, BN)[None, :]
    tl.store(c_ptr + places, acc.to(tl.float16))


@triton.jit
def tiles(a_desc, b_desc, c_ptr, k, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """The same of descriptors."""
    row = tl.program_id(0)
    acc = tl.zeros([BM, BN], tl.float32)
    for at in range(0, k, BK):
        acc = tl.dot(a_desc.load([row * BM, at]), b_desc.load([at, 0]), acc)
    places = (row * BM + tl.arange(0, BM))[:, None] * BN + tl.arange(0, BN)[None, :]
    tl.store(c_ptr + places, acc.to(tl.float16))


specialized_tiles = wspec.compile(tiles, gate="off", remarks="off")
specialized = wspec.compile(product, gate="off", remarks="off")


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch, fresh_cache: Path) -> FakeDriver:
    fake = FakeDriver()
    monkeypatch.setattr(triton.runtime.driver, "_active", fake)
    monkeypatch.setattr(persistent.Tables, "get", host_tables.get)
    monkeypatch.setattr(api, "_announced", set())
    for name in ("has_triton", "has_triton_package", "has_triton_tensor_descriptor_host_tma"):
        monkeypatch.setattr(torch.utils._triton, name, lambda: True)
    torch._dynamo.reset()
    return fake


def call(kernel: Any, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    c = torch.empty(a.shape[0], 128, dtype=torch.float16)
    grid = (triton.cdiv(a.shape[0], 128),)
    kernel[grid](a, b, c, a.shape[0], a.shape[1], BM=128, BN=128, BK=64, num_warps=8)
    return c


def matrices(rows: int, k: int = 256) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.empty(rows, k, dtype=torch.float16), torch.empty(k, 128, dtype=torch.float16)


def test_the_specialized_kernel_is_launched(driver: FakeDriver) -> None:
    """Threads of a block say which binary it is, and the arguments are the caller's."""
    compiled = torch.compile(lambda a, b: call(specialized, a, b), fullgraph=True, dynamic=True)
    a, b = matrices(512)
    _, (code, *_) = run_and_get_code(compiled, a, b)
    (launch,) = driver.launches
    assert 32 * int(launch.packed_metadata[0]) > 256 and launch.kernel == "product"
    assert "wspec_kernel_of('tests.bridge.test_inductor', 'product'" in code and "async_compile.triton" not in code
    assert launch.arguments[0].data_ptr() == a.data_ptr() and launch.arguments[4] == 256
    compiled(*matrices(1024, 512))
    assert driver.launches[-1].arguments[3:5] == (1024, 512) and len(driver.launches) == 2
    call(specialized, a, b)
    assert driver.launches[-1].packed_metadata == launch.packed_metadata


def test_descriptors_of_the_host(driver: FakeDriver) -> None:
    def call(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        c = torch.empty(a.shape[0], 128, dtype=torch.float16)
        boxes = TensorDescriptor.from_tensor(a, [128, 64]), TensorDescriptor.from_tensor(b, [64, 128])
        specialized_tiles[(a.shape[0] // 128,)](*boxes, c, 256, BM=128, BN=128, BK=64, num_warps=8)
        return c

    a, b = matrices(512)
    torch.compile(call, fullgraph=True)(a, b)
    (launch,) = driver.launches
    assert 32 * int(launch.packed_metadata[0]) > 256 and launch.grid == (4, 1, 1)
    assert launch.arguments[0].base.data_ptr() == a.data_ptr() and launch.arguments[0].block_shape == [128, 64]


def test_what_stays_inductors_copy_is_said(driver: FakeDriver, monkeypatch: pytest.MonkeyPatch) -> None:
    """Seen where Inductor's code is written; the copy itself needs a card."""
    said: list[Any] = []
    monkeypatch.setattr(specialized, "wspec_say", said.append)
    configs = [triton.Config({"BK": 64}, num_warps=8), triton.Config({"BK": 32}, num_warps=8)]
    index = kernel_side_table.add_kernel(triton.autotune(configs, key=[])(specialized))
    assert not inductor.write_launch(SimpleNamespace(kernel_idx=index), None)
    (remark,) = said
    assert remark.code == "torch-compile" and "product runs as it was inside torch.compile: an autotuner" in str(remark)
    assert not inductor.write_launch(SimpleNamespace(kernel_idx=kernel_side_table.add_kernel(product)), None)
    assert len(said) == 1, "a kernel that is not ours is nobody's business"


def test_the_kernel_that_code_names() -> None:
    """By its options where it is still there, and any of that name else: what is launched says what it is."""
    name = "tests.bridge.test_inductor", "product"
    assert inductor.kernel_of(*name, specialized.wspec_digest) is specialized
    assert inductor.kernel_of(*name, "of an older wspec").fn is product.fn
    with pytest.raises(RuntimeError, match="has no kernel other"):
        inductor.kernel_of("tests.bridge.test_inductor", "other", "")
    assert specialized.wspec_digest != wspec.compile(product, gate="off", depth=2).wspec_digest


def test_options_are_part_of_inductors_keys(driver: FakeDriver) -> None:
    from torch._inductor.codegen import wrapper

    source: Any = wrapper.user_defined_triton_kernel_transitive_closure_source_code
    assert source(specialized).endswith(f"# wspec {specialized.wspec_digest}\n") and "# wspec" not in source(product)


@pytest.mark.parametrize("first", one_of(2, ["torch._inductor.codegen.wrapper", "torch._inductor.ir"]))
def test_inductors_modules_in_either_order(first: str) -> None:
    """Each imports the other, so that one is there in part when the other is whole."""
    program = f"""
import importlib, wspec
from tests.bridge.test_inductor import specialized
importlib.import_module("{first}")
from torch._inductor import ir
from torch._inductor.codegen import wrapper
source = wrapper.user_defined_triton_kernel_transitive_closure_source_code(specialized)
assert hasattr(ir.UserDefinedTritonKernel, "wspec_theirs") and "# wspec " in source
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=ROOT, timeout=120)
    assert done.returncode == 0, done.stderr

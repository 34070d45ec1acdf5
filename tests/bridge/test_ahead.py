"""Configurations of an autotuner compiled side by side, with real processes and a driver that only records."""

from __future__ import annotations

import os
import pickle
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import triton
from triton.tools.tensor_descriptor import TensorDescriptor

import wspec
from tests.bridge.fake_driver import FakeDriver
from tests.bridge.sample_kernels import GEMM_BLOCKS, gemm
from wspec import bridge
from wspec.bridge import ahead, cache, compile
from wspec.options import Options

CONFIGS = [triton.Config(GEMM_BLOCKS, num_warps=warps, num_stages=stages) for warps in (8, 4) for stages in (2, 3)]


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch, fresh_cache: Path) -> FakeDriver:
    fake = FakeDriver()
    monkeypatch.setattr(triton.runtime.driver, "_active", fake)
    monkeypatch.setattr(ahead, "current_target", lambda: bridge.HOPPER)
    monkeypatch.setattr(cache, "_shared", {})
    return fake


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the kernels that this process compiles itself."""
    names: list[str] = []
    real = compile.Job.finished

    def counted(job: Any, *args: Any) -> Any:
        names.append(job.source.name)
        return real(job, *args)

    monkeypatch.setattr(compile.Job, "finished", counted)
    return names


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[ahead._Workers]]:
    """The pools of processes that are started."""
    found: list[ahead._Workers] = []
    real = ahead._Workers.start

    def start(self: ahead._Workers) -> None:
        found.append(self)
        real(self)

    monkeypatch.setattr(ahead._Workers, "start", start)
    yield found
    for thread in threading.enumerate():
        if thread.name == "wspec-ahead":
            thread.join(60)


def _bench(call: Any, quantiles: Any) -> list[float]:
    call()
    return [1.0, 1.0, 1.0]


def _launch(**options: Any) -> Any:
    """An autotuned kernel that is launched once."""
    tune = triton.autotune(CONFIGS, key=[], do_bench=_bench)
    said = {"remarks": "off", "gate": "off", "persistent": False}  # tables of tiles want a real device
    kernel = wspec.compile(tune(gemm), **said, **options)
    a, b = torch.empty(256, 256, dtype=torch.float16), torch.empty(256, 256, dtype=torch.float16)
    a_desc, b_desc = TensorDescriptor.from_tensor(a, [128, 64]), TensorDescriptor.from_tensor(b, [64, 128])
    kernel[(4,)](a_desc, b_desc, torch.empty(256, 256, dtype=torch.float16), 256, 256)
    return kernel


def _binaries(kernel: Any) -> list[tuple[bytes, Any]]:
    (caches,) = kernel.fn.device_caches.values()
    return [(one.asm["cubin"], one.metadata.num_stages) for one in caches[0].values()]


def test_configurations_are_compiled_by_other_processes(
    driver: FakeDriver, compiled: list[str], started: list[ahead._Workers], monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel = _launch(compile_jobs=2)
    assert len(compiled) == 1 and len(started) == 1, "the first one, while the processes start"
    assert len(started[0].asked) == 1, "what differs in num_stages alone is compiled once"
    found = _binaries(kernel)
    assert [stages for _, stages in found] == [2, 3, 2, 3]
    assert len(driver.launches) == 5 and not any(thread.name == "wspec-checker" for thread in threading.enumerate())

    monkeypatch.setattr(cache, "_shared", {})
    alone = _launch(compile_jobs=0, cache=False)
    assert len(compiled) == 5 and len(started) == 1
    assert _binaries(alone) == found, "the binaries are those that this process makes"


def test_nothing_starts_where_all_is_there(
    driver: FakeDriver, compiled: list[str], started: list[ahead._Workers]
) -> None:
    _launch(compile_jobs=1)
    assert len(compiled) == 2 and started == [], "one process: the launches compile, and share what is equal"
    _launch(compile_jobs=2)
    assert len(compiled) == 2 and started == []


def test_a_worker_that_dies_costs_nothing_but_time(
    driver: FakeDriver, compiled: list[str], started: list[ahead._Workers], monkeypatch: pytest.MonkeyPatch
) -> None:
    real = ahead._Workers.ask

    def ask(self: ahead._Workers, key: str, request: bytes) -> None:
        real(self, key, request)
        assert self._process is not None
        os.kill(self._process.pid, signal.SIGKILL)
        self._process.wait()

    monkeypatch.setattr(ahead._Workers, "ask", ask)
    kernel = _launch(compile_jobs=2)
    assert len(started) == 1 and len(compiled) == 2 and len(_binaries(kernel)) == 4


def test_a_request_that_fails_is_answered(driver: FakeDriver, tmp_path: Path) -> None:
    pool = ahead._Workers(2, [os.path.join])
    with pool:
        pool.start()
        pool.ask("broken", b"no pickle")
        pool.ask("fatal", pickle.dumps((os.abort, ())))
    assert len(pool.asked) == 2 and all(done.wait(60) for done in pool.asked.values())
    assert cache.wait_for("broken") and cache.wait_for("fatal") and not cache.wait_for("fatal")


def test_jobs_that_are_none(driver: FakeDriver, started: list[ahead._Workers]) -> None:
    source = bridge.from_signature(
        gemm,
        {"a_desc": "tensordesc<fp16[128, 64]>", "b_desc": "tensordesc<fp16[64, 128]>", "c_ptr": "*fp16:16"},
        {"K": 256, "N": 256, **GEMM_BLOCKS},
    )
    for options in (Options(compile_jobs=1), Options(compile_jobs=4, cache=False), Options(dump="x", compile_jobs=4)):
        assert bridge.compile_ahead([source, source], options, _never, _never, "") == 0
    assert started == []


def _never(text: str) -> Any:
    raise AssertionError(text)

"""`wspec.enable` over kernels that others wrote: nothing fails, and with it off again launches are as they were."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import triton

import wspec
from tests.bridge.fake_driver import FakeDriver
from tests.outside.cases import CASES
from wspec import ledger
from wspec.bridge.everywhere import COPIES

NAMES = (
    "triton-gemm-s3", "triton-gemm-w8", "triton-persistent", "triton-attention-full-d64-s2",
    "triton-attention-causal-d128-s2", "gluon-gemm", "gluon-attention", "gluon-pointers", "gluon-persistent",
    "gluon-rows",
)  # fmt: skip
LONG = ("triton-attention-causal-d128-s2",)


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch, fresh_cache: Path) -> FakeDriver:
    fake = FakeDriver()
    monkeypatch.setattr(triton.runtime.driver, "_active", fake)
    monkeypatch.setattr(ledger, "_ledger", ledger._Ledger())
    return fake


def launch_of(name: str) -> Any:
    """Of a kernel that has never been launched with it on; tests of one process share the kernels."""
    launch = CASES[name].make("cpu")
    launch.kernel.__dict__.pop(COPIES, None)
    return launch


@pytest.mark.parametrize("name", [pytest.param(one, marks=pytest.mark.slow if one in LONG else ()) for one in NAMES])
def test_off_on_and_off(name: str, driver: FakeDriver) -> None:
    """What is specialized has another binary, the rest the same one; afterwards all have what they had."""
    launch = launch_of(name)
    plain = binary(launch.run())
    with wspec.enable(remarks="off"):
        ours = binary(launch.run())
    assert binary(launch.run()) == plain
    (entry,) = wspec.report().entries
    assert (ours == plain) is not entry.specialized
    assert entry.specialized or entry.reason
    assert not name.startswith("gluon") or entry.reason.startswith("already-specialized: ")
    assert wspec.report().launches == {entry.kernel: 1} and entry.kernel in str(wspec.report())


def test_on_first(driver: FakeDriver) -> None:
    """What the cache holds of a process with it on is nothing for one with it off."""
    launch = launch_of("triton-gemm-w8")
    with wspec.enable(remarks="off"):
        ours = binary(launch.run())
    assert binary(launch.run()) != ours


def test_gluon_under_the_decorator(driver: FakeDriver, capsys: pytest.CaptureFixture[str]) -> None:
    """It stays what it was, and that is said."""
    kernel = CASES["gluon-gemm"].make("cpu").kernel
    assert wspec.compile(kernel) is kernel
    assert "a kernel in Gluon says itself which warp does what [already-specialized]" in capsys.readouterr().err
    with pytest.raises(wspec.WspecError, match="in Gluon"):
        wspec.compile(kernel, strict=True)
    with pytest.raises(wspec.WspecError, match="in Gluon"):
        wspec.offline(kernel, {})


def binary(kernel: Any) -> bytes:
    return bytes(kernel.asm["cubin"])

"""Tests compile into caches of their own; GPU tests are skipped, with the reason, where there is no GPU.

`--update` writes the expected outputs of golden tests and the excerpts of docs anew; `--slow` runs what is marked slow.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from triton.compiler import CompiledKernel

from tests.support.back_end import kept_in


@pytest.fixture(scope="session", autouse=True)
def session_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """TRITON_CACHE_DIR in a folder of this session: no test is served what the user compiled. WSPEC_* variables go."""
    folder = tmp_path_factory.mktemp("triton-cache")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRITON_CACHE_DIR", str(folder))
        patch.delenv("TRITON_INTERPRET", raising=False)
        patch.setenv("TRITON_DEFAULT_FP_FUSION", "1")  # as it is; 3.9 says in each process that it will change
        for name in _wspec_variables():
            patch.delenv(name, raising=False)
        yield folder


@pytest.fixture(scope="session", autouse=True)
def back_end_is_asked_once(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """What LLVM and ptxas made of a text is kept for the run, whose processes share it."""
    own = tmp_path_factory.getbasetemp()
    with pytest.MonkeyPatch.context() as patch:
        kept_in((own.parent if "PYTEST_XDIST_WORKER" in os.environ else own) / "back-end", patch)
        yield


@pytest.fixture(scope="session", autouse=True)
def no_unloading() -> None:
    """Without a GPU a kernel that a test loaded into a fake driver may be collected when the driver is gone."""
    if not torch.cuda.is_available() and hasattr(CompiledKernel, "__del__"):  # Triton 3.8 and later
        CompiledKernel.__del__ = lambda self: None


@pytest.fixture
def fresh_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty TRITON_CACHE_DIR, for tests that replace the compiler or look at the cache."""
    folder = tmp_path / "triton-cache"
    monkeypatch.setenv("TRITON_CACHE_DIR", str(folder))
    return folder


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update", action="store_true", help="write expected outputs anew; read the diff")
    parser.addoption("--slow", action="store_true", help="also run the tests that are marked slow")


def pytest_configure() -> None:
    """One of several processes takes one core, and so do the programs that it starts. Nothing is garbage yet."""
    gc.disable()
    if "PYTEST_XDIST_WORKER" in os.environ:
        torch.set_num_threads(1)
        os.environ.setdefault("OMP_NUM_THREADS", "1")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    reason = _no_gpu_reason()
    for item in items:
        gpu = item.get_closest_marker("gpu") is not None
        if gpu and reason is not None:
            item.add_marker(pytest.mark.skip(reason=reason))
        elif not gpu and item.get_closest_marker("slow") is not None and not config.getoption("--slow"):
            item.add_marker(pytest.mark.skip(reason="slow; pytest --slow runs it"))


def pytest_collection_finish() -> None:
    """What is there when the tests begin stays to the end: looking for garbage in it took a tenth of their time. What
    they keep (modules, caches) hardly ever becomes garbage: looking through all of it each time took another sixth.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(2_000, 20, 200)
    gc.enable()


@pytest.fixture
def update(request: pytest.FixtureRequest) -> bool:
    """Whether to rewrite expected outputs."""
    return bool(request.config.getoption("--update"))


def _wspec_variables() -> list[str]:
    from wspec.options import env_name, table

    return [env_name(option) for option in table()]


def _no_gpu_reason() -> str | None:
    if not torch.cuda.is_available():
        return "needs a GPU"
    major, minor = torch.cuda.get_device_capability()
    return None if (major, minor) == (9, 0) else f"needs a Hopper GPU (sm_90), this one is sm_{major}{minor}"

"""Tests compile into caches of their own, and GPU tests are skipped, with the reason, where there is no GPU."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch


@pytest.fixture(scope="session", autouse=True)
def session_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """TRITON_CACHE_DIR in a folder of this session: no test is served what the user compiled. WSPEC_* variables go."""
    folder = tmp_path_factory.mktemp("triton-cache")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRITON_CACHE_DIR", str(folder))
        patch.delenv("TRITON_INTERPRET", raising=False)
        for name in _wspec_variables():
            patch.delenv(name, raising=False)
        yield folder


@pytest.fixture
def fresh_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty TRITON_CACHE_DIR, for tests that replace the compiler or look at the cache."""
    folder = tmp_path / "triton-cache"
    monkeypatch.setenv("TRITON_CACHE_DIR", str(folder))
    return folder


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    reason = _no_gpu_reason()
    if reason is not None:
        for item in items:
            if item.get_closest_marker("gpu") is not None:
                item.add_marker(pytest.mark.skip(reason=reason))


def _wspec_variables() -> list[str]:
    from wspec.options import env_name, table

    return [env_name(option) for option in table()]


def _no_gpu_reason() -> str | None:
    if not torch.cuda.is_available():
        return "needs a GPU"
    major, minor = torch.cuda.get_device_capability()
    return None if (major, minor) == (9, 0) else f"needs a Hopper GPU (sm_90), this one is sm_{major}{minor}"

"""Digests of Triton and of our sources, and what is done while they are made."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from triton.runtime import cache as triton_cache

from tests.bridge.sample_kernels import gemm_source
from wspec import api, bridge
from wspec.bridge import backend, cache, digest, obtaining
from wspec.bridge import compile as compiling
from wspec.options import Options


def test_it_is_tritons_key_to_the_letter() -> None:
    assert digest.triton_key() == triton_cache.triton_key()


def test_ahead_of_a_key() -> None:
    digest.hash_library_ahead()
    digest.triton_key()
    assert digest.is_library_hashed()


@pytest.mark.parametrize("hashed", [True, False])
def test_the_first_steps_are_made_once(hashed: bool, monkeypatch: pytest.MonkeyPatch, fresh_cache: Path) -> None:
    """Before the key or after it; where the kernel is in the cache, none is."""
    lowered: list[str] = []

    def lower(source: bridge.KernelSource) -> tuple[str, str]:
        lowered.append(source.name)
        return bridge.lower(source)

    monkeypatch.setattr(compiling, "lower", lower)
    for module in (obtaining, compiling):
        monkeypatch.setattr(module, "is_library_hashed", lambda: hashed)
    compiler = api._Compiler(Options(gate="off"))
    first, _ = compiler.obtain(gemm_source())
    assert len(lowered) == 1
    again, _ = compiler.obtain(gemm_source())
    assert first == again and len(lowered) == 1


@pytest.mark.parametrize("hashed", [True, False])
def test_a_kernel_that_is_new_does_not_wait_for_its_key(
    hashed: bool, monkeypatch: pytest.MonkeyPatch, fresh_cache: Path
) -> None:
    """It is needed when there is something to store, unless it is there before."""
    steps: list[str] = []

    def noting(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def noted(*args: Any, **kwargs: Any) -> Any:
            steps.append(name)
            return function(*args, **kwargs)

        return noted

    monkeypatch.setattr(compiling, "finish", noting("finish", backend.finish))
    monkeypatch.setattr(cache, "key", noting("key", cache.key))
    monkeypatch.setattr(cache, "_shared", {})
    for module in (obtaining, compiling):
        monkeypatch.setattr(module, "is_library_hashed", lambda: hashed)
    compiler = api._Compiler(Options(gate="off"))
    made, _ = compiler.obtain(gemm_source())
    assert made.specialized and steps == (["key", "finish"] if hashed else ["finish", "key"])
    steps.clear()
    assert compiler.obtain(gemm_source())[0] == made and steps == ["key"]

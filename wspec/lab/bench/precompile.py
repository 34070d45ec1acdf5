"""Compiling many kernel variants at once, in processes of their own, into the cache on disk.

Compiling is mostly Python and LLVM under one lock, so threads do not help; it needs no GPU, so processes can do it
without touching the card. The launch that follows in this process finds every kernel in the cache.
"""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from typing import Any, Protocol


class HasArguments(Protocol):
    """What a launch is made of: see `wspec.kernels.attention.Launch`."""

    @property
    def args(self) -> tuple[Any, ...]: ...

    @property
    def meta(self) -> dict[str, Any]: ...


Make = Callable[[], tuple[Any, HasArguments]]
"""Makes a kernel and a launch of it, on CPU tensors of any size, in another process: a `functools.partial` of a
module's function, so that it can be pickled. The launch must specialize as the real one does."""


def compile_one(make: Make) -> str | None:
    """Compile for sm_90 into the cache; None, or what went wrong."""
    from wspec.bridge import from_arguments
    from wspec.bridge.launch import compile_plain

    try:
        kernel, launch = make()
        if hasattr(kernel, "outcome"):
            _ = kernel.outcome(*launch.args, **launch.meta).kernel
        else:
            compile_plain(from_arguments(kernel, launch.args, launch.meta))
    except Exception as error:  # whatever it is, the other kernels still want compiling
        return f"{type(error).__name__}: {error}"
    return None


def precompile(makes: Sequence[Make], jobs: int | None = None) -> list[str | None]:
    """`compile_one` of each, `jobs` at a time (as many as there are cores if None), in order."""
    if not makes:
        return []
    with pool(min(len(makes), jobs or os.cpu_count() or 1)) as workers:
        return list(workers.map(compile_one, makes))


def pool(jobs: int | None = None) -> ProcessPoolExecutor:
    """Processes that do not see the GPU; as many as there are cores if None."""
    context = multiprocessing.get_context("spawn")
    return ProcessPoolExecutor(jobs or os.cpu_count() or 1, mp_context=context, initializer=_hide_the_gpu)


def _hide_the_gpu() -> None:
    """A compiling process needs no CUDA context; without a GPU the target is sm_90."""
    os.environ["CUDA_VISIBLE_DEVICES"] = ""

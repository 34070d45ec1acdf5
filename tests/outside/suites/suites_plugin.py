"""A plugin of pytest for other libraries' tests: what their comparisons saw, and what became of kernels, in a file.

Of each test function at most SUITES_EACH cases run, those on 16 bits first. Of an autotuner's configurations one is
launched. What a test compares is written down: a hash, and numbers at places that hang on the size alone. Stands
alone, so that it can be loaded where the library has a package `tests` of its own.
"""

from __future__ import annotations

import functools
import hashlib
import importlib
import os
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
import torch

PLACES = 4096
SMALL = ("float16", "dtype", "cu_seqlens")  # in names of cases on 16 bits, which Liger calls dtype1 and so on
COMPARED = {"fla": ("fla.utils", "assert_close"), "liger_kernel": ("test.utils", "assert_verbose_allclose")}
"""By library, its own function that compares."""

outcomes: dict[str, str] = {}
seen: dict[str, list[tuple[str, torch.Tensor]]] = defaultdict(list)


def pytest_configure(config: pytest.Config) -> None:
    import triton

    if os.environ.get("SUITES_PRETEND"):
        sys.path.insert(0, os.environ["SUITES_PRETEND"])
        importlib.import_module("fakegpu").install()
        triton.runtime.jit.JITFunction.run = lambda *args, **kwargs: None
    if os.environ.get("WSPEC") == "1" and "wspec" not in sys.modules:  # not installed by pip, but on the path
        importlib.import_module("wspec.startup").wait()
    pruned = triton.runtime.Autotuner.prune_configs
    triton.runtime.Autotuner.prune_configs = lambda self, kwargs: pruned(self, kwargs)[:1]
    torch.allclose = watched(torch.allclose)
    torch.testing.assert_close = watched(torch.testing.assert_close)
    module, name = COMPARED[os.environ["SUITES_LIBRARY"]]
    home = importlib.import_module(module)
    setattr(home, name, watched(getattr(home, name)))


def watched(compare: Callable[..., Any]) -> Callable[..., Any]:
    """The same function; tensors that it is called with are noted."""

    @functools.wraps(compare)
    def noted(*args: Any, **kwargs: Any) -> Any:
        test = os.environ.get("PYTEST_CURRENT_TEST", "").rpartition(" (")[0]
        for value in (*args, *kwargs.values()):
            if isinstance(value, torch.Tensor):
                seen[test].append(mark(value))
        return compare(*args, **kwargs)

    return noted


def mark(tensor: torch.Tensor) -> tuple[str, torch.Tensor]:
    """A hash of all bits, and some numbers."""
    flat = tensor.detach().reshape(-1).cpu()
    bits = flat.contiguous().view(torch.uint8).numpy().tobytes()
    places = torch.linspace(0, max(flat.numel() - 1, 0), min(PLACES, flat.numel()), dtype=torch.float64).long()
    return hashlib.sha256(bits).hexdigest(), flat[places].float()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    each = int(os.environ.get("SUITES_EACH", "2"))
    groups: dict[str, list[pytest.Item]] = defaultdict(list)
    for item in items:
        groups[item.nodeid.partition("[")[0]].append(item)
    kept = {item for group in groups.values() for item in chosen(group, each)}
    config.hook.pytest_deselected(items=[item for item in items if item not in kept])
    items[:] = [item for item in items if item in kept]


def chosen(group: Sequence[pytest.Item], each: int) -> list[pytest.Item]:
    """On 16 bits if there are such; the first, and the others at equal distances."""
    usable = [item for item in group if any(word in item.nodeid for word in SMALL)] or list(group)
    return usable[:: max(1, -(-len(usable) // each))][:each]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[Any]:
    report = yield
    if report.when == "call" or report.outcome != "passed":
        why = str(call.excinfo.value).strip().splitlines()[:1] if call.excinfo and report.outcome == "failed" else []
        outcomes[item.nodeid] = " ".join([report.outcome, *(line[:200] for line in why)])
        save()
    return report


def save() -> None:
    """After each test, so that a process that is cut off has said what it knows."""
    kernels = []
    if os.environ.get("WSPEC") == "1":
        report = importlib.import_module("wspec").report()
        kernels = [
            {"kernel": one.kernel, "specialized": one.specialized, "reason": one.reason} for one in report.entries
        ]
    path = os.environ["SUITES_OUT"]
    torch.save({"outcomes": outcomes, "seen": dict(seen), "kernels": kernels}, f"{path}.new")
    os.replace(f"{path}.new", path)

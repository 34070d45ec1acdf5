"""The PTX of every variant that wspec specializes: as LLVM writes it, and edited."""

from __future__ import annotations

import functools
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass

from tests.support.goldens import ROOT
from tests.support.shipped import offline
from wspec import bridge
from wspec.bridge.backend import emit


@dataclass(frozen=True, slots=True)
class Pair:
    """Of a variant."""

    final: str  # TTGIR, in generic form
    emitted: str
    edited: str
    constant: int | None  # the argument that points to what no kernel writes


def variants() -> Iterator[tuple[str, str]]:
    """(FILE.py:KERNEL, variant) of all in the folder of kernels."""
    for path in sorted((ROOT / "kernels").glob("*.toml")):
        for kernel, known in tomllib.loads(path.read_text()).items():
            yield from ((f"{path.stem}.py:{kernel}", name) for name, one in known.items() if isinstance(one, dict))


@functools.cache
def pair(kernel: str, variant: str) -> Pair | None:
    """None where the kernel is left alone."""
    one = offline(kernel, variant)
    verdict = one.compiler.judge(bridge.lower(one.source)[1])
    if verdict.text is None:
        return None
    made = emit(verdict.text, one.source)
    return Pair(made.generic(), made.ptx, verdict.edits.apply(made.ptx), verdict.edits.constant)

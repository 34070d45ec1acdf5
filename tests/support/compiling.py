"""A kernel through the compiler, as far as a test asks, without a GPU."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.support.proved import assert_proved
from tests.support.verified import specialize
from wspec import bridge
from wspec.diagnostics import Remark
from wspec.ir import print_module, read
from wspec.ir.core import Operation
from wspec.ir.loc import FileLoc, file_loc
from wspec.options import Options
from wspec.pipeline import Outcome
from wspec.plan.plan import Plan


@dataclass(frozen=True, eq=False)
class Case:
    """A kernel, what it is compiled for, and what is to become of it. Types are those of `bridge.from_signature`."""

    name: str
    fn: Any
    types: Mapping[str, str]
    values: Mapping[str, Any]
    options: Mapping[str, Any] = field(default_factory=dict)
    code: str = "specialized"
    at: str = ""  # the mark in the kernel's source of the line that a remark must point at
    replicas: int = 2  # consumer warp groups
    notes: frozenset[str] = frozenset()  # what ptxas may say of the tensor core instructions

    def __str__(self) -> str:
        return self.name


@functools.cache
def source(case: Case) -> bridge.KernelSource:
    return bridge.from_signature(case.fn, case.types, {"num_warps": 8, **case.values})


@functools.cache
def lowered(case: Case) -> str:
    """TTGIR before pipelining."""
    return bridge.ttgir(source(case))


def plain_module(case: Case) -> Operation:
    """A fresh module of `lowered`."""
    return read(lowered(case))


def outcome(case: Case, plan: Plan | None = None, keep_stages: bool = False, **options: Any) -> Outcome:
    """What the compiler makes of the case, with `options` over its own. What it emits is proved."""
    asked = Options(**{"persistent": False, **case.options, **options})
    made = specialize(plain_module(case), asked, plan=plan, keep_stages=keep_stages)
    if made.module is not None:
        assert_proved(made.module)
    return made


def binary(case: Case, made: Outcome) -> bridge.Resources:
    """The cubin of a specialized kernel, as numbers."""
    assert made.module is not None
    done = bridge.finish(print_module(made.module), source(case))
    shared, warps = done.metadata["shared"], done.metadata["num_warps"]
    return bridge.resources(done.cubin, done.ptxas_log, shared_bytes=shared, warps=warps)


def expected_place(case: Case) -> tuple[str, int]:
    """(file, line) of the case's mark."""
    function = case.fn.fn
    lines, first = inspect.getsourcelines(function)
    marks = [first + index for index, line in enumerate(lines) if line.rstrip().endswith(f"# at: {case.at}")]
    assert len(marks) == 1, f"{case.name}: no line, or several, marked 'at: {case.at}'"
    return inspect.getsourcefile(function) or "", marks[0]


def place(remark: Remark) -> tuple[str, int]:
    """(file, line) a remark points at."""
    found = file_loc(remark.location)
    assert isinstance(found, FileLoc), f"a remark without a place: {remark}"
    return found.file, found.line

"""A case through Triton's front end and the compiler, without a GPU."""

from __future__ import annotations

import importlib.util
import tempfile
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from tests.fuzz.case import Case
from tests.fuzz.printer import argument, sizes, source
from tests.fuzz.program import Buffer, Extent
from tests.support.verified import specialize
from wspec import bridge
from wspec.ir import read
from wspec.ir.core import Operation
from wspec.options import Options
from wspec.pipeline import Outcome


@dataclass(frozen=True)
class Compiling:
    """One case on its way. The kernel's source is written to a file, where Triton's front end reads it."""

    case: Case
    folder: Path

    @cached_property
    def text(self) -> str:
        """The kernel's source."""
        return source(self.case.program)

    @cached_property
    def path(self) -> Path:
        path = self.folder / f"fuzz_{self.case.digest()}.py"
        path.write_text(self.text)
        return path

    @cached_property
    def kernel(self) -> Any:
        """The JITFunction."""
        spec = importlib.util.spec_from_file_location(self.path.stem, self.path)
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module.kernel

    @cached_property
    def source(self) -> bridge.KernelSource:
        launch = {"num_warps": self.case.warps, "num_stages": self.case.stages}
        return bridge.from_signature(self.kernel, signature(self.case), launch)

    @cached_property
    def ttgir(self) -> str:
        return bridge.ttgir(self.source)

    def plain(self) -> Operation:
        """A fresh module of the TTGIR before pipelining."""
        return read(self.ttgir)

    def specialized(self) -> Outcome:
        return specialize(self.plain(), Options(**self.case.options))


def signature(case: Case) -> dict[str, str]:
    """The type of every parameter, with what is known of its divisibility."""
    found = {argument(buffer): _type(buffer) for buffer in case.program.buffers}
    for buffer in case.program.buffers:
        if buffer.access == "device":
            found |= {name: _integer(dim) for name, dim in zip(sizes(buffer), buffer.dims, strict=True)}
    for scalar in case.program.scalars:
        found[scalar.name] = _integer(scalar.extent) if scalar.dtype == "i32" else scalar.dtype
    return found


def _type(buffer: Buffer) -> str:
    if buffer.access == "host":
        return f"tensordesc<{buffer.dtype}[{', '.join(map(str, buffer.box))}]>"
    return f"*{buffer.dtype}:16"


def _integer(extent: Extent) -> str:
    return "i32:16" if extent.divisible(16) else "i32"


def in_temporary_folder(case: Case) -> tuple[Compiling, tempfile.TemporaryDirectory[str]]:
    """A case to be compiled in a folder that goes with the second value."""
    folder = tempfile.TemporaryDirectory(prefix="wspec-fuzz-")
    return Compiling(case, Path(folder.name)), folder

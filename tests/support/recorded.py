"""Recordings without a GPU: the executor runs the instrumented kernel. Its clocks stand still; `timed` moves them."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

import torch

from tests.support.goldens import ROOT
from tests.support.verified import specialize
from wspec import api, bridge
from wspec.cli.run_inputs import example_maker
from wspec.execute import Kernel, Random
from wspec.ir import print_module, read
from wspec.lab.persistent_launch import even_launch
from wspec.lab.trace import Recording
from wspec.lab.trace.instrument import HEAD, TRACE, Instrumented, instrument
from wspec.lab.trace.recording import empty_table
from wspec.options import Options
from wspec.pipeline import Outcome
from wspec.specs.kernel_file import load_kernel
from wspec.specs.variants import spec_path, variant_signature

SIZES = {"seqlen_q": 200, "seqlen_k": 330}


@dataclass(frozen=True, eq=False)
class Subject:
    """A variant of the attention kernel, compiled."""

    variant: str
    persistent: bool | None = None
    epilogue_overlap: bool | None = None

    @functools.cached_property
    def source(self) -> bridge.KernelSource:
        kernel, signature = self._what()
        return api.offline(kernel.function, signature.types, signature.values, **signature.options).source

    @functools.cached_property
    def outcome(self) -> Outcome:
        return specialize(
            read(bridge.ttgir(self.source)),
            Options(gate="off", persistent=self.persistent, epilogue_overlap=self.epilogue_overlap),
        )

    def _what(self) -> tuple[Any, Any]:
        kernel = load_kernel(f"{ROOT}/kernels/attention.py:attention_fwd")
        return kernel, variant_signature(spec_path(kernel.file), kernel.name, self.variant, vars(kernel.module))

    def instrumented(self, detail: str = "all", blocks: int = 8, rows: int = 256) -> Instrumented:
        """A fresh module with stamps."""
        module, plan = self.outcome.module, self.outcome.plan
        assert module is not None and plan is not None
        return instrument(module.clone({}), plan, blocks, rows, detail)

    def run(self, made: Instrumented | None, blocks: int = 3) -> tuple[list[torch.Tensor], Recording | None]:
        """The outputs of a launch of so many blocks, of the instrumented kernel or of the kernel itself."""
        kernel, signature = self._what()
        module = self.outcome.module if made is None else made.module
        assert module is not None
        ready = Kernel(read(print_module(module)))
        trial = example_maker(signature, kernel, SIZES, outputs=False)(5)
        arguments, grid = dict(trial.arguments), trial.grid
        grid, hidden = even_launch([one.name for one in ready.parameters], trial.grid, blocks)
        arguments |= {name: torch.from_numpy(numbers) for name, numbers in hidden.items()}
        table = None if made is None else torch.from_numpy(empty_table(made.layout))
        if table is not None:
            arguments[TRACE] = table
        ready.run(grid, arguments, schedule=Random(1))
        launched = grid[0] * (grid[1] if len(grid) > 1 else 1) * (grid[2] if len(grid) > 2 else 1)
        found = None if table is None or made is None else Recording(made, table.numpy(), launched)
        return [arguments["o_desc"], arguments["lse_ptr"]], found


def timed(recording: Recording, cycles: int = 100, begin: int = 2**32 - 250) -> Recording:
    """The same history on clocks that run: every event lasts that long, and the low half of the clock overflows."""
    table = recording.table.copy()
    for column in range(recording.blocks * recording.made.layout.tasks):
        used = int((table[HEAD:, column] != 0).sum())
        clock = [(begin + cycles * step) % 2**32 for step in range(used + 2)]
        table[2, column] += clock[0]
        table[HEAD : HEAD + used, column] += clock[1 : used + 1]
        table[4, column] += clock[used + 1]
        table[1, column], table[3, column] = 5000, 5000 + cycles * (used + 1)  # a GHz
    return Recording(recording.made, table, recording.launched)

"""A kernel that is launched as usual and writes down what its warp groups do."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch

from wspec import api, bridge, ir
from wspec.diagnostics import Remark, WspecError
from wspec.lab.trace.hidden_arguments import Appended, load_appended
from wspec.lab.trace.instrument import DETAILS, TRACE, Instrumented, instrument
from wspec.lab.trace.recording import Recording, empty_table
from wspec.plan.plan import Plan
from wspec.proof import prove


class Tracer:
    """`tracer.kernel[grid](...)` launches the instrumented kernel, `tracer.recording()` is what the last launch wrote.

    `kernel` is a Triton kernel, plain or under `wspec.compile`; `options` are those of `wspec.compile`. `detail` is one
    of "tiles", "loops" and "all" (wspec/lab/trace/instrument.py); of each of the first `blocks` blocks, every task
    has room for `rows` events, 8 bytes each. One specialization at a time: a launch with other types begins anew.
    """

    def __init__(
        self,
        kernel: Any,
        *,
        detail: str = "all",
        blocks: int = 512,
        rows: int = 4096,
        plan: Plan | None = None,
        **options: Any,
    ) -> None:
        bridge.require_jit(kernel)
        if detail not in DETAILS:
            raise WspecError(
                Remark("bad-input", f"detail: {detail!r} is none of {', '.join(DETAILS)}", severity="error")
            )
        fn = bridge.innermost(kernel)
        plain = fn.plain if isinstance(fn, bridge.WspecFunction) else fn
        self.compiler = api.compiler_of(fn, options, plan)
        self.detail, self.blocks, self.rows = detail, blocks, rows
        self.made: Instrumented | None = None
        self.launched = 0  # blocks of the last launch
        self._table: torch.Tensor | None = None
        self._binary = bridge.Result(False, ())
        mark = f"{self.compiler.plan_text}\ninstrumented: {detail} {blocks} {rows}"
        self.kernel = bridge.WspecFunction(plain, self.compiler.options, mark, self.obtain, self._load)

    @property
    def ptxas_log(self) -> str:
        """What ptxas said of the instrumented kernel."""
        return self._binary.ptxas_log

    def obtain(self, source: bridge.KernelSource) -> tuple[bridge.Result, bridge.Group]:
        """Compile. Raises WspecError for a kernel that is not specialized, with the reason."""
        options = self.compiler.here.replace(gate="off")  # the stamps may cost a few spills
        self.made = None
        result, group = bridge.obtain(source, options, self._judge, prove, self.kernel.wspec_plan)
        if not result.specialized:
            reason = result.reason or Remark("bad-input", "the kernel is left as it was")
            raise WspecError(replace(reason, severity="error"))
        if self.made is None:  # the binary came from the cache
            self._judge(bridge.lower(source)[1])
        self._table, self._binary = None, result
        return result, group

    def _judge(self, text: str) -> bridge.Verdict:
        verdict = self.compiler.judge(text)
        if verdict.text is None:
            return verdict
        plan = Plan.from_text(verdict.plan)
        self.made = instrument(ir.read(verdict.text), plan, self.blocks, self.rows, self.detail)
        return replace(verdict, text=ir.print_module(self.made.module))

    def _load(self, source: bridge.KernelSource, result: bridge.Result, group: bridge.Group) -> Any:
        return load_appended(source, result, group, Appended(TRACE, "*i64", self._address))

    def _address(self, blocks: int) -> int:
        """Of the table; launches that follow each other write over it."""
        assert self.made is not None
        self.launched = blocks
        if self._table is None:
            self._table = torch.from_numpy(empty_table(self.made.layout)).cuda()
        return self._table.data_ptr()

    def clear(self) -> None:
        """Forget what launches wrote; without it a shorter launch leaves the end of a longer one."""
        if self._table is not None:
            self._table[1:].zero_()

    def recording(self) -> Recording:
        """What the last launch wrote. Waits for it. Raises ValueError before the first."""
        if self.made is None or self._table is None:
            raise ValueError("nothing was launched")
        torch.cuda.synchronize()
        return Recording(self.made, self._table.cpu().numpy(), self.launched)

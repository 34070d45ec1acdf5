"""A kernel that is not divided into tasks, but loads its tiles through descriptors in the place of pointers.

The rewrite is made in Triton IR, before layouts are chosen, and Triton's own pipeline does the rest: it gives tiles of
descriptors their layouts and pipelines their loads, as it does where an author has written them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Protocol

from wspec.bridge.backend import Finished, finish_as_triton
from wspec.bridge.cache import Result
from wspec.bridge.frontend import KernelSource
from wspec.bridge.plain import PlainSpills
from wspec.bridge.sass.ptxas_log import spill_bytes
from wspec.bridge.text import generic_text, reparse
from wspec.diagnostics import Remark
from wspec.host_descriptors import Promotion, compared
from wspec.ir.disjoint import Disjoint
from wspec.ir.loc import Location
from wspec.options import Options
from wspec.target.hopper import BLOCK_SHARED_BYTES


class Rewritten(Protocol):
    """TTIR with descriptors, and what a launch must make and look at for them."""

    @property
    def text(self) -> str | None: ...
    @property
    def remarks(self) -> tuple[Remark, ...]: ...
    @property
    def disjoint(self) -> Disjoint: ...
    @property
    def promotion(self) -> Promotion | None: ...


Undivided = Callable[[Callable[[], str], str], Rewritten | None]
"""What gives a kernel's TTIR, and its TTGIR, in generic form, to TTIR with descriptors; None: nothing is changed."""


def with_descriptors_alone(
    source: KernelSource,
    ttir: str,
    text: str,
    compiler: Any,
    options: Options,
    result: Result,
    place: Location,
) -> tuple[Result, Finished | None]:
    """What a kernel that is left alone becomes: the same result, or one that runs with descriptors.

    `compiler` may have a method `undivided`. Never raises: what Triton does not compile so stays as it was,
    and a remark at `place` says so.
    """
    ask: Undivided | None = getattr(compiler, "undivided", None)
    if ask is None or not ttir:
        return result, None
    try:
        rewritten = ask(lambda: generic_text(reparse(ttir)), text)
        if rewritten is None or rewritten.text is None:
            return result, None
        finished = finish_as_triton(rewritten.text, source)
    except Exception as error:  # of ours or of Triton's: the plain kernel runs, as it would have
        first = (str(error).strip().splitlines() or [""])[0]
        said = (
            f"{source.name} keeps its pointers: with descriptors it does not compile: {type(error).__name__}: {first}"
        )
        return replace(result, remarks=(*result.remarks, Remark("not-promoted", said, place))), None
    asked = options.promote is True
    spilled = spill_bytes(finished.ptxas_log)
    too_big = finished.metadata["shared"] > BLOCK_SHARED_BYTES
    if too_big or (spilled and not asked and spilled > PlainSpills(source, ttir).bytes):
        return result, None
    made = replace(
        result, remarks=(*rewritten.remarks, *result.remarks), ptxas_log=finished.ptxas_log,
        disjoint=compared(rewritten.disjoint, rewritten.promotion), promotion=rewritten.promotion,
    )  # fmt: skip
    return made, finished

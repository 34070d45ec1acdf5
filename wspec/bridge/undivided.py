"""A kernel that is not divided into tasks, but loads its tiles through descriptors in the place of pointers.

The rewrite is made in Triton IR, before layouts are chosen, and Triton's own pipeline does the rest: it gives tiles of
descriptors their layouts and pipelines their loads, as it does where an author has written them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Protocol

from wspec.bridge.backend import Finished, assemble
from wspec.bridge.cache import Result
from wspec.bridge.frontend import KernelSource, capability
from wspec.bridge.plain import PlainSpills
from wspec.bridge.sass.resources import spill_bytes
from wspec.bridge.text import captured, generic_text, reparse
from wspec.diagnostics import Remark
from wspec.host_descriptors import Promotion, compared
from wspec.ir.disjoint import Disjoint
from wspec.ir.loc import Location
from wspec.options import Options
from wspec.ptx.validation.validate import Validation
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
        finished = finish_undivided(rewritten.text, source)
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


def finish_undivided(text: str, source: KernelSource) -> Finished:
    """Compile TTIR to a cubin as Triton does. Raises BridgeError."""
    backend, options, arch = source.backend, source.options, capability(source)
    module = reparse(text)
    module = captured("make_ttgir failed", lambda: backend.make_ttgir(module, {}, options, arch))
    metadata: dict[str, Any] = {"tensordesc_meta": module.get_tensordesc_metadata()}
    final = str(module.str())
    llir = captured("make_llir failed", lambda: backend.make_llir(module, metadata, options, arch))
    ptx = captured("make_ptx failed", lambda: backend.make_ptx(llir, metadata, options, source.target.arch))
    cubin, log = assemble(ptx, source)
    return Finished(final, llir, ptx, cubin, metadata, log, Validation("as Triton wrote it"))

"""From specialized TTGIR to a cubin, through Triton's own back end."""

from __future__ import annotations

import functools
import os
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from triton import knobs

from wspec.bridge.collector import collect_if_due
from wspec.bridge.frontend import KernelSource, capability
from wspec.bridge.ptx.edits import NO_EDITS, PtxEdits
from wspec.bridge.ptx.shown import shown
from wspec.bridge.sass.beside_ptx import Expected, keeps_order
from wspec.bridge.sass.kept_operands import Products, products_of
from wspec.bridge.sass.ptxas_log import spill_bytes
from wspec.bridge.sass.rows_in_turn import rows_in_turn
from wspec.bridge.text import BridgeError, captured, generic_text, reparse, run_passes, verify
from wspec.bridge.versions import INSTALLED
from wspec.bridge.versions.internals import internal
from wspec.ptx.parser import read
from wspec.ptx.syntax import Module
from wspec.ptx.validation.validate import Validation

get_ptxas = internal("triton.backends.nvidia.compiler", "get_ptxas")
sm_arch_from_capability = internal("triton.backends.nvidia.compiler", "sm_arch_from_capability")


@dataclass(frozen=True, slots=True)
class Finished:
    """A compiled kernel, not yet loaded: the text of each stage, the launcher's metadata, what ptxas said."""

    final: str  # TTGIR after the finishing passes, in Triton's own syntax
    llir: str
    ptx: str
    cubin: bytes
    metadata: dict[str, Any]
    ptxas_log: str
    validation: Validation  # of the PTX
    products: Products = ()  # of the PTX: whose operands are looked for in the binary


Text = Callable[[], str]
"""A module in generic form; libtriton prints it when it is asked for first."""


def finish(
    text: str, source: KernelSource, edits: PtxEdits = NO_EDITS, told: Callable[[Text], None] | None = None
) -> Finished:
    """Compile specialized TTGIR (generic or pretty) of `source` to a cubin.

    `edits` are made before ptxas, and left out if it is not shown, beside it, that they may be. `told` is given the
    final module before LLVM begins: who checks it has until ptxas ends.
    Raises BridgeError with the diagnostics of libtriton or ptxas. An assertion inside libtriton ends the process;
    the text is parsed and verified first, which finds most of what would run into one.
    """
    made, read_once = emit(text, source, told), functools.cache(read)
    ptx = edits.apply(made.ptx, read_once)
    done = _assembled(made, ptx, edits.constant, source, read_once)
    if edits.interleave_rows and rows_in_turn(done.cubin):
        done = _interleaved(done, made, edits, source, read_once)
    if (refusal := done.validation.refusal) and ptx != made.ptx:
        bare = _assembled(made, made.ptx, None, source, read_once)
        if not bare.validation.refusal:
            said = f"{bare.validation.summary}; not edited, for it was not shown that it may be: {refusal}"
            done = replace(bare, validation=Validation(said))
    return done


def _interleaved(
    done: Finished, made: Emitted, edits: PtxEdits, source: KernelSource, read_once: Callable[[str], Module]
) -> Finished:
    """With rows beside each other, where ptxas then does so and spills no more than before."""
    ptx = edits.apply(made.ptx, read_once, in_turn=True)
    if ptx == done.ptx:
        return done
    other = _assembled(made, ptx, edits.constant, source, read_once)
    more = spill_bytes(other.ptxas_log) > spill_bytes(done.ptxas_log)
    return done if other.validation.refusal or more or rows_in_turn(other.cubin) else other


def _assembled(
    made: Emitted, ptx: str, constant: int | None, source: KernelSource, read_once: Callable[[str], Module]
) -> Finished:
    """What ptxas makes of a text, edited or not, and what is shown of it. All that needs the text alone is done beside
    ptxas, which leaves the interpreter free."""

    def look() -> tuple[Validation, Expected | None, Products]:
        said = shown(made.generic(), made.ptx, ptx, constant, read_once)
        module = None if said.refusal else read_once(ptx)
        return said, None if module is None else Expected.of(module), products_of(ptx, module)

    with ThreadPoolExecutor(1, "wspec-validation") as beside:
        looking = beside.submit(look)
        cubin, log = assemble(ptx, source)
    said, expected, products = looking.result()
    said = said if said.refusal else keeps_order(said, expected, cubin)
    return Finished(made.final, made.llir, ptx, cubin, made.metadata, log, said, products)


@dataclass(frozen=True, slots=True)
class Emitted:
    """A kernel down to the PTX that LLVM writes."""

    final: str  # as Finished has it
    generic: Text
    llir: str
    ptx: str
    metadata: dict[str, Any]


def emit(text: str, source: KernelSource, told: Callable[[Text], None] | None = None) -> Emitted:
    """`finish` up to ptxas, without edits."""
    module = _finishing(text, capability(source))
    final = str(module.str())
    generic = functools.cache(lambda: generic_text(reparse(final)))
    if told is not None:
        told(generic)
    return Emitted(final, generic, *_to_ptx(module, source))


def _to_ptx(module: Any, source: KernelSource) -> tuple[str, str, dict[str, Any]]:
    """LLVM IR, PTX and the launcher's metadata of a module in TTGIR, which is spent."""
    backend, options, arch = source.backend, source.options, capability(source)
    metadata: dict[str, Any] = {"tensordesc_meta": module.get_tensordesc_metadata()}
    llir = captured("make_llir failed", lambda: backend.make_llir(module, metadata, options, arch))
    ptx = captured("make_ptx failed", lambda: backend.make_ptx(llir, metadata, options, source.target.arch))
    return llir, ptx, metadata


def finish_as_triton(ttir: str, source: KernelSource) -> Finished:
    """Compile TTIR to a cubin as Triton does. Raises BridgeError."""
    module, arch = reparse(ttir), capability(source)
    module = captured("make_ttgir failed", lambda: source.backend.make_ttgir(module, {}, source.options, arch))
    final = str(module.str())
    llir, ptx, metadata = _to_ptx(module, source)
    cubin, log = assemble(ptx, source)
    return Finished(final, llir, ptx, cubin, metadata, log, Validation("as Triton wrote it"))


def final_ttgir(text: str, source: KernelSource) -> str:
    """Generic text of the module that `finish` gives to Triton's back end. Raises BridgeError."""
    return generic_text(_finishing(text, capability(source)))


def _finishing(text: str, arch: int) -> Any:
    module = reparse(text)
    verify(module)
    run_passes(module, partial(INSTALLED.add_finishing_passes, arch=arch), "wspec_finish")
    return module


def assemble(ptx: str, source: KernelSource) -> tuple[bytes, str]:
    """ptxas: (cubin, what `-v` prints).

    The flags are those of Triton's `make_cubin` (a test compares the binaries), which drops the log we read
    registers and spills from, and prints the whole PTX to stdout on an error.
    """
    with tempfile.TemporaryDirectory(prefix="wspec-") as folder:
        ptx_path, cubin_path = os.path.join(folder, "kernel.ptx"), os.path.join(folder, "kernel.cubin")
        with open(ptx_path, "w") as file:
            file.write(ptx)
        command = [get_ptxas(source.target.arch).path, *_ptxas_flags(source), ptx_path, "-o", cubin_path]
        code, log = _waited_for(command)
        if code != 0:
            raise BridgeError(f"ptxas failed with exit code {code}", log)
        with open(cubin_path, "rb") as cubin:
            return cubin.read(), log


def _waited_for(command: Sequence[str]) -> tuple[int, str]:
    """The exit code of a program, and what it says on stderr."""
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            collect_if_due()
            _, log = process.communicate()
        except BaseException:
            process.kill()
            raise
        return process.returncode, log


def _ptxas_flags(source: KernelSource) -> list[str]:
    options = source.options
    if knobs.compilation.disable_line_info:
        flags = ["-lineinfo", "-suppress-debug-info"]
    else:
        flags = ["-g"] if knobs.nvidia.disable_ptxas_opt else ["-lineinfo"]
    flags += [] if options.enable_fp_fusion else ["--fmad=false"]
    flags += ["-v"]
    flags += ["--opt-level", "0"] if knobs.nvidia.disable_ptxas_opt else []
    flags += INSTALLED.ptxas_flags
    flags += options.ptx_options.split(" ") if options.ptx_options else []
    return [*flags, f"--gpu-name={sm_arch_from_capability(source.target.arch)}"]

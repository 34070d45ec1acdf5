"""What a cubin uses: registers, spills, shared memory, and the instructions that tell a specialized kernel."""

from __future__ import annotations

import functools
import os
import re
import subprocess
import tempfile
from collections import Counter
from dataclasses import asdict, dataclass
from typing import Any

from triton import knobs

from wspec.bridge.backend import assemble, get_ptxas
from wspec.bridge.frontend import HOPPER, KernelSource
from wspec.bridge.sass.counts import Counts, counts_of
from wspec.bridge.sass.machine_code import read_sass
from wspec.bridge.sass.ptxas_log import FRAME, ptxas_notes

_REGISTERS = re.compile(r"Used (\d+) registers")
_RELEASE = re.compile(r"release (\S+), V(\S+)")
_PLACE = re.compile(r"^\t//## .*\n", re.MULTILINE)  # a source line in a disassembly


@dataclass(frozen=True, slots=True)
class Resources:
    """Per thread: registers at launch, spills, stack. Per block: shared memory, warps. Instructions: static counts."""

    registers: int
    spill_store_bytes: int
    spill_load_bytes: int
    stack_bytes: int
    shared_bytes: int
    warps: int
    hgmma: int
    usetmaxreg: tuple[int, ...]  # the register counts asked for, in program order
    bar: int  # named barriers: BAR.SYNC and BAR.ARV
    syncs: int  # mbarrier operations
    tma_loads: int
    tma_stores: int
    ptxas_version: str
    ptxas_notes: tuple[str, ...]  # e.g. C7510: ptxas serialized the asynchronous tensor core instructions

    @property
    def spill_bytes(self) -> int:
        return self.spill_store_bytes + self.spill_load_bytes

    def __str__(self) -> str:
        counts = f" to {'/'.join(map(str, sorted(set(self.usetmaxreg))))}" if self.usetmaxreg else ""
        notes = f", ptxas notes {' '.join(self.ptxas_notes)}" if self.ptxas_notes else ""
        return (
            f"{self.warps} warps, {self.registers} registers at launch, {self.spill_bytes} bytes spilled, "
            f"{self.shared_bytes} bytes shared; {self.hgmma} HGMMA, {len(self.usetmaxreg)} USETMAXREG{counts}, "
            f"{self.bar} BAR, {self.syncs} SYNCS, {self.tma_loads} TMA loads, {self.tma_stores} TMA stores; "
            f"ptxas {self.ptxas_version}{notes}"
        )


def resources(cubin: bytes, ptxas_log: str, *, shared_bytes: int, warps: int) -> Resources:
    """Read them from the binary and from what `ptxas -v` said. nvdisasm (about 0.3 s) is asked where the binary holds
    what is not known."""
    counts = counts_of(cubin) or _disassembled_counts(cubin)
    frame = FRAME.search(ptxas_log)
    stack, stores, loads = map(int, frame.groups()) if frame else (0, 0, 0)
    registers = _REGISTERS.search(ptxas_log)
    return Resources(
        registers=int(registers[1]) if registers else 0,
        spill_store_bytes=stores,
        spill_load_bytes=loads,
        stack_bytes=stack,
        shared_bytes=shared_bytes,
        warps=warps,
        ptxas_version=ptxas_version(),
        ptxas_notes=ptxas_notes(ptxas_log),
        **asdict(counts),
    )


def _disassembled_counts(cubin: bytes) -> Counts:
    found = instructions(sass(cubin))
    count = Counter(name.split(".")[0] for name, _ in found)
    return Counts(
        hgmma=count["HGMMA"] + count["IGMMA"] + count["QGMMA"],
        usetmaxreg=tuple(int(rest.split()[-1], 0) for name, rest in found if name.startswith("USETMAXREG")),
        bar=sum(name.startswith(("BAR.SYNC", "BAR.ARV")) for name, _ in found),
        syncs=count["SYNCS"],
        tma_loads=count["UTMALDG"],
        tma_stores=count["UTMASTG"] + count["UTMAREDG"],
    )


def kernel_resources(source: KernelSource, kernel: Any, ptxas_log: str) -> Resources:
    """Those of a CompiledKernel. A kernel compiled by Triton has no log; its PTX is then assembled again to get one."""
    log = ptxas_log or assemble(kernel.asm["ptx"], source)[1]
    return resources(kernel.asm["cubin"], log, shared_bytes=kernel.metadata.shared, warps=kernel.metadata.num_warps)


def stage_text(kernel: Any, stage: str) -> str:
    """The text of a stage of a CompiledKernel: ttgir, llir, ptx or sass."""
    return sass(kernel.asm["cubin"]) if stage == "sass" else str(kernel.asm[stage])


def sass(cubin: bytes, *, lines: bool = False) -> str:
    """The disassembly, with addresses and without encodings; on request with the source lines."""
    text = _disassembled(cubin)
    return text if lines else _PLACE.sub("", text)


@functools.lru_cache(maxsize=8)
def _disassembled(cubin: bytes) -> str:
    """With source lines. A kernel that is compiled is looked at several times; nvdisasm takes 0.3 to 0.6 s."""
    with tempfile.TemporaryDirectory(prefix="wspec-") as folder:
        path = os.path.join(folder, "kernel.cubin")
        with open(path, "wb") as file:
            file.write(cubin)
        command = [knobs.nvidia.nvdisasm.path, "-c", "-g", path]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def instructions(text: str) -> list[tuple[str, str]]:
    """(mnemonic, operands) of every instruction of a disassembly, in program order."""
    return [(one.name, one.operands) for code in read_sass(text) for one in code.instructions]


def ptxas_version() -> str:
    """The full version of the ptxas that Triton takes for Hopper, e.g. 12.8.93."""
    return _version_of(get_ptxas(HOPPER.arch).path)


@functools.lru_cache(maxsize=4)
def _version_of(path: str) -> str:
    text = subprocess.run([path, "--version"], capture_output=True, text=True, check=True).stdout
    match = _RELEASE.search(text)
    return match[2] if match else "unknown"

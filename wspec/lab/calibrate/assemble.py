"""PTX to cubin and back to text, with the tools in Triton's package."""

from __future__ import annotations

import hashlib
import re
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from triton import knobs

from wspec.bridge.sass.resources import sass
from wspec.lab.calibrate.ptx import Kernel, module

_SECTION = re.compile(r"^\s*\.section\s+\.text\.(\w+),", re.MULTILINE)
_OPCODE = re.compile(r"^\s*/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+\s+)?([A-Z][\w.]*)", re.MULTILINE)


class AssemblyError(Exception):
    """ptxas refused a kernel, or serialized its wgmma."""


def assemble(kernels: Sequence[Kernel], folder: Path) -> Path:
    """The cubin of one module, made once. Raises AssemblyError with what ptxas said."""
    text = module(kernels)
    path = folder / f"{hashlib.sha256(text.encode()).hexdigest()[:24]}.cubin"
    if path.exists():
        return path
    with tempfile.TemporaryDirectory(dir=folder) as own:  # others may assemble the same meanwhile
        source, made = Path(own, "kernels.ptx"), Path(own, "kernels.cubin")
        source.write_text(text)
        command = [knobs.nvidia.ptxas.path, "--gpu-name=sm_90a", "-v", str(source), "-o", str(made)]
        said = subprocess.run(command, capture_output=True, text=True)
        log = said.stdout + said.stderr
        if said.returncode != 0 or "C75" in log:
            names = ", ".join(kernel.name for kernel in kernels)
            raise AssemblyError(f"{names}: {log.strip() or f'ptxas ended with {said.returncode}'}")
        made.replace(path)
    return path


def opcodes(cubin: Path) -> dict[str, list[str]]:
    """The opcodes of every entry of a cubin, in program order."""
    parts = _SECTION.split(sass(cubin.read_bytes()))
    return {name: _OPCODE.findall(body) for name, body in zip(parts[1::2], parts[2::2], strict=True)}


def missing(kernel: Kernel, found: Sequence[str]) -> dict[str, int]:
    """Of `kernel.sass`, what the opcodes hold too few of, and how many they hold."""
    counts = {name: sum(opcode.startswith(tuple(name.split("|"))) for opcode in found) for name in kernel.sass}
    return {name: count for name, count in counts.items() if count < kernel.sass[name]}

"""Where the time of a first compilation goes: `python -m wspec.lab.bench.compile_time [FILE:KERNEL[@VARIANT] ...]`.

Each kernel is compiled `--rounds` times, each time in a fresh process with an empty cache, and every step is given with
its wall time and its CPU time (its own thread's and that of the programs it starts), the least of all rounds: other
work on the machine delays a process and makes its CPU time up to twice as long, never shorter. A step does not count
what another step inside it takes. "beside" says that it runs on a thread of its own while other steps do: what is
waited for of it stands in "all but imports", or in a step of its own, and its CPU time nowhere else. Imports are given
apart: a program makes them before it launches anything.

`--configurations` compiles the twenty configurations of a product instead, as an autotuner asks for them: one after the
other (`compile_jobs=0`), and by `--jobs` processes. The gate is off: what it declines costs little. No GPU is needed.
"""

from __future__ import annotations

import argparse
import functools
import importlib
import itertools
import json
import os
import resource
import subprocess
import sys
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from wspec.lab.bench.report import Table, console

ATTENTION = "kernels/attention.py:attention_fwd"
KERNELS = (f"{ATTENTION}@d128_causal", f"{ATTENTION}@d64_causal")
PRODUCT = "kernels/matmul.py:matmul_descriptor_kernel"
TILES = ((128, 128, 64), (128, 256, 64), (64, 128, 64), (64, 256, 64), (128, 64, 64))
OURS, TRITONS, BESIDE = "wspec", "Triton", "beside"
OWN_PART = "our part: all else that a launch waits for"


@dataclass(frozen=True, slots=True)
class Step:
    """A function whose time is a step's, by module and name inside it. Where a name is imported, it is named there."""

    name: str
    whose: str
    module: str
    function: str


STEPS = (
    Step("key of the cache: digest of Triton", OURS, "wspec.bridge.cache", "triton_key"),
    Step("digests of libtriton and our sources", BESIDE, "wspec.bridge.digest", "_hash_library"),
    Step("key of the cache: the rest", OURS, "wspec.bridge.cache", "_of_program"),
    Step("front end to TTGIR", OURS, "wspec.bridge.compile", "lower"),
    Step("read TTGIR", OURS, "wspec.ir", "read"),
    Step("plan", OURS, "wspec.pipeline", "decide"),
    Step("passes", OURS, "wspec.pipeline", "specialize"),
    Step("print TTGIR", OURS, "wspec.ir", "print_module"),
    Step("TTGIR into libtriton, finishing passes", OURS, "wspec.bridge.backend", "_finishing"),
    Step("final TTGIR for the checker", OURS, "wspec.bridge.backend", "reparse"),
    Step("to LLVM IR, optimized", TRITONS, "triton.backends.nvidia.compiler", "CUDABackend.make_llir"),
    Step("to PTX", TRITONS, "triton.backends.nvidia.compiler", "CUDABackend.make_ptx"),
    Step("edits of PTX", OURS, "wspec.bridge.ptx.edits", "PtxEdits.apply"),
    Step("ptxas", TRITONS, "wspec.bridge.backend", "assemble"),
    Step("nvdisasm", OURS, "wspec.bridge.sass.resources", "_disassembled"),
    Step("is every register assigned", OURS, "wspec.bridge.sass.miscompiled", "is_surely_right"),
    Step("proof", BESIDE, "wspec.api", "prove"),
    Step("files of the cache", OURS, "wspec.bridge.cache", "store"),
)


class Probe:
    """Times of steps: wall and CPU seconds of each, less what steps inside it took."""

    def __init__(self) -> None:
        self.seconds: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0])
        self._inside = threading.local()

    def around(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function, timed."""

        @functools.wraps(function)
        def timed(*args: Any, **kwargs: Any) -> Any:
            outer, self._inside.taken = getattr(self._inside, "taken", (0.0, 0.0)), (0.0, 0.0)
            start = _now()
            try:
                return function(*args, **kwargs)
            finally:
                took = tuple(after - before for after, before in zip(_now(), start, strict=True))
                for place, (all_of_it, inside) in enumerate(zip(took, self._inside.taken, strict=True)):
                    self.seconds[name][place] += all_of_it - inside
                self._inside.taken = outer[0] + took[0], outer[1] + took[1]

        return timed

    def put_around(self, steps: Sequence[Step]) -> None:
        """Replace the functions of the steps."""
        for step in steps:
            holder: Any = importlib.import_module(step.module)
            *path, name = step.function.split(".")
            for part in path:
                holder = getattr(holder, part)
            setattr(holder, name, self.around(step.name, getattr(holder, name)))


def _now() -> tuple[float, float]:
    """(wall, CPU of this thread and of the programs that have ended) in seconds."""
    programs = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.perf_counter(), time.thread_time() + programs.ru_utime + programs.ru_stime


# --------------------------------------------------------------------------------------------- in a fresh process


def child(kernel: str) -> dict[str, list[float]]:
    """Compile once; the seconds of each step, of the imports and of all."""
    start = time.perf_counter(), time.process_time()
    import torch  # noqa: F401
    import triton  # noqa: F401

    theirs = time.perf_counter(), time.process_time()
    import wspec.api  # noqa: F401

    ours = time.perf_counter(), time.process_time()
    offline = offline_of(kernel)
    importing, probe, whole = Probe(), Probe(), Probe()
    importing.around("import of pipeline and checker", _import_compiler)()
    probe.put_around(STEPS)
    whole.around("all", offline.outcome)()
    imports = {"import torch, triton": _less(theirs, start), "import wspec": _less(ours, theirs)}
    return {**imports, **importing.seconds, **probe.seconds, **whole.seconds}


def _import_compiler() -> None:
    from wspec.bridge.ahead import COMPILER

    for name in COMPILER:
        importlib.import_module(name)


def _less(after: tuple[float, float], before: tuple[float, float]) -> list[float]:
    return [after[0] - before[0], after[1] - before[1]]


def offline_of(kernel: str) -> Any:
    """The `wspec.Offline` of FILE:KERNEL@VARIANT."""
    from wspec import api
    from wspec.specs.kernel_file import load_kernel
    from wspec.specs.variants import spec_path, variant_signature

    name, _, variant = kernel.partition("@")
    found = load_kernel(name)
    signature = variant_signature(spec_path(found.file), found.name, variant or None, vars(found.module))
    return api.offline(found.function, signature.types, signature.values, **signature.options)


def configurations(jobs: int) -> dict[str, list[float]]:
    """Obtain twenty configurations of a product; how long that takes, all processes together."""
    from dataclasses import replace

    import wspec
    from wspec.kernels.matmul import plain_kernel

    made = []
    for (m, n, k), warps, stages in itertools.product(TILES, (4, 8), (3, 4)):
        blocks = {"BLOCK_M": m, "BLOCK_N": n, "BLOCK_K": k, "GROUP_M": 8, "B_TRANSPOSED": False}
        tiles = {"a_desc": (m, k), "b_desc": (k, n), "c_desc": (m, n)}
        signature = {name: f"tensordesc<bf16[{rows}, {columns}]>" for name, (rows, columns) in tiles.items()}
        sizes = dict.fromkeys("mnk", "i32:16")
        made.append(
            wspec.offline(
                plain_kernel("descriptor"), {**signature, **sizes}, blocks, num_warps=warps, num_stages=stages
            )
        )
    compiler = made[0].compiler
    compiler = replace(compiler, options=compiler.options.replace(compile_jobs=jobs, gate="off"))

    def obtain() -> None:
        distinct.append(compiler.compile_ahead([one.source for one in made]))
        for one in made:
            compiler.obtain(one.source)

    distinct: list[int] = []
    probe = Probe()
    probe.around("all", obtain)()
    return {**probe.seconds, "sent to other processes": [float(distinct[0])] * 2}


# ------------------------------------------------------------------------------------------------- on the screen


def _measured(arguments: Sequence[str], rounds: int) -> dict[str, list[float]]:
    """The least of some rounds, each in a process of its own with an empty cache."""
    found: list[dict[str, list[float]]] = []
    for _ in range(rounds):
        with tempfile.TemporaryDirectory(prefix="wspec-") as cache:
            environment = {**os.environ, "TRITON_CACHE_DIR": cache, "CUDA_VISIBLE_DEVICES": ""}
            command = [sys.executable, "-m", "wspec.lab.bench.compile_time", "--child", *arguments]
            done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
            found.append(json.loads(done.stdout.splitlines()[-1]))
            found[-1][OWN_PART] = _own_part(found[-1])
    return {name: [min(one[name][place] for one in found) for place in (0, 1)] for name in found[0]}


def _own_part(seconds: Mapping[str, Sequence[float]]) -> list[float]:
    """All of it less Triton's steps: of one round, as each round has a pace of its own."""
    theirs = [step.name for step in STEPS if step.whose == TRITONS and step.name in seconds]
    return [seconds["all"][place] - sum(seconds[name][place] for name in theirs) for place in (0, 1)]


def table_of(kernel: str, seconds: Mapping[str, Sequence[float]]) -> Table:
    """Steps, whose they are, wall and CPU milliseconds."""
    whose = {step.name: step.whose for step in STEPS}
    rows = [
        (name, whose.get(name, ""), *_ms(times)) for name, times in seconds.items() if name not in ("all", OWN_PART)
    ]
    order = [step.name for step in STEPS]
    rows.sort(key=lambda row: order.index(row[0]) if row[0] in order else -1)
    theirs = [sum(seconds[name][place] for name in seconds if whose.get(name) == TRITONS) for place in (0, 1)]
    ours = seconds.get(OWN_PART, _own_part(seconds))
    rows += [("all but imports", "", *_ms(seconds["all"])), ("Triton's part", "", *_ms(theirs))]
    rows += [(OWN_PART, "", *_ms(ours))]
    return Table(f"First compilation of {kernel}", ("step", "whose", "wall ms", "CPU ms"), tuple(rows))


def _ms(times: Sequence[float]) -> tuple[str, str]:
    return f"{times[0] * 1e3:.0f}", f"{times[1] * 1e3:.0f}"


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = argparse.ArgumentParser(
        prog="python -m wspec.lab.bench.compile_time", description="Time a first compilation."
    )
    made.add_argument("kernels", nargs="*", default=list(KERNELS), metavar="FILE:KERNEL@VARIANT")
    made.add_argument("--rounds", type=int, default=3, help="fresh processes each (default %(default)s)")
    made.add_argument("--configurations", action="store_true", help="twenty configurations, as an autotuner asks")
    made.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes for them (default: the cores)")
    made.add_argument("--markdown", type=Path, metavar="FILE", help="write the tables there as well")
    made.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    return made


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and show."""
    options = parser().parse_args(arguments)
    if options.child:
        print(json.dumps(configurations(options.jobs) if options.configurations else child(options.kernels[0])))
        return
    tables = []
    if options.configurations:
        rows = []
        for jobs in (0, options.jobs):
            took = _measured(["--configurations", "--jobs", str(jobs)], options.rounds)
            rows.append((str(jobs), f"{took['sent to other processes'][0]:.0f}", f"{took['all'][0]:.1f}"))
        tables.append(Table("Twenty configurations of a product", ("processes", "kernels sent", "wall s"), tuple(rows)))
    else:
        tables = [table_of(kernel, _measured([kernel], options.rounds)) for kernel in options.kernels]
    for table in tables:
        table.show(console())
    if options.markdown is not None:
        options.markdown.write_text("\n".join(table.markdown() for table in tables))


if __name__ == "__main__":
    main()

"""`python -m tests.gpu.sanitize`: emitted kernels under compute-sanitizer and Triton's sanitizer, and for a long time.

    python -m tests.gpu.sanitize                     # memcheck, racecheck, synccheck and initcheck
    python -m tests.gpu.sanitize --consan            # Triton's concurrency sanitizer
    python -m tests.gpu.sanitize --controls          # either on kernels known to be wrong: do the tools see it?
    python -m tests.gpu.sanitize --endurance 10000   # launches of each kernel, sizes drawn anew each time

Each needs a Hopper GPU; `--list` and `--help` do not. Exits with 1 when anything is wrong.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tests.gpu import endurance, tools

CONTROLS = ("gluon-rows/overwrites", "gluon-rows/early-release", "gluon-copied/arrives-early", "gluon-gemm/no-wait")
SMALL = 200  # the largest size under a tool, which makes a kernel a hundred times slower
CONSAN = (
    "matmul-straight-64x64x64",
    "matmul-turned-128x128x64",
    "attention-d64-full-64x64",
    "attention-d64-causal-64x64",
)  # others take minutes to assemble
LITTLE_OPTIMIZED = {"PTXAS_OPTIONS": "--opt-level 1"}
"""What the sanitizer adds is ten times a kernel: ptxas takes 20 s for it so, and more than six minutes otherwise."""


def main(arguments: list[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    if options.child is not None:
        return CHILDREN[options.child](options)
    names = _subject_names(options.only)
    if options.list:
        print("\n".join(names))
        return 0
    from tests.outside.card import probe

    if reason := probe():
        print(f"error: {reason}", file=sys.stderr)
        return 2
    result: dict[str, Any] = {}
    if options.endurance:
        result["endurance"] = _endurance(options)
    if options.consan:
        result["consan"] = _consan(options)
    if not (options.endurance or options.consan):
        result["tools"] = _tools(options)
    if options.json is not None:
        Path(options.json).write_text(json.dumps(result, indent=1) + "\n")
    return 0 if all(one["fine"] for part in result.values() for one in part) else 1


def _subject_names(only: str) -> list[str]:
    from tests.gpu.subjects import subjects

    return [subject.name for subject in subjects(only)]


# --------------------------------------------------------------------------------------- compute-sanitizer


def _tools(options: argparse.Namespace) -> list[dict[str, Any]]:
    sanitizer = tools.find()
    if sanitizer is None:
        print("error: compute-sanitizer is not on the PATH; name it in COMPUTE_SANITIZER", file=sys.stderr)
        return [{"fine": False, "summary": "compute-sanitizer not found"}]
    what = "controls" if options.controls else "launch"
    child = ["-m", "tests.gpu.sanitize", "--child", what, "--only", options.only, "--problems", str(options.problems)]
    plain = tools.alone(child, options.timeout)  # compiles, so that the tools find binaries in Triton's cache
    print(plain, flush=True)
    if plain.exit_code is None:
        return [{**asdict(plain), "fine": False}]
    found = []
    for tool in options.tools:
        log = Path(options.logs) / f"{tool}.log" if options.logs else None
        said = tools.run(sanitizer, tool, child, options.timeout, log)
        print(said, flush=True)
        found.append({**asdict(said), "fine": bool(said.problems) if options.controls else said.fine})
    return found


def _launch_small(options: argparse.Namespace) -> int:
    """In the child: every subject at three small sizes, compared on the CPU."""
    import torch
    import triton

    from tests.gpu.subjects import Pool, subjects

    triton.set_allocator(lambda size, align, stream: torch.empty(size, dtype=torch.int8, device="cuda"))
    pool, worst = Pool("cuda", 1 << 20), 0.0
    for subject in subjects(options.only):
        draw = random.Random(subject.name)
        for _ in range(options.problems):
            problem = subject.draw(pool, draw, SMALL)
            problem.run()
            torch.cuda.synchronize()
            worst = max(worst, _error_on_cpu(subject.name, problem))
    print(f"numbers: worst relative error {worst:.1e}")
    return 0 if worst < endurance.RELATIVE else 1


def _error_on_cpu(name: str, problem: Any) -> float:
    """The relative error of a launched problem, worked out without a kernel."""
    from wspec.lab.bench.accuracy import Error

    error = Error.of(problem.out.cpu(), problem.expected("cpu")).relative
    if not error < endurance.RELATIVE:
        print(f"numbers: {name} {problem.sizes}: relative error {error:.1e}")
        return float("inf")
    return error


def _launch_controls(options: argparse.Namespace) -> int:
    """In the child: kernels known to be wrong, whatever they give."""
    import torch
    import triton

    from tests.outside.cases import CASES

    triton.set_allocator(lambda size, align, stream: torch.empty(size, dtype=torch.int8, device="cuda"))
    for name in CONTROLS:
        if options.only in name:
            CASES[name].make("cuda").run()
            torch.cuda.synchronize()
            print(f"numbers: {name} returned")
    return 0


# ---------------------------------------------------------------------------------------------- endurance


def _endurance(options: argparse.Namespace) -> list[dict[str, Any]]:
    """Each subject in a process of its own, some at a time: after a hang nothing more runs in a process."""
    with ThreadPoolExecutor(options.jobs) as pool:
        return list(pool.map(lambda name: _endure_alone(name, options.endurance), _subject_names(options.only)))


def _endure_alone(name: str, launches: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        answer = Path(folder) / "answer.json"
        command = [sys.executable, "-m", "tests.gpu.sanitize", "--child", "endurance", "--only", name]
        done = subprocess.run([*command, "--endurance", str(launches), "--json", str(answer)], check=False)
        if answer.exists():
            found: dict[str, Any] = json.loads(answer.read_text())
            return found
    print(f"{name}: the process ended with {done.returncode}", flush=True)
    return {"name": name, "fine": False, "died": done.returncode}


def _endure_child(options: argparse.Namespace) -> int:
    from tests.gpu.subjects import Pool, subjects

    def on_hang(what: str) -> None:
        Path(options.json).write_text(json.dumps({"name": options.only, "fine": False, "hang": what}))

    pool = Pool("cuda")
    subject = next(one for one in subjects(options.only) if one.name == options.only)
    found = endurance.endure(subject, options.endurance, pool, on_hang)
    print(found, flush=True)
    Path(options.json).write_text(json.dumps({**asdict(found), "fine": found.fine}))
    return 0


# ------------------------------------------------------------------------------------------------- consan


def _consan(options: argparse.Namespace) -> list[dict[str, Any]]:
    """Each subject in a process of its own, all at once: most of the time goes into compiling."""
    child, names = ("consan-controls", CONTROLS) if options.controls else ("consan", CONSAN)
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "TRITON_CACHE_DIR": folder, **LITTLE_OPTIMIZED}
        command = [sys.executable, "-m", "tests.gpu.sanitize", "--child", child, "--problems", "2", "--only"]
        running = {
            name: subprocess.Popen(
                [*command, name], env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
            )
            for name in names
            if options.only in name
        }
        answers = [_consan_answer(name, process, options.timeout) for name, process in running.items()]
    return [{**one, "fine": one["silent"] != options.controls} for one in answers]


def _consan_answer(name: str, process: subprocess.Popen[str], timeout_s: float) -> dict[str, Any]:
    """What the sanitizer said of a kernel; `silent` when it said nothing and the process ended well."""
    try:
        output, _ = process.communicate(timeout=timeout_s)
    except subprocess.TimeoutExpired:
        process.kill()
        output = process.communicate()[0] + "\nstopped: no answer"
    silent = process.returncode == 0
    said = list(dict.fromkeys(line for line in output.splitlines() if "Assertion" in line or "numbers:" in line))
    lines = said[:6] or output.strip().splitlines()[-3:]
    print(f"consan {name}: {'nothing found' if silent else 'stopped it'}", *lines, sep="\n    ", flush=True)
    return {"name": name, "silent": silent, "said": lines}


def _consan_child(options: argparse.Namespace) -> int:
    from tests.gpu.consan import instrumented

    with instrumented():
        return _launch_small(options)


def _consan_controls(options: argparse.Namespace) -> int:
    from tests.gpu.consan import instrumented

    with instrumented():
        return _launch_controls(options)


CHILDREN: dict[str, Callable[[argparse.Namespace], int]] = {
    "launch": _launch_small,
    "controls": _launch_controls,
    "endurance": _endure_child,
    "consan": _consan_child,
    "consan-controls": _consan_controls,
}


def _parser() -> argparse.ArgumentParser:
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(prog="python -m tests.gpu.sanitize", description=__doc__, formatter_class=form)
    parser.add_argument(
        "--tools", nargs="+", choices=tools.TOOLS, default=tools.TOOLS, help="those of compute-sanitizer"
    )
    parser.add_argument("--controls", action="store_true", help="launch kernels known to be wrong")
    parser.add_argument("--consan", action="store_true", help="run Triton's concurrency sanitizer")
    parser.add_argument("--endurance", type=int, default=0, metavar="N", help="launch each kernel N times")
    parser.add_argument("--only", default="", metavar="TEXT", help="kernels whose name contains it")
    parser.add_argument("--problems", type=int, default=3, metavar="N", help="sizes of each kernel under a tool (3)")
    parser.add_argument("--jobs", type=int, default=4, metavar="N", help="processes at a time in an endurance run (4)")
    parser.add_argument("--timeout", type=float, default=240.0, metavar="S", help="seconds for a tool (240)")
    parser.add_argument("--json", metavar="PATH", help="write the results there")
    parser.add_argument("--logs", metavar="FOLDER", help="keep the tools' output there")
    parser.add_argument("--list", action="store_true", help="only name the kernels")
    parser.add_argument("--child", choices=CHILDREN, help=argparse.SUPPRESS)
    return parser


if __name__ == "__main__":
    sys.exit(main())

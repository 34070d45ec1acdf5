"""`python -m tests.outside.on_card --packages FOLDER --entries FOLDER`: other people's kernels on a card.

Each entry calls a library's own wrapper, in three sizes, in a process of its own. Every launch of a kernel that the
entry names is made by plain Triton and by `wspec.enable()`; memory must come out the same, and where another binary ran
both are timed, alone on the card. What is found is written as JSON lines while it goes on, and at the end as a table.
Exits with 1 where numbers differ or a launch fails.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import importlib
import json
import os
import re
import subprocess
import sys
import tempfile
import time
import traceback
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tests.outside.on_card import entries, inputs, recipes, report

ALL = (0, 1, 2)
MANY = 4  # kernels
AGAIN = 4
"""How often an entry begins again behind a launch that took its process with it."""

QUIET = {**os.environ, "TORCHDYNAMO_DISABLE": "1", "OMP_NUM_THREADS": "2", "CUBLAS_WORKSPACE_CONFIG": ":4096:8"}
"""What is around a kernel is not compiled."""


def main(arguments: list[str] | None = None) -> int:
    given = _parser().parse_args(arguments)
    if given.one is not None:
        _child(given)
        return 0
    start = time.monotonic()
    given.scratch = given.scratch or Path(tempfile.mkdtemp(prefix="on-card-"))
    given.scratch.mkdir(parents=True, exist_ok=True)
    given.rows = given.rows or given.scratch / "rows.jsonl"
    given.rows.parent.mkdir(parents=True, exist_ok=True)
    given.rows.write_text("")
    entries.prepare(given.entries, given.packages)
    found = entries.load(given.entries)
    names = [name for name in found if re.search(given.only, name) and recipes.recipe(name) is not None]
    names.sort(key=lambda name: -len(found[name]["kernels"]))  # the longest first
    tasks = [(name, sizes) for name in names for sizes in _divided(len(found[name]["kernels"]), given.sizes)]
    with ThreadPoolExecutor(given.jobs) as pool:
        list(pool.map(lambda task: _entry(given, *task, start), tasks))
    again = sorted({row["entry"] for row in _rows(given.rows) if "out of memory" in row["error"]})
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda name: _entry(given, name, given.sizes, start), again))
    rows = list(
        {(row["entry"], row["sizes"], row["kernel"], row["arguments"]): row for row in _rows(given.rows)}.values()
    )
    print(report.text(rows, time.monotonic() - start))
    if given.json is not None:
        value = {"figures": report.figures(rows), "rows": rows}
        given.json.write_text(json.dumps(value, indent=0))
    return int(any(report.wrong(row) for row in rows))


# ------------------------------------------------------------------------------------------ the parent


def _divided(kernels: int, sizes: tuple[int, ...]) -> list[tuple[int, ...]]:
    """Which sizes of an entry run in one process: what has many kernels takes long to compile."""
    return [sizes] if kernels < MANY else [(number,) for number in sizes]


def _entry(given: argparse.Namespace, name: str, sizes: tuple[int, ...], start: float) -> None:
    """Run an entry in children, one after the other where one is lost."""
    from tests.outside.on_card.launches import is_lost

    left_over, skip = sizes, list[str]()
    for _ in range(AGAIN):
        left = given.limit - (time.monotonic() - start)
        if left < 15:
            _note(given.rows, _lost(name, "", "", "no time left"))
            return
        stem = f"{name}.{sizes[0]}"
        events = given.scratch / f"{stem}.events"
        events.write_text("")
        command = [
            sys.executable, "-m", "tests.outside.on_card", "--one", name, "--packages", str(given.packages),
            "--entries", str(given.entries), "--rows", str(given.rows), "--scratch", str(given.scratch),
            "--events", str(events), "--sizes", ",".join(map(str, left_over)), "--skip", ",".join(skip),
            *(["--no-time"] * given.no_time), *(["--pretend"] * given.pretend),
        ]  # fmt: skip
        began = time.monotonic()
        with (given.scratch / f"{stem}.log").open("a") as log:
            try:
                code = subprocess.run(
                    command, stdout=log, stderr=log, env=QUIET, timeout=min(left, given.each)
                ).returncode
            except subprocess.TimeoutExpired:
                code = -9
        told = [json.loads(line) for line in events.read_text().splitlines()]
        count = sum(one["event"] == "row" for one in told)
        print(f"[{time.monotonic() - start:4.0f} s] {stem}: {count} launches, exit {code}, "
              f"{time.monotonic() - began:.0f} s", flush=True)  # fmt: skip
        if code == 0:
            return
        at = next((number for number in reversed(range(len(told))) if told[number]["event"] == "begin"), None)
        what = {-14: "hang", -9: "too slow"}.get(code, f"exit {code}")
        if at is None:
            _note(given.rows, _lost(name, "", "", f"{what} before any launch"))
            return
        begun, after = told[at], told[at + 1 :]
        ends = [one for one in after if one["event"] == "row"]
        if not ends:
            phase = next((one["phase"] for one in reversed(after)), "compiling")
            _note(given.rows, _lost(name, begun["sizes"], begun["kernel"], f"{phase}: {what}"))
        elif not any(is_lost(one["error"]) for one in ends):
            _note(given.rows, _lost(name, begun["sizes"], "", f"{what} between launches"))
            return
        left_over, skip = tuple(one for one in left_over if one >= begun["number"]), [*skip, begun["kernel"]]


def _lost(entry: str, sizes: str, kernel: str, error: str) -> dict[str, Any]:
    from tests.outside.on_card.launches import Row

    return {"event": "row", **asdict(Row(entry, sizes, kernel, error=error))}


def _note(path: Path, value: dict[str, Any]) -> None:
    with path.open("a") as file:
        file.write(json.dumps(value) + "\n")


def _rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


# ------------------------------------------------------------------------------------------- the child


def _child(given: argparse.Namespace) -> None:
    """Run one entry in its sizes."""
    import torch

    from tests.outside.on_card.launches import Watch, is_lost, synchronize
    from tests.outside.on_card.turns import Turns

    recipe = recipes.recipe(given.one)
    assert recipe is not None
    without = frozenset() if given.pretend else recipe.without
    entries.prepare(given.entries, given.packages, given.pretend)
    if not given.pretend:
        torch.use_deterministic_algorithms(True, warn_only=True)  # memory that nobody wrote is NaN
    turns = Turns(given.scratch / "turns", (lambda: None) if given.pretend else synchronize)
    number = 0

    def tell(event: dict[str, Any]) -> None:
        _note(given.events, {**event, "number": number})
        if event["event"] == "row":
            _note(given.rows, event)

    importing = importlib.import_module

    def import_module(*args: Any, **kwargs: Any) -> Any:
        with turns.away():
            return importing(*args, **kwargs)

    importlib.import_module = import_module
    watch = Watch(turns, tell, timed=not given.no_time, pretend=given.pretend)
    for number in given.sizes:
        sizes = recipe.sizes[number]
        entry = entries.load(given.entries, sizes.changes, without)[given.one]
        watch.begin(given.one, sizes.name, [one for one in entry["kernels"] if one not in given.skip], entry["pick"])
        torch.manual_seed(0)
        fills = {} if given.pretend else recipe.fills(sizes)
        filler = inputs.Filler(fills, (lambda tensor: tensor) if given.pretend else recipe.floats)
        try:
            with turns.beside_others(), inputs.filled(filler, given.entries):
                entry["launch"]()
        except Exception as error:
            traceback.print_exc()
            said = (str(error).strip().splitlines() or [""])[0][:300]
            tell(_lost(given.one, sizes.name, "", f"the wrapper: {type(error).__name__}: {said}"))
            if is_lost(said):
                raise
        gc.collect()
        with contextlib.suppress(Exception):
            torch.cuda.empty_cache()
    os._exit(0)  # without what libraries do at exit


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.outside.on_card", description=__doc__)
    parser.add_argument("--packages", type=Path, required=True, help="the libraries, in pkg/")
    parser.add_argument("--entries", type=Path, required=True, help="m_*.py and their helpers")
    parser.add_argument("--only", metavar="REGEX", default="", help="entries whose name matches")
    parser.add_argument("--jobs", type=int, default=12, metavar="N", help="processes at a time (12)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write figures and rows there")
    parser.add_argument("--rows", type=Path, metavar="FILE", help="write JSON lines there while it goes on")
    parser.add_argument("--scratch", type=Path, metavar="FOLDER", help="what each process prints")
    parser.add_argument("--limit", type=float, default=540.0, metavar="S", help="seconds for all (540)")
    parser.add_argument("--each", type=float, default=300.0, metavar="S", help="seconds for a process (300)")
    parser.add_argument("--no-time", action="store_true", help="compare, and time nothing")
    parser.add_argument("--pretend", action="store_true", help="compile only, on a card that is not there")
    for name, kind in (("--one", str), ("--events", Path)):
        parser.add_argument(name, type=kind, help=argparse.SUPPRESS)
    parser.add_argument("--sizes", type=_numbers, default=ALL, metavar="0,1,2", help="which of the three sizes")
    parser.add_argument("--skip", type=lambda text: text.split(","), default=[], help=argparse.SUPPRESS)
    return parser


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(map(int, text.split(",")))


if __name__ == "__main__":
    sys.exit(main())

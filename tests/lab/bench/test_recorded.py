"""Runs kept in a file and compared: what counts as a change, what cannot be told, what is no run at all."""

from __future__ import annotations

import ctypes
import json
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.cli.helpers import wspec
from wspec.lab.bench import clocks, recorded
from wspec.lab.bench.compare import compare
from wspec.lab.bench.launch import case_run
from wspec.lab.bench.recorded import CaseRun, Ratio, Run
from wspec.lab.bench.timing import Timing

CARD = {"name": "NVIDIA H200", "multiprocessors": "132", "power limit": "700.00 W"}
VERSIONS = {"wspec": "0.1.0", "triton": "3.6.0", "torch": "2.11.0", "ptxas": "12.9", "driver": "570.1"}
SHORT = {"rounds": 15, "window_ms": 2.0, "sustained_seconds": None, "graph": False}
CASES = ("D=64 full bf16 B=4 H=32 S=4096", "D=128 causal bf16 B=4 H=16 S=4096")


def case(us: float = 1000.0, mhz: float | None = 1700.0, x_plain: float = 1.3, x_fa3: float = 1.01) -> CaseRun:
    return CaseRun(us, 0.004, {"plain": Ratio(x_plain, 0.003), "FA3": Ratio(x_fa3, 0.003)}, mhz, 650.0)


def run(*cases: CaseRun, **fields: Any) -> Run:
    named = dict(zip(CASES, cases or (case(), case()), strict=False))
    return replace(Run("attention", "2026-11-20T10:00:00+00:00", VERSIONS, CARD, SHORT, named), **fields)


def kept(path: Path, *runs: Run) -> str:
    for one in runs:
        recorded.append(path, one)
    return str(path)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "runs.jsonl"


# ------------------------------------------------------------------------------------------------ what counts


def verdicts(old: Run, new: Run) -> list[tuple[str, str]]:
    changes = compare(old, new).changes.values()
    return [("-", "-") if change is None else (change.verdict, change.told_by) for change in changes]


def test_what_a_file_holds_is_what_was_written(file: Path) -> None:
    made = run(case(), CaseRun(1.5, 0.0))
    kept(file, made, made)
    assert [line.run for line in recorded.read(file)] == [made, made]


def test_a_change_counts_beyond_both_spreads_and_one_percent() -> None:
    """0.4 % and 0.4 % and 1 %."""
    assert verdicts(run(case(1000)), run(case(1017))) == [("same", "cycles")]
    assert verdicts(run(case(1000)), run(case(1019))) == [("SLOWER", "cycles")]
    assert verdicts(run(case(1019)), run(case(1000))) == [("faster", "cycles")]
    assert compare(run(case(1000)), run(case(1019))).slower == [CASES[0]]


def test_times_are_taken_at_one_clock() -> None:
    assert verdicts(run(case(1000, mhz=1700)), run(case(1062.5, mhz=1600))) == [("same", "cycles")]
    assert verdicts(run(case(1000, mhz=1700)), run(case(1000, mhz=1800))) == [("SLOWER", "cycles")]


def test_sustained_times_are_taken_as_they_are() -> None:
    timing = {**SHORT, "window_ms": None, "sustained_seconds": 2.0}
    old, new = (run(case(1000, mhz), timing=timing) for mhz in (1700, 1600))
    assert verdicts(old, new) == [("same", "time")]


def test_without_a_clock_ratios_tell() -> None:
    old = run(case(1000, mhz=None, x_plain=1.30, x_fa3=1.01))
    assert verdicts(old, run(case(1080, mhz=None, x_plain=1.30, x_fa3=1.01))) == [("same", "ratios")]
    assert verdicts(old, run(case(1000, mhz=None, x_plain=1.26, x_fa3=0.98))) == [("SLOWER", "ratios")]
    assert any("clock was not recorded" in note for note in compare(old, old).notes)


def test_times_of_different_cards_are_not_compared() -> None:
    other = {**CARD, "name": "NVIDIA H100 80GB HBM3"}
    found = compare(run(), run(case(1500), case(1500), card=other))
    assert [change and change.told_by for change in found.changes.values()] == ["ratios", "ratios"] and not found.slower
    assert any("different cards (name NVIDIA H200 and NVIDIA H100 80GB HBM3)" in note for note in found.notes)
    assert any("ratios to FA3 and plain tell" in note for note in found.notes)


def test_times_that_were_taken_in_different_ways_are_not_compared() -> None:
    assert verdicts(run(), run(case(1500), case(1500), timing={**SHORT, "graph": True})) == 2 * [("same", "ratios")]


def test_a_peer_of_another_version_does_not_tell() -> None:
    """Plain Triton has become faster, and ours is as fast as ever."""
    newer = {**VERSIONS, "triton": "3.8.0"}
    old, new = run(case(mhz=None)), run(case(mhz=None, x_plain=1.1), versions=newer)
    assert verdicts(old, new) == [("same", "ratios")]
    unknown = {**newer, "torch": "2.14.0"}
    found = compare(old, run(case(mhz=None, x_plain=1.1), versions=unknown))
    assert list(found.changes.values()) == [None]
    assert any("versions: triton 3.6.0 and 3.8.0, torch 2.11.0 and 2.14.0" in note for note in found.notes)
    assert any("1 cannot be told" in note for note in found.notes)


# ------------------------------------------------------------------------------------------- the command line


def test_exit_code_and_table(file: Path) -> None:
    place = kept(file, run(), run(case(900), case(1030), date="2026-11-23T10:00:00+00:00"))
    said = wspec("bench", "--compare", place)
    assert said.code == 1 and said.err == ""
    assert "attention: 2026-11-20T10:00:00+00:00, then 2026-11-23T10:00:00+00:00" in said.out
    rows = {line.split("│")[1].strip(): line for line in said.out.splitlines() if "D=" in line}
    assert "faster" in rows[CASES[0]] and "SLOWER" in rows[CASES[1]] and "+3.0" in rows[CASES[1]]
    assert "- 2 cases: 1 slower, 1 faster, 0 within the noise" in said.out
    assert wspec("bench", "--compare", f"{place}@2", f"{place}@1").code == 1  # the other is slower now
    assert wspec("bench", "--compare", f"{place}@1", f"{place}@1").code == 0


def test_two_files_and_benchmarks(file: Path, tmp_path: Path) -> None:
    """The last run of the new file says which benchmark is compared."""
    other = kept(tmp_path / "new.jsonl", run())
    place = kept(file, run(), run(case(500), bench="matmul"))
    assert wspec("bench", "--compare", place, other).code == 0
    said = wspec("bench", "--compare", f"{place}@2", other)
    assert said.code == 2 and "different benchmarks, matmul and attention" in said.err
    said = wspec("bench", "--compare", place)
    assert said.code == 2 and "only one run of matmul" in said.err


def test_lines_that_are_no_runs(file: Path) -> None:
    place = kept(file, run())
    with file.open("a") as out:
        out.write('{"format": 2, "bench": "attention"}\n[1]\n{"format": 1, "cases": {}}\n')
        out.write(file.read_text().splitlines()[0][:200])  # cut short, with no end of its line
    kept(file, run())
    said = wspec("bench", "--compare", place)
    assert said.code == 0
    assert [line.partition("left out: ")[2] for line in said.err.splitlines()] == [
        "format 2; this version of wspec reads format 1",
        "not a recorded run",
        "not a whole run: KeyError: 'versions'",
        "no JSON, perhaps cut short",
    ]
    for number, reason in ((2, "format 2"), (5, "cut short"), (7, "no line 7")):
        said = wspec("bench", "--compare", f"{place}@1", f"{place}@{number}")
        assert said.code == 2 and reason in said.err and said.out == ""


@pytest.mark.parametrize("broken", [{"us": -1.0}, {"us": "fast"}, {"spread": None}, {"ratios": {"plain": 1.0}}])
def test_cases_that_are_none(broken: dict[str, Any], file: Path) -> None:
    place = kept(file, run())
    line = json.loads(file.read_text())
    line["cases"][CASES[0]].update(broken)
    file.write_text(json.dumps(line) + "\n")
    said = wspec("bench", "--compare", f"{place}@1", f"{place}@1")
    assert said.code == 2 and "line 1: not a whole run" in said.err


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ([], "say what to measure, or --record or --compare"),
        (["--compare", "no such file"], "No such file"),
        (["--compare", "FILE", "FILE", "FILE"], "one file or two runs, not 3"),
        (["--compare", "FILE", "FILE", "--plot", "picture.pdf"], "must end in .png or .svg"),
        (["--plot", "picture.svg"], "says nothing by itself"),
        (["--record", "runs", "--compare", "FILE", "FILE"], "measures nothing"),
        (["--compare", "/dev/null", "FILE"], "has no run that can be read"),
        (["--compare", sys.executable, "FILE"], "it is not text"),
    ],
)
def test_wrong_input(arguments: Sequence[str], error: str, file: Path) -> None:
    place = kept(file, run())
    said = wspec("bench", *(place if argument == "FILE" else argument for argument in arguments))
    assert said.code == 2 and said.err.startswith("error: ") and error in said.err and said.out == ""


@pytest.mark.parametrize(("name", "begins"), [("changes.svg", b"<?xml"), ("changes.png", b"\x89PNG")])
def test_plot(name: str, begins: bytes, file: Path, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    place = kept(file, run(), run(case(900), case(1030)))
    assert wspec("bench", "--compare", place, "--plot", str(tmp_path / name)).code == 1
    assert (tmp_path / name).read_bytes().startswith(begins)


def test_plot_without_matplotlib(file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    said = wspec("bench", "--compare", kept(file, run(), run()), "--plot", str(tmp_path / "x.svg"))
    assert said.code == 2 and "--plot takes matplotlib" in said.err and "pip install matplotlib" in said.err


# ------------------------------------------------------------------------------------------------- what is kept


def test_launches() -> None:
    made = case_run(Timing((20.0, 22.0, 20.0)), Timing((10.0, 11.0, 10.0)))
    assert made.us == 10.0 and made.ratios["plain"].value == 2.0 and made.ratios["plain"].spread == 0.0


class Nvml:
    """A card at 1,700 and then at 1,600 MHz, that does not tell its power."""

    def __init__(self) -> None:
        self.asked = 0

    nvmlInit_v2 = nvmlShutdown = nvmlDeviceGetHandleByUUID = lambda *_: 0

    def nvmlDeviceGetClockInfo(self, handle: object, which: int, at: Any) -> int:
        assert which == clocks.SM_CLOCK
        self.asked += 1
        ctypes.cast(at, ctypes.POINTER(ctypes.c_uint))[0] = 1700 if self.asked % 3 else 1600
        return 0

    def nvmlDeviceGetPowerUsage(self, handle: object, at: Any) -> int:
        return 3


def test_clocks(monkeypatch: pytest.MonkeyPatch) -> None:
    library = Nvml()
    monkeypatch.setattr(clocks, "_library", lambda: library)
    monkeypatch.setattr(clocks, "PERIOD_S", 0.001)
    with clocks.sampling("GPU-1") as found:
        while library.asked < 5:
            time.sleep(0.001)
    assert (found.mhz, found.watts) == (1700.0, None)


@pytest.mark.parametrize("library", [SimpleNamespace(), SimpleNamespace(nvmlInit_v2=lambda: 9)])
def test_clocks_that_nobody_tells(library: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clocks, "_library", lambda: library)
    with clocks.sampling("GPU-1") as found:
        pass
    assert (found.mhz, found.watts) == (None, None)

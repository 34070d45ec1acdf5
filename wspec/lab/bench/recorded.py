"""Runs of a benchmark kept in a file, one JSON line each, to be compared with later ones (`compare`).

A case is kept as what `contest` says of it: the time of the kernel that a user gets by default, and how many times
faster that is than each of those that ran beside it, with the spreads of the rounds.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from wspec.diagnostics import bad_input

FORMAT = 1
OURS = ("specialized", "specialized_best", "all", "clock")
"""What a contest's record has beside the peers."""


@dataclass(frozen=True, slots=True)
class Ratio:
    """How many times faster ours was than a peer in the same run: the median over rounds, and the distance between
    their quartiles over it."""

    value: float
    spread: float


@dataclass(frozen=True, slots=True)
class CaseRun:
    """A case in a run: microseconds, their spread over the rounds, the card's clock and power meanwhile, peers."""

    us: float
    spread: float
    ratios: Mapping[str, Ratio] = field(default_factory=dict)
    mhz: float | None = None
    watts: float | None = None


@dataclass(frozen=True, slots=True)
class Run:
    """A line of a file. `card` is what tells one kind of card from another, `timing` how samples were taken."""

    bench: str
    date: str
    versions: Mapping[str, str]
    card: Mapping[str, str]
    timing: Mapping[str, Any]
    cases: Mapping[str, CaseRun]

    @property
    def sustained(self) -> bool:
        """Did each variant run alone, at the clock of its own power?"""
        return self.timing.get("sustained_seconds") is not None


# --------------------------------------------------------------------------------------------------- from results


def run_of(bench: str, results: Mapping[str, Any]) -> Run:
    """What a benchmark saved (`session.Session.results`), as a run to keep: the cases that were timed."""
    timed = {record["name"]: record for record in results["cases"] if "times" in record}
    cases = {name: _case(record["times"]) for name, record in timed.items()}
    environment = results["environment"]
    return Run(bench, environment["date"], versions(environment), card(environment), results["timing"] or {}, cases)


def _case(times: Mapping[str, Any]) -> CaseRun:
    ours, clock = times["specialized"], times.get("clock", {})
    ratios = {name: Ratio(at["ratio"], at["ratio_spread"]) for name, at in times.items() if name not in OURS}
    return CaseRun(ours["us"], ours["spread"], ratios, clock.get("mhz"), clock.get("watts"))


def versions(environment: Mapping[str, Any]) -> dict[str, str]:
    """Of the programs that a time depends on."""
    names = ("wspec", "sources", "triton", "torch", "ptxas", "cudnn")
    found = {name: str(environment[name]) for name in names if environment.get(name) is not None}
    driver = environment.get("nvidia_smi", {}).get("driver_version")
    return found if driver is None else {**found, "driver": driver}


def card(environment: Mapping[str, Any]) -> dict[str, str]:
    """What two cards must have in common for their times to be compared, as far as it is known."""
    smi = environment.get("nvidia_smi", {})
    found = {
        "name": environment.get("card"),
        "multiprocessors": environment.get("multiprocessors"),
        "highest clock": smi.get("clocks.max.sm"),
        "power limit": smi.get("power.limit"),
    }
    return {name: str(value) for name, value in found.items() if value is not None}


# -------------------------------------------------------------------------------------------------------- in files


def check_file(path: str | Path) -> None:
    """Raises OSError where a run could not be appended: known before the measuring, not after it."""
    with Path(path).open("a", encoding="utf-8"):
        pass


def append(path: str | Path, run: Run) -> None:
    """Add a line to a file, below one that was cut short, if there is one. Raises OSError."""
    line = json.dumps({"format": FORMAT, **asdict(run)}, allow_nan=False)
    with Path(path).open("a+b") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - 1))
        gap = b"" if file.read(1) in (b"", b"\n") else b"\n"
        file.write(gap + line.encode() + b"\n")


@dataclass(frozen=True, slots=True)
class Line:
    """A line of a file by its number: a run, or why it is none."""

    number: int
    run: Run | None
    why_not: str = ""


def read(path: str | Path) -> list[Line]:
    """Every line that is not empty. Raises OSError, and WspecError for what is no text."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise bad_input(f"{path} is no file of recorded runs: it is not text") from None
    return [_line(number, line) for number, line in enumerate(text.split("\n"), 1) if line.strip()]


def _line(number: int, text: str) -> Line:
    try:
        return Line(number, from_json(json.loads(text)))
    except json.JSONDecodeError:
        return Line(number, None, "no JSON, perhaps cut short")
    except _Unusable as error:
        return Line(number, None, str(error))


class _Unusable(Exception):
    """A line that is no run; the text says why."""


def from_json(value: Any) -> Run:
    """A run from what a line holds. Raises _Unusable."""
    if not isinstance(value, dict) or "format" not in value:
        raise _Unusable("not a recorded run")
    if value["format"] != FORMAT:
        raise _Unusable(f"format {value['format']!r}; this version of wspec reads format {FORMAT}")
    try:
        cases = {str(name): _case_from(case) for name, case in value["cases"].items()}
        about, card = ({str(k): str(v) for k, v in value[name].items()} for name in ("versions", "card"))
        return Run(str(value["bench"]), str(value["date"]), about, card, dict(value["timing"]), cases)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise _Unusable(f"not a whole run: {type(error).__name__}: {error}") from None


def _case_from(value: Mapping[str, Any]) -> CaseRun:
    ratios = {str(name): Ratio(_positive(at["value"]), _spread(at["spread"])) for name, at in value["ratios"].items()}
    mhz, watts = (None if value[name] is None else _positive(value[name]) for name in ("mhz", "watts"))
    return CaseRun(_positive(value["us"]), _spread(value["spread"]), ratios, mhz, watts)


def _positive(value: Any) -> float:
    number = float(value)
    if not 0 < number < math.inf:
        raise ValueError(f"{value!r} is no positive number")
    return number


def _spread(value: Any) -> float:
    number = float(value)
    if not 0 <= number < math.inf:
        raise ValueError(f"{value!r} is no spread")
    return number

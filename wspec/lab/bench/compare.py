"""Two recorded runs of a benchmark: which cases changed by more than the noise, and which cannot be told.

What is compared of a case, and nothing else:

* its time, where both runs are of one kind of card and were timed in one way. A power-limited card gives a kernel 5 to
  8 % more or less from run to run, through its clock: samples that share a clock are compared as cycles, time times
  clock, and where a run has not recorded its clock they are not compared. Sustained runs are compared as they are:
  the clock that a kernel's power leaves it is what they are about;
* else how many times faster it was than its peers of the same run, as a geometric mean, over those peers that are the
  same program in both: the plain kernel where Triton is of one version, a library where torch is.

A change counts where it is more than the noise: the sum of both runs' spreads, and 1 %.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from wspec.diagnostics import bad_input
from wspec.lab.bench.recorded import CaseRun, Run
from wspec.lab.bench.report import Table, geometric_mean, number

BESIDE_SPREAD = 0.01
"""Of a change that both runs' spreads say nothing of: cards warm up, clocks are told in steps of 15 MHz."""


@dataclass(frozen=True, slots=True)
class Change:
    """Of a case: by what factor it takes longer now (below 1: shorter), told by what, and the noise of that."""

    factor: float
    noise: float
    told_by: str

    @property
    def slower(self) -> bool:
        return self.factor - 1 > self.noise

    @property
    def faster(self) -> bool:
        return 1 / self.factor - 1 > self.noise

    @property
    def verdict(self) -> str:
        return "SLOWER" if self.slower else "faster" if self.faster else "same"


@dataclass(frozen=True, slots=True)
class Comparison:
    """Of the cases that both runs have: the change, or None where neither times nor ratios tell; and what to say."""

    old: Run
    new: Run
    changes: Mapping[str, Change | None]
    notes: tuple[str, ...]

    @property
    def slower(self) -> list[str]:
        return [name for name, change in self.changes.items() if change is not None and change.slower]


def compare(old: Run, new: Run) -> Comparison:
    """Raises WspecError where the runs have nothing in common."""
    if old.bench != new.bench:
        raise bad_input(f"the runs are of different benchmarks, {old.bench} and {new.bench}")
    both = [name for name in new.cases if name in old.cases]
    if not both:
        raise bad_input("the runs have no case in common")
    by_time = why_not_times(old, new)
    peers = _same_peers(old, new)
    changes = {name: _change(old, new, name, not by_time, peers) for name in both}
    return Comparison(old, new, changes, tuple(_notes(old, new, by_time, peers, changes)))


def why_not_times(old: Run, new: Run) -> str:
    """Why the runs' times cannot be compared, whatever the case; empty where they can."""
    if differing := _differences(old.card, new.card):
        return f"the runs are of different cards ({', '.join(differing)})"
    if not old.card:
        return "the runs do not say on which card they were made"
    if old.timing != new.timing:
        return "the runs were timed in different ways"
    if old.timing.get("host"):
        return "times of the host depend on the machine around the card"
    return ""


def _differences(old: Mapping[str, str], new: Mapping[str, str]) -> list[str]:
    """What is not the same, in words; what one of the two does not know is none."""
    return [f"{name} {old[name]} and {new[name]}" for name in old if new.get(name, old[name]) != old[name]]


def _same_peers(old: Run, new: Run) -> set[str]:
    """Peers that were the same program in both runs, as far as their versions tell."""
    named = {name for run in (old, new) for case in run.cases.values() for name in case.ratios}
    return {name for name in named if all(_same(old, new, one) for one in _made_by(name))}


def _made_by(peer: str) -> tuple[str, ...]:
    return ("triton", "ptxas") if peer == "plain" else ("torch", "cudnn")


def _same(old: Run, new: Run, program: str) -> bool:
    return old.versions.get(program) == new.versions.get(program)


def _change(old: Run, new: Run, name: str, by_time: bool, peers: set[str]) -> Change | None:
    before, after = old.cases[name], new.cases[name]
    if by_time and new.sustained:
        return Change(after.us / before.us, _noise([before.spread, after.spread]), "time")
    if by_time and before.mhz is not None and after.mhz is not None:
        cycles = after.us * after.mhz / (before.us * before.mhz)
        return Change(cycles, _noise([before.spread, after.spread]), "cycles")
    return _by_ratios(before, after, peers)


def _by_ratios(before: CaseRun, after: CaseRun, peers: set[str]) -> Change | None:
    both = [
        (before.ratios[name], after.ratios[name]) for name in after.ratios if name in before.ratios and name in peers
    ]
    if not both:
        return None
    noises = [_noise([old.spread, new.spread]) for old, new in both]
    return Change(geometric_mean(old.value / new.value for old, new in both), statistics.fmean(noises), "ratios")


def _noise(spreads: Sequence[float]) -> float:
    return math.fsum(spreads) + BESIDE_SPREAD


def _notes(
    old: Run, new: Run, why_not: str, peers: set[str], changes: Mapping[str, Change | None]
) -> list[str]:  # fmt: skip
    said = [f"versions: {', '.join(differing)}"] if (differing := _differences(old.versions, new.versions)) else []
    if why_not:
        said.append(f"times are not compared: {why_not}")
    elif any(change is None or change.told_by == "ratios" for change in changes.values()):
        said.append("times of cases whose clock was not recorded are not compared")
    if any(change is not None and change.told_by == "ratios" for change in changes.values()):
        said.append(f"ratios to {_and(sorted(peers))} tell, which ran beside the kernel each time")
    if unknown := [name for name, change in changes.items() if change is None]:
        said.append(f"{len(unknown)} cannot be told: no peer of the same version ran beside {_few(unknown)}")
    for run, other, which in ((old, new, "old"), (new, old, "new")):
        if alone := [name for name in run.cases if name not in other.cases]:
            said.append(f"only in the {which} run: {_few(alone)}")
    return said


def _few(names: Sequence[str]) -> str:
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def _and(names: Sequence[str]) -> str:
    return " and ".join(filter(None, [", ".join(names[:-1]), *names[-1:]]))


# --------------------------------------------------------------------------------------------------------- shown


def tables(found: Comparison) -> list[Table]:
    """Every case, with its ratios to peers in both runs."""
    columns = ["case", "old us", "new us", "told by", "change %", "noise %", ""]
    peers = list(dict.fromkeys(p for name in found.changes for p in found.new.cases[name].ratios))
    columns += [f"x {peer}" for peer in peers]
    rows = tuple(_row(found, name, change, peers) for name, change in found.changes.items())
    return [Table(f"{found.new.bench}: {found.old.date}, then {found.new.date}", tuple(columns), rows)]


def _row(found: Comparison, name: str, change: Change | None, peers: Sequence[str]) -> tuple[str, ...]:
    before, after = found.old.cases[name], found.new.cases[name]
    told = ("-", "-", "-", "-")
    if change is not None:
        told = change.told_by, f"{100 * (change.factor - 1):+.1f}", number(100 * change.noise, 1), change.verdict
    ratios = (f"{_ratio(before, peer)} > {_ratio(after, peer)}" for peer in peers)
    return name, number(before.us, 1), number(after.us, 1), *told, *ratios


def _ratio(case: CaseRun, peer: str) -> str:
    return number(case.ratios[peer].value if peer in case.ratios else None, 3)


def sentences(found: Comparison) -> list[str]:
    """What it comes to, then the notes."""
    told = [change for change in found.changes.values() if change is not None]
    slower, faster = sum(change.slower for change in told), sum(change.faster for change in told)
    said = [
        f"{len(found.changes)} cases: {slower} slower, {faster} faster, {len(told) - slower - faster} within the noise"
    ]
    if told:
        mean = geometric_mean(change.factor for change in told)
        said.append(f"geometric mean of the changes: {100 * (mean - 1):+.1f} %")
    rule = f"a change counts where it is more than both runs' spreads and {100 * BESIDE_SPREAD:g} % together"
    return [*said, rule, *found.notes]


def plot(found: Comparison, path: str) -> None:
    """A dot for the change of each case over a bar as wide as the noise; SVG or PNG by the path's ending. Raises
    ImportError where matplotlib is missing, and OSError."""
    import matplotlib
    from matplotlib.figure import Figure

    told = [(name, change) for name, change in found.changes.items() if change is not None]
    figure = Figure(figsize=(8, 1.2 + 0.22 * len(told)), layout="constrained")
    axes = figure.add_subplot()
    for at, (_, change) in enumerate(told):
        color = "#c44e52" if change.slower else "#55a868" if change.faster else "#8c8c8c"
        noise = 100 * change.noise
        axes.barh(at, 2 * noise, left=-noise, color="#e6e6e6", height=0.7)
        axes.plot(100 * (change.factor - 1), at, "o", color=color, markersize=5)
    axes.axvline(0, color="#444444", linewidth=0.8)
    axes.set_yticks(range(len(told)), [name for name, _ in told], fontsize=7)
    axes.invert_yaxis()
    axes.set_xlabel("longer than in the old run, %; grey: the noise")
    axes.set_title(f"{found.new.bench}: {found.old.date}, then {found.new.date}", fontsize=9)
    with matplotlib.rc_context({"svg.hashsalt": "wspec", "svg.fonttype": "none"}):
        figure.savefig(path, dpi=150)

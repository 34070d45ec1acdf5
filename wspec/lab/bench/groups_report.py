"""What `wspec.lab.bench.groups` found, and its tables."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from wspec.lab.bench.attention_cases import HIDDEN, TOKENS, Case, Kind
from wspec.lab.bench.groups_cases import FA3, Arrangement, arrangements
from wspec.lab.bench.report import Table, number
from wspec.lab.bench.timing import Timing

Rows = dict[str, dict[str, Any]]


@dataclass(slots=True)
class Results:
    """By case or kind of case, then by arrangement, all as text; JSON-ready."""

    environment: dict[str, Any] = field(default_factory=dict)
    binaries: dict[str, Rows] = field(default_factory=dict)  # registers, shared memory, ...
    predicted: dict[str, Rows] = field(default_factory=dict)  # microseconds, clock, share of each unit
    measured: dict[str, dict[str, list[float]]] = field(default_factory=dict)  # microseconds, a round each
    counters: dict[str, Rows] = field(default_factory=dict)  # percent and others, see counters.COUNTERS

    @staticmethod
    def merged(parts: Sequence[Mapping[str, Any]]) -> Results:
        """Of several files; of what several have, the last counts."""
        found = Results()
        for part in parts:
            found.environment = part["environment"] or found.environment
            for name in ("binaries", "predicted", "measured", "counters"):
                getattr(found, name).update(part[name])
        return found

    def as_json(self) -> dict[str, Any]:
        return asdict(self)

    def better(self, case: Case, one: Arrangement) -> Arrangement:
        """The same arrangement, with turns or without: whichever is faster, measured if it was, else predicted."""
        both = [replace(one, ping_pong=turns) for turns in ((False, True) if one.shared else (False,))]
        times = self.measured.get(str(case))
        if times:
            return min(both, key=lambda each: Timing(tuple(times[str(each)])).median_us)
        return min(both, key=lambda each: float(self.predicted[str(case)][str(each)]["us"]))


def tables(cases: Sequence[Case], results: Results) -> list[Table]:
    """What each arrangement takes of an SM; its speed; and how busy it keeps the units, where that was counted."""
    counted = [case for case in cases if str(case) in results.counters]
    return [_resources(cases, results), _speed(cases, results), _units(counted or cases, results)]


def _best(case: Case, results: Results) -> list[Arrangement]:
    return [one for one in arrangements(case.kind.head_dim) if results.better(case, one) == one]


def _resources(cases: Sequence[Case], results: Results) -> Table:
    """Turns change none of it, up to a register or two."""
    rows = []
    for kind in dict.fromkeys(case.kind for case in cases):
        for one in [each for each in arrangements(kind.head_dim) if not each.ping_pong]:
            binary = results.binaries[str(kind)][str(one)]
            cells = (binary[name] for name in ("registers", "registers_used", "spills", "shared_bytes", "blocks"))
            rows.append((_kind(kind), str(one.groups), str(one), *map(str, cells)))
    columns = (
        "kind", "groups", "how", "registers a thread", "used", "bytes spilled", "shared memory", "blocks an SM",
    )  # fmt: skip
    return Table("What they take", columns, tuple(rows))


def _speed(cases: Sequence[Case], results: Results) -> Table:
    rows: list[tuple[str, ...]] = []
    for case in cases:
        shown = _best(case, results)
        times = {name: Timing(tuple(samples)) for name, samples in results.measured.get(str(case), {}).items()}
        predicted = _at_one_clock(results.predicted[str(case)])
        first = str(shown[0])
        for groups, name in [*((str(one.groups), str(one)) for one in shown), *([("", FA3)] if FA3 in times else [])]:
            mine, us = times.get(name), predicted.get(name)
            rows.append(
                (_case(case), groups, name,
                 number(case.flops / mine.median_us / 1e6 if mine else None),
                 number(mine.speedup_over(times[first]) if mine else None, 3),
                 number(mine.speedup_over(times[FA3]) if mine and FA3 in times else None, 3),
                 number(100 * mine.spread if mine else None, 1),
                 number(case.flops / us / 1e6 if us else None),
                 number(predicted[first] / us if us else None, 3))
            )  # fmt: skip
    title = f"Warp groups: attention, bf16, {TOKENS} tokens, hidden size {HIDDEN}, TFLOP/s"
    columns = (
        "case", "groups", "how", "measured", "x 1 group", "x FA3", "spread %", "predicted", "x 1 group, predicted",
    )  # fmt: skip
    return Table(title, columns, tuple(rows))


def _at_one_clock(rows: Rows) -> dict[str, float]:
    """Microseconds; arrangements take turns, and share the mean of the clocks that each would have alone."""
    shared = statistics.mean(float(one["mhz"]) for one in rows.values())
    return {name: float(one["us"]) * float(one["mhz"]) / shared for name, one in rows.items()}


def _units(cases: Sequence[Case], results: Results) -> Table:
    rows: list[tuple[str, ...]] = []
    for case in cases:
        counted = results.counters.get(str(case), {})
        names: list[tuple[str, str]] = [(str(one.groups), str(one)) for one in _best(case, results)]
        names += [("", FA3)] if FA3 in counted else []
        for groups, name in names:
            predicted, found = results.predicted[str(case)].get(name, {}), counted.get(name, {})
            pairs = [_pair(predicted.get(unit), found.get(counter)) for unit, counter in _UNITS.items()]
            read = found.get("read_bytes")
            rows.append(
                (_case(case), groups, name, *pairs, number(found.get("eligible"), 2), number(found.get("warps"), 1),
                 number(read / 1e9 if read is not None else None, 2), _clock(predicted.get("mhz"), found))
            )  # fmt: skip
    columns = (
        "case", "groups", "how", "tensor core %", "exponential unit %", "issue slots %", "eligible warps", "warps",
        "GB from L2", "MHz",
    )  # fmt: skip
    return Table("How busy: predicted / counted", columns, tuple(rows))


_UNITS = {"tensor": "tensor", "mufu": "exponential", "issue": "issue"}
"""The simulator's unit -> the counter that measures it."""


def _kind(kind: Kind) -> str:
    return f"D={kind.head_dim} {'causal' if kind.causal else 'full'}"


def _case(case: Case) -> str:
    return f"{_kind(case.kind)} S={case.seqlen_q}"


def _pair(share: float | None, percent: float | None) -> str:
    return f"{number(100 * share if share is not None else None)} / {number(percent)}"


def _clock(predicted: float | None, found: Mapping[str, float]) -> str:
    cycles, ns = found.get("cycles"), found.get("ns")
    return f"{number(predicted)} / {number(1e3 * cycles / ns if cycles and ns else None)}"

"""The attention benchmark's results as tables and as sentences."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from wspec.lab.bench.report import Table, geometric_mean, number

Record = dict[str, Any]

TARGET_GEOMEAN = 1.10
TARGET_WORST = 0.98
CHOSEN = "attention(): "
"""What the name of our first variant starts with: it is what `attention` launches."""
PEERS = ("cuDNN", "FA2", "FA3")


def progress(record: Record) -> str:
    """A line about one case."""
    checked = record["check"]
    text = f"error ratio {checked['ratio']:.3f}, {'same bits' if checked['identical'] else 'BITS DIFFER'}"
    if "times" in record:
        ours, plain = record["times"]["specialized"], record["times"]["plain"]
        text += f", {ours['tflops']:.0f} TFLOP/s, {plain['ratio']:.3f} x plain"
    return text


def tables(results: Record) -> list[Table]:
    """Speed by case, geometric means by kind, correctness of the odd shapes; those that have rows."""
    made = [_speed(results), _means(results), _odd(results)]
    return [table for table in made if table.rows]


def _timed(results: Record) -> list[Record]:
    return [record for record in results["cases"] if "times" in record]


def _speed(results: Record) -> Table:
    records = _timed(results)
    present = [peer for peer in PEERS if any(peer in record["times"] for record in records)]
    columns = ["D", "mask", "dtype", "S", "plain", "its tile", "wspec", "its tile", "x plain"]
    for peer in present:
        columns += [peer, f"x {peer}"]
    columns += ["spread %", "error ratio", "same bits"]
    rows = tuple(_speed_row(record, present) for record in records)
    return Table("Attention forward, TFLOP/s", tuple(columns), rows)


def _speed_row(record: Record, present: Iterable[str]) -> tuple[str, ...]:
    case, times, check = record["case"], record["times"], record["check"]
    plain, ours = times["plain"], times["specialized"]
    cells = [*_kind_cells(case["kind"]), str(case["seqlen_q"])]
    cells += [number(plain["tflops"]), plain["name"].removeprefix("plain ")]
    cells += [number(ours["tflops"]), ours["name"].removeprefix(CHOSEN).removeprefix("specialized ")]
    cells += [number(plain["ratio"], 3)]
    for peer in present:
        found = times.get(peer, {})
        cells += [number(found.get("tflops")), number(found.get("ratio"), 3)]
    cells += [number(100 * ours["spread"], 1), number(check["ratio"], 3), "yes" if check["identical"] else "NO"]
    return tuple(cells)


def _kind_cells(kind: Record) -> tuple[str, str, str]:
    return str(kind["head_dim"]), "causal" if kind["causal"] else "full", kind["dtype"]


def _means(results: Record) -> Table:
    records = _timed(results)
    roles = ["plain", *(peer for peer in PEERS if any(peer in record["times"] for record in records))]
    if any(record["times"]["specialized_best"]["ratio"] != 1.0 for record in records):
        roles.append("specialized_best")
    by_kind: dict[tuple[str, str, str], list[Record]] = {}
    for record in records:
        by_kind.setdefault(_kind_cells(record["case"]["kind"]), []).append(record)
    rows = tuple((*cells, *(number(_mean_ratio(mine, role), 3) for role in roles)) for cells, mine in by_kind.items())
    names = [f"x {role.replace('_', ' ')}" for role in roles]
    return Table("Geometric means over lengths", ("D", "mask", "dtype", *names), rows)


def _mean_ratio(records: Iterable[Record], role: str) -> float:
    return geometric_mean(record["times"][role]["ratio"] for record in records if role in record["times"])


def _odd(results: Record) -> Table:
    records = [record for record in results["cases"] if "check" in record and "times" not in record]
    rows = tuple(
        (
            record["name"],
            f"{record['check']['plain']['largest']:.1e}",
            f"{record['check']['specialized']['largest']:.1e}",
            number(record["check"]["ratio"], 3),
            number(record["check"]["lse_ratio"], 3),
            "yes" if record["check"]["identical"] else "NO",
        )
        for record in records
        if not _flawless(record)
    )
    columns = ("case", "plain error", "error", "ratio", "lse ratio", "same bits")
    return Table("Cases checked, not timed, that are wrong", columns, rows)


def _flawless(record: Record) -> bool:
    return bool(record["check"]["accurate"]) and bool(record["check"]["identical"])


def notes(results: Record) -> list[str]:
    """What the tables come to, what was left out, and how it was measured."""
    said = [*_speed_notes(results), *_check_notes(results)]
    said += [f"not specialized: {kind['kind']}: {kind['reason']}"
             for kind in results["kinds"] if not kind["specialized"]]  # fmt: skip
    said += [f"did not compile or load: {item['kind']} {item['entry']}: {item['failure'].splitlines()[0]}"
             for item in results["compiling"]]  # fmt: skip
    said += _left_out(results["not_run"])
    said.append(
        "The plain kernel's configurations were compared at S=4096 for each head dimension, mask and dtype; the best "
        "ran at every length, and its number is that of the fastest there. A ratio is the median over interleaved "
        "rounds; spread is the distance between the quartiles of ours over its median."
    )
    said.append(_where(results["environment"]))
    return said


def _speed_notes(results: Record) -> list[str]:
    records = _timed(results)
    if not records:
        return []
    said = []
    core = [r for r in records if r["case"]["kind"]["head_dim"] == 128 and r["case"]["seqlen_q"] >= 4096]
    if core:
        mean = _mean_ratio(core, "plain")
        said.append(f"D=128, S >= 4096: {mean:.3f} x plain, geometric mean ({_met(mean >= TARGET_GEOMEAN)}: at least "
                    f"{TARGET_GEOMEAN})")  # fmt: skip
    worst = min(records, key=lambda record: float(record["times"]["plain"]["ratio"]))
    ratio = worst["times"]["plain"]["ratio"]
    said.append(f"worst: {ratio:.3f} x plain at {worst['name']} ({_met(ratio >= TARGET_WORST)}: at least "
                f"{TARGET_WORST})")  # fmt: skip
    present = [peer for peer in ("plain", *PEERS) if any(peer in record["times"] for record in records)]
    said.append("over all cases: " + ", ".join(f"{_mean_ratio(records, role):.3f} x {role}" for role in present))
    return said


def _met(condition: bool) -> str:
    return "met" if condition else "MISSED"


def _check_notes(results: Record) -> list[str]:
    checked = [record for record in results["cases"] if "check" in record]
    wrong = [r["name"] for r in checked if not r["check"]["accurate"]]
    moving = [r["name"] for r in checked if not r["check"]["identical"]]
    failed = [f"{r['name']}: {r['failure']}" for r in results["cases"] if "failure" in r]
    said = [f"{len(checked)} cases checked: {len(wrong)} less accurate than 1.1 x plain, {len(moving)} not repeatable, "
            f"{len(failed)} failed"]  # fmt: skip
    said += [f"less accurate: {name}" for name in wrong]
    said += [f"not repeatable: {name}" for name in moving]
    said += [f"failed: {text}" for text in failed]
    return said


def _left_out(not_run: list[str]) -> list[str]:
    if len(not_run) <= 4:
        return [f"not run: {text}" for text in not_run]
    return [f"not run: {len(not_run)} cases, from {not_run[0]} to {not_run[-1]}"]


def _where(environment: Record) -> str:
    smi = environment.get("nvidia_smi", {})
    return (
        f"{environment.get('card', 'no card')}, driver {smi.get('driver_version', '?')}, torch {environment['torch']}, "
        f"Triton {environment['triton']}, ptxas {environment['ptxas']}, cuDNN {environment.get('cudnn', '?')}, "
        f"{environment['date']}"
    )

"""What rows of launches say together: a table by entry, and the figures."""

from __future__ import annotations

import io
import math
import statistics
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table

Row = dict[str, Any]  # `launches.Row` as JSON has it
RIGHT = ("equal", "rounding", "races", "close")
SLOWEST, GOAL = 0.98, 1.10


def right(row: Row) -> bool:
    """Do the numbers agree, as far as there are any?"""
    return not row["error"] and row["default"]["verdict"] in (*RIGHT, "no information")


def wrong(row: Row) -> list[str]:
    """What of a launch is not as it must be."""
    found = [row["error"]] if row["error"] else []
    for name in ("default", "off"):
        ours = row[name]
        if ours is not None and (ours["verdict"] == "different" or ours["kind"] == "failed"):
            how = (
                ours["why"] if ours["kind"] == "failed" else f"{ours['unequal']} elements, {ours['largest']:.2g} apart"
            )
            found.append(f"{name}: {ours['verdict']} ({how})")
    return found


def speed(row: Row) -> float:
    """Plain time over ours as a user gets it: 1 where it is the plain kernel that runs."""
    ratio = row["default"]["ratio"]
    return 1.0 if ratio is None else float(ratio)


def is_ours(row: Row) -> bool:
    return row["default"]["kind"] in ("specialized", "promoted") and not row["default"]["guard"]


def geometric_mean(values: Iterable[float]) -> float:
    """NaN of nothing."""
    kept = list(values)
    return math.exp(statistics.fmean(map(math.log, kept))) if kept else math.nan


def figures(rows: Sequence[Row]) -> dict[str, Any]:
    """Numbers and speeds over all rows that came to an end."""
    done = [row for row in rows if not row["error"]]
    loops = [row for row in done if row["product"] == "loop"]
    ours = [row for row in done if is_ours(row) and row["default"]["ratio"] is not None]
    agree = Counter((row["entry"]) for row in {(r["entry"], r["sizes"]): r for r in rows if right(r)}.values())
    bad = {row["entry"] for row in rows if not right(row)}
    kernels: dict[tuple[str, str], list[float]] = {}
    for row in ours:
        kernels.setdefault((row["entry"], row["kernel"]), []).append(speed(row))
    by_kernel = [geometric_mean(found) for found in kernels.values()]
    without = [row for row in done if row["off"] is not None and row["off"]["ratio"] is not None]
    off = [row["off"]["ratio"] for row in without if row["default"]["kind"] != "specialized"]
    untried = [row["off"]["ratio"] for row in without if row["default"]["kind"] == "specialized"]
    return {
        "launches": len(rows),
        "entries": len({row["entry"] for row in rows}),
        "entries that agree in three sizes": sum(count >= 3 and entry not in bad for entry, count in agree.items()),
        "verdicts": dict(Counter(row["default"]["verdict"] for row in done)),
        "verdicts of what is specialized": dict(Counter(row["default"]["verdict"] for row in done if is_ours(row))),
        "errors": len(rows) - len(done),
        "launches with a product in a loop": len(loops),
        "specialized launches": len(ours),
        "plain behind a guard": sum(row["default"]["guard"] for row in done),
        "geometric mean, specialized launches": geometric_mean(map(speed, ours)),
        "geometric mean, specialized kernels": geometric_mean(by_kernel),
        "geometric mean, all with a product in a loop": geometric_mean(map(speed, loops)),
        f"share of products in a loop at {GOAL:.2f} and above": share(speed(row) >= GOAL for row in loops),
        f"specialized below {SLOWEST}": sum(speed(row) < SLOWEST for row in ours),
        "geometric mean, what the gate holds back": geometric_mean(off),
        "geometric mean, what the gate lets through, without trials": geometric_mean(untried),
        "of that below 0.98": sum(ratio < 0.98 for ratio in untried),
        "reasons": dict(Counter(row["default"]["code"] for row in loops if not is_ours(row)).most_common()),
    }


def share(found: Iterable[bool]) -> float:
    kept = list(found)
    return sum(kept) / len(kept) if kept else math.nan


def text(rows: Sequence[Row], seconds: float) -> str:
    """The table, what is wrong, the worst ten and the figures."""
    screen = Console(file=io.StringIO(), width=190, color_system=None)
    with screen.capture() as caught:
        screen.print(_table(rows), markup=False)
    lines = [caught.get().rstrip(), ""]
    for row in rows:
        lines += [f"WRONG {row['entry']} [{row['sizes']}] {row['kernel']}: {what}" for what in wrong(row)]
    ours = sorted((row for row in rows if is_ours(row) and row["default"]["ratio"] is not None), key=speed)
    for title, some in (("worst", ours[:10]), ("best", ours[:-11:-1])):
        lines.append(f"\nthe {title} ten:")
        lines += [_one(row) for row in some]
    held = [
        row
        for row in rows
        if row["off"] is not None and row["default"]["kind"] != "specialized" and (row["off"]["ratio"] or 0) > 1.02
    ]
    lines.append("\nheld back by the gate, and faster without it:")
    lines += [_one(row, "off") for row in sorted(held, key=lambda row: -row["off"]["ratio"])[:20]]
    lines.append("")
    for name, value in figures(rows).items():
        lines.append(f"{name}: {value:.3f}" if isinstance(value, float) else f"{name}: {value}")
    lines.append(f"{seconds:.0f} s")
    return "\n".join(lines)


def _one(row: Row, which: str = "default") -> str:
    ours = row[which]
    return (
        f"  {ours['ratio']:.3f} (expected {ours['predicted'] or math.nan:.2f}, spread {ours['spread']:.3f}) "
        f"{row['entry']} [{row['sizes']}] {row['kernel']} grid {row['grid']}: "
        f"plain {_cost(row, ours['plain_microseconds'])}; ours {_cost(ours, ours['microseconds'])}"
    )


def _cost(one: dict[str, Any], microseconds: float) -> str:
    return f"{microseconds:.1f} us, {one['warps']} warps, {one['registers']} registers, {one['spills']} spilled"


def _table(rows: Sequence[Row]) -> Table:
    table = Table(title="launches: plain Triton and wspec.enable()", title_justify="left")
    for name in ("entry", "kernel", "product", "became", "numbers", "plain / ours", "without the gate"):
        table.add_column(name)
    groups: dict[tuple[str, str], list[Row]] = {}
    for row in sorted(rows, key=lambda row: (row["entry"], row["kernel"])):
        groups.setdefault((row["entry"], row["kernel"]), []).append(row)
    for (entry, kernel), some in groups.items():
        default = [row["default"] for row in some]
        off = [row["off"] for row in some if row["off"] is not None]
        table.add_row(
            entry, kernel[:48], some[0]["product"],
            _each(_became(one) for one in default),
            _each("error" if row["error"] else row["default"]["verdict"] for row in some),
            " ".join(_ratio(one) for one in default),
            " ".join(f"{_ratio(one)}{'' if one['verdict'] in RIGHT else ' ' + one['verdict']}" for one in off),
        )  # fmt: skip
    return table


def _became(ours: dict[str, Any]) -> str:
    if ours["guard"]:
        return "guarded"
    return ours["code"] or ours["kind"] if ours["kind"] == "left alone" else str(ours["kind"])


def _each(found: Iterable[str]) -> str:
    """What the sizes have, once where all have the same."""
    kept = list(found)
    return kept[0] if len(set(kept)) == 1 else ", ".join(kept)


def _ratio(ours: dict[str, Any]) -> str:
    return "-" if ours["ratio"] is None else f"{ours['ratio']:.2f}"

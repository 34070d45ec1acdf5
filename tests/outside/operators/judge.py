"""What is said of an operator: are its results the same with wspec and without, and what became of its kernels?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.outside.turns import TURNS

REFERENCE = 2e-2
"""Of results in 16 bits: root mean square of the difference from PyTorch's over that of PyTorch's."""

SAME = 5e-3
"""The same of results with and without wspec: a sum in another order may round another way."""


@dataclass
class Row:
    """An operator. `failed`: what its processes said that did not end well, by turn. `far`: by result, how far one is
    from the other. `kernels`: kernel, specialized or not, and why not."""

    operator: str
    failed: dict[str, str] = field(default_factory=dict)
    wrong: str = ""
    far: dict[str, dict[str, float]] = field(default_factory=dict)
    kernels: list[dict[str, Any]] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=dict)

    @property
    def verdict(self) -> str:
        """ "equal" (all bits), "the same", "different", "never runs" (not without wspec either), "fails" (with it, or
        behind it), or "no time"."""
        if self.failed:
            late = any(text == NO_TIME for text in self.failed.values())
            return "no time" if late else "never runs" if "before" in self.failed else "fails"
        if self.wrong:
            return "different"
        return "equal" if all(one["with"] == one["after"] == 0.0 for one in self.far.values()) else "the same"

    @property
    def is_wrong(self) -> bool:
        """Is it wspec's fault, or unknown?"""
        return self.verdict not in ("equal", "the same", "never runs")


NO_TIME = "no time left"


def judged(results: Mapping[str, Any], reference: Mapping[str, Any]) -> tuple[str, dict[str, dict[str, float]]]:
    """What is wrong with results of the three turns, if anything; and how far tensors are from each other, by name."""
    far, wrong = {}, []
    for name, expected in reference.items():
        first, ours, last = (results[turn][name] for turn in TURNS)
        far[name] = {
            "reference": apart(first, expected), "reference with": apart(ours, expected),
            "with": apart(ours, first), "after": apart(last, first),
        }  # fmt: skip
        if not far[name]["with"] <= SAME:
            wrong.append(f"{name} is another one with wspec")
        if not far[name]["after"] <= SAME:
            wrong.append(f"{name} is another one after wspec")
        if not far[name]["reference with"] <= max(REFERENCE, 2 * far[name]["reference"]):
            wrong.append(f"{name} is not PyTorch's")
    return "; ".join(wrong), far


def apart(found: Any, expected: Any) -> float:
    """Root mean square of the difference over that of what is expected; NaN where either has one."""
    scale = expected.double().square().mean().sqrt().clamp(min=1e-30)
    return float((found.double() - expected.double()).square().mean().sqrt() / scale)


def told(row: Row) -> str:
    """A few lines of an operator, as soon as it is done."""
    took = ", ".join(f"{turn} {row.seconds[turn]:.0f}" for turn in TURNS if turn in row.seconds)
    specialized = sum(one["specialized"] for one in row.kernels)
    lines = [f"{row.operator}: {row.verdict}; {specialized} of {len(row.kernels)} kernels specialized ({took} s)"]
    lines += [f"    {turn}: {text}" for turn, text in row.failed.items()]
    if row.wrong:
        lines.append(f"    {row.wrong}")
        lines += [f"    {name}: {', '.join(f'{what} {far:.1e}' for what, far in one.items())}"
                  for name, one in row.far.items()]  # fmt: skip
    names = Counter((one["kernel"], one["specialized"] or one["reason"][:110]) for one in row.kernels)
    lines += [f"    {kernel}: {'specialized' if became is True else became}{f' ({count} times)' if count > 1 else ''}"
              for (kernel, became), count in names.items()]  # fmt: skip
    return "\n".join(lines)


def summary(rows: Sequence[Row], total: int) -> str:
    """Of all: how many operators are the same, what was specialized, and why the rest was not."""
    verdicts = Counter(row.verdict for row in rows)
    kernels = [one for row in rows for one in row.kernels]
    reasons = Counter(one["reason"].partition(":")[0] for one in kernels if not one["specialized"])
    compared = [row for row in rows if row.far]
    with_ours = [row for row in compared if any(one["specialized"] for one in row.kernels)]
    specialized = sum(one["specialized"] for one in kernels)
    lines = [
        f"{len(rows)} of {total} operators: {_counted(verdicts)}",
        f"{specialized} of {len(kernels)} compiled kernels specialized; "
        f"{len(with_ours)} of {len(compared)} operators that were compared have one",
        f"left alone: {_counted(reasons) or 'none'}",
    ]
    for what, sentence in (("with", "with wspec and without"), ("after", "without, before and after")):
        if compared:
            row, name = max(((row, name) for row in compared for name in row.far), key=lambda at: _sure(at, what))
            lines.append(f"farthest {sentence}: {row.far[name][what]:.1e} ({row.operator}, {name})")
    return "\n".join(lines)


def _sure(at: tuple[Row, str], what: str) -> float:
    value = at[0].far[at[1]][what]
    return value if value == value else float("inf")


def _counted(counts: Counter[str]) -> str:
    return ", ".join(f"{name} {count}" for name, count in counts.most_common())

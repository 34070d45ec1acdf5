"""Measured launches to compare predictions with, as a JSON file.

    {"clock_mhz": 0, "points": [{
      "name": "D=128 full S=4096", "kernel": "kernels/attention.py:attention_fwd", "kind": "specialized",
      "signature": {"q_desc": "tensordesc<bf16[1, 1, 128, 128]>", ...}, "constexprs": {"BLOCK_M": 128, ...},
      "options": {"num_warps": 8}, "arguments": {"seqlen_q": 4096, ...}, "grid": [32, 16, 4], "ms": 0.861}]}

`kind` is "specialized" or "plain"; "registers", "clock_mhz" and "shape" of a point are optional.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from wspec.lab.simulate.costs import LINE
from wspec.lab.simulate.l2_reuse import Matrices, Matrix
from wspec.model.machine import description_of


@dataclass(frozen=True, slots=True)
class Point:
    """One launch that was measured."""

    name: str
    kernel: str
    kind: str  # "specialized" or "plain"
    signature: Mapping[str, str]
    constexprs: Mapping[str, Any]
    options: Mapping[str, Any]
    arguments: Mapping[str, float]
    grid: tuple[int, int, int]
    ms: float
    registers: int | None = None  # a thread has, where it was looked up
    clock_mhz: float = 0.0  # while it ran; 0: not known
    shape: str = ""  # the same for plans of one problem
    forced: str = ""  # the decision that was forced, where the compiler did not take its own
    samples_us: tuple[float, ...] = ()  # one a round, in which the plans of a shape took turns; none: not kept
    pitches: Mapping[str, int] = field(default_factory=dict)  # descriptor -> bytes from row to row; else a multiple of
    # 128 bytes
    heights: Mapping[str, int] = field(default_factory=dict)  # descriptor -> rows; else no tile reaches past the last
    widths: Mapping[str, int] = field(default_factory=dict)  # descriptor -> columns, likewise

    def with_options(self, **options: Any) -> Point:
        """The same launch of a kernel compiled with other options."""
        return replace(self, options={**self.options, **options})

    @property
    def matrices(self) -> Matrices:
        """What lies behind its descriptors, as far as that is known."""
        return {
            name: Matrix(
                self.pitches.get(name, LINE), self.heights.get(name, math.inf), self.widths.get(name, math.inf)
            )
            for name in {*self.pitches, *self.heights, *self.widths}
        }

    @property
    def compiled(self) -> str:
        """The same for points that run the same kernel."""
        return json.dumps([self.kernel, self.kind, self.signature, self.constexprs, self.options], sort_keys=True)


def read_points(path: Path) -> list[Point]:
    """Raises OSError, ValueError, TypeError for what is no such file."""
    data = json.loads(path.read_text(encoding="utf-8"))
    return [
        Point(**{**one, "grid": tuple(one["grid"]), "samples_us": tuple(one.get("samples_us", ()))})
        for one in data["points"]
    ]


def machine_of(path: Path) -> str:
    """The description of the card that the points of a file were measured on, where the file says which that was."""
    known = json.loads(path.read_text(encoding="utf-8")).get("environment", {})
    return description_of(known.get("card", ""))


def write_points(points: Sequence[Point], path: Path) -> None:
    path.write_text(json.dumps({"points": [asdict(one) for one in points]}, indent=1) + "\n", encoding="utf-8")


@dataclass(frozen=True, slots=True)
class Accuracy:
    """How predictions compare with measurements. Errors are of predicted over measured, less 1."""

    points: int
    mean_error: float  # of the absolute values
    worst_error: float
    factor: float  # geometric mean of predicted over measured
    mean_left: float  # the same errors with every prediction divided by that factor
    worst_left: float
    rank_correlation: float  # Spearman's, of the times


def accuracy(pairs: Sequence[tuple[float, float]]) -> Accuracy:
    """Of pairs of predicted and measured times, at least one."""
    ratios = [predicted / measured for predicted, measured in pairs]
    factor = math.exp(math.fsum(map(math.log, ratios)) / len(ratios))
    errors, left = [abs(one - 1) for one in ratios], [abs(one / factor - 1) for one in ratios]
    rank = rank_correlation([a for a, _ in pairs], [b for _, b in pairs])
    count = len(pairs)
    return Accuracy(count, sum(errors) / count, max(errors), factor, sum(left) / count, max(left), rank)


def rank_correlation(left: Sequence[float], right: Sequence[float]) -> float:
    """Spearman's; 0 where all are the same."""
    a, b = _ranks(left), _ranks(right)
    mean = (len(a) - 1) / 2
    above = math.fsum((x - mean) * (y - mean) for x, y in zip(a, b, strict=True))
    below = math.sqrt(math.fsum((x - mean) ** 2 for x in a) * math.fsum((y - mean) ** 2 for y in b))
    return above / below if below else 0.0


def _ranks(values: Sequence[float]) -> list[float]:
    """The mean of their places for those that are equal."""
    order = sorted(range(len(values)), key=lambda at: values[at])
    ranks = [0.0] * len(values)
    start = 0
    while start < len(order):
        end = start
        while end + 1 < len(order) and values[order[end + 1]] == values[order[start]]:
            end += 1
        for at in range(start, end + 1):
            ranks[order[at]] = (start + end) / 2
        start = end + 1
    return ranks

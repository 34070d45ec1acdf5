"""What many samples come to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Spread:
    """The median of samples, and the range that holds nine in ten of them."""

    value: float
    low: float  # 5th percentile
    high: float  # 95th percentile

    @classmethod
    def of(cls, samples: Sequence[float]) -> Spread:
        """Raises ValueError for no samples."""
        if not samples:
            raise ValueError("no samples")
        ordered = sorted(samples)
        return cls(percentile(ordered, 50), percentile(ordered, 5), percentile(ordered, 95))


def percentile(ordered: Sequence[float], percent: float) -> float:
    """Of sorted samples, interpolated between neighbours."""
    at = (len(ordered) - 1) * percent / 100
    below = int(at)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (at - below)


def slopes(small: Sequence[float], large: Sequence[float], distance: float) -> list[float]:
    """Cost of one more, pairwise: what both have besides (loops, clock reads) cancels."""
    return [(b - a) / distance for a, b in zip(small, large, strict=True)]

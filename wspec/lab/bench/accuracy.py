"""How far results are from a float32 reference, and whether one kernel is as good as another."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch

ALLOWED_RATIO = 1.1
"""A specialized kernel may be this much less accurate than the plain one (a sum in another order rounds otherwise)."""

FLOOR = 1e-6
"""Errors below this are as good as none: where the plain kernel is exact by luck, a ratio says nothing."""

LSE_FLOOR = 1e-5
"""The same for log-sum-exps, which are around 10, where neighbouring float32 numbers are 1e-6 apart."""


@dataclass(frozen=True, slots=True)
class Error:
    """Distance of a result from a reference: the largest element's, and ||out - ref|| / ||ref||.

    NaN where the result has a NaN, or an infinity that the reference does not have.
    """

    largest: float
    relative: float

    @staticmethod
    def of(out: torch.Tensor, reference: torch.Tensor) -> Error:
        same = out.to(reference.dtype) == reference  # infinities that agree must not become NaN
        difference = torch.where(same, torch.zeros_like(reference), out.to(reference.dtype) - reference)
        finite = torch.where(reference.isfinite(), reference, torch.zeros_like(reference))
        if not difference.numel():
            return Error(0.0, 0.0)
        largest = float(difference.abs().max())
        norm = float(torch.linalg.vector_norm(finite))
        relative = float(torch.linalg.vector_norm(difference)) / norm if norm else largest
        return Error(largest if math.isfinite(largest) else math.nan, relative if math.isfinite(relative) else math.nan)

    def ratio_to(self, other: Error, floor: float = FLOOR) -> float:
        """The larger of the two ratios to another error, up to `floor` counting as none; NaN stays NaN."""
        if math.isnan(self.largest) or math.isnan(self.relative):
            return math.nan
        return max(_ratio(self.largest, other.largest, floor), _ratio(self.relative, other.relative, floor))


def _ratio(ours: float, theirs: float, floor: float) -> float:
    return 1.0 if ours <= floor else ours / max(theirs, floor)


def as_accurate(ratio: float) -> bool:
    """Whether an error ratio is within ALLOWED_RATIO; NaN is not."""
    return ratio <= ALLOWED_RATIO


def all_identical(run: Callable[[], tuple[torch.Tensor, ...]], repeats: int) -> bool:
    """Whether `repeats` calls of `run` give the same bits, NaN included."""
    first = tuple(_bits(tensor).clone() for tensor in run())
    for _ in range(repeats - 1):
        again = run()
        if not all(torch.equal(_bits(tensor), bits) for tensor, bits in zip(again, first, strict=True)):
            return False
    return True


def _bits(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.view({1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[tensor.element_size()])

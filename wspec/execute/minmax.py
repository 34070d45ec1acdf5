"""Minima and maxima, which differ in what they make of NaN, of zeros and of signs."""

from __future__ import annotations

import torch

from wspec.execute.elements import any_of


def maximum(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """IEEE 754-2019 maximum: NaN when one is; +0 is above -0."""
    return _zeros(torch.maximum(a, b), a, b, larger=True)


def minimum(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """IEEE 754-2019 minimum: NaN when one is; -0 is below +0."""
    return _zeros(torch.minimum(a, b), a, b, larger=False)


def maximum_number(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """PTX max: the number when the other is NaN; +0 is above -0."""
    return _zeros(_number(torch.maximum(a, b), a, b), a, b, larger=True)


def minimum_number(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """PTX min: the number when the other is NaN; -0 is below +0."""
    return _zeros(_number(torch.minimum(a, b), a, b), a, b, larger=False)


def _number(result: torch.Tensor, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """The other operand where one is NaN, which torch's minima and maxima keep. (torch.fmax is much slower.)"""
    if not any_of(result != result):
        return result
    return torch.where(a.isnan(), b, torch.where(b.isnan(), a, result))


def _zeros(result: torch.Tensor, a: torch.Tensor, b: torch.Tensor, larger: bool) -> torch.Tensor:
    """torch takes either of two zeros. A sum of zeros is -0 only when both are."""
    zeros = result == 0
    if not any_of(zeros):
        return result
    both = zeros & (a == 0) & (b == 0)
    return torch.where(both, a + b if larger else -(-a - b), result)


def unsigned_less(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """a < b of the bits as unsigned numbers."""
    if a.dtype == torch.bool:
        return ~a & b
    flip = torch.iinfo(a.dtype).min
    return (a ^ flip) < (b ^ flip)


def unsigned_maximum(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Of the bits as unsigned numbers."""
    return torch.where(unsigned_less(a, b), b, a)


def unsigned_minimum(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Of the bits as unsigned numbers."""
    return torch.where(unsigned_less(b, a), b, a)

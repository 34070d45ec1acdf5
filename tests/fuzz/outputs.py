"""Comparing what kernels leave in memory."""

from __future__ import annotations

import numpy as np

from tests.fuzz.bounded import Array
from tests.fuzz.reference import Memory

Truths = np.ndarray[tuple[int, ...], np.dtype[np.bool_]]
MANY = 0.01  # of a tensor's elements: so few may differ in a last bit, since a slice of a float64 product may
SLIGHT = 2.0**-6  # of the largest number: what a last bit may have grown to


def difference(found: Array, before: Array, memory: Memory) -> str | None:
    """What is wrong with a tensor, in words: `before` is what it held, `memory` what it must hold."""
    with np.errstate(all="ignore"):
        same = (found == memory.value) | (np.isnan(found) & np.isnan(memory.value))
        near = np.abs(found - memory.value) <= memory.error
        right = same | near | np.isinf(memory.error)
        kept = (found == before) | (np.isnan(found) & np.isnan(before))
    touched = ~memory.written & ~kept
    if touched.any():
        return f"{_count(touched)} elements were written that must not be, the first {_at(touched, found)}"
    wrong = memory.written & ~right
    if not wrong.any():
        return None
    unwritten = wrong & kept
    if unwritten.all() or (unwritten.any() and np.isnan(before[unwritten]).all()):
        return f"{_count(unwritten)} elements were not written, the first at {_place(unwritten)}"
    place = _first(wrong)
    limit = f"{memory.value[place]:.9g} +- {memory.error[place]:.3g}"
    return f"{_count(wrong)} elements are wrong, the first {_at(wrong, found)}, expected {limit}"


def disagreement(left: Array, right: Array, error: Array | None) -> str | None:
    """How plain and specialized results disagree: at all where nothing is rounded, else in more than a few bits."""
    with np.errstate(all="ignore"):
        other = ~((left == right) | (np.isnan(left) & np.isnan(right)))
    if not other.any():
        return None
    exact = other & (error == 0) if error is not None else np.zeros_like(other)
    if exact.any():
        return f"{_count(exact)} elements differ where nothing is rounded, the first {_pair(exact, left, right)}"
    with np.errstate(all="ignore"):
        size = np.nanmax(np.abs(left[np.isfinite(left)]), initial=0.0)
        large = other & ~(np.abs(left - right) <= SLIGHT * size)
    if other.sum() > max(2.0, MANY * other.size) or large.any():
        return f"{_count(other)} elements of plain and specialized differ, the first {_pair(other, left, right)}"
    return None


def _count(which: Truths) -> str:
    return f"{int(which.sum())} of {which.size}"


def _first(which: Truths) -> tuple[int, ...]:
    return tuple(int(index) for index in np.unravel_index(int(np.argmax(which)), which.shape))


def _place(which: Truths) -> str:
    return str(list(_first(which)))


def _at(which: Truths, values: Array) -> str:
    return f"at {_place(which)}: {values[_first(which)]:.9g}"


def _pair(which: Truths, left: Array, right: Array) -> str:
    return f"at {_place(which)}: {left[_first(which)]:.9g} and {right[_first(which)]:.9g}"

"""Where in memory the elements of an argument lie, and whether two arguments share some of them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch
from triton.tools.tensor_descriptor import TensorDescriptor

_STEPS = 200  # places looked at before two tensors are taken to overlap


@dataclass(frozen=True, slots=True)
class Span:
    """The elements of a tensor, or of the part of one that a descriptor reaches. Strides are in bytes."""

    start: int  # address of the first byte
    end: int  # of the byte behind the last one; `start` where there are no elements
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    size: int  # bytes of an element


def span_of(argument: Any) -> Span | None:
    """Where a tensor, a descriptor or what looks like a tensor lies; None for what does not say where it ends."""
    try:
        if isinstance(argument, TensorDescriptor):
            base, shape, strides = argument.base, argument.shape, argument.strides
        else:
            base, shape, strides = argument, argument.shape, argument.stride()
        size = int(base.element_size())
        start = int(base.data_ptr())
        return _span(start, tuple(map(int, shape)), tuple(int(stride) * size for stride in strides), size)
    except (AttributeError, TypeError):
        return None


def _span(start: int, shape: tuple[int, ...], strides: tuple[int, ...], size: int) -> Span:
    if 0 in shape:
        return Span(start, start, shape, strides, size)
    reach = sum((count - 1) * stride for count, stride in zip(shape, strides, strict=True))
    return Span(start, start + reach + size, shape, strides, size)


def _elements(descriptor: Any) -> int:
    found = 1
    for size, stride in zip(descriptor.shape, descriptor.strides):  # noqa: B905  # every call counts
        found += (size - 1) * stride
    return int(found)


class Reach:
    """What one argument of many launches spans. Its shape seldom changes, and it is asked at every launch."""

    def __init__(self) -> None:
        self._seen: tuple[Any, Any, int] = (None, None, 0)  # a descriptor's shape, strides, and bytes that it reaches

    def bounds(self, argument: Any) -> tuple[int, int]:
        """The first address of an argument and the one behind its last; all of memory for what does not say."""
        kind = type(argument)
        if kind is TensorDescriptor:
            base, seen = argument.base, self._seen
            if argument.shape != seen[0] or argument.strides != seen[1]:
                seen = self._look(argument)
            start = base.data_ptr()
            return start, start + seen[2]
        if (kind is torch.Tensor or isinstance(argument, torch.Tensor)) and argument.is_contiguous():
            start = argument.data_ptr()
            return start, start + argument.nbytes
        span = span_of(argument)
        return (0, 1 << 64) if span is None else (span.start, span.end)

    def _look(self, descriptor: Any) -> tuple[Any, Any, int]:
        shape, strides = descriptor.shape, descriptor.strides
        elements = _elements(descriptor)
        shape, strides = [value[:] if type(value) is list else value for value in (shape, strides)]
        self._seen = shape, strides, elements * descriptor.base.itemsize
        return self._seen


def share(one: Any, other: Any) -> bool:
    """May two arguments have bytes in common? Exact for tensors of ordinary strides, such as views of one tensor."""
    a, b = span_of(one), span_of(other)
    if a is None or b is None:
        return True
    if a.start >= b.end or b.start >= a.end:
        return False
    return _meet(b.start - a.start, a.shape, a.strides, a.size, b.shape, b.strides, b.size)


@lru_cache(maxsize=1024)
def _meet(
    distance: int,
    shape: tuple[int, ...],
    strides: tuple[int, ...],
    size: int,
    other_shape: tuple[int, ...],
    other_strides: tuple[int, ...],
    other_size: int,
) -> bool:
    """Is there an element of each, so that the two have a byte in common?

    That is a sum of multiples of strides, forwards in one tensor and backwards in the other, and of bytes inside the
    elements, which is `distance`. Strides are tried from the longest on; what all shorter ones can still make up
    leaves few multiples to try.
    """
    each = [(stride, 0, count - 1) for stride, count in zip(strides, shape, strict=True)]
    each += [(stride, 1 - count, 0) for stride, count in zip(other_strides, other_shape, strict=True)]
    each.append((1, 1 - other_size, size - 1))
    ranges: dict[int, tuple[int, int]] = {}  # stride -> how often it may be taken, of both tensors together
    for stride, low, high in each:
        before = ranges.get(stride, (0, 0))
        ranges[stride] = before[0] + low, before[1] + high
    terms = sorted(((stride, *ends) for stride, ends in ranges.items() if stride and ends != (0, 0)), reverse=True)
    if any(stride < 0 for stride, _, _ in terms):
        return True
    least, most = [0], [0]  # what the last terms make up
    for stride, low, high in reversed(terms):
        least.append(least[-1] + stride * low)
        most.append(most[-1] + stride * high)
    pending, steps = [(distance, len(terms))], 0
    while pending:
        rest, left = pending.pop()
        if left == 0:
            if rest == 0:
                return True
            continue
        stride, low, high = terms[len(terms) - left]
        first = max(low, -((most[left - 1] - rest) // stride))
        last = min(high, (rest - least[left - 1]) // stride)
        steps += last - first + 1
        if steps > _STEPS:
            return True
        pending += [(rest - stride * times, left - 1) for times in range(first, last + 1)]
    return False

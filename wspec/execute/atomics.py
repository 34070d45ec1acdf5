"""What atomic operations do to one element: functions of what is in memory and the operand, by the IR's number."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch

from wspec.execute.elements import integer_of
from wspec.execute.minmax import maximum_number, minimum_number, unsigned_less, unsigned_maximum, unsigned_minimum

Combine = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


def _max(old: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    return maximum_number(old, value) if old.dtype.is_floating_point else torch.maximum(old, value)


def _min(old: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    return minimum_number(old, value) if old.dtype.is_floating_point else torch.minimum(old, value)


def _increase(old: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    """One more, and 0 after `value` (PTX: inc)."""
    return torch.where(unsigned_less(old, value), old + 1, torch.zeros_like(old))


def _decrease(old: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    """One less, and `value` after 0 or when above it (PTX: dec)."""
    return torch.where((old == 0) | unsigned_less(value, old), value, old - 1)


def _bits(combine: Combine) -> Combine:
    """On the bits, whatever the type."""

    def run(old: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        if not old.dtype.is_floating_point:
            return combine(old, value)
        word = integer_of(old.dtype)
        return combine(old.view(word), value.view(word)).view(old.dtype)

    return run


# tt.atomic_rmw's atomic_rmw_op
RMW: Mapping[int, Combine] = {
    1: _bits(torch.bitwise_and),
    2: _bits(torch.bitwise_or),
    3: _bits(torch.bitwise_xor),
    4: torch.add,
    5: torch.add,
    6: _max,
    7: _min,
    8: unsigned_maximum,
    9: unsigned_minimum,
    10: lambda old, value: value,
}

# tt.descriptor_reduce's and ttng.async_tma_reduce's kind, of signed and of unsigned elements
_REDUCE: dict[int, Combine] = {
    1: torch.add,
    2: _min,
    3: _max,
    4: _increase,
    5: _decrease,
    6: _bits(torch.bitwise_and),
    7: _bits(torch.bitwise_or),
    8: _bits(torch.bitwise_xor),
}
REDUCE: Mapping[bool, Mapping[int, Combine]] = {
    True: _REDUCE,
    False: {**_REDUCE, 2: unsigned_minimum, 3: unsigned_maximum},
}

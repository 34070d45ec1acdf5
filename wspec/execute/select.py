"""Selecting element by element."""

from __future__ import annotations

import torch

from wspec.execute.context import Item
from wspec.execute.elements import FP8, from_raw, raw


def select(condition: torch.Tensor | int, first: Item, second: Item) -> Item:
    """`first` where the condition is true; a scalar condition chooses whatever the two are."""
    if not isinstance(condition, torch.Tensor):
        return first if condition else second
    if first.dtype in FP8:  # torch cannot
        return from_raw(torch.where(condition, raw(first), raw(second)), first.dtype)
    return torch.where(condition, first, second)

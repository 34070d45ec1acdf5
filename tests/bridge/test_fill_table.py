"""The kernel that writes tables of tiles, on Triton's interpreter, against what numpy makes."""

from __future__ import annotations

import random
from typing import Any

import pytest
import torch
from triton.runtime.interpreter import InterpretedFunction

from wspec.bridge import fill_table
from wspec.tile_scheduler import Order, ordered_table


@pytest.fixture
def fill(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The kernel, interpreted."""
    return InterpretedFunction(fill_table.fill_table.fn)


def written(fill: Any, order: Order, grid: tuple[int, int, int], coarsening: int, axis: int) -> list[int]:
    table = torch.full((fill_table.words(order),), 99, dtype=torch.int32)
    constants = {"BLOCK": 256}
    numbers = fill_table.numbers(order, grid, coarsening, axis)
    fill[(fill_table.programs(order),)](table, *numbers, **constants)
    return table.tolist()


@pytest.mark.parametrize("seed", range(12))
def test_it_writes_what_numpy_makes(fill: Any, seed: int) -> None:
    draw = random.Random(seed)
    sizes = draw.randint(1, 40), draw.randint(1, 9), draw.randint(1, 3)
    coarsening, axis = draw.choice([1, 1, 2, 3]), draw.randint(0, 2)
    grid = tuple(
        size * coarsening - draw.randint(0, coarsening - 1) if at == axis else size for at, size in enumerate(sizes)
    )
    along = draw.choice([None, 0, 1, 2])
    order = Order(sizes, draw.randint(1, 30), along, along is not None and draw.random() < 0.5)
    expected = ordered_table(order, grid, coarsening, axis)
    assert written(fill, order, grid, coarsening, axis) == expected.tolist()

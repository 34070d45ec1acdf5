"""The kernel that writes tables of tiles, on Triton's interpreter, against what numpy makes."""

from __future__ import annotations

import math
import random
from typing import Any

import pytest
import torch
import triton
from triton.compiler import ASTSource
from triton.runtime.interpreter import InterpretedFunction

from wspec.bridge import HOPPER, fill_table
from wspec.bridge.text import generic_text, reparse
from wspec.execute import Kernel
from wspec.ir import read
from wspec.tile_scheduler import SLOTS, Division, Numbering, Order, coarse, ordered_table
from wspec.tile_scheduler.division import divided_table
from wspec.tile_scheduler.launch import flat


@pytest.fixture
def fill(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The kernel, interpreted, and what it calls."""
    for name in ("_before", "_rank", "_ranked", "_common", "_in_window", "_numbered", "_write_header"):
        monkeypatch.setattr(fill_table, name, InterpretedFunction(getattr(fill_table, name).fn))
    return InterpretedFunction(fill_table.fill_table.fn)


def drawn_numbering(draw: random.Random, tiles: int) -> Numbering | None:
    """Of planes that so many tiles are one or several of."""
    shared, kept = draw.choice(
        [(a, b) for a in range(1, tiles + 1) for b in range(1, tiles // a + 1) if not tiles % (a * b)]
    )
    down = draw.random() < 0.5
    return draw.choice([None, Numbering(shared, kept, draw.randint(1, shared if down else kept), down)])


def written(fill: Any, order: Order, grid: tuple[int, int, int], coarsening: int, axis: int) -> list[int]:
    table = torch.full((fill_table.words(order),), 99, dtype=torch.int32)
    constants = {"BLOCK": 256}
    numbers = fill_table.numbers(order, fill_table.Grids(grid, (0, 0, 0), 1, 0), order.blocks, coarsening, axis)
    fill[(fill_table.programs(order), 1)](table, *numbers, **constants)
    return table.tolist()


@pytest.mark.parametrize("seed", range(36))
def test_it_writes_what_numpy_makes(fill: Any, seed: int) -> None:
    draw = random.Random(seed)
    sizes = draw.randint(1, 40), draw.randint(1, 9), draw.randint(1, 3)
    coarsening, axis = draw.choice([1, 1, 2, 3]), draw.randint(0, 2)
    grid = tuple(
        size * coarsening - draw.randint(0, coarsening - 1) if at == axis else size for at, size in enumerate(sizes)
    )
    along = draw.choice([None, 0, 1, 2])
    blocks = min(draw.randint(1, 30), math.prod(sizes))
    order = Order(sizes, blocks, along, along is not None and draw.random() < 0.5, draw.random() < 0.5)
    if along is None and coarsening == 1:
        order = order._replace(numbering=drawn_numbering(draw, math.prod(sizes)))
    expected = ordered_table(order, grid, coarsening, axis)
    assert written(fill, order, grid, coarsening, axis) == expected.tolist()


@pytest.mark.parametrize(("sizes", "blocks"), [((2, 40, 3), 17), ((3, 30, 4), 25), ((2, 50, 2), 30)])
@pytest.mark.parametrize("rising", [False, True])
def test_blocks_move_on_in_rows(fill: Any, sizes: tuple[int, int, int], blocks: int, rising: bool) -> None:
    order = Order(sizes, blocks, 0, rising)
    row, block, _ = order.places()
    assert order.window[0] == blocks and block[row == 2].tolist() != block[row == 0].tolist()
    assert written(fill, order, sizes, 1, 0) == ordered_table(order, sizes, 1, 0).tolist()


@pytest.mark.parametrize("seed", range(6))
def test_it_writes_tables_of_neighbours_at_once(fill: Any, seed: int) -> None:
    """Of grids that go by steps on an axis, some of which have fewer tiles than there are blocks at a time."""
    draw = random.Random(seed)
    x, y, z, count, slots = draw.randint(1, 30), draw.randint(1, 5), draw.randint(1, 3), 4, draw.randint(2, 60)
    coarsening, axis, along = draw.choice([1, 3]), draw.randint(0, 2), draw.choice([None, 0, 1])
    by = draw.choice([(1, 0, 0), (3, 0, 0), (0, 2, 0), (0, 0, 1)])
    grids = [(x + at * by[0], y + at * by[1], z + at * by[2]) for at in range(count)]
    sizes = [coarse(grid, coarsening, axis) for grid in grids]
    rising, shared = along is not None and seed % 2 == 0, draw.random() < 0.5
    orders = [Order(one, min(slots, math.prod(one)), along, rising, shared) for one in sizes]
    apart = fill_table.words(orders[-1]) + 32
    found = torch.full((count * apart,), 99, dtype=torch.int32)
    row = fill_table.Grids(grids[0], by, count, apart)
    numbers = fill_table.numbers(orders[-1], row, slots, coarsening, axis)
    fill[(fill_table.programs(orders[-1]), count)](found, *numbers, BLOCK=256)
    for at, (order, grid) in enumerate(zip(orders, grids, strict=True)):
        expected = ordered_table(order, grid, coarsening, axis).tolist()
        mine = found[at * apart : (at + 1) * apart].tolist()
        assert mine[: len(expected)] == expected and set(mine[len(expected) :]) <= {99}


@pytest.fixture(scope="module")
def divide() -> Kernel:
    """The kernel that writes tables of divided tiles, as Triton compiles it."""
    signature = {"table_ptr": "*i32", **dict.fromkeys(fill_table.DIVIDED, "i32")}
    constants = {"SLOTS": SLOTS, "SOME": fill_table.SOME}
    source = ASTSource(fill_table.fill_divided, {**signature, **dict.fromkeys(constants, "constexpr")}, constants)
    compiled = triton.compile(source, target=HOPPER, options={"num_warps": 4})
    return Kernel(read(generic_text(reparse(compiled.asm["ttgir"]))))


@pytest.mark.parametrize("seed", range(40))
def test_it_divides_as_numpy_does(divide: Kernel, seed: int) -> None:
    draw = random.Random(seed)
    blocks, shortest = draw.choice([2, 5, 31, 32, 33, 132, 256, draw.randint(2, 132)]), draw.choice([1, 4])
    trips = draw.choice([2 * shortest, draw.randint(2 * shortest, 40), draw.randint(100, 5000)])
    y, z = draw.choice([(1, 1), (draw.randint(1, 4), draw.randint(1, 3))])
    x = draw.randint(blocks // (y * z) + 1, 5 * blocks // (y * z) + 2)
    how = Division(x * y * z, trips, blocks, shortest)
    numbering = drawn_numbering(draw, x * y * z)
    table = divided_table((z, y, x), trips, blocks, shortest, numbering)
    assert how.is_one == (table is not None)
    if table is None:
        return
    expected = flat((x, y, z), table, 1, 0)
    found = torch.full((how.words,), 99, dtype=torch.int32)
    given = fill_table.divided_numbers(how, fill_table.Grids((x, y, z), (0, 0, 0), 1, 0), numbering)
    given = dict(zip(fill_table.DIVIDED, given, strict=True))
    divide.run((fill_table.divided_programs(how), 1, 1), {"table_ptr": found, **given})
    assert found.tolist() == expected.tolist()


@pytest.mark.parametrize("seed", range(10))
def test_it_divides_for_a_row_of_grids(divide: Kernel, seed: int) -> None:
    """Those of which no tile can be divided, among them ones of few tiles, harm no other table."""
    draw = random.Random(seed)
    blocks, trips, count = draw.choice([2, 5, 33, 132]), draw.randint(8, 100), 5
    by = draw.choice([(1, 0, 0), (4, 0, 0), (0, 1, 0)])
    first = draw.randint(1, blocks), draw.randint(1, 3), 1
    grids = [(first[0] + at * by[0], first[1] + at * by[1], 1) for at in range(count)]
    ways = [Division(math.prod(grid), trips, blocks) for grid in grids]
    apart = max(how.words for how in ways) + 8
    found = torch.full((count * apart,), 99, dtype=torch.int32)
    given = fill_table.divided_numbers(ways[-1], fill_table.Grids(first, by, count, apart))
    given = dict(zip(fill_table.DIVIDED, given, strict=True))
    divide.run((fill_table.divided_programs(ways[-1]), count, 1), {"table_ptr": found, **given})
    for at, (how, grid) in enumerate(zip(ways, grids, strict=True)):
        mine = found[at * apart : (at + 1) * apart].tolist()
        if how.is_one:
            table = divided_table(grid[::-1], trips, blocks)
            assert table is not None and mine[: how.words] == flat(grid, table, 1, 0).tolist()
        assert set(mine[how.words :]) == {99}

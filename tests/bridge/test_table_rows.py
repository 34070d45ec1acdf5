"""Which grids have their tables written at once."""

from __future__ import annotations

import weakref
from typing import Any

import pytest

from wspec.bridge.fill_table import ENTRY, ENTRY_CYCLES
from wspec.bridge.table_rows import ROW_BYTES, WRITING, Rows, longest
from wspec.model.machine import parse, text_of

PLACE, ALONG_X = (0, 7), (0, 1)
BYTES = 4 * ENTRY


class Entry:
    """Tables, of which a weak reference may be had."""


def test_writing_the_shortest_row_takes_a_tenth_of_what_a_table_costs_the_host() -> None:
    """At the highest clock of the card, some 50 us of the host (docs/results/launches.md)."""
    machine = parse(text_of("h200"), "h200")
    cycles = ROW_BYTES / BYTES * ENTRY_CYCLES / machine["sm"]["count"]
    assert cycles / machine["measured"]["clock"]["light_mhz"]["value"] <= 50 / 10


@pytest.mark.parametrize("entries", [5, 35, 500, 4624])
def test_how_long_a_row_may_be(entries: int) -> None:
    """As many bytes whatever the launch; more where they are a small part of it, but no more than that."""
    assert longest(entries, 0.0, 32 << 20) == ROW_BYTES // BYTES // entries
    cycles = 10 * ROW_BYTES / BYTES * ENTRY_CYCLES / WRITING
    assert longest(entries, cycles, 32 << 20) == 10 * ROW_BYTES // BYTES // entries
    assert longest(entries, 1e15, 32 << 20) == (32 << 20) // BYTES // entries


def ranges(most: int, axis: int = 0, size: int = 1, more: int = 0) -> list[tuple[int, int, int]]:
    """Of all grids up to 64 steps the octave, the row's number, and the first step of the row."""
    rows, found = Rows(), []
    for number in range(1, 65):
        grid = [3, 3, 3]
        grid[axis] = number * size + more
        made = rows.row(PLACE, (grid[0], grid[1], grid[2]), (axis, size), "what", lambda *_: most)
        if made is not None:
            octave, nth, many, at = made
            assert 0 <= at < many <= octave.count <= max(1, most)
            found.append((octave.least, nth, number - at))
    return found


def test_an_octave_ends_with_a_power_of_two() -> None:
    found = ranges(1000)
    assert len(found) == 63, "a grid of one step is alone"
    assert sorted(set(found)) == [(1 + (1 << at), 0, 1 + (1 << at)) for at in range(6)]


def test_an_octave_is_cut_evenly() -> None:
    """Rows meet each other, and are as long as they may be or a little shorter."""
    found = [first for least, _, first in ranges(13) if least == 33]
    assert sorted(set(found)) == [33, 44, 55] and found.count(33) == found.count(44) == 11


def test_large_tables_are_alone() -> None:
    assert ranges(1) == ranges(0) and [first for _, _, first in ranges(0)] == list(range(2, 65))


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_rows_of_every_axis_and_step(axis: int) -> None:
    assert ranges(13) == ranges(13, axis, 5, 2)


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_what_is_found(axis: int) -> None:
    """The grids of one row, in the stream where it was written, as long as it is kept."""
    rows, entry, step = Rows(), Entry(), (axis, 2)

    def grid(number: int, more: int = 0) -> Any:
        return tuple(2 * number + more if at == axis else 3 for at in range(3))

    made = rows.row(PLACE, grid(40), step, "what", lambda *_: 16)
    assert made is not None and made[2:] == (16, 7)
    assert rows.find(PLACE, grid(40), step, "what") is None, "nobody has written it yet"
    made[0].rows[made[1]] = weakref.ref(entry)
    assert [at for at in range(70) if rows.find(PLACE, grid(at), step, "what")] == list(range(33, 49))
    assert rows.find(PLACE, grid(40), step, "what") == (entry, 7)
    assert rows.find_any(PLACE, grid(40), [ALONG_X, step, (1, 9)], "what") == (entry, 7)
    others = (
        ((0, 8), grid(40), step, "what"), ((1, 7), grid(40), step, "what"), (PLACE, grid(40, 1), step, "what"),
        (PLACE, grid(40), (axis, 1), "what"), (PLACE, grid(40), step, "other"),
    )  # fmt: skip
    assert [rows.find(*one) for one in others] == [None] * 5
    del entry
    assert rows.find(PLACE, grid(40), step, "what") is None

"""The launcher's part of blocks that walk through tiles, with a device that the test makes up."""

from __future__ import annotations

import ctypes
import math
import random
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from wspec.bridge import persistent, table_memory, table_rows
from wspec.bridge import workspace as partials
from wspec.bridge.fill_table import Grids
from wspec.bridge.persistent import Tables, slots_of
from wspec.decision import Decision
from wspec.lab.persistent_launch import even_table
from wspec.tile_scheduler import (
    LoopCost,
    Raster,
    StreamK,
    TileCost,
    TileLoop,
    coarse,
    divided_launch,
    launch_table,
    ordered_table,
)
from wspec.tile_scheduler.costs import Trips
from wspec.tile_scheduler.division import divided_table
from wspec.tile_scheduler.launch import flat
from wspec.tile_scheduler.names import SLOTS, WORDS
from wspec.tile_scheduler.scalars import Scalar

SMS, STREAM = 3, 77


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> Iterator[SimpleNamespace]:
    """A GPU of three SMs whose memory is the CPU's; `capturing` says whether its stream records a graph.

    `over` says whether the card has done all it was given, `filled` counts tables that it wrote.
    """
    card = SimpleNamespace(current=0, capturing=False, over=True, filled=0, divided=0, entered=[], most_words=1 << 30)

    class Filler:
        def fill(self, address: int, order: Any, row: Grids, slots: int, coarsening: int, axis: int, _: int) -> None:
            card.filled += 1
            for at, grid in enumerate(grids_of(row)):
                sizes = coarse(grid, coarsening, axis)
                table = ordered_table(order._replace(sizes=sizes, blocks=blocks(sizes, slots)), grid, coarsening, axis)
                put(address + 4 * row.apart * at, table)

        def divide(self, address: int, how: Any, row: Grids, _: int, numbering: Any = None) -> None:
            card.divided += 1
            for at, grid in enumerate(grids_of(row)):
                table = divided_table(grid[::-1], how.trips, how.blocks, how.shortest, numbering)
                if table is not None:
                    put(address + 4 * row.apart * at, flat(grid, table, 1, 0))

    def empty(words: int, **named: Any) -> torch.Tensor:
        if words > card.most_words:
            raise torch.cuda.OutOfMemoryError
        return torch.empty(words, **named)

    cuda = SimpleNamespace(
        current_device=lambda: card.current,
        is_current_stream_capturing=lambda: card.capturing,
        current_stream=lambda _: SimpleNamespace(cuda_stream=STREAM),
        ExternalStream=lambda stream, _: stream,
        stream=lambda stream: nullcontext(card.entered.append(stream)),
        OutOfMemoryError=torch.cuda.OutOfMemoryError,
    )
    stand_in = SimpleNamespace(
        cuda=cuda, device=lambda *_: torch.device("cpu"), from_numpy=torch.from_numpy, empty=empty, int32=torch.int32
    )  # fmt: skip
    monkeypatch.setattr(persistent, "torch", stand_in)
    monkeypatch.setattr(persistent, "multiprocessors", lambda _: SMS)
    monkeypatch.setattr(persistent, "filler", lambda _: Filler())
    monkeypatch.setattr(
        persistent, "mark", lambda *_: SimpleNamespace(record=lambda _: None, is_over=lambda: card.over)
    )
    monkeypatch.setattr(torch.Tensor, "pin_memory", lambda self: self)
    yield card


def put(address: int, table: Any) -> None:
    ctypes.memmove(address, table.ctypes.data, table.nbytes)


def grids_of(row: Grids) -> list[Any]:
    return [tuple(first + at * by for first, by in zip(row.first, row.by, strict=True)) for at in range(row.many)]


def blocks(sizes: tuple[int, int, int], slots: int) -> int:
    return min(slots, math.prod(sizes))


def tables(tiles: TileLoop | None = None, signature: dict[str, Any] | None = None, blocks_per_sm: int = 1) -> Tables:
    return Tables(tiles or TileLoop(TileCost(1.0)), slots_of(signature or {}), blocks_per_sm)


def read(found: Tables, key: tuple[Any, ...]) -> list[int]:
    table = found.known[key]
    rows = ctypes.c_int32.from_address(table.address).value
    return list((ctypes.c_int32 * (8 + 8 * rows * table.blocks)).from_address(table.address))


# -------------------------------------------------------------------------------------------------- slots


def test_where_arguments_come_from() -> None:
    """As Triton passes them: a descriptor is its address, its shape and its strides; constants are not passed."""
    kinds = {"d": "tensordesc<bf16[1, 64, 128]>", "n": "i32", "B": "constexpr", "p": "*fp32", "x": "fp32", "k": "u64"}
    shape = [(0, "shape", axis) for axis in range(3)]
    stride = [(0, "stride", axis) for axis in range(3)]
    assert slots_of(kinds) == [None, *shape, *stride, (1, "value", 0), None, None, (5, "value", 0)]


def test_no_arguments() -> None:
    assert slots_of({}) == [] and slots_of({"B": "constexpr"}) == []


def argument(position: int) -> TileLoop:
    """A loop over an argument: the later it ends the longer the tile takes."""
    scalars = Scalar("constant", 32, (), 0), Scalar("argument", 32, (), position), Scalar("constant", 32, (), 64)
    return TileLoop(TileCost(1.0, (LoopCost(4, 10.0, (Trips(0, 1, 2),)),), scalars))


@pytest.mark.parametrize(("position", "value"), [(1, 50), (2, 60), (3, 7), (4, 8), (5, 9)])
def test_the_values_that_decide(device: SimpleNamespace, position: int, value: int) -> None:
    signature = {"d": "tensordesc<bf16[64, 64]>", "n": "i32"}
    found = tables(argument(position), signature)
    found.get(STREAM, (2, 1, 1), (SimpleNamespace(shape=(50, 60), strides=(7, 8)), 9))
    assert list(found.known) == [(0, STREAM, (2, 1, 1), (value,))]


# ------------------------------------------------------------------------------------------------- tables


@pytest.mark.parametrize(("grid", "per_sm", "blocks"), [((10, 1, 1), 1, 3), ((10, 1, 1), 2, 6), ((2, 1, 1), 2, 2)])
def test_as_many_blocks_as_fit(device: SimpleNamespace, grid: tuple[int, int, int], per_sm: int, blocks: int) -> None:
    found = tables(blocks_per_sm=per_sm)
    entry, table = found.get(STREAM, grid, ())
    assert table.blocks == blocks and list(found.entries.values()) == [entry] and table.whole is None
    assert read(found, (0, STREAM, grid, ())) == even_table(grid, blocks)[1].tolist(), "tiles of equal cost go around"


def test_a_launch_like_one_before_makes_nothing(device: SimpleNamespace) -> None:
    found = tables(argument(0), {"n": "i32"})
    first = found.get(STREAM, (8, 2, 1), (640,))
    assert found.get(STREAM, (8, 2, 1), (640,)) == first and device.filled == 1


def test_what_a_table_depends_on(device: SimpleNamespace) -> None:
    found = tables(argument(0), {"n": "i32", "other": "i32"})
    found.get(STREAM, (8, 2, 1), (640, 1))
    found.get(STREAM, (8, 2, 1), (640, 2))
    assert len(found.known) == 1, "not on what does not decide how long a tile takes"
    found.get(STREAM, (8, 2, 1), (64, 1))
    assert len(found.entries) == 1, "nor on that where the order is the same"
    found.get(STREAM, (8, 1, 2), (640, 1))
    device.current = 1
    found.get(STREAM, (8, 2, 1), (640, 1))
    assert len(found.entries) == 3 and device.filled == 3


def test_streams_have_tables_of_their_own(device: SimpleNamespace) -> None:
    """One is written in the order of its stream: nobody else knows when."""
    found = tables()
    one, other = found.get(STREAM, (5, 1, 1), ()), found.get(78, (5, 1, 1), ())
    assert one[1].address != other[1].address and device.entered == [78], "memory belongs to the stream of the launch"
    assert found.get(78, (5, 1, 1), ()) == other
    found.get(partials.PER_THREAD, (5, 1, 1), ())
    assert len(found.entries) == 2, "each thread has another stream of that handle"


def test_old_tables_go_when_there_is_too_much(device: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> None:
    """Their memory goes back in the order of the stream: nothing waits for the card."""
    monkeypatch.setattr(table_memory, "FIRST_BYTES", 1024)
    monkeypatch.setattr(table_memory, "MOST_BYTES", 2048)
    monkeypatch.setattr(persistent, "KEPT_BYTES", 4096)
    found = tables()
    held, _ = found.get(STREAM, (1, 1, 1), ())
    sizes = range(1, 20)  # of 128 to 1,024 bytes
    for size in sizes:
        found.get(STREAM, (size, 1, 1), ())
        assert found.memory.bytes <= 4096 and list(found.entries)[-1][2][0] == size
    left = [kind[2][0] for kind in found.entries]
    assert left == list(sizes)[-len(left) :] and 2 < len(left) < 19
    for size in left:
        assert read(found, (0, STREAM, (size, 1, 1), ())) == even_table((size, 1, 1), min(size, SMS))[1].tolist()
    header = (ctypes.c_int32 * 4).from_address(held.address)
    assert list(header) == [2, 1, 1, 1], "memory that a launch still holds stays"


def falling(coarsening: int) -> TileLoop:
    """Argument 0 less the tile's number, by 64 iterations a tile; so many tiles of a block at a time."""
    scalars = (
        Scalar("constant", 32, (), 0), Scalar("argument", 32, (), 0), Scalar("constant", 32, (), 64),
        Scalar("program_id", 32, (), 0), Scalar("muli", 32, (3, 2)), Scalar("subi", 32, (1, 4)),
    )  # fmt: skip
    return TileLoop(TileCost(1.0, (LoopCost(4, 10.0, (Trips(0, 5, 2),)),), scalars), coarsening, 0)


def in_raster(tiles: TileLoop) -> TileLoop:
    """Of tiles that a grid numbers four down, then to the right as far as argument 0 goes by 64."""
    scalars = (
        Scalar("program_id", 32, (), 0), Scalar("argument", 32, (), 0), Scalar("constant", 32, (), 16),
        Scalar("constant", 32, (), 4), Scalar("divsi", 32, (1, 2)), Scalar("remsi", 32, (0, 4)),
        Scalar("divsi", 32, (5, 3)), Scalar("divsi", 32, (0, 4)), Scalar("muli", 32, (7, 3)),
        Scalar("remsi", 32, (5, 3)), Scalar("addi", 32, (8, 9)),
    )  # fmt: skip
    return replace(tiles, raster=Decision(Raster(10, 6, scalars, 4, 2048, 1024, 1 << 20)))


def is_right(found: Tables, table: Any, grid: tuple[int, int, int], value: int = 4096) -> bool:
    """What numpy makes for the launch, with tiles divided if they are?"""
    loop = found.tiles
    made = divided_launch(loop, grid, {0: value}, SMS) if table.whole else None
    count, expected = made or launch_table(loop, grid, {0: value}, SMS)
    return table.blocks == count and ctypes.string_at(table.address, expected.nbytes) == expected.tobytes()


@pytest.mark.parametrize("loop", [TileLoop(TileCost(1.0)), falling(1), falling(3)])
def test_tables_of_a_row_are_written_at_once(device: SimpleNamespace, loop: TileLoop) -> None:
    """Each is the one that it would be alone, the first ones of fewer tiles than there are blocks too. A row ends at
    a power of two."""
    found, written = tables(loop, {"n": "i32"}), []
    values = (4096,) if loop.cost.parameters else ()
    for x in (9, 16, 12, 10, 17, 32, 3, 4, 9, 1, 2, 8):
        assert is_right(found, found.of((0, STREAM, (x, 2, 1), values), (0, 1))[1], (x, 2, 1))
        written.append(device.filled)
    assert written == [1, 1, 1, 1, 2, 2, 3, 3, 3, 4, 5, 6]
    found.of((0, STREAM, (9, 3, 1), values), (0, 1))
    found.of((0, 5, (9, 2, 1), values), (0, 1))
    assert device.filled == 8, "another axis, another stream"
    known = found.of((0, STREAM, (9, 2, 1), values), (0, 1))
    assert found.get(STREAM, (9, 2, 1), (4096,)) == known and device.filled == 8, "whoever asks"


@pytest.mark.parametrize("seed", range(30))
def test_every_launch_has_its_own_table(device: SimpleNamespace, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    """Whatever the steps, whoever asked for others before, and whatever was thrown out meanwhile."""
    draw = random.Random(seed)
    monkeypatch.setattr(table_rows, "ROW_BYTES", draw.choice([1, 2048, 16384, 1 << 20]))
    monkeypatch.setattr(persistent, "KEPT_BYTES", draw.choice([8192, 1 << 20]))
    monkeypatch.setattr(table_memory, "FIRST_BYTES", 1024)
    monkeypatch.setattr(table_memory, "MOST_BYTES", 2048)
    loops = [TileLoop(TileCost(1.0)), falling(1), falling(3), divided_loop(), up_and_down()]
    loops += [in_raster(TileLoop(TileCost(1.0))), in_raster(divided_loop())]
    found = tables(loops[seed % len(loops)], {"n": "i32"})
    steps = [None, *((draw.randint(0, 2), draw.randint(1, 5)) for _ in range(3))]
    for _ in range(200):
        grid = draw.choice([draw.randint(1, 40), 40, 80]), draw.choice([1, 2, 6, 7]), draw.choice([1, 1, 4, 5])
        value = draw.choice([640, 1280])
        key = 0, STREAM, grid, (value,) if found.tiles.parameters else ()
        held, table = found.of(key, step) if (step := draw.choice(steps)) else found.get(STREAM, grid, (value,))
        assert table.entry() is held and is_right(found, table, grid, value)


def test_tiles_in_raster_order_have_tables_of_their_own(device: SimpleNamespace) -> None:
    """One grid by numbers that say something else of its tiles; and no row is written, since of others it says less."""
    found = tables(in_raster(TileLoop(TileCost(1.0))), {"n": "i32"})
    made = [found.of((0, STREAM, (80, 1, 1), (n,)), (0, 1))[1] for n in (640, 320, 640, 656)]
    assert device.filled == 3 and made[0].address == made[2].address != made[1].address
    ours, theirs, _, none = (ctypes.string_at(one.address, 4 * 8 * 20) for one in made)
    assert len({ours, theirs, none}) == 3
    assert is_right(found, made[0], (80, 1, 1), 640) and is_right(found, made[1], (80, 1, 1), 320)
    assert none == launch_table(TileLoop(TileCost(1.0)), (80, 1, 1), {}, SMS)[1].tobytes()[: len(none)]


def test_a_row_waits_until_a_launch_stands_behind_the_writing(device: SimpleNamespace) -> None:
    found = tables()
    (first, _), (second, _) = (found.of((0, STREAM, (x, 1, 1), ()), (0, 1)) for x in (10, 9))
    assert first is second and not first.settled


def test_rows_of_large_tables_are_short(device: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table_rows, "ROW_BYTES", 1 << 15)
    found = tables()
    for x in (100, 101, 199, 200, 1000, 1001):
        found.of((0, STREAM, (x, 1, 1), ()), (0, 1))
    assert device.filled == 4 and found.memory.bytes < 1 << 18
    assert [(first[0], count) for _, _, first, count, *_ in found.entries] == [(100, 7), (198, 3), (1000, 1), (1001, 1)]


def test_a_row_that_there_is_no_memory_for_is_written_one_by_one(device: SimpleNamespace) -> None:
    """From then on, for asking in vain takes long; other rows are written as ever."""
    found = tables(falling(1), {"n": "i32"})
    device.most_words = table_memory.FIRST_BYTES // 4
    for x in (700, 701):
        assert is_right(found, found.of((0, STREAM, (x, 1, 1), (4096,)), (0, 1))[1], (x, 1, 1))
    assert [count for _, _, _, count, *_ in found.entries] == [1, 1]
    device.most_words = 1 << 30
    for x in (702, 703, 700, 1025, 1026):
        assert is_right(found, found.of((0, STREAM, (x, 1, 1), (4096,)), (0, 1))[1], (x, 1, 1))
    assert device.filled == 5


def test_rows_go_together(device: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table_memory, "FIRST_BYTES", 1024)
    monkeypatch.setattr(table_memory, "MOST_BYTES", 16384)
    monkeypatch.setattr(persistent, "KEPT_BYTES", 1 << 16)
    monkeypatch.setattr(table_rows, "ROW_BYTES", 1 << 15)
    found = tables()
    for x in range(8, 120):
        assert is_right(found, found.of((0, STREAM, (x, 1, 1), ()), (0, 1))[1], (x, 1, 1))
        assert found.memory.bytes <= 1 << 16
    kept = [first[0] for _, _, first, *_ in found.entries]
    assert kept == sorted(kept) and kept[0] > 8 and 1 < len(kept) < device.filled < 24


def test_a_graph_writes_its_own_table(device: SimpleNamespace) -> None:
    """The writing runs with the graph; it must not become the table of launches outside."""
    found = tables()
    device.capturing = True
    _, table = found.get(STREAM, (5, 1, 1), ())
    assert table.blocks == SMS and not found.entries and table.whole is None and device.filled == 1
    device.capturing = False
    found.get(STREAM, (5, 1, 1), ())
    assert len(found.entries) == 1 and device.filled == 2


def test_a_graph_takes_a_table_that_is_there(device: SimpleNamespace) -> None:
    """From then on it stays; not one whose writing the card may still have before it."""
    found = tables()
    known, table = found.get(STREAM, (5, 1, 1), ())
    in_row, other = found.of((0, STREAM, (9, 1, 1), ()), (0, 1))
    device.capturing, device.over = True, False
    assert found.get(99, (5, 1, 1), ())[1].address != table.address
    device.over = True
    assert found.get(99, (5, 1, 1), ())[1].address == table.address and found.captured == [known.memory]
    assert found.get(99, (9, 1, 1), ())[1].address == other.address and found.captured[1:] == [in_row.memory]
    assert found.get(99, (16, 1, 1), ())[1].address == in_row.address + 7 * in_row.apart, "another one of the row"
    assert found.get(99, (6, 1, 1), ())[1].address != table.address


def up_and_down() -> TileLoop:
    """A cost that no formula sorts: the middle tiles of an axis take longest."""
    scalars = (
        Scalar("constant", 32, (), 0), Scalar("program_id", 32, (), 0), Scalar("constant", 32, (), 9),
        Scalar("subi", 32, (2, 1)), Scalar("muli", 32, (1, 3)), Scalar("constant", 32, (), 1),
    )  # fmt: skip
    return TileLoop(TileCost(1.0, (LoopCost(4, 10.0, (Trips(0, 4, 5),)),), scalars))


def test_what_no_formula_says_is_copied(device: SimpleNamespace) -> None:
    found = tables(up_and_down())
    found.get(STREAM, (10, 2, 1), ())
    assert device.filled == 0
    assert read(found, (0, STREAM, (10, 2, 1), ())) == launch_table(up_and_down(), (10, 2, 1), {}, SMS)[1].tolist()
    device.capturing = True
    found.captured.clear()
    found.get(STREAM, (11, 2, 1), ())
    assert len(found.captured) == 1, "the graph copies it whenever it runs"


# ------------------------------------------------------------------------------------------------- launch


def test_the_launch_gets_blocks_and_table(device: SimpleNamespace) -> None:
    launches: list[tuple[Any, ...]] = []
    found = tables(argument(0), {"n": "i32"})
    run = persistent._over_tiles(never, lambda *args: launches.append(args), found)
    before = (STREAM, "function", "packed", "metadata", None, None)
    run(4, 2, 1, *before, 640)
    ((x, y, z, *rest),) = launches
    assert (x, y, z) == (SMS, 1, 1) and tuple(rest[:-1]) == (*before, 640)
    assert rest[-1] == found.known[0, STREAM, (4, 2, 1), (640,)].address


def never(*_: Any) -> None:
    raise AssertionError("this launch may not be made so")


def test_the_launch_behind_the_writing_of_a_table_does_not_start_early(device: SimpleNamespace) -> None:
    """Nor does one of another thread that comes in between, nor the one after a launch that failed."""
    how: list[str] = []
    found = tables(argument(0), {"n": "i32"})

    def behind(*_: Any) -> None:
        how.append("behind")
        if len(how) == 1:
            raise RuntimeError("of the driver")
        if len(how) == 2:
            run(4, 2, 1, *before, 640)

    run, before = persistent._over_tiles(lambda *_: how.append("early"), behind, found), (STREAM, *BEFORE[1:])
    with pytest.raises(RuntimeError):
        run(4, 2, 1, *before, 640)
    for _ in range(3):
        run(4, 2, 1, *before, 640)
    assert how == ["behind", "behind", "behind", "early", "early"]
    run(4, 3, 1, *before, 640)
    run(4, 2, 1, 78, *before[1:], 640)
    assert how[5:] == ["behind", "behind"], "a table for each size and stream"


def test_who_writes_a_table_at_each_launch_never_starts_early(device: SimpleNamespace) -> None:
    how: list[str] = []
    found = tables()
    run = persistent._over_tiles(lambda *_: how.append("early"), lambda *_: how.append("behind"), found)
    for _ in range(2):
        run(4, 2, 1, partials.PER_THREAD, *BEFORE[1:])
    device.capturing = True
    for _ in range(2):
        run(4, 2, 1, STREAM, *BEFORE[1:])  # the graph writes the table each time it runs
    assert how == ["behind"] * 4
    device.capturing = False
    run(4, 2, 1, STREAM, *BEFORE[1:])
    device.capturing = True
    run(4, 2, 1, STREAM, *BEFORE[1:])
    assert how[4:] == ["behind", "early"], "this one is there"


def test_an_empty_grid_launches_as_ever(device: SimpleNamespace) -> None:
    launches: list[tuple[Any, ...]] = []
    run = persistent._over_tiles(lambda *args: launches.append(args), never, tables())
    run(0, 3, 1, *range(6))
    assert launches == [(0, 3, 1, *range(6), 0)]


# ------------------------------------------------------------------------------------- sums on their way

BEFORE = (STREAM, "function", "packed", "metadata", None, None)  # 77: the stream


@pytest.fixture
def memory(device: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """The device's memory for sums, empty; `full` says that there is none left."""
    state = SimpleNamespace(full=False)

    def zeros(words: int, **_: Any) -> torch.Tensor:
        if state.full:
            raise torch.cuda.OutOfMemoryError
        return torch.zeros(words, dtype=torch.int32)

    cuda = SimpleNamespace(
        current_device=lambda: device.current,
        is_current_stream_capturing=lambda: device.capturing,
        OutOfMemoryError=torch.cuda.OutOfMemoryError,
    )

    def empty(words: int, **_: Any) -> torch.Tensor:
        return zeros(words) - 1

    device_of = {"int32": torch.int32, "device": lambda *_: torch.device("cpu")}
    monkeypatch.setattr(partials, "torch", SimpleNamespace(cuda=cuda, zeros=zeros, empty=empty, **device_of))
    monkeypatch.setattr(partials, "_made", {})
    return state


def divided_loop(sums: int = 64) -> TileLoop:
    """Argument 0 by 64 iterations a tile, divided wherever that can be."""
    return replace(argument(0), stream_k=Decision(StreamK(4, 0.0, sums)))


def launched(found: Tables, grid: int, stream: int = 77, n: int = 640) -> tuple[Any, ...]:
    launches: list[tuple[Any, ...]] = []
    note = lambda *args: launches.append(args)  # noqa: E731
    persistent._over_tiles(note, note, found)(grid, 1, 1, stream, *BEFORE[1:], n)
    ((x, _, _, *_, table, words),) = launches
    return x, table, words


def test_a_launch_that_divides_gets_memory_for_sums(memory: SimpleNamespace) -> None:
    found = tables(divided_loop(), {"n": "i32"})
    blocks, table, words = launched(found, 4)
    known = found.known[0, STREAM, (4, 1, 1), (640,)]
    assert known.whole is not None and (blocks, table) == (SMS, known.address)
    (made,) = partials._made.values()
    assert words == made.data_ptr() and made.numel() == SLOTS * WORDS + SMS * 64 and not made.any()


def test_a_launch_that_does_not_needs_none(memory: SimpleNamespace) -> None:
    found = tables(divided_loop(), {"n": "i32"})
    for grid in (2, SMS, 2 * SMS):
        _, table, words = launched(found, grid)
        assert (table, words) == (found.known[0, STREAM, (grid, 1, 1), (640,)].address, 0)
    assert not partials._made


def test_kernels_of_a_stream_share_the_memory_and_streams_do_not(memory: SimpleNamespace) -> None:
    one, two = tables(divided_loop(), {"n": "i32"}), tables(divided_loop(32), {"n": "i32"})
    for found, grid, stream in ((one, 4, 77), (two, 5, 77), (one, 4, 78)):
        launched(found, grid, stream)
    first = launched(one, 4)[2]
    assert first and launched(two, 5)[2] == first and launched(one, 4, stream=78)[2] != first
    more = tables(divided_loop(128), {"n": "i32"})
    launched(more, 4)
    launched(more, 4)
    assert partials._made[0, 77].numel() == SLOTS * WORDS + SMS * 128, "larger where a kernel needs more"


def tiles_at(table: int) -> int:
    """How many whole tiles the table has that lies there."""
    rows = ctypes.c_int32.from_address(table).value
    entries = (ctypes.c_int32 * (8 * rows * SMS)).from_address(table + 32)
    assert all(entries[at + 6] == -1 == entries[at + 7] for at in range(0, len(entries), 8))
    return sum(entries[8 * rows * block + 3] for block in range(SMS))


def test_tiles_stay_whole_where_there_is_no_memory_for_sums(device: SimpleNamespace, memory: SimpleNamespace) -> None:
    found = tables(divided_loop(), {"n": "i32"})
    launched(found, 5)
    assert launched(found, 5)[2]
    partials._made.clear()
    memory.full = True
    assert device.filled == 0, "no table of whole tiles was needed"
    for _ in range(2):
        _, table, words = launched(found, 5)
        assert words == 0 and tiles_at(table) == 5 and device.filled == 1
    memory.full = False
    assert launched(found, 5)[2] and device.divided == 1, "tiles are divided again, by the table that is there"


def test_a_graph_divides_in_memory_of_its_own(
    device: SimpleNamespace, memory: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may be replayed beside launches of the stream in which it was captured. What it reads stays."""
    found, made = tables(divided_loop(), {"n": "i32"}), []
    launched(found, 5)
    known = [*partials._made.values()]
    ours = partials._of_a_graph
    monkeypatch.setattr(partials, "_of_a_graph", lambda words: made.append(ours(words)) or made[-1])
    device.capturing = True
    blocks, table, words = launched(found, 5, stream=99)
    known_table = found.known[0, STREAM, (5, 1, 1), (640,)]
    assert known_table.whole is not None
    assert (blocks, table, words) == (SMS, known_table.address, made[0].data_ptr())
    assert not made[0][: SLOTS * WORDS].any() and made[0].numel() == SLOTS * WORDS + SMS * 64
    entry = known_table.entry()
    assert entry is not None and found.captured == [entry.memory] and [*partials._made.values()] == known
    device.capturing = False
    assert launched(found, 5)[1] == table and device.divided == 1, "the card has the table, the graph does not write it"


@pytest.mark.parametrize("why", ["full", "costs more"])
def test_a_graph_that_cannot_divide(
    device: SimpleNamespace, memory: SimpleNamespace, monkeypatch: pytest.MonkeyPatch, why: str
) -> None:
    """Without memory for sums, or where clearing memory takes what dividing saves."""
    dear = StreamK(4, 1.0, 64)
    found = tables(replace(divided_loop(), stream_k=Decision(dear)), {"n": "i32"})
    launched(found, 5)
    device.capturing, memory.full = True, why == "full"
    monkeypatch.setattr(persistent, "CLEARING", 1e9 if why == "costs more" else 0.0)
    entries, seen = dict(found.entries), []

    def note(*args: Any) -> None:
        seen.append((tiles_at(args[-2]), args[-1]))

    persistent._over_tiles(note, note, found)(5, 1, 1, 99, *BEFORE[1:], 640)
    assert seen == [(5, 0)] and found.entries == entries, "the graph has a table of its own"
    device.capturing = memory.full = False
    assert launched(found, 5)[2], "launches by themselves do"


def test_streams_of_threads_that_have_one_handle_share_nothing(memory: SimpleNamespace) -> None:
    assert launched(tables(divided_loop(), {"n": "i32"}), 4, stream=partials.PER_THREAD)[2] == 0
    assert not partials._made


def test_an_empty_grid_of_a_kernel_that_divides(memory: SimpleNamespace) -> None:
    assert launched(tables(divided_loop(), {"n": "i32"}), 0) == (0, 0, 0)

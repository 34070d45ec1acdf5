"""Where tiles begin in kernels of batches, chunks and heads, and in loops that go down: boxes that launches take.

The promoted kernel and the plain one are run in the executor.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
import triton
import triton.language as tl

from wspec import bridge
from wspec.api import offline
from wspec.execute import Kernel
from wspec.execute.arguments import parameters
from wspec.ir import read
from wspec.ir.core import Operation
from wspec.ir.verify import check_valid
from wspec.lab.persistent_launch import descriptors_of
from wspec.passes.pointer_promotion.promote import Promoted, promote


def both(kernel: Any, types: dict[str, str], **values: int) -> tuple[Operation, Operation, Promoted]:
    """The plain module, and the promoted one."""
    made = offline(kernel, types, values, num_warps=4, num_stages=2)
    text = bridge.lower(made.source)[1]
    module = read(text)
    found = promote(module)
    check_valid(module)
    return read(text), module, found


def run(module: Operation, given: dict[str, Any], grid: tuple[int, int, int], made: Promoted | None) -> torch.Tensor:
    """What the kernel leaves in `out`."""
    kernel = Kernel(module)
    known = parameters(kernel.function)
    values = {**given, "out": torch.zeros_like(given["out"])}
    if made is not None:
        assert made.promotion is not None
        values |= descriptors_of(made.promotion, known, grid, values)
    kernel.run(grid, {one.name: values[one.name] for one in known})
    return values["out"]


def same(kernel: Any, given: dict[str, Any], grid: tuple[int, int, int], boxes: int, **values: int) -> Promoted:
    """Assert that all loads become boxes, that the launch takes them, and that they bring the same."""
    types = {
        name: ("*i32:16" if one.dtype == torch.int32 else "*fp16:16") if isinstance(one, torch.Tensor) else
        "i32:16" if one % 16 == 0 else "i32"
        for name, one in given.items()
    }  # fmt: skip
    plain, module, made = both(kernel, types, **values)
    assert made.promotion is not None, made.left
    assert sum(bool(op.results) for op in made.done) == boxes, made.left
    numbers = {at: one for at, one in enumerate(given.values()) if isinstance(one, int)}
    assert not isinstance(made.promotion.of(grid, numbers), str), made.promotion.of(grid, numbers)
    assert torch.equal(run(module, given, grid, made), run(plain, given, grid, None))
    return made


def numbers(*shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(0)).to(torch.float16)


@triton.jit
def of_chunks(
    x, out, batches, heads, per, rows, s_batch, s_chunk, s_head, s_row, BLOCK: tl.constexpr, KIND: tl.constexpr
):
    """A batch and a chunk out of one program id, as state space models have them; `KIND` 1: heads in groups, too."""
    both = tl.program_id(0)
    chunk = both // batches
    batch = both - chunk * batches
    x += batch * s_batch + chunk * s_chunk
    part = tl.program_id(1)
    if KIND == 0:
        x += part * s_head
    else:
        group = part // heads
        head = part - group * heads
        x += (head * per + group) * s_head
    at = tl.arange(0, BLOCK)
    tile = tl.load(x + at[:, None] * s_row + at[None, :], mask=at[:, None] < rows, other=0.0)
    place = both * tl.num_programs(1) + part
    tl.store(out + place * BLOCK * BLOCK + at[:, None] * BLOCK + at[None, :], tile)


def test_a_batch_that_is_left_of_a_program_id() -> None:
    batches, chunks, heads, rows = 3, 2, 2, 20
    x = numbers(batches, chunks, 32, heads, 32)
    given = {"x": x, "out": numbers(batches * chunks, heads, 32, 32), "batches": batches, "heads": heads, "per": 1,
             "rows": rows, "s_batch": x.stride(0), "s_chunk": x.stride(1), "s_head": x.stride(3), "s_row": x.stride(2),
             }  # fmt: skip
    same(of_chunks, given, (batches * chunks, heads, 1), 1, BLOCK=32, KIND=0)


def test_more_terms_than_a_descriptor_has_dimensions() -> None:
    """A batch, a chunk, a head and a group of heads, rows and columns: heads and groups share a stride."""
    batches, chunks, groups, heads = 2, 2, 2, 2
    x = numbers(batches, chunks, 32, heads * groups, 32)
    given = {"x": x, "out": numbers(batches * chunks, groups * heads, 32, 32), "batches": batches, "heads": heads,
             "per": groups, "rows": 32, "s_batch": x.stride(0), "s_chunk": x.stride(1), "s_head": x.stride(3),
             "s_row": x.stride(2)}  # fmt: skip
    made = same(of_chunks, given, (batches * chunks, groups * heads, 1), 1, BLOCK=32, KIND=1)
    assert made.promotion is not None and len(made.promotion.descriptors[0].block) == 5


@triton.jit
def downwards(x, out, rows, s_tile, s_row, COUNT: tl.constexpr, BLOCK: tl.constexpr, KIND: tl.constexpr):
    """A loop that begins at the last tile."""
    at = tl.arange(0, BLOCK)
    where = x + at[:, None] * s_row + at[None, :]
    for turn in range(COUNT):
        if KIND == 0:  # tiles in a dimension of their own
            tile = tl.load(where + (COUNT - 1 - turn) * s_tile)
        else:  # rows of one tensor, of which the last tile has fewer
            first = (COUNT - 1 - turn) * BLOCK
            tile = tl.load(where + first * s_row, mask=first + at[:, None] < rows, other=0.0)
        tl.store(out + turn * BLOCK * BLOCK + at[:, None] * BLOCK + at[None, :], tile)


@pytest.mark.parametrize(("kind", "rows"), [(0, 128), (1, 128), (1, 110)])
def test_tiles_that_come_backwards(kind: int, rows: int) -> None:
    x = numbers(4, 32, 48)
    given = {"x": x, "out": numbers(4, 32, 32), "rows": rows, "s_tile": x.stride(0), "s_row": x.stride(1)}
    same(downwards, given, (1, 1, 1), 1, COUNT=4, BLOCK=32, KIND=kind)


@triton.jit
def to_the_first(
    x, out, rows, PITCH: tl.constexpr, STEP: tl.constexpr, COLUMN: tl.constexpr, BLOCK: tl.constexpr, KIND: tl.constexpr
):
    """Down to the first tile, from the last one of a number that the launch has, beside other programs' tensors."""
    count = tl.cdiv(rows, BLOCK)
    at = tl.arange(0, BLOCK)
    x += tl.program_id(0) * rows * PITCH + COLUMN
    sums = tl.zeros((BLOCK, BLOCK), tl.float32)
    if KIND == 0:  # rows, with columns of which the first ones are left out
        for turn in range(count):
            row = (count - 1 - turn) * BLOCK + at[:, None]
            sums += tl.load(x + row * PITCH + at[None, :], mask=row < rows, other=0.0) * (turn + 1)
    elif KIND == 1:  # tiles that lie no multiple of a row apart
        for turn in range(count):
            there = x + (count - 1 - turn) * STEP + at[:, None] * PITCH + at[None, :]
            sums += tl.load(there, mask=at[None, :] < rows, other=0.0) * (turn + 1)
    else:  # a step below zero: Triton counts up and takes away
        for first in range(tl.program_id(1) * BLOCK - BLOCK, -BLOCK, -BLOCK):
            row = first + at[:, None]
            sums += tl.load(x + row * PITCH + at[None, :], mask=row < rows, other=0.0) * (first + 1)
    place = tl.program_id(0) * tl.num_programs(1) + tl.program_id(1)
    tl.store(out + place * BLOCK * BLOCK + at[:, None] * BLOCK + at[None, :], sums.to(tl.float16))


@pytest.mark.parametrize(("kind", "column", "rows"), [(0, 0, 128), (0, 32, 110), (1, 0, 64), (2, 0, 128), (2, 0, 70)])
def test_tiles_that_come_backwards_beside_other_tensors(kind: int, column: int, rows: int) -> None:
    """Strides are numbers, and other programs' tensors lie a multiple of them away."""
    given = {"x": numbers(300, 64), "out": numbers(2 * 3, 32, 32), "rows": rows}
    same(to_the_first, given, (2, 3, 1), 1, PITCH=64, STEP=32 * 64 + 16, COLUMN=column, BLOCK=32, KIND=kind)


@triton.jit
def tile_after_tile(x, out, m, n, pitch, BLOCK: tl.constexpr, GROUP: tl.constexpr, BLOCKS: tl.constexpr):
    """Blocks take every BLOCKS-th tile, in groups of rows: the last group may have fewer."""
    tiles_m, tiles_n = tl.cdiv(m, BLOCK), tl.cdiv(n, BLOCK)
    at = tl.arange(0, BLOCK)
    for turn in range(tl.cdiv(tiles_m * tiles_n - tl.program_id(0), BLOCKS)):
        tile = tl.program_id(0) + turn * BLOCKS
        group = tile // (GROUP * tiles_n)
        size = min(tiles_m - group * GROUP, GROUP)
        row = (group * GROUP + tile % size) * BLOCK
        column = tile % (GROUP * tiles_n) // size * BLOCK
        sums = tl.zeros((BLOCK, BLOCK), tl.float32)
        for part in range(2):
            here = x + (row + at)[:, None] * pitch + (column + part * BLOCK + at)[None, :]
            there = (row + at[:, None] < m) & (column + part * BLOCK + at[None, :] < n)
            sums += tl.load(here, mask=there, other=0.0)
        to = out + (row + at)[:, None] * 256 + (column + at)[None, :]
        tl.store(to, sums.to(tl.float16), mask=row + at[:, None] < m)


@pytest.mark.parametrize(("m", "n"), [(300, 64), (64, 160), (32, 32), (150, 100)])
def test_a_persistent_loop_over_groups_of_tiles(m: int, n: int) -> None:
    """The tiles that the last block would come to, were there more, are no tiles: no group of them is empty."""
    given = {"x": numbers(300, 208), "out": torch.zeros(320, 256, dtype=torch.float16), "m": m, "n": n, "pitch": 208}
    tiles = triton.cdiv(m, 32) * triton.cdiv(n, 32)
    same(tile_after_tile, given, (min(13, tiles), 1, 1), 1, BLOCK=32, GROUP=4, BLOCKS=13)


@triton.jit
def until(x, ends, out, pitch, BLOCK: tl.constexpr):
    """Block pointers that a loop moves on, as far as a number in memory: their masks ask for rows from 0 on, too."""
    end = tl.load(ends + tl.program_id(0))
    at = tl.make_block_ptr(x, (end, BLOCK), (pitch, 1), (0, 0), (BLOCK, BLOCK), (1, 0))
    sums = tl.zeros((BLOCK, BLOCK), tl.float32)
    for _ in range(0, end, BLOCK):
        sums += tl.load(at, boundary_check=(0,), padding_option="zero").to(tl.float32)
        at = tl.advance(at, (BLOCK, 0))
    here = tl.arange(0, BLOCK)
    to = out + tl.program_id(0) * BLOCK * BLOCK + here[:, None] * BLOCK + here[None, :]
    tl.store(to, sums.to(tl.float16))


def test_a_loop_to_a_number_in_memory_begins_at_row_zero() -> None:
    given = {"x": numbers(100, 128), "ends": torch.tensor([0, 70, 33, 100], dtype=torch.int32),
             "out": numbers(4, 32, 32), "pitch": 128}  # fmt: skip
    same(until, given, (4, 1, 1), 1, BLOCK=32)


@triton.jit
def moved_on(a, b, out, m, n, k, pitch_a, pitch_b, BLOCK: tl.constexpr, FROM: tl.constexpr):
    """A product through block pointers that a loop moves on; `FROM`: they do not begin at the first column and row."""
    row, column, here = tl.program_id(0) * BLOCK, tl.program_id(1) * BLOCK, tl.arange(0, BLOCK)
    a_at = tl.make_block_ptr(a, (m, k), (pitch_a, 1), (row, FROM), (BLOCK, BLOCK), (1, 0))
    b_at = tl.make_block_ptr(b, (k, n), (pitch_b, 1), (FROM, column), (BLOCK, BLOCK), (1, 0))
    sums = tl.zeros((BLOCK, BLOCK), tl.float32)
    for _ in range(FROM, k, BLOCK):
        x = tl.load(a_at, boundary_check=(0, 1), padding_option="zero")
        sums = tl.dot(x, tl.load(b_at, boundary_check=(0, 1), padding_option="zero"), sums)
        a_at, b_at = tl.advance(a_at, (0, BLOCK)), tl.advance(b_at, (BLOCK, 0))
    place = (tl.program_id(0) * tl.num_programs(1) + tl.program_id(1)) * BLOCK * BLOCK
    tl.store(out + place + here[:, None] * BLOCK + here[None, :], sums.to(tl.float16))


@pytest.mark.parametrize("start", [0, 64])
@pytest.mark.parametrize(("m", "n", "k"), [(100, 70, 150), (64, 64, 128), (30, 200, 65)])
def test_block_pointers_that_a_loop_moves_on(m: int, n: int, k: int, start: int) -> None:
    """Their rows and columns end where the tensors do, whatever a loop has added: no tile counts its rows."""
    grid = triton.cdiv(m, 64), triton.cdiv(n, 64), 1
    given = {"a": numbers(m, 160), "b": numbers(k, 208), "out": numbers(grid[0] * grid[1], 64, 64), "m": m, "n": n,
             "k": k, "pitch_a": 160, "pitch_b": 208}  # fmt: skip
    made = same(moved_on, given, grid, 2, BLOCK=64, FROM=start)
    assert made.promotion is not None
    assert [len(one.block) for one in made.promotion.descriptors] == [2, 2, 2]


@triton.jit
def in_two_loops(x, out, tiles, middle, pitch, BLOCK: tl.constexpr):
    """The rows before a place, and those behind it with others, as causal attention has its keys; no mask ends them."""
    here = tl.arange(0, BLOCK)
    at = x + here[:, None] * pitch + here[None, :]
    sums = tl.zeros((BLOCK, BLOCK), tl.float32)
    first = tl.program_id(0) + middle
    for tile in range(0, first):
        sums += tl.load(at + tile * BLOCK * pitch).to(tl.float32)
    for tile in range(first, tiles):
        sums -= tl.load(at + tile * BLOCK * pitch).to(tl.float32)
    tl.store(out + (tl.program_id(0) * BLOCK + here[:, None]) * BLOCK + here[None, :], sums.to(tl.float16))


@pytest.mark.parametrize(("tiles", "middle"), [(5, 1), (3, 0), (6, 4), (4, 4)])
def test_loops_over_one_tensor_have_one_descriptor(tiles: int, middle: int) -> None:
    """It ends behind the last tile of either, so that they can fill one ring."""
    given = {"x": numbers(224, 128), "out": numbers(64, 32), "tiles": tiles, "middle": middle, "pitch": 128}
    made = same(in_two_loops, given, (2, 1, 1), 2, BLOCK=32)
    assert made.promotion is not None and len(made.promotion.descriptors) == 2
    known = made.promotion.of((2, 1, 1), {2: tiles, 3: middle, 4: 128})
    assert not isinstance(known, str) and known[0].shape[0] >= 32 * max(tiles, middle + 1) and known[0].shape[1] == 32


@triton.jit
def whole(w, out, n, pitch, BLOCK: tl.constexpr):
    """Rows that begin again, and a store that leaves none of them out: it counts on whole tiles."""
    rows = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    at = tl.arange(0, BLOCK)
    tile = tl.load(w + (rows % n)[:, None] * pitch + at[None, :])
    tl.store(out + rows[:, None] * BLOCK + at[None, :], tile)


def test_rows_that_begin_again_and_are_stored() -> None:
    """The launch sees whether there are any."""
    given = {"w": numbers(96, 48), "out": numbers(96, 32), "n": 96, "pitch": 48}
    made = same(whole, given, (3, 1, 1), 1, BLOCK=32).promotion
    assert made is not None
    assert made.of((3, 1, 1), {2: 90, 3: 48}) == "rows that begin again may be seen"


@triton.jit
def ragged_columns(x, out, chunk, n, pitch, BLOCK: tl.constexpr):
    """Columns as far as a chunk, or what is left of the sequence in it."""
    limit = tl.minimum(chunk, n - tl.program_id(0) * chunk)
    at = tl.arange(0, BLOCK)
    tile = tl.load(x + at[:, None] * pitch + at[None, :], mask=at[None, :] < limit, other=0.0)
    tl.store(out + at[:, None] * BLOCK + at[None, :], tile)


def test_columns_whose_end_varies_stay() -> None:
    """A box of them would be refused by every launch."""
    types = {"x": "*fp16:16", "out": "*fp16:16", "chunk": "i32", "n": "i32", "pitch": "i32:16"}
    left = both(ragged_columns, types, BLOCK=32)[2].left
    assert any("where its columns end varies between programs" in why for _, why in left)


@triton.jit
def packed(x, out, columns, s_row, BLOCK: tl.constexpr, BY: tl.constexpr):
    """Columns that are counted `BY` to an element, as those of weights of a few bits are."""
    rows = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inner = tl.arange(0, BLOCK)
    for at in range(0, columns, BLOCK * BY):
        places = rows[:, None] * s_row + (at // BY + inner)[None, :]
        tl.store(out + places, tl.load(x + places) + 1)


@pytest.mark.parametrize("by", [2, 8])
def test_columns_that_are_counted_in_parts(by: int) -> None:
    x = numbers(64, 96)
    same(packed, {"x": x, "out": torch.zeros_like(x), "columns": 96 * by, "s_row": 96}, (2, 1, 1), 1, BLOCK=32, BY=by)

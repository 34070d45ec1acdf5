"""Which tiles become boxes of descriptors, that they are the same, and why others stay pointers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import triton
import triton.language as tl

from tests.passes.pointer_promotion.traps import Count, same
from wspec import bridge
from wspec.api import offline
from wspec.host_descriptors import SPAN, Promotion
from wspec.ir import read
from wspec.ir.core import Operation
from wspec.ir.verify import check_valid
from wspec.kernels.matmul import matmul_pointer_kernel
from wspec.passes.pointer_promotion.promote import Promoted, promote

TYPES = {"a_ptr": "*fp16:16", "b_ptr": "*fp16:16", "m": "i32", "n": "i32", "pitch": "i32:16"}


def promoted(kernel: Any, types: dict[str, str] | None = None, **values: int) -> tuple[Operation, Promoted]:
    """A module of the kernel, promoted."""
    made = offline(kernel, TYPES if types is None else types, values, num_warps=4, num_stages=2)
    module = read(bridge.lower(made.source)[1])
    found = promote(module)
    check_valid(module)
    return module, found


def why_not(kernel: Any, **values: int) -> list[str]:
    """Why the tiles of a kernel stay pointers."""
    return [why for _, why in promoted(kernel, None, **values)[1].left]


@pytest.mark.parametrize("seed", range(24))
def test_drawn_kernels_are_the_same(seed: int, tmp_path: Path) -> None:
    count = Count()
    assert same(seed, tmp_path, count, launches=2) == []
    assert count.launches == 2


def test_drawn_kernels_are_promoted(tmp_path: Path) -> None:
    """Otherwise nothing is tested."""
    count = Count()
    for seed in range(24, 40):
        same(seed, tmp_path, count, launches=2)
    assert count.promoted >= 8 and count.compared >= 6, count


# --------------------------------------------------------------------------------------------- one by one


@triton.jit
def copied(a_ptr, b_ptr, m, n, pitch, BM: tl.constexpr, BN: tl.constexpr, KIND: tl.constexpr):
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    columns = tl.program_id(1) * BN + tl.arange(0, BN)
    inside = (rows[:, None] < m) & (columns[None, :] < n)
    out = b_ptr + rows[:, None] * pitch + columns[None, :]
    if KIND == 0:
        tile = tl.load(a_ptr + rows[:, None] * pitch + columns[None, :], mask=inside, other=0.0)
    elif KIND == 1:  # every second column
        tile = tl.load(a_ptr + rows[:, None] * pitch + 2 * columns[None, :], mask=inside, other=0.0)
    elif KIND == 2:  # a mask that is no box
        tile = tl.load(
            a_ptr + rows[:, None] * pitch + columns[None, :], mask=inside & (rows[:, None] >= columns[None, :])
        )
    elif KIND == 3:  # something else outside
        tile = tl.load(a_ptr + rows[:, None] * pitch + columns[None, :], mask=inside, other=1.0)
    elif KIND == 4:  # rows that are read from memory
        where = tl.load(b_ptr + rows).to(tl.int32)
        tile = tl.load(a_ptr + where[:, None] * pitch + columns[None, :], mask=inside, other=0.0)
    elif KIND == 5:  # the same memory is stored to
        tile = tl.load(b_ptr + rows[:, None] * pitch + columns[None, :], mask=inside, other=0.0)
    elif KIND == 6:  # rows that begin again, and are seen
        tile = tl.load(a_ptr + (rows % m)[:, None] * pitch + columns[None, :], mask=columns[None, :] < n, other=0.0)
        tile += tl.sum(tile, axis=0)[None, :].to(tl.float16)
    elif KIND == 7:  # volatile
        tile = tl.load(a_ptr + rows[:, None] * pitch + columns[None, :], mask=inside, other=0.0, volatile=True)
    elif KIND == 8:  # a row that a number in memory says
        first = tl.load(b_ptr).to(tl.int32)
        tile = tl.load(a_ptr + (first + rows)[:, None] * pitch + columns[None, :], mask=inside, other=0.0)
    elif KIND == 9:  # the first rows are left out
        seen = inside & (rows[:, None] >= 3)
        tile = tl.load(a_ptr + rows[:, None] * pitch + columns[None, :], mask=seen, other=0.0)
    elif KIND == 10:  # the same where no row is the last
        tile = tl.load(a_ptr + rows[:, None] * pitch + columns[None, :], mask=rows[:, None] > 0, other=0.0)
    elif KIND == 11:  # as many columns as a number in memory says
        end = tl.load(b_ptr).to(tl.int32)
        tile = tl.load(a_ptr + rows[:, None] * pitch + columns[None, :], mask=columns[None, :] < end, other=0.0)
    elif KIND == 12:  # an element that a number in memory says
        first = tl.load(b_ptr).to(tl.int32)
        tile = tl.load(a_ptr + first + rows[:, None] * pitch + columns[None, :], mask=rows[:, None] < m, other=0.0)
    elif KIND == 13:  # rows that begin again, stored under the next round's mask
        tile = tl.zeros((BM, BN), tl.float16)
        for turn in range(4):
            now = turn * BM + tl.arange(0, BM)
            tl.store(out, tile, mask=(now[:, None] < m) & (columns[None, :] < n))
            at = a_ptr + (now % m)[:, None] * pitch + columns[None, :]
            tile = tl.load(at, mask=columns[None, :] < n, other=0.0)
        tile = tl.zeros((BM, BN), tl.float16)
    elif KIND == 14:  # rows as far as a number in memory says, unless another one says not
        end, which = tl.load(b_ptr).to(tl.int32), tl.load(b_ptr + 1).to(tl.int32)
        seen = inside & (rows[:, None] < end) & (which >= 0)
        tile = tl.load(a_ptr + which * n * 512 + rows[:, None] * pitch + columns[None, :], mask=seen, other=0.0)
    tl.store(out, tile, mask=inside)


@triton.jit
def added(a_ptr, b_ptr, m, n, pitch, BM: tl.constexpr, BN: tl.constexpr, KIND: tl.constexpr):
    """Rows that begin again are added to memory under a mask."""
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    columns = tl.program_id(1) * BN + tl.arange(0, BN)
    inside = (rows[:, None] < m) & (columns[None, :] < n)
    tile = tl.load(a_ptr + (rows % m)[:, None] * pitch + columns[None, :], mask=columns[None, :] < n, other=0.0)
    out = b_ptr + rows[:, None] * pitch + columns[None, :]
    if KIND == 0:
        tl.atomic_add(out, tile, mask=inside)
    elif KIND == 1:  # a mask that lets them through
        tl.atomic_add(out, tile, mask=columns[None, :] < n)
    else:  # somebody looks at what was there
        tl.store(out, tl.atomic_add(out, tile, mask=inside), mask=columns[None, :] < n)


@pytest.mark.parametrize("kind", [0, 1, 2])
def test_rows_that_begin_again_and_are_added(kind: int) -> None:
    if kind == 0:
        module, _ = promoted(added, None, BM=64, BN=64, KIND=0)
        names = [op.name for op in module.walk()]
        assert "tt.descriptor_load" in names and "tt.load" not in names
    else:
        left = why_not(added, BM=64, BN=64, KIND=kind)
        assert any("rows that begin again reach tt.atomic_rmw" in one for one in left)


@triton.jit
def multiplied(a_ptr, b_ptr, m, n, pitch, BLOCK: tl.constexpr, STORED: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tile = tl.load(a_ptr + at[:, None] * pitch + at[None, :])
    sums = tl.dot(tile, tile).to(tl.float16)
    there = at[:, None] * pitch + at[None, :] if STORED == 0 else at[None, :] * pitch + at[:, None]
    tl.store(b_ptr + there, sums)


def test_tiles_of_products_alone() -> None:
    made = offline(multiplied, TYPES, {"BLOCK": 64, "STORED": 0}, num_warps=4, num_stages=2)
    module = read(bridge.lower(made.source)[1])
    found = promote(module, operands_only=True)
    check_valid(module)
    assert [op.name for op in found.done] == ["tt.descriptor_load"] and found.left == ()
    assert any(op.name == "tt.store" for op in module.walk())


def test_a_launch_can_have_boxes_of_products_alone() -> None:
    """Where it is other tiles that cannot be boxes; not where these cannot either, or bounds do not hold."""
    types = {**TYPES, "n": "i32:16"}
    made = promoted(apart, types, BLOCK=64)[1].promotion
    assert made is not None and [one.is_operand for one in made.descriptors] == [True, False]
    grid, even = (1, 1, 1), {2: 64, 3: 128, 4: 96}
    assert not isinstance(made.of(grid, even), str) and made.has_operands(grid, even)
    assert isinstance(made.of(grid, {**even, 4: 0}), str) and made.has_operands(grid, {**even, 4: 0})
    assert isinstance(made.of(grid, {**even, 3: 4}), str) and not made.has_operands(grid, {**even, 3: 4})
    assert Promotion.from_data(made.to_data()) == made


@triton.jit
def apart(a_ptr, b_ptr, m, n, pitch, BLOCK: tl.constexpr):
    """What is loaded and what is stored have strides of their own."""
    at = tl.arange(0, BLOCK)
    tile = tl.load(a_ptr + at[:, None] * n + at[None, :], mask=at[:, None] < m, other=0.0)
    tl.store(b_ptr + at[:, None] * pitch + at[None, :], tl.dot(tile, tile).to(tl.float16))


@pytest.mark.parametrize("stored", [0, 1])
def test_a_product_is_stored_as_it_is(stored: int) -> None:
    """Its layout was changed for addresses side by side only; turned it must be another one."""
    module, made = promoted(multiplied, None, BLOCK=64, STORED=stored)
    (store,) = (op for op in made.done if not op.results)
    assert ("nvidia_mma" in str(store.operands[1].type)) == (stored == 0)
    changes = [op for op in module.walk() if op.name == "ttg.convert_layout"]
    assert bool(changes) == (stored == 1)


def test_a_tile_with_a_mask() -> None:
    module, made = promoted(copied, None, BM=64, BN=64, KIND=0)
    assert isinstance(made.promotion, Promotion) and made.left == ()
    names = [op.name for op in module.walk()]
    assert names.count("tt.descriptor_load") == names.count("tt.descriptor_store") == 1
    assert not {"tt.load", "tt.store", "tt.addptr"} & set(names)
    a, b = made.promotion.of((2, 2, 1), {2: 100, 3: 80, 4: 96}) or ("", "")
    assert not isinstance(a, str) and (a.shape, a.strides) == ((100, 80), (96, 1))
    assert b == a


@pytest.mark.parametrize(
    ("kind", "why"),
    [
        (1, "no stride of it is known to be 1"),
        (2, "its mask is more than rows and columns below an end"),
        (3, "not zero"),
        (4, "it depends on arith.fptosi"),
        (5, "also stores through that argument"),
        (6, "rows that begin again reach tt.reduce"),
        (7, "volatile"),
        (9, "its mask begins elsewhere than a tensor does"),
        (10, "its mask begins elsewhere than a tensor does"),
        (11, "where its columns end is known to the kernel alone"),
        (12, "the column at which it begins is known to the kernel alone"),
        (13, "rows that begin again reach scf.yield"),
    ],
)
def test_what_stays(kind: int, why: str) -> None:
    assert any(why in one for one in why_not(copied, BM=64, BN=64, KIND=kind))


def test_numbers_in_memory() -> None:
    """A number that the kernel loads is a coordinate."""
    made = promoted(copied, None, BM=64, BN=64, KIND=8)[1]
    assert made.promotion is not None
    known = made.promotion.of((2, 2, 1), {2: 100, 3: 80, 4: 128})
    assert not isinstance(known, str)
    first, rows, columns = known[0].shape
    assert (rows, columns) == (100, 80) and first * 256 >= 2 * SPAN
    assert known[0].strides == (128, 128, 1) and known[0].offset == -first // 2 * 256
    assert isinstance(made.promotion.of((2, 2, 1), {2: 100, 3: 80, 4: 96}), str)  # rows too close to each other


def test_rows_that_a_tile_counts() -> None:
    """Two dimensions of one stride: the second one's extent cuts off what a mask leaves out."""
    made = promoted(copied, None, BM=64, BN=64, KIND=14)[1]
    assert made.promotion is not None
    known = made.promotion.of((2, 2, 1), {2: 100, 3: 80, 4: 128})
    assert not isinstance(known, str)
    pages, first, rows, columns = known[0].shape
    assert (rows, columns) == (64, 80) and known[0].strides == (40960, 128, 128, 1)
    assert pages * 81920 >= 2 * SPAN and first == 64 + 64 + 1  # behind the last tile's last row
    assert known[0].offset == -(pages // 2) * 81920 - 64 * 256


def test_launches_that_are_not_the_same() -> None:
    """The plain kernel runs where a descriptor would be wrong or could not be made."""
    made = promoted(copied, None, BM=64, BN=64, KIND=0)[1].promotion
    assert made is not None
    assert isinstance(made.of((2, 2, 1), {2: 100, 3: 80, 4: 97}), str)  # rows that do not begin at 16 bytes
    assert isinstance(made.of((2, 2, 1), {2: 0, 3: 80, 4: 96}), str)  # no rows at all
    assert isinstance(made.of((2, 2, 1), {2: 100, 3: 80, 4: -96}), str)
    uneven = made.of((2, 2, 1), {2: 100, 3: 79, 4: 96})  # a load of such rows is right, a store is not
    assert uneven == "rows that are stored to b_ptr_tiles end after 158 bytes, no multiple of 16"
    assert isinstance(made.of((1 << 25, 2, 1), {2: 1 << 30, 3: 80, 4: 96}), str)  # offsets of more than 32 bits
    again = Promotion.from_data(made.to_data())
    assert again == made


def test_a_product_through_pointers() -> None:
    """Carried pointers, masks of two kinds, and nothing of the old addresses is left."""
    types = dict.fromkeys(("a_ptr", "b_ptr", "c_ptr"), "*bf16:16") | dict.fromkeys(("m", "n", "k"), "i32")
    types |= {f"stride_{one}": "i32:16" for one in ("am", "bk", "cm")}
    types |= {f"stride_{one}": "i32:1" for one in ("ak", "bn", "cn")}
    module, made = promoted(matmul_pointer_kernel, types, BLOCK_M=128, BLOCK_N=128, BLOCK_K=64, GROUP_M=8)
    assert made.promotion is not None and made.left == ()
    assert len(made.promotion.descriptors) == 3
    assert "tt.addptr" not in {op.name for op in module.walk()}

"""Tensor descriptors: blocks with edges, reductions, rows."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch

from tests.execute.one_op import context, run, run_all, same
from wspec.execute.descriptor import (
    Descriptor,
    describe,
    gather_rows,
    read_tile,
    reduce_tile,
    scatter_rows,
    write_tile,
)
from wspec.execute.errors import ExecutionError
from wspec.execute.memory import GlobalMemory

DTYPES = [torch.float16, torch.bfloat16, torch.float32, torch.int8, torch.int32, torch.float8_e4m3fn, torch.float64]


def inside(x: torch.Tensor, at: tuple[int, ...]) -> bool:
    return all(0 <= place < size for place, size in zip(at, x.shape, strict=True))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("at", [(0, 0), (2, 16), (6, 48), (-3, -16), (8, 0), (0, 64), (-4, 0), (0, -48), (96, 96)])
def test_blocks(dtype: torch.dtype, at: tuple[int, int]) -> None:
    memory = GlobalMemory()
    x = (torch.arange(8 * 64).reshape(8, 64) % 11 - 5).float().to(dtype)
    desc = describe(memory, x, [4, 32])
    whole = x.float()
    found = read_tile(memory, desc, at)
    assert found.shape == (4, 32) and found.dtype == dtype
    for i, j in itertools.product(range(4), range(32)):
        place = (at[0] + i, at[1] + j)
        assert found[i, j].float() == (whole[place] if inside(x, place) else 0)
    tile = (torch.arange(128).reshape(4, 32) % 7).float().to(dtype)
    if min(at) < 0:
        with pytest.raises(ExecutionError, match="stored at negative coordinates"):
            write_tile(memory, desc, at, tile)
        return
    write_tile(memory, desc, at, tile)
    for i, j in itertools.product(range(8), range(64)):
        place = (i - at[0], j - at[1])
        assert x[i, j].float() == (tile[place].float() if inside(tile, place) else whole[i, j])


@pytest.mark.parametrize("columns, written", [(1, 4), (4, 4), (29, 32), (32, 32)])
def test_rows_end_at_16_bytes(columns: int, written: int) -> None:
    """Where they are written: a card writes and adds the tile's elements behind the end too, and reads zeros there."""
    memory, x = GlobalMemory(), torch.full((8, 64), 5.0)
    desc = describe(memory, x, [4, 32], shape=[3, columns], strides=(64, 1))
    assert read_tile(memory, desc, (0, 0)).eq(5).sum() == 3 * columns
    write_tile(memory, desc, (0, 0), torch.full((4, 32), 7.0))
    expected = torch.full((8, 64), 5.0)
    expected[:3, :written] = 7
    assert torch.equal(x, expected)
    reduce_tile(memory, desc, (0, 0), torch.full((4, 32), 1.0), 1)
    expected[:3, :written] = 8
    assert torch.equal(x, expected)


@pytest.mark.parametrize("dtype, column", [(torch.float32, 2), (torch.float16, -4), (torch.int8, 8)])
def test_blocks_start_at_16_bytes(dtype: torch.dtype, column: int) -> None:
    memory, x = GlobalMemory(), torch.zeros(8, 64).to(dtype)
    desc = describe(memory, x, [4, 32])
    with pytest.raises(ExecutionError, match=f"at column {column}, which is not a multiple of 16 bytes"):
        read_tile(memory, desc, (0, column))
    with pytest.raises(ExecutionError, match="multiple of 16 bytes"):
        write_tile(memory, desc, (0, column), x[:4, :32])
    with pytest.raises(ExecutionError, match="multiple of 16 bytes"):
        reduce_tile(memory, desc, (-1, column), x[:4, :32], 1)


def test_a_copy() -> None:
    memory, x = GlobalMemory(), torch.zeros(8, 32)
    desc = describe(memory, x, [8, 32])
    tile = read_tile(memory, desc, (0, 0))
    x.fill_(1)
    assert tile.sum() == 0 and read_tile(memory, desc, (0, 0)).sum() == 256


def test_nan_outside() -> None:
    memory = GlobalMemory()
    found = read_tile(memory, describe(memory, torch.ones(4, 8), [4, 8], "nan"), (2, 0))
    assert same(found[2:], torch.full((2, 8), torch.nan)) and (found[:2] == 1).all()
    integers = describe(memory, torch.ones(4, 8, dtype=torch.int32), [4, 8], "nan")
    assert read_tile(memory, integers, (2, 0))[2:].tolist() == [[0] * 8] * 2


def test_strides_and_more_dimensions() -> None:
    memory, x = GlobalMemory(), torch.arange(2 * 3 * 4 * 16).float().reshape(2, 4, 3, 16)
    y = x.transpose(1, 2)[:, :, :, :8]  # (2, 3, 4, 8), strided
    desc = describe(memory, y, [1, 1, 4, 8], name="y")
    assert desc.shape == (2, 3, 4, 8) and desc.strides == (192, 16, 48, 1)
    assert desc.parameters == (2, 3, 4, 8, 192, 16, 48, 1)
    assert same(read_tile(memory, desc, (1, 2, 0, 0)), y[1:2, 2:3])
    found = read_tile(memory, desc, (1, 2, 2, 4))
    assert same(found[0, 0, :2, :4], y[1, 2, 2:, 4:]) and (found[0, 0, 2:] == 0).all() and (found[..., 4:] == 0).all()


def test_a_shape_of_its_own() -> None:
    memory, x = GlobalMemory(), torch.arange(64.0)
    desc = describe(memory, x, [2, 8], shape=[4, 8], strides=[16, 1])
    assert read_tile(memory, desc, (1, 0))[:, 0].tolist() == [16, 32]


@pytest.mark.parametrize(
    "x, block, says",
    [
        (torch.zeros(8, 6), [4, 4], "stride of 24 bytes"),
        (torch.zeros(8, 8).T, [4, 4], "the last stride of a descriptor is 8"),
        (torch.zeros(8, 8)[:, 1:], [4, 4], "not a multiple of 16"),
        (torch.zeros(8, 8), [4, 2], "have 8 bytes"),
        (torch.zeros(8, 8), [4], "2 sizes"),
        (torch.zeros(()), [], "0 dimensions"),
    ],
)
def test_what_no_descriptor_describes(x: torch.Tensor, block: list[int], says: str) -> None:
    with pytest.raises(ExecutionError, match=says):
        describe(GlobalMemory(), x, block)


def test_unknown_padding() -> None:
    with pytest.raises(ExecutionError, match="zero or nan"):
        describe(GlobalMemory(), torch.zeros(8, 8), [4, 4], "ones")


def test_larger_than_the_tensor() -> None:
    """A descriptor that claims more rows than there are."""
    memory, x = GlobalMemory(), torch.zeros(4, 8)
    desc = describe(memory, x, [4, 8], shape=[8, 8], name="x")
    read_tile(memory, desc, (0, 0))
    with pytest.raises(ExecutionError, match="past the end of x"):
        read_tile(memory, desc, (2, 0))
    with pytest.raises(ExecutionError, match="coordinates"):
        read_tile(memory, desc, (0,))


REDUCED: dict[int, Callable[[int, int], int]] = {
    1: lambda old, new: old + new,
    2: min,
    3: max,
    4: lambda old, new: 0 if old % 2**32 >= new % 2**32 else old + 1,
    5: lambda old, new: new if old == 0 or old % 2**32 > new % 2**32 else old - 1,
    6: lambda old, new: old & new,
    7: lambda old, new: old | new,
    8: lambda old, new: old ^ new,
}
OLD, NEW = [5, -7, 0, 3, 3, 2**31 - 1, 0, -1], [3, 3, 9, -2, 3, 1, 0, 7]


@pytest.mark.parametrize("kind", REDUCED)
def test_reductions(kind: int) -> None:
    memory, x = GlobalMemory(), torch.tensor([OLD, OLD], dtype=torch.int32)
    desc = describe(memory, x, [2, 4])
    reduce_tile(memory, desc, (1, 4), torch.tensor([NEW[4:], NEW[4:]], dtype=torch.int32), kind)
    reduce_tile(memory, desc, (1, 0), torch.tensor([NEW[:4], NEW[:4]], dtype=torch.int32), kind)
    expected = [(REDUCED[kind](a, b) + 2**31) % 2**32 - 2**31 for a, b in zip(OLD, NEW, strict=True)]
    assert x.tolist() == [OLD, expected]


def test_unsigned_reductions() -> None:
    memory, x = GlobalMemory(), torch.tensor([OLD], dtype=torch.int32)
    signed = describe(memory, x, [1, 8])
    desc = Descriptor(signed.address, signed.shape, signed.strides, signed.block, signed.dtype, signed=False)
    reduce_tile(memory, desc, (0, 0), torch.tensor([NEW], dtype=torch.int32), 3)
    assert x.tolist() == [[max(a, b, key=lambda v: v % 2**32) for a, b in zip(OLD, NEW, strict=True)]]
    with pytest.raises(ExecutionError, match="of kind 77"):
        reduce_tile(memory, desc, (0, 0), x, 77)


def test_reductions_of_floats() -> None:
    memory, x = GlobalMemory(), torch.tensor([[2048.0] * 8], dtype=torch.float16)
    desc = describe(memory, x, [1, 8])
    reduce_tile(memory, desc, (0, 0), torch.tensor([[1.0, 3.0] * 4], dtype=torch.float16), 1)
    assert x.tolist() == [[2048.0, 2052.0] * 4]


def test_rows() -> None:
    memory, x = GlobalMemory(), torch.arange(48.0).reshape(6, 8)
    desc = describe(memory, x, [1, 4])
    rows = torch.tensor([5, 0, -1, 5, 6], dtype=torch.int32)
    found = gather_rows(memory, desc, rows, 6, 4)
    assert found.tolist() == [[46, 47, 0, 0], [6, 7, 0, 0], [0] * 4, [46, 47, 0, 0], [0] * 4]
    assert gather_rows(memory, desc, rows[:1], -2, 4).tolist() == [[0, 0, 40, 41]]
    assert gather_rows(memory, desc, rows[:1], 99, 4).tolist() == [[0] * 4]
    scatter_rows(memory, desc, torch.tensor([1, 9]), 6, torch.full((2, 4), -1.0))
    assert x[1].tolist() == [8, 9, 10, 11, 12, 13, -1, -1] and (x < 0).sum() == 2
    with pytest.raises(ExecutionError, match="rows are gathered from a matrix"):
        gather_rows(memory, describe(memory, torch.zeros(16), [4]), rows, 0, 4)


# ------------------------------------------------------------------------------------------ the operations


def test_the_operations() -> None:
    here, x = context(), torch.arange(64 * 64).float().reshape(64, 64)
    base, type = here.memory.register(x), "!tt.tensordesc<tensor<16x32xf32>>"
    made = ["!tt.ptr<f32>", "i32", "i32", "i64", "i64"]
    props = "padding = 2 : i32"
    desc = run("tt.make_tensor_descriptor", made, type, base, 60, 64, 64, 1, props=props, within=here)
    assert desc == Descriptor(base, (60, 64), (64, 1), (16, 32), torch.float32, "nan", True)
    tile = "tensor<16x32xf32>"
    found = run("tt.descriptor_load", [type, "i32", "i32"], tile, desc, 16, 32, within=here)
    assert same(found, x[16:32, 32:])
    assert run("tt.descriptor_load", [type, "i32", "i32"], tile, desc, 56, 0, within=here)[4:].isnan().all()
    run_all("tt.descriptor_store", [type, tile, "i32", "i32"], [], desc, -found, 50, 0, within=here)
    assert same(x[50:60, :32], -found[:10]) and x[60, 0] == 60 * 64
    props = "kind = 1 : i32"
    run_all("tt.descriptor_reduce", [type, tile, "i32", "i32"], [], desc, found, 50, 0, props=props, within=here)
    assert (x[50:60, :32] == 0).all()
    bad = ("tt.make_tensor_descriptor", made, type)
    with pytest.raises(ExecutionError, match="stride of 248 bytes"):
        run(*bad, base, 60, 62, 62, 1, within=here)


def test_a_block_with_dimensions_of_one() -> None:
    here, x = context(), torch.arange(2 * 8 * 8).float().reshape(2, 8, 8)
    desc, type = describe(here.memory, x, [1, 4, 8]), "!tt.tensordesc<tensor<1x4x8xf32>>"
    found = run("tt.descriptor_load", [type, "i32", "i32", "i32"], "tensor<4x8xf32>", desc, 1, 4, 0, within=here)
    assert same(found, x[1, 4:])
    types = [type, "tensor<4x8xf32>", "i32", "i32", "i32"]
    run_all("tt.descriptor_store", types, [], desc, found * 0, 1, 4, 0, within=here)
    assert x[1, 4:].sum() == 0 and x[1, 3].sum() > 0


def test_rows_by_operations() -> None:
    here, x = context(), torch.arange(64, dtype=torch.int32).reshape(8, 8)
    desc, type = describe(here.memory, x, [1, 4]), "!tt.tensordesc<tensor<1x4xsi32>>"
    rows = torch.tensor([7, 1], dtype=torch.int32)
    types = [type, "tensor<2xi32>", "i32"]
    found = run("tt.descriptor_gather", types, "tensor<2x4xi32>", desc, rows, 2, within=here)
    assert found.tolist() == [[58, 59, 60, 61], [10, 11, 12, 13]]
    run_all("tt.descriptor_scatter", [*types, "tensor<2x4xi32>"], [], desc, rows, 0, -found, within=here)
    assert x[7].tolist() == [-58, -59, -60, -61, 60, 61, 62, 63]


@pytest.mark.parametrize("element, signed", [("si32", True), ("ui32", False), ("i32", True)])
def test_signs_of_elements(element: str, signed: bool) -> None:
    type, made = f"!tt.tensordesc<tensor<4x8x{element}>>", ["!tt.ptr<i32>", "i32", "i32", "i64", "i64"]
    desc = run("tt.make_tensor_descriptor", made, type, 4096, 8, 8, 8, 1)
    assert desc.signed == signed and desc.dtype == torch.int32


def tensormap(within: Any, *items: int) -> None:
    """Sizes, strides and steps are innermost first; strides in bytes."""
    types = ["!tt.ptr<i8>", "!tt.ptr<f16>", *["i32"] * 4, "i64", "i32", "i32"]
    props = "elem_type = 6 : i32, fill_mode = 0 : i32, operandSegmentSizes = array<i32: 1, 1, 2, 2, 1, 2>"
    run_all("ttng.tensormap_create", types, [], *items, props=props, within=within)


def test_descriptors_in_scratch_memory() -> None:
    here, x = context(), torch.arange(32 * 64).reshape(32, 64).half()
    base = here.memory.register(x)
    scratch = run(
        "ttg.global_scratch_alloc", [], "!tt.ptr<i8>", props="alignment = 128 : i32, nbytes = 128 : i32", within=here
    )
    type = "!tt.tensordesc<tensor<16x32xf16>>"
    with pytest.raises(ExecutionError, match="there is no descriptor at"):
        run("ttng.reinterpret_tensor_descriptor", ["!tt.ptr<i8>"], type, scratch, within=here)
    tensormap(here, scratch, base, 32, 16, 64, 32, 128, 1, 1)
    run_all("ttng.tensormap_fenceproxy_acquire", ["!tt.ptr<i8>"], [], scratch, within=here)
    desc = run("ttng.reinterpret_tensor_descriptor", ["!tt.ptr<i8>"], type, scratch, within=here)
    assert desc == Descriptor(base, (32, 64), (64, 1), (16, 32), torch.float16, "zero", True)
    assert same(read_tile(here.memory, desc, (16, 32)), x[16:, 32:])
    with pytest.raises(ExecutionError, match="leaves out elements"):
        tensormap(here, scratch, base, 32, 16, 64, 32, 128, 2, 1)

"""Global memory: addresses, loads, stores, atomics, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from tests.execute.one_op import context, run, run_all, same
from wspec.execute.errors import ExecutionError
from wspec.execute.evaluate import Context
from wspec.execute.memory import GlobalMemory

DTYPES = [
    torch.bool,
    torch.int8,
    torch.int16,
    torch.int32,
    torch.int64,
    torch.float16,
    torch.bfloat16,
    torch.float32,
    torch.float64,
    torch.float8_e4m3fn,
]


def test_addresses() -> None:
    memory, x, y = GlobalMemory(), torch.zeros(100), torch.zeros(3, dtype=torch.int8)
    first, second = memory.register(x), memory.register(y)
    assert first % 256 == 0 and second % 256 == 0 and second > first + 400
    assert memory.register(x) == first and memory.register(x[10:]) == first + 40
    assert memory.register(x.view(10, 10).T) == first
    assert GlobalMemory().register(torch.zeros(5)) == first, "the same in every run"
    empty = memory.register(torch.zeros(0)), memory.register(torch.zeros(0))
    assert empty[0] != empty[1]


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_type(dtype: torch.dtype) -> None:
    memory, x = GlobalMemory(), (torch.arange(40) % 7 - 3).float().to(dtype)
    base = memory.register(x)
    at = torch.tensor([[3, 0], [39, 3]])
    assert same(memory.load(base + at * dtype.itemsize, dtype), x.float()[at].to(dtype))
    memory.store(base + torch.arange(40) * dtype.itemsize, x.float().flip(0).to(dtype))
    assert same(x, (torch.arange(40) % 7 - 3).float().flip(0).to(dtype))


def test_the_tensor_itself_changes() -> None:
    memory, x = GlobalMemory(), torch.zeros(4, 6)
    base = memory.register(x[:, 2:])  # not contiguous: the storage is what counts
    memory.store(base + torch.tensor([0, 4 * 6, 4 * 7]), torch.tensor([1.0, 2.0, 3.0]))
    assert x[0, 2] == 1 and x[1, 2] == 2 and x[1, 3] == 3 and x.sum() == 6


def test_masks() -> None:
    memory, x = GlobalMemory(), torch.arange(4.0)
    base = memory.register(x)
    at, mask = base + torch.tensor([0, 4, 1 << 50, 12]), torch.tensor([True, True, False, True])
    assert memory.load(at, torch.float32, mask).tolist() == [0, 1, 0, 3]
    other = torch.full((4,), -1.0)
    assert memory.load(at, torch.float32, mask, other).tolist() == [0, 1, -1, 3]
    assert other.tolist() == [-1] * 4, "operands are left alone"
    assert memory.load(at, torch.float32, torch.zeros(4, dtype=torch.bool), other).tolist() == [-1] * 4
    memory.store(at, torch.tensor([7.0, 8.0, 9.0, 10.0]), mask)
    assert x.tolist() == [7, 8, 2, 10]
    memory.store(at, torch.zeros(4), torch.zeros(4, dtype=torch.bool))
    assert x.tolist() == [7, 8, 2, 10]


def test_several_tensors_at_once() -> None:
    memory, x, y = GlobalMemory(), torch.arange(4.0), torch.arange(4.0) + 10
    a, b = memory.register(x), memory.register(y)
    at = torch.tensor([b, a + 4, b + 12, a])
    assert memory.load(at, torch.float32).tolist() == [10, 1, 13, 0]
    memory.store(at, torch.tensor([1.5, 2.5, 3.5, 4.5]))
    assert x.tolist() == [4.5, 2.5, 2, 3] and y.tolist() == [1.5, 11, 12, 3.5]


@pytest.mark.parametrize(
    "offset, says",
    [
        (16, "4 bytes past the end of x"),
        (6, "not a multiple of 4"),
        (-4, "4 bytes before the start of x"),
        (1 << 40, "outside of every tensor"),
        (-(1 << 40), "outside of every tensor"),
    ],
)
@pytest.mark.parametrize("beside", [False, True])
def test_outside(offset: int, says: str, beside: bool) -> None:
    """A wrong address is found alone and among right ones; loads and stores alike, and nothing is written."""
    memory, x = GlobalMemory(), torch.arange(4.0)
    base = memory.register(x, "x")
    memory.register(torch.zeros(1000), "y")
    at = torch.tensor([base + offset, base]) if beside else torch.tensor([base + offset])
    with pytest.raises(ExecutionError, match=says):
        memory.load(at, torch.float32)
    with pytest.raises(ExecutionError, match=says):
        memory.store(at, torch.ones(len(at)))
    with pytest.raises(ExecutionError, match=says):
        memory.load(base + offset, torch.float32)
    assert x.tolist() == [0, 1, 2, 3]


def test_views_are_checked() -> None:
    memory, x = GlobalMemory(), torch.arange(12.0)
    base = memory.register(x, "x")
    assert memory.strided(base + 4, (2, 3), (4, 1), torch.float32).tolist() == [[1, 2, 3], [5, 6, 7]]
    assert memory.strided(base, (0, 3), (4, 1), torch.float32).shape == (0, 3)
    with pytest.raises(ExecutionError, match="past the end of x"):
        memory.strided(base, (4, 4), (4, 1), torch.float32)
    with pytest.raises(ExecutionError, match="before the start of x"):
        memory.strided(base, (2,), (-1,), torch.float32)


def test_scratch() -> None:
    memory = GlobalMemory()
    one, two = memory.allocate(128, align=512), memory.allocate(128)
    assert one % 512 == 0 and two >= one + 128
    assert memory.load(torch.tensor([one, one + 120]), torch.int64).tolist() == [0, 0]
    with pytest.raises(ExecutionError, match="past the end of scratch memory"):
        memory.load(one + 128, torch.int64)


def test_only_on_the_cpu() -> None:
    with pytest.raises(ExecutionError, match="on meta"):
        GlobalMemory().register(torch.zeros(3, device="meta"), "x")


# ------------------------------------------------------------------------------------------ the operations


def ready(*tensors: torch.Tensor) -> tuple[Context, list[int]]:
    here = context()
    return here, [here.memory.register(tensor) for tensor in tensors]


LOAD = "boundaryCheck = array<i32>, operandSegmentSizes = array<i32: 1, {}, {}>"


def test_load() -> None:
    here, (base,) = ready(torch.arange(8, dtype=torch.int32))
    pointers, bools, ints = "tensor<4x!tt.ptr<i32>>", "tensor<4xi1>", "tensor<4xi32>"
    at = base + 4 * torch.tensor([1, 3, 5, 1000])
    mask, other = torch.tensor([True, True, True, False]), torch.full((4,), 77, dtype=torch.int32)
    found = run("tt.load", [pointers, bools], ints, at, mask, props=LOAD.format(1, 0), within=here)
    assert same(found, torch.tensor([1, 3, 5, 0], dtype=torch.int32))
    found = run("tt.load", [pointers, bools, ints], ints, at, mask, other, props=LOAD.format(1, 1), within=here)
    assert found.tolist() == [1, 3, 5, 77]
    assert run("tt.load", ["!tt.ptr<i32>"], "i32", base + 8, props=LOAD.format(0, 0), within=here) == 2
    types = ["!tt.ptr<i32>", "i1", "i32"]
    assert run("tt.load", types, "i32", 5, 0, 9, props=LOAD.format(1, 1), within=here) == 9
    assert run("tt.load", types[:2], "i32", 5, 0, props=LOAD.format(1, 0), within=here) == 0
    with pytest.raises(ExecutionError, match="outside of every tensor"):
        run("tt.load", [pointers], ints, at, props=LOAD.format(0, 0), within=here)


def test_load_of_a_float() -> None:
    here, (base,) = ready(torch.tensor([1.5, 2.5], dtype=torch.bfloat16))
    found = run("tt.load", ["!tt.ptr<bf16>"], "bf16", base + 2, within=here)
    assert same(found, torch.tensor(2.5, dtype=torch.bfloat16))


def test_store() -> None:
    x = torch.zeros(4, dtype=torch.float16)
    here, (base,) = ready(x)
    at, mask = base + 2 * torch.arange(4), torch.tensor([True, False, True, False])
    types = ["tensor<4x!tt.ptr<f16>>", "tensor<4xf16>", "tensor<4xi1>"]
    assert run_all("tt.store", types, [], at, torch.ones(4).half(), mask, within=here) == ()
    assert x.tolist() == [1, 0, 1, 0]
    run_all("tt.store", ["!tt.ptr<f16>", "f16"], [], base + 2, torch.tensor(5.0).half(), within=here)
    run_all("tt.store", ["!tt.ptr<f16>", "f16", "i1"], [], 3, torch.tensor(6.0).half(), 0, within=here)
    assert x.tolist() == [1, 5, 1, 0]
    i = torch.zeros(2, dtype=torch.int64)
    base = here.memory.register(i)
    run_all("tt.store", ["!tt.ptr<i64>", "i64"], [], base + 8, -5, within=here)
    assert i.tolist() == [0, -5]


def rmw(kind: int, x: torch.Tensor, at: list[int], values: torch.Tensor, mask: list[bool] | None = None) -> Any:
    here, (base,) = ready(x)
    element = {torch.int32: "i32", torch.float32: "f32", torch.float16: "f16", torch.int64: "i64"}[x.dtype]
    count = len(at)
    types = [f"tensor<{count}x!tt.ptr<{element}>>", f"tensor<{count}x{element}>", f"tensor<{count}xi1>"]
    items = [base + x.element_size() * torch.tensor(at), values, torch.tensor(mask or [True] * count)]
    props = f"atomic_rmw_op = {kind} : i32, scope = 1 : i32, sem = 4 : i32"
    return run("tt.atomic_rmw", types, types[1], *items, props=props, within=here)


@pytest.mark.parametrize(
    "kind, expected",
    [
        (1, [5 & -3, 0]),
        (2, [5 | -3, 9]),
        (3, [5 ^ -3, 9]),
        (4, [2, 9]),
        (6, [5, 9]),
        (7, [-3, 0]),
        (8, [-3, 9]),
        (9, [5, 0]),
        (10, [-3, 9]),
    ],
)
def test_kinds_of_atomics(kind: int, expected: list[int]) -> None:
    x = torch.tensor([5, 0], dtype=torch.int32)
    before = rmw(kind, x, [0, 1], torch.tensor([-3, 9], dtype=torch.int32))
    assert before.tolist() == [5, 0] and x.tolist() == expected


def test_atomics_on_one_address_follow_each_other() -> None:
    x = torch.tensor([10, 100], dtype=torch.int32)
    values = torch.tensor([1, 2, 3, 4, 5], dtype=torch.int32)
    before = rmw(4, x, [0, 1, 0, 0, 1], values, [True, True, True, False, True])
    assert before.tolist() == [10, 100, 11, 0, 102] and x.tolist() == [14, 107]


def test_atomics_on_floats() -> None:
    x = torch.tensor([1.0, 2.0])
    assert rmw(5, x, [0, 0], torch.tensor([0.5, 0.25])).tolist() == [1.0, 1.5] and x.tolist() == [1.75, 2.0]
    h = torch.tensor([2048.0], dtype=torch.float16)
    rmw(5, h, [0, 0], torch.tensor([1.0, 1.0], dtype=torch.float16))
    assert h.item() == 2048.0, "each sum is rounded"
    rmw(10, x, [1], torch.tensor([-0.0]))
    assert same(x, torch.tensor([1.75, -0.0]))


def test_scalar_atomics() -> None:
    x = torch.tensor([7, 0], dtype=torch.int32)
    here, (base,) = ready(x)
    props = "atomic_rmw_op = 4 : i32, scope = 1 : i32, sem = 4 : i32"
    types = ["!tt.ptr<i32>", "i32", "i1"]
    assert run("tt.atomic_rmw", types, "i32", base, 3, 1, props=props, within=here) == 7
    assert run("tt.atomic_rmw", types, "i32", base, 3, 0, props=props, within=here) == 0
    cas = ["!tt.ptr<i32>", "i32", "i32"]
    assert run("tt.atomic_cas", cas, "i32", base, 10, 50, within=here) == 10
    assert run("tt.atomic_cas", cas, "i32", base, 10, 60, within=here) == 50
    assert x.tolist() == [50, 0]


def test_compare_and_swap() -> None:
    x = torch.tensor([1, 2, 3], dtype=torch.int64)
    here, (base,) = ready(x)
    types = ["tensor<4x!tt.ptr<i64>>", "tensor<4xi64>", "tensor<4xi64>"]
    at = base + 8 * torch.tensor([0, 1, 0, 2])
    found = run(
        "tt.atomic_cas", types, types[1], at, torch.tensor([1, 9, 5, 3]), torch.tensor([5, 6, 7, 8]), within=here
    )
    assert found.tolist() == [1, 2, 5, 3] and x.tolist() == [7, 2, 8]


def test_unknown_atomics() -> None:
    with pytest.raises(ExecutionError, match="atomic operation that the executor does not know: 99"):
        rmw(99, torch.zeros(1), [0], torch.zeros(1))


BLOCK = "!tt.ptr<tensor<2x4xf32>>"


def test_block_pointers() -> None:
    x = torch.arange(15.0).reshape(3, 5)
    here, (base,) = ready(x)
    types = ["!tt.ptr<f32>", "i64", "i64", "i64", "i64", "i32", "i32"]
    items = (base, 3, 5, 5, 1, 0, 0)
    pointer = run("tt.make_tensor_ptr", types, BLOCK, *items, props="order = array<i32: 1, 0>", within=here)
    pointer = run("tt.advance", [BLOCK, "i32", "i32"], BLOCK, pointer, 2, 3, within=here)
    padded, segments = (
        "boundaryCheck = array<i32: 0, 1>, padding = 2 : i32",
        "operandSegmentSizes = array<i32: 1, 0, 0>",
    )
    found = run("tt.load", [BLOCK], "tensor<2x4xf32>", pointer, props=f"{padded}, {segments}", within=here)
    nan = torch.nan
    assert same(found, torch.tensor([[13.0, 14.0, nan, nan], [nan] * 4]))
    back = run("tt.advance", [BLOCK, "i32", "i32"], BLOCK, pointer, -1, -4, within=here)
    found = run("tt.load", [BLOCK], "tensor<2x4xf32>", back, props="boundaryCheck = array<i32: 1>", within=here)
    assert found.tolist() == [[0, 5, 6, 7], [0, 10, 11, 12]]
    with pytest.raises(ExecutionError, match="past the end"):
        run("tt.load", [BLOCK], "tensor<2x4xf32>", pointer, props="boundaryCheck = array<i32: 1>", within=here)
    ones = torch.ones(2, 4)
    checked = "boundaryCheck = array<i32: 0, 1>"
    run_all("tt.store", [BLOCK, "tensor<2x4xf32>"], [], pointer, ones, props=checked, within=here)
    assert x.tolist() == [[0, 1, 2, 3, 4], [5, 6, 7, 8, 9], [10, 11, 12, 1, 1]]

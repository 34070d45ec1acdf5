"""cp.async: groups, waits for them, and barriers that count them."""

from __future__ import annotations

import pytest
import torch

from tests.execute.small import F16, MMA, SIZE, Code, Small
from wspec import ir
from wspec.execute import Kernel, ProgramError, Random
from wspec.ir.core import Value
from wspec.ir.types import (
    I1,
    I32,
    Attribute,
    DenseArrayAttr,
    DenseAttr,
    FunctionType,
    IntegerAttr,
    OpaqueType,
    PointerType,
    TensorType,
    TypeAttr,
    UnitAttr,
    i32,
)

TOKEN = OpaqueType("!ttg.async.token")
POINTER = PointerType(F16)
POINTERS, OFFSETS = TensorType((SIZE, SIZE), POINTER, MMA), TensorType((SIZE, SIZE), I32, MMA)
MASK, TILE = TensorType((SIZE, SIZE), I1, MMA), TensorType((SIZE, SIZE), F16, MMA)


class Copies(Small):
    """A small kernel whose last argument is a pointer to f16 tiles, one behind the other."""

    def __init__(self) -> None:
        super().__init__()
        self.p = self.outside.block.add_arg(POINTER)

    def finished(self) -> ir.Operation:
        function = self.outside.block.parent_op
        assert function is not None
        types = tuple(value.type for value in self.outside.block.args)
        function.properties["function_type"] = TypeAttr(FunctionType(types, ()))
        return super().finished()

    def addresses(self, code: Code, tile: int) -> Value:
        """Of the elements of the tile with that number."""
        numbers = code.op("tt.make_range", [], [TensorType((SIZE,), I32, MMA)], {"start": i32(0), "end": i32(SIZE)})
        down = code.op("tt.expand_dims", [numbers.result], [TensorType((SIZE, 1), I32, MMA)], {"axis": i32(1)}).result
        wide = code.op("tt.broadcast", [down], [OFFSETS]).result
        across = code.op("tt.expand_dims", [numbers.result], [TensorType((1, SIZE), I32, MMA)], {"axis": i32(0)}).result
        columns = code.op("tt.broadcast", [across], [OFFSETS]).result
        size = code.op("tt.splat", [code.number(SIZE)], [OFFSETS]).result
        first = code.op("tt.splat", [code.number(tile * SIZE * SIZE)], [OFFSETS]).result
        at = code.op("arith.muli", [wide, size], [OFFSETS]).result
        at = code.op("arith.addi", [at, columns], [OFFSETS]).result
        at = code.op("arith.addi", [at, first], [OFFSETS]).result
        base = code.op("tt.splat", [self.p], [POINTERS]).result
        return code.op("tt.addptr", [base, at], [POINTERS]).result

    def copy(self, code: Code, tile: int, buffer: Value, mask: bool | None = None, other: bool = False) -> None:
        given = [self.addresses(code, tile), buffer]
        if mask is not None:
            given.append(code.op("arith.constant", [], [MASK], {"value": DenseAttr(str(mask).lower(), MASK)}).result)
        if other:
            given.append(code.op("arith.constant", [], [TILE], {"value": DenseAttr("7.000000e+00", TILE)}).result)
        segments: dict[str, Attribute] = {
            "operandSegmentSizes": DenseArrayAttr(I32, (1, 1, int(mask is not None), int(other))),
            "isVolatile": IntegerAttr(0, I1),
        }
        code.op("ttg.async_copy_global_to_local", given, [TOKEN], segments)

    def commit(self, code: Code) -> None:
        code.op("ttg.async_commit_group", [], [TOKEN])

    def group_wait(self, code: Code, pendings: int = 0) -> None:
        code.op("ttg.async_wait", [], [TOKEN], {"num": i32(pendings)})


def tiles() -> torch.Tensor:
    return torch.randn(2, SIZE, SIZE, generator=torch.Generator().manual_seed(0)).half()


def result_of(kernel: Kernel, seed: int | None = None) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """(tiles, y, z) after a run."""
    given, y, z = tiles(), torch.zeros(SIZE, SIZE).half(), torch.zeros(SIZE, SIZE).half()
    kernel.run(1, [given[0], y, z, 3, given], schedule=None if seed is None else Random(seed))
    return given, y, z


def two_copies(pendings: int, read_both: bool) -> Kernel:
    kernel = Copies()
    code = kernel.outside
    first, second = code.buffer("first"), code.buffer("second")
    for tile, buffer in enumerate((first, second)):
        kernel.copy(code, tile, buffer)
        kernel.commit(code)
    kernel.group_wait(code, pendings)
    code.write(kernel.y, code.load(first))
    if read_both:
        code.write(kernel.z, code.load(second))
    kernel.group_wait(code)
    return kernel.ready()


def test_copies_are_there_after_the_wait_for_their_group() -> None:
    for seed in range(5):
        given, y, z = result_of(two_copies(0, read_both=True), seed)
        assert torch.equal(y, given[0]) and torch.equal(z, given[1])
        given, y, _ = result_of(two_copies(1, read_both=False), seed)
        assert torch.equal(y, given[0])


def test_the_last_group_may_be_on_its_way() -> None:
    with pytest.raises(ProgramError, match=r"ttg.local_load reads second .* is being filled by a copy"):
        result_of(two_copies(1, read_both=True))


@pytest.mark.parametrize(("other", "value"), [(False, 0.0), (True, 7.0)])
def test_what_is_masked_is_not_read(other: bool, value: float) -> None:
    kernel = Copies()
    code = kernel.outside
    buffer = code.buffer("b")
    kernel.copy(code, 99, buffer, mask=False, other=other)  # there is no such tile
    kernel.commit(code)
    kernel.group_wait(code)
    code.write(kernel.y, code.load(buffer))
    assert bool((result_of(kernel.ready())[1] == value).all())


@pytest.mark.parametrize("counted", [False, True])
def test_a_barrier_counts_the_threads_whose_copies_landed(counted: bool) -> None:
    """With noIncrement the barrier waits for all 128 threads from the start; else their arrival is announced."""
    kernel = Copies()
    code = kernel.outside
    barrier, buffer = code.barrier("full", arrivals=128 if counted else 1), code.buffer("b")
    kernel.copy(code, 0, buffer)
    code.op("ttng.async_copy_mbarrier_arrive", [barrier], [], {"noIncrement": UnitAttr()} if counted else {})
    if not counted:
        code.arrive(barrier)
    code.wait(barrier, 0)
    code.write(kernel.y, code.load(buffer))
    ready = kernel.ready()
    for seed in range(5):
        given, y, _ = result_of(ready, seed)
        assert torch.equal(y, given[0])

"""Arguments: by position and by name, what fits and what does not."""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from tests.execute.small import SIZE, Small, Tensors
from wspec import ir
from wspec.execute import ExecutionError, GlobalMemory, Kernel, describe
from wspec.execute.arguments import Parameter, _described
from wspec.ir.types import I32

TEXT = """
"builtin.module"() ({
"tt.func"() <{arg_attrs = [{tt.divisibility = 16 : i32}, {}, {}, {}, {}, {}, {tt.divisibility = 16 : i32}, {}, {}],
  function_type = (!tt.ptr<f32>, !tt.tensordesc<tensor<4x16xf16>>, i32, i32, i64, i64, i32, f32, i1) -> (),
  sym_name = "k"}> ({
^bb0(%x: !tt.ptr<f32> loc("x"), %d: !tt.tensordesc<tensor<4x16xf16>> loc("d"), %d0: i32 loc("d"), %d1: i32 loc("d"),
     %d2: i64 loc("d"), %d3: i64 loc("d"), %n: i32 loc("n"), %s: f32 loc("s"), %b: i1 loc("b")):
  %p = "tt.addptr"(%x, %d0) : (!tt.ptr<f32>, i32) -> !tt.ptr<f32>
  "tt.store"(%p, %s) <{boundaryCheck = array<i32>, cache = 1 : i32, evict = 1 : i32}> : (!tt.ptr<f32>, f32) -> ()
  "tt.return"() : () -> ()
}) : () -> ()
}) {"ttg.num-warps" = 4 : i32} : () -> ()
"""


@dataclass
class HostDescriptor:
    """What Triton's TensorDescriptor looks like."""

    base: torch.Tensor
    shape: list[int]
    strides: list[int]
    block_shape: list[int]
    padding: str = "zero"


def good() -> dict[str, Any]:
    return {"x": torch.zeros(8), "d": torch.zeros(5, 16).half(), "n": 32, "s": 2.5, "b": True}


@pytest.fixture(scope="module")
def kernel() -> Kernel:
    return Kernel(ir.read(TEXT))


def test_parameters_are_those_of_the_source(kernel: Kernel) -> None:
    shown = [str(parameter) for parameter in kernel.parameters]
    assert shown == ["x: !tt.ptr<f32>", "d: tensordesc<4x16xf16>", "n: i32", "s: f32", "b: i1"]
    assert [len(parameter.values) for parameter in kernel.parameters] == [1, 5, 1, 1, 1]


@pytest.mark.parametrize("by_position", [False, True])
def test_arguments_reach_the_kernel(kernel: Kernel, by_position: bool) -> None:
    given = good()
    kernel.run(1, list(given.values()) if by_position else given)
    assert given["x"].tolist() == [0, 0, 0, 0, 0, 2.5, 0, 0], "at 5, the first size that follows the descriptor"


def test_descriptors_of_all_kinds(kernel: Kernel) -> None:
    base, memory = torch.zeros(6, 16).half(), GlobalMemory()
    for desc in (
        base[:3],
        HostDescriptor(base, [3, 16], [16, 1], [4, 16]),
        HostDescriptor(base, [3, 16], [16, 1], [8, 16]),  # the kernel moves a part of the block
        describe(memory, base[:3], (4, 16)),
    ):
        given = {**good(), "d": desc}
        kernel.run(1, given, memory=memory)
        assert given["x"][3] == 2.5


BASE = torch.zeros(8, 16).half()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"x": None}, "argument x: !tt.ptr<f32>: expected a tensor, got NoneType"),
        ({"x": torch.zeros(8).half()}, "expected a tensor of torch.float32, got one of torch.float16"),
        ({"x": torch.zeros(8)[1:]}, "argument x.*relies on a multiple of 16 bytes"),
        ({"d": 3}, "argument d: tensordesc<4x16xf16>: expected a descriptor or a tensor, got int"),
        ({"d": torch.zeros(5, 16)}, "elements of torch.float32, expected torch.float16"),
        ({"d": torch.zeros(16).half()}, "argument d"),
        (
            {"d": HostDescriptor(BASE, [8, 16], [16, 1], [2, 16])},
            r"blocks \(2, 16\); the kernel moves blocks \(4, 16\)",
        ),
        ({"d": HostDescriptor(BASE, [8, 16], [16, 1], [4])}, "the kernel moves blocks"),
        ({"n": 1.5}, "argument n: i32: expected an integer, got float"),
        ({"n": 1 << 32}, "argument n: i32: 4294967296 does not fit"),
        ({"n": 33}, "argument n: i32: the kernel relies on a multiple of 16, got 33"),
        ({"s": torch.zeros(1)}, "argument s: f32: expected a number, got a tensor of torch.float32"),
        ({"s": True}, "argument s: f32: expected a number, got bool"),
        ({"b": 2}, "argument b: i1: 2 does not fit"),
        ({"more": 1}, "k has no argument 'more'"),
    ],
)
def test_what_does_not_fit(kernel: Kernel, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ExecutionError, match=message):
        kernel.run(1, {**good(), **changes})


def test_what_is_missing(kernel: Kernel) -> None:
    given = good()
    del given["d"], given["s"]
    with pytest.raises(ExecutionError, match="k needs the argument d, s") as caught:
        kernel.run(1, given)
    assert "note: it takes: x: !tt.ptr<f32>, d: tensordesc<4x16xf16>, n: i32" in str(caught.value)
    with pytest.raises(ExecutionError, match="k takes 5 arguments, 3 were given"):
        kernel.run(1, list(given.values()))


def test_large_unsigned_numbers_are_the_same_bits(kernel: Kernel) -> None:
    kernel.run(1, {**good(), "n": (1 << 32) - 16})


def test_descriptors_alone() -> None:
    """Without sizes and strides behind them, as hand-written modules have them."""
    kernel = Small()
    kernel.outside.write(kernel.y, kernel.outside.tile_of(kernel.x))
    tensors = Tensors()
    ready = kernel.ready()
    assert str(ready.parameters[0]) == f"x: tensordesc<{SIZE}x{SIZE}xf16>"
    ready.run(1, tensors.arguments)
    assert torch.equal(tensors.x, tensors.y)


def test_a_descriptor_may_begin_beside_its_tensor() -> None:
    """As one that a launch makes of a pointer, whose boxes begin so many rows later."""
    memory, base = GlobalMemory(), torch.zeros(4, 16)
    parameter, whole = Parameter("d", I32, ()), {"shape": (4, 16), "strides": (16, 1), "block_shape": (4, 16)}
    plain = _described(parameter, (4, 16), SimpleNamespace(**whole, base=base), memory)
    before = _described(parameter, (4, 16), SimpleNamespace(**whole, base=base, offset=-64), memory)
    assert before.address == plain.address - 64
    with pytest.raises(ExecutionError, match="not a multiple of 16 bytes"):
        _described(parameter, (4, 16), SimpleNamespace(**whole, base=base, offset=-4), memory)

"""`wspec.kernels.gathered` without a GPU: what it refuses, why it is left alone, and what gate=off makes of it."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import pytest
import torch

import wspec
from tests.support.proved import assert_proved
from wspec import bridge
from wspec.api import Offline
from wspec.check import check
from wspec.execute import FirstReady, Kernel, Random
from wspec.ir import read
from wspec.ir.core import Operation
from wspec.ir.disjoint import EVERY
from wspec.ir.types import i32
from wspec.kernels import examples
from wspec.kernels.gathered import (
    check_inputs,
    gathered_matmul,
    gathered_matmul_kernel,
    gathered_matmul_reference,
    launch,
)
from wspec.kernels.matmul import Config, empty_output
from wspec.plan.fill import Fill

INDEX = torch.zeros(4, dtype=torch.int32)
TYPES = {
    "a_ptr": "*bf16:16", "index_ptr": "*i32:16", "b_desc": "tensordesc<bf16[64, 128]>",
    "c_desc": "tensordesc<bf16[64, 128]>", "m": "i32", "k": "i32:16", "stride_am": "i32:16",
}  # fmt: skip
BLOCKS = {"BLOCK_M": 64, "BLOCK_N": 128, "BLOCK_K": 64}
LARGE = {"b_desc": "tensordesc<bf16[64, 256]>", "c_desc": "tensordesc<bf16[128, 256]>"}
LARGE_BLOCKS = {"BLOCK_M": 128, "BLOCK_N": 256, "BLOCK_K": 64}


def half(*shape: int) -> torch.Tensor:
    return torch.zeros(*shape, dtype=torch.float16)


@functools.cache
def offline(large: bool = False, **options: Any) -> Offline:
    types, blocks, warps = ({**TYPES, **LARGE}, LARGE_BLOCKS, 8) if large else (TYPES, BLOCKS, 4)
    return wspec.offline(gathered_matmul_kernel, types, blocks, num_warps=warps, num_stages=3, **options)


@functools.cache
def final(large: bool = False, persistent: bool = False) -> str:
    """The specialized kernel's TTGIR as the back end gets it."""
    made = offline(large, gate="off", persistent=persistent)
    return bridge.final_ttgir(made.dump("specialized"), made.source)


@pytest.mark.parametrize(
    ("a", "index", "b", "error", "match"),
    [
        (None, INDEX, half(8, 8), TypeError, "a: expected a torch.Tensor"),
        (half(8, 8), INDEX.long(), half(8, 8), TypeError, "index: expected dtype"),
        (half(8, 8), INDEX[:, None], half(8, 8), ValueError, "index: expected 1 dimensions"),
        (half(8, 8), torch.zeros(8, dtype=torch.int32)[::2], half(8, 8), ValueError, "index: must be contiguous"),
        (half(8, 8), INDEX, half(16, 8), ValueError, "b: has 16 rows, but a has 8 columns"),
        (half(0, 8), INDEX, half(8, 8), ValueError, "a: has no rows to gather"),
        (half(8, 8), INDEX, half(8, 8).bfloat16(), TypeError, "b: dtype torch.bfloat16 differs from a"),
    ],
)
def test_bad_input_names_the_argument(a: Any, index: Any, b: Any, error: type[Exception], match: str) -> None:
    with pytest.raises(error, match=f"^{match}"):
        check_inputs(a, index, b, need_cuda=False)


def test_rows_must_be_aligned() -> None:
    with pytest.raises(ValueError, match=r"^a: stride of dimension 0"):
        launch(half(8, 17), INDEX, half(17, 8), empty_output(INDEX[:, None], half(17, 8), torch.float16))


def test_cpu_tensors_are_refused_by_name() -> None:
    with pytest.raises(ValueError, match=r"^a: expected a CUDA tensor"):
        gathered_matmul(half(8, 8), INDEX, half(8, 8))


def test_the_reference_gathers() -> None:
    a, b = torch.arange(6.0).reshape(3, 2).half(), torch.eye(2).half()
    index = torch.tensor([2, 0, 2], dtype=torch.int32)
    assert gathered_matmul_reference(a, index, b).tolist() == [[4.0, 5.0], [0.0, 1.0], [4.0, 5.0]]


def test_a_launch_covers_ragged_tiles() -> None:
    a, b = half(40, 64), half(64, 264)
    out = empty_output(torch.zeros(130, 1), b, a.dtype)
    grid, arguments, meta = launch(a, torch.zeros(130, dtype=torch.int32), b, out, Config(128, 256, 64))
    assert grid == (2, 2) and arguments[4:] == (130, 64, 64) and meta["num_warps"] == 8


# ------------------------------------------------------------------------------------------------ compiling


def test_by_default_large_tiles_are_specialized() -> None:
    report = offline(large=True).outcome()
    assert report.specialized and report.plan is not None
    assert [channel.fill for channel in report.plan.channels] == [Fill.CP_ASYNC, Fill.TMA]


def test_by_default_small_tiles_are_left_alone() -> None:
    """With the cycles that are expected of both, at the load."""
    report = offline(large=False, trials=0).outcome()
    remark = report.reason
    assert not report.specialized and remark is not None and remark.code == "gate-slower"
    assert "the loop loads a through pointers; with cp.async" in remark.message


@pytest.mark.parametrize("persistent", [False, True])
@pytest.mark.parametrize("large", [False, True])
def test_with_the_gate_off_it_is_specialized(large: bool, persistent: bool) -> None:
    """A by cp.async, B by TMA; proved, and a binary without spills."""
    made = offline(large, gate="off", persistent=persistent)
    plan, report = made.plan(), made.outcome()
    assert plan is not None and [channel.fill for channel in plan.channels] == [Fill.CP_ASYNC, Fill.TMA]
    assert plan.producer.warps == 4 and plan.consumer.warps == (8 if large else 4)
    assert report.specialized and report.resources.hgmma > 0
    assert report.resources.spill_bytes == 0 and report.resources.stack_bytes == 0
    assert check(read(final(large, persistent)), disjoint=EVERY).ok


def test_lowering() -> None:
    """What the seam is about, in the order in which it must come."""
    module = read(final())
    producer = ordered(module, "ttg.async_copy_global_to_local")
    assert producer == ["ttng.wait_barrier", "ttg.async_copy_global_to_local", "ttng.async_copy_mbarrier_arrive"]
    consumer = ordered(module, "ttng.fence_async_shared")
    assert consumer[:2] == ["ttng.wait_barrier", "ttng.fence_async_shared"] and "ttng.warp_group_dot" in consumer


def ordered(module: Operation, name: str) -> list[str]:
    """What touches barriers and buffers of A in the loop around the operation of that name, in order."""
    op = next(op for op in module.walk() if op.name == name and any(o.name == "scf.for" for o in op.ancestors()))
    assert op.parent is not None
    wanted = {name, "ttng.wait_barrier", "ttng.async_copy_mbarrier_arrive", "ttng.warp_group_dot"}
    names = [one.name for one in op.parent.ops if one.name in wanted]
    return names[: 3 if name.startswith("ttg.") else None]


# -------------------------------------------------------------------------------------------------- mutants


def without(name: str) -> Any:
    def change(module: Operation) -> None:
        found = [op for op in module.walk() if op.name == name and any(o.name == "scf.for" for o in op.ancestors())]
        assert found
        for op in found:
            op.erase()

    return change


def with_count(count: int) -> Any:
    def change(module: Operation) -> None:
        found = [op for op in module.walk() if op.name == "ttng.init_barrier" and op.int_attr("count") == 128]
        assert found
        for op in found:
            op.properties["count"] = i32(count)

    return change


def counting_itself(module: Operation) -> None:
    """An arrival that first adds itself to what the barrier waits for."""
    for op in (op for op in module.walk() if op.name == "ttng.async_copy_mbarrier_arrive"):
        op.properties.pop("noIncrement", None)
        op.attributes.pop("noIncrement", None)


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (without("ttng.fence_async_shared"), "missing-fence"),
        (without("ttng.async_copy_mbarrier_arrive"), "deadlock"),
        (without("ttg.async_copy_global_to_local"), "unwritten"),
        (with_count(1), "arrivals"),
        (with_count(127), "arrivals"),
        (with_count(129), "deadlock"),
        (counting_itself, "deadlock"),
    ],
)
def test_mutants_are_refused(change: Any, code: str) -> None:
    module = read(final())
    change(module)
    report = check(module, disjoint=EVERY)
    assert not report.ok and code in [finding.code for finding in report.findings], str(report)


def test_what_is_compiled_is_proved() -> None:
    made = offline(gate="off")
    assert_proved(read(made.dump("specialized")))


# -------------------------------------------------------------------------------------------------- numbers


@pytest.mark.parametrize(
    "sizes", [{}, {"m": 1, "n": 8, "k": 16}, {"m": 65, "n": 136, "k": 208}, {"m": 64, "n": 128, "k": 64}]
)
def test_the_executor_agrees_with_float64(sizes: dict[str, int]) -> None:
    """In the order of the text and in random ones; k ends within a tile, rows are gathered more than once."""
    kernel = Kernel(read(final()))
    for schedule in (FirstReady(), Random(1), Random(2), Random(3)):
        example = examples.gathered(TYPES, BLOCKS, 5, **sizes)
        kernel.run(example.grid, example.arguments, schedule=schedule)
        (output,) = example.outputs.values()
        assert bool(((output.tensor.double() - output.expected).abs() <= output.bound).all())


def test_the_spec_names_the_kernel() -> None:
    spec = Path(__file__).parents[2] / "kernels" / "gathered.toml"
    assert "gathered_matmul_kernel.bf16" in spec.read_text()

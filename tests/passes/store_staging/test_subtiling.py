"""Which stores are made in halves, that the plan says so, and that the bits are the plain kernel's.

Goldens of the passes are in programs/halves, timings in docs/results, runs on the card in tests/gpu.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch

from tests.execute.test_machine_kernels import bits, subject
from tests.support.cases import odd_cases
from tests.support.compiling import Case, outcome, plain_module
from wspec.execute import FirstReady, Random
from wspec.ir.core import Operation
from wspec.ir.types import I1, IntegerAttr, Layout, TensorType
from wspec.passes.persistent.persist import persist
from wspec.passes.store_staging.delay_last_subtile import END
from wspec.passes.store_staging.subtiling import halving_types, hindrance
from wspec.plan.partition import hot_loops
from wspec.plan.plan import Plan

ODD = {case.name: case for case in odd_cases()}
ASKED = {"persistent": True, "gate": "off", "blocks": 1, "chain": "off"}


def plan_of(case: Case, **options: object) -> Plan:
    plan = outcome(case, **{**ASKED, **options}).plan
    assert plan is not None
    return plan


def kinds(plan: Plan) -> list[str]:
    return [kind for *_, kind in plan.staging]


def test_a_product_whose_rings_gain_a_buffer_is_stored_in_halves() -> None:
    one = subject("matmul", "matmul_descriptor_kernel", "bf16", persistent=True)
    whole = subject("matmul", "matmul_descriptor_kernel", "bf16", persistent=True, staging="own")
    assert "4x64x256xbf16" in one.text and "tt.split" in one.text
    assert "3x64x256xbf16" in whole.text and "tt.split" not in whole.text


def test_rings_that_are_deep_enough_leave_stores_whole() -> None:
    assert kinds(plan_of(ODD["gemm"])) == ["own"], "a tile of 128 x 128 leaves room for all the buffers that are of use"
    assert kinds(plan_of(ODD["gemm"], staging="subtiles")) == ["subtiles"], "but can be asked for"
    asked = plan_of(ODD["gemm"], staging="subtiles")
    assert asked.smem_bytes < plan_of(ODD["gemm"], depth=asked.channels[0].depth).smem_bytes


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("attention_masked", {}),  # sums that are scaled
        ("gated", {}),  # more than one loop's product
        ("gemm", {"overlap": False}),  # every product is waited for at once
        ("gemm", {"chain": "on"}),  # a task of its own stores
        ("gemm", {"consumer_registers": 120}),
    ],
)
def test_others_are_stored_whole(name: str, options: dict[str, Any]) -> None:
    made = outcome(ODD[name], **{**ASKED, "staging": "subtiles", **options})
    assert made.plan is None or "subtiles" not in kinds(made.plan)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (
            {"staging": "subtiles", "overlap": False},
            "staging='subtiles' was asked for, but cannot be had: products do not",
        ),
        ({"staging": "subtiles", "consumer_registers": 120}, "take more than 120 registers a thread"),
        ({"staging": "buffer"}, "staging='buffer' was asked for, but no store can have it"),
        ({"depth": 2}, "stores are not made in halves: the rings would not be deeper"),
        ({"staging": "own"}, ""),
        ({"staging": "subtiles"}, ""),
    ],
)
def test_a_plan_says_why_stores_are_not_where_they_might_be(options: dict[str, Any], said: str) -> None:
    plan = outcome(ODD["gemm"], **{**ASKED, **options}).plan
    assert plan is not None
    assert said in plan.subtiling.why_not and bool(said) == bool(plan.subtiling.why_not)
    assert Plan.from_text(plan.to_text()) == plan


def tiles_of(name: str) -> tuple[Operation, Operation]:
    """(the function, its store), with the loop over tiles."""
    module = persist(plain_module(ODD[name]))
    function = next(op for op in module.walk() if op.name == "tt.func")
    return function, next(op for op in function.walk() if op.name == "tt.descriptor_store")


def test_reasons() -> None:
    function, store = tiles_of("gemm")
    assert hindrance(function, store, 8, 240) == ""
    assert "120 registers" in hindrance(function, store, 8, 120)
    assert "one product" in hindrance(function, store, 4, 240), "four warps would hold two instructions' rows each"
    assert len(hot_loops(function)) == 1 and store.parent is not None
    barrier = Operation.create("gpu.barrier")
    store.parent.insert(store.parent.ops.index(store) + 1, barrier)
    assert "behind the store" in hindrance(function, store, 8, 240)
    barrier.erase()
    loop = hot_loops(function)[0]
    loop.properties["unsignedCmp"] = IntegerAttr(1, I1)
    assert "without a sign" in hindrance(function, store, 8, 240)


def test_layouts_of_halves_keep_every_element_in_its_thread() -> None:
    function, _ = tiles_of("gemm")
    tile = next(op.result.type for op in function.walk() if op.name == "arith.truncf")
    assert isinstance(tile, TensorType) and isinstance(tile.encoding, Layout)
    tile = replace(tile, shape=(64, 128), encoding=tile.encoding.with_fields({"warpsPerCTA": (4, 1)}))
    paired, pairs, half = halving_types(tile)
    assert paired.shape == (64, 2, 64) and pairs.shape == (64, 64, 2) and half.shape == (64, 64)
    text = str(half.encoding)
    assert "register = [[0, 1], [8, 0], [0, 8], [0, 16], [0, 32]]" in text and "warp = [[16, 0], [32, 0]]" in text
    assert str(pairs.encoding).count("[0, 0, 1]") == 1 and "[0, 1, 0]" in str(paired.encoding)


def test_the_second_half_stands_at_three_places() -> None:
    """Beside the first products, behind a loop without rounds, behind the last tile; each as a whole."""
    made = outcome(ODD["gemm"], **ASKED, staging="subtiles", stream_k=False)
    assert made.module is not None and made.plan is not None
    branches = [op for op in made.module.walk() if op.name == "scf.if" and not op.results]
    ends = [tuple(inner.name for inner in op.regions[0].block.ops[:-1]) for op in branches]
    assert ends.count(END) == 3 * made.plan.consumer.replicas


BREAKERS: list[tuple[str, Callable[[Plan], Plan]]] = [
    ("dots are waited for", lambda p: replace(p, loops=tuple(replace(one, in_flight=False) for one in p.loops))),
    ("two blocks", lambda p: replace(p, blocks_per_sm=2)),
    ("few registers", lambda p: replace(p, tasks=(replace(p.tasks[0], registers=120), *p.tasks[1:]))),
    ("no such store", lambda p: replace(p, staging=((9999, "", "subtiles"),))),
]


@pytest.mark.parametrize(("what", "change"), BREAKERS, ids=[name for name, _ in BREAKERS])
def test_a_plan_that_cannot_be_is_refused(what: str, change: Callable[[Plan], Plan]) -> None:
    plan = plan_of(ODD["gemm"], staging="subtiles", stream_k=False)
    made = outcome(ODD["gemm"], plan=change(plan))
    assert made.module is None and made.remarks[0].code == "plan-mismatch", what


MORE = ("bf16_transposed", "fp16")  # variants of the product, whose stores are those of the first


@pytest.mark.parametrize("variant", ["bf16", *(pytest.param(v, marks=pytest.mark.slow) for v in MORE)])
@pytest.mark.parametrize("k", [16, 64, 208])
@pytest.mark.parametrize("divided", [False, True])
def test_the_same_bits(variant: str, k: int, divided: bool) -> None:
    """Blocks with three tiles, two and one, loops of one round and of several, in several orders of events."""
    one = subject("matmul", "matmul_descriptor_kernel", variant, persistent=True, stream_k=divided)
    sizes = {"m": 272, "n": 512, "k": k}
    example = one.example(k, sizes)
    one.run(one.plain, example)
    expected = bits(example)
    for blocks in (1, 4):
        for schedule in (FirstReady(), Random(k), *one.specialized.adversaries[::9]):
            example = one.example(k, sizes)
            shares = one.run(one.specialized, example, schedule, blocks)
            assert all(value <= 1 for value in shares.values()), shares
            assert all(map(torch.equal, bits(example), expected)), (schedule.name, blocks)


def test_no_round_at_all() -> None:
    """A tile whose loop makes no round is zero, and so is the half that waits for it."""
    one = subject("matmul", "matmul_descriptor_kernel", "bf16", persistent=True, stream_k=False)
    example = one.example(0, {"m": 256, "n": 512, "k": 64})
    example.arguments["k"] = 0
    one.run(one.specialized, example, FirstReady(), 1)
    assert all(not output.tensor.any() for output in example.outputs.values())

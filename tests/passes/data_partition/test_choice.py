"""What replicas that share a tile compute each for themselves."""

from __future__ import annotations

import pytest
import triton
import triton.language as tl

from tests.support.cases import GEMM, TILE, desc, odd_cases
from tests.support.compiling import Case, outcome, plain_module
from wspec.ir.core import functions
from wspec.ir.numbering import id_of, number
from wspec.passes.data_partition.choice import repeated, slicing_for
from wspec.passes.data_partition.slicing import Conflict
from wspec.plan.graph import Dataflow
from wspec.plan.partition import find_sites


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("dequantized_a", ["ttg.local_alloc"]),  # each converts its rows
        ("dequantized_b", ["arith.sitofp", "ttg.local_alloc"]),
        ("gemm", ["ttg.local_alloc"]),
    ],
)
def test_what_is_computed_of_whole_tiles_is_repeated(name: str, expected: list[str]) -> None:
    module = plain_module(next(case for case in odd_cases() if case.name == name))
    (function,) = functions(module)
    number(function)
    flow = Dataflow(function)
    sites = find_sites(flow)
    sliced = slicing_for(function, sites, 2)
    assert not isinstance(sliced, Conflict)
    (loop,) = flow.hot_loops
    loads = [site.load for site in sites]
    assert [op.name for op in repeated(loop, loads, sliced) if op.name != "ttg.convert_layout"] == expected
    assert repeated(loop, loads, {id_of(load): 0 for load in loads}) == []


@triton.jit
def replaced(
    a_desc, b_desc, c_desc, x_desc, y_desc, out_ptr, k, n, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr
):
    """What is found in X has nothing to do with rows of the product, and Y is stored over it."""
    row, column = tl.program_id(0) * BM, tl.program_id(1) * BN
    acc = tl.zeros([BM, BN], tl.float32)
    for i in tl.range(0, k, BK):
        acc = tl.dot(a_desc.load([row, i]), b_desc.load([i, column]), acc)
    c_desc.store([row, column], acc.to(c_desc.dtype))
    most = tl.zeros([BM], tl.float32)
    for _ in tl.range(0, n):
        most = tl.maximum(most, tl.max(x_desc.load([row, 0]).to(tl.float32), 1))
    tl.store(out_ptr + row + tl.arange(0, BM), most)
    x_desc.store([row, 0], y_desc.load([row, 0]))


def test_a_tile_that_one_would_store_while_another_loads_it_has_one_consumer() -> None:
    types = {**GEMM, "x_desc": desc(128, 128), "y_desc": desc(128, 128), "out_ptr": "*fp32:16", "n": "i32"}
    case = Case("replaced", replaced, types, TILE, {"gate": "off"})
    made = outcome(case)
    assert made.plan is not None and made.plan.consumer.replicas == 1
    asked = outcome(case, consumers=2)
    assert asked.plan is None and "others load whole" in asked.remarks[0].message

"""What replicas that share a tile compute each for themselves."""

from __future__ import annotations

import pytest

from tests.support.cases import odd_cases
from tests.support.compiling import plain_module
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

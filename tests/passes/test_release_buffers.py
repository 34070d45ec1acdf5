"""Buffers that threads read into registers are fenced before they go back to the copy engine.

Without the fence an int8 GEMM gave wrong numbers on an H200 with two blocks on an SM, barriers and phases being right:
the next TMA copy probably overtook a read (docs/results).
"""

from __future__ import annotations

import itertools

import pytest

from tests.support.cases import odd_cases
from tests.support.compiling import outcome
from wspec.ir import read
from wspec.ir.core import Block, Operation

ODD = {case.name: case for case in odd_cases()}


@pytest.mark.parametrize(
    ("name", "fences"), [("dequantized_b", True), ("dequantized_a", True), ("read_twice", True), ("gemm", False)]
)
def test_reads_into_registers_are_fenced(name: str, fences: bool) -> None:
    made = outcome(ODD[name], keep_stages=True, gate="off")
    fenced = []
    for block in blocks(made.stages["release_buffers"]):
        loaded = {channel(op.operands[0].op) for op in block.ops if op.name == "ttg.local_load"}
        for before, op in itertools.pairwise(block.ops):
            if op.name == "wspec.release":
                has_fence = before.name == "ttng.fence_async_shared"
                assert has_fence or channel(op) not in loaded
                fenced.append(has_fence)
    assert fenced and any(fenced) == fences


def blocks(text: str) -> list[Block]:
    return [block for op in read(text).walk() for region in op.regions for block in region.blocks]


def channel(op: Operation | None) -> str:
    return "" if op is None else str(op.attributes.get("channel"))

"""The producer asks for the next tile's entry first; consumers ask where they did, and nothing else moves."""

from __future__ import annotations

import pytest

from tests.support.cases import odd_cases
from tests.support.compiling import outcome
from wspec.ir import read
from wspec.ir import warp_specialize as ws
from wspec.ir.core import Block
from wspec.ir.verify import check_valid
from wspec.passes.persistent.fetch_next_entry import fetch_next_entry
from wspec.plan.tile_table import POINTER

ODD = {case.name: case for case in odd_cases()}
WHOLE = ("gemm", "gemm_transposed", "two_products", "store_between_loops")
DIVIDED = ("gemm", "gemm_transposed")


def walk(task: Block) -> Block:
    """The body of a task's loop over tiles."""
    (loop,) = [op for op in task.ops if POINTER in [value.type for value in op.operands] and op.name == "scf.for"]
    return loop.regions[0].block


def asked(body: Block) -> list[bool]:
    """Of each load of an entry: does it stand in front of the tile's loops?"""
    loops = [at for at, op in enumerate(body.ops) if op.regions]
    loads = [at for at, op in enumerate(body.ops) if op.name == "tt.load" and op.operands[0].type == POINTER]
    return [at < loops[0] for at in loads]


@pytest.mark.parametrize(
    ("name", "stream_k"), [*((name, False) for name in WHOLE), *((name, True) for name in DIVIDED)]
)
def test_the_producer_asks_first(name: str, stream_k: bool) -> None:
    made = outcome(ODD[name], keep_stages=True, persistent=True, stream_k=stream_k)
    assert made.plan is not None
    module = read(made.stages["delay_last_subtile"])
    op = ws.find(module)
    assert op is not None
    *consumers, producer = map(walk, ws.task_blocks(op))
    before = [[id(inner) for inner in body.ops] for body in consumers]
    assert asked(producer) and not any(asked(producer)), "as persist leaves them"
    loads, size = len(asked(producer)), len(producer.ops)

    fetch_next_entry(module, made.plan)

    check_valid(module)
    assert asked(producer) == [True] * loads and len(producer.ops) == size
    assert [[id(inner) for inner in body.ops] for body in consumers] == before
    assert all(asked(body) and not any(asked(body)) for body in consumers)


def test_without_a_loop_over_tiles_nothing_moves() -> None:
    made = outcome(ODD["gemm"], keep_stages=True)
    assert made.plan is not None and made.plan.tile_loop is None
    assert made.stages["fetch_next_entry"] == made.stages["delay_last_subtile"]

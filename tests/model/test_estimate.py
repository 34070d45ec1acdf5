"""The estimate of a loop's time, and what the gate makes of it: nothing shipped changes, 128 x 128 is taken."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

from tests.support.pinned import under_pinned
from tests.support.shipped import shipped, shipped_options
from tests.support.verified import specialize
from wspec import api, bridge
from wspec.ir import print_module, read
from wspec.ir.types import ScalarType, TensorType
from wspec.lab.bench import drawn_kernels
from wspec.model import estimate
from wspec.model.estimate import Way
from wspec.model.machine import load_machine
from wspec.model.operations import Iteration, load_rate

H200 = load_machine("h200")
DIGESTS: dict[str, str] = json.loads((Path(__file__).parent / "shipped.json").read_text())
"""Of the specialized modules, before Triton's back end, without places in files, which no two machines have alike;
"declined" for kernels that are left alone."""


@under_pinned
@pytest.mark.parametrize("name", DIGESTS)
def test_shipped_kernels_are_what_they_were(name: str, update: bool) -> None:
    kernel, variant = name.rsplit(".", 1)
    made = specialize(shipped(kernel, variant), shipped_options(kernel, variant))
    text = "" if made.module is None else print_module(made.module, locations=False)
    digest = hashlib.sha256(text.encode()).hexdigest()[:16] if text else "declined"
    if update:
        DIGESTS[name] = digest
        (Path(__file__).parent / "shipped.json").write_text(json.dumps(DIGESTS, indent=1) + "\n")
    assert digest == DIGESTS[name], "a shipped kernel is another one now; if it is meant, --update and say how fast"


@pytest.mark.parametrize("kernel", [drawn_kernels.product_tma, drawn_kernels.product_persistent])
@pytest.mark.parametrize("by_rows", [True, False])
@pytest.mark.parametrize("warps", [4, 8])
def test_square_tiles_of_products_are_specialized(kernel: object, by_rows: bool, warps: int) -> None:
    """1.05 to 1.16 times as fast at 6144x5120x2048, 2304x6400x7168 and 1536x10240x5120."""
    types = {"a_desc": "tensordesc<bf16[128, 64]>", "c_desc": "tensordesc<bf16[128, 128]>"}
    types["b_desc"] = f"tensordesc<bf16[{'128, 64' if by_rows else '64, 128'}]>"
    types |= dict.fromkeys("MNK", "i32:16")
    values = {"BLOCK_M": 128, "BLOCK_N": 128, "BLOCK_K": 64, "GROUP": 8, "B_BY_ROWS": by_rows}
    offline = api.offline(kernel, types, values, num_warps=warps, num_stages=3)
    made = specialize(read(bridge.lower(offline.source)[1]), offline.compiler.options)
    assert made.plan is not None, made.remarks


def test_one_customer_does_one_thing_after_the_other() -> None:
    assert 1 / estimate.throughput((1000.0, 500.0), 100.0, 1) == pytest.approx(1600)


def test_many_customers_leave_the_busiest_unit() -> None:
    times = [1 / estimate.throughput((1000.0, 500.0), 100.0, count) for count in range(1, 40)]
    assert times == sorted(times, reverse=True) and times[-1] == pytest.approx(1000, rel=0.01)


def test_an_iteration_under_way_more_hides_more() -> None:
    work = Iteration(mma=2048, exp=1024, fma=908, tma=956)
    one, two = (estimate.cycles(Way(work, 2, 2, count, 300.0)) for count in (1, 2))
    assert 2048 < two < one < 2048 + 1932 + 600


def test_what_comes_slowly_bounds() -> None:
    work = Iteration(mma=256, exp=0, fma=0, tma=700)
    assert estimate.cycles(Way(work, 4, 2, 2, 100.0)) == 700


def test_a_producer_of_short_iterations_bounds() -> None:
    """Two copies an iteration take longer than the products of a tile of 64x64x32."""
    alone, two = (estimate.producer_cycles(2, 2, blocks, H200) for blocks in (1, 2))
    assert alone == 2 * two and 300 < alone < 350, "seen on the card: 302 to 340 cycles, one block an SM"
    assert estimate.producer_cycles(2, 1, 1, H200) < 0.8 * alone, "one barrier is waited for once"


def test_short_rows_come_more_slowly() -> None:
    tiles = [TensorType((128, columns), ScalarType("bf16")) for columns in (64, 32)]
    whole, short = (load_rate(tile, H200) for tile in tiles)
    assert short < 0.75 * whole


def test_a_block_that_walks_starts_once() -> None:
    once, each = (estimate.tile_cycles(32768, walks, H200) for walks in (True, False))
    assert each - once == pytest.approx(H200.block_start)

"""Which kernels start while the one before still runs: those whose tiles are there in time, unless somebody decides."""

from __future__ import annotations

from typing import Any

import pytest

from wspec import api
from wspec.decision import NOT_ASKED, Decision
from wspec.lab.bench import drawn_kernels


def decided(rows: int, columns: int, warps: int, depth: int = 64, **options: Any) -> Decision[bool]:
    types = {"a_desc": f"tensordesc<bf16[{rows}, {depth}]>", "b_desc": f"tensordesc<bf16[{depth}, {columns}]>"}
    types |= {"c_desc": f"tensordesc<bf16[{rows}, {columns}]>", **dict.fromkeys("MNK", "i32:16")}
    values = {"BLOCK_M": rows, "BLOCK_N": columns, "BLOCK_K": depth, "GROUP": 8, "B_BY_ROWS": False}
    options = {"gate": "off", "num_warps": warps, "num_stages": 3, **options}
    plan = api.offline(drawn_kernels.product_tma, types, values, **options).plan()
    assert plan is not None
    return plan.programmatic_launch


@pytest.mark.parametrize(("rows", "columns", "warps"), [(128, 256, 8), (128, 128, 8)])
def test_products_that_load_in_time_start_early(rows: int, columns: int, warps: int) -> None:
    assert decided(rows, columns, warps)


@pytest.mark.parametrize(("rows", "columns"), [(64, 256), (64, 128), (128, 64), (64, 64)])
def test_products_that_wait_for_tiles_start_behind_and_say_why(rows: int, columns: int) -> None:
    found = decided(rows, columns, 4)
    assert not found and "cycles to arrive" in found.why_not


def test_rows_of_half_a_line_arrive_more_slowly() -> None:
    assert decided(128, 128, 8) and not decided(128, 128, 8, depth=32)
    assert decided(128, 256, 8, depth=32)


def test_a_person_decides() -> None:
    assert decided(64, 128, 4, programmatic_launch=True)
    assert decided(128, 256, 8, programmatic_launch=False) == NOT_ASKED

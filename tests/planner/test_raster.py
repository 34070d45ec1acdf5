"""Which kernels' tiles go in raster order, and that they compute the same so."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch

from tests.support.cases import desc, odd_cases, our_attention, product
from tests.support.compiling import Case, outcome, plain_module
from wspec.execute import FirstReady, Kernel, Random
from wspec.ir import print_module, read
from wspec.options import Options
from wspec.pipeline import specialize
from wspec.plan.plan import Plan
from wspec.show.explain import done
from wspec.tile_scheduler import TABLE, Sampler, TileLoop, launch_table

ODD = {case.name: case for case in odd_cases()}


def tile_loop(case: Case, **options: Any) -> TileLoop:
    plan = outcome(case, gate="off", persistent=True, **options).plan
    assert plan is not None and plan.tile_loop is not None
    assert Plan.from_text(plan.to_text()) == plan
    return plan.tile_loop


def shared_first(tiles: TileLoop, m: int, n: int, box: tuple[int, int]) -> Any:
    """What a launch does about the order of its tiles."""
    assert tiles.raster.value is not None
    sampler = Sampler(tiles.cost, tiles.raster.value)
    numbers = dict(zip(sampler.parameters, (m, n, 2048), strict=True))
    found = sampler.direction((-(-m // box[0]) * -(-n // box[1]), 1, 1), [numbers[at] for at in sampler.parameters])
    assert found is not None
    return found[2]


def test_rows_that_take_more_bytes_are_shared() -> None:
    """The kernel has neighbours share columns of B. Where these are larger it is left alone."""
    found = shared_first(tile_loop(product(128, 64, 64)), 4096, 2048, (128, 64))
    assert (found.shared, found.kept, found.group, found.down) == (32, 32, 8, True)
    assert shared_first(tile_loop(product(64, 128, 64)), 4096, 2048, (64, 128)) is None
    ungrouped = shared_first(tile_loop(product(64, 128, 64, GROUP_M=1)), 4096, 8192, (64, 128))
    assert (ungrouped.shared, ungrouped.kept, ungrouped.group, ungrouped.down) == (64, 64, 64, True)


@pytest.mark.parametrize(
    ("case", "options", "why"),
    [
        (product(128, 64, 64), {"raster": False}, "raster=0 leaves tiles in the order of the grid"),
        (our_attention(64, True, "bf16"), {}, "the kernel has 2 loops that multiply"),
    ],
    ids=str,
)
def test_why_tiles_go_as_they_are_numbered(case: Case, options: dict[str, Any], why: str) -> None:
    made = outcome(case, gate="off", persistent=True, **options)
    assert made.plan is not None and made.plan.persistent
    assert made.plan.raster.value is None and made.plan.raster.why_not.startswith(why)


@pytest.mark.parametrize(("rows", "columns"), [(128, 128), (64, 64), (256, 128)])
def test_where_neither_is_larger_groups_are_left_alone(rows: int, columns: int) -> None:
    """Or where the loop waits for its products; and a grid without groups gets some."""
    box, warps = (rows, columns), 8 if rows > 128 else 4
    assert shared_first(tile_loop(product(*box, 64, num_warps=warps)), 16384, 16384, box) is None
    ungrouped = tile_loop(product(*box, 64, num_warps=warps, GROUP_M=1))
    assert shared_first(ungrouped, 16384, 16384, box).group == 16384 // columns
    assert shared_first(ungrouped, 1024, 8192, box) is None, "L2 holds it all"


def test_it_can_be_asked_for() -> None:
    asked = tile_loop(product(256, 128, 64, num_warps=8), raster=True)
    assert shared_first(asked, 4096, 4096, (256, 128)) is not None


def test_a_grid_of_two_axes() -> None:
    types = {"a_desc": desc(64, 64), "b_desc": desc(64, 128), "c_desc": desc(64, 128), "k": "i32:16"}
    tiles = tile_loop(Case("axes", ODD["gemm"].fn, types, {"BM": 64, "BN": 128, "BK": 64, "num_warps": 4}))
    sampler = Sampler(tiles.cost, tiles.raster.value)
    alone = sampler.direction((64, 48, 1), [512] * len(sampler.parameters))
    assert alone is not None and alone[2] is None, "neighbours share the larger operand, and L2 holds all"
    found = sampler.direction((64, 48, 1), [8192] * len(sampler.parameters))
    assert found is not None and found[2] is not None
    assert (found[2].shared, found[2].kept, found[2].group, found[2].down) == (48, 64, 64, False)


def test_a_plan_with_other_places_is_refused() -> None:
    case = product(128, 64, 64)
    plan = outcome(case, gate="off", persistent=True).plan
    assert plan is not None and plan.tile_loop is not None
    raster = plan.raster.value
    assert raster is not None
    scalars = tuple(dataclasses.replace(one, value=99) if one.name == "argument" else one for one in raster.scalars)
    wrong = dataclasses.replace(raster, scalars=scalars)
    tiles = dataclasses.replace(plan.tile_loop, raster=dataclasses.replace(plan.raster, value=wrong))
    made = specialize(plain_module(case), Options(), plan=dataclasses.replace(plan, tile_loop=tiles))
    assert made.module is None and "tile_loop.raster: must have the scalars" in made.remarks[0].message


def test_a_person_is_told() -> None:
    plan = outcome(product(128, 64, 64), gate="off", persistent=True).plan
    assert plan is not None
    assert any("share the larger operand" in line for line in done(plan, {}))


@pytest.mark.parametrize("slots", [2, 3])
def test_tiles_in_raster_order_compute_the_same(slots: int) -> None:
    """By the table that a launch of five by eleven tiles has."""
    case, (m, n, k) = product(128, 64, 64), (640, 704, 128)
    made = specialize(plain_module(case), Options(gate="off", stream_k=False))
    assert made.module is not None and made.plan is not None and made.plan.tile_loop is not None
    assert made.plan.raster
    draw = torch.Generator().manual_seed(slots)
    a, b = (torch.randn(*size, generator=draw).half() * 0.1 for size in ((m, k), (k, n)))
    values = dict(zip(made.plan.tile_loop.parameters, (m, n, k), strict=True))
    launched, table = launch_table(made.plan.tile_loop, (55, 1, 1), values, slots)
    out = []
    for module, grid, more in (
        (plain_module(case), (55, 1, 1), {}),
        (read(print_module(made.module)), (launched, 1, 1), {TABLE: torch.from_numpy(table)}),
    ):
        for schedule in (FirstReady(), Random(slots)):
            c = torch.full((m, n), torch.nan).half()
            Kernel(module).run(
                grid, {"a_desc": a, "b_desc": b, "c_desc": c, "m": m, "n": n, "k": k} | more, schedule=schedule
            )
            out.append(c)
    assert not out[0].isnan().any()
    assert all(torch.equal(one, out[0]) for one in out)
    order = [tuple(entry[:1]) for entry in table[8:].reshape(launched, -1, 8)[0].tolist()]
    assert order[0] == (0,) and order != sorted(order)

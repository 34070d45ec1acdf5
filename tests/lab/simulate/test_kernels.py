"""Kernels as they are compiled: predictions are quick, hang together, and are drawn."""

from __future__ import annotations

import functools
import itertools
import json
import time
from pathlib import Path
from typing import Any

import pytest

from tests.cli.helpers import ATTENTION, ELEMENTWISE, done, refused
from tests.lab.simulate.playing import MACHINE, NUMBERS
from wspec import api, bridge, ir
from wspec.lab.bench.measured_points import attention_point, matmul_point, points_from_tables
from wspec.lab.simulate import Edits, Simulator
from wspec.lab.simulate.actions import Action, Kind
from wspec.lab.simulate.barrier_steps import COPIES
from wspec.lab.simulate.l2_reuse import Matrix, Sources, first_of_lines
from wspec.lab.simulate.points import Point, read_points, write_points
from wspec.specs.kernel_file import load_kernel

ROOT = Path(__file__).parents[3]
LAUNCH = ("--grid", "32,16,4", "--set", "seqlen_q=4096,seqlen_k=4096,heads=16,group=1")
TILES = {64: (64, 64, 4, 2), 128: (128, 128, 8, 2), 256: (128, 64, 8, 2)}


def point(dim: int, causal: bool, length: int = 4096) -> Point:
    """A launch of one block a tile, whose groups do not take turns: with turns no stretch of a loop is skipped."""
    made = attention_point((dim, causal, "bf16", length), "specialized", TILES[dim], 500.0)
    return made.with_options(persistent=False, ping_pong=False)


@functools.cache
def module(dim: int, causal: bool, overlap: bool | None = None) -> str:
    one = point(dim, causal).with_options(**({} if overlap is None else {"overlap": overlap}))
    kernel = load_kernel(str(ROOT / one.kernel)).function
    offline = api.offline(kernel, one.signature, one.constexprs, gate="off", **one.options)
    return bridge.final_ttgir(offline.dump("specialized"), offline.source)


def simulator(dim: int, causal: bool, overlap: bool | None = None) -> Simulator:
    return Simulator(ir.read(module(dim, causal, overlap)), MACHINE)


def consumer(overlap: bool) -> tuple[Action, ...]:
    """What a consumer of attention at D = 128 does, with the second product an iteration late or at once."""
    one, what = simulator(128, False, overlap), point(128, False)
    return one.block(what.arguments, what.grid).tasks[0].actions


@pytest.mark.parametrize("overlap", [True, False])
def test_products_are_queued(overlap: bool) -> None:
    held = {one.held for one in consumer(overlap) if one.kind is Kind.DOT}
    assert held == {(8, NUMBERS.dot_issue[128]), (8, NUMBERS.dot_issue_registers[128])}


def test_a_wait_is_tried_before_the_softmax_in_front_of_it() -> None:
    waits = [one.early for one in consumer(overlap=False) if one.kind is Kind.WAIT]
    assert waits[1:] == [False, True] * (len(waits) // 2)  # for Q, then for K and V in turn
    late = [one.early for one in consumer(overlap=True) if one.kind is Kind.WAIT]
    assert len(late) == len(waits) and not any(late[1:-1])  # the next iteration begins with K's wait


@functools.cache
def with_edits(hold: bool) -> tuple[Action, ...]:
    """The consumer whose second product is late, under the edits of a plan."""
    one = Simulator(ir.read(module(128, False, True)), MACHINE, edits=Edits(elide_barriers=True, hold_waits=hold))
    what = point(128, False)
    return one.block(what.arguments, what.grid).tasks[0].actions


@pytest.mark.parametrize("kind", ["plain", "specialized"])
@pytest.mark.parametrize("transposed", [True, False])
def test_which_way_the_loop_of_a_product_goes(transposed: bool, kind: str) -> None:
    """Along the rows of A, and of B^T, but across those of B."""
    one = matmul_point((4096, 4096, 4096), transposed, "bf16", kind, (128, 128, 64, 8, 3, 8), 500.0)
    kernel = load_kernel(str(ROOT / one.kernel)).function
    offline = api.offline(kernel, one.signature, one.constexprs, gate="off", **one.options)
    plain = kind == "plain"
    text = (
        bridge.plain_ttgir(offline.source) if plain else bridge.final_ttgir(offline.dump("specialized"), offline.source)
    )
    matrices = {"a_desc": Matrix(1), "b_desc": Matrix(2)}
    sources = Sources(ir.read(text), MACHINE).of(one.arguments, one.grid, MACHINE.sm_count, matrices)
    in_loops = [op for op in sources if any(around.name == "scf.for" for around in op.ancestors())]
    assert {(sources[op].matrix.pitch, sources[op].along) for op in in_loops} == {(1, True), (2, transposed)}


def past(kind: str, sizes: tuple[int, int, int], transposed: bool, tile: tuple[int, ...]) -> list[Any]:
    """(clipped, past, tail) of the loads of a product's loop, in order."""
    one = matmul_point(sizes, transposed, "bf16", kind, tile, 500.0)
    offline = api.offline(
        load_kernel(str(ROOT / one.kernel)).function, one.signature, one.constexprs, gate="off", **one.options
    )
    text = (
        bridge.plain_ttgir(offline.source)
        if kind == "plain"
        else bridge.final_ttgir(offline.dump("specialized"), offline.source)
    )
    m, n, k = sizes
    b = Matrix(rows=n, columns=k) if transposed else Matrix(rows=k, columns=n)
    matrices = {"a_desc": Matrix(rows=m, columns=k), "b_desc": b}
    sources = Sources(ir.read(text), MACHINE).of(one.arguments, one.grid, MACHINE.sm_count, matrices)
    inside = [op for op in sources if any(around.name == "scf.for" for around in op.ancestors())]
    return sorted((sources[op].clipped, sources[op].past, sources[op].tail) for op in inside)


@pytest.mark.parametrize("kind", ["plain", "specialized"])
def test_tiles_that_reach_past_the_end(kind: str) -> None:
    """Of A's rows of tiles of 128 the last one has 32 rows: of its boxes of 64 one is half empty and one is all."""
    found = past(kind, (544, 4096, 1024), True, (128, 128, 64, 8, 3, 8))
    expected = [(0, 0, 0), (0.2, 0.75, 0)] if kind == "plain" else [(0, 0, 0), (0.2, 0.5, 0), (0.2, 1.0, 0)]
    assert found == [pytest.approx(one, abs=0.01) for one in expected]


@pytest.mark.parametrize("kind", ["plain", "specialized"])
def test_columns_and_last_steps_past_the_end(kind: str) -> None:
    """Of the third tile of 256 columns one box of 64 is inside; of the last of 17 steps 16 of 64 rows of B."""
    found = past(kind, (4096, 576, 1040), False, (128, 256, 64, 8, 3, 8))
    of_b = found[-1]
    assert of_b[:2] == pytest.approx((1 / 3, 0.75), abs=0.01)
    steps = 17 if kind == "specialized" else 15  # a plain kernel loads the first ones before its loop
    assert of_b[2] == pytest.approx((2 / 3 * 0.75 + 1 / 3 * 0.75 * 0.25) / steps, rel=0.02)
    assert all(one == (0, 0, 0) for one in found[:-1]), "A's last box holds some of its columns"


@pytest.mark.parametrize(
    ("tile", "found"), [((128, 128, 32, 8, 2, 8), 0.25), ((128, 128, 32, 8, 3, 8), 0.0), ((128, 128, 64, 8, 2, 8), 0.0)]
)
def test_the_rest_of_a_line_is_there_where_the_load_before_is_over(tile: tuple[int, ...], found: float) -> None:
    """Rows of 64 bytes along the loop, in rings of two: half of the loads ask for a rest, and half of these find it."""
    one = matmul_point((4096, 4096, 4096), True, "bf16", "plain", tile, 500.0)
    kernel = load_kernel(str(ROOT / one.kernel)).function
    offline = api.offline(kernel, one.signature, one.constexprs, gate="off", **one.options)
    loads = [op for op in ir.read(bridge.plain_ttgir(offline.source)).walk() if op.name in COPIES]
    inside = [op for op in loads if any(around.name == "scf.for" for around in op.ancestors())]
    assert len(inside) == 2 and {first_of_lines(op) for op in inside} == {1 - found}


@pytest.mark.parametrize(
    ("stages", "together", "size", "left"),
    [(4, 4, 4096, 0.571), (4, 3, 4096, 0.571), (4, 3, 1024, 1.0), (4, 2, 4096, 1.0), (2, 4, 4096, 1.0)],
)
def test_blocks_part_that_have_much_on_their_way(stages: int, together: int, size: int, left: float) -> None:
    """Steps of 12 KiB, loaded before the loop and in it: three of three blocks on their way are 108 KiB. An SM makes
    2,032 steps, with the three that the loop's last turns leave out, or 30, all of them in step."""
    one = matmul_point((size, size, size), False, "bf16", "plain", (64, 128, 32, 4, stages, 8), 500.0)
    kernel = load_kernel(str(ROOT / one.kernel)).function
    offline = api.offline(kernel, one.signature, one.constexprs, gate="off", **one.options)
    sources = Sources(ir.read(bridge.plain_ttgir(offline.source)), MACHINE)
    origins = sources.of(one.arguments, one.grid, together * MACHINE.sm_count)
    assert origins and {round(source.left, 3) for source in origins.values()} == {left}


def work_between_waits(actions: tuple[Action, ...]) -> list[float]:
    """Cycles of arithmetic from each wait for the scores, one dot still running, to the next wait for all dots."""
    found, since = [], None
    for one in actions:
        if one.kind is Kind.DOT_WAIT and one.a == 1:
            since = 0.0
        elif one.kind is Kind.DOT_WAIT and since is not None:
            found.append(since)
            since = None
        elif one.kind is Kind.WORK and since is not None:
            since += one.cycles
    return found


def test_a_held_wait_comes_after_a_third_of_the_exponentials() -> None:
    held, moved = (work_between_waits(with_edits(hold))[1:] for hold in (True, False))
    assert len(held) == len(moved) > 20
    gap = 2 * (NUMBERS.shuffle_latency + NUMBERS.arithmetic_latency)
    assert all(one < 100 for one in moved)  # the maxima of a thread's first row
    assert all(one > 100 + gap for one in held)


def test_a_buffer_is_handed_back_right_behind_the_wait_that_was_moved() -> None:
    kinds = [one.kind for one in with_edits(False)]
    behind = [kinds[at + 1] for at, one in enumerate(with_edits(False)) if one.kind is Kind.DOT_WAIT and one.a == 0]
    assert behind.count(Kind.ARRIVE) > 20
    assert Kind.TASK_SYNC in [one.kind for one in consumer(True)][100:200]  # nothing is taken out there
    assert Kind.TASK_SYNC not in kinds[100:200]


@pytest.mark.parametrize("dim", (64, 128, 256))
def test_one_block_is_played_quickly_and_jumps_change_nothing(dim: int) -> None:
    """As the plan edits its PTX: with all barriers D=256 repeats to 5 in 100,000 only."""
    one = Simulator(ir.read(module(dim, False)), MACHINE, edits=Edits(elide_barriers=True))
    what = point(dim, False, 16384)
    taken = []
    for _ in range(3):  # the quickest: a core may have others to serve
        start = time.process_time()
        jumped = one.play(one.block(what.arguments, what.grid))
        taken.append(time.process_time() - start)
    assert min(taken) < 1.0  # 0.4 where nobody else has the caches
    exact = one.play(one.block(what.arguments, what.grid), extrapolate=False)
    assert jumped.skipped > 0 and jumped.approximated == 0
    assert jumped.cycles == pytest.approx(exact.cycles, rel=1e-4)
    assert jumped.busy == pytest.approx(exact.busy, rel=1e-3)


@pytest.mark.parametrize("dim", (256, pytest.param(128, marks=pytest.mark.slow)))
def test_causal_is_about_half(dim: int) -> None:
    full, half = (
        simulator(dim, causal).predict(point(dim, causal).arguments, point(dim, causal).grid)
        for causal in (False, True)
    )
    assert 0.45 < half.cycles / full.cycles < 0.75
    assert full.blocks_per_sm == half.blocks_per_sm == 1


def test_longer_sequences_take_longer_and_come_closer_to_the_bound() -> None:
    one = simulator(128, False)
    found = [one.predict((p := point(128, False, length)).arguments, p.grid) for length in (512, 2048, 16384)]
    assert found[0].cycles < found[1].cycles < found[2].cycles
    assert found[0].utilization["tensor"] < found[1].utilization["tensor"] < found[2].utilization["tensor"] < 1
    assert found[2].dot_flop == pytest.approx(4 * 16 * 16384**2 * 128)


def test_trace_of_a_kernel(tmp_path: Path) -> None:
    file = tmp_path / "trace.json"
    out = done("trace", ATTENTION, "--variant", "d128", *LAUNCH, "--persistent", "0", "-o", str(file))
    assert "2048, 1 an SM, 15.5 waves" in out and "one program" in out and "perfetto" in out
    check_trace(json.loads(file.read_text()))


def check_trace(data: dict[str, Any]) -> None:
    """Slices of one track do not overlap, arrows begin and end in slices, names are given once."""
    events = data["traceEvents"]
    slices = [one for one in events if one["ph"] == "X"]
    names = {(one["pid"], one["tid"]): one["args"]["name"] for one in events if one["name"] == "thread_name"}
    assert {"default", "partition0", "partition1", "TMA", "TMA stores", "tensor core: default"} <= set(names.values())
    by_track: dict[tuple[int, int], list[dict[str, Any]]] = {}
    for one in slices:
        assert one["dur"] > 0 and (one["pid"], one["tid"]) in names
        by_track.setdefault((one["pid"], one["tid"]), []).append(one)
    for some in by_track.values():
        ends = [(one["ts"], one["ts"] + one["dur"]) for one in some]
        assert all(a[1] <= b[0] + 1e-9 for a, b in itertools.pairwise(ends))
    arrows = [one for one in events if one["ph"] in "sf"]
    assert arrows and len(arrows) % 2 == 0
    for one in arrows:
        mine = by_track[one["pid"], one["tid"]]
        assert any(s["ts"] <= one["ts"] <= s["ts"] + s["dur"] for s in mine), one
    starts = {one["id"]: one["ts"] for one in arrows if one["ph"] == "s"}
    assert all(starts[one["id"]] <= one["ts"] for one in arrows if one["ph"] == "f")
    counters = [one for one in events if one["ph"] == "C"]
    assert counters and all(0 <= one["args"]["busy"] <= 100.01 for one in counters)
    assert any("attention.py" in one["name"] and "warp_group_dot" in one["name"] for one in slices)
    assert any(one["cat"] == "tile" and one["name"].startswith("wait: tile") for one in slices)


def test_trace_takes_the_example_and_says_what_is_missing() -> None:
    out = done("trace", ATTENTION, "--variant", "d64", "--sizes", "seqlen_q=64, seqlen_k=256, heads=1")
    assert "predicted" in out
    assert "left as it was" not in done("trace", f"{ELEMENTWISE}:softmax_kernel")
    assert "there is no argument 'x'" in refused("trace", ATTENTION, "--set", "x=1")
    assert "is not NAME=INTEGER" in refused("trace", ATTENTION, "--set", "group=a")
    assert "not in the grid" in refused("trace", ATTENTION, *LAUNCH, "--persistent", "0", "--program", "32")


def test_trace_of_a_module(tmp_path: Path) -> None:
    file = tmp_path / "kernel.ttgir"
    file.write_text(module(128, False))
    assert "as given" in done("trace", str(file), *LAUNCH)
    assert "needs --grid" in refused("trace", str(file))
    assert "needs --set seqlen_k=4096" in refused("trace", str(file), "--grid", "4")


def test_points_are_read_from_the_tables(tmp_path: Path) -> None:
    results = ROOT / "docs" / "results"
    points = [*points_from_tables(results / "attention.md"), *points_from_tables(results / "products.md")]
    assert len([one for one in points if "attention" in one.kernel and "bf16" in one.name]) == 72
    assert len([one for one in points if "matmul" in one.kernel]) == 20
    write_points(points, tmp_path / "points.json")
    assert read_points(tmp_path / "points.json") == points

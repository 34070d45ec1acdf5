"""Teams: which kernels can be worked on by one, what their plans say, and why others cannot."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.support.cases import GEMM, TILE, case, desc
from tests.support.compiling import Case, expected_place, outcome, place
from wspec.ir.core import Operation
from wspec.pipeline import Outcome
from wspec.plan.coarsening import MEMBER
from wspec.plan.plan import Plan

ROWS = {"BM": 64, "BN": 64, "D": 64, "num_warps": 4}
TYPES = {**dict.fromkeys(("q_desc", "k_desc", "v_desc", "o_desc"), desc(64, 64)), "scale": "fp32", "length": "i32"}
FULL = case("attention_masked", TYPES, {**ROWS, "CAUSAL": False})
CAUSAL = case("attention_masked", TYPES, {**ROWS, "CAUSAL": True})
TWO_LOOPS = case("attention_two_loops", TYPES, ROWS)
OFFSETS = case("attention_offsets", TYPES, ROWS)
GROUPED = case("attention_grouped", {**TYPES, "group": "i32"}, ROWS)


def teamed(one: Case, team: int = 3, **options: Any) -> Outcome:
    """What is emitted is proved, too."""
    return outcome(one, persistent=True, coarsening=team, **options)


def count(module: Operation | None, name: str) -> int:
    assert module is not None
    return sum(op.name == name for op in module.walk())


@pytest.mark.parametrize("coarsening", [2, 3, 4])
@pytest.mark.parametrize("one", [FULL, TWO_LOOPS, GROUPED, OFFSETS], ids=["full", "two loops", "grouped", "offsets"])
def test_a_team_shares_keys_and_values(one: Case, coarsening: int) -> None:
    made = teamed(one, coarsening)
    plan = made.plan
    assert plan is not None and plan.tile_loop is not None
    assert (plan.coarsening, plan.tile_loop.axis, plan.consumer.replicas) == (coarsening, 0, coarsening)
    rings = {channel.name: channel for channel in plan.channels}
    assert rings["q"].private and plan.copies(rings["q"]) == coarsening and plan.arrivals(rings["q"]) == 1
    for name in ("k", "v"):
        assert not rings[name].private and plan.copies(rings[name]) == 1 and plan.arrivals(rings[name]) == coarsening
    assert rings["q"].buffer_bytes == coarsening * 64 * 64 * 2
    assert count(made.module, MEMBER) == 0, "every member knows its number"
    assert "neighbours at a time" in made.remarks[-1].message


@pytest.mark.parametrize("one", [TWO_LOOPS, OFFSETS], ids=["two loops", "offsets"])
def test_loops_of_different_length_end_in_one_rest(one: Case) -> None:
    """Full tiles of all members are one loop; what is left is another, in which a member works or lets tiles pass."""
    made = teamed(one, keep_stages=True)
    assert made.plan is not None and len(made.plan.loops) == 2
    assert made.stages["walk_tiles"].count("scf.if") == 2, "the one part or the other, or nothing"


def test_a_plan_with_a_team_can_be_given_back() -> None:
    plan = teamed(TWO_LOOPS).plan
    assert plan is not None and Plan.from_text(plan.to_text()) == plan
    assert teamed(TWO_LOOPS, plan=plan).plan == plan


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"coarsening": 2}, "buffer_bytes"),
        ({"private": False}, "private"),
        ({"buffer_bytes": 8192}, "buffer_bytes"),
    ],
)
def test_a_plan_that_does_not_fit(change: dict[str, Any], said: str) -> None:
    plan = teamed(FULL).plan
    assert plan is not None and plan.tile_loop is not None
    if "coarsening" in change:
        broken = replace(plan, tile_loop=replace(plan.tile_loop, **change))
    else:
        channels = tuple(replace(one, **change) if one.name == "q" else one for one in plan.channels)
        broken = replace(plan, channels=channels)
    (remark,) = teamed(FULL, plan=broken).remarks
    assert remark.code == "plan-mismatch" and said in remark.message


@pytest.mark.parametrize(
    ("one", "said"),
    [
        (CAUSAL, "not known to be whole steps"),
        (case("attention_masked", {**TYPES, **dict.fromkeys(("q_desc", "o_desc"), desc(128, 64))},
              {**ROWS, "BM": 128, "num_warps": 8, "CAUSAL": False}), "it has 8 warps"),
        (case("same_memory", {"a_desc": desc(64, 64), "b_desc": desc(64, 64), "k": "i32:16"},
              {**TILE, "BM": 64, "BN": 64, "num_warps": 4}, at="load"), "may write"),
    ],
    ids=["no whole steps", "eight warps", "written"],
)  # fmt: skip
def test_what_cannot_be_worked_on_by_a_team(one: Case, said: str) -> None:
    made = teamed(one)
    assert made.module is None and said in made.remarks[0].message, made.remarks[0]
    if one.at:
        assert place(made.remarks[0]) == expected_place(one)


@pytest.mark.parametrize(
    ("one", "options", "said"),
    [
        (FULL, {"persistent": False}, "persistent=0 has a block for each tile"),
        (case("persistent", {**GEMM, "m": "i32", "n": "i32:16"}, {**TILE, "FLATTEN": False}), {}, "a loop over tiles"),
    ],
)
def test_no_team_where_blocks_do_not_walk_is_said(one: Case, options: dict[str, Any], said: str) -> None:
    """What is asked for is had or refused; the kernel is not divided in another way instead."""
    made = outcome(one, **{"persistent": None, "coarsening": 2, **options})
    assert made.module is None and made.remarks[0].code == "not-persistent" and said in made.remarks[0].message


def test_tiles_of_the_loop_must_be_everybodys() -> None:
    """Neighbours along the rows of a product read the same B, but each an A of its own, in every iteration."""
    small = {**GEMM, "a_desc": desc(64, 64), "c_desc": desc(64, 128)}
    made = teamed(case("gemm", small, {**TILE, "BM": 64, "num_warps": 4}))
    assert made.module is None and "a team member's own" in made.remarks[0].message

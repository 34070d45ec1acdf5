"""Candidates and their ranking: whether they are plans that can be used, and what is said of them."""

from __future__ import annotations

import math
import sys
from pathlib import Path

import pytest

from tests.support.cases import odd_cases
from tests.support.compiling import plain_module
from tests.support.goldens import ROOT
from tests.support.shipped import numbered_function, shipped
from wspec.cli.inputs import open_kernel
from wspec.cli.parser import make_parser
from wspec.diagnostics import Declined
from wspec.lab.search import DECISIONS, RULE, Search, preferred, schedules, search, written_arguments
from wspec.lab.search.launches import SHORT, launches
from wspec.lab.search.schedules import SteadyState
from wspec.lab.search.variations import in_words, same, variations
from wspec.model.machine import load_machine
from wspec.options import Options
from wspec.pipeline import specialize, walk_tiles
from wspec.planner.decide import decide, function_of

MACHINE = load_machine("h200")
ATTENTION = "attention.py:attention_fwd"
PRODUCT = "matmul.py:matmul_descriptor_kernel"
ODD = {case.name: case for case in odd_cases()}


@pytest.fixture(scope="module")
def product() -> Search:
    return search(shipped(PRODUCT, "bf16"), MACHINE, Options())


# ------------------------------------------------------------------------------------------------- candidates


def test_every_candidate_is_a_plan_of_its_own(product: Search) -> None:
    plans = [one.plan for one in product.ranked if one.plan is not None]
    assert len(plans) == len(product.ranked) >= 4
    assert not any(same(a, b) for at, a in enumerate(plans) for b in plans[:at])


def test_every_candidate_can_be_given_to_the_compiler(product: Search) -> None:
    for one in product.ranked:
        outcome = specialize(shipped(PRODUCT, "bf16"), Options(gate="off"), plan=one.plan)
        assert outcome.module is not None, (one.name, outcome.remarks)


def test_the_planners_own_is_the_planners(product: Search) -> None:
    module = shipped(PRODUCT, "bf16")
    numbered_function(module)
    plan = decide(module, MACHINE, Options(gate="off"))
    assert product.own.plan == plan


def test_the_ranking(product: Search) -> None:
    ratios = [one.ratio for one in product.ranked]
    assert ratios == sorted(ratios) and ratios[0] == 1.0
    for one in product.ranked:
        pairs = zip(one.timings, product.best.timings, strict=True)
        over = math.prod(mine.microseconds / best.microseconds for mine, best in pairs)
        assert one.ratio == pytest.approx(over ** (1 / len(one.timings)))
        assert one.bound and all(0 < share <= 1.001 for t in one.timings for share in t.utilization.values() if share)
    assert all(one.why for one in product.ranked[1:]) and not product.best.why


def test_what_cannot_be_had_says_why(product: Search) -> None:
    refused = {one.name: one for one in product.refused}
    assert refused["2 blocks an SM"].bound == "registers" and "registers a thread" in refused["2 blocks an SM"].why
    assert "powers of two" in refused["3 consumer warp groups"].why
    assert all(one.plan is None and one.why for one in product.refused)


def test_shallower_rings_lose_by_waiting_for_tiles() -> None:
    whole = search(shipped(PRODUCT, "bf16"), MACHINE, Options(staging="own"))
    one = next(one for one in whole.ranked if one.name == "rings of 2")
    assert one.ratio > 1.1 and "tiles that TMA brings" in one.why


def test_what_a_person_decided_stays() -> None:
    found = search(shipped(PRODUCT, "bf16"), MACHINE, Options(depth=2, persistent=False))
    for one in found.ranked:
        assert one.plan is not None and not one.plan.persistent
        assert {c.depth for c in one.plan.channels if not c.stays and not c.source} == {2}


def test_no_steps_are_no_candidates() -> None:
    found = search(shipped(PRODUCT, "bf16"), MACHINE, Options(), steps=0)
    assert [one.name for one in found.ranked] == [RULE] and found.own.timings
    assert "one block a tile" in found.skipped


def test_keep(product: Search) -> None:
    assert product.keep(1) == (product.own,)
    kept = product.keep(3)
    assert len(kept) == 3 and kept[0] is product.own and kept[1].ratio <= kept[2].ratio


def test_plans_are_timed_at_the_clock_of_the_planners_own(product: Search) -> None:
    own = [timing.clock_mhz for timing in product.own.timings]
    timed = [[timing.clock_mhz for timing in one.timings] for one in product.ranked if one.timings]
    assert len(timed) > 1 and all(clocks == own for clocks in timed) and len(set(own)) == len(own)


def test_variations_have_names_of_their_own(product: Search) -> None:
    assert product.own.plan is not None
    found = list(variations(Options(), product.own.plan))
    assert {name for change in found for name in change} <= DECISIONS
    names = [in_words(change) for change in found]
    assert len(set(names)) == len(names)


# --------------------------------------------------------------------------- what was measured (docs/experiments.md)


@pytest.mark.parametrize(
    ("kernel", "variant"),
    [*((ATTENTION, f"d{d}{mask}") for d in (64, 128, 256) for mask in ("", "_causal")), (PRODUCT, "bf16_transposed")],
)
def test_the_default_stays_what_was_measured_to_be_the_fastest(kernel: str, variant: str) -> None:
    """On the card the planner's own plan was the fastest of all these, or within 0.2 % of it."""
    found = search(shipped(kernel, variant), MACHINE, Options())
    assert found.chosen.name == RULE
    assert found.own.ratio < 1.1  # the simulator takes "nothing late" to be up to 5 % faster; docs/cost-model.md


def test_preferred_is_nothing_where_the_planner_is_trusted() -> None:
    assert preferred(shipped(PRODUCT, "bf16"), Options()) == (None, ())


def test_preferred_takes_what_wins_clearly(monkeypatch: pytest.MonkeyPatch) -> None:
    """With no doubt of the simulator left: what it ranks first, compiled under that plan."""
    monkeypatch.setattr(sys.modules["wspec.lab.search.search"], "MARGIN", 1.0)
    module = shipped(PRODUCT, "bf16")
    best = search(module, MACHINE, Options()).best
    assert best.name != RULE and best.plan is not None
    plan, remarks = preferred(module, Options())
    assert plan is not None and same(plan, best.plan)
    assert remarks[0].code == "searched" and best.name in remarks[0].message


def test_search_as_an_option(monkeypatch: pytest.MonkeyPatch, product: Search, fresh_cache: Path) -> None:
    """search=1 compiles by the plan that wins clearly, and says so; without doubt that is the first of the ranking."""
    monkeypatch.setattr(sys.modules["wspec.lab.search.search"], "MARGIN", 1.0)
    args = make_parser().parse_args(["plan", f"{ROOT}/kernels/{PRODUCT}", "--variant", "bf16", "--search", "1"])
    subject = open_kernel(args)
    best, shown, report = product.best.plan, subject.front.plan, subject.offline.outcome()
    assert best is not None and product.best is not product.own
    assert shown is not None and report.plan is not None and same(shown, best) and same(report.plan, best)
    assert [remark.code for remark in report.remarks][:2] == ["searched", "specialized"]


# ----------------------------------------------------------------------------------------------------- launches


@pytest.mark.parametrize("rows", [16, 48, 64, 128, 256])
@pytest.mark.parametrize("axis", [0, 1, 2])
def test_launches_have_whole_waves(rows: int, axis: int) -> None:
    for launch in launches(rows, axis, MACHINE):
        assert math.prod(launch.grid) % MACHINE.sm_count == 0 and launch.grid[axis] <= -(-launch.length // rows)


def test_short_comes_first() -> None:
    assert launches(128, 0, MACHINE)[0].length == SHORT


def test_a_kernel_that_cannot_be_specialized() -> None:
    with pytest.raises(Declined):
        search(plain_module(ODD["early_return"]), MACHINE, Options())


# ---------------------------------------------------------------------------------------------------- schedules


def steady(kernel: str, variant: str) -> tuple[SteadyState, ...]:
    module = shipped(kernel, variant)
    numbered_function(module)
    plan = decide(module, MACHINE, Options(gate="off"))
    return schedules(walk_tiles(module, plan), plan, MACHINE)


def test_schedules_name_tasks_and_stages() -> None:
    first, second = steady(ATTENTION, "d128")
    rows = {(row.name, row.unit): row for row in first.rows}
    assert rows["k", "memory"].task == "load" and rows["k", "memory"].stage < 0
    assert rows["scores", "tensor core"].start == 0 and rows["acc", "tensor core"].stage == 1
    assert first.shortest <= first.interval < second.interval
    assert first.resource <= first.lower + 0.01 and first.tasks["mma"] == pytest.approx(2048)
    assert 150 < first.registers <= 240 and "scores" in first.way


def test_schedules_of_a_chain() -> None:
    (one,) = steady("quantized.py:int8_weights_kernel", "m256")
    assert {row.name: row.task for row in one.rows}["w"] == "convert"
    assert set(one.tasks) == {"load", "convert", "mma"}


# ------------------------------------------------------------------------------------------------------- writes


def test_what_is_written() -> None:
    assert written_arguments(function_of(shipped(ATTENTION, "d128"))) == {"o_desc", "lse_ptr"}
    assert written_arguments(function_of(shipped(PRODUCT, "bf16"))) == {"c_desc"}
    assert written_arguments(function_of(plain_module(ODD["device_descriptors"]))) == {"c_ptr"}
    assert written_arguments(function_of(plain_module(ODD["same_memory"]))) == {"a_desc"}

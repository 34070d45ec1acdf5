"""A plan that ptxas spoils, and the next one that is tried."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import triton
import triton.language as tl

import wspec
from tests.support.cases import odd_cases
from tests.support.compiling import lowered
from tests.support.goldens import ROOT
from wspec.bridge import backend, compile, proof
from wspec.bridge.plain import PlainSpills
from wspec.diagnostics import Remark
from wspec.options import Options
from wspec.plan.plan import Plan
from wspec.specs.kernel_file import load_kernel
from wspec.specs.variants import variant_signature
from wspec.verdict import Judge

SERIALIZED = "ptxas info    : (C7513) Potential Performance Loss: wgmma.mma_async instructions are serialized\n"


@pytest.mark.parametrize("all_of_them", [False, True])
def test_dots_that_ptxas_serializes_are_tried_without_overlap(
    fresh_cache: Path, monkeypatch: pytest.MonkeyPatch, all_of_them: bool
) -> None:
    made: list[str] = []

    def finish(text: str, *rest: Any) -> backend.Finished:
        done = backend.finish(text, *rest)
        made.append(text)
        spoilt = all_of_them or len(made) == 1
        return replace(done, ptxas_log=done.ptxas_log + SERIALIZED) if spoilt else done

    monkeypatch.setattr(compile, "finish", finish)
    kernel = load_kernel(f"{ROOT}/docs/tour_kernel.py:attend")
    given = variant_signature(kernel.file.with_suffix(".toml"), kernel.name, None, vars(kernel.module))
    report = wspec.offline(kernel.function, given.types, given.values, **given.options).outcome()
    assert len(made) == (3 if all_of_them else 2)  # its blocks walk through tiles: without that, too
    assert report.specialized is not all_of_them
    assert [one.code for one in report.remarks][-1] == "serialized-wgmma"
    assert report.plan is not None
    assert any(schedule.stage1 for schedule in report.plan.loops) is all_of_them
    assert isinstance(report.plan, Plan)


def test_products_in_flight_that_ptxas_serializes_are_tried_without() -> None:
    """Nothing runs an iteration late, but a product goes on while the next one is issued."""
    case = next(one for one in odd_cases() if one.name == "while_loop")
    given = wspec.offline(case.fn, case.types, case.values, num_warps=8, gate="off", persistent=False)
    plan, report = given.plan(), given.outcome()
    assert plan is not None and not any(schedule.stage1 for schedule in plan.loops)
    assert report.specialized and report.resources is not None and report.resources.ptxas_notes == ()


@pytest.mark.parametrize("plain", [0, 8])
def test_of_plans_that_spill_the_first_with_no_more_than_the_plain_kernel_is_taken(
    fresh_cache: Path, monkeypatch: pytest.MonkeyPatch, plain: int
) -> None:
    made: list[str] = []

    def finish(text: str, *rest: Any) -> backend.Finished:
        done = backend.finish(text, *rest)
        made.append(text)
        spilled = {1: 80, 2: 8}.get(len(made), 0)
        frame = f"    0 bytes stack frame, {spilled} bytes spill stores, 0 bytes spill loads\n"
        return replace(done, ptxas_log=frame)

    monkeypatch.setattr(compile, "finish", finish)
    monkeypatch.setattr(PlainSpills, "bytes", plain)
    kernel = load_kernel(f"{ROOT}/docs/tour_kernel.py:attend")
    given = variant_signature(kernel.file.with_suffix(".toml"), kernel.name, None, vars(kernel.module))
    report = wspec.offline(kernel.function, given.types, given.values, **given.options).outcome()
    assert report.specialized
    assert len(made) == (2 if plain else 3)
    assert [one.code for one in report.remarks][-1] == "registers"


@pytest.mark.parametrize(("spilled", "serialized", "runs"), [(80, True, False), (80, False, True), (8, True, True)])
def test_what_ptxas_may_lose_is_not_run_without_the_gate_either(
    fresh_cache: Path, monkeypatch: pytest.MonkeyPatch, spilled: int, serialized: bool, runs: bool
) -> None:
    """Values that it spills, more of them than the plain kernel's, of products that it serializes."""

    def finish(text: str, *rest: Any) -> backend.Finished:
        frame = f"    0 bytes stack frame, {spilled} bytes spill stores, 0 bytes spill loads\n"
        return replace(backend.finish(text, *rest), ptxas_log=frame + SERIALIZED * serialized)

    monkeypatch.setattr(compile, "finish", finish)
    monkeypatch.setattr(PlainSpills, "bytes", 8)
    kernel = load_kernel(f"{ROOT}/docs/tour_kernel.py:attend")
    given = variant_signature(kernel.file.with_suffix(".toml"), kernel.name, None, vars(kernel.module))
    report = wspec.offline(kernel.function, given.types, given.values, **given.options, gate="off").outcome()
    assert report.specialized is runs
    assert runs or [one.code for one in report.remarks][-1] == "miscompiled"


@pytest.mark.parametrize("code", ["registers", "check-undecided"])
def test_tiles_that_are_turned_lose_their_rings_at_last(code: str) -> None:
    texts = {name: generic(name) for name in ("dequantized_turned", "dequantized_a")}
    judge = Judge(Options(gate="off"))
    asked = {name: [one.name for one in judge.alternatives(judge(text), code)] for name, text in texts.items()}
    assert not any("turned_tiles" in name for name in asked["dequantized_a"])
    without = [at for at, name in enumerate(asked["dequantized_turned"]) if "turned_tiles=False" in name]
    assert without and without[-1] == len(asked["dequantized_turned"]) - 1
    assert without == list(range(without[0], without[-1] + 1))


def generic(name: str) -> str:
    """The TTGIR of an odd kernel."""
    return lowered(next(case for case in odd_cases() if case.name == name))


def test_what_is_not_proved_is_tried_with_a_block_for_each_tile(
    fresh_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tasks are never at different tiles then."""
    rulings: list[proof.Ruling] = []

    def rule(*given: Any) -> proof.Ruling:
        found = proof.rule(*given)
        if not rulings:
            found = proof.Ruling(False, "not proved", (Remark("check-undecided", "no order of the two is known"),))
        rulings.append(found)
        return found

    monkeypatch.setattr(compile, "rule", rule)
    kernel = load_kernel(f"{ROOT}/docs/tour_kernel.py:attend")
    given = variant_signature(kernel.file.with_suffix(".toml"), kernel.name, None, vars(kernel.module))
    report = wspec.offline(kernel.function, given.types, given.values, **given.options).outcome()
    assert report.specialized and report.plan is not None and not report.plan.persistent
    assert len(rulings) == 2
    assert (report.remarks[-1].code, report.remarks[-1].severity) == ("check-undecided", "remark")
    assert report.remarks[-1].note == "so another plan was taken, as with persistent=False"
    rulings.clear()
    options = {**given.options, "persistent": True, "consumers": 2}
    asked = wspec.offline(kernel.function, given.types, given.values, **options).outcome()
    assert not asked.specialized and len(rulings) == 1, "not where somebody asked for the other plan"


@triton.jit
def grouped(a_ptr, b_ptr, c_ptr, start_ptr, groups, n, k, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """Where a group's rows begin is loaded: what one group stores may be what the next one does."""
    columns, depth = tl.program_id(0) * BN + tl.arange(0, BN), tl.arange(0, BK)
    for group in range(groups):
        rows = tl.load(start_ptr + group) + tl.arange(0, BM)
        acc = tl.zeros([BM, BN], tl.float32)
        for i in range(0, k, BK):
            a = tl.load(a_ptr + rows[:, None] * k + i + depth[None, :])
            acc = tl.dot(a, tl.load(b_ptr + (i + depth)[:, None] * n + columns[None, :]), acc)
        tl.store(c_ptr + rows[:, None] * n + columns[None, :], acc.to(tl.float16))


def test_what_is_not_proved_is_tried_with_one_consumer(fresh_cache: Path) -> None:
    """It stores in its own order; two of them do in none."""
    types = {**dict.fromkeys(("a_ptr", "b_ptr", "c_ptr"), "*fp16:16"), "start_ptr": "*i32", "groups": "i32"}
    types |= {"n": "i32:16", "k": "i32:16"}
    options = {"num_warps": 8, "gate": "off"}
    report = wspec.offline(grouped, types, {"BM": 128, "BN": 128, "BK": 64}, **options).outcome()
    assert report.specialized and report.plan is not None and report.plan.consumer.replicas == 1
    assert report.remarks[-1].code == "check-undecided" and report.remarks[-1].note.endswith("as with consumers=1")
    two = wspec.offline(grouped, types, {"BM": 128, "BN": 128, "BK": 64}, **options, consumers=2).outcome()
    assert not two.specialized and two.reason is not None and "global-order" in two.reason.message

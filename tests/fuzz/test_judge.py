"""The judge lets what is right pass, and notices what is planted."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.fuzz import hand
from tests.fuzz.compiling import Compiling
from tests.fuzz.findings import Verdict
from tests.fuzz.judge import judge
from tests.fuzz.program import Lit
from wspec.diagnostics import Remark
from wspec.ir import warp_specialize as ws
from wspec.ir.core import Operation
from wspec.pipeline import Outcome

PRODUCT, ATTENTION = hand.case(hand.product()), hand.case(hand.attention(), normal=True, epilogue_overlap=False)


def stages(verdict: Verdict) -> set[str]:
    return {finding.stage for finding in verdict.findings}


def test_what_is_right(tmp_path: Path) -> None:
    for case in (PRODUCT, ATTENTION, hand.case(hand.product(dtype="bf16"), thorough=True, consumers=1, depth=2)):
        verdict = judge(case, tmp_path)
        assert verdict.findings == [], "\n".join(map(str, verdict.findings))
        assert verdict.code == "specialized" and verdict.checked == "proved"
        assert verdict.compared == len(case.launches) and verdict.runs == 3 * len(case.launches)
        assert verdict.elements and verdict.cubin == case.thorough


def test_what_is_left_alone(tmp_path: Path) -> None:
    """Three consumers cannot share a tile: the plain kernel still runs, and is compared."""
    verdict = judge(hand.case(hand.product(), consumers=3), tmp_path)
    assert verdict.code == "not-partitionable" and not verdict.findings and verdict.runs == len(PRODUCT.launches)


# --------------------------------------------------------------------------------------------- planted faults

Plant = Callable[[Operation], None]


def in_consumer(module: Operation, name: str) -> list[Operation]:
    """The operations of that name in the last consumer."""
    op = ws.find(module)
    assert op is not None
    return [inner for top in ws.task_blocks(op)[-2].ops for inner in top.walk() if inner.name == name]


def other_arithmetic(module: Operation) -> None:
    """The sum of a row is taken away."""
    in_consumer(module, "arith.addf")[-1].name = "arith.subf"


def no_release(module: Operation) -> None:
    for op in in_consumer(module, "ttng.arrive_barrier"):
        op.erase()


def other_phase(module: Operation) -> None:
    """A consumer does not wait for the first tile."""
    op = in_consumer(module, "ttng.wait_barrier")[0]
    op.erase()


def store_elsewhere(module: Operation) -> None:
    """The last consumer's rows go where the first one's go."""
    store = (in_consumer(module, "tt.descriptor_store") or in_consumer(module, "ttng.async_tma_copy_local_to_global"))[
        0
    ]
    at = next(i for i, value in enumerate(store.operands) if value.op is not None and value.op.name == "arith.addi")
    adding = store.operands[at].op
    assert adding is not None
    store.operands[at] = adding.operands[0]


PLANTED: list[tuple[Plant, set[str]]] = [
    (other_arithmetic, {"specialized differs"}),
    (no_release, {"run", "checker"}),
    (other_phase, {"run", "checker"}),
    (store_elsewhere, {"specialized differs"}),
]


@pytest.mark.parametrize(("plant", "noticed"), PLANTED, ids=lambda value: getattr(value, "__name__", ""))
def test_planted(plant: Plant, noticed: set[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    honest = Compiling.specialized

    def specialized(compiling: Compiling) -> Outcome:
        outcome = honest(compiling)
        assert outcome.module is not None
        plant(outcome.module)
        return outcome

    monkeypatch.setattr(Compiling, "specialized", specialized)
    assert noticed <= stages(judge(ATTENTION, tmp_path))


def test_a_compiler_that_fails(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def specialized(compiling: Compiling) -> Outcome:
        raise AssertionError("this cannot be")

    monkeypatch.setattr(Compiling, "specialized", specialized)
    (finding,) = judge(PRODUCT, tmp_path).findings
    assert finding.stage == "compiler" and "this cannot be" in finding.message and "test_judge.py" in finding.message


def test_a_reason_that_is_none(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    remark = Remark("specialized", "done")
    monkeypatch.setattr(Compiling, "specialized", lambda compiling: Outcome(None, None, (remark,)))
    assert stages(judge(PRODUCT, tmp_path)) == {"reason"}


def test_options_that_are_not_kept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    honest = Compiling.specialized
    monkeypatch.setattr(Compiling, "specialized", lambda compiling: honest(Compiling(PRODUCT, compiling.folder)))
    found = judge(hand.case(hand.product(), consumers=1, depth=1), tmp_path)
    assert stages(found) == {"options"} and len(found.findings) == 2


def test_a_wrong_program(tmp_path: Path) -> None:
    """What the front end refuses is Triton's or the generator's, never wspec's."""
    nonsense = hand.product(update=Lit(0.0))
    (finding,) = judge(hand.case(nonsense), tmp_path).findings
    assert finding.stage in ("front end", "program") and not finding.ours

"""Which arguments a specialized kernel takes not to overlap, which kernels are left alone instead, and who is told."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from tests.support import aliased_kernels
from tests.support import kernels as odd
from tests.support.verified import specialize
from wspec import bridge
from wspec.check import check
from wspec.diagnostics import place_text
from wspec.ir import print_module, read
from wspec.ir.disjoint import Disjoint
from wspec.options import Options
from wspec.pipeline import Outcome
from wspec.plan.overlap import disjoint_arguments, in_words
from wspec.planner.decide import function_of

BLOCKS = {"BM": 128, "BN": 64, "BK": 64}
TYPES = {
    "a_desc": "tensordesc<fp16[128, 64]>", "b_desc": "tensordesc<fp16[64, 64]>", "c_desc": "tensordesc<fp16[128, 64]>",
    "bound_ptr": "*i32", "next_ptr": "*i32",
}  # fmt: skip
SUMS = {"a_desc": TYPES["a_desc"], "b_desc": TYPES["b_desc"], "sum_ptr": "*fp32:16", "n": "i32:16", "k": "i32:16"}


def made(name: str, types: dict[str, str], **options: Any) -> tuple[Outcome, bridge.KernelSource]:
    kernel = getattr(aliased_kernels, name, None) or getattr(odd, name)
    source = bridge.from_signature(kernel, types, {**BLOCKS, "num_warps": 8})
    return specialize(read(bridge.ttgir(source)), Options(gate="off", **options)), source


def without(*names: str) -> dict[str, str]:
    return {name: kind for name, kind in TYPES.items() if name not in names}


@pytest.mark.parametrize(
    ("kernel", "types", "code"),
    [
        ("bound_here", without("next_ptr"), "memory-alias"),
        ("bound_volatile", without("next_ptr"), "unsupported-op"),
    ],
)
def test_what_one_argument_does_no_guard_can_tell(kernel: str, types: dict[str, str], code: str) -> None:
    outcome, _ = made(kernel, types)
    (remark,) = outcome.remarks
    assert outcome.module is None and remark.code == code and remark.message.startswith(("several", "this"))
    file = Path(aliased_kernels.__file__)
    lines = file.read_text().split("\n")
    start = next(at for at, line in enumerate(lines) if line.startswith(f"def {kernel}("))
    line = next(at for at, text in enumerate(lines, 1) if at > start and "# at: load" in text)
    assert place_text(remark.location).endswith(f"{file.name}:{line}")


def test_rows_that_another_group_stores_are_added_to_by_one_consumer() -> None:
    outcome, _ = made("added_one_row_down", SUMS)
    assert outcome.module is not None and outcome.plan is not None and not outcome.plan.helpers
    assert outcome.plan.consumer.replicas == 1 and outcome.plan.consumer.warps == 8
    refused, _ = made("added_one_row_down", SUMS, consumers=2)
    assert refused.module is None and refused.remarks[0].code == "memory-alias"


def test_rows_that_are_a_groups_own_may_be_added_to_in_place() -> None:
    outcome, _ = made("added_in_place", SUMS)
    assert outcome.module is not None and outcome.plan is not None and outcome.plan.consumer.replicas == 2


def test_every_load_and_store_through_another_argument_makes_a_pair() -> None:
    function = function_of(read(bridge.ttgir(made("bound_elsewhere", TYPES)[1])))
    names = {"a_desc": 0, "b_desc": 5, "c_desc": 10, "bound_ptr": 15, "next_ptr": 16}
    stored = [("a_desc", "c_desc"), ("b_desc", "c_desc"), ("c_desc", "bound_ptr"), ("c_desc", "next_ptr")]
    stored += [("a_desc", "next_ptr"), ("b_desc", "next_ptr"), ("bound_ptr", "next_ptr")]
    found = disjoint_arguments(function)
    assert found == Disjoint(frozenset((names[one], names[other]) for one, other in stored), own=17)
    said = in_words(function, sorted(found.pairs))
    assert "a_desc and c_desc" in said and "bound_ptr and next_ptr" in said and "a_desc and b_desc" not in said
    assert in_words(function, ()) == ""


@pytest.fixture(scope="module")
def final() -> tuple[str, Disjoint]:
    """What is compiled of the kernel that loads its bound through one argument and stores through another."""
    outcome, source = made("bound_elsewhere", TYPES, persistent=False)
    assert outcome.module is not None
    return bridge.final_ttgir(print_module(outcome.module), source), outcome.disjoint


def test_the_proof_says_what_it_takes_for_granted(final: tuple[str, Disjoint]) -> None:
    text, disjoint = final
    report = check(read(text), disjoint=disjoint)
    assert report.ok
    (said,) = [one for one in report.assumptions if one.startswith("the memory of these arguments")]
    assert set(re.findall(r"\w+ and \w+", said)) == {
        "a_desc and c_desc", "b_desc and c_desc", "c_desc and bound_ptr", "c_desc and next_ptr", "a_desc and next_ptr",
        "b_desc and next_ptr", "bound_ptr and next_ptr",
    }  # fmt: skip


def test_without_the_pairs_there_is_no_proof(final: tuple[str, Disjoint]) -> None:
    """Each that keeps the bound as it is counts; of the others the checker does not ask."""
    text, disjoint = final
    report = check(read(text))
    assert not report.ok and not report.errors and "overwritten" in {one.code for one in report.findings}
    for pair in disjoint.pairs:
        left = check(read(text), disjoint=Disjoint(disjoint.pairs - {pair}))
        assert left.ok == (pair not in {(10, 15), (15, 16)}), pair


def test_clusters_are_not_modelled(final: tuple[str, Disjoint]) -> None:
    text, disjoint = final
    report = check(read(text.replace('"ttg.num-ctas" = 1 : i32', '"ttg.num-ctas" = 2 : i32')), disjoint=disjoint)
    assert not report.ok and any(
        "clusters of several blocks are not modelled" in one.message for one in report.findings
    )


def test_plain_triton_loads_ahead_of_stores_through_the_same_argument() -> None:
    """What documents say of Triton's own pipeliner: two iterations are loaded before the first one has stored."""
    types = {"a_ptr": "*fp16:16", "b_ptr": "*fp16:16", "k": "i32:16"}
    values = {"BM": 64, "BN": 64, "BK": 64, "num_warps": 4, "num_stages": 3}
    text = bridge.plain_ttgir(bridge.from_signature(aliased_kernels.stored_over_input, types, values))
    ops = [op for op in read(text).walk() if op.name in ("ttg.async_copy_global_to_local", "tt.store", "tt.load")]
    inside = [op.name for op in ops if op.parent_op is not None and op.parent_op.name == "scf.for"]
    assert [op.name for op in ops] == ["ttg.async_copy_global_to_local"] * 4 + inside
    assert inside == ["tt.store", *["ttg.async_copy_global_to_local"] * 2]

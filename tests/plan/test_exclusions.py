"""Every pair of optimizations over kernels that come with wspec: had together and proved, or declined with the reason.

Generated from the table of optimizations, so that a new one meets all others here. Each pair is tried on one kernel,
and on all of them with --slow.
"""

from __future__ import annotations

from itertools import combinations
from zlib import crc32

import pytest

from tests.support.proved import assert_proved, verdict
from tests.support.shipped import shipped
from tests.support.verified import specialize
from wspec.options import Options
from wspec.plan.exclusions import EXCLUDED, OPTIMIZATIONS, both_used
from wspec.plan.plan import Plan

KERNELS = {
    "attention": ("attention.py:attention_fwd", "d64"),
    "causal attention": ("attention.py:attention_fwd", "d128_causal"),
    "product": ("matmul.py:matmul_descriptor_kernel", "bf16"),
    "int8 weights": ("quantized.py:int8_weights_kernel", "m256"),
}
ASKED = [name for name, one in OPTIMIZATIONS.items() if one.asked]
PAIRS = [
    (one, two)
    for one, two in combinations(ASKED, 2)
    if not set(OPTIMIZATIONS[one].asked) & set(OPTIMIZATIONS[two].asked)
]


def _said(plan: Plan, name: str) -> bool:
    """Has the plan the optimization, or does it say why not?"""
    reasons = {
        "stream-K": plan.stream_k.why_not,
        "epilogue overlap": plan.epilogue_overlap.why_not,
        "epilogue subtiling": plan.subtiling.why_not,
        "a place for stores": plan.subtiling.why_not,
        "ping-pong": plan.ping_pong.why_not,
        "barrier sharing": plan.shared_barriers.why_not,
        "raster order": plan.raster.why_not,
    }
    return OPTIMIZATIONS[name].used(plan) or bool(reasons.get(name))


def test_the_table_names_optimizations() -> None:
    assert all(len(pair) == 2 and pair <= set(OPTIMIZATIONS) for pair in EXCLUDED)


def _kernel_of(one: str, two: str) -> str:
    """That on which a pair is tried always: by its names, so that it stays the same when a pair is added."""
    return list(KERNELS)[crc32(f"{one}, {two}".encode()) % len(KERNELS)]


UNDECIDED = {("attention", "tile coarsening", "epilogue overlap")}
"""What the checker does not prove, so that launches run plain: rows of a team that a tile carries to the next."""

CASES = [
    pytest.param(kernel, one, two, marks=[] if kernel == _kernel_of(one, two) else pytest.mark.slow)
    for one, two in PAIRS
    for kernel in KERNELS
]


def test_every_kernel_has_pairs() -> None:
    assert {_kernel_of(*pair) for pair in PAIRS} == set(KERNELS)


@pytest.mark.parametrize(("kernel", "one", "two"), CASES, ids=lambda name: name.replace(" ", "-"))
def test_two_at_once(kernel: str, one: str, two: str) -> None:
    asked = Options(gate="off", **{**OPTIMIZATIONS[one].asked, **OPTIMIZATIONS[two].asked})
    made = specialize(shipped(*KERNELS[kernel]), asked)
    if frozenset((one, two)) in EXCLUDED:
        assert made.module is None and made.remarks[-1].code == "excluded"
        return
    if made.module is None:
        assert made.remarks[-1].message and made.remarks[-1].location is not None
        return
    assert made.plan is not None and both_used(made.plan) is None
    assert [name for name in (one, two) if not _said(made.plan, name)] == []
    assert Plan.from_text(made.plan.to_text()) == made.plan
    if (kernel, one, two) in UNDECIDED:
        assert verdict(made.module).startswith("not proved, ")
    else:
        assert_proved(made.module)

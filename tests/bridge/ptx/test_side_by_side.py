"""PTX that synchronizes in another order than the TTGIR is refused, whatever LLVM did to its loops."""

from __future__ import annotations

import re
from collections import Counter

import pytest

from tests.ptx.judge import judged_order
from tests.ptx.shipped_ptx import Pair, pair
from wspec.bridge.ptx.shown import shown

SHIPPED = [("attention.py:attention_fwd", "d64_causal"), ("gathered.py:gathered_matmul_kernel", "bf16")]


def shipped(kernel: str, variant: str) -> Pair:
    found = pair(kernel, variant)
    assert found is not None
    return found


@pytest.mark.parametrize(("kernel", "variant"), SHIPPED)
def test_what_llvm_writes_follows_the_ttgir(kernel: str, variant: str) -> None:
    one = shipped(kernel, variant)
    assert shown(one.final, one.emitted, one.emitted, None).refusal == ""


@pytest.mark.parametrize(("kernel", "variant"), SHIPPED)
def test_a_sample_of_mutants(kernel: str, variant: str) -> None:
    counts = Counter(one.verdict for one in judged_order(shipped(kernel, variant), step=17))
    assert counts["unexplained"] == 0 and counts["refused"] > 5


ARRIVE = r"\n[^\n]*mbarrier\.arrive\.shared[^\n]*"
WAIT = r"\n\{\s*(?:\.loc[^\n]*\s*)?\.reg \.pred complete;\s*(?:\.loc[^\n]*\s*)?waitLoop:[^}]*\}"


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (ARRIVE, ""),
        (ARRIVE, r"\g<0>\g<0>"),
        (WAIT, ""),
        (WAIT, r"\g<0>\g<0>"),
        (r"(mbarrier\.arrive\.expect_tx[^\n]*, )(\d+);", r"\g<1>16;"),
        (r"(mbarrier\.init[^\n]*, )1;", r"\g<1>2;"),
        (r"wgmma\.wait_group\.sync\.aligned 1;", "wgmma.wait_group.sync.aligned 2;"),
        (r"wgmma\.wait_group\.sync\.aligned 0;", ""),
        (r"fence\.proxy\.async\.shared::cta;", ""),
        (r"cp\.async\.bulk\.wait_group\.read 	0;", ""),
        (r"\n[^\n]*cp\.async\.bulk\.tensor\.4d\.global[^\n]*", ""),
        (r"\.reqntid 256", ".reqntid 128"),
        (r"33554689", "33554688"),  # the table that says which warps do what
    ],
)
def test_a_change_is_seen(old: str, new: str) -> None:
    one = shipped(*SHIPPED[0])
    changed, count = re.subn(old, new, one.emitted, count=1)
    assert count == 1 and changed != one.emitted
    assert shown(one.final, changed, changed, None).refusal != ""

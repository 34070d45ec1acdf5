"""PTX that synchronizes otherwise than the TTGIR says is refused, whatever LLVM did to its loops."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace

import pytest
import triton

from tests.ptx.judge import judged_order
from tests.ptx.shipped_ptx import Pair, pair
from tests.support.cases import odd_cases
from tests.support.compiling import outcome, source
from wspec.bridge.backend import emit
from wspec.bridge.ptx.actions import bytes_of_copy
from wspec.bridge.ptx.shown import shown
from wspec.ir import print_module
from wspec.ir.types import Layout, MemDescType, ScalarType

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
    counts = Counter(one.verdict for one in judged_order(shipped(kernel, variant), step=41))
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
        (r"(xor\.b32\s+(%r\d+), \2, )1;", r"\g<1>0;"),  # a phase that never turns
        (r"(selp\.b32\s+%r\d+, )1, 0, ", r"\g<1>0, 1, "),
        (r"(setp\.eq\.b32\s+%p\d+, %r\d+, )2;", r"\g<1>3;"),  # a ring that goes round late
        (r"(add\.s32\s+%r\d+, %r\d+, )82176;", r"\g<1>82184;"),  # another mbarrier
        (r"(elect\.sync[^;]*;\s+add\.s32\s+%r\d+, %r\d+, )73728;", r"\g<1>65536;"),  # another buffer
        (r"\[(%r\d+)\](, \[%rd\d+, \{[^}]*\}\], )\[(%r\d+)\];", r"[\g<1>]\g<2>[\g<1>];"),
        (r"@%p\d+ (mbarrier\.arrive\.shared)", r"\g<1>"),  # by all threads
        (r"@%p\d+ (mbarrier\.arrive\.expect_tx)", r"\g<1>"),
        (r"@%p\d+ (cp\.async\.bulk\.tensor)", r"\g<1>"),
        (r"@%p\d+ (mbarrier\.arrive\.shared)", r"@%p274 \g<1>"),  # by one warp
        (r"bar\.sync 	0, 128;", "bar.sync 	0, 256;"),
        (r"bar\.sync 	0, 128;", "bar.sync 	1, 128;"),
        (r"barrier\.sync 	1;(\s+setmaxnreg[^;]*;\s+st\.shared)", r"\g<1>"),
        (r"barrier\.sync 	1;", "barrier.sync 	3;"),
        (r"barrier\.sync 	1;\s+barrier\.sync 	1;", "barrier.sync 	1;"),  # of warps without a task
        (r"\.reqntid 256", ".reqntid 128"),
        (r"33554689", "33554688"),  # the table that says which warps do what
    ],
)
def test_a_change_is_seen(old: str, new: str) -> None:
    one = shipped(*SHIPPED[0])
    changed, count = re.subn(old, new, one.emitted, count=1)
    assert count == 1 and changed != one.emitted
    assert shown(one.final, changed, changed, None).refusal != ""


def test_who_arrives_is_all_the_same() -> None:
    """Any thread of the task may, if it is one."""
    one = shipped(*SHIPPED[0])
    changed, count = re.subn(r"(setp\.eq\.b32 	%p19, %r9, )0;", r"\g<1>77;", one.emitted)
    if not triton.__version__.startswith("3.6"):
        pytest.skip("the predicate is looked for by the name that LLVM gives it under Triton 3.6")
    assert count == 1
    assert shown(one.final, changed, changed, None).refusal == ""


@pytest.mark.parametrize("name", ["constant_trips", "three_dots", "gated", "nested_loops"])
def test_other_kernels(name: str) -> None:
    """A loop whose length LLVM knows, and kernels with many rings."""
    case = next(one for one in odd_cases() if one.name == name)
    made = outcome(case)
    assert made.module is not None
    emitted = emit(print_module(made.module), source(case))
    assert shown(emitted.generic(), emitted.ptx, emitted.ptx, None).refusal == ""


def test_boxes_of_a_copy() -> None:
    """As wide as what is swizzled together, and of 256 rows at most."""
    fields = (("swizzlingByteWidth", 128), ("transposed", False), ("elementBitWidth", 16))
    layout, space = Layout("ttg.nvmma_shared", fields), Layout("ttg.shared_memory", ())
    type = MemDescType((1, 512, 128), ScalarType("bf16"), layout, space)
    assert bytes_of_copy(type) == 256 * 64 * 2
    assert bytes_of_copy(replace(type, encoding=space)) is None

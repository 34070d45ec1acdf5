"""Whole kernels down to the cubin: each is specialized, or left alone for the right reason at the right line."""

from __future__ import annotations

import linecache
import zlib

import pytest
import triton

from tests.support.cases import left_alone, odd_cases, our_attention, our_matmul
from tests.support.compiling import Case, binary, expected_place, outcome, place, plain_module
from tests.support.invariants import assert_sound
from tests.support.seldom import one_of
from tests.support.worlds import assert_same_stores
from wspec.bridge.versions import INSTALLED
from wspec.kernels.matmul import Config, plain_configs
from wspec.options import Options
from wspec.passes.packed_dequantization.choice import find_packed
from wspec.passes.packed_dequantization.pack_bytes import rewrite
from wspec.pipeline import prepare

ODD = odd_cases()
TAKEN = [case for case in ODD if case.code == "specialized"]
SMALL = 4096  # bytes of barriers, alignment and scratch of reductions, which a plan does not count
FEW = [our_attention(64, True, "fp16"), our_attention(128, True, "bf16")]
FEW += [our_attention(256, False, "bf16"), our_matmul(Config(), False, "bf16"), our_matmul(Config(), True, "fp16")]
MANY = [our_attention(head, causal, d) for head in (64, 128, 256) for causal in (False, True) for d in ("fp16", "bf16")]
MANY += [our_matmul(config, True, "fp16") for config in plain_configs() if config.num_stages == 3]


TWO_STORES = ("stored_whole",)
"""Groups of warps store tiles of two sizes, neither of them through a ring: the plan counts the larger one only."""


def assert_specialized(case: Case) -> None:
    """The case is specialized, sound, stores what the plain kernel stores, and makes good use of the machine."""
    made = outcome(case)
    assert [remark.code for remark in made.remarks] == ["specialized"], made.remarks
    assert made.module is not None and made.plan is not None
    assert made.plan.consumer.replicas == case.replicas
    assert_sound(made.module, made.plan)
    plain = plain_module(case)
    prepare(plain, Options(**{**case.options}))  # what that does is tested by itself
    for packed in find_packed(plain.walk(), 1) if made.plan.packed else ():
        rewrite(packed)  # the same numbers by other operations: test_pack_bytes.py
    assert_same_stores(plain, made.module, zlib.crc32(case.name.encode()))
    found = binary(case, made)
    assert found.hgmma > 0
    assert len(set(found.usetmaxreg)) >= 2, "registers move from the producer to the consumers"
    assert found.spill_bytes == 0 and found.stack_bytes == 0
    beside = 16384 if INSTALLED.whole_views and case.name in TWO_STORES else 0
    assert found.shared_bytes <= made.plan.smem_bytes + SMALL + beside, "the plan knows what shared memory it takes"
    if triton.__version__.startswith("3.6"):  # newer ones bring a ptxas that does so until waits are held in the PTX
        assert set(found.ptxas_notes) <= case.notes, "ptxas took the asynchrony away from tensor core instructions"


@pytest.mark.parametrize("case", one_of(6, TAKEN), ids=str)
def test_specialized(case: Case) -> None:
    assert_specialized(case)


@pytest.mark.parametrize("case", [case for case in ODD if case.code != "specialized"], ids=str)
def test_left_alone(case: Case) -> None:
    made = outcome(case)
    (remark,) = made.remarks
    assert (remark.code, *place(remark)) == (case.code, *expected_place(case))
    assert made.plan is None


@pytest.mark.parametrize("case", FEW, ids=str)
def test_our_kernels(case: Case) -> None:
    assert_specialized(case)


@pytest.mark.slow
@pytest.mark.parametrize("case", MANY, ids=str)
def test_our_kernels_on_a_grid(case: Case) -> None:
    assert_specialized(case)


CODES = {"add": "no-loop", "softmax": "no-loop", "layer_norm": "no-dot-loop"}


@pytest.mark.parametrize("case", left_alone(), ids=str)
def test_our_kernels_without_a_loop_of_dots(case: Case) -> None:
    made = outcome(case)
    (remark,) = made.remarks
    assert remark.code == CODES[case.name]
    start = f"def {case.fn.__name__}(" if remark.code == "no-loop" else "    for first in tl.range(0, columns, BLOCK):"
    assert linecache.getline(*place(remark)).startswith(start)
    assert remark.note, "a person is told what to change"

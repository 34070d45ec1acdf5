"""Groups that issue their products one after the other: where they do, and why elsewhere they do not."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.support.cases import case, desc, odd_cases, our_attention
from tests.support.compiling import Case, outcome
from wspec.pipeline import Outcome

ODD = {one.name: one for one in odd_cases()}
TILE = dict.fromkeys(("q_desc", "k_desc", "v_desc", "o_desc"), desc(128, 64)) | {"scale": "fp32", "length": "i32"}
D64 = case("attention_masked", TILE, {"BM": 128, "BN": 128, "D": 64, "CAUSAL": False, "num_warps": 8})
D128 = our_attention(128, False, "bf16")
BARRIER = re.compile(r"bar\.(sync|arrive) (\d+), 256;")


def made(one: Case, **options: Any) -> Outcome:
    """What is emitted is proved, too."""
    return outcome(one, gate="off", **options)


def turns(one: Case, **options: Any) -> list[bool]:
    """Of each loop."""
    plan = made(one, **options).plan
    assert plan is not None
    return [loop.ping_pong for loop in plan.loops]


def test_the_tensor_core_is_the_bound_where_rows_are_long() -> None:
    """An iteration of D = 128 multiplies longer than it computes exponentials; that of D = 64 does not."""
    assert any(turns(D128)) and not any(turns(D64))


@pytest.mark.parametrize("asked", [False, True])
def test_a_person_decides(asked: bool) -> None:
    for one in (D64, D128):
        plan = made(one, ping_pong=asked).plan
        assert plan is not None and [loop.ping_pong for loop in plan.loops] == [
            asked and bool(x.stage1) for x in plan.loops
        ]


def test_nobody_to_alternate_with() -> None:
    assert not any(turns(D64, ping_pong=True, consumers=1))
    assert not any(turns(ODD["gemm"], ping_pong=True)), "nothing of a plain product's loop runs late"


def test_every_turn_that_is_given_is_taken() -> None:
    """As many arrivals as waits at each named barrier: as the loops make the same rounds, none is left over."""
    module = made(D64, ping_pong=True).module
    assert module is not None
    found = [BARRIER.findall(op.str_attr("asm_string") or "") for op in module.walk() if "inline_asm" in op.name]
    calls = [call for one in found for call in one]
    assert {number for _, number in calls} == {"8", "9"}
    for number in ("8", "9"):
        assert calls.count(("sync", number)) == calls.count(("arrive", number)) > 0

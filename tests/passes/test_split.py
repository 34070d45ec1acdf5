"""The order in which the producer issues its copies."""

from __future__ import annotations

import dataclasses
import re

import pytest

from tests.support.cases import our_attention, product
from tests.support.compiling import Case, plain_module
from wspec.options import Options
from wspec.pipeline import specialize
from wspec.plan.plan import Plan

OPTIONS = Options(gate="off")


def issued(case: Case, plan: Plan) -> list[str]:
    """The rings that the producer's copies go to, in the order of the program."""
    made = specialize(plain_module(case), OPTIONS, plan=plan, keep_stages=True)
    assert made.module is not None, made.remarks
    return re.findall(r'"wspec.copy".* {channel = "([^"]*)"', made.stages["split"])


def planned(case: Case) -> Plan:
    plan = specialize(plain_module(case), OPTIONS).plan
    assert plan is not None
    return plan


def reversed_channels(plan: Plan) -> Plan:
    return dataclasses.replace(plan, channels=plan.channels[::-1])


@pytest.mark.parametrize("box", [(128, 64), (64, 128)], ids=str)
def test_copies_of_a_step_go_in_the_order_of_the_channels(box: tuple[int, int]) -> None:
    case = product(*box, 64)
    plan = planned(case)
    first, second = ([name for name in issued(case, plan) if name.startswith(one.name)] for one in plan.channels)
    assert first and second
    assert issued(case, plan) == [*first, *second]
    assert issued(case, reversed_channels(plan)) == [*second, *first]


def test_no_copy_is_moved_past_a_loop() -> None:
    """Tasks would wait for each other: keys come while a product waits for its queries."""
    case = our_attention(128, False, "bf16")
    plan = planned(case)
    assert plan.channels[0].name.startswith("q")
    kept, moved = issued(case, plan), issued(case, reversed_channels(plan))
    assert kept[0].startswith("q") and moved[0].startswith("q")
    assert kept[-4:] == ["k", "v"] * 2 and moved[-4:] == ["v", "k"] * 2

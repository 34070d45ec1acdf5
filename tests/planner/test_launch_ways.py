"""What launches choose between: teams as large as registers allow, and their plans."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.support.cases import our_attention
from tests.support.compiling import plain_module
from wspec.ir.core import Operation
from wspec.model.machine import load_machine
from wspec.options import Options
from wspec.pipeline import prepare
from wspec.plan.plan import Plan
from wspec.planner.decide import decide
from wspec.planner.launch_ways import launch_ways, may_choose

MACHINE = load_machine("h200")


def attention(keys: int, causal: bool) -> Operation:
    """Numbered; tiles of 64 queries and so many keys, head dimension 64."""
    kv = f"tensordesc<bf16[1, 1, {keys}, 64]>"
    one = our_attention(64, causal, "bf16")
    types, values = {**one.types, "k_desc": kv, "v_desc": kv}, {**one.values, "BLOCK_N": keys}
    module = plain_module(replace(one, types=types, values=values, name=f"{keys} keys"))
    prepare(module, Options())
    return module


def plan_of(module: Operation, **options: Any) -> Plan:
    plan = decide(module, MACHINE, Options(**options))
    assert isinstance(plan, Plan)
    return plan


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(("keys", "teams"), [(64, (4, 3)), (128, (3,))])
def test_a_team_is_as_large_as_registers_allow(keys: int, teams: tuple[int, ...], causal: bool) -> None:
    module = attention(keys, causal)
    plan = plan_of(module)
    assert may_choose(plan, Options()) and not may_choose(plan, Options(coarsening=1))
    ways = launch_ways(module, plan, MACHINE, Options())
    assert [way.coarsening for way in ways] == [1, *teams]
    assert [dict(way.change) for way in ways] == [{}, *({"coarsening": team} for team in teams)]


@pytest.mark.parametrize("team", [1, 3, 4])
def test_groups_of_a_team_do_not_hold_their_waits(team: int) -> None:
    """They have each other's products to run beside; one by itself has its exponentials."""
    plan = plan_of(attention(64, False), coarsening=team)
    assert plan.elide_barriers and plan.hold_waits == (team == 1)
    assert plan_of(attention(64, False), coarsening=team, hold_waits=True).hold_waits

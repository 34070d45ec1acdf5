"""Which share of the exponentials a plan moves to the FMA units."""

from __future__ import annotations

import dataclasses
from fractions import Fraction

import pytest

from tests.support.cases import odd_cases
from tests.support.compiling import Case, binary, outcome, plain_module
from tests.support.programs import function
from wspec.diagnostics import WspecError
from wspec.ir.core import Operation
from wspec.ir.numbering import number
from wspec.model.machine import Machine, load_machine
from wspec.model.operations import loop_work
from wspec.options import Options
from wspec.pipeline import describe
from wspec.plan.exponentials import INSTRUCTIONS, divisible, exponentials, with_share
from wspec.plan.graph import Dataflow
from wspec.plan.plan import Plan
from wspec.planner.planner import make_plan
from wspec.show.explain import done

H200 = load_machine("h200")
ODD = {case.name: case for case in odd_cases()}
GEMM, ATTENTION = ODD["gemm"], ODD["attention_masked"]


def plan_for(machine: Machine, case: Case = ATTENTION, **options: str) -> Plan:
    root = next(op for op in plain_module(case).walk() if op.name == "tt.func")
    number(root)
    return make_plan(Dataflow(root), machine, Options(**{"gate": "off", "chain": "off", **options}))


def shares(plan: Plan) -> list[float]:
    return [loop.exp2_on_fma for loop in plan.loops]


def test_nothing_moves_on_a_machine_where_the_polynomial_takes_longer() -> None:
    assert H200.fma / H200.exp2 < INSTRUCTIONS
    assert not any(shares(plan_for(H200)))


def test_as_much_moves_as_the_loop_is_bound_by_it() -> None:
    """The slower the exponential unit, the more, up to half; never more than brings the loop under another bound."""
    found = []
    for rate in (24.0, 16.0, 12.0, 9.0, 1.0):
        machine = dataclasses.replace(H200, exp2=rate, fma=4096.0, convert=4096.0)
        root = next(op for op in plain_module(ATTENTION).walk() if op.name == "tt.func")
        number(root)
        (share,) = shares(plan_for(machine))
        loop = next(op for op in root.walk() if op.name == "scf.for")
        work = loop_work(loop, machine)
        bound = max(work.mma, work.tma)
        assert share in (0, 0.5) or with_share(work, loop, share, 8, machine).compute <= bound
        assert share == 0 or with_share(work, loop, share - 0.125, 8, machine).compute > bound
        found.append(share)
    assert found == [0, 0.125, 0.375, 0.5, 0.5]


def test_nothing_moves_where_the_tensor_core_is_the_bound() -> None:
    machine = dataclasses.replace(H200, fma=2560.0, convert=2560.0, mma_flop_16bit=256.0)
    assert not any(shares(plan_for(machine)))
    assert any(shares(plan_for(machine, exp2="1/8")))


@pytest.mark.parametrize("text", ["1/8", "1/4", "3/8", "1/2"])
def test_a_share_that_is_asked_for(text: str) -> None:
    made = outcome(ATTENTION, exp2=text, gate="off")
    assert made.plan is not None
    assert all(one == Fraction(text) for one in shares(made.plan))
    assert Plan.from_text(made.plan.to_text()) == made.plan
    assert f"{text} of exp2 on the FMA units (relative error at most 2^-22)" in describe(made.plan)
    assert f"FMA units compute {text} of the elements" in "\n".join(done(made.plan, {}))


def test_what_moves_costs_what_the_model_says() -> None:
    before, after = plan_for(H200, exp2="mufu").prediction, plan_for(H200, exp2="1/2").prediction
    assert after.iteration_cycles > before.iteration_cycles
    assert after.plain_iteration_cycles == before.plain_iteration_cycles


@pytest.mark.parametrize("text", ["auto", "mufu"])
def test_plans_without_it_do_not_speak_of_it(text: str) -> None:
    made = plan_for(H200, exp2=text)
    assert "exp2_on_fma" not in made.to_text() and "exp2" not in describe(made)


def test_a_chain_keeps_its_exponentials() -> None:
    made = outcome(ATTENTION, exp2="1/2", gate="off", chain="on")
    assert made.plan is not None and made.plan.helpers
    assert not any(shares(made.plan)) and "exp2" not in describe(made.plan)


@pytest.mark.parametrize("share", ["1/8", "1/2"])
def test_nothing_is_spilled(share: str) -> None:
    found = binary(ATTENTION, outcome(ATTENTION, exp2=share, gate="off"))
    assert found.spill_store_bytes == found.spill_load_bytes == 0


def test_loops_without_exponentials_are_left_alone() -> None:
    assert not any(shares(plan_for(H200, GEMM, exp2="1/2")))


@pytest.mark.parametrize("value", ["1/3", "on", "0.25", ""])
def test_other_shares_are_refused(value: str) -> None:
    with pytest.raises(WspecError, match="exp2"):
        Options(exp2=value)


def loop_of(element: str, shape: str) -> Operation:
    kind = f"tensor<{shape}x{element}, #mma>"
    body = f"""
    %x = "arith.constant"() <{{value = dense<0.000000e+00> : {kind}}}> : () -> {kind} loc("x")
    %r = "scf.for"(%c0, %n, %c64, %zero) ({{
    ^bb1(%k: i32 loc("k"), %acc: !acc loc("acc")):
      %p = "math.exp2"(%x) @FAST : ({kind}) -> {kind} loc("p")
      "scf.yield"(%acc) : (!acc) -> ()
    }}) : (i32, i32, i32, !acc) -> !acc loc("r")
    """
    return next(op for op in function(body).walk() if op.name == "scf.for")


@pytest.mark.parametrize(
    ("element", "shape", "yes"), [("f32", "128x64", True), ("f32", "128x8", False), ("f64", "128x64", False)]
)
def test_only_tiles_of_float32_are_divided(element: str, shape: str, yes: bool) -> None:
    """A thread must hold whole groups; 8 warps hold 128 x 8 numbers with four a thread."""
    loop = loop_of(element, shape)
    assert [op.name for op in exponentials(loop, 8)] == (["math.exp2"] if yes else [])
    assert not any(divisible(op, 8) for op in loop.regions[0].block.ops if op.name != "math.exp2")

"""What the simulator takes arithmetic and inline assembly to keep busy, and for how long."""

from __future__ import annotations

import pytest

from tests.lab.simulate.playing import MACHINE
from tests.support.programs import function
from wspec.lab.simulate.actions import Flow
from wspec.lab.simulate.costs import ALU, FMA, ISSUE, MUFU, numbers
from wspec.lab.simulate.work import Costing
from wspec.passes.exp2_on_fma import assembly
from wspec.plan.exponentials import GROUP, INSTRUCTIONS


def busy(moved: int) -> dict[int, float]:
    """Cycles of a scheduler for a tile of 32 numbers a thread, with `moved` of 8 on FMA units."""
    tile = "tensor<128x64xf32, #mma>"
    flags = f'asm_string = "{assembly(moved)}", constraints = "", packed_element = {GROUP} : i32, pure = true'
    body = f"""
    %x = "arith.constant"() <{{value = dense<0.000000e+00> : {tile}}}> : () -> {tile} loc("x")
    %p = "tt.elementwise_inline_asm"(%x) <{{{flags}}}> : ({tile}) -> {tile} loc("p")
    """
    op = next(op for op in function(body).walk() if op.name == "tt.elementwise_inline_asm")
    (flow,) = Costing(numbers(MACHINE), 8).pieces([op])
    assert isinstance(flow, Flow)
    return dict(flow.busy)


def test_a_stretch_is_as_long_as_its_busiest_unit_and_its_first_result() -> None:
    made, held, tile = numbers(MACHINE), 32, "tensor<128x64xf32, #mma>"
    body = f"""
    %x = "arith.constant"() <{{value = dense<0.000000e+00> : {tile}}}> : () -> {tile} loc("x")
    %y = "arith.mulf"(%x, %x) : ({tile}, {tile}) -> {tile} loc("y")
    %p = "math.exp2"(%y) : ({tile}) -> {tile} loc("p")
    """
    ops = [op for op in function(body).walk() if op.name in ("arith.mulf", "math.exp2")]
    (flow,) = Costing(made, 8).pieces(ops)
    assert isinstance(flow, Flow)
    first = made.arithmetic_latency + made.mufu_latency
    assert flow.cycles == pytest.approx(dict(flow.busy)[MUFU] + first)
    assert dict(flow.busy)[MUFU] == pytest.approx(held * 128 / made.mufu + made.interference * held * 128 / made.fma)


def test_integers_that_all_threads_agree_on_take_time_and_no_unit() -> None:
    body = """
    %k = "arith.constant"() <{value = 3 : i32}> : () -> i32 loc("k")
    %i = "arith.addi"(%k, %k) : (i32, i32) -> i32 loc("i")
    %j = "arith.muli"(%i, %k) : (i32, i32) -> i32 loc("j")
    """
    ops = [op for op in function(body).walk() if op.name in ("arith.addi", "arith.muli")]
    assert Costing(numbers(MACHINE), 8).pieces(ops) == (pytest.approx(2 * numbers(MACHINE).arithmetic_latency),)


def test_each_instruction_of_the_exponentials_keeps_its_unit_busy() -> None:
    """A warp's instruction takes 32 lanes of a unit; a quarter of the SM's serves one scheduler."""
    made, held = numbers(MACHINE), 32
    for moved in range(GROUP + 1):
        found, share = busy(moved), moved / GROUP
        lost = made.interference * (found.get(FMA, 0.0) + found.get(ALU, 0.0)) if share < 1 else 0.0
        expected = {
            ISSUE: held * (1 + share * (INSTRUCTIONS - 1)),
            FMA: held * share * 9 * 128 / made.fma,
            ALU: held * share * 3 * 128 / made.alu,
            MUFU: held * (1 - share) * 128 / made.mufu + lost,
        }
        assert found == pytest.approx({unit: cycles for unit, cycles in expected.items() if cycles})


def test_bytes_become_bf16_in_four_instructions_for_two() -> None:
    made, held = numbers(MACHINE), 64
    body = """
    %q = "arith.constant"() <{value = dense<1> : tensor<64x128xi8, #mma>}> : () -> tensor<64x128xi8, #mma> loc("q")
    %w = "arith.sitofp"(%q) : (tensor<64x128xi8, #mma>) -> tensor<64x128xbf16, #mma> loc("w")
    """
    op = next(op for op in function(body).walk() if op.name == "arith.sitofp")
    (flow,) = Costing(made, 4).pieces([op])
    assert isinstance(flow, Flow)
    assert dict(flow.busy) == pytest.approx({ISSUE: 2 * held, ALU: 1.5 * held * 128 / made.alu, FMA: held / 2})

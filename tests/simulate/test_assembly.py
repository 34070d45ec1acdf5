"""What the simulator takes inline assembly to keep busy."""

from __future__ import annotations

import pytest

from tests.simulate.playing import MACHINE
from tests.support.programs import function
from wspec.passes.exp2_on_fma import assembly
from wspec.plan.exponentials import GROUP, INSTRUCTIONS
from wspec.simulate.actions import Flow
from wspec.simulate.costs import ALU, FMA, ISSUE, MUFU, numbers
from wspec.simulate.work import Costing


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

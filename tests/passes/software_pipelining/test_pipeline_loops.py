"""Loops that may not run part of an iteration behind, in the executor."""

from __future__ import annotations

import pytest
import torch

from tests.support.attention_kernels import scores_around_a_loop
from tests.support.cases import HEAD, desc
from tests.support.compiling import Case, outcome, plain_module
from wspec.execute.launch import Kernel
from wspec.execute.schedule import FirstReady, Schedule, adversarial

BOXES = {f"{name}_desc": desc(128, 64) for name in "qkuwvo"}
TYPES = {**BOXES, "length": "i32:16", "inner": "i32:16"}
TRIPS = 5


def around(trips: int) -> Case:
    """Of a loop inside with so many iterations, or with 0 as many as the launch says."""
    return Case("scores_around_a_loop", scores_around_a_loop, TYPES, {**HEAD, "TRIPS": trips}, {"gate": "off"})


def left_behind(kernel: Kernel, trips: int, schedule: Schedule) -> torch.Tensor:
    """What it stores when the loop around runs so often."""
    torch.manual_seed(trips)
    given = {name: torch.randn(128 * max(trips, TRIPS), 64).half() for name in BOXES}
    kernel.run((1,), {**given, "length": 128 * trips, "inner": 128 * TRIPS}, schedule=schedule)
    return given["o_desc"]


@pytest.mark.parametrize("trips", [0, TRIPS])
def test_a_loop_inside_takes_more_tiles_than_its_ring_has(trips: int) -> None:
    """No dot is issued before that loop which waits for a tile that the producer loads behind it."""
    case = around(trips)
    made = outcome(case, depth=2)
    assert made.module is not None and made.plan is not None
    assert made.plan.channels[1].depth < TRIPS
    plain, special = Kernel(plain_module(case)), Kernel(made.module)
    for often in (0, 1, 3):
        expected = left_behind(plain, often, FirstReady())
        for schedule in adversarial(special.tasks):
            assert torch.equal(left_behind(special, often, schedule), expected), (often, schedule.name)

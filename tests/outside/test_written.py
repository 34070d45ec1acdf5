"""What becomes of kernels as people write them, compiled for launches that are not made."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import wspec
from tests.outside.written.__main__ import SAME, agreed
from tests.outside.written.launches import CASES, Case, Launch

PLAIN = {
    "backward_queries 64 2048 128x64x64 w8": "gate-slower",
    "gated_states 64 4000 64x128x128 w8": "registers",
}
"""Those that are left as they were written, and why."""
ALWAYS = (
    "in_stages 4 16 4096 128x128x128 w8 causal",
    "chunk_outputs 64 4000 64x64x64 w4",
    "gated_states 64 4000 64x64x128 w4",
)
"""With --slow all are compiled."""


@pytest.mark.parametrize(
    "case", [pytest.param(case, id=str(case), marks=[] if str(case) in ALWAYS else pytest.mark.slow) for case in CASES]
)
def test_it_is_specialized_and_proved(case: Case) -> None:
    launch = case.on("meta")
    found = wspec.compile(launch.kernel, remarks="off").outcome(*launch.arguments, grid=launch.grid, **launch.meta)
    why = None if found.reason is None else found.reason.code
    assert why == PLAIN.get(str(case)), found.reason
    assert why is not None or (found.proof is not None and found.proof.startswith("proved"))


def test_names_are_those_of_cases() -> None:
    names = [str(case) for case in CASES]
    assert len(set(names)) == len(names) and {*PLAIN, *ALWAYS} <= set(names)


class Filling:
    """A kernel that fills its first argument."""

    def __init__(self, number: float) -> None:
        self.number = number

    def __getitem__(self, grid: object) -> Any:
        return lambda out: out.fill_(self.number)


@pytest.mark.parametrize(("number", "verdict"), [(1.0, "equal"), (1.0 + 2**-7, "rounding"), (1.1, "different")])
def test_results_are_compared(number: float, verdict: str) -> None:
    out = torch.zeros(4, 8, dtype=torch.bfloat16)
    launch = Launch(Filling(1.0), (1, 1, 1), (out,), (out,), {})
    assert agreed(launch, Filling(number)).verdict == verdict
    assert (verdict in SAME) is (number < 1.1)

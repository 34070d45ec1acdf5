"""Scripts (tests/check/script.py) and kernels, played."""

from __future__ import annotations

from typing import Any

from tests.check.script import kernel
from wspec.lab.simulate import Simulator
from wspec.lab.simulate.costs import numbers
from wspec.lab.simulate.timeline import SmResult
from wspec.model.machine import load_machine

MACHINE = load_machine("h200")
NUMBERS = numbers(MACHINE)


def simulator(text: str, warps: int = 4) -> Simulator:
    return Simulator(kernel(text, warps=warps), MACHINE)


def play(
    text: str,
    together: int = 1,
    warps: int = 4,
    record: bool = False,
    exact: bool = False,
    every: float = 0.0,
    **numbers: Any,
) -> SmResult:
    """One block of a script on an SM of its own, or several."""
    one = simulator(text, warps)
    given = {f"arg{at}": value for at, value in enumerate(numbers.values())}
    return one.play(one.block(given, (1, 1, 1)), together, record=record, extrapolate=not exact, every=every)


def after_start(result: SmResult) -> float:
    """Cycles since the first instruction."""
    return result.cycles - NUMBERS.block_start

"""Kernels that wspec did not make, right and wrong ones: the executor says what is known of each.

Those are Triton's own specialization and hand-written kernels of tests/outside, on smaller inputs than there.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from tests.outside import launch as launches
from tests.outside.build import Edited, ttgir
from tests.outside.cases import CASES, Case
from wspec import bridge
from wspec.execute import ExecutionError, FirstReady, Kernel, Priorities, Random, Schedule, one_thread
from wspec.ir import read

pytestmark = pytest.mark.slow

CLOSE = 0.1  # of products of 512 normal numbers in 16 bits
DECIDED = [case for case in CASES.values() if case.verdict != "undecided"]


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Few tiles, and one thread."""
    for name, value in {"SIZE": 256, "DEEP": 512, "HEADS": 1, "LENGTH": 512}.items():
        monkeypatch.setattr(launches, name, value)
    with one_thread():
        yield


@pytest.mark.parametrize("case", DECIDED, ids=lambda case: case.name)
def test_right_kernels_run_and_wrong_ones_are_found(case: Case) -> None:
    found = fault(case)
    assert (found == "") == (case.verdict == "ok" or is_about_placement(case)), found


def is_about_placement(case: Case) -> bool:
    """Is its fault one of where Triton puts allocations? The executor gives each a place of its own."""
    return case.name.startswith("triton-ws") and case.codes in ({"missing-fence"}, {"barrier-setup"})


def fault(case: Case) -> str:
    """What some order shows; "" when none shows anything."""
    launch = case.make("cpu")
    written = launch.kernel.kernel if isinstance(launch.kernel, Edited) else launch.kernel
    source = bridge.from_arguments(written, launch.args, launch.options)
    kernel = Kernel(read(ttgir(launch)))
    names = {parameter.name for parameter in kernel.parameters}
    arguments = {n: a for n, a in zip(source.ast.signature, launch.args, strict=False) if n in names}
    grid = (1,) if "persistent" in case.name else launch.grid  # several tiles for the only block
    schedules: tuple[Schedule, ...] = (*kernel.adversaries, Random(0), Random(1), Priorities(0), Priorities(1))
    for schedule in (FirstReady(), *schedules):
        launch.out.fill_(torch.nan)
        try:
            kernel.run(grid, arguments, schedule=schedule, implied_fences=False)
        except ExecutionError as error:
            return f"{schedule.name}: {error}"
        if not bool((launch.out.float() - launch.expected()).abs().max() < CLOSE):
            return f"{schedule.name}: wrong numbers"
    return ""

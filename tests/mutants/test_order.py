"""`order.py` finds what is wrong without running anything, and finds the same as the executor, which runs."""

from __future__ import annotations

import functools

import pytest

from tests.mutants.edits import Mutant
from tests.mutants.facts import Kernel
from tests.mutants.goldens import goldens
from tests.mutants.mutate import built, mutants
from tests.mutants.running import Runner
from tests.mutants.trace import traces
from wspec.ir.core import Operation

RUNS = 16
DEQUANTIZED, PLAIN = "dequantized_a-64", "attention-64-plain"
WRONG = [  # kernel, mutant, and what is wrong with it
    ("gemm-64", "drop-arrive.0", "deadlock: 2 tasks wait"),
    ("gemm-64", "drop-expect.0", "deadlock: 1 tasks wait"),
    ("gemm-64", "double-copy.0", "bytes that were expected and those that came differ"),
    ("gemm-64", "double-expect.0", "more arrivals than a phase waits for"),
    ("gemm-64", "drop-wait.0", "deadlock: 1 tasks wait"),  # one barrier for both tiles
    ("gemm-64", "late-wait.0", "a buffer is read that may not have been written"),
    ("gemm-64", "drop-init.0", "a barrier is used that is not initialized"),
    ("gemm-64", "double-init.0", "a barrier is initialized twice"),
    ("gemm-64", "shrink-alloc.0", "buffer 1 of 1"),
    ("gemm-64", "drop-dot-wait.0", "race: a copy and a dot of one buffer have no order"),
    ("gemm-64", "drop-dot-wait.1", "the result of a dot is used while it runs"),
    ("gemm-64", "drop-store-wait.0", "a task ends while a dot, a store or a copy of it runs"),
    ("gemm-64", "early-store.0", "no fence"),
    ("gemm-64", "early-copy.1", "an arrival may come before its phase has begun"),
    (PLAIN, "early-release.0", "race: a copy and a dot of one buffer have no order"),
    (PLAIN, "drop-wait.6", "a wait may look when the phase after its own is complete"),
    (DEQUANTIZED, "early-release.1", "race: a copy and a read of one buffer have no order"),
    (DEQUANTIZED, "drop-fence.2", "no fence"),
    ("one_pointer-64", "drop-arrive.1", "deadlock: 2 tasks wait"),  # a ring that cp.async fills
    ("one_pointer-64", "drop-wait.0", "the kernel may end while a copy is on its way"),
    ("one_pointer-64", "early-release.6", "race: a gather and a dot of one buffer have no order"),
    (DEQUANTIZED, "shrink-ring.0", "more bytes than there are"),  # a staged store needs the whole ring
]


@functools.cache
def runner(name: str) -> Runner:
    return Runner(goldens()[name])


@functools.cache
def every(name: str) -> dict[str, Mutant]:
    return {mutant.name: mutant for mutant in mutants(goldens()[name].module())}


def module(name: str, mutant: str) -> Operation:
    made = built(every(name)[mutant])
    assert made is not None
    return made


@pytest.mark.parametrize(("name", "mutant", "expected"), WRONG)
def test_what_is_wrong_is_said(name: str, mutant: str, expected: str) -> None:
    assert expected in runner(name).wrong_order(module(name, mutant))
    assert not runner(name).observe(module(name, mutant), 60).is_in_order


@pytest.mark.parametrize("name", goldens())
def test_nothing_is_wrong_with_an_unchanged_kernel(name: str) -> None:
    assert runner(name).wrong_order(goldens()[name].module()) == ""


@pytest.mark.parametrize("name", goldens())
def test_rings_go_round(name: str) -> None:
    """In the longest launch a ring is filled once in all, or more often than it has buffers."""
    kernel, last = Kernel(goldens()[name].module()), runner(name).places[-1]
    followed = [[step for steps in traces(kernel.module, place) for step in steps] for place in last]
    for ring in kernel.rings:
        buffers = ring.buffers.op
        fills = max(sum(s.kind == "copy" and s.slots[0][0] is buffers for s in steps) for steps in followed)
        assert fills > ring.depth or fills == 1, f"{fills} tiles through {ring.depth} buffers"


def test_turns_order_the_tasks_that_take_them() -> None:
    """The second of two tasks in turns need not wait for a tile that the first has waited for; the first must."""
    first, second = (module("program-turns", f"drop-wait.{number}") for number in (3, 13))
    assert "may not have been written" in runner("program-turns").wrong_order(first)
    assert runner("program-turns").wrong_order(second) == ""
    assert runner("program-turns").observe(second, 24).seen == "agrees"


def test_the_executor_sees_the_same() -> None:
    """Every mutant of a matrix product: what can go wrong does, and nothing else. Registers that no warp can have are
    refused before anything runs."""
    differ = []
    for mutant in every("gemm-64").values():
        if mutant.operator == "registers":
            continue
        made = built(mutant)
        if made is not None:
            wrong, seen = runner("gemm-64").wrong_order(made), runner("gemm-64").observe(made, RUNS)
            if bool(wrong) == seen.is_in_order:
                differ.append(f"{mutant}: {wrong or 'nothing wrong'}, but the executor: {seen}")
    assert differ == []

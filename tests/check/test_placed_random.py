"""Random programs of one task over buffers that share memory: the checker against a list of what is in flight.

A program allocates buffers, stores to them, lets TMA store them, waits, converts layouts through scratch, and allocates
further buffers. What conflicts is found here in a straight line, by the bytes that Triton's allocator gives out.
"""

from __future__ import annotations

import random

import pytest

from tests.check.script import kernel
from wspec import bridge
from wspec.check import check
from wspec.ir.core import Operation
from wspec.ir.shared_memory import Area, Placement

PROGRAMS = range(60)
STEPS = 12
ALLOC, LOAD, STORE, CONVERT = "ttg.local_alloc", "ttg.local_load", "ttg.local_store", "ttg.convert_layout"
TMA_STORE, WAIT, FENCE = "ttng.async_tma_copy_local_to_global", "ttng.async_tma_store_wait", "ttng.fence_async_shared"


def program(seed: int) -> str:
    """A script that may be right or wrong."""
    pick = random.Random(seed)
    lines = ["def kernel(n):"]
    buffers: list[str] = []
    for _ in range(STEPS):
        kind = pick.choice(("new", "new", "store", "send", "send", "wait", "convert", "read"))
        if kind == "new" or not buffers:
            buffers = [*buffers[-2:], f"b{len(lines)}"]
            lines.append(f"    {buffers[-1]} = buffer(64, {pick.choice((32, 64))})")
            kind = "store"
        one = pick.choice(buffers) if kind != "store" else buffers[-1]
        fence = ["    fence()"] if pick.random() < 0.9 else []
        lines += {
            "store": [f"    store({one})", *fence],
            "send": [*fence, f"    tma_store({one})"],
            "wait": [f"    store_wait({pick.choice((0, 0, 1))})"],
            "convert": ["    keep(convert(fetch()))", *fence],
            "read": [f"    keep(load({one}))"],
        }[kind]
    return "\n".join([*lines, "    store_wait(0)"]) + "\n"


def is_right(module: Operation, placement: Placement) -> bool:
    """No write where TMA may still read, no read of what is gone, a fence between threads and TMA."""
    reading: list[Area] = []  # by TMA, in order
    unfenced: list[Area] = []  # written by threads
    holds: dict[Operation, bool] = {}
    for op in module.walk():
        if op in placement.fences or op.name == FENCE:
            unfenced = []
        buffer = next((v.op for v in reversed(op.operands) if v.op is not None and v.op.name == ALLOC), None)
        if op.name == WAIT:
            pending = op.int_attr("pendings") or 0
            reading = reading[len(reading) - pending :] if pending else []
        elif op.name in (STORE, CONVERT):
            where = buffer if op.name == STORE else op
            area = placement.areas.get(where) if where is not None else None
            if area is None:
                continue
            if any(area.overlaps(one) for one in reading):
                return False
            unfenced.append(area)
            holds = {other: there and not area.overlaps(placement.areas[other]) for other, there in holds.items()}
            if buffer is not None:
                holds[buffer] = True
        elif op.name in (LOAD, TMA_STORE) and buffer is not None:
            area = placement.areas[buffer]
            if not holds.get(buffer):
                return False
            if op.name == TMA_STORE:
                if any(area.overlaps(one) for one in unfenced):
                    return False
                reading.append(area)
    return True


@pytest.mark.parametrize("seed", PROGRAMS)
def test_what_is_right_is_proved_and_nothing_else(seed: int) -> None:
    text = program(seed)
    module = kernel(text)
    placement = bridge.placement(module)
    report = check(module, placement=placement)
    assert report.ok == is_right(module, placement), f"{text}\n{report}"


def test_some_are_right_and_some_are_wrong() -> None:
    modules = [kernel(program(seed)) for seed in PROGRAMS]
    right = sum(is_right(module, bridge.placement(module)) for module in modules)
    assert 5 < right < len(PROGRAMS) - 5

"""Ways to break a specialized module."""

from __future__ import annotations

from wspec.ir import warp_specialize as ws
from wspec.ir.core import Block, Operation
from wspec.ir.types import IntegerAttr, i32


def tasks(module: Operation) -> list[Block]:
    """The regions of its tasks, the producer last."""
    op = ws.find(module)
    assert op is not None
    return ws.task_blocks(op)


def drop_arrive(module: Operation) -> None:
    """The first consumer never gives a buffer back: the producer waits for ever."""
    arrives = [op for top in tasks(module)[0].ops for op in top.walk() if op.name == "ttng.arrive_barrier"]
    arrives[0].erase()


def start_with_other_phase(module: Operation) -> None:
    """The producer waits for the end of a phase in which nothing was filled yet."""
    changed = 0
    for op in tasks(module)[-1].ops[:8]:
        value = op.attr("value")
        if op.name == "arith.constant" and isinstance(value, IntegerAttr) and value == i32(1):
            op.properties["value"] = i32(0)
            changed += 1
    assert changed, "no phase was found"

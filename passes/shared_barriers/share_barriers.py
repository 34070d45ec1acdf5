"""share_barriers: let the tiles that one product reads arrive at one barrier.

    %s = wspec.acquire {a}                      %s = wspec.acquire {b}
    wspec.copy %s, %x {a}                       wspec.copy %s, %x {a, bytes = those of both}
    %t = wspec.acquire {b}                 =>   wspec.copy %s, %y {b, bytes = 0}
    wspec.copy %t, %y {b}

    %u = wspec.wait {a}                         %u = wspec.wait {b}
    %v = wspec.wait {b}                    =>   %m = wspec.buffer %u {a}
    %m = wspec.buffer %u {a}                    %n = wspec.buffer %u {b}
    %n = wspec.buffer %v {b}

Rings whose channel names another one have no barriers of their own: the other's say that all their buffers are full, or
free. Both are as deep and were entered one after the other, so a place in one ring is a place in the other. Which may
do so: choice.py. Runs before release_buffers, which hands back once what was waited for once.
"""

from __future__ import annotations

from wspec.ir import warp_specialize as ws
from wspec.ir.core import Block, Operation, replace_uses
from wspec.ir.shared_memory import size_bytes
from wspec.ir.types import MemDescType, StringAttr, i32
from wspec.plan.buffers import ring_of
from wspec.plan.plan import Plan

_ENTRIES = ("wspec.acquire", "wspec.wait")
_Rounds = dict[tuple[str, str], dict[str, list[Operation]]]
"""By kind of entry and whose barriers are used: the entries of each ring, in their order."""


def share_barriers(module: Operation, plan: Plan) -> Operation:
    """Enter rings that share barriers together."""
    op = ws.need(module)
    if not any(channel.barriers for channel in plan.channels):
        return module
    tasks = ws.task_blocks(op)
    sizes = {
        ring_of(one): size_bytes(one.result.type)
        for task in tasks for one in task.walk()
        if one.name == "wspec.buffer" and isinstance(one.result.type, MemDescType)
    }  # fmt: skip
    for task in tasks:
        for block in {one.parent for one in task.walk() if one.name in _ENTRIES}:
            assert block is not None
            _enter_together(block, plan, sizes)
    return module


def _enter_together(block: Block, plan: Plan, sizes: dict[str, int]) -> None:
    """The n-th entries of rings that share barriers become the first of them. `sizes`: bytes of a ring's buffer."""
    rounds: _Rounds = {}
    for op in block.ops:
        if op.name in _ENTRIES and (owner := plan.barriers_of(ring_of(op))):
            rounds.setdefault((op.name, owner), {}).setdefault(ring_of(op), []).append(op)
    for (_, owner), rings in rounds.items():
        for entries in zip(*rings.values(), strict=True):
            first, *others = sorted(entries, key=block.ops.index)
            first.attributes["channel"] = StringAttr(owner)
            for other in others:
                replace_uses(block, {other.result: first.result})
                other.erase()
            _expect_once(block, first, sizes)


def _expect_once(block: Block, entry: Operation, sizes: dict[str, int]) -> None:
    """The first copy into buffers entered there announces the bytes of all."""
    copies = [op for op in block.ops if op.name == "wspec.copy" and op.operands[0] is entry.result]
    for copy in copies:
        announced = sum(sizes[ring_of(one)] for one in copies) if copy is copies[0] else 0
        copy.attributes["bytes"] = i32(announced)

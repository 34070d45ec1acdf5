"""Which way of a conditional is looked at first.

Usually the one on which the condition does not hold: what is found then has the shortest way. But where both ways do
the same with barriers, and one only does without some reads, as when a task lets a tile pass, the states behind that
one are like those behind the other, less some events. So they need not be followed when the other was.
"""

from __future__ import annotations

from collections import Counter

from wspec.ir.core import Block, Operation
from wspec.ir.types import MemDescType

_SIGNALS = frozenset(
    ("ttng.wait_barrier", "ttng.arrive_barrier", "ttng.barrier_expect", "ttng.async_tma_copy_global_to_local",
     "ttng.async_copy_mbarrier_arrive", "ttng.init_barrier", "ttng.inval_barrier")
)  # fmt: skip


def holds_first(op: Operation) -> bool:
    """Is the way of an operation on which its condition holds looked at first?"""
    if op.name != "scf.if" or len(op.regions) < 2 or not op.regions[1].blocks:
        return False
    then, other = (region.block for region in op.regions)
    return _signals(then) == _signals(other) and _reads(then) > 0


def _signals(block: Block) -> Counter[str]:
    """What is done with barriers; of a conditional in it whose ways do the same, once."""
    found: Counter[str] = Counter()
    for op in block.ops:
        ways = [_signals(region.block) for region in op.regions if region.blocks]
        if op.name == "scf.if" and len(ways) == 2 and ways[0] == ways[1]:
            ways.pop()
        for way in ways:
            found += way
        if op.name in _SIGNALS:
            found[op.name] += 1
    return found


def _reads(block: Block) -> int:
    """How many operations take a buffer and give something else."""
    return sum(_is_read(op) for top in block.ops for op in top.walk())


def _is_read(op: Operation) -> bool:
    if op.name in _SIGNALS or any(isinstance(result.type, MemDescType) for result in op.results):
        return False
    return any(isinstance(value.type, MemDescType) for value in op.operands)

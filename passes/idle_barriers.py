"""Barriers that a kernel's author put between its threads go where nothing hangs on them.

`tl.debug_barrier()` orders what the threads of a block do in global memory; buffers in shared memory Triton guards
itself. Once the kernel is divided, a barrier that stays keeps all that it orders in one task. None is needed where no
thread can read what another one has written: nothing is loaded through an argument that is stored through (that others
do not share memory with these is compared at each launch), and there are no atomics. Runs before a plan is made.
"""

from __future__ import annotations

from wspec.ir.core import Operation
from wspec.plan.graph import BARRIERS, LOADS, STORES, memory_base

_TALK = ("tt.atomic", "tt.elementwise_inline_asm", "tt.extern", "tt.call")


def drop_idle_barriers(module: Operation) -> None:
    """Take them out of the module, in place, or none."""
    barriers = [op for op in module.walk() if op.name in BARRIERS]
    if not barriers or any(op.name.startswith(_TALK) for op in module.walk()):
        return
    loaded, stored = ([memory_base(op) for op in module.walk() if op.name in names] for names in (LOADS, STORES))
    if None in loaded or None in stored or set(loaded) & set(stored):
        return
    for op in barriers:
        op.erase()

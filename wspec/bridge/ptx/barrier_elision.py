"""Barriers of a warp group that only slow it down, and are taken out of the PTX.

Triton puts a barrier of the whole warp group before each arrival at an mbarrier and before many waits, so that what all
its threads did in shared memory comes before what one of them says. Two of these have nothing to order:

    wgmma.wait_group 1;                          try_wait [full];
    bar.sync 0, 128;         // taken out        ...
    @leader mbarrier.arrive [empty];             bar.sync 0, 128;     // taken out
                                                 try_wait [full + 8];

A tile that only the tensor core has read is handed back right behind the wait for that product. A `wgmma` belongs to
all four warps: it runs when each has issued it, and each has passed the wait for its operands before; so when it is
done for the thread that arrives, nobody in the group reads the tile any more. CUTLASS hands its buffers back the same
way (`PipelineTmaAsync::consumer_release` of one thread, without a barrier of the group).

Likewise a barrier right behind another one and arrivals, as when a task hands on a tile that it made and gives back
the one it was made of: whoever has passed the first barrier has done all that the second one waits for. And
while a kernel makes its mbarriers, or ends them, a barrier between two of them:

    @leader mbarrier.init [full], 1;
    bar.sync 0, 128;                     // taken out
    @leader mbarrier.init [full + 8], 1;
    bar.sync 0, 128;

One thread does all of these, each at an address of its own, and the barrier behind the last one stays.

A barrier of the other kinds is taken out only if no thread can have touched shared memory since the last barrier that
stays, on any way to it: loads, stores, matrix moves, copies out of shared memory and their waits, fences, and what is
not known.

A task of several warp groups, as 64 rows on eight warps have, has barriers of all of them, and of those only the ones
in front of waits go, and behind others: its groups' products are not done at the same time. The second of these goes:

    wgmma.wait_group 1;
    bar.sync 0, 256;                     // stays: one thread hands back what both groups have read
    @leader mbarrier.arrive [empty];
    bar.sync 0, 256;                     // taken out
    try_wait [full + 8];

It costs three times its own 28 cycles, as what computes the next tile's address stands behind it
(docs/results/products.md, "Eight warps on 64 rows").
"""

from __future__ import annotations

import operator
from collections.abc import Iterator

from wspec.bridge.ptx.code import (
    GROUP,
    Lines,
    is_arrival,
    is_clean,
    is_group_barrier,
    is_setup_barrier,
    is_sync,
    meets,
    pending_products,
    speaks,
)
from wspec.ptx.errors import PtxError
from wspec.ptx.fixed_points import states_before
from wspec.ptx.flow import Block, blocks_of
from wspec.ptx.operands import Number
from wspec.ptx.roles import roles_of
from wspec.ptx.syntax import Function, Instruction, Module

_STOOD = "\t// a barrier of the task's threads stood here that had nothing to order"


def drop_idle_barriers(module: Module, lines: Lines) -> list[Instruction]:
    """Take them out of the lines; which they were. Raises PtxError."""
    blocks = blocks_of(module.entry())
    widths = _widths(module.entry(), blocks)
    dirty = _dirty_at_entry(blocks, widths)
    idle = [
        one
        for block, width, is_dirty in zip(blocks, widths, dirty, strict=True)
        for one in _idle(blocks, block, is_dirty, width)
        if lines.line_of(one) is not None
    ]
    for one in idle:
        lines.replace(one, _STOOD)
    return idle


def _widths(function: Function, blocks: list[Block]) -> list[int]:
    """For each block: the threads of the widest task that executes it; of a warp group, where that is not known."""
    widths = [GROUP] * len(blocks)
    try:
        roles = roles_of(function, blocks)
    except PtxError:
        return widths
    for role in roles:
        for number in role.blocks:
            widths[number] = max(widths[number], role.threads)
    return widths


def _dirty_at_entry(blocks: list[Block], widths: list[int]) -> list[bool]:
    """For each block: may a thread have touched shared memory since its task last met, on some way to it?"""

    def behind(number: int, dirty: bool) -> Iterator[tuple[int, bool]]:
        for one in blocks[number].instructions:
            dirty = _after(one, dirty, widths[number])
        yield from ((way, dirty) for way in blocks[number].follow)

    found = states_before({0: True}, behind, operator.or_)
    return [found.get(number, False) for number in range(len(blocks))]


def _after(instruction: Instruction, dirty: bool, width: int) -> bool:
    if meets(instruction, width):
        return False
    return dirty or not is_clean(instruction)


def _idle(blocks: list[Block], block: Block, dirty: bool, width: int) -> list[Instruction]:
    """The barriers of a block that have nothing to order, and `width` threads."""
    found: list[Instruction] = []
    behind = False  # have all before, since the last wait for products, been arithmetic and such arrivals?
    passed: object = None  # the barrier since which all before have been arithmetic and such arrivals
    maker = ""  # who has made or ended mbarriers since the last barrier that stays, nobody else having done anything
    wait = blocks[block.follow[0]] if block.turn is None and block.follow else None  # the loop of a wait, behind it
    behind_it = wait.instructions[:1] if wait is not None and wait.spins else []
    for place, one in enumerate(block.instructions):
        made = _maker(one)
        if pending_products(one) is not None:
            behind, passed = width == GROUP, None  # of the others' products it says nothing
        elif is_sync(one) and not one.guard:
            following = next(filter(speaks, (*block.instructions[place + 1 :], *behind_it)), None)
            another = _maker(following) if following is not None else ""
            own = is_group_barrier(one, width) and isinstance(one.operands[0], Number)
            if maker and another == maker and is_setup_barrier(one):
                found.append(one)
                continue  # what was done before it is not in order yet
            handed = following is not None and is_arrival(following) and (behind or passed == one.key)
            waits = following is not None and following.opcode.startswith("mbarrier.try_wait")
            if own and not dirty and (handed or waits):
                found.append(one)
            else:
                passed = one.key
            maker = ""
        elif not is_arrival(one) and speaks(one):
            behind, passed = False, None
        if made:
            maker = made if not dirty or maker == made else ""
        elif speaks(one) and not is_sync(one):
            maker = ""
        dirty = _after(one, dirty, width)
    return found


def _maker(instruction: Instruction) -> str:
    """The predicate of the one thread that makes or ends an mbarrier here; "" for anything else."""
    one = instruction.opcode.startswith(("mbarrier.init.shared", "mbarrier.inval.shared"))
    return instruction.guard if one and not instruction.unless else ""

"""Allocations whose memory the back end may give to another one.

Triton's allocator puts allocations that are not used at the same time at the same place. Two things then go wrong where
TMA fills the second inside a `ttg.warp_specialize`:

- The first held barriers that nobody invalidated. Memory with an mbarrier in it may not be used for anything else (PTX
  ISA, mbarrier.init); on an H200 some of the tile that TMA wrote there is lost. Triton 3.6's own specialization leaves
  unused barriers behind, and this is the NaN that attention gave with three stages (docs/checker.md).
- Threads wrote to the first, through another proxy than TMA, and no proxy fence comes between. Within one region of
  code Triton's back end puts that fence in; from the code before the specialization into its tasks it does not.
"""

from __future__ import annotations

from collections.abc import Iterator

from wspec.check import code as c
from wspec.check.clock import timed
from wspec.check.findings import Finding
from wspec.check.names import Names
from wspec.ir import warp_specialize as ws
from wspec.ir.core import Operation, Value
from wspec.ir.types import MemDescType

_INIT = "ttng.init_barrier"


def lifetimes(function: Operation, program: c.Program, names: Names) -> Iterator[Finding]:
    """What is left behind in memory that TMA may fill for a task."""
    regions = [op for op in function.walk() if op.name == ws.NAME]
    positions = {op: at for at, op in enumerate(function.walk())}
    uses = _uses(function, program, names, regions)
    for region in regions:
        filled = sorted(_filled(region, names), key=lambda root: positions[program.roots[root]])
        lost: list[tuple[int, int, Operation]] = []
        for root, users in timed(uses.items()):
            written = _last_write(program.roots[root], users, positions, positions[region])
            if written is None or (written.name != _INIT and _fenced(region, positions, positions[written])):
                continue
            end = max(positions[op] for op in users)
            over = next((one for one in filled if positions[program.roots[one]] > end), None)
            if over is not None:
                lost.append((root, over, written))
        if lost:
            yield _finding(names, program, *lost[0], len(lost) - 1)


def _uses(
    function: Operation, program: c.Program, names: Names, regions: list[Operation]
) -> dict[int, list[Operation]]:
    """Allocation -> the operations that touch it; what is used inside a warp_specialize is used by that."""
    found: dict[int, list[Operation]] = {root: [op] for root, op in enumerate(program.roots)}
    for op in timed(function.walk()):
        around = next((one for one in regions if op is one or op.is_inside(one)), None)
        for value in op.operands:
            if isinstance(value.type, MemDescType) and (root := names.root(value)) is not None:
                found[root].append(op if around is None else around)
    return found


def _filled(region: Operation, names: Names) -> set[int]:
    """The allocations that TMA writes inside a warp_specialize."""
    found: set[int] = set()
    for op in timed(region.walk()):
        if op.name in ("ttng.async_tma_copy_global_to_local", "ttng.async_tma_gather"):
            buffers: list[Value] = [v for v in op.operands if isinstance(v.type, MemDescType)]
            root = names.root(buffers[1])
            if root is not None:
                found.add(root)
    return found


def _last_write(
    allocation: Operation, users: list[Operation], positions: dict[Operation, int], before: int
) -> Operation | None:
    """Of an allocation that is done with before a place: its last write by threads, or a barrier left valid."""
    if any(positions[op] >= before for op in users):
        return None
    if any(op.name == _INIT for op in users):
        given_up = sum(op.name == "ttng.inval_barrier" for op in users)
        left = [op for op in users if op.name == _INIT]
        return left[-1] if given_up < len(left) else None
    writes = [op for op in users if op.name == "ttg.local_store" or (op is allocation and op.operands)]
    return max(writes, key=lambda op: positions[op], default=None)


def _fenced(region: Operation, positions: dict[Operation, int], after: int) -> bool:
    """Does a fence stand between a place and a warp_specialize, in its own block?"""
    block = region.parent
    assert block is not None
    return any(op.name == "ttng.fence_async_shared" and after < positions[op] < positions[region] for op in block.ops)


def _finding(names: Names, program: c.Program, root: int, over: int, written: Operation, more: int) -> Finding:
    first, second = names.view(c.View(root)), names.view(c.View(over))
    others = f" (and {more} more)" if more else ""
    path = (
        (f"{first} is last used", written.location),
        (f"{second} is allocated later and filled by TMA", program.roots[over].location),
    )
    if written.name == _INIT:
        message = f"{first}{others} is not used any more but never invalidated, and {second} may get its memory"
        note = "leave the barrier out, or put a ttng.inval_barrier behind its last use"
        return Finding("error", "barrier-setup", message, written.location, path, note)
    message = f"{first}{others} is not used any more, and {second} may get its memory before the last write is seen"
    note = "put a ttng.fence_async_shared before the warp_specialize"
    return Finding("error", "missing-fence", message, written.location, path, note)

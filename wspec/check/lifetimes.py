"""Allocations whose memory the back end may give to another one.

Triton's allocator puts allocations that are not used at the same time at the same place. What threads have written to
the first (a barrier's initialization counts) and TMA writes to the second then go through different proxies, and
without a proxy fence between the first may land last. Within one region of code Triton's back end puts that fence in;
from the code before a `ttg.warp_specialize` into its tasks it does not. Triton 3.6's own specialization leaves barriers
behind that nobody uses, and so loses the first bytes of a tile now and then: the NaN that attention gave with three
stages.
"""

from __future__ import annotations

from collections.abc import Iterator

from wspec.check import code as c
from wspec.check.findings import Finding
from wspec.check.names import Names
from wspec.ir import warp_specialize as ws
from wspec.ir.core import Operation, Value
from wspec.ir.types import MemDescType

_WRITES = frozenset(("ttng.init_barrier", "ttng.inval_barrier", "ttg.local_store"))


def lifetimes(function: Operation, program: c.Program, names: Names) -> Iterator[Finding]:
    """Writes of threads that may land on top of what TMA writes for a task."""
    regions = [op for op in function.walk() if op.name == ws.NAME]
    positions = {op: at for at, op in enumerate(function.walk())}
    uses = _uses(function, program, names, regions)
    for region in regions:
        filled = sorted(_filled(region, names), key=lambda root: positions[program.roots[root]])
        lost: list[tuple[int, int, Operation]] = []
        for root, users in uses.items():
            written = _last_write(program.roots[root], users, positions, positions[region])
            if written is None or _fenced(region, positions, positions[written]):
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
    for op in function.walk():
        around = next((one for one in regions if op is one or op.is_inside(one)), None)
        for value in op.operands:
            if isinstance(value.type, MemDescType) and (root := names.root(value)) is not None:
                found[root].append(op if around is None else around)
    return found


def _filled(region: Operation, names: Names) -> set[int]:
    """The allocations that TMA writes inside a warp_specialize."""
    found: set[int] = set()
    for op in region.walk():
        if op.name in ("ttng.async_tma_copy_global_to_local", "ttng.async_tma_gather"):
            buffers: list[Value] = [v for v in op.operands if isinstance(v.type, MemDescType)]
            root = names.root(buffers[1])
            if root is not None:
                found.add(root)
    return found


def _last_write(
    allocation: Operation, users: list[Operation], positions: dict[Operation, int], before: int
) -> Operation | None:
    """The last write of threads to an allocation that is done with before a place; None if there is no such write."""
    if any(positions[op] >= before for op in users):
        return None
    writes = [op for op in users if op.name in _WRITES or (op is allocation and op.operands)]
    return max(writes, key=lambda op: positions[op], default=None)


def _fenced(region: Operation, positions: dict[Operation, int], after: int) -> bool:
    """Does a fence stand between a place and a warp_specialize, in its own block?"""
    block = region.parent
    assert block is not None
    return any(op.name == "ttng.fence_async_shared" and after < positions[op] < positions[region] for op in block.ops)


def _finding(names: Names, program: c.Program, root: int, over: int, written: Operation, more: int) -> Finding:
    first, second = names.view(c.View(root)), names.view(c.View(over))
    others = f" (and {more} more)" if more else ""
    message = (
        f"{first}{others} is not used any more, so that {second} may get its memory; "
        f"what {written.name.split('.')[1]} writes there may land on what TMA writes"
    )
    path = (
        (f"{first} is last written", written.location),
        (f"{second} is allocated later and filled by TMA", program.roots[over].location),
    )
    note = "leave the unused allocation out, or put a ttng.fence_async_shared before the warp_specialize"
    return Finding("error", "missing-fence", message, written.location, path, note)

"""Teams: consumer warp groups that each work on a tile of their own and share the tiles that a loop streams.

In attention neighbouring tiles of queries read the same keys and values. A warp group needs 64 rows for its products,
and Triton's tiles are powers of two; so three groups cannot share one tile, but they can share what three tiles
read. `wspec.member` is the number of the group, 0 to size - 1; what depends on it differs between members.
"""

from __future__ import annotations

from wspec.ir.core import Block, Operation, Value
from wspec.ir.ops import is_pure

MEMBER = "wspec.member"


def differing_in(block: Block, roots: set[Value] | None = None) -> set[Value]:
    """The values in a block and below that may differ where the roots do, by data or by control.

    The roots are the members' numbers if none are given: then what may differ between the members of a team.
    """
    walk = block.walk()
    found = {op.result for op in walk if op.name == MEMBER} if roots is None else set(roots)
    grew = bool(found)
    while grew:
        before = len(found)
        _spread(block, found, False)
        grew = len(found) > before
    return found


def size_of(function: Operation) -> int:
    """How many tiles the members work on; 1 in a kernel without a team."""
    return max((op.int_attr("size") or 1 for op in function.walk() if op.name == MEMBER), default=1)


def _spread(block: Block, found: set[Value], control: bool) -> None:
    for op in block.ops:
        mine = control or any(value in found for value in op.operands)
        if op.name == "scf.for":
            _through_loop(op, found, control)
        elif op.name == "scf.if":
            decided = control or op.operands[0] in found
            for inner in op.blocks:
                _spread(inner, found, decided)
            ends = [inner.terminator.operands for inner in op.blocks]
            for index, result in enumerate(op.results):
                if decided or any(values[index] in found for values in ends):
                    found.add(result)
        elif mine or any(v in found for inner in op.walk() for v in inner.operands):
            found.update(op.results)


def _through_loop(loop: Operation, found: set[Value], control: bool) -> None:
    body = loop.regions[0].block
    decided = control or any(value in found for value in loop.operands[:3])
    if decided:
        found.add(body.args[0])
    for index, result in enumerate(loop.results):
        start, arg = loop.operands[3 + index], body.args[1 + index]
        if decided or start in found or body.terminator.operands[index] in found:
            found.update((arg, result))
    _spread(body, found, decided)


def slice_in(block: Block, values: list[Value], within: set[Value]) -> list[Operation] | None:
    """The operations of the block that make these values out of those that are not in `within`, in order.

    None where one of them has regions, is not pure, or stands elsewhere.
    """
    needed: set[Operation] = set()
    work = [value for value in values if value in within]
    while work:
        op = work.pop().op
        if op is None or op.parent is not block or op.regions or not (is_pure(op) or op.name == MEMBER):
            return None
        if op not in needed:
            needed.add(op)
            work += [value for value in op.operands if value in within]
    return [op for op in block.ops if op in needed]

"""Who can see the elements of a tile that a promoted load brings otherwise than the kernel asked for?

Rows that begin again (`(i + row) % rows`) make a load bring the first rows once more where a descriptor brings zeros.
That is the same if these elements are never seen: they are followed through the kernel, by dimension, to stores whose
mask leaves them out. An element may depend on those at its own place, and a product's row on a row of its operand;
whatever mixes places, or decides something, has seen them.
"""

from __future__ import annotations

from collections.abc import Sequence

from wspec.ir.core import Operation, Value
from wspec.ir.ops import is_elementwise
from wspec.ir.shapes import DOTS, shape_of
from wspec.ir.types import DenseArrayAttr
from wspec.passes.pointer_promotion.addresses import Polynomial, add, atoms_in, index, is_before
from wspec.passes.pointer_promotion.tiles import Dead, Tiles
from wspec.plan.graph import Dataflow
from wspec.plan.pointer_loads import mask_of

_SAME_PLACE = frozenset({"ttg.convert_layout", "ttg.local_alloc", "ttg.local_load", "tt.fp_to_fp", "tt.bitcast"})
_TURNED = frozenset({"tt.trans", "ttg.memdesc_trans"})


class Seen(Exception):
    """The operation that may see a dead element."""

    def __init__(self, op: Operation) -> None:
        super().__init__(f"rows that begin again reach {op.name}")
        self.op = op


def check_unseen(flow: Dataflow, tiles: Tiles, loaded: Value, dead: Sequence[Dead]) -> None:
    """Raises Seen where an element of the loaded tile that is `dead` may be seen."""
    for one in dead:
        _follow(flow, tiles, loaded, one)


def _follow(flow: Dataflow, tiles: Tiles, loaded: Value, dead: Dead) -> None:
    start = (loaded, dead.dim)
    done, work = {start}, [start]
    while work:
        value, dim = work.pop()
        for op in flow.users(value):
            for reached in _reached(flow, tiles, op, value, dim, dead):
                if reached not in done:
                    done.add(reached)
                    work.append(reached)


def _reached(
    flow: Dataflow, tiles: Tiles, op: Operation, value: Value, dim: int, dead: Dead
) -> list[tuple[Value, int]]:
    """The values whose elements with a dead place along a dimension depend on such elements. Raises Seen."""
    if op.name in _SAME_PLACE or (is_elementwise(op) and op.name != "tt.elementwise_inline_asm"):
        return [(result, dim) for result in op.results]
    if op.name in _TURNED:
        order = op.attr("order")
        if isinstance(order, DenseArrayAttr):
            return [(op.result, order.values.index(dim))]
    if op.name in DOTS:
        at = [place for place, operand in enumerate(op.operands) if operand is value]
        if at == [2] or at == [dim]:  # the accumulator; rows of the first operand, columns of the second
            return [(op.result, dim)]
    if op.name == "scf.for":
        places = [place for place, operand in enumerate(op.operands) if operand is value]
        if min(places) >= 3:
            inside = op.regions[0].block.args
            return [pair for at in places for pair in ((inside[at - 2], dim), (op.results[at - 3], dim))]
    if op.name == "scf.yield" and op.parent_op is not None:
        return _yielded(tiles, op, op.parent_op, value, dim, dead)
    if op.name == "tt.reduce" and (axis := op.int_attr("axis")) is not None and axis != dim:
        return [(result, dim - (axis < dim)) for result in op.results]
    if op.name == "tt.expand_dims" and (axis := op.int_attr("axis")) is not None:
        return [(op.result, dim + (axis <= dim))]
    if op.name == "tt.broadcast" and shape_of(value.type)[dim] == shape_of(op.result.type)[dim]:
        return [(op.result, dim)]
    if _stores(op, value, flow) and _hides(tiles, op, dim, dead):
        return []
    raise Seen(op)


def _stores(op: Operation, value: Value, flow: Dataflow) -> bool:
    """Does it put the value into memory, and nothing else: a store, or an atomic that nobody asks what was there?"""
    if op.name != "tt.store" and (op.name != "tt.atomic_rmw" or flow.users(op.result)):
        return False
    return op.operands.index(value) == 1 and op.operands.count(value) == 1


def _yielded(
    tiles: Tiles, op: Operation, parent: Operation, value: Value, dim: int, dead: Dead
) -> list[tuple[Value, int]]:
    places = [place for place, operand in enumerate(op.operands) if operand is value]
    found = [(parent.results[at], dim) for at in places]
    if parent.name == "scf.for":
        if any(not is_before(tiles.addresses.atoms[one], parent) for one in atoms_in([dead.inner, dead.end])):
            raise Seen(op)  # in the next round the same names are other numbers
        found += [(parent.regions[0].block.args[1 + at], dim) for at in places]
    elif parent.name != "scf.if":
        raise Seen(op)
    return found


def _hides(tiles: Tiles, store: Operation, dim: int, dead: Dead) -> bool:
    """Does the mask of a store leave out elements whose place along a dimension is dead?"""
    place: Polynomial = add(dead.inner, {(index(dead.dim),): 1}, -1)
    room = add(dead.end, place, -1)  # what i is below in elements that are alive
    return any(dict(end) == dict(room) for end in tiles.masks.ends(mask_of(store), dim))

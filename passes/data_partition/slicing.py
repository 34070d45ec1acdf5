"""Which dimension of which value belongs to the tile that replicas share.

Replicas of a consumer run the same task on slices of the tile's rows. Slicing one dimension of one dot slices the
same dimension of everything it is computed from or flows into. This analysis groups (value, dimension) pairs that must
be sliced together with a union-find; a group is sliceable unless it reaches a place where a slice would not be the
same computation: a reduced axis, a dot's inner dimension, an operation we know nothing of.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import networkx as nx

from wspec.ir.core import Block, Operation, Value
from wspec.ir.ops import is_elementwise
from wspec.ir.shapes import DOTS, shape_of, unit_dim_pairs
from wspec.ir.types import DenseArrayAttr, DenseAttr, TensorType

Node = tuple[Value, int]

_FREE_LEAVES = frozenset(
    {"tt.splat", "tt.make_range", "tt.make_tensor_descriptor", "arith.constant", "wspec.buffer", "ub.poison"}
)
_IDENTITY = frozenset(
    {"ttg.convert_layout", "tt.load", "tt.store", "tt.addptr", "tt.atomic_rmw", "tt.atomic_cas", "ttg.local_alloc",
     "ttg.local_load", "ttg.local_store", "tt.bitcast", "tt.fp_to_fp", "tt.ptr_to_int", "tt.int_to_ptr", "tt.clampf",
     "tt.precise_sqrt", "tt.precise_divf", "tt.mulhiui", "tt.extern_elementwise", "arith.select"}
)  # fmt: skip
_TRANSPOSES = frozenset({"tt.trans", "ttg.memdesc_trans"})


def nodes(value: Value) -> list[Node]:
    return [(value, dim) for dim in range(len(shape_of(value.type)))]


@dataclass
class Groups:
    """Sets of (value, dimension), with the reason why a group cannot be sliced."""

    sets: nx.utils.UnionFind = field(default_factory=nx.utils.UnionFind)
    blocked: dict[Node, tuple[Operation, str]] = field(default_factory=dict)  # by what stands for the group

    def find(self, node: Node) -> Node:
        """What stands for the group of `node`."""
        found: Node = self.sets[node]
        return found

    def join(self, a: Node, b: Node) -> None:
        why = self.reason(b) or self.reason(a)
        self.sets.union(a, b)
        if why is not None:
            self.blocked[self.find(b)] = why

    def block(self, node: Node, op: Operation, why: str) -> None:
        self.blocked.setdefault(self.find(node), (op, why))

    def reason(self, node: Node) -> tuple[Operation, str] | None:
        """Why the group of `node` cannot be sliced; None when it can."""
        return self.blocked.get(self.find(node))


@dataclass(frozen=True, slots=True)
class Conflict:
    """The tile cannot be sliced: where, and why."""

    op: Operation
    why: str


@dataclass(frozen=True, slots=True)
class Slicing:
    """The dimension that is sliced, of each value that is."""

    dims: dict[Value, int]

    def dim(self, value: Value) -> int | None:
        return self.dims.get(value)


# ------------------------------------------------------------------------------------------------- rules


def _join_all(groups: Groups, values: Iterable[Value]) -> None:
    shaped = [value for value in values if shape_of(value.type)]
    for value in shaped[1:]:
        first = shaped[0]
        if len(shape_of(value.type)) == len(shape_of(first.type)):
            for dim in range(len(shape_of(first.type))):
                groups.join((first, dim), (value, dim))


def _dot(groups: Groups, op: Operation) -> None:
    a, b, c, d = op.operands[0], op.operands[1], op.operands[2], op.results[0]
    groups.join((a, 0), (d, 0))
    groups.join((b, 1), (d, 1))
    _join_all(groups, [c, d])
    groups.block((a, 1), op, "is the inner dimension of a dot")
    groups.block((b, 0), op, "is the inner dimension of a dot")


def _reduce(groups: Groups, op: Operation) -> None:
    axis = op.int_attr("axis") or 0
    for source in op.operands:
        groups.block((source, axis), op, "is reduced over")
        for result in op.results:
            for dim in range(len(shape_of(result.type))):
                groups.join((result, dim), (source, dim + (dim >= axis)))


def _expand_dims(groups: Groups, op: Operation) -> None:
    axis = op.int_attr("axis") or 0
    source, result = op.operands[0], op.result
    for dim in range(len(shape_of(source.type))):
        groups.join((source, dim), (result, dim + (dim >= axis)))
    groups.block((result, axis), op, "has size 1")


def _broadcast(groups: Groups, op: Operation) -> None:
    source, result = op.operands[0], op.result
    for dim, (small, large) in enumerate(zip(shape_of(source.type), shape_of(result.type), strict=True)):
        if small == large:
            groups.join((source, dim), (result, dim))


def _transpose(groups: Groups, op: Operation) -> None:
    order = op.attr("order")
    if not isinstance(order, DenseArrayAttr):
        _unknown(groups, op)
        return
    for dim, source_dim in enumerate(order.values):
        groups.join((op.operands[0], source_dim), (op.result, dim))


def _reshape(groups: Groups, op: Operation) -> None:
    """A slice stays a slice where dimensions of size 1 come or go, and along first dimensions that stay as they are."""
    source, result = op.operands[0], op.result
    old, new = shape_of(source.type), shape_of(result.type)
    pairs = unit_dim_pairs(old, new)
    if pairs is None and op.attr("allowReorder") is None and op.attr("allow_reorder") is None:
        same = next((dim for dim, (a, b) in enumerate(zip(old, new, strict=False)) if a != b), min(len(old), len(new)))
        pairs = [(dim, dim) for dim in range(same)]
        for value, shape in ((source, old), (result, new)):
            for dim in range(same, len(shape)):
                groups.block((value, dim), op, f"goes through {op.name}")
    _join_pairs(groups, op, source, result, pairs)


def _join_pairs(groups: Groups, op: Operation, a: Value, b: Value, pairs: Iterable[tuple[int, int]] | None) -> None:
    """The dimensions that correspond; nothing is known where there are no pairs."""
    if pairs is None:
        _unknown(groups, op)
        return
    for one, other in pairs:
        groups.join((a, one), (b, other))


def _descriptor(groups: Groups, op: Operation, desc: Value, tile: Value) -> None:
    _join_pairs(groups, op, desc, tile, unit_dim_pairs(shape_of(desc.type), shape_of(tile.type)))


def _loop(groups: Groups, op: Operation) -> None:
    body = op.regions[0].block
    carried = zip(op.operands[3:], body.args[1:], body.terminator.operands, op.results, strict=True)
    for values in carried:
        _join_all(groups, values)


def _branch(groups: Groups, op: Operation) -> None:
    for region in op.regions:
        if region.blocks:
            for value, result in zip(region.block.terminator.operands, op.results, strict=True):
                _join_all(groups, [value, result])


def _constant(groups: Groups, op: Operation) -> None:
    value = op.attr("value")
    text = value.text if isinstance(value, DenseAttr) else ""
    if text.startswith(("[", '"')):
        _unknown(groups, op)


def _unknown(groups: Groups, op: Operation) -> None:
    for value in (*op.operands, *op.results):
        for node in nodes(value):
            groups.block(node, op, f"goes through {op.name}")


def _visit(groups: Groups, op: Operation) -> None:
    if op.name in DOTS:
        _dot(groups, op)
    elif op.name == "tt.reduce":
        _reduce(groups, op)
    elif op.name == "tt.expand_dims":
        _expand_dims(groups, op)
    elif op.name == "tt.broadcast":
        _broadcast(groups, op)
    elif op.name in _TRANSPOSES:
        _transpose(groups, op)
    elif op.name in ("tt.reshape", "ttg.memdesc_reshape"):
        _reshape(groups, op)
    elif op.name == "tt.descriptor_load":
        _descriptor(groups, op, op.operands[0], op.result)
    elif op.name == "tt.descriptor_store":
        _descriptor(groups, op, op.operands[0], op.operands[1])
    elif op.name == "scf.for":
        _loop(groups, op)
    elif op.name == "scf.if":
        _branch(groups, op)
    elif op.name == "arith.constant":
        _constant(groups, op)
    elif op.name in _IDENTITY or is_elementwise(op):
        _join_all(groups, (*op.operands, *op.results))
    elif op.name in _FREE_LEAVES or op.name in ("scf.yield", "tt.return", "ttg.warp_yield", "ttg.warp_return"):
        return
    else:
        _unknown(groups, op)


def group(ops: Iterable[Operation]) -> Groups:
    """The groups over every operation of `ops` (an iterator over a walk)."""
    groups = Groups()
    for op in ops:
        _visit(groups, op)
    return groups


# -------------------------------------------------------------------------------------------- privatizing

_CHEAP_LEAVES = frozenset({"arith.constant", "tt.splat", "tt.make_range"})


def privatize_leaves(block: Block) -> None:
    """Give every use of a constant, splat or range a copy of its own, in place.

    One zero tensor may start an accumulator that is sliced and fill a mask that is not; copies keep the two apart.
    """
    for inner in list(_blocks(block)):
        fresh: list[Operation] = []
        for op in inner.ops:
            for index, value in enumerate(op.operands):
                leaf = value.op
                if leaf is not None and leaf.name in _CHEAP_LEAVES and isinstance(value.type, TensorType):
                    copy = leaf.clone({})
                    copy.parent = inner
                    fresh.append(copy)
                    op.operands[index] = copy.result
            fresh.append(op)
        inner.ops[:] = fresh


def _blocks(block: Block) -> Iterator[Block]:
    yield block
    for op in block.ops:
        for inner in op.blocks if op.name in ("scf.for", "scf.if", "scf.while") else ():
            yield from _blocks(inner)


# ------------------------------------------------------------------------------------------------ slicing


def sources(block: Block) -> list[Operation]:
    """Whose tiles are sliced by rows: the products, or of a task that only sends tiles what it sends."""
    dots = [op for op in block.walk() if op.name in DOTS]
    return dots or [op for op in block.walk() if op.name == "ttg.local_store"]


def slice_rows(
    block: Block, dots: Iterable[Operation], replicas: int, min_rows: int, sliced: Iterable[Node] = ()
) -> Slicing | Conflict:
    """Slice the rows (dimension 0) of the given dots' results `replicas` ways, each at least `min_rows` high.

    Of a store to shared memory, which has no result, it is the tile's. `sliced`: dimensions that are sliced for another
    reason.
    """
    groups = group(block.walk())
    wanted = list(sliced)
    for dot in dots:
        tile = dot.result if dot.results else dot.operands[0]
        rows = shape_of(tile.type)[0]
        if rows % replicas or rows // replicas < min_rows:
            return Conflict(dot, f"a tile of {rows} rows does not give {replicas} replicas {min_rows} rows each")
        wanted.append((tile, 0))
    for node in wanted:
        if (reason := groups.reason(node)) is not None:
            return Conflict(reason[0], f"the rows of the tile end in a dimension that {reason[1]}")
    roots = {groups.find(node) for node in wanted}
    return _collect(groups, block, roots, replicas)


def _collect(groups: Groups, block: Block, roots: set[Node], replicas: int) -> Slicing | Conflict:
    dims: dict[Value, int] = {}
    for op in block.walk():
        for value in (*op.operands, *op.defined):
            for node in nodes(value):
                if groups.find(node) not in roots:
                    continue
                if dims.setdefault(value, node[1]) != node[1]:
                    return Conflict(op, "both dimensions of one value would have to be sliced")
                if shape_of(value.type)[node[1]] % replicas:
                    return Conflict(op, "a dimension does not divide evenly")
    return Slicing(dims)

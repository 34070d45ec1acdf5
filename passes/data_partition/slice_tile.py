"""slice_tile: give each consumer replica its rows of the tile.

    replica 1 of 2, tile of 128 rows held by 8 warps:
    %r = tt.make_range {start = 0, end = 128}          %r = tt.make_range {start = 64, end = 128}
    %s = dot ... -> tensor<128x128, #mma<8 warps>>  => %s = dot ... -> tensor<64x128, #mma<4 warps>>
    descriptor_store %d[%m, %n], %s                    descriptor_store %d[%m + 64, %n], %s

Types change, ranges and descriptor coordinates move by the replica's first row, nothing else does. Stores of what is
not sliced would be done by every replica; replica 0 alone keeps them. Descriptors that move slices get a box of as
many rows. Runs right after split, while every region still is a whole program of ordinary operations.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from wspec.ir import warp_specialize as ws
from wspec.ir.builder import Builder
from wspec.ir.core import Block, Operation, Value
from wspec.ir.shapes import shape_of, unit_dim_pairs
from wspec.ir.types import TensorDescType, i32
from wspec.passes.data_partition.slicing import Conflict, Node, Slicing, privatize_leaves, slice_rows, sources
from wspec.plan.buffers import ring_of
from wspec.plan.layouts import retype, shrink_type
from wspec.plan.plan import Channel, Plan
from wspec.plan.stores import TMA_STORE
from wspec.target.hopper import WGMMA_ROWS

_MOVES = ("tt.descriptor_store", "tt.descriptor_load")


def slice_tile(module: Operation, plan: Plan) -> Operation:
    """Retype every consumer region for its replica, and the descriptors that carry slices."""
    op = ws.need(module)
    blocks, regions = ws.task_blocks(op), plan.regions()
    _narrow_producer(blocks[-1], plan)
    if plan.coarsening > 1 or all(task.replicas == 1 and task.warps == plan.source_warps for task, _ in regions[:-1]):
        return module
    boxes = {ws.outer(op, value): dim for value, dim in _descriptors(blocks[-1], plan, plan.consumer.replicas)}
    for block, (task, replica) in zip(blocks[:-1], regions[:-1], strict=True):
        if any(inner.name == TMA_STORE for inner in block.walk()):
            _slice_stored(block, plan)
        else:
            moved = {inner.operands[0] for inner in block.walk() if inner.name in _MOVES}
            sliced = [(value, boxes[one]) for value in moved if (one := ws.outer(op, value)) in boxes]
            _slice_region(block, replica, task.replicas, max(1, plan.source_warps // task.warps), sliced)
    _slice_copies(blocks[-1], plan)
    _retype_descriptors(op, plan)
    return module


def _narrow_producer(block: Block, plan: Plan) -> None:
    """A producer holds tensors, such as pointers of tiles that its threads copy, with the warps that it has."""
    factor = max(1, plan.source_warps // plan.producer.warps)
    retype(block, lambda value: shrink_type(value.type, None, 1, factor))


# ---------------------------------------------------------------------------------------------- consumers


def _slice_region(block: Block, replica: int, replicas: int, factor: int, boxes: Sequence[Node]) -> None:
    """`boxes`: descriptors whose boxes get smaller, as copies of the producer move slices through them, and where."""
    privatize_leaves(block)
    slicing = slice_rows(block, sources(block), replicas, WGMMA_ROWS, boxes) if replicas > 1 else Slicing({})
    if isinstance(slicing, Conflict):
        raise AssertionError(f"the plan slices what cannot be sliced: {slicing.why}")
    for op in block.walk():
        _shift(op, slicing, replica, replicas)
    if replica > 0:
        _drop_whole_stores(block, slicing)
    retype(block, lambda value: shrink_type(value.type, slicing.dim(value), replicas, factor))


def _shift(op: Operation, slicing: Slicing, replica: int, replicas: int) -> None:
    if op.name == "tt.make_range" and slicing.dim(op.result) == 0:
        start, size = op.int_attr("start") or 0, shape_of(op.result.type)[0] // replicas
        op.properties["start"] = i32(start + replica * size)
        op.properties["end"] = i32(start + (replica + 1) * size)
    elif op.name == "tt.descriptor_store":
        _shift_coordinate(op, op.operands[1], slicing, replica, replicas, first=2)
    elif op.name == "tt.descriptor_load":
        _shift_coordinate(op, op.result, slicing, replica, replicas, first=1)


def _shift_coordinate(op: Operation, tile: Value, slicing: Slicing, replica: int, replicas: int, first: int) -> None:
    dim = slicing.dim(tile)
    if dim is None or replica == 0:
        return
    block = shape_of(op.operands[0].type)
    pairs = unit_dim_pairs(block, shape_of(tile.type)) or []
    where = next(a for a, b in pairs if b == dim)
    add_rows(op, first + where, replica * block[where] // replicas)


def add_rows(op: Operation, operand: int, rows: int) -> None:
    """Move one coordinate of a descriptor access by `rows`, in place."""
    if rows == 0 or op.parent is None:
        return
    build = Builder.before(op)
    offset = build.constant(rows, op.operands[operand].type)
    op.operands[operand] = build.binary("arith.addi", op.operands[operand], offset)


def _drop_whole_stores(block: Block, slicing: Slicing) -> None:
    for op in block.walk():
        stores = op.name in ("tt.store", "tt.descriptor_store", "tt.atomic_rmw", "tt.atomic_cas", "tt.print")
        if stores and not any(slicing.dim(value) is not None for value in op.operands):
            op.erase()


# ------------------------------------------------------------------------------------ producer, descriptors


def _slice_stored(block: Block, plan: Plan) -> None:
    """A task that stores what others send: smaller buffers, each to its place."""
    for op in block.walk():
        if op.name == "wspec.buffer" and (channel := plan.channel_named(ring_of(op))).sliced:
            op.result.type = shrink_type(op.result.type, channel.sliced_dim, plan.copies(channel), 1)
    for op in [op for op in block.walk() if op.name == TMA_STORE]:
        source = op.operands[-1].op
        assert source is not None
        channel, replica = plan.channel_named(ring_of(source)), op.int_attr("replica")
        if replica is not None:
            dim, size = _sliced_dim(op.operands[0], channel)
            add_rows(op, 1 + dim, replica * size // plan.copies(channel))
            del op.attributes["replica"]


def _slice_copies(block: Block, plan: Plan) -> None:
    for op in block.walk():
        replica = op.int_attr("replica")
        if op.name != "wspec.copy" or replica is None:
            continue
        channel = plan.channel_named(ring_of(op))
        dim, size = _sliced_dim(op.operands[1], channel)
        add_rows(op, 2 + dim, replica * size // plan.copies(channel))
        del op.attributes["replica"]


def _sliced_dim(desc: Value, channel: Channel) -> tuple[int, int]:
    """The dimension of the descriptor's box that replicas share, and its size."""
    block = shape_of(desc.type)
    where = [d for d, size in enumerate(block) if size != 1][channel.sliced_dim]
    return where, block[where]


def _descriptors(block: Block, plan: Plan, replicas: int) -> Iterable[tuple[Value, int]]:
    for op in block.walk():
        if op.name == "wspec.copy" and (channel := plan.channel_named(ring_of(op))).sliced:
            yield op.operands[1], _sliced_dim(op.operands[1], channel)[0]
        elif op.name == TMA_STORE:
            source = op.operands[-1].op
            if source is not None and (channel := plan.channel_named(ring_of(source))).sliced:
                yield op.operands[0], _sliced_dim(op.operands[0], channel)[0]
        elif op.name in _MOVES:
            moved = op.operands[1] if op.name == "tt.descriptor_store" else op.result
            block_shape, tile = shape_of(op.operands[0].type), shape_of(moved.type)
            pairs = unit_dim_pairs(block_shape, tile) or _ratio_pairs(block_shape, tile)
            for a, b in pairs:
                if block_shape[a] == tile[b] * replicas:
                    yield op.operands[0], a


def _ratio_pairs(block: tuple[int, ...], tile: tuple[int, ...]) -> list[tuple[int, int]]:
    """Corresponding dimensions of a whole box and an already sliced tile."""
    left = [dim for dim, size in enumerate(block) if size != 1]
    right = [dim for dim, size in enumerate(tile) if size != 1]
    return list(zip(left, right, strict=False))


def _retype_descriptors(op: Operation, plan: Plan) -> None:
    """Shrink the box of every descriptor that moves slices, at its definition and in every task."""
    sliced: dict[Value, int] = {}
    blocks = ws.task_blocks(op)
    for block in blocks:
        for value, dim in _descriptors(block, plan, plan.consumer.replicas):
            sliced[ws.outer(op, value)] = dim
    for value, dim in sliced.items():
        if isinstance(value.type, TensorDescType):
            ws.retype(op, value, shrink_type(value.type, dim, plan.consumer.replicas, 1))

"""stage_stores: write an output tile through a buffer that has served its purpose, or through one of its own.

    tt.descriptor_store %o[...], %tile    =>    ttg.local_store %tile, %q_buffer
                                                ttng.fence_async_shared
                                                ttng.async_tma_copy_local_to_global %o[...] %q_buffer
                                                ttng.async_tma_store_wait {pendings = 0}

A descriptor store needs shared memory for its tile. Where the plan names a channel whose buffer has the tile's shape
and has been read for the last time, or whose whole ring is not needed any more, the tile goes there and the rings can
be that much deeper. A whole ring is named by `wspec.ring`.

In a loop over tiles the plan may give the store a buffer of its own. Then nobody waits for the copy where it is issued:
the wait stands before the buffer is written again, a whole tile later, and at the end of the task for the last one.

    ttng.async_tma_store_wait {pendings = 0}
    ttg.local_store %tile, %own
    ttng.fence_async_shared
    ttng.async_tma_copy_local_to_global %o[...] %own

In halves, the buffer has room for half of the tile's columns, which go through it one half behind the other. Each half
is a value of its own, and no element leaves the thread that has it:

    %pairs = trans (reshape %tile)                 [rows, columns / 2, 2]
    %left, %right = split %pairs
    wait, store, fence, copy of %left
    wait, store, fence, copy of %right, at %o[.., .. + columns / 2]

delay_last_subtile moves the second half to the next tile.

Runs after slice_tile, when buffer and tile belong to one replica, and before release_buffers, which sees the copy as
the last reader.
"""

from __future__ import annotations

from wspec.ir import warp_specialize as ws
from wspec.ir.builder import Builder
from wspec.ir.core import Block, Operation, Value
from wspec.ir.loc import Location
from wspec.ir.numbering import id_of
from wspec.ir.types import (
    I32,
    SMEM,
    DenseArrayAttr,
    MemDescType,
    StringAttr,
    TensorDescType,
    TensorType,
    signless,
)
from wspec.passes.store_staging.subtiling import halving_types
from wspec.plan.buffers import flat_layout, ring_of
from wspec.plan.layouts import shrink_type
from wspec.plan.plan import Plan
from wspec.plan.stores import (
    BUFFER,
    OWN,
    RING,
    SUBTILES,
    TMA_STORE,
    flat_shape,
    flat_source,
    unconverted,
    wait_for_stores,
)
from wspec.plan.values import channel_name


def stage_stores(module: Operation, plan: Plan) -> Operation:
    """Lower the descriptor stores the plan gives a buffer."""
    op = ws.need(module)
    staging = {store: (channel, kind) for store, channel, kind in plan.staging}
    for replica, block in enumerate(ws.task_blocks(op)[: plan.consumer.replicas]):
        for store in [o for o in block.walk() if o.name == "tt.descriptor_store"]:
            name, kind = staging.get(id_of(store), ("", ""))
            if kind == BUFFER:
                _stage(store, _buffer(block, channel_name(plan.channel_named(name), replica)))
            elif kind == RING:
                _stage(store, _ring(store, channel_name(plan.channel_named(name), replica)))
            elif kind == OWN:
                _stage_and_go_on(store, _own(op, _flat_buffer(store), store.location)[replica], block)
            elif kind == SUBTILES:
                _stage_in_halves(op, store, replica, block)
    return module


def _buffer(block: Block, ring: str) -> Value:
    found = next((op for op in block.walk() if op.name == "wspec.buffer" and ring_of(op) == ring), None)
    assert found is not None, f"no buffer of ring {ring}"
    return found.result


def _ring(store: Operation, ring: str) -> Value:
    """The whole ring as one buffer for the store's tile, in the descriptor's layout."""
    marks = {"channel": StringAttr(ring)}
    return Builder.before(store).create("wspec.ring", [], [_flat_buffer(store)], attributes=marks).result


def _own(op: Operation, type: MemDescType, location: Location) -> list[Value]:
    """A new buffer, allocated before the tasks begin: what it is in each of them."""
    build = Builder.before(op, location)
    return ws.capture(op, build.create("ttg.local_alloc", [], [type]).result)


def _flat_buffer(store: Operation) -> MemDescType:
    """The type of a buffer for the store's tile, in the descriptor's layout."""
    desc = store.operands[0].type
    assert isinstance(desc, TensorDescType)
    shape = flat_shape(desc)
    return MemDescType(shape, signless(desc.block.element), flat_layout(desc, len(shape)), SMEM, True)


def _stage(store: Operation, buffer: Value) -> None:
    build = Builder.before(store)
    _copy(build, store, buffer)
    wait_for_stores(build)
    store.erase()


def _stage_and_go_on(store: Operation, buffer: Value, task: Block) -> None:
    build = Builder.before(store)
    wait_for_stores(build)
    _copy(build, store, buffer)
    _wait_at_the_end(task, store.location)
    store.erase()


def _wait_at_the_end(task: Block, location: Location) -> None:
    if task.ops[-2].name != "ttng.async_tma_store_wait":
        wait_for_stores(Builder(task, len(task.ops) - 1, location))


def _copy(build: Builder, store: Operation, buffer: Value) -> None:
    desc, tile, *coordinates = store.operands
    assert isinstance(buffer.type, MemDescType)
    source = flat_source(tile, buffer.type.shape)
    assert source is not None, "the planner has made sure that the tile fits"
    _through(build, source, buffer, desc, coordinates)


def _through(build: Builder, tile: Value, buffer: Value, desc: Value, coordinates: list[Value]) -> None:
    build.create("ttg.local_store", [tile, buffer])
    build.fence()
    build.create(TMA_STORE, [desc, *coordinates, buffer])


def _stage_in_halves(op: Operation, store: Operation, replica: int, task: Block) -> None:
    """The first replica's store halves the descriptor's box, which all of them share."""
    desc, tile, *coordinates = store.operands
    tile = unconverted(tile)
    assert isinstance(tile.type, TensorType) and isinstance(desc.type, TensorDescType)
    last, columns = len(desc.type.block.shape) - 1, tile.type.shape[1]
    if desc.type.block.shape[last] == columns:
        ws.retype(op, ws.outer(op, desc), shrink_type(desc.type, last, 2, 1))
    buffer = _own(op, _flat_buffer(store), store.location)[replica]
    build = Builder.before(store)
    paired, pairs, half = halving_types(tile.type)
    turned = build.create("tt.reshape", [tile], [paired]).result
    order = DenseArrayAttr(I32, (0, 2, 1))
    turned = build.create("tt.trans", [turned], [pairs], {"order": order}).result
    left, right = build.create("tt.split", [turned], [half, half]).results
    wait_for_stores(build)
    _through(build, left, buffer, desc, coordinates)
    across = build.binary("arith.addi", coordinates[-1], build.constant(columns // 2))
    wait_for_stores(build)
    _through(build, right, buffer, desc, [*coordinates[:-1], across])
    _wait_at_the_end(task, store.location)
    store.erase()

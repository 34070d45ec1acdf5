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

Runs after slice_tile, when buffer and tile belong to one replica, and before release_buffers, which sees the copy as
the last reader.
"""

from __future__ import annotations

from wspec.ir import warp_specialize as ws
from wspec.ir.builder import Builder
from wspec.ir.core import Block, Operation, Value
from wspec.ir.types import I1, SMEM, IntegerAttr, MemDescType, StringAttr, TensorDescType, i32, signless
from wspec.plan.buffers import flat_layout
from wspec.plan.plan import Channel, Plan, id_of
from wspec.plan.staging import flat_shape, flat_source


def stage_stores(module: Operation, plan: Plan) -> Operation:
    """Lower the descriptor stores the plan gives a buffer."""
    op = ws.find(module)
    assert op is not None
    staging = {store: (channel, kind) for store, channel, kind in plan.staging}
    for replica, block in enumerate(ws.task_blocks(op)[: plan.consumer.replicas]):
        for store in [o for top in block.ops for o in top.walk() if o.name == "tt.descriptor_store"]:
            name, kind = staging.get(id_of(store), ("", ""))
            if kind == "buffer":
                _stage(store, _buffer(block, name))
            elif kind == "ring":
                _stage(store, _ring(store, next(c for c in plan.channels if c.name == name), replica))
            elif kind == "own":
                _stage_and_go_on(store, _own(op, store, replica), block)
    return module


def _buffer(block: Block, channel: str) -> Value:
    for op in (inner for top in block.ops for inner in top.walk()):
        name = op.attributes.get("channel")
        if op.name == "wspec.buffer" and isinstance(name, StringAttr) and channel in (name.text, _base(name.text)):
            return op.result
    raise AssertionError(f"no buffer of channel {channel}")


def _ring(store: Operation, channel: Channel, replica: int) -> Value:
    """The whole ring of the replica's channel as one buffer for the store's tile, in the descriptor's layout."""
    assert store.parent is not None
    type = _flat_buffer(store)
    name = f"{channel.name}.{replica}" if channel.apart else channel.name
    build = Builder(store.parent, store.parent.ops.index(store), store.location)
    return build.create("wspec.ring", [], [type], attributes={"channel": StringAttr(name)}).result


def _own(op: Operation, store: Operation, replica: int) -> Value:
    """A new buffer for the store's tile, allocated before the tasks begin."""
    assert op.parent is not None
    build = Builder(op.parent, op.parent.ops.index(op), store.location)
    return ws.capture(op, build.create("ttg.local_alloc", [], [_flat_buffer(store)]).result)[replica]


def _flat_buffer(store: Operation) -> MemDescType:
    """The type of a buffer for the store's tile, in the descriptor's layout."""
    desc = store.operands[0].type
    assert isinstance(desc, TensorDescType)
    shape = flat_shape(desc)
    return MemDescType(shape, signless(desc.block.element), flat_layout(desc, len(shape)), SMEM, True)


def _base(name: str) -> str:
    return name.rsplit(".", 1)[0]


def _stage(store: Operation, buffer: Value) -> None:
    assert store.parent is not None
    build = Builder(store.parent, store.parent.ops.index(store), store.location)
    _copy(build, store, buffer)
    _wait(build)
    store.erase()


def _stage_and_go_on(store: Operation, buffer: Value, task: Block) -> None:
    assert store.parent is not None
    build = Builder(store.parent, store.parent.ops.index(store), store.location)
    _wait(build)
    _copy(build, store, buffer)
    if task.ops[-2].name != "ttng.async_tma_store_wait":
        _wait(Builder(task, len(task.ops) - 1, store.location))
    store.erase()


def _copy(build: Builder, store: Operation, buffer: Value) -> None:
    desc, tile, *coordinates = store.operands
    assert isinstance(buffer.type, MemDescType)
    source = flat_source(tile, buffer.type.shape)
    assert source is not None, "the planner has made sure that the tile fits"
    build.create("ttg.local_store", [source, buffer])
    build.create("ttng.fence_async_shared", [], [], {"bCluster": IntegerAttr(0, I1)})
    build.create("ttng.async_tma_copy_local_to_global", [desc, *coordinates, buffer])


def _wait(build: Builder) -> None:
    build.create("ttng.async_tma_store_wait", [], [], {"pendings": i32(0)})

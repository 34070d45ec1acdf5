"""Values that go from one task of a chain to the next: the copy of the kernel that one task has, cut at them.

    the task that computes %v                          the task that reads it
    %t = wspec.acquire {channel = "v"}                 %t = wspec.wait {channel = "v"}
    %v = ...                                           %b = wspec.buffer %t
    %b = wspec.buffer %t                               %d = ttng.warp_group_dot %b, ...   // in place, or
    ttg.local_store %v, %b                             %x = ttg.local_load %b
    ttng.fence_async_shared
    wspec.commit %t {channel = "v"}

What feeds a value is computed only where it is sent, since the reader's copy of it is dead once the value comes from
the ring. The planner cuts copies too, to see what each task would do; `split` cuts them for good.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from wspec.ir.builder import Builder
from wspec.ir.core import Block, Operation, Value, replace_uses
from wspec.ir.numbering import ID, id_of
from wspec.ir.ops import info
from wspec.ir.prune import prune
from wspec.ir.types import (
    I32,
    SMEM,
    Attribute,
    IntegerAttr,
    Layout,
    MemDescType,
    ScalarType,
    StringAttr,
    TensorDescType,
    TensorType,
    Type,
    i32,
)
from wspec.ir.wgmma import DOT
from wspec.plan.buffers import ROW_LAYOUT, VIEWS, flat_layout
from wspec.plan.plan import Channel, Plan, Task
from wspec.plan.relayout import relayout
from wspec.plan.stores import TMA_STORE, flat_shape, flat_source, unconverted, wait_for_stores

STORE = "tt.descriptor_store"


def channel_name(channel: Channel, replica: int) -> str:
    """The ring of one replica: its own where the tile is sliced, the common one otherwise."""
    return f"{channel.name}.{replica}" if channel.apart else channel.name


def find_value(block: Block, channel: Channel) -> Value:
    """The value a channel carries, in the kernel or a copy of it."""
    op = next(op for op in block.walk() if id_of(op) == channel.loads[0])
    return op.results[channel.result]


def value_buffer(block: Block, channel: Channel) -> MemDescType:
    """What one buffer of the channel holds: the layout its readers ask for, or the tensor core's."""
    value = find_value(block, channel)
    return buffer_for(block, value)


def buffer_for(block: Block, value: Value) -> MemDescType:
    type = value.type
    assert isinstance(type, TensorType) and isinstance(type.element, ScalarType)
    if len(type.shape) == 1:
        return MemDescType(type.shape, type.element, ROW_LAYOUT, SMEM, True)
    for user in block.readers(value):
        made = user.result.type if user.name == "ttg.local_alloc" else None
        if isinstance(made, MemDescType):
            return replace(made, mutable=True)
        if user.name == STORE and isinstance(desc := user.operands[0].type, TensorDescType):
            return MemDescType(flat_shape(desc), type.element, flat_layout(desc), SMEM, True)
    width = min(128, type.shape[-1] * type.element.bits // 8)
    fields = (("swizzlingByteWidth", width), ("transposed", False), ("elementBitWidth", type.element.bits))
    return MemDescType(type.shape, type.element, Layout("ttg.nvmma_shared", fields), SMEM, True)


def goes_through_tma(block: Block, value: Value) -> bool:
    """Do only descriptor stores read the value, and has it, or had it before it was brought to their rank, the form of
    their box?"""
    users = block.readers(value)
    return (
        bool(users)
        and all(user.name == STORE for user in users)
        and flat_source(value, buffer_for(block, value).shape) is not None
    )


def cut_values(block: Block, plan: Plan, task: Task, replica: int, buffers: Mapping[str, MemDescType]) -> None:
    """Make the block, a copy of the whole kernel, what `task` does of it: values are sent and received."""
    if not plan.does_effects(task):
        drop_effects(block)
    for channel, value in [(channel, find_value(block, channel)) for channel in plan.values]:
        if channel.source == task.name:
            _send(value, channel_name(channel, replica), buffers[channel.name])
        elif task in plan.readers(channel):
            rings = [replica] if task.replicas == plan.copies(channel) else list(range(plan.copies(channel)))
            _receive(block, value, channel, rings, buffers[channel.name])
    prune(block)
    relayout(block, task.warps if task.replicas == 1 else plan.source_warps)


# ------------------------------------------------------------------------------------------------- sending


def _send(value: Value, ring: str, type: MemDescType) -> None:
    """Behind the value: one that waited for its buffer first, and stored its first elements while others are computed,
    was 5 to 20 % slower in products of int8 weights at five of six tiles, and as fast at one (docs/chains.md)."""
    op = value.op
    assert op is not None
    marks: dict[str, Attribute] = {"channel": StringAttr(ring), ID: i32(id_of(op))}
    build = Builder.behind(op)
    token = build.create("wspec.acquire", [], [I32], attributes=marks).result
    buffer = build.create("wspec.buffer", [token], [type], attributes=marks).result
    source = flat_source(value, type.shape)
    assert source is not None
    build.create("ttg.local_store", [unconverted(source), buffer])  # shared memory takes any layout
    if len(type.shape) > 1:  # the tensor core or TMA reads it
        build.fence()
    build.create("wspec.commit", [token], attributes=marks)


# ----------------------------------------------------------------------------------------------- receiving


def _receive(root: Block, value: Value, channel: Channel, rings: list[int], type: MemDescType) -> None:
    """Replace a value by the buffer it comes in, from its first reader on; of all replicas' rings where it has one."""
    users = root.readers(value)
    block = value.op.parent if value.op is not None else None
    holders = {block.holder(user) for user in users} if block is not None else set()
    first = next((op for op in block.ops if op in holders), None) if block is not None else None
    if first is None or block is None:
        return
    build = Builder.before(first)
    for replica in rings:
        marks: dict[str, Attribute] = {"channel": StringAttr(channel_name(channel, replica))}
        marks[ID] = i32(channel.loads[0])
        token = build.create("wspec.wait", [], [I32], attributes=marks).result
        buffer = build.create("wspec.buffer", [token], [type], attributes=marks).result
        if all(user.name == STORE for user in users):
            for user in users:
                _store(build, user, buffer, replica, len(rings))
        else:
            _read(root, users, value, buffer, build)
    for user in users:
        if user.name == STORE:
            user.erase()


def _read(root: Block, users: list[Operation], value: Value, buffer: Value, build: Builder) -> None:
    """Operands of dots are read in place, everything else is loaded into registers."""
    loaded: Value | None = None
    for user in users:
        may_be_left = is_a_left_factor(buffer.type)
        left = user.name == "ttg.convert_layout" and may_be_left and _only_left_operand(root, user.result)
        if user.name == "ttg.local_alloc" or left:
            _rename(root, user.result, buffer)
        elif user.name == DOT and user.operands[0] is value and may_be_left:
            user.operands[0] = buffer
        else:
            loaded = loaded or build.create("ttg.local_load", [buffer], [value.type]).result
            user.operands[:] = [loaded if operand is value else operand for operand in user.operands]


def is_a_left_factor(type: Type) -> bool:
    """Can the tensor core read a buffer as a left factor: in rows, or in columns of elements of 16 bits?"""
    if not isinstance(type, MemDescType) or not isinstance(type.encoding, Layout):
        return False
    two_bytes = isinstance(type.element, ScalarType) and type.element.bits == 16
    return two_bytes or type.encoding.get("transposed") is not True


def _only_left_operand(root: Block, value: Value) -> bool:
    users = root.readers(value)
    return all(user.name == DOT and value not in user.operands[1:] for user in users)


def _rename(root: Block, old: Value, buffer: Value) -> None:
    """Readers of `old` read the buffer; views of it are views of a buffer that changes."""
    users = root.readers(old)
    replace_uses(root, {old: buffer})
    for user in users:
        _make_mutable(root, user)


def _make_mutable(root: Block, view: Operation) -> None:
    if view.name in VIEWS and isinstance(view.result.type, MemDescType):
        view.result.type = replace(view.result.type, mutable=True)
        for user in root.readers(view.result):
            _make_mutable(root, user)


def _store(build: Builder, store: Operation, buffer: Value, replica: int, replicas: int) -> None:
    """The buffer has the descriptor's layout: TMA takes it as it is."""
    desc, _, *coordinates = store.operands
    marks: dict[str, Attribute] = {"replica": IntegerAttr(replica, I32)} if replicas > 1 else {}
    build.create(TMA_STORE, [desc, *coordinates, buffer], [], None, marks)
    wait_for_stores(build)


# ------------------------------------------------------------------------------------------------- effects

_KEPT = frozenset({"wspec.acquire", "wspec.copy", "scf.for", "scf.if", "scf.yield", "scf.while", "scf.condition"})


def drop_effects(block: Block) -> None:
    """Stores and other effects are another task's to do."""
    for op in list(block.ops[:-1]):
        if op.name in _KEPT:
            for inner in op.blocks:
                drop_effects(inner)
        elif _has_effects(op):
            op.erase()


def _has_effects(op: Operation) -> bool:
    """Nothing reads the result of an operation that writes: the planner has made sure."""
    row = info(op.name)
    return not op.results or (row is not None and row.category in ("atomic", "store", "debug"))

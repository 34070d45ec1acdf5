"""split: give every task a copy of the kernel, and take out of each what the task does not do.

    %k = tt.descriptor_load %desc[...]          ttg.warp_specialize default {   // consumer replica 0
    %b = ttg.local_alloc %k                       %t = wspec.wait {channel = "k"}
    %s = ttng.warp_group_dot %q, %b, ...    =>    %b = wspec.buffer %t {channel = "k"}
    ...                                           %s = ttng.warp_group_dot %q, %b, ...
                                                } partition0 { ... }            // consumer replica 1
                                                partition1 {                    // producer
                                                  %t = wspec.acquire {channel = "k"}
                                                  wspec.copy %t, %desc[...] {channel = "k"}
                                                }

Copying everything and pruning keeps control flow (sequences of loops, branches, persistent outer loops, trip counts of
zero) exactly as it was in every task: each walks the same iterations. The address arithmetic of the loads stays in the
producer, duplicated where a consumer needs it too. Copies that follow each other are issued in the order of the plan's
channels.

In a chain a task sends values that it computes to the next one, which does not compute them (`plan/values.py`); the
last one makes the stores.

Channels are abstract here: `wspec.acquire`/`wspec.copy` fill the next buffer, `wspec.wait` is ready when it is full and
yields a token, `wspec.buffer` names the buffer of a token. A channel that replicas slice has one ring each, `q.0`,
`q.1`. Runs first, because all later passes work inside one task.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import groupby

from wspec.ir import warp_specialize as ws
from wspec.ir.builder import Builder
from wspec.ir.core import Block, Operation, Region, Value, functions, replace_uses
from wspec.ir.numbering import ID, id_of
from wspec.ir.prune import prune
from wspec.ir.types import I32, IntegerAttr, MemDescType, StringAttr, i32
from wspec.plan.buffers import VIEWS, buffer_type, is_the_buffer
from wspec.plan.coarsening import MEMBER, differing_in, slice_in
from wspec.plan.fill import Fill, fill_of
from wspec.plan.plan import Channel, Plan, Task
from wspec.plan.pointer_loads import mask_of, piece_elements
from wspec.plan.values import channel_name, cut_values, drop_effects, value_buffer


def split(module: Operation, plan: Plan) -> Operation:
    """Replace the function's body by one `ttg.warp_specialize` with a task in each region."""
    function = functions(module)[0]
    body = function.regions[0].block
    buffers = {channel.name: value_buffer(body, channel) for channel in plan.values}
    tasks = plan.regions()
    regions = [_computing(body, plan, task, replica, buffers) for task, replica in tasks[:-1]]
    warps = [task.warps for task, _ in tasks[1:]]
    op = ws.create(regions[0], [*regions[1:], _producer(body, plan)], warps, function.location)
    body.ops[:-1] = []
    body.insert(0, op)
    ws.capture_free_values(op)
    return module


def _copy(body: Block, terminator: str) -> Region:
    region = Region()
    block = region.add_block()
    values: dict[Value, Value] = {}
    for op in body.ops[:-1]:
        block.append(op.clone(values))
    block.append(Operation.create(terminator, location=body.terminator.location))
    return region


def _number_member(block: Block, member: int) -> None:
    """In the region of one member of a team its number is known."""
    for op in [inner for inner in block.walk() if inner.name == MEMBER]:
        build = Builder.before(op)
        replace_uses(build.block, {op.result: build.constant(member)})
        op.erase()


def _loads(block: Block, plan: Plan) -> list[tuple[Operation, Channel]]:
    found = []
    for op in block.ops:
        for inner in op.walk():
            channel = plan.channel_of(id_of(inner)) if fill_of(inner) is not None else None
            if channel is not None and channel.fill is fill_of(inner):
                found.append((inner, channel))
    return found


# --------------------------------------------------------------------------------------- consumer, helpers


def _computing(body: Block, plan: Plan, task: Task, replica: int, buffers: Mapping[str, MemDescType]) -> Region:
    region = _copy(body, "ttg.warp_yield" if task is plan.consumer and replica == 0 else "ttg.warp_return")
    _number_member(region.block, replica)
    if plan.values:
        cut_values(region.block, plan, task, replica, buffers)
    for load, channel in _loads(region.block, plan):
        _receive(region.block, load, channel_name(channel, replica))
    prune(region.block)
    return region


def _receive(root: Block, load: Operation, name: str) -> None:
    """Replace a load by a wait for its buffer, as late as its first reader allows."""
    users = root.readers(load.result)
    type = buffer_type(load)
    allocs = [op for op in users if is_the_buffer(op, type)]
    others = [op for op in users if op not in allocs]
    first = _first_reader(load.parent, [*others, *(r for a in allocs for r in _readers(root, a))])
    if first is None or load.parent is None:
        return
    build = Builder.before(first, load.location)
    marks = {"channel": StringAttr(name), ID: load.attributes.get(ID, IntegerAttr(-1, I32))}
    token = build.create("wspec.wait", [], [I32], attributes=marks).result
    buffer = build.create("wspec.buffer", [token], [type], attributes=marks).result
    for alloc in allocs:
        _replace_alloc(root, alloc, buffer, build)
    if others:
        tile = build.create("ttg.local_load", [buffer], [load.result.type], attributes={ID: marks[ID]}).result
        replace_uses(root, {load.result: tile})
    load.erase()


def _readers(root: Block, alloc: Operation) -> list[Operation]:
    """The operations that read the buffer, seen through views of it."""
    found: list[Operation] = []
    for user in root.readers(alloc.result):
        found += _readers(root, user) if user.name in VIEWS else [user]
    return found


def _first_reader(block: Block | None, readers: list[Operation]) -> Operation | None:
    """The first operation of `block` that is or contains a reader."""
    if block is None:
        return None
    holders = {block.holder(reader) for reader in readers}
    return next((op for op in block.ops if op in holders), None)


def _replace_alloc(root: Block, alloc: Operation, buffer: Value, build: Builder) -> None:
    """Let views of the allocation be views of the ring's buffer, right behind the wait."""
    for user in root.readers(alloc.result):
        user.operands[:] = [buffer if v is alloc.result else v for v in user.operands]
        if user.name in VIEWS:
            _move_view(root, user, build)
    if alloc.parent is build.block and build.at is not None and build.block.ops.index(alloc) < build.at:
        build.at -= 1
    alloc.erase()


def _move_view(root: Block, view: Operation, build: Builder) -> None:
    type = view.result.type
    assert isinstance(type, MemDescType)
    if view.parent is build.block:
        position = build.block.ops.index(view)
        view.erase()
        if build.at is not None and position < build.at:
            build.at -= 1
        build.add(view)
    view.result.type = replace(type, mutable=True)
    for user in root.readers(view.result):
        if user.name in VIEWS:
            _move_view(root, user, build)


# ---------------------------------------------------------------------------------------------- producer


def _producer(body: Block, plan: Plan) -> Region:
    region = _copy(body, "ttg.warp_return")
    differing = differing_in(region.block)
    for _, loads in groupby(_loads(region.block, plan), key=lambda one: one[0].parent):
        run = list(loads)  # without others in loops between them
        issued = sorted(run, key=lambda one: plan.channels.index(one[1]))
        for load, channel in issued:
            build = Builder.before(load if issued == run else run[-1][0], load.location)
            _send(build, load, channel, plan.copies(channel), differing)
    drop_effects(region.block)
    prune(region.block)
    return region


def _send(build: Builder, load: Operation, channel: Channel, copies: int, differing: set[Value]) -> None:
    if channel.fill is Fill.CP_ASYNC:
        _send_pieces(build, load, channel.name)
        return
    for replica in range(copies):
        place = _place(build, load, replica, differing) if channel.private else load.operands
        marks = {"channel": StringAttr(channel_name(channel, replica)), ID: load.attributes[ID]}
        token = build.create("wspec.acquire", [], [I32], attributes=marks).result
        if copies > 1:
            marks["replica"] = IntegerAttr(replica, I32)
        build.create("wspec.copy", [token, *place], [], attributes=marks)


def _send_pieces(build: Builder, load: Operation, name: str) -> None:
    """A tile that the producer's threads copy: its pointers and mask, and how many elements a thread takes at once."""
    marks = {"channel": StringAttr(name), ID: load.attributes[ID]}
    token = build.create("wspec.acquire", [], [I32], attributes=marks).result
    mask = mask_of(load)
    place = [load.operands[0], *([mask] if mask is not None else [])]
    # What a load does not say is the ordinary; Triton 3.9 leaves that out.
    pieces = {key: load.properties.get(key, i32(1)) for key in ("cache", "evict")}
    pieces["contiguity"] = i32(piece_elements(load))
    build.create("wspec.copy", [token, *place], [], pieces, marks)


def _place(build: Builder, load: Operation, member: int, differing: set[Value]) -> list[Value]:
    """Descriptor and coordinates of the load as a member of a team has them."""
    assert load.parent is not None
    ops = slice_in(load.parent, load.operands, differing)
    assert ops is not None, "the plan gives members tiles whose place cannot be computed"
    values: dict[Value, Value] = {}
    for op in ops:
        if op.name == MEMBER:
            values[op.result] = build.constant(member)
        else:
            build.add(op.clone(values))
    return [values.get(value, value) for value in load.operands]

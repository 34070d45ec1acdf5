"""lower_channels: turn abstract channels into rings of buffers, barriers and copies.

    wspec.acquire       wait_barrier %empty[i], phase ^ 1
    wspec.copy %t, %d   barrier_expect %full[i], bytes; async_tma_copy_global_to_local %d, %full[i], %ring[i]
                        (of rings that share barriers the first expects all their bytes, the others nothing)
    wspec.copy %t, %p   async_copy_global_to_local %p, %ring[i]; async_copy_mbarrier_arrive %full[i]    (by cp.async)
    wspec.commit        arrive_barrier %full[i], 1            (of a value that threads have written)
    wspec.wait      =>  wait_barrier %full[i], phase          (and a proxy fence, of what cp.async has brought)
    wspec.buffer %t     memdesc_index %ring[i]
    wspec.release %t    arrive_barrier %empty[i], 1
    wspec.ring          memdesc_reinterpret %ring

Each task keeps its own position (index i and phase) in every ring it uses. A position is an ordinary value: it is
carried round loops and out of branches like any other, so it stays right over trip counts of zero, sequences of loops
and persistent outer loops. A fresh empty barrier lets a wait for phase 1 through, which is why producers start there.
A token is the buffer's index. Runs last.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from wspec.ir import warp_specialize as ws
from wspec.ir.builder import Builder
from wspec.ir.core import Block, Operation, Value, replace_uses
from wspec.ir.shared_memory import size_bytes
from wspec.ir.types import (
    I1,
    I32,
    I64,
    SMEM,
    Attribute,
    DenseArrayAttr,
    IntegerAttr,
    MemDescType,
    OpaqueType,
    Type,
    UnitAttr,
    i32,
)
from wspec.plan.buffers import ROW_LAYOUT, ring_of
from wspec.plan.fill import Fill
from wspec.plan.plan import Plan

_BARRIER = MemDescType((1,), I64, ROW_LAYOUT, SMEM, True)
_COPY_MODE: dict[str, Attribute] = {"cache": i32(1), "evict": i32(1), "isVolatile": IntegerAttr(0, I1)}
_PIECE_MODE: dict[str, Attribute] = {"isVolatile": IntegerAttr(0, I1)}
_TOKEN = OpaqueType("!ttg.async.token")
_WAIT_SEGMENTS: dict[str, Attribute] = {"operandSegmentSizes": DenseArrayAttr(I32, (1, 1, 1, 0))}


@dataclass(frozen=True, slots=True)
class Ring:
    """One ring as one task sees it: the values of its buffers and barriers in the task's region."""

    depth: int
    buffer: MemDescType
    buffers: Value
    full: Value | None  # None: not yet known, while rings are allocated
    empty: Value | None
    fill: Fill


@dataclass(frozen=True, slots=True)
class Position:
    """Where a task stands in a ring."""

    index: Value
    phase: Value


Positions = dict[str, Position]


def lower_channels(module: Operation, plan: Plan) -> Operation:
    """Allocate the rings, initialize the barriers, and lower every abstract operation."""
    op = ws.need(module)
    build = Builder.before(op)
    blocks = ws.task_blocks(op)
    views: list[dict[str, Ring]] = [{} for _ in blocks]
    for name, buffer in _rings(blocks):
        _allocate(build, op, plan, name, buffer, views)
    _lend_barriers(plan, views)
    build.fence()
    for block, rings in zip(blocks, views, strict=True):
        _lower_task(block, rings, plan.producer.warps if block is blocks[-1] else 1)
    for block in blocks[:-1]:
        _fence_own_loads(block)
    return module


def _fence_own_loads(block: Block) -> None:
    """Tiles that a task loads for itself may lie where the default task has put what the others are handed: threads
    wrote that, TMA writes the tile."""
    if any(op.name == "tt.descriptor_load" for op in block.walk()):
        build = Builder(block, 0, block.ops[0].location)
        build.fence()


# --------------------------------------------------------------------------------------------- allocating


def _rings(blocks: list[Block]) -> list[tuple[str, MemDescType]]:
    """Every ring the consumers read and the type of its buffers, in order of first use."""
    found: dict[str, MemDescType] = {}
    for block in blocks:
        for op in block.walk():
            if op.name == "wspec.buffer" and isinstance(op.result.type, MemDescType):
                found.setdefault(ring_of(op), op.result.type)
    return list(found.items())


def _allocate(
    build: Builder, op: Operation, plan: Plan, name: str, buffer: MemDescType, views: list[dict[str, Ring]]
) -> None:
    channel = plan.channel_named(name)
    ring_type = MemDescType((channel.depth, *buffer.shape), buffer.element, buffer.encoding, SMEM, True)
    readers = plan.arrivals(channel)
    buffers = build.create("ttg.local_alloc", [], [ring_type]).result
    full = None if channel.barriers else _barriers(build, channel.depth, plan.fill_arrivals(channel))
    empty = _barriers(build, channel.depth, readers) if channel.reused and not channel.barriers else None
    seen = [ws.capture(op, value) if value is not None else None for value in (buffers, full, empty)]
    for index, view in enumerate(views):
        data, ready, free = (values[index] if values is not None else None for values in seen)
        assert data is not None
        view[name] = Ring(channel.depth, buffer, data, ready, free, channel.fill)


def _lend_barriers(plan: Plan, views: list[dict[str, Ring]]) -> None:
    """To rings that use another one's."""
    for view in views:
        for name, ring in view.items():
            if owner := plan.channel_named(name).barriers:
                view[name] = replace(ring, full=view[owner].full, empty=view[owner].empty)


def _barriers(build: Builder, depth: int, count: int) -> Value:
    type = MemDescType((depth, 1), I64, ROW_LAYOUT, SMEM, True)
    barriers = build.create("ttg.local_alloc", [], [type]).result
    for index in range(depth):
        one = _at(build, barriers, build.constant(index), _BARRIER)
        build.create("ttng.init_barrier", [one], [], {"count": i32(count)})
    return barriers


def _whole_view(ring: Type, tile: Type) -> MemDescType:
    """The type of a tile in the memory of a ring, as the first of as many as that has room for."""
    assert isinstance(ring, MemDescType) and isinstance(tile, MemDescType)
    count, rest = divmod(size_bytes(ring), size_bytes(tile))
    return tile if rest or count == 1 else replace(tile, alloc_shape=(count, *tile.shape))


def _at(build: Builder, ring: Value, index: Value, type: MemDescType) -> Value:
    return build.create("ttg.memdesc_index", [ring, index], [type]).result


# ---------------------------------------------------------------------------------------------- lowering


def _lower_task(block: Block, rings: Mapping[str, Ring], filling: int) -> None:
    used = sorted(_used(block))
    filled = {ring_of(op) for op in block.walk() if op.name == "wspec.acquire"}
    build = Builder(block, 0, block.terminator.location)
    start = {name: Position(build.constant(0), build.constant(1 if name in filled else 0)) for name in used}
    _Lowering(rings, filling).block(block, start)


def _used(block: Block) -> set[str]:
    return {ring_of(op) for op in block.walk() if op.name in ("wspec.acquire", "wspec.wait")}


def _holds_abstract(op: Operation) -> bool:
    return any(inner.name.startswith("wspec.") for inner in op.walk())


class _Lowering:
    """Lowers one task, which fills rings with `filling` warps; `at` maps names to positions at the point the walk has
    reached."""

    def __init__(self, rings: Mapping[str, Ring], filling: int) -> None:
        self.rings, self.filling = rings, filling

    def block(self, block: Block, at: Positions) -> Positions:
        for op in list(block.ops):
            if op.name in ("scf.for", "scf.if") and _holds_abstract(op):
                at = self._through(op, sorted({n for r in op.regions if r.blocks for n in _used(r.block)}), at)
            elif op.name.startswith("wspec."):
                build = Builder.before(op)
                at = self._one(op, build, at)
                op.erase()
            elif any(_used(inner) for inner in op.blocks):
                raise AssertionError(f"a channel is used inside {op.name}")
        return at

    # ---- structured control flow

    def _through(self, op: Operation, names: list[str], at: Positions) -> Positions:
        if op.name == "scf.for":
            self._loop(op, names, at)
        else:
            self._branch(op, names, at)
        return at | {name: Position(op.add_result(I32), op.add_result(I32)) for name in names}

    def _loop(self, op: Operation, names: list[str], at: Positions) -> None:
        body = op.regions[0].block
        op.operands += _values(at, names)
        inside = {name: Position(body.add_arg(I32), body.add_arg(I32)) for name in names}
        after = self.block(body, at | inside)
        body.terminator.operands += _values(after, names)

    def _branch(self, op: Operation, names: list[str], at: Positions) -> None:
        for region in op.regions:
            if not region.blocks:
                region.add_block().append(Operation.create("scf.yield", location=op.location))
            after = self.block(region.block, at)
            region.block.terminator.operands += _values(after, names)

    # ---- abstract operations

    def _one(self, op: Operation, build: Builder, at: Positions) -> Positions:
        name = ring_of(op)
        ring = self.rings[name]
        if op.name in ("wspec.acquire", "wspec.wait"):
            return self._enter(op, build, ring, name, at)
        if op.name == "wspec.ring":
            type = _whole_view(ring.buffers.type, op.result.type)
            _replace(op, build.create("ttg.memdesc_reinterpret", [ring.buffers], [type]).result)
            return at
        index = op.operands[0]
        if op.name == "wspec.buffer":
            _replace(op, _at(build, ring.buffers, index, ring.buffer))
        elif op.name in ("wspec.release", "wspec.commit"):
            barriers = ring.empty if op.name == "wspec.release" else ring.full
            assert barriers is not None
            barrier = _at(build, barriers, index, _BARRIER)
            predicate = op.operands[1] if len(op.operands) > 1 else _true(build)
            build.create("ttng.arrive_barrier", [barrier, predicate], [], {"count": i32(1)})
        else:
            _COPIES[ring.fill](op, build, ring)
        return at

    def _enter(self, op: Operation, build: Builder, ring: Ring, name: str, at: Positions) -> Positions:
        here = at[name]
        barriers = ring.empty if op.name == "wspec.acquire" else ring.full
        if barriers is not None:
            barrier = _at(build, barriers, here.index, _BARRIER)
            build.create("ttng.wait_barrier", [barrier, here.phase, _true(build)], [], _WAIT_SEGMENTS)
            if op.name == "wspec.acquire" and ring.fill is Fill.TMA and self.filling > 1:
                build.create("gpu.barrier")  # one thread arrives for all, and none may still wait for the phase before
        if op.name == "wspec.wait" and ring.fill.facts.reader_fences:
            build.fence()
        _replace(op, here.index)
        return {**at, name: _advance(build, here, ring.depth)}


def _values(at: Positions, names: list[str]) -> list[Value]:
    """What a loop or branch carries of the rings."""
    return [value for name in names for value in (at[name].index, at[name].phase)]


def _by_tma(op: Operation, build: Builder, ring: Ring) -> None:
    index, desc, *coordinates = op.operands
    assert ring.full is not None
    ready, true = _at(build, ring.full, index, _BARRIER), _true(build)
    announced = op.int_attr("bytes")
    size = size_bytes(ring.buffer) if announced is None else announced
    if size:
        build.create("ttng.barrier_expect", [ready, true], [], {"size": i32(size)})
    target = _at(build, ring.buffers, index, ring.buffer)
    operands = [desc, *coordinates, ready, target, true]
    build.create("ttng.async_tma_copy_global_to_local", operands, [], _COPY_MODE)


def _by_threads(op: Operation, build: Builder, ring: Ring) -> None:
    """Each thread arrives when all it has copied so far has landed: counted at the start, so it adds nothing."""
    index, pointers, *mask = op.operands
    target = _at(build, ring.buffers, index, ring.buffer)
    properties = {**op.properties, **_PIECE_MODE, "operandSegmentSizes": DenseArrayAttr(I32, (1, 1, len(mask), 0))}
    build.create("ttg.async_copy_global_to_local", [pointers, target, *mask], [_TOKEN], properties)
    assert ring.full is not None
    ready = _at(build, ring.full, index, _BARRIER)
    build.create("ttng.async_copy_mbarrier_arrive", [ready], [], {"noIncrement": UnitAttr()})


_COPIES: dict[Fill, Callable[[Operation, Builder, Ring], None]] = {Fill.TMA: _by_tma, Fill.CP_ASYNC: _by_threads}


def _true(build: Builder) -> Value:
    return build.constant(1, I1)


def _advance(build: Builder, at: Position, depth: int) -> Position:
    """The next buffer; the phase turns over where the ring starts again."""
    one = build.constant(1)
    if depth == 1:
        return Position(at.index, build.binary("arith.xori", at.phase, one))
    following = build.binary("arith.addi", at.index, one)
    wraps = build.compare("eq", following, build.constant(depth))
    index = build.select(wraps, build.constant(0), following)
    flipped = build.binary("arith.xori", at.phase, one)
    return Position(index, build.select(wraps, flipped, at.phase))


def _replace(op: Operation, value: Value) -> None:
    """Uses of the result of `op`, in its block and below, become `value`."""
    assert op.parent is not None
    for later in op.parent.behind(op):
        replace_uses(later, {op.result: value})

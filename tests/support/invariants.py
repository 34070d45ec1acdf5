"""What every specialized module must keep, read from the module and its plan alone."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from tests.support.proved import assert_proved
from wspec.ir import warp_specialize as ws
from wspec.ir.core import Block, Operation, Value
from wspec.ir.types import DenseArrayAttr, IntegerAttr, Layout, MemDescType, ScalarType, TensorDescType, TensorType
from wspec.ir.verify import verify
from wspec.plan.plan import Plan

SM_REGISTERS = 65536
COPY = "ttng.async_tma_copy_global_to_local"
PIECES, LANDED = "ttg.async_copy_global_to_local", "ttng.async_copy_mbarrier_arrive"


@dataclass(frozen=True, slots=True)
class Copy:
    """One TMA copy of the producer with what it is told to expect, or pieces that its threads copy and arrive for."""

    op: Operation
    full: Value  # allocations, outside the tasks
    buffers: Value
    index: Value  # the buffer of the ring, in the task
    bytes: int


@dataclass(slots=True)
class Use:
    """What one task does with barriers, by the allocation they belong to."""

    waits: list[tuple[Value, Value]] = field(default_factory=list)  # (barriers, index)
    arrives: list[tuple[Value, Value]] = field(default_factory=list)
    copies: list[Copy] = field(default_factory=list)
    stores: list[tuple[Value, Value]] = field(default_factory=list)  # (buffers, index) that threads write

    def sent(self) -> dict[Value, Value]:
        """Full barriers -> buffers of the rings that the task's threads fill."""
        return {full: ring for ring, index in self.stores for full, at in self.arrives if at is index}


def assert_sound(module: Operation, plan: Plan) -> None:
    """Raises AssertionError at the first thing that is not as it must be."""
    assert verify(module) == []
    op = ws.find(module)
    assert op is not None and op.parent is not None
    _all_lowered(module)
    _isolated(op)
    _resources(module, op, plan)
    _wgmma(op, plan)
    uses = [_use(op, task) for task in range(len(ws.task_blocks(op)))]
    _without_staging(uses)
    counts = _initialized(op.parent)
    _producer(uses[-1], counts, plan)
    _values(uses, counts, plan)
    _consumers(uses, counts, plan)
    assert_proved(module)


# ------------------------------------------------------------------------------------------------- structure


def _all_lowered(module: Operation) -> None:
    for op in module.walk():
        assert not op.name.startswith("wspec."), f"{op.name} is left"
        assert not [name for name in op.attributes if name.startswith("wspec.")], f"{op.name} carries a mark of ours"


def _isolated(op: Operation) -> None:
    """A partition uses its arguments and what it computes, nothing else; the arguments are the operands' types."""
    for block in ws.partition_blocks(op):
        assert [arg.type for arg in block.args] == [value.type for value in op.operands]
        own = set(block.args)
        for inner in _walk(block):
            own.update(inner.results)
            own.update(arg for region in inner.regions for b in region.blocks for arg in b.args)
        assert all(value in own for inner in _walk(block) for value in inner.operands)


def _walk(block: Block) -> Iterator[Operation]:
    for op in block.ops:
        yield from op.walk()


def _resources(module: Operation, op: Operation, plan: Plan) -> None:
    tasks = [task for task, _ in plan.regions()]
    warps, registers = op.attr("partitionNumWarps"), op.attr("requestedRegisters")
    assert isinstance(warps, DenseArrayAttr) and isinstance(registers, DenseArrayAttr)
    assert warps.values == tuple(task.warps for task in tasks[1:])
    assert registers.values == tuple(task.registers for task in tasks[1:])
    assert all(24 <= task.registers <= 256 and task.registers % 8 == 0 for task in tasks)
    assert module.int_attr("ttg.num-warps") == plan.consumer.warps
    rest = [task for task in tasks if task.warps < 4 or task.kind == "producer"]  # they share a warp group
    shared = max(task.registers for task in rest) * -(-sum(task.warps for task in rest) // 4) * 4
    asked = 32 * (sum(task.registers * task.warps for task in tasks if task not in rest) + shared)
    assert asked * plan.blocks_per_sm <= SM_REGISTERS


def _wgmma(op: Operation, plan: Plan) -> None:
    """The four warps of a warp group hold 64 rows that follow each other, and every warp of the task has a part."""
    for block, (task, _) in zip(ws.task_blocks(op), plan.regions(), strict=True):
        for dot in (inner for inner in _walk(block) if inner.name == "ttng.warp_group_dot"):
            type = dot.result.type
            assert isinstance(type, TensorType) and isinstance(type.encoding, Layout)
            rows, columns = type.encoding.ints("warpsPerCTA")
            assert rows % 4 == 0, f"a warp group does not hold 64 rows of {type}"
            assert rows * columns == task.warps


# --------------------------------------------------------------------------------------------------- barriers


def _origin(op: Operation, value: Value) -> Value:
    """The allocation behind a partition's argument."""
    if isinstance(value.owner, Block) and value.owner in ws.partition_blocks(op):
        return op.operands[value.index]
    return value


def _element(op: Operation, value: Value) -> tuple[Value, Value]:
    """(allocation, index) of one buffer or barrier of a ring."""
    assert value.op is not None and value.op.name == "ttg.memdesc_index", "a barrier is an element of a ring"
    ring, index = value.op.operands
    return _origin(op, ring), index


def _initialized(outer: Block) -> dict[Value, int]:
    """Allocation of barriers -> how many arrivals each waits for. Every barrier is initialized, once, alike."""
    seen: dict[Value, dict[int, int]] = {}
    for op in outer.ops:
        if op.name == "ttng.init_barrier":
            at = op.operands[0].op
            assert at is not None and at.operands[1].op is not None
            index = at.operands[1].op.attr("value")
            assert isinstance(index, IntegerAttr)
            found = seen.setdefault(at.operands[0], {})
            assert index.value not in found, "a barrier is initialized twice"
            found[index.value] = op.int_attr("count") or 0
    for barriers, found in seen.items():
        assert sorted(found) == list(range(_depth(barriers))), "a barrier is not initialized"
        assert len(set(found.values())) == 1
    return {barriers: found[0] for barriers, found in seen.items()}


def _depth(ring: Value) -> int:
    assert isinstance(ring.type, MemDescType)
    return ring.type.shape[0]


def _use(op: Operation, task: int) -> Use:
    use, expected, pieces = Use(), dict[tuple[Value, Value], int](), list[Value]()
    for inner in _walk(ws.task_blocks(op)[task]):
        if inner.name == "ttng.wait_barrier":
            use.waits.append(_element(op, inner.operands[0]))
        elif inner.name == "ttng.arrive_barrier":
            assert inner.int_attr("count") == 1
            use.arrives.append(_element(op, inner.operands[0]))
        elif inner.name == "ttg.local_store" and (made := inner.operands[1].op) is not None:
            if made.name == "ttg.memdesc_index":  # a staged store goes through a view of a whole ring, or an old tile
                use.stores.append(_element(op, inner.operands[1]))
        elif inner.name == "ttng.barrier_expect":
            at = _element(op, inner.operands[0])
            assert not expected.get(at), "a barrier is told twice what comes"
            expected[at] = inner.int_attr("size") or 0
        elif inner.name == COPY:
            barrier, buffer = inner.operands[-3:-1]
            full, index = _element(op, barrier)
            assert expected.get((full, index)), "a copy that its barrier is not told of"
            buffers, position = _element(op, buffer)
            assert index is position, "a copy fills one buffer and says so on the barrier of another"
            expected[full, index] -= (size := _bytes(buffers) // _depth(buffers))
            use.copies.append(Copy(inner, full, buffers, index, size))
        elif inner.name == PIECES:
            pieces.append(inner.operands[1])
        elif inner.name == LANDED:
            assert inner.attr("noIncrement") is not None, "the barrier counts all threads from the start"
            full, index = _element(op, inner.operands[0])
            buffers, position = _element(op, pieces.pop())
            assert index is position and not pieces, "threads fill one buffer and arrive at the barrier of another"
            use.copies.append(Copy(inner, full, buffers, index, _bytes(buffers) // _depth(buffers)))
    assert not pieces, "nobody learns that threads have filled a buffer"
    assert not any(expected.values()), "a barrier expects bytes that nothing brings, or fewer than come"
    return use


# ---------------------------------------------------------------------------------------------- the two sides


def _producer(use: Use, counts: dict[Value, int], plan: Plan) -> None:
    """Every ring of the plan is filled, by copies of the right size, each into a buffer that was waited for."""
    rings = {copy.buffers: copy.full for copy in use.copies}
    loaded = [channel for channel in plan.channels if not channel.is_computed]
    wanted = [(channel, ring) for channel in loaded for ring in range(plan.copies(channel))]
    assert len(rings) == len(wanted)
    assert len(set(rings.values())) == sum(not channel.barriers for channel, _ in wanted)
    assert not use.arrives
    for copy in use.copies:
        assert rings[copy.buffers] is copy.full
        threads = 1 if copy.op.name == COPY else 32 * plan.producer.warps
        assert counts[copy.full] == threads, "all that arrives says how many bytes come, or that a thread's have landed"
        assert _depth(copy.full) == _depth(copy.buffers)
        assert copy.bytes == _bytes(copy.buffers) // _depth(copy.buffers)
        if copy.op.name == COPY:
            _same_layout(copy)
    by_bytes = sorted(map(_bytes, rings))
    assert by_bytes == sorted(c.depth * c.buffer_bytes // plan.copies(c) for c, _ in wanted)


def _bytes(ring: Value) -> int:
    type = ring.type
    assert isinstance(type, MemDescType) and isinstance(type.element, ScalarType)
    size = type.element.bits
    for extent in type.shape:
        size *= extent
    return size // 8


def _same_layout(copy: Copy) -> None:
    """TMA writes the layout of the descriptor, whatever the buffer's type says."""
    desc, buffer = copy.op.operands[0].type, copy.op.operands[-2].type
    assert isinstance(desc, TensorDescType) and isinstance(buffer, MemDescType)
    assert _fields(desc.block.encoding) == _fields(buffer.encoding), f"{desc} is copied to {buffer}"
    assert [n for n in desc.block.shape if n != 1] == [n for n in buffer.shape if n != 1]


def _fields(layout: object) -> tuple[object, ...]:
    assert isinstance(layout, Layout)
    return (layout.name, *(entry for entry in layout.fields if entry[0] != "rank"))


def _without_staging(uses: list[Use]) -> None:
    """A store that goes through a buffer of the producer's sends nothing."""
    copied = {copy.buffers for use in uses for copy in use.copies}
    for use in uses:
        use.stores = [store for store in use.stores if store[0] not in copied]


def _values(uses: list[Use], counts: dict[Value, int], plan: Plan) -> None:
    """Every ring of values is filled by one task, in buffers that it waits for; one arrival says that one is full."""
    sent = [(full, ring) for use in uses for full, ring in use.sent().items()]
    wanted = [channel for channel in plan.values for _ in range(plan.copies(channel))]
    assert len(sent) == len({ring for _, ring in sent}) == len(wanted)
    assert all(counts[full] == 1 and _depth(full) == _depth(ring) for full, ring in sent)
    sizes = sorted(c.depth * c.buffer_bytes // plan.copies(c) for c in wanted)
    assert sorted(_bytes(ring) for _, ring in sent) == sizes


def _consumers(uses: list[Use], counts: dict[Value, int], plan: Plan) -> None:
    """Every wait is for a ring that another task fills, and every release is waited for by that task."""
    filled = {full: task for task, use in enumerate(uses) for full in (*(c.full for c in use.copies), *use.sent())}
    empties = {full: empty for use in uses for full, empty in _empties(use).items()}
    read: set[Value] = set()
    for task, use in enumerate(uses[:-1]):
        assert not use.copies
        acquired = set(_empties(use).values())
        waited = {barriers for barriers, _ in use.waits} - acquired
        assert waited <= set(filled), "a task waits for what nobody fills"
        assert all(filled[full] != task for full in waited), "a task waits for itself"
        released = {barriers for barriers, _ in use.arrives} - set(use.sent())
        assert released == {empties[full] for full in waited if full in empties}, "a task releases what it reads"
        read |= waited
    assert set(filled) == read, "a ring that nobody reads"
    for empty in empties.values():
        assert counts[empty] == sum(any(empty is barriers for barriers, _ in use.arrives) for use in uses)
    reused = sum(plan.copies(channel) for channel in plan.channels if channel.reused and not channel.barriers)
    assert len(empties) == reused
    assert set(counts) == set(filled) | set(empties.values()), "a barrier that nobody uses"


def _empties(use: Use) -> dict[Value, Value]:
    """Full barriers -> empty barriers of the rings a task fills: it waits for a buffer before it fills it."""
    fills = [(copy.full, copy.index) for copy in use.copies]
    fills += [(full, at) for _, index in use.stores for full, at in use.arrives if at is index]
    found: dict[Value, Value] = {}
    for full, index in fills:
        for barriers in [barriers for barriers, at in use.waits if at is index and barriers is not full]:
            assert found.setdefault(full, barriers) is barriers
    return found

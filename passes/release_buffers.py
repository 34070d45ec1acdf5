"""release_buffers: hand a buffer back right after its last read.

    %t = wspec.wait {channel = "k"}             %t = wspec.wait {channel = "k"}
    %b = wspec.buffer %t                        %b = wspec.buffer %t
    %s0 = warp_group_dot %q, %b {isAsync}   =>  %s0 = warp_group_dot %q, %b {isAsync}
    %s = warp_group_dot_wait %s0                %s = warp_group_dot_wait %s0
    ...                                         wspec.release %t {channel = "k"}

A tensor core operation reads until the wait that completes it; anything else has read when it is done. A tile that
threads read into registers needs a fence before it is handed back: the next copy comes through the asynchronous proxy
and may overtake a read issued before it (the likely cause of wrong numbers in an int8 GEMM; docs/results). A
task that sends values on hands its tiles back behind the value, whose fence serves both. Where a loop keeps its dots in
flight, the buffer is carried into the next iteration and released there, and behind the loop for the last one. Channels
that are filled once are never released. Runs after async_dots has put the waits.
"""

from __future__ import annotations

from wspec.ir import warp_specialize as ws
from wspec.ir.builder import Builder
from wspec.ir.core import Block, Operation, Value
from wspec.ir.types import I1, I32
from wspec.ir.wgmma import DOT, WAIT, completions, is_async
from wspec.plan.buffers import VIEWS, ring_of
from wspec.plan.plan import Plan
from wspec.plan.stores import TMA_STORE

NAMES = VIEWS | {"wspec.buffer"}  # operations that name a buffer, or part of it


def release_buffers(module: Operation, plan: Plan) -> Operation:
    """Add a release for every wait on a channel that is reused."""
    op = ws.need(module)
    for block in ws.task_blocks(op)[:-1]:
        for inner in [o for o in block.walk() if o.name == "wspec.wait"]:
            channel = plan.channel_named(ring_of(inner))
            if channel.reused:
                _release(inner, channel.fill.facts.release_fenced)
    return module


def _release(wait: Operation, fenced: bool) -> None:
    """`fenced`: what threads have read is handed to the copy engine; values come from other threads."""
    block = wait.parent
    assert block is not None
    dot = _left_running(block, wait.result)
    if dot is not None:
        _release_later(wait, dot)
        return
    names = _names(block, wait.result)
    last = _last_reader(block, names)
    if last is not None and fenced and (sent := _sent_after(block, last)) is not None:
        _hand_back(Builder.behind(sent, wait.location), wait, [wait.result], fence=False)
        return
    _release_in(block, wait, names, fenced and _read_into_registers(block, wait.result))


def _sent_after(block: Block, last: Operation) -> Operation | None:
    """The last commit of a task that only sends on what it has read: the fence before it serves the reads too."""
    ops = block.behind(last)
    commits = [op for op in ops if op.name == "wspec.commit"]
    fences = [op for op in ops if op.name == "ttng.fence_async_shared"]
    if not commits or not fences or is_async(last) or any(op.name == DOT for op in block.ops):
        return None
    return commits[-1]


def _release_in(block: Block, wait: Operation, names: set[Value], fence: bool) -> None:
    """Release behind the last reader in the block: inside of a branch, behind the last reader of either side."""
    last = _last_reader(block, names)
    if last is not None and last.name == "scf.if":
        for region in last.regions:
            if not region.blocks:
                region.add_block().append(Operation.create("scf.yield", location=last.location))
            _release_in(region.block, wait, names, fence)
        return
    at = 0 if last is None and wait.parent is not block else block.ops.index(last if last is not None else wait) + 1
    _hand_back(Builder(block, at, wait.location), wait, [wait.result], fence)


def _read_into_registers(block: Block, token: Value) -> bool:
    """Do threads read the buffer themselves, rather than the tensor core or a copy?"""
    names = _names(block, token)
    readers = (op for op in block.walk() if not op.regions and names.intersection(op.operands))
    return any(op.name not in NAMES and not is_async(op) and op.name != TMA_STORE for op in readers)


def _names(block: Block, token: Value) -> set[Value]:
    """The token, and every name of its buffer or of part of it."""
    names = {token}
    for op in block.walk():
        if op.name in NAMES and names.intersection(op.operands):
            names.update(op.results)
    return names


def _hand_back(build: Builder, wait: Operation, operands: list[Value], fence: bool) -> None:
    if fence:
        build.fence()
    build.create("wspec.release", operands, attributes=dict(wait.attributes))


def _left_running(block: Block, token: Value) -> Operation | None:
    """The dot that still reads the token's buffer when the block ends, if there is one."""
    done = completions(block)
    return next((op for op in _readers(block, _names(block, token)) if is_async(op) and op not in done), None)


def _release_later(wait: Operation, dot: Operation) -> None:
    """Carry the token round the loop with a flag that there is one, and release it an iteration later."""
    block = wait.parent
    assert block is not None
    loop = block.parent_op
    assert loop is not None and loop.name == "scf.for" and loop.parent is not None
    before = Builder.before(loop, wait.location)
    loop.operands += [before.constant(0), before.constant(0, I1)]
    previous, exists = block.add_arg(I32), block.add_arg(I1)
    after_dot = next(op for op in block.behind(dot) if op.name == WAIT)
    inside = Builder.behind(after_dot, wait.location)
    fence = _read_into_registers(block, wait.result)
    _hand_back(inside, wait, [previous, exists], fence)
    block.terminator.operands += [wait.result, inside.constant(1, I1)]
    last = [loop.add_result(I32), loop.add_result(I1)]
    outer = loop.parent
    behind = next(op for op in outer.behind(loop) if op.name == WAIT)
    after = Builder.behind(behind, wait.location)
    _hand_back(after, wait, last, fence)


def _store_wait(block: Block, copy: Operation) -> Operation:
    """The wait after which a copy to global memory has read its buffer."""
    return next(op for op in block.behind(copy) if op.name == "ttng.async_tma_store_wait")


def _readers(block: Block, names: set[Value]) -> list[Operation]:
    """The operations of `block` that are, or contain, readers of the buffer of these names."""
    return [
        op
        for op in block.ops
        if any(inner.name not in NAMES and names.intersection(inner.operands) for inner in op.walk())
    ]


def _last_reader(block: Block, names: set[Value]) -> Operation | None:
    """The last operation of `block` to finish with the buffer of these names."""
    done, last = completions(block), None
    positions = {op: i for i, op in enumerate(block.ops)}
    for op in _readers(block, names):
        end = done[op] if is_async(op) else _store_wait(block, op) if op.name == TMA_STORE else op
        if last is None or positions[end] > positions[last]:
            last = end
    return last

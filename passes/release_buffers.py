"""release_buffers: hand a buffer back right after its last read.

    %t = wspec.wait {channel = "k"}             %t = wspec.wait {channel = "k"}
    %b = wspec.buffer %t                        %b = wspec.buffer %t
    %s0 = warp_group_dot %q, %b {isAsync}   =>  %s0 = warp_group_dot %q, %b {isAsync}
    %s = warp_group_dot_wait %s0                %s = warp_group_dot_wait %s0
    ...                                         wspec.release %t {channel = "k"}

A tensor core operation reads until the wait that completes it; anything else has read when it is done. Channels that
are filled once are never released. Runs after async_dots has put the waits.
"""

from __future__ import annotations

from wspec.ir import warp_specialize as ws
from wspec.ir.core import Block, Operation, Value
from wspec.ir.types import StringAttr
from wspec.ir.wgmma import completions, is_async
from wspec.plan.plan import Plan

VIEWS = frozenset(
    {"wspec.buffer", "ttg.memdesc_trans", "ttg.memdesc_subslice", "ttg.memdesc_reshape", "ttg.memdesc_reinterpret"}
)

TMA_STORE = "ttng.async_tma_copy_local_to_global"


def release_buffers(module: Operation, plan: Plan) -> Operation:
    """Add a release for every wait on a channel that is reused."""
    op = ws.find(module)
    assert op is not None
    reused = {channel.name for channel in plan.channels if channel.reused}
    for block in ws.task_blocks(op)[: plan.consumer.replicas]:
        for inner in [o for top in block.ops for o in top.walk() if o.name == "wspec.wait"]:
            channel = inner.attributes["channel"]
            assert isinstance(channel, StringAttr)
            if channel.text in reused or channel.text.rsplit(".", 1)[0] in reused:
                _release(inner)
    return module


def _release(wait: Operation) -> None:
    block = wait.parent
    assert block is not None
    last = _last_reader(block, wait.result)
    release = Operation.create(
        "wspec.release", [wait.result], attributes=dict(wait.attributes), location=wait.location
    )
    block.insert(block.ops.index(last if last is not None else wait) + 1, release)


def _store_wait(block: Block, copy: Operation) -> Operation:
    """The wait after which a copy to global memory has read its buffer."""
    after = block.ops[block.ops.index(copy) :]
    return next(op for op in after if op.name == "ttng.async_tma_store_wait")


def _last_reader(block: Block, token: Value) -> Operation | None:
    """The last operation of `block` to finish with the token's buffer."""
    derived, done, last = {token}, completions(block), None
    positions = {op: i for i, op in enumerate(block.ops)}
    for op in block.ops:
        touches = any(value in derived for inner in op.walk() for value in inner.operands)
        if not touches:
            continue
        if op.name in VIEWS:
            derived.update(op.results)
            continue
        end = done[op] if is_async(op) else _store_wait(block, op) if op.name == TMA_STORE else op
        if last is None or positions[end] > positions[last]:
            last = end
    return last

"""What a plan does, in sentences that name source lines."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from wspec.model.machine import Machine
from wspec.plan.fill import Fill
from wspec.plan.plan import Channel, LoopSchedule, Plan
from wspec.planner.rings import block_smem
from wspec.show.tables import Operations, kib, late_names, places


def done(plan: Plan, operations: Operations) -> list[str]:
    """What was done, a sentence for each decision."""
    consumer, producer = plan.consumer, plan.producer
    said = [f"{_warps(producer.warps)}, {producer.registers} registers a thread, only to move tiles ahead of time:"]
    said += [f"  {_channel(channel, operations)}" for channel in plan.channels if not channel.is_computed]
    if plan.tile_loop is not None and plan.coarsening > 1:
        axis = "xyz"[plan.tile_loop.axis]
        share = f"a team of {plan.coarsening} warp groups, each on a tile of its own, {axis} after {axis} of the grid,"
        share += " shares what its loops load"
    elif consumer.replicas > 1:
        share = f"{consumer.replicas} warp groups share the tile, 1/{consumer.replicas} of its rows each"
    else:
        share = f"{_warps(consumer.warps)} compute on the whole tile"
    said.append(f"{share}, with {consumer.registers} registers a thread")
    said += _helpers(plan, operations)
    said += _loops(plan.loops, operations)
    said += [_store(store, channel, kind, operations) for store, channel, kind in plan.staging]
    if plan.subtiling.why_not:
        said.append(plan.subtiling.why_not)
    said += _barriers(plan)
    said += _larger_last(plan)
    if plan.packed:
        said.append(
            f"the tiles at {places(plan.packed, operations)} are bits of bytes, computed several bytes at a time, to "
            "the same numbers"
        )
    if plan.persistent:
        said.append(
            "as many blocks as fit on the GPU walk through the tiles of the grid; the next tile's operands are fetched "
            "while this one is finished"
        )
    if why := plan.ping_pong.why_not:
        said.append(f"groups do not alternate: {why}")
    if plan.epilogue_overlap:
        said.append("each tile is finished and stored while the first product of the next one runs")
    elif why := plan.epilogue_overlap.why_not:
        said.append(f"a tile is finished before the next one begins: {why}")
    if plan.stream_k:
        said.append(
            "where the last wave of tiles would leave SMs idle for longer than it takes to hand sums on, the launch "
            "divides tiles between two blocks: the second goes on with the first one's sums, to the same bits"
        )
    elif plan.persistent and (why := plan.stream_k.why_not):
        said.append(f"no tile is divided between blocks: {why}")
    if (raster := plan.raster.value) is not None:
        shared = "the larger operand, which L2 then sends once," if raster.larger else "an operand, in groups of tiles,"
        said.append(f"blocks beside each other share {shared} unless the order of the grid has them do so already")
    elif plan.persistent and (why := plan.raster.why_not):
        said.append(f"tiles go in the order of the grid: {why}")
    return said + _edits(plan)


def _barriers(plan: Plan) -> list[str]:
    """Which tiles arrive together."""
    if why := plan.shared_barriers.why_not:
        return [f"each tile arrives at a barrier of its own: {why}"]
    groups: dict[str, list[str]] = {}
    for channel in plan.channels:
        if channel.barriers:
            groups.setdefault(channel.barriers, [channel.barriers]).append(channel.name)
    said = "arrive at one barrier, and are handed back at one"
    return [f"{' and '.join(sorted(names))} {said}" for names in groups.values()]


def _larger_last(plan: Plan) -> list[str]:
    """What a step asks for behind what the kernel loads behind it."""
    streams = [channel for channel in plan.channels if channel.streams and not channel.is_computed]
    return [
        f"each step asks for {later.name} behind {one.name}: more of a larger tile reaches several SMs at once so"
        for one, later in pairwise(streams)
        if later.loads < one.loads
    ]


def _edits(plan: Plan) -> list[str]:
    """What is done to the PTX."""
    said: list[str] = []
    if plan.elide_barriers:
        said.append("barriers of a task's threads that order nothing are left out, as one thread arrives for all")
    if plan.hold_waits:
        said.append(
            "the wait for late dots stays behind the maxima that the exponentials need, which take long enough to run "
            "beside them; ptxas would put it in front"
        )
    if plan.programmatic_launch:
        unless = ", unless they are too few to fill all SMs alike" if plan.blocks_per_sm > 1 else ""
        said.append(
            "blocks start while the kernel before them in the stream ends, and wait for it before they touch memory "
            "that it may write" + unless
        )
    elif why := plan.programmatic_launch.why_not:
        said.append(f"blocks start when the kernel before them in the stream has ended: {why}")
    return said


def _helpers(plan: Plan, operations: Operations) -> list[str]:
    """The further tasks of a chain, and what each hands on or takes through shared memory."""
    said: list[str] = []
    for helper in plan.helpers:
        sent = [channel for channel in plan.values if channel.source == helper.name]
        where = "computes for them" if sent else "stores while they go on"
        shown = sent or [channel for channel in plan.values if helper in plan.readers(channel)]
        warps = _warps(helper.warps * helper.replicas)
        said.append(f"a task {helper.name!r} of {warps}, {helper.registers} registers a thread, {where}:")
        said += [f"  {_channel(channel, operations)}" for channel in shown]
    return said


def _store(store: int, channel: str, kind: str, operations: Operations) -> str:
    start = f"the store at {places([store], operations)} goes through"
    if kind == "subtiles":
        return (
            f"{start} a buffer of half its size, which leaves the rings more: half a tile at its end, the other half "
            "beside the first products of the next one"
        )
    if not channel:
        return f"{start} a buffer of its own, and goes on while the next tile is computed"
    return f"{start} the buffer of {channel}, which nobody reads any more"


def _warps(count: int) -> str:
    return "one warp" if count == 1 else f"{count} warps"


def _channel(channel: Channel, operations: Operations) -> str:
    where = places(channel.loads, operations)
    where += f", by {channel.fill}" if channel.fill is not Fill.TMA else ""
    if not channel.reused:
        return f"{channel.name} ({where}): one buffer of {kib(channel.buffer_bytes)}, filled once"
    if channel.stays:
        return f"{channel.name} ({where}): one buffer of {kib(channel.buffer_bytes)}, filled anew for every tile"
    ring = f"a ring of {channel.depth} buffers of {kib(channel.buffer_bytes)}"
    return f"{channel.name} ({where}): {ring}, up to {channel.depth} iterations ahead"


def _loops(schedules: Sequence[LoopSchedule], operations: Operations) -> list[str]:
    """A sentence for all loops that are treated alike."""
    alike: dict[str, list[int]] = {}
    for schedule in schedules:
        alike.setdefault(_loop(schedule, operations), []).append(schedule.loop)
    return [f"the loop at {places(loops, operations)}: {text}" for text, loops in alike.items()]


def _loop(schedule: LoopSchedule, operations: Operations) -> str:
    turns = "; groups issue their dots one group after the other" if schedule.ping_pong else ""
    return _order(schedule, operations) + turns


def _order(schedule: LoopSchedule, operations: Operations) -> str:
    if schedule.stage1:
        late = late_names(schedule, operations)
        return f"{late} run an iteration late, so that dots run while the group computes on the results of others"
    if schedule.in_flight:
        return "the dots of an iteration may still run while the next one's are issued"
    return "keeps its order, there is no dot that could run beside work on the result of another one"


def why(plan: Plan, machine: Machine) -> list[str]:
    """What the model expects, and what bounds the plan."""
    expected = plan.prediction
    said: list[str] = []
    if expected.iteration_cycles:
        gain = expected.plain_iteration_cycles / expected.iteration_cycles
        said.append(
            f"the model expects {expected.iteration_cycles:.0f} cycles an iteration instead of "
            f"{expected.plain_iteration_cycles:.0f} ({gain:.2f} x), bound: {expected.bound}; and "
            f"{expected.overhead_cycles:.0f} cycles to set up"
        )
    if expected.chain_note:
        said.append(f"no third task: {expected.chain_note}")
    rings = [channel for channel in plan.channels if channel.reused and not channel.stays]
    each = sum(channel.buffer_bytes for channel in rings)
    budget = block_smem(machine, plan.blocks_per_sm)
    if rings and budget - plan.smem_bytes < each:
        said.append(
            f"rings cannot be deeper: a block may use {kib(budget)} of shared memory, "
            f"{kib(plan.smem_bytes)} is taken, one stage more takes {kib(each)}"
        )
    return said


def changes(plan: Plan) -> list[str]:
    """What a person can turn, beginning with what this plan leaves open."""
    said = ["edit the plan: wspec plan INPUT --toml > plan.toml, then --plan plan.toml with any command"]
    if any(channel.reused for channel in plan.channels):
        depth = max(channel.depth for channel in plan.channels)
        said.append(f"ring depth (now {depth}): --depth N; smaller tiles make room for deeper rings")
    said.append(f"groups that share the tile (now {plan.consumer.replicas}): --consumers N")
    said.append(f"blocks that share an SM (now {plan.blocks_per_sm}): --blocks N")
    if any(schedule.stage1 for schedule in plan.loops):
        said.append("no overlap of dots inside a group: --overlap 0")
    if plan.packed:
        said.append("bytes one at a time, as Triton computes them: --packed-dequantization 0")
    if plan.persistent:
        said.append("a block for every tile: --persistent 0")
    if why := plan.ping_pong.why_not:
        said.append(f"groups do not alternate: {why}")
    if plan.epilogue_overlap:
        said.append("each tile finished before the next one begins: --epilogue-overlap 0")
    if plan.stream_k:
        said.append("every tile done by one block: --stream-k 0; divided wherever that can be: --stream-k 1")
    if plan.raster:
        said.append("tiles in the order of the grid: --raster 0")
    if plan.shared_barriers:
        said.append("a barrier of its own for every tile: --shared-barriers 0")
    if plan.hold_waits:
        said.append("waits where ptxas puts them: --hold-waits 0")
    if plan.programmatic_launch:
        said.append("start when the kernel before has ended: --programmatic-launch 0")
    elif plan.programmatic_launch.why_not:
        said.append("start while the kernel before still runs: --programmatic-launch 1")
    return said

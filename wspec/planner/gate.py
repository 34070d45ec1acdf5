"""The gate: does specializing pay?"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace

from wspec.diagnostics import Declined
from wspec.ir.core import Operation, Value
from wspec.ir.numbering import id_of
from wspec.ir.shapes import DOTS
from wspec.ir.stages import num_stages
from wspec.model import estimate
from wspec.model.estimate import Way
from wspec.model.fitted import COPY_RATE, TRIED
from wspec.model.machine import Machine
from wspec.model.operations import Iteration, byte_size, heaviest, loop_work
from wspec.plan.buffers import VIEWS
from wspec.plan.fill import Fill, fill_of
from wspec.plan.graph import loops_around
from wspec.plan.partition import decline, walks_by_programs, walks_by_table
from wspec.plan.plan import Plan, Prediction, is_shallow
from wspec.plan.registers import consumer_need
from wspec.planner.converting import converting_cycles, converts
from wspec.target.hopper import WARP_GROUP


@dataclass(frozen=True, slots=True)
class SpecializedLoops:
    """How a specialized kernel works on its loops."""

    groups: int  # warp groups that compute on an SM, those of all its blocks
    blocks: int  # that share an SM
    overlaps: bool  # does an iteration of a chain of dots run beside the next one?
    depth: int  # buffers of the rings
    streamed: frozenset[int]  # loads that fill them
    again: Callable[[Operation], float]  # CUDA cores' cycles of a loop for what groups compute that others compute too
    copied: frozenset[Operation] = frozenset()  # loads that the producer's threads make themselves
    borrowing: frozenset[int] = frozenset()  # loads that use another one's barriers


def predict(
    loops: list[Operation],
    warps: int,
    arranged: SpecializedLoops,
    specialized: Callable[[Operation, Iteration], Iteration],
    machine: Machine,
) -> Prediction:
    """One iteration of the heaviest loop, specialized and not, by `estimate.cycles`.

    Two iterations of a group are under way where the plan pipelines a chain of dots, or where a loop only accumulates,
    whose dots Triton's pipeliner keeps in flight as ours does; of a chain it waits for every dot. What a tile takes
    beside its loop is counted for the plain kernel, where the specialized one does it meanwhile, unless the tiles come
    more slowly than they are multiplied: then both wait for them. Of blocks that share an SM one starts or ends while
    the others go on. Where a group makes an operand of its own products, see converting.py. Where the producer's
    threads copy tiles themselves they take so long for the bytes.

    `warps` is the plain kernel's num_warps. `specialized` gives the work of an iteration of the specialized loop from
    that of the plain one.
    """
    loop, copied = heaviest(loops, machine), arranged.copied
    work = loop_work(loop, machine)
    products = accumulates_only(loop, copied)
    ours = _specialized(loop, specialized(loop, work), arranged, machine)
    plain = _plain(loops, loop, work, warps, copied, machine)
    cycles, before = estimate.cycles(ours), estimate.cycles(plain)
    if products:  # while a tile starts and ends, other blocks' tiles come all the same
        sharing = max(1, plain.groups // plain.block_groups)
        beside = estimate.of_an_iteration(_tile_difference(loop, machine)) / sharing
        before = max(estimate.cycles(replace(plain, work=replace(work, tma=0.0))) + beside, work.tma)
    bounds = {"tensor core": work.mma, "exponential and arithmetic": ours.work.compute, "memory": work.tma}
    if converts(loop):
        again, waits = arranged.again(loop), own_loads_cycles(loop, arranged.streamed, machine)
        cycles, before = converting_cycles(loop, work, arranged.blocks, ours.block_groups, again, waits, machine)
        bounds["converting operands"] = cycles
    if any(load.is_inside(one) for load in copied for one in loops):
        size = sum(byte_size(load.result.type) for load in copied if load.is_inside(loop))
        cycles = max(cycles, size / COPY_RATE)
        bounds["copies by threads"] = cycles
    return Prediction(round(cycles, 1), round(before, 1), machine.setup_latency, max(bounds, key=lambda b: bounds[b]))


def _specialized(loop: Operation, ours: Iteration, arranged: SpecializedLoops, machine: Machine) -> Way:
    """A buffer is handed back when the dot behind the one that reads it has been issued: of `dots` in an iteration, a
    part of an iteration later."""
    streams, blocks, dots = accumulates_only(loop, arranged.copied), arranged.blocks, len(_dots(loop))
    loads = [load for load in _loads(loop, arranged.copied) if id_of(load) in arranged.streamed]
    barriers = len(loads) - sum(id_of(op) in arranged.borrowing for op in loop.walk())
    delay = estimate.consumer_delay(barriers, 0 if arranged.overlaps or streams else dots, machine)
    delay += own_loads_cycles(loop, arranged.streamed, machine)
    trip = estimate.round_trip(_bytes_of(loads), delay, ours.mma / max(1, dots), machine)
    arrives = trip / (blocks * max(1.0, arranged.depth - 1 / max(1, dots)))
    least = max(estimate.producer_cycles(len(loads), barriers, blocks, machine), arrives)
    under_way = 2 if arranged.overlaps or streams else 1
    return Way(ours, arranged.groups, max(1, arranged.groups // blocks), under_way, delay, least)


def _plain(
    loops: list[Operation], loop: Operation, work: Iteration, warps: int, copied: frozenset[Operation], machine: Machine
) -> Way:
    """Triton's pipeliner asks for a tile `num_stages - 1` iterations ahead, when an iteration is over; a loop of one
    stage it leaves alone, so that a group waits for its tiles while only others work."""
    streams, dots, stages = accumulates_only(loop, copied), len(_dots(loop)), num_stages(loop)
    loads, awaited, own = _loads(loop, copied), 0 if streams else dots, max(1, warps // WARP_GROUP)
    groups = own if walks_by_programs(loop) else max(own, plain_groups(loops, machine, warps, stages))
    waits = estimate.consumer_delay(len(loads), awaited, machine)
    trip = estimate.round_trip(_bytes_of(loads), waits, work.mma / max(1, dots), machine)
    arrives = trip / (groups / own * max(1, stages - 1))
    delay = estimate.plain_delay(len(loads), awaited, machine)
    if stages == 1:
        delay += estimate.round_trip(_bytes_of(loads), 0, 0, machine)
    return Way(work, groups, own, 2 if streams else 1, delay, arrives)


def own_loads_cycles(loop: Operation, streamed: Collection[int], machine: Machine) -> float:
    """Of an iteration of a task, waiting for the boxes that it loads itself, one after the other.

    In a loop over tiles that wspec has made the kernel as it was written waits for them too.
    """
    if walks_by_table(loop):
        return 0.0
    own = [op for op in loop.walk() if op.name == "tt.descriptor_load" and id_of(op) not in streamed]
    return sum(estimate.round_trip(byte_size(load.result.type), 0, 0, machine) for load in own)


def _loads(loop: Operation, copied: frozenset[Operation]) -> list[Operation]:
    """Those of a loop whose tiles come while something else goes on, or can."""
    return [op for op in loop.walk() if op in copied or op.name == "tt.descriptor_load"]


def _bytes_of(loads: list[Operation]) -> int:
    return sum(byte_size(load.result.type) for load in loads)


def _tile_difference(loop: Operation, machine: Machine) -> float:
    """What a tile of the plain kernel takes more beside its loop than one of the specialized kernel."""
    walks = bool(loops_around(loop))
    if not walks:  # the specialized one starts a block for each tile too, and its tasks besides
        return -machine.fork_latency
    stored = sum(byte_size(dot.result.type) for dot in _dots(loop)) / 2  # in half the width of the sums
    return estimate.tile_cycles(stored, walks, machine)


def plain_groups(loops: list[Operation], machine: Machine, warps: int, stages: int) -> int:
    """Warp groups of the plain kernel that share an SM, as registers and so many stages of its tiles let them."""
    need = consumer_need(loops, (), 32 * warps)
    blocks = min(machine.registers // (32 * warps * need), machine.smem_bytes // max(1, _plain_bytes(loops, stages)))
    return blocks * warps // WARP_GROUP


def _plain_bytes(loops: list[Operation], stages: int) -> int:
    """Shared memory of a block whose tiles have a buffer for each stage."""
    function = [*loops[0].ancestors()][-1]
    loads = [op for op in function.walk() if op.name == "tt.descriptor_load"]
    inside = [sum(byte_size(load.result.type) for load in loads if load.is_inside(loop)) for loop in loops]
    outside = sum(byte_size(load.result.type) for load in loads if not any(load.is_inside(loop) for loop in loops))
    return outside + max(1, stages) * max(inside)


def _dots(loop: Operation) -> list[Operation]:
    return [op for op in loop.regions[0].block.walk() if op.name in DOTS]


def accumulates_only(loop: Operation, copied: frozenset[Operation] = frozenset()) -> bool:
    """Tiles go from memory to the tensor core and nowhere else."""
    body = loop.regions[0].block
    dots = _dots(loop)
    streams = all(_from_memory(value, copied) for dot in dots for value in dot.operands[:2])
    return streams and all(dot.operands[2].owner is body for dot in dots)


def _from_memory(value: Value, copied: frozenset[Operation]) -> bool:
    while (op := value.op) is not None and (op.name in VIEWS or op.name == "ttg.local_alloc"):
        if not op.operands:
            return False
        value = op.operands[0]
    return value.op is not None and (fill_of(value.op) is Fill.TMA or value.op in copied)


def constant_trips(loop: Operation) -> int | None:
    """The trip count when it is a compile-time constant."""
    low, high, step = (value.number for value in loop.operands[:3])
    if low is None or high is None or step is None:
        return None
    return max(0, math.ceil((high - low) / step)) if step > 0 else None


def check_pays(plan: Plan, loops: list[Operation], depth_asked: int | None = None, is_tried: bool = False) -> None:
    """Leave kernels alone where specializing is not expected to pay. Raises Declined.

    Trip counts that are constant must earn the set-up too. `is_tried`: launches of both kinds will be timed, so that a
    kernel is let through that may be faster, as wrong as the model can be.
    """
    ours, plain = plan.prediction.iteration_cycles, plan.prediction.plain_iteration_cycles
    trips = _all_trips(loops)
    set_up = 0.0 if trips is None else plan.prediction.overhead_cycles / max(1, trips)
    if is_tried:
        pays, pays_for_all = TRIED * ours <= plain, TRIED * (ours + set_up) <= plain
    else:
        pays, pays_for_all = estimate.is_clearly_less(ours, plain), ours + set_up <= plain
    if not pays:
        raise _slower(plan, loops)
    if not pays_for_all:
        raise _too_short(plan, loops, trips or 0)
    if plan.blocks_per_sm == 1 and is_shallow(plan.channels):
        room = "shared memory has room for one buffer of each tile only"
        why = room if depth_asked is None else "depth=1 was asked for"
        raise decline(
            "shared-memory",
            f"{why}, so the producer could not run ahead",
            loops[0].location,
            "use smaller tiles; gate=off specializes anyway",
        )


def _slower(plan: Plan, loops: list[Operation]) -> Declined:
    ours, plain = plan.prediction.iteration_cycles, plan.prediction.plain_iteration_cycles
    copied = [channel for channel in plan.channels if channel.fill is Fill.CP_ASYNC]
    if not copied:
        said = f"an iteration is expected to take {ours:.0f} cycles specialized and {plain:.0f} as it is"
        return decline("gate-slower", said, loops[0].location, "gate=off specializes anyway")
    load = next(op for loop in loops for op in loop.walk() if id_of(op) in copied[0].loads)
    return decline(
        "gate-slower",
        f"the loop loads {' and '.join(channel.name for channel in copied)} through pointers; with cp.async by a task "
        f"of its own an iteration is expected to take {ours:.0f} cycles, and {plain:.0f} as it is",
        load.location,
        "load the tiles of the dot through tensor descriptors; gate=off specializes anyway",
    )


def _all_trips(loops: list[Operation]) -> int | None:
    """Of all loops together, where that is constant; in another loop they are set up once for many rounds."""
    trips = [constant_trips(loop) for loop in loops]
    if loops_around(loops[0]):
        return None
    return None if None in trips else sum(count for count in trips if count is not None)


def _too_short(plan: Plan, loops: list[Operation], trips: int) -> Declined:
    saved = trips * max(0.0, plan.prediction.plain_iteration_cycles - plan.prediction.iteration_cycles)
    return decline(
        "short-loop",
        f"{trips} iterations would save {saved:.0f} cycles, setting up costs {plan.prediction.overhead_cycles:.0f}",
        loops[0].location,
        "specializing pays on longer loops; gate=off specializes anyway",
    )

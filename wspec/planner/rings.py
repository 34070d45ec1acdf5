"""The rings: which loads fill them, how deep they are, and what else takes shared memory."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

from wspec.ir.core import Block, Operation, Value
from wspec.ir.loc import value_name
from wspec.ir.numbering import id_of
from wspec.ir.shapes import DOTS
from wspec.ir.types import Layout, TensorType
from wspec.model.fitted import ON_THE_WAY
from wspec.model.machine import Machine
from wspec.model.operations import byte_size, loop_work
from wspec.options import Options
from wspec.passes.shared_barriers.choice import filled_together, share_barriers
from wspec.plan.buffers import VIEWS, buffer_type, is_the_buffer
from wspec.plan.coarsening import differing_in, size_of, slice_in
from wspec.plan.fill import Fill
from wspec.plan.graph import loops_around
from wspec.plan.partition import Site, deciding, decline, hot_loops
from wspec.plan.plan import Channel
from wspec.plan.stores import rank_changes
from wspec.target.hopper import BARRIER_BYTES, RESERVED_SHARED_BYTES

MAX_DEPTH = 8
STAGE_BYTES = 2 * BARRIER_BYTES  # one full and one empty barrier


def make_channels(
    function: Operation,
    sites: list[Site],
    sliced: dict[int, int],
    replicas: int,
    staged: frozenset[int],
    own: int,
    machine: Machine,
    options: Options,
    blocks: int,
    scratch: int | None = None,
    readers: Mapping[Operation, tuple[str, ...]] | None = None,
) -> tuple[tuple[Channel, ...], int]:
    """The channels of these loads and the bytes of shared memory they take, with `own` bytes of others' buffers.

    Others are stores, and values that tasks compute; `scratch` is what is needed beside all buffers, where it is known.
    `readers`: the tasks that read each load, where not all do; each of a ring's frees all of its buffers.
    A tile that stays while a loop runs has one buffer; those that the loop streams have rings of equal depth.
    Raises Declined where they do not fit.
    """
    groups = _group(sites, readers or {})
    team, private = size_of(function), private_loads(function, sites)
    bytes_of = [byte_size(g[0].load.result.type) * (team if _any_in(g, private) else 1) for g in groups]
    fixed = sum(size for size, g in zip(bytes_of, groups, strict=True) if not g[0].hot)
    per_stage = sum(size for size, g in zip(bytes_of, groups, strict=True) if g[0].hot)
    if scratch is None:
        scratch = scratch_bytes(function, [site.load for site in sites], 1 if team > 1 else replicas, staged) * team
    scratch += own * team
    budget = block_smem(machine, blocks)
    room = budget - fixed - scratch - 1024
    stages = sum(1 for g in groups if g[0].hot)
    room_for = int(room // (per_stage + stages * STAGE_BYTES)) if per_stage else 1
    depth = min(useful_depth(hot_loops(function), blocks, machine), room_for)
    if options.depth is not None:
        depth = options.depth
    if depth < 1 or fixed + depth * per_stage + scratch > budget:
        raise decline(
            "shared-memory",
            f"the tiles in flight need {fixed + max(depth, 1) * per_stage + scratch} bytes of shared memory, "
            f"a block may use {budget}",
            groups[0][0].load.location,
            "use smaller tiles" if options.depth is None else "ask for less depth",
        )
    names: set[str] = set()
    channels = tuple(
        _channel(function, group, size, _any_in(group, private), depth, sliced, names)
        for size, group in zip(bytes_of, groups, strict=True)
    )
    loads = [[site.load for site in group] for group in groups]
    together = filled_together(channels, loads)
    return larger_last(share_barriers(channels, loads, options), together), fixed + depth * per_stage + scratch


def larger_last(channels: Sequence[Channel], together: Iterable[Sequence[int]]) -> tuple[Channel, ...]:
    """With the larger of those that fill `together`, by their positions, last: in this order a step is asked for.

    L2 merges what neighbours ask for at the same moment. Behind another tile a block asks for one when L2 has got so
    far, and so more nearly when its neighbours do. Measured, whichever tile they share (docs/results/products.md).
    """
    made = list(channels)
    for group in together:
        ordered = sorted((channels[at] for at in group), key=lambda one: one.buffer_bytes)
        for at, channel in zip(group, ordered, strict=True):
            made[at] = channel
    return tuple(made)


def useful_depth(loops: list[Operation], blocks: int, machine: Machine) -> int:
    """Buffers that keep a loop fed, of each of the blocks that share an SM: one being read, one being freed, and what
    is on its way.

    Less is not there in time. With more SMs get out of step, and L2 sends a tile that many want more often.
    """
    return min(MAX_DEPTH, math.ceil(steps_on_the_way(loops, blocks, machine)) + 2)


def steps_on_the_way(loops: list[Operation], blocks: int, machine: Machine) -> float:
    """Steps of the loop of shortest steps whose tiles must be on their way, for each of the blocks that share an SM."""
    shortest = min(loop_work(loop, machine).busiest for loop in loops)
    return round(ON_THE_WAY / machine.tma_rate / (blocks * max(shortest, 1.0)), 3)


def block_smem(machine: Machine, blocks: int) -> int:
    """Shared memory each of `blocks` thread blocks on one SM may use; the hardware keeps 1 KiB of each for itself."""
    return min(machine.smem_bytes, (machine.smem_bytes + RESERVED_SHARED_BYTES) // blocks - RESERVED_SHARED_BYTES)


def _group(sites: list[Site], readers: Mapping[Operation, tuple[str, ...]]) -> list[list[Site]]:
    """Loads of the same tiles in loops that follow each other share a ring; loads of one loop never do."""
    groups: list[list[Site]] = []
    for site in sites:
        read = readers.get(site.load)
        group = next((g for g in groups if can_share(g, site) and readers.get(g[0].load) == read), None)
        if group is None:
            groups.append([site])
        else:
            group.append(site)
    return groups


def can_share(group: list[Site], site: Site) -> bool:
    """May `site` fill the ring of `group`? Only loads of the same tiles in loops that follow each other may.

    Boxes of one descriptor are such tiles; what lies at pointers has no name to know it by.
    """
    first = group[0]
    if site.fill is not Fill.TMA or first.fill is not Fill.TMA:
        return False
    if site.loop is None or first.loop is None or any(site.loop is other.loop for other in group):
        return False
    nested = any(site.loop.is_inside(g.loop) or g.loop.is_inside(site.loop) for g in group if g.loop is not None)
    same = site.load.operands[0] is first.load.operands[0] and site.load.result.type == first.load.result.type
    return same and not nested


def _any_in(group: list[Site], loads: set[Operation]) -> bool:
    return any(site.load in loads for site in group)


def private_loads(function: Operation, sites: list[Site]) -> set[Operation]:
    """The loads whose tiles are a team member's own. Raises Declined where that cannot be arranged."""
    differing = differing_in(function.regions[0].block)
    found = {site.load for site in sites if any(value in differing for value in site.load.operands)}
    for site in sites if differing else ():
        if any(decides in differing for op in site.load.ancestors() for decides in deciding(op)):
            raise decline(
                "not-partitionable",
                "the members of a team would not all take this tile: what is around it depends on their number",
                site.load.location,
                "coarsening=1 lets no tiles share what they read",
            )
    for load in found:
        if load.parent is None or slice_in(load.parent, load.operands, differing) is None:
            raise decline(
                "not-partitionable",
                "the place of a tile that is a team member's own depends on more than arithmetic on its number",
                load.location,
                "coarsening=1 lets no tiles share what they read",
            )
    return found


def _channel(
    function: Operation,
    group: list[Site],
    size: int,
    private: bool,
    depth: int,
    sliced: dict[int, int],
    names: set[str],
) -> Channel:
    load = group[0].load
    name = unique(_source_name(function, load), names)
    return Channel(
        name,
        tuple(id_of(site.load) for site in group),
        depth if group[0].hot else 1,
        size,
        sliced.get(id_of(load), -1),
        bool(loops_around(load)),
        stays=not group[0].hot,
        private=private,
        fill=group[0].fill,
    )


def _source_name(function: Operation, load: Operation) -> str:
    """The tile's name in the source; of a load written inside a dot's call, the descriptor's."""
    name = value_name(load.location)
    if name is not None and all(value_name(op.location) != name for op in function.walk() if op.name in DOTS):
        return name
    desc = load.operands[0]
    owner = value_name(desc.op.location if desc.op is not None else desc.location) or name or "tile"
    return owner.removesuffix("_desc")


def unique(name: str, taken: set[str]) -> str:
    name = name.replace(".", "_")
    candidate, count = name, 1
    while candidate in taken:
        count += 1
        candidate = f"{name}{count}"
    taken.add(candidate)
    return candidate


def scratch_bytes(
    function: Operation, loads: Iterable[Operation], replicas: int, staged: frozenset[int] = frozenset()
) -> int:
    """Shared memory beside the rings: buffers made of registers, and the largest layout conversion or store.

    `loads` are the streamed ones, whose allocations are the rings themselves. Conversions may be padded, by an eighth.
    """
    dead = {v.op for store in function.walk() if id_of(store) in staged for v in rank_changes(store.operands[1])}
    largest = 0
    for op in (op for op in function.walk() if op not in dead):
        if op.name == "tt.descriptor_store" and id_of(op) not in staged:
            largest = max(largest, byte_size(op.operands[1].type))
        elif op.name == "ttg.convert_layout" and isinstance(op.result.type, TensorType):
            layout = op.result.type.encoding
            free = isinstance(layout, Layout) and layout.name == "ttg.dot_op"
            largest = max(largest, 0 if free else byte_size(op.result.type) * 9 // 8)
    return largest + _made_of_registers(function, frozenset(loads), replicas)


def _made_of_registers(function: Operation, loads: frozenset[Operation], replicas: int) -> int:
    """Bytes of the allocations that stay in the consumers; each replica has its own copy of a dot's B.

    Those of loops and branches that follow each other take the same memory; those of one block count as alive together.
    """

    def size(alloc: Operation) -> int:
        source = alloc.operands[0].op
        if source is not None and source in loads and is_the_buffer(alloc, buffer_type(source)):
            return 0
        return byte_size(alloc.result.type) * (replicas if _is_b(function, alloc.result) else 1)

    def need(block: Block) -> int:
        own = sum(size(op) for op in block.ops if op.name == "ttg.local_alloc" and op.operands)
        inside = [need(inner) for op in block.ops for inner in op.blocks]
        return own + max(inside, default=0)

    return need(function.regions[0].block)


def _is_b(function: Operation, buffer: Value) -> bool:
    users = [op for op in function.walk() if buffer in op.operands]
    views = [op for op in users if op.name in VIEWS]
    direct = any(op.name in DOTS and op.operands[1] is buffer for op in users)
    return direct or any(_is_b(function, view.result) for view in views)

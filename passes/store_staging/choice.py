"""Where a descriptor store's tile is staged: in shared memory that has served its purpose.

A descriptor store needs a buffer for its tile. Two places cost nothing: the buffer of a tile that was read before (O
through Q's), and the whole ring of a loop that is over (C through A's). The first works in loops too, since the buffer
is released only after the store; the second only where the loop is not entered again. In a loop over tiles a buffer of
its own lets the store run on while the next tile is computed, and the operand's buffer be filled again; one of half the
size does where the tile is stored in halves (halves.py).
"""

from __future__ import annotations

from wspec.ir.core import Block, Operation, Value
from wspec.ir.numbering import id_of
from wspec.ir.shapes import shape_of
from wspec.ir.stages import views_are_whole
from wspec.ir.types import TensorDescType
from wspec.ir.wgmma import DOT
from wspec.model.operations import byte_size
from wspec.passes.store_staging.subtiling import hindrance
from wspec.plan.partition import Site
from wspec.plan.plan import Channel
from wspec.plan.stores import BUFFER, OWN, RING, SUBTILES, Place, Staging, flat_shape, flat_source


def staging_options(
    function: Operation, sites: list[Site], sliced: dict[int, int], replicas: int
) -> dict[int, list[Place]]:
    """Every place each descriptor store may go through, the better first. The place must be the replica's own.

    `sliced` has the dimension by which replicas share a load or a store, -1 for loads that each has for itself.
    """
    found: dict[int, list[Place]] = {}
    through = [site for site in sites if site.fill.facts.stores_through]
    own = [site for site in through if replicas == 1 or id_of(site.load) in sliced]
    for store in (op for op in function.walk() if op.name == "tt.descriptor_store"):
        dim = sliced.get(id_of(store), -1)
        dims = {id_of(s.load): sliced.get(id_of(s.load), -1) for s in own}
        places = [
            Place(load, BUFFER)
            for load in (id_of(s.load) for s in own if not s.hot and _fits_buffer(store, s.load))
            if dims[load] == dim
        ]
        if _after_loops(function, store, sites):  # a whole tile does not fit into the ring of one that is shared
            hot = (id_of(s.load) for s in own if s.hot)
            places += [Place(load, RING) for load in hot if (dims[load] >= 0) == (dim >= 0)]
        if _can_run_on(store):
            places.insert(0, Place(-1, OWN))
        if places:
            found[id_of(store)] = places
    return found


def choose(options: dict[int, list[Place]], kinds: tuple[str, ...]) -> Staging:
    """The first place of the given kinds for each store that has one."""
    picked = {store: next((p for p in places if p.kind in kinds), None) for store, places in options.items()}
    return {store: place for store, place in picked.items() if place is not None}


def fits(function: Operation, staging: Staging, channels: tuple[Channel, ...]) -> bool:
    """Is every ring that a store goes through large enough for the tile?"""
    return all(
        ring_holds(function, store, next(c for c in channels if place.load in c.loads))
        for store, place in staging.items()
        if place.kind == RING
    )


def in_rings_that_hold(
    function: Operation, staging: Staging, options: dict[int, list[Place]], channels: tuple[Channel, ...]
) -> Staging:
    """The same with stores whose ring is too small going through another one, where there is one."""

    def holds(store: int, place: Place) -> bool:
        return ring_holds(function, store, next(c for c in channels if place.load in c.loads))

    found = dict(staging)
    for store, place in staging.items():
        if place.kind == RING and not holds(store, place):
            others = (other for other in options[store] if other.kind == RING and holds(store, other))
            found[store] = next(others, place)
    return found


def own_bytes(function: Operation, staging: Staging) -> int:
    """Shared memory of the stores' own buffers."""
    parts = {store: _PARTS[place.kind] for store, place in staging.items() if place.kind in _PARTS}
    return sum(byte_size(op.operands[1].type) // parts[id_of(op)] for op in function.walk() if id_of(op) in parts)


_PARTS = {OWN: 1, SUBTILES: 2}  # in how many parts a store goes through a buffer of its own


def has_subtiles(staging: Staging) -> bool:
    return any(place.kind == SUBTILES for place in staging.values())


def in_subtiles(staging: Staging) -> Staging:
    """The same with stores in halves that have a buffer of their own."""
    return {store: Place(-1, SUBTILES) if place.kind == OWN else place for store, place in staging.items()}


def why_whole(function: Operation, staging: Staging, warps: int, registers: int) -> str:
    """Why the store that has a buffer of its own cannot be made in halves; empty where it can."""
    own = [op for op in function.walk() if (place := staging.get(id_of(op))) is not None and place.kind == OWN]
    if len(own) != 1:
        return "several stores have a buffer of their own" if own else "no store can have a buffer of its own"
    return hindrance(function, own[0], warps, registers)


def ring_holds(function: Operation, store: int, channel: Channel) -> bool:
    """Has the whole ring room for the store's tile? Some versions of Triton want it for a number of such tiles."""
    op = next(op for op in function.walk() if id_of(op) == store)
    count, rest = divmod(channel.depth * channel.buffer_bytes, byte_size(op.operands[1].type))
    return count > 0 and (rest == 0 or not views_are_whole(function))


def named(staging: Staging, channels: tuple[Channel, ...]) -> tuple[tuple[int, str, str], ...]:
    """The plan's form: (store, channel, kind)."""
    return tuple(
        (store, next((c.name for c in channels if place.load in c.loads), ""), place.kind)
        for store, place in staging.items()
    )


def _can_run_on(store: Operation) -> bool:
    """Does the store stand in the body of a loop, so that it can go on during the next round?"""
    desc, block = store.operands[0].type, store.parent
    if block is None or block.parent_op is None or block.parent_op.name != "scf.for":
        return False
    return isinstance(desc, TensorDescType) and flat_source(store.operands[1], flat_shape(desc)) is not None


def _fits_buffer(store: Operation, load: Operation) -> bool:
    """Same box, same layout, and the store stands after every reader, in the block of the load."""
    out, into = store.operands[0].type, load.operands[0].type
    if store.parent is not load.parent or out != into or load.parent is None:
        return False
    if flat_source(store.operands[1], shape_of(load.result.type)) is None:
        return False
    block = load.parent
    position = block.ops.index(store)
    reads = [i for i, op in enumerate(block.ops) if any(_reads(inner, load.result) for inner in op.walk())]
    return all(i < position and _is_done(block, i, position) for i in reads)


def _is_done(block: Block, reader: int, position: int) -> bool:
    """Is a dot that reads the buffer waited for before the store? Dots are when something else uses their result."""
    op = block.ops[reader]
    if op.name != DOT:
        return True
    later = (inner for top in block.ops[reader + 1 : position] for inner in top.walk())
    return any(inner.name != DOT and any(v in op.results for v in inner.operands) for inner in later)


def _reads(op: Operation, tile: Value) -> bool:
    """Does the operation use the tile, or a buffer or view made of it?"""
    work = list(op.operands)
    while work:
        value = work.pop()
        if value is tile:
            return True
        if value.op is not None and value.op.name in ("ttg.local_alloc", "ttg.memdesc_trans", "ttg.memdesc_subslice"):
            work += value.op.operands[:1]
    return False


def _after_loops(function: Operation, store: Operation, sites: list[Site]) -> bool:
    """Does the store, of a tile of two dimensions, stand behind every loop that streams, none of them in another loop?

    Behind every one: a ring may be filled by several loops, and the producer is in the next one early.
    """
    top = function.regions[0].block
    desc = store.operands[0].type
    if store.parent is not top or not isinstance(desc, TensorDescType):
        return False
    for site in (site for site in sites if site.hot):
        around = [op for op in (site.load, *site.load.ancestors()) if op.name in ("scf.for", "scf.while")]
        if len(around) != 1 or top.ops.index(store) < top.ops.index(top.holder(site.load)):
            return False
    shape = flat_shape(desc)
    return len(shape) == 2 and flat_source(store.operands[1], shape) is not None

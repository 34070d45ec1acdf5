"""Which loads become channels: the tiles that tensor core loops stream through shared memory.

A descriptor load is moved to the producer when it feeds a dot from a loop that multiplies (or from before one), and
when its coordinates can be computed there: from scalars that do not depend on anything the consumers compute. So is the
load of a tile through pointers, in a loop that multiplies, if threads can copy it (pointer_loads.py) and the producer
can compute its pointers and its mask.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from wspec.diagnostics import Declined, Remark
from wspec.ir.core import Operation, Value
from wspec.ir.loc import Location, value_name
from wspec.ir.numbering import id_of
from wspec.ir.ops import info, is_pure
from wspec.ir.shapes import DOTS, unit_dim_pairs
from wspec.ir.types import Layout, MemDescType, ScalarType, TensorDescType, TensorType, Type
from wspec.plan.buffers import VIEWS
from wspec.plan.fill import Fill, fill_of, filling_warps
from wspec.plan.graph import BARRIERS, LOADS, STORES, Dataflow, loops_around
from wspec.plan.layouts import LayoutError, shrink_type
from wspec.plan.plan import source_warps
from wspec.plan.pointer_loads import hindrance, is_copied, is_volatile
from wspec.tile_scheduler.names import TABLE


@dataclass(frozen=True, slots=True)
class Site:
    """One load that fills a channel."""

    load: Operation
    hot: bool  # inside a loop that multiplies

    @property
    def loop(self) -> Operation | None:
        """The innermost loop around it; None: it stands before all loops."""
        return next(iter(loops_around(self.load)), None)

    @property
    def fill(self) -> Fill:
        found = fill_of(self.load)
        assert found is not None
        return found


def decline(
    code: str, message: str, location: Location, note: str = "", path: tuple[tuple[str, Location], ...] = ()
) -> Declined:
    return Declined(Remark(code, message, location, path, note))


def hot_loops(function: Operation) -> list[Operation]:
    """The loops that multiply: each is the innermost loop around some dot. In program order."""
    return list(Dataflow(function).hot_loops)


def walks_by_programs(loop: Operation) -> bool:
    """Does a loop around this one begin at the program's own number: does the kernel walk over tiles by itself?"""
    begins = [outer.operands[0].op for outer in loops_around(loop)]
    return any(begin is not None and begin.name == "tt.get_program_id" for begin in begins)


def walks_by_table(loop: Operation) -> bool:
    """Is it the loop over tiles that wspec has put around the kernel?"""
    value = loop.operands[1]
    while value.op is not None and value.op.name in ("tt.load", "tt.addptr"):
        value = value.op.operands[0]
    return value.op is None and value_name(value.location) == TABLE


def find_sites(flow: Dataflow, turned: bool = True) -> list[Site]:
    """Every load that can be a channel, in program order; `turned`: those of tiles too that are turned or reshaped in
    registers.

    Of those through pointers only what the loops stream: a tile from before them is loaded once, by who reads it.
    """
    sites: list[Site] = []
    for load in flow.function.walk():
        fill = fill_of(load)
        if fill is None or not _CAN_FILL[fill](load) or not feeds_dot(flow, load, turned):
            continue
        hot = any(load.is_inside(loop) for loop in flow.hot_loops)
        if hot or (fill is Fill.TMA and any(_precedes(load, loop) for loop in flow.hot_loops)):
            sites.append(Site(load, hot))
    return sites


def _precedes(load: Operation, loop: Operation) -> bool:
    """Does the load stand in a block around the loop (hoisted out of it)?"""
    return any(op.parent is load.parent for op in (loop, *loop.ancestors()))


def _streams(load: Operation) -> bool:
    """The tile must be one box of the descriptor, in a layout the tensor core reads."""
    desc, tile = load.operands[0].type, load.result.type
    if not isinstance(desc, TensorDescType) or not isinstance(tile, TensorType):
        return False
    encoding = desc.block.encoding
    if not isinstance(encoding, Layout) or encoding.name != "ttg.nvmma_shared":
        return False
    return unit_dim_pairs(desc.block.shape, tile.shape) is not None


_CAN_FILL: dict[Fill, Callable[[Operation], bool]] = {
    Fill.TMA: _streams,
    Fill.CP_ASYNC: is_copied,
}


def feeds_dot(flow: Dataflow, load: Operation, turned: bool = True) -> bool:
    """Is the tile, perhaps through views, conversions or arithmetic, an operand of a dot? `turned`: or when it has been
    turned or reshaped in registers."""
    work, seen = [load.result], set()
    while work:
        value = work.pop()
        for user in flow.users(value):
            if user in seen:
                continue
            seen.add(user)
            if user.name in DOTS:
                return True
            row = info(user.name)
            views = user.name in VIEWS or (turned and user.name in TURNS)
            if views or user.name == "ttg.local_alloc" or (row is not None and row.category in _CARRIERS):
                work += user.results
    return False


_CARRIERS = frozenset({"elementwise", "layout"})
TURNS = frozenset({"tt.trans", "tt.reshape", "tt.join", "tt.split", "tt.cat"})
"""What turns or reshapes a tile in registers."""


def find_loops(flow: Dataflow) -> list[Operation]:
    """The loops that multiply. Raises Declined when there are none, or when they use other tensor core operations."""
    every = [op for op in flow.function.walk() if op.name in ("scf.for", "scf.while")]
    if not every:
        raise decline(
            "no-loop", "the kernel has no loop, so no warps could run ahead of others", flow.function.location,
            "nothing: such a kernel gains nothing from warp specialization",
        )  # fmt: skip
    loops = list(flow.hot_loops)
    if not loops:
        raise decline(
            "no-dot-loop", "no loop multiplies matrices, so tiles need not be staged for the tensor cores",
            every[0].location, "nothing: such a kernel gains nothing from warp specialization",
        )  # fmt: skip
    for loop in loops:
        for dot in (op for op in loop.walk() if op.name == "tt.dot"):
            raise decline(
                "not-partitionable", "this dot does not run on Hopper's asynchronous tensor core operations",
                dot.location, "use 4 or 8 warps, tiles of at least 64 rows, and 16-bit or 8-bit operands",
            )  # fmt: skip
    return loops


def find_streams(flow: Dataflow, turned: bool = True) -> list[Site]:
    """The loads that can be channels, as `find_sites` has them. Raises Declined when no loop has one."""
    sites, loops = find_sites(flow, turned), flow.hot_loops
    if not any(site.hot for site in sites):
        every = [op for loop in loops for op in loop.walk() if op.name == "tt.load"]
        load = next((op for op in every if feeds_dot(flow, op)), every[0] if every else loops[0])
        why = hindrance(load) if every else ""
        raise decline(
            "no-descriptor-load",
            "the loop loads its tiles through pointers, and threads cannot copy this one ahead of time: " + why
            if why else "the loop brings no tile that could be loaded ahead of time",
            load.location, "load the tiles of the dot through tensor descriptors",
        )  # fmt: skip
    return sites


# ------------------------------------------------------------------------------------------------- checks


def check_addresses(flow: Dataflow, site: Site) -> None:
    """The producer must be able to compute the coordinates, and whether the load runs. Raises Declined."""
    _check_scalars(flow, site, site.load.operands, "the address of this load", "needed for the address")
    control = _running(site.load)
    _check_scalars(flow, site, control, "whether this load runs", "needed to know whether it runs")
    _check_layouts(flow, site, control)


def _check_layouts(flow: Dataflow, site: Site, control: list[Value]) -> None:
    """A producer of fewer warps than the kernel has must be able to hold the pointers, and the tensors of which numbers
    are made that decide. Raises Declined."""
    factor = source_warps(flow.function) // filling_warps([site.fill], 1)
    held = [site.load] if site.fill is Fill.CP_ASYNC else []
    needed = (op for op in flow.slice_of([*site.load.operands, *control]) if not op.name.startswith("scf."))
    for op in (*held, *needed) if factor > 1 else ():
        for value in (*op.operands, *op.results):
            try:
                shrink_type(value.type, None, 1, factor)
            except LayoutError as error:
                raise decline(
                    "not-partitionable", f"{factor} times fewer threads cannot hold its pointers: {error}",
                    site.load.location, "use num_warps=4", (("needed for the address", op.location),),
                ) from None  # fmt: skip


def deciding(op: Operation) -> list[Value]:
    """The values that decide whether, and how often, what is inside runs."""
    return op.operands[:3] if op.name == "scf.for" else op.operands[:1] if op.name == "scf.if" else []


def _check_scalars(flow: Dataflow, site: Site, values: list[Value], what: str, step: str) -> None:
    for op in sorted(flow.slice_of(values), key=id_of):
        row = info(op.name)
        heavy = op.name in DOTS or op.name == "tt.descriptor_load" or (op.name == "tt.reduce" and not _is_short(op))
        if row is None or heavy or op.name in STORES:
            raise decline(
                "not-partitionable",
                f"{what} depends on {op.name}, which the consumers compute",
                site.load.location,
                "compute the coordinates of descriptor loads and the conditions around them from program ids, "
                "arguments and loop counters",
                ((step, op.location),),
            )


SHORT = 1024  # elements of a row that every task may reduce for itself


def _is_short(reduction: Operation) -> bool:
    """Is it of a short row of integers, of which any layout gives the same number?"""
    types = [value.type for value in reduction.operands]
    return all(
        isinstance(one, TensorType) and len(one.shape) == 1 and one.shape[0] <= SHORT and _is_integer(one.element)
        for one in types
    )


def _is_integer(type: Type) -> bool:
    return isinstance(type, ScalarType) and not type.is_float


def check_memory(flow: Dataflow, sites: list[Site]) -> None:
    """What is loaded in another task than it was, or in several, must not be stored to meanwhile. Raises Declined.

    That is what is streamed, what its address and its running depend on, what decides loops and branches, and single
    numbers, which every task loads by itself. Other tiles are loaded by the threads that need them (`together`).

    Arguments that differ are taken not to overlap; the launch sees to that (overlap.py).
    """
    ahead = _loads_in(flow, [value for site in sites for value in (*site.load.operands, *_running(site.load))])
    for load in sorted({*ahead, *(site.load for site in sites)}, key=id_of):
        _check_stores(load, flow.conflicts(load), "this load would run ahead of a store that may write the same")
    control = [value for op in flow.function.walk() for value in deciding(op)]
    single = {op for op in flow.function.walk() if op.name in LOADS and not isinstance(op.result.type, TensorType)}
    for load in sorted({*_loads_in(flow, control), *single}, key=id_of):
        _check_stores(load, flow.conflicts(load), "several tasks would load this, and a store may write the same")
        _check_fresh(load)
    for load in ahead:
        _check_fresh(load)


def together(flow: Dataflow) -> Declined | None:
    """Why one task of all the kernel's threads must do all that the producer does not, if it must.

    Its threads then load, store and wait for each other in the order in which they did. Where memory is loaded and
    stored by several tasks, the place must be the same one: replicas keep to the rows that are theirs.
    """
    barrier = next((op for op in flow.function.walk() if op.name in BARRIERS), None)
    if barrier is not None:
        why = f"{barrier.name}: a barrier of the kernel's threads would wait for those of other tasks"
        return decline("unsupported-op", why, barrier.location, "ask for one consumer and no third task")
    for load in flow.function.walk():
        if load.name not in LOADS:
            continue
        store = next((store for store in flow.conflicts(load) if not _same_place(load, store)), None)
        if store is not None:
            why = "tasks load and store by themselves, and a store may write the same memory"
            note = "load and store through different arguments, or ask for one consumer and no third task"
            return decline("memory-alias", why, load.location, note, (("the store", store.location),))
    return None


def _loads_in(flow: Dataflow, values: list[Value]) -> set[Operation]:
    return {op for op in flow.slice_of(values) if op.name in LOADS}


def _running(load: Operation) -> list[Value]:
    """What decides whether a load runs."""
    return [value for op in load.ancestors() for value in deciding(op)]


def _check_stores(load: Operation, stores: list[Operation], why: str) -> None:
    for store in stores:
        raise decline(
            "memory-alias",
            f"{why} memory",
            load.location,
            "load and store through different arguments",
            (("the store", store.location),),
        )


def _check_fresh(load: Operation) -> None:
    """A volatile load sees what others write meanwhile, and two tasks would see different things."""
    if is_volatile(load):
        raise decline(
            "unsupported-op", "this load is volatile, and more tasks than one depend on what it sees", load.location,
            "load it without volatile=True where nobody writes it while the kernel runs",
        )  # fmt: skip


def _same_place(load: Operation, store: Operation) -> bool:
    """Do both access the very same elements, through the same pointers or the same box of a descriptor?"""
    if load.operands[0] is not store.operands[0]:
        return False
    return load.name == "tt.load" or load.operands[1:] == store.operands[2 : len(load.operands) + 1]


_CONTROL = frozenset(
    {"scf.for", "scf.if", "scf.yield", "tt.return", "tt.func", "tt.reduce", "tt.reduce.return", "tt.scan",
     "tt.scan.return", "tt.map_elementwise", "tt.map_elementwise.return"}
)  # fmt: skip
_FORBIDDEN = {
    "tt.debug_barrier": "a barrier of the whole block would wait for warps that are elsewhere",
    "tt.call": "calls of functions that are not inlined are not understood",
}


def check_understood(function: Operation) -> None:
    """Every operation must be one whose effects are known. Raises Declined."""
    for op in function.walk():
        if op.name == "ttg.warp_specialize":
            raise decline("already-specialized", "the kernel states its own warp specialization", op.location)
        if op.successors or (op.regions and op.name not in _CONTROL):
            raise decline(
                "unsupported-control-flow",
                f"{op.name} is control flow that cannot be divided between warps yet",
                op.location,
                "use for loops and conditionals without early return or while",
            )
        _check_carried(op)
        if op.name in _FORBIDDEN:
            raise decline("unsupported-op", f"{op.name}: {_FORBIDDEN[op.name]}", op.location)
        if info(op.name) is None and op.name not in _CONTROL:
            raise decline("unsupported-op", f"nothing is known of the effects of {op.name}", op.location)


def _check_carried(op: Operation) -> None:
    """A tile must be used where it is brought: what a loop carries is in no ring."""
    if op.name != "scf.for":
        return
    carried = [value for value in op.regions[0].block.terminator.operands if isinstance(value.type, MemDescType)]
    if carried:
        raise decline(
            "unsupported-control-flow",
            "this tile is carried in shared memory from one iteration to the next",
            _brought(carried[0], op),
            "if a loop has flatten=True, take it away: the tile is then loaded and used in one loop",
        )


def _brought(tile: Value, loop: Operation) -> Location:
    """Where a tile that the loop carries is put into shared memory, perhaps in a branch."""
    while tile.op is not None and tile.op.name == "scf.if":
        ends = [region.block.terminator.operands[tile.index] for region in tile.op.regions]
        tile = next((value for value in ends if value.op is not None), ends[0])
    return tile.op.location if tile.op is not None else loop.location


def check_effects(flow: Dataflow) -> None:
    """Effects whose result is used, or that we cannot see, would happen once in each task. Raises Declined."""
    for op in flow.function.walk():
        if op.name in ("tt.atomic_rmw", "tt.atomic_cas") and any(map(flow.users, op.results)):
            raise decline("unsupported-op", "the result of an atomic operation is used", op.location)
        if op.name in ("tt.elementwise_inline_asm", "tt.extern_elementwise") and not is_pure(op):
            raise decline("unsupported-op", "code with side effects would run in several tasks", op.location)

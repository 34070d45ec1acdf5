"""decide: the whole plan of a kernel, from how blocks take tiles to the last store.

A plan is made for each way of taking tiles that is open, two at most, and one of them is taken.
"""

from __future__ import annotations

from dataclasses import replace

from wspec.decision import Decision
from wspec.diagnostics import Declined, Remark
from wspec.ir.core import Operation, functions
from wspec.ir.numbering import number
from wspec.model.estimate import is_clearly_less
from wspec.model.machine import Machine
from wspec.options import Options
from wspec.passes.epilogue_overlap.choice import choose_epilogue_overlap
from wspec.passes.persistent.persist import obstacle
from wspec.passes.stream_k.choice import hindrance
from wspec.passes.tile_coarsening.coarsen_tiles import CannotCoarsen
from wspec.plan.exclusions import (
    COARSENING,
    EXCLUDED,
    OPTIMIZATIONS,
    OVERLAP,
    PIPELINING,
    STREAM_K,
    check_asked,
    why_not,
)
from wspec.plan.graph import Dataflow
from wspec.plan.plan import Plan, is_shallow
from wspec.planner.chain import has_converter
from wspec.planner.planner import make_plan
from wspec.planner.tile_loops import WHOLE, check_tile_loop, has_no_tile_loop, walk_tiles, with_costs
from wspec.planner.validate import check_numbers, validate
from wspec.tile_scheduler import StreamK, TileLoop

_DIVIDED = replace(WHOLE, stream_k=Decision(StreamK(0, 0.0, 1)))


def decide(module: Operation, machine: Machine, options: Options) -> Plan:
    """The plan of a numbered module, which stays as it is. Raises Declined where it is to be left alone."""
    function = function_of(module)
    check_asked(options, function)
    hindered = obstacle(function)
    if hindered is not None and options.persistent:
        why, where = hindered
        said, note = f"the kernel cannot walk through tiles: {why}", "leave persistent to wspec, which sees to it"
        raise Declined(Remark("not-persistent", said, where.location, note=note))
    walks = hindered is None and options.persistent is not False
    walks = walks and (bool(options.persistent) or has_no_tile_loop(function))
    if options.coarsening is not None and options.coarsening > 1:
        if not walks:
            raise _not_coarsened(hindered, options, function)
        return _coarsened(module, options.coarsening, machine, options)
    flat = None if options.persistent else _planned(module, None, machine, options)
    if isinstance(flat, Plan) and flat.helpers and not has_converter(flat):
        return _flat(flat, options)  # the model compares chains with kernels that have no loop over tiles
    looped = _walking(module, machine, options) if walks else None
    if isinstance(looped, Plan) and not (isinstance(flat, Plan) and _lost(flat, looped)):
        return looped
    chosen = looped if flat is None else flat
    if not isinstance(chosen, Plan):
        assert chosen is not None
        raise chosen
    return chosen if chosen.persistent else _flat(chosen, options)


def _not_coarsened(hindered: tuple[str, Operation] | None, options: Options, function: Operation) -> Declined:
    """Why no block works on several tiles at a time where blocks do not walk through tiles."""
    why, where = hindered or ("it has a loop over tiles of its own", function)
    if options.persistent is False:
        why = "persistent=0 has a block for each tile"
    said, note = f"the tiles cannot be worked on by a team: {why}", "coarsening=1 works on one at a time"
    return Declined(Remark("not-persistent", said, where.location, note=note))


def _flat(plan: Plan, options: Options) -> Plan:
    """One tile a block; says so where the options ask for more."""
    if options.stream_k:
        message = "no tile can be divided between blocks: a block for each tile is the better plan"
        raise Declined(Remark("not-divided", message, note="persistent=1 has blocks walk through tiles"))
    if options.epilogue_overlap:
        return replace(plan, epilogue_overlap=Decision(None, plan.stream_k.why_not))
    return plan


def given(module: Operation, plan: Plan, machine: Machine) -> Plan:
    """A plan that comes from outside, once it is known to fit the module, with the shared memory that it takes, which
    other depths than it was made with have changed. Raises Declined."""
    check_numbers(plan, function_of(module))
    check_tile_loop(function_of(module), machine, plan)
    try:
        looped = walk_tiles(module.clone({}), plan.tile_loop)
    except CannotCoarsen as why:
        message, note = f"plan: tile_loop.coarsening: {why}", "edit the plan or make it anew"
        raise Declined(Remark("plan-mismatch", message, why.where.location, note=note)) from None
    return replace(plan, smem_bytes=validate(plan, function_of(looped), machine))


def _planned(module: Operation, tiles: TileLoop | None, machine: Machine, options: Options) -> Plan | Declined:
    """The plan of the kernel with that loop over tiles."""
    looped = module if tiles is None else walk_tiles(module.clone({}), tiles)
    try:
        plan = make_plan(Dataflow(function_of(looped)), machine, options)
    except Declined as declined:
        return declined
    if tiles is None:
        return plan
    at_any_cost = options.stream_k is True
    plan = with_costs(
        function_of(module), machine, replace(plan, tile_loop=tiles), at_any_cost=at_any_cost, raster=options.raster
    )
    chosen, why = choose_epilogue_overlap(function_of(looped), plan, machine, options), why_not(OVERLAP, plan)
    return replace(plan, epilogue_overlap=Decision(None, why)) if chosen.epilogue_overlap and why else chosen


def _walking(module: Operation, machine: Machine, options: Options) -> Plan | Declined:
    """With a loop over tiles, the last of which may be divided where that can be. Raises Declined where it must be."""
    if options.stream_k is False:
        return _planned(module, WHOLE, machine, options)
    found = hindrance(function_of(module))
    if found is None:
        plan = _planned(module, _DIVIDED, machine, options)
        why = why_not(STREAM_K, plan) if isinstance(plan, Plan) else ""
        if not isinstance(plan, Plan) or not why:
            return plan if options.stream_k else _finished_later(module, plan, machine, options) or plan
        found = why, function_of(module)
    why, where = found
    if options.stream_k:
        raise Declined(Remark("not-divided", f"no tile can be divided between blocks: {why}", where.location))
    return _planned(module, replace(WHOLE, stream_k=Decision(None, why)), machine, options)


def _finished_later(module: Operation, divided: Plan | Declined, machine: Machine, options: Options) -> Plan | None:
    """With whole tiles that are finished beside the next ones' first products, where that pays: of the two a loop with
    two products is faster so (docs/results/plans.md)."""
    if not isinstance(divided, Plan) or not OPTIMIZATIONS[PIPELINING].used(divided):
        return None
    whole = replace(WHOLE, stream_k=Decision(None, EXCLUDED[frozenset((STREAM_K, OVERLAP))]))
    plan = _planned(module, whole, machine, options)
    return plan if isinstance(plan, Plan) and plan.epilogue_overlap else None


def _lost(flat: Plan, looped: Plan) -> bool:
    """Has a plan with a loop over tiles fewer blocks on an SM than one without, for which it is slower, not its
    converting task, or no tile on its way beside the one that is multiplied?"""
    shallow = is_shallow(looped.channels) and not is_shallow(flat.channels)
    ours, theirs = looped.prediction.iteration_cycles, flat.prediction.iteration_cycles
    fewer = flat.blocks_per_sm > looped.blocks_per_sm and is_clearly_less(theirs, ours)
    return shallow or fewer or (has_converter(flat) and not has_converter(looped))


def _coarsened(module: Operation, factor: int, machine: Machine, options: Options) -> Plan:
    """Blocks on so many neighbours along the first grid axis whose neighbours can share. Raises Declined."""
    whys: list[CannotCoarsen] = []
    divided: Decision[StreamK] = Decision(None, EXCLUDED[frozenset((COARSENING, STREAM_K))])
    for axis in range(3):
        tiles = replace(WHOLE, coarsening=factor, axis=axis, stream_k=divided)
        try:
            plan = _planned(module, tiles, machine, options.replace(chain="off"))
        except CannotCoarsen as why:
            whys.append(why)
            continue
        if isinstance(plan, Declined):
            raise plan
        return plan
    raise Declined(
        Remark("not-persistent", f"the tiles cannot be worked on by a team: {whys[0]}", whys[0].where.location)
    )


def function_of(module: Operation) -> Operation:
    """The kernel: the module's only function. Raises Declined for what cannot be divided into tasks at all."""
    found = functions(module)
    if len(found) != 1:
        call = next((op for op in module.walk() if op.name == "tt.call"), module)
        where = call.location
        raise Declined(Remark("unsupported-op", "the kernel calls functions that are not inlined", where))
    (function,) = found
    ctas = module.int_attr("ttg.num-ctas")
    if ctas is not None and ctas > 1:
        raise Declined(Remark("num-ctas", f"the kernel runs in clusters of {ctas} blocks", function.location))
    if len(function.regions[0].blocks) != 1:
        raise Declined(
            Remark(
                "unsupported-control-flow",
                "the kernel returns early or branches in a way that is not a for or an if",
                function.regions[0].blocks[0].terminator.location,
                note="put the body under an if instead of returning early",
            )
        )
    return function


def numbered(module: Operation) -> Operation:
    """The module with the operations of its kernel numbered, in place. Raises Declined as `function_of` does."""
    number(function_of(module))
    return module

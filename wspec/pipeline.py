"""The compiler, from a kernel's TTGIR to the specialized TTGIR. Reads like a table of contents."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any, TypeVar

from wspec.diagnostics import Declined, Remark
from wspec.ir import print_module
from wspec.ir.core import Operation
from wspec.ir.numbering import number
from wspec.ir.verify import check_valid
from wspec.model.machine import Machine, load_machine
from wspec.options import Options
from wspec.passes.data_partition.slice_tile import slice_tile
from wspec.passes.epilogue_overlap.choice import defer
from wspec.passes.epilogue_overlap.overlap_epilogue import defer_epilogue
from wspec.passes.exp2_on_fma import exp2_on_fma
from wspec.passes.finish import finish
from wspec.passes.lower_channels import lower_channels
from wspec.passes.packed_dequantization.pack_bytes import pack_bytes
from wspec.passes.persistent.persist import obstacle, persist
from wspec.passes.ping_pong.ping_pong import take_turns
from wspec.passes.read_tables_early import read_tables_early
from wspec.passes.release_buffers import release_buffers
from wspec.passes.software_pipelining.async_dots import async_dots
from wspec.passes.software_pipelining.pipeline_loops import pipeline_loops
from wspec.passes.split import split
from wspec.passes.store_staging.delay_last_subtile import put_off_halves
from wspec.passes.store_staging.stage_stores import stage_stores
from wspec.passes.stream_k import choice as division
from wspec.passes.stream_k.divide_tiles import divide_tiles
from wspec.passes.stream_k.fix_up import hand_on
from wspec.passes.tile_coarsening.coarsen_tiles import NoTeam, form_team
from wspec.persistence import check_division, cost_of_tiles, pays
from wspec.plan.exponentials import ERROR_BITS
from wspec.plan.graph import Dataflow
from wspec.plan.plan import Plan
from wspec.planner.chain import has_converter
from wspec.planner.planner import make_plan
from wspec.planner.validate import validate

T = TypeVar("T")

PASSES: tuple[Callable[[Operation, Plan], Operation], ...] = (
    split,  # first: everything later works inside one task
    slice_tile,  # while every region still is a whole program
    stage_stores,  # when buffer and tile belong to one replica
    pack_bytes,  # while a tile is computed in one place: pipelining copies it
    exp2_on_fma,  # while each exponential is one operation: pipelining copies it
    pipeline_loops,  # before dots become asynchronous: it decides their order
    defer_epilogue,  # when the first product of a tile stands alone, and before anybody waits for it
    async_dots,  # after the order is known: it decides the waits
    take_turns,  # after the waits: a turn ends when the dots are issued
    release_buffers,  # after the waits: a buffer is read until one of them
    lower_channels,  # when nothing moves any more
    hand_on,  # when loops carry all they will: it puts one under a branch
    put_off_halves,  # then too: its branch is the loop's only one
    read_tables_early,  # when what a task does first is known
    finish,
)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one kernel."""

    module: Operation | None  # the specialized module; None: left alone
    plan: Plan | None
    remarks: tuple[Remark, ...]
    stages: dict[str, str] = field(default_factory=dict)  # stage name -> text, when they were kept
    times: dict[str, float] = field(default_factory=dict)  # stage name -> seconds


class _Run:
    """Names, times, verifies and keeps the result of each stage."""

    def __init__(self, keep_stages: bool) -> None:
        self.keep = keep_stages
        self.stages: dict[str, str] = {}
        self.times: dict[str, float] = {}

    def step(self, name: str, function: Callable[..., T], *args: Any) -> T:
        start = time.perf_counter()
        result = function(*args)
        self.times[name] = time.perf_counter() - start
        return result

    def show(self, name: str, module: Operation) -> None:
        if self.keep:
            self.stages[name] = print_module(module)


def specialize(module: Operation, options: Options, *, plan: Plan | None = None, keep_stages: bool = False) -> Outcome:
    """Warp-specialize a module that stands right before Triton's pipeliner, in place.

    Returns an Outcome; a kernel that is left alone has no module and a remark that says why. With `plan`, that plan is
    used instead of one of our own; it must have been made for this kernel.
    """
    run = _Run(keep_stages)
    try:
        function = function_of(module)
        number(function)
        run.show("input", module)
        machine = load_machine(options.machine)
        if plan is None:
            module, plan = run.step("plan", decide, module, machine, options)
        else:
            check_division(function, machine, plan)
            module = _numbered(as_planned(module, plan))
            run.step("plan", validate, plan, function_of(module), machine)
    except Declined as declined:
        return Outcome(None, None, (declined.remark,), run.stages, run.times)
    if plan.persistent:
        run.show("persist", module)
    if keep_stages:
        run.stages["plan"] = plan.to_text()
    function = function_of(module)
    location = function.location
    for one in PASSES:
        module = run.step(one.__name__, one, module, plan)
        run.step(f"verify {one.__name__}", check_valid, module)
        run.show(one.__name__, module)
    done = Remark("specialized", describe(plan), location)
    return Outcome(module, plan, (done,), run.stages, run.times)


def decide(module: Operation, machine: Machine, options: Options) -> tuple[Operation, Plan]:
    """The module to work on, with a loop over tiles or without, and its plan. Raises Declined."""
    function = function_of(module)
    hindered = obstacle(function)
    if hindered is not None and options.persistent:
        why, where = hindered
        said, note = f"the kernel cannot walk through tiles: {why}", "leave persistent to wspec, which sees to it"
        raise Declined(Remark("not-persistent", said, where.location, note=note))
    walks = hindered is None and options.persistent is not False and (options.persistent or pays(function))
    flat = None if options.persistent else _planned(module, machine, options)
    if isinstance(flat, Plan) and flat.helpers and not has_converter(flat):
        return module, flat  # the model compares chains with kernels that have no loop over tiles
    if walks and options.team is not None and options.team > 1:
        return _with_team(module, machine, options)
    looped, why = _walking(module, machine, options) if walks else (None, "")
    if isinstance(looped, Plan) and not (isinstance(flat, Plan) and _lost(flat, looped)):
        divided = options.stream_k is not False and not why
        cost = cost_of_tiles(function, machine, looped, divided=divided, at_any_cost=options.stream_k is True)
        walking = replace(looped, persistent=True, divided=divided, not_divided=why, tiles=cost.to_text())
        module = _numbered(looped_over_tiles(module, divided=divided))
        return module, defer(function_of(module), walking, machine, options)
    chosen = looped if flat is None else flat
    if not isinstance(chosen, Plan):
        assert chosen is not None
        raise chosen
    return module, chosen


def _walking(module: Operation, machine: Machine, options: Options) -> tuple[Plan | Declined, str]:
    """The plan of the kernel with a loop over tiles, and why two blocks may not share a tile; "" where they may.

    Raises Declined where they are asked to.
    """
    if options.stream_k is False:
        return _planned(_numbered(looped_over_tiles(module.clone({}))), machine, options), ""
    found = division.hindrance(function_of(module))
    if found is None:
        plan = _planned(_numbered(looped_over_tiles(module.clone({}), divided=True)), machine, options)
        if not isinstance(plan, Plan) or (plan.blocks_per_sm == 1 and not plan.helpers):
            return plan, ""
        shared = "several of them share an SM, which is busy as long as one of them is"
        found = "a third task works on it" if plan.helpers else shared, function_of(module)
    why, where = found
    if options.stream_k:
        raise Declined(Remark("not-divided", f"no tile can be divided between blocks: {why}", where.location))
    return _planned(_numbered(looped_over_tiles(module.clone({}))), machine, options), why


def _lost(flat: Plan, looped: Plan) -> bool:
    """Has a plan with a loop over tiles fewer blocks on an SM than one without, or not its converting task?"""
    return flat.blocks_per_sm > looped.blocks_per_sm or (has_converter(flat) and not has_converter(looped))


def as_planned(module: Operation, plan: Plan) -> Operation:
    """The module with a loop over tiles where the plan has one, as its operations are numbered. Raises NoTeam."""
    return looped_over_tiles(module, plan.team, plan.team_axis, divided=plan.divided) if plan.persistent else module


def looped_over_tiles(module: Operation, team: int = 1, axis: int = 0, *, divided: bool = False) -> Operation:
    """With a loop over tiles, for a team of more than one on several tiles at a time, or over parts of tiles.

    Raises NoTeam.
    """
    if divided:
        return divide_tiles(persist(module, parts=True))
    looped = persist(module)
    return form_team(looped, team, axis) if team > 1 else looped


def _with_team(module: Operation, machine: Machine, options: Options) -> tuple[Operation, Plan]:
    """A team of the size that is asked for, along the first grid axis whose neighbours can share. Raises Declined."""
    assert options.team is not None
    whys: list[NoTeam] = []
    for axis in range(3):
        try:
            looped = _numbered(looped_over_tiles(module.clone({}), options.team, axis))
        except NoTeam as why:
            whys.append(why)
            continue
        plan = make_plan(Dataflow(function_of(looped)), machine, options.replace(chain="off"))
        cost = cost_of_tiles(function_of(module), machine, plan)
        tiles = replace(cost, team=options.team, axis=axis)
        plan = replace(plan, persistent=True, team=options.team, team_axis=axis, tiles=tiles.to_text())
        return looped, defer(function_of(looped), plan, machine, options)
    raise Declined(
        Remark("not-persistent", f"the tiles cannot be worked on by a team: {whys[0]}", whys[0].where.location)
    )


def emit(module: Operation, plan: Plan) -> Operation:
    """The module that `decide` gave, specialized in place by its plan; nothing is verified on the way."""
    for one in PASSES:
        module = one(module, plan)
    return module


def _planned(module: Operation, machine: Machine, options: Options) -> Plan | Declined:
    try:
        return make_plan(Dataflow(function_of(module)), machine, options)
    except Declined as declined:
        return declined


def _numbered(module: Operation) -> Operation:
    number(function_of(module))
    return module


def function_of(module: Operation) -> Operation:
    """The kernel: the module's only function. Raises Declined for what cannot be divided into tasks at all."""
    functions = [op for op in module.walk() if op.name == "tt.func"]
    if len(functions) != 1:
        call = next((op for op in module.walk() if op.name == "tt.call"), module)
        where = call.location
        raise Declined(Remark("unsupported-op", "the kernel calls functions that are not inlined", where))
    ctas = module.int_attr("ttg.num-ctas")
    if ctas is not None and ctas > 1:
        raise Declined(Remark("num-ctas", f"the kernel runs in clusters of {ctas} blocks", functions[0].location))
    if len(functions[0].regions[0].blocks) != 1:
        raise Declined(
            Remark(
                "unsupported-control-flow",
                "the kernel returns early or branches in a way that is not a for or an if",
                functions[0].regions[0].blocks[0].terminator.location,
                note="put the body under an if instead of returning early",
            )
        )
    return functions[0]


def describe(plan: Plan) -> str:
    """One line on what was done."""
    consumer, producer = plan.consumer, plan.producer
    rings = ", ".join(f"{c.name} x{c.depth}" for c in plan.channels)
    late = sum(len(schedule.late) > 0 for schedule in plan.loops)
    third = "".join(f", a task {helper.name!r} of {helper.warps * helper.replicas}" for helper in plan.helpers)
    overlap = f"; {late} of {len(plan.loops)} loops overlap their dots" if late else ""
    overlap += ", in turns" if any(schedule.turns for schedule in plan.loops) else ""
    share = max((schedule.exp2_on_fma for schedule in plan.loops), default=0.0)
    if share:
        overlap += f"; {Fraction(share)} of exp2 on the FMA units (relative error at most 2^-{ERROR_BITS})"
    overlap += "; blocks walk through tiles" if plan.persistent else ""
    overlap += f", {plan.team} neighbours at a time" if plan.team > 1 else ""
    overlap += ", each finished beside the next one's first product" if plan.deferred else ""
    overlap += ", the last ones divided between blocks where that evens their work" if plan.divided else ""
    return (
        f"specialized into {consumer.replicas} consumer warp group{'s' if consumer.replicas > 1 else ''} of "
        f"{consumer.warps} warps and a producer of {producer.warps}{third}; rings {rings}{overlap}"
    )

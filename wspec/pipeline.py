"""The compiler, from a kernel's TTGIR to the specialized TTGIR. Reads like a table of contents."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from wspec.diagnostics import Declined, Remark
from wspec.host_descriptors import Promotion
from wspec.ir import print_module
from wspec.ir.core import Operation
from wspec.ir.disjoint import NONE, Disjoint
from wspec.ir.types import TensorDescType
from wspec.model.machine import load_machine
from wspec.options import Options
from wspec.passes.boxed_operands import share_boxed_operands
from wspec.passes.counted_whiles import count_whiles
from wspec.passes.data_partition.slice_tile import slice_tile
from wspec.passes.early_returns import nest_returns
from wspec.passes.epilogue_overlap.overlap_epilogue import overlap_epilogue
from wspec.passes.finish import finish
from wspec.passes.idle_barriers import drop_idle_barriers
from wspec.passes.lower_channels import lower_channels
from wspec.passes.narrow_conversions import narrow_conversions
from wspec.passes.packed_dequantization.pack_bytes import pack_bytes
from wspec.passes.persistent.fetch_next_entry import fetch_next_entry
from wspec.passes.ping_pong.ping_pong import ping_pong
from wspec.passes.pointer_promotion.choice import operands, pays_alone
from wspec.passes.pointer_promotion.promote import Promoted, promote
from wspec.passes.read_tables_early import read_tables_early
from wspec.passes.release_buffers import release_buffers
from wspec.passes.shared_barriers.share_barriers import share_barriers
from wspec.passes.shorter_steps import shorten_steps
from wspec.passes.software_pipelining.async_dots import async_dots
from wspec.passes.software_pipelining.pipeline_loops import pipeline_loops
from wspec.passes.split import split
from wspec.passes.store_staging.delay_last_subtile import delay_last_subtile
from wspec.passes.store_staging.stage_stores import stage_stores
from wspec.passes.stream_k.fix_up import fix_up
from wspec.passes.unfused_loops import unfuse_loops
from wspec.plan.overlap import disjoint_arguments
from wspec.plan.plan import Plan
from wspec.planner import tile_loops
from wspec.planner.decide import decide, function_of, given, numbered

Pass = Callable[[Operation, Plan], Operation]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one kernel."""

    module: Operation | None  # the specialized module; None: left alone
    plan: Plan | None
    remarks: tuple[Remark, ...]
    stages: dict[str, str] = field(default_factory=dict)  # stage name -> text, when they were kept
    disjoint: Disjoint = NONE  # what the specialized module takes for granted of its arguments
    promotion: Promotion | None = None  # the arguments it has besides those of the kernel, which a launch makes


def specialize(
    module: Operation,
    options: Options,
    *,
    plan: Plan | None = None,
    keep_stages: bool = False,
    verify: Callable[[Operation], None] | None = None,
) -> Outcome:
    """Warp-specialize a module that stands right before Triton's pipeliner, in place: prepare, plan, passes.

    Returns an Outcome; a kernel that is left alone has no module and a remark that says why. With `plan`, that plan is
    used instead of one of our own; it must have been made for this kernel. `verify` is shown what each pass leaves, as
    `ir.verify.check_valid` wants it; a launch does without, since libtriton verifies what it is given. What follows is
    the bridge's: Triton's own passes, the checker, the back end.
    """
    stages: dict[str, str] = {}

    def keep(name: str, made: Operation | Plan) -> None:
        if keep_stages:
            stages[name] = made.to_text() if isinstance(made, Plan) else print_module(made)

    machine = load_machine(options.machine)
    try:
        promoted = prepare(module, options)
        disjoint = disjoint_arguments(function_of(module))
        keep("input", module)
        plan = decide(module, machine, options) if plan is None else given(module, plan, machine)
    except Declined as declined:
        return Outcome(None, None, (declined.remark,), stages)
    keep("plan", plan)
    for one in passes_of(plan):
        module = one(module, plan)
        if verify is not None:
            verify(module)
        keep(one.__name__, module)
    done = Remark("specialized", describe(plan), function_of(module).location)
    remarks = (done, *promoted.remarks())
    return Outcome(module, plan, remarks, stages, disjoint, promoted.promotion)


def prepare(module: Operation, options: Options) -> Promoted:
    """What a plan is made for, in place: without early returns, whiles that count, fused loops and idle barriers, with
    vectors whose layout is changed before they are tiles, left operands where their boxes are, descriptors in the place
    of pointers where that is the same, and operations numbered. Raises Declined."""
    nest_returns(module)
    count_whiles(module)
    unfuse_loops(module)
    drop_idle_barriers(module)
    narrow_conversions(module)
    share_boxed_operands(module)
    promoted = promote(module, options.operands_only) if options.promote is not False else Promoted(None)
    promoted = _with_shorter_steps(module, promoted, load_machine(options.machine).smem_bytes)
    numbered(module)
    return promoted


def _with_shorter_steps(module: Operation, promoted: Promoted, smem_bytes: int) -> Promoted:
    """What became of its pointers when loops that leave room for few buffers take shorter steps, in place.

    A dimension without an end ends behind the last box, and so hangs on the box: such descriptors keep theirs.
    """
    made = promoted.promotion
    function = function_of(module)
    described = [arg for arg in function.regions[0].block.args if isinstance(arg.type, TensorDescType)]
    added = described[len(described) - len(made.descriptors) :] if made is not None else []
    pairs = zip(added, made.descriptors if made is not None else (), strict=True)
    shorten_steps(function, smem_bytes, [arg for arg, one in pairs if None in one.shape])
    if made is None:
        return promoted
    boxes = [arg.type.block.shape for arg in added if isinstance(arg.type, TensorDescType)]
    descriptors = tuple(replace(one, block=box) for one, box in zip(made.descriptors, boxes, strict=True))
    return replace(promoted, promotion=replace(made, descriptors=descriptors))


def _nested(module: Operation) -> Operation:
    """The module without early returns and whiles that count, in place."""
    nest_returns(module)
    count_whiles(module)
    return module


@dataclass(frozen=True, slots=True)
class Undivided:
    """A kernel in Triton IR that is not divided into tasks, with descriptors in the place of pointers."""

    module: Operation
    promotion: Promotion
    disjoint: Disjoint
    remarks: tuple[Remark, ...]


def undivided(read: Callable[[], Operation], lowered: Operation, options: Options) -> Undivided | None:
    """Give a kernel that is not specialized descriptors; None where nothing is to be gained.

    `read` gives it in Triton IR; `lowered` is the same kernel in TTGIR, which is spent. With promote=1 wherever a tile
    becomes a descriptor's; otherwise where all tiles that go to products do, and Triton copies one of them worse.
    Raises Declined.
    """
    if options.promote is False:
        return None
    if not options.promote and not pays_alone(operands(function_of(_nested(lowered)))):
        return None
    module = _nested(read())
    promoted = promote(module, options.operands_only)
    function = function_of(module)
    if promoted.promotion is None or (not options.promote and operands(function)):
        return None
    count = len(promoted.done)
    tiles = "a tile" if count == 1 else f"{count} tiles"
    message = f"not specialized, but {tiles} that went through pointers go through tensor descriptors"
    done = Remark("promoted", message, function.location)
    return Undivided(module, promoted.promotion, disjoint_arguments(function), (done, *promoted.remarks()))


def walk_tiles(module: Operation, plan: Plan) -> Operation:
    """Let blocks walk through tiles, several neighbours at a time or parts of one, as the plan's tile loop says."""
    return tile_loops.walk_tiles(module, plan.tile_loop)


PASSES: tuple[Pass, ...] = (
    walk_tiles,  # first: the plan is of the kernel with the loop over tiles
    split,  # before the rest: everything later works inside one task
    slice_tile,  # while every region still is a whole program
    stage_stores,  # when buffer and tile belong to one replica
    pack_bytes,  # while a tile is computed in one place: pipelining copies it
    pipeline_loops,  # before dots become asynchronous: it decides their order
    overlap_epilogue,  # when the first product of a tile stands alone, and before anybody waits for it
    async_dots,  # after the order is known: it decides the waits
    ping_pong,  # after the waits: a turn ends when the dots are issued
    share_barriers,  # then too, and before anything is handed back: once for all
    release_buffers,  # after the waits: a buffer is read until one of them
    lower_channels,  # when nothing moves any more
    fix_up,  # when loops carry all they will: it puts one under a branch
    delay_last_subtile,  # then too: its branch is the loop's only one
    fetch_next_entry,  # then too
    read_tables_early,  # when what a task does first is known
    finish,
)


def passes_of(plan: Plan) -> tuple[Pass, ...]:
    """Those that a plan takes; without a loop over tiles the first one has nothing to do."""
    return PASSES if plan.tile_loop is not None else PASSES[1:]


def emit(module: Operation, plan: Plan) -> Operation:
    """A numbered module, specialized in place by its plan; nothing is verified on the way."""
    for one in passes_of(plan):
        module = one(module, plan)
    return module


def describe(plan: Plan) -> str:
    """One line on what was done."""
    consumer, producer = plan.consumer, plan.producer
    rings = ", ".join(f"{c.name} x{c.depth}" for c in plan.channels)
    late = sum(len(schedule.stage1) > 0 for schedule in plan.loops)
    third = "".join(f", a task {helper.name!r} of {helper.warps * helper.replicas}" for helper in plan.helpers)
    overlap = f"; {late} of {len(plan.loops)} loops overlap their dots" if late else ""
    overlap += ", in turns" if any(schedule.ping_pong for schedule in plan.loops) else ""
    overlap += "; blocks walk through tiles" if plan.persistent else ""
    overlap += f", {plan.coarsening} neighbours at a time" if plan.coarsening > 1 else ""
    overlap += ", each finished beside the next one's first product" if plan.epilogue_overlap else ""
    overlap += ", the last ones divided between blocks where that evens their work" if plan.stream_k else ""
    return (
        f"specialized into {consumer.replicas} consumer warp group{'s' if consumer.replicas > 1 else ''} of "
        f"{consumer.warps} warps and a producer of {producer.warps}{third}; rings {rings}{overlap}"
    )

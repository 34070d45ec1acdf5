"""The compiler, as the bridge asks it: TTGIR text in, a verdict out. Needs neither torch nor the kernel itself.

Planner and passes are imported when there is something to compile: a launch from the cache needs none of them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from wspec import bridge, ir
from wspec.diagnostics import Declined, Remark
from wspec.ir.loc import value_name
from wspec.ir.shapes import DOTS
from wspec.model.machine import load_machine
from wspec.options import Options
from wspec.plan.fill import Fill
from wspec.plan.plan import Plan, is_shallow
from wspec.plan.registers import launch_registers
from wspec.tile_scheduler import TABLE, LaunchWay

if TYPE_CHECKING:
    from wspec.bridge import Verdict


@dataclass(frozen=True, slots=True)
class Judge:
    """The pipeline under options, and under a plan or the compiler's own."""

    options: Options
    plan: Plan | None = None
    keep_stages: bool = False
    verify: Callable[[ir.Operation], None] | None = None  # as `pipeline.specialize` takes it
    name: str = ""  # of an alternative: the options that make it

    def __call__(self, text: str) -> Verdict:
        from wspec.pipeline import specialize

        if not self.options.specialize and self.plan is None:
            why = Remark("disabled", "no kernel is divided into tasks (specialize=False or WSPEC_SPECIALIZE=0)")
            return bridge.Verdict(None, remarks=(why,))
        outcome = specialize(
            ir.read(text), self.options, plan=self.plan, keep_stages=self.keep_stages, verify=self.verify
        )
        module = ir.print_module(outcome.module) if outcome.module is not None else None
        found, stages, remarks = outcome.plan, dict(outcome.stages), tuple(outcome.remarks)
        if found is None:
            return bridge.Verdict(module, remarks=remarks, stages=stages)
        constant = None if outcome.module is None else _table(outcome.module)
        edits = bridge.PtxEdits(
            found.elide_barriers,
            found.hold_waits,
            bool(found.programmatic_launch),
            self.options.interleave_rows,
            constant,
        )
        ways = () if module is None or self.plan is not None else self._ways(text, found)
        return bridge.Verdict(
            module, found.to_text(), remarks, found.tile_loop, found.blocks_per_sm, stages, edits, outcome.disjoint,
            ways, outcome.promotion,
        )  # fmt: skip

    def undivided(self, ttir: Callable[[], str], ttgir: str) -> Verdict | None:
        """A kernel that is left alone, with descriptors in the place of pointers; None where that is not wanted.

        `ttir` gives its Triton IR, in generic form as `ttgir` is; the text of the verdict is Triton IR too.
        """
        if self.plan is not None or self.options.tune or self.options.promote is False:
            return None
        if not self.options.promote and not any(name in ttgir for name in DOTS):
            return None  # most kernels
        from wspec.pipeline import undivided

        try:
            made = undivided(lambda: ir.read(ttir()), ir.read(ttgir), self.options)
        except Declined:
            return None
        if made is None:
            return None
        text = ir.print_module(made.module)
        return bridge.Verdict(text, remarks=made.remarks, disjoint=made.disjoint, promotion=made.promotion)

    def _ways(self, text: str, plan: Plan) -> tuple[LaunchWay, ...]:
        """What launches may choose between; nothing else is made while plans are measured."""
        from wspec.pipeline import prepare
        from wspec.planner.launch_ways import launch_ways, may_choose

        if self.options.tune or not may_choose(plan, self.options):
            return ()
        module = ir.read(text)
        prepare(module, self.options)
        return launch_ways(module, plan, load_machine(self.options.machine), self.options)

    def alternatives(self, verdict: Verdict, code: str) -> tuple[Judge, ...]:
        """Others to ask where the back end spoils what came of the `verdict`: with fewer values alive at a time.

        `code` says what it did. Dots that it serializes: without overlap, without a third task, with tiles undivided,
        with a block for each, and with no dot left in flight from one iteration to the next, one after the other; the
        last by itself, too. Shared memory that is too little: with less in it. Registers that it spills: also with more
        of them for a producer that holds pointers, with one block on an SM, with one consumer, with a task that stores,
        and with rings of one buffer; the same where it miscompiles. What could not be checked in the time there is:
        with rings of two. What is not proved: with a block for each tile, where tasks share the tile, and with one
        consumer, as two of them store in no order. Where either is so, at last: without rings for tiles that are turned
        or reshaped in registers. None for a plan that a person gave.
        """
        from wspec.plan.partition import TURNS

        if self.plan is not None or not verdict.plan:
            return ()
        plan, options = Plan.from_text(verdict.plan), self.options
        if code == "shared-memory":
            return self._in_turn(self._smaller(plan))
        if code == bridge.OUT_OF_TIME:
            return self._in_turn([{"depth": 2}] if options.depth is None else [])
        one_tile = [{"persistent": False}] if plan.persistent and options.persistent is None else []
        may_be_one = plan.consumer.replicas > 1 and options.consumers is None and not plan.coarsening > 1
        one = [{"consumers": 1}] if may_be_one else []
        turns = self.options.turned_tiles is None and any(f'"{name}"' in (verdict.text or "") for name in TURNS)
        as_laid_out = [{"turned_tiles": False}] if turns else []
        if code == "check-undecided":
            both = self._in_turn([*one_tile, *one])
            first = (both[0], *self._in_turn(one), *both[1:]) if one_tile else both
            return (*first, *self._in_turn(as_laid_out))
        fewer: list[dict[str, Any]] = []
        if options.overlap and any(schedule.stage1 for schedule in plan.loops):
            fewer.append({"overlap": False})
        if plan.helpers and options.chain == "auto":
            fewer.append({"chain": "off"})
        if code == "serialized-wgmma":
            undivided = [{"stream_k": False}] if plan.stream_k and options.stream_k is None else []
            waits = [] if {"overlap": False} in fewer or not options.overlap else [{"overlap": False}]
            changes = [*fewer, *undivided, *one_tile]
            return (*self._in_turn([*changes, *waits]), *(self._in_turn(waits) if changes else ()))
        fewer += one
        alone = [{"blocks": 1}] if plan.blocks_per_sm > 1 and options.blocks is None else []
        most = self._for_producer(plan)
        found = [] if most is None else [self.varied({"producer_registers": most})]
        found += self._in_turn([*alone, *one_tile, *fewer])
        found += self._in_turn([*alone, *fewer]) if one_tile else ()  # some kernels have a loop only over their tiles
        if not plan.helpers and options.chain == "auto":
            found.append(self.varied({"chain": "on"}))
        if options.depth is None and not is_shallow(plan.channels):
            found.append(self.varied({"depth": 1}))
        found += self._in_turn([*as_laid_out, *one_tile, *fewer]) if as_laid_out else ()
        return tuple(found)

    def _in_turn(self, changes: list[dict[str, Any]]) -> tuple[Judge, ...]:
        """With one change, with that and the next one, and so on."""
        made, found = self, []
        for change in changes:
            made = made.varied(change)
            found.append(made)
        return tuple(found)

    def _smaller(self, plan: Plan) -> list[dict[str, Any]]:
        """What takes less shared memory."""
        found: list[dict[str, Any]] = []
        if plan.helpers and self.options.chain == "auto":
            found.append({"chain": "off"})
        if plan.consumer.replicas > 1 and self.options.consumers is None and not plan.coarsening > 1:
            found.append({"consumers": 1})
        if plan.blocks_per_sm > 1 and self.options.blocks is None:
            found.append({"blocks": 1})
        deepest = max((channel.depth for channel in plan.channels), default=1)
        if self.options.depth is None:
            found += [{"depth": depth} for depth in (2, 1) if depth < deepest]
        return found

    def _for_producer(self, plan: Plan) -> int | None:
        """As many registers as a thread has at launch, for a producer whose threads copy tiles and that has fewer."""
        warps = sum(task.warps * task.replicas for task in plan.tasks if task is not plan.producer)
        most = launch_registers(load_machine(self.options.machine), plan.blocks_per_sm, warps)
        copies = any(channel.fill is Fill.CP_ASYNC for channel in plan.channels)
        return most if copies and plan.producer.registers < most else None

    def varied(self, change: dict[str, Any]) -> Judge:
        """The same under other options, which its name tells."""
        said = ", ".join(f"{field}={value}" for field, value in change.items())
        name = f"{self.name}, {said}" if self.name else f"as with {said}"
        return replace(self, options=self.options.replace(**change), name=name)


def _table(module: ir.Operation) -> int | None:
    """The number of the argument that is the table of tiles; None where blocks do not walk through tiles."""
    from wspec.planner.decide import function_of

    args = function_of(module).regions[0].block.args
    return next((arg.index for arg in args if value_name(arg.location) == TABLE), None)

"""From a module to steps: which operations are stretches of arithmetic, and what the others do."""

from __future__ import annotations

import re
from collections.abc import Sequence

from wspec.ir import warp_specialize as ws
from wspec.ir.assembly import AWAIT_WORD
from wspec.ir.core import Block, Operation, Value
from wspec.ir.loc import value_name
from wspec.ir.types import DenseArrayAttr, IntegerAttr, MemDescType
from wspec.lab.simulate import scalars
from wspec.lab.simulate.actions import Action, Flow, Kind
from wspec.lab.simulate.barrier_steps import AT_BARRIERS, COPIES, around_copies, at_barrier, deciding, where
from wspec.lab.simulate.costs import SCHEDULERS, numbers
from wspec.lab.simulate.dots import dot, flop, held, latency, load, store
from wspec.lab.simulate.errors import SimulationError
from wspec.lab.simulate.ptxas_reordering import NO_EDITS, Edits, add_arrival, add_wait, after_arithmetic, joined
from wspec.lab.simulate.steps import (
    SCALAR,
    AtBarrier,
    Compute,
    Emit,
    For,
    If,
    Index,
    Load,
    Offset,
    Program,
    Root,
    Specialize,
    Step,
    TaskCode,
    While,
)
from wspec.lab.simulate.tiles import byte_size
from wspec.lab.simulate.work import Costing, fused
from wspec.model.machine import Machine

View = tuple[int, ...]  # an allocation in shared memory and positions in it
_NAMED = re.compile(r"\b(?:barrier(?:\.cta)?|bar)(?:\.cta)?\.(sync|arrive)(?:\.aligned)?\s+(\d+)\s*,\s*(\d+)")
_VIEWS = frozenset(
    f"ttg.memdesc_{name}" for name in ("trans", "reshape", "reinterpret", "subslice", "subview")
)  # of a barrier: the same one
_BARRIERS = frozenset(("gpu.barrier", "ttg.barrier", "ttg.local_barrier"))
_ENDS = frozenset(("scf.yield", "ttg.warp_yield", "ttg.warp_return", "tt.return", "scf.condition"))
STORES = frozenset(("ttng.async_tma_copy_local_to_global", "ttng.async_tma_scatter", "ttng.async_tma_reduce"))
_TOUCHING = frozenset(
    (
        "ttg.local_load",
        "ttg.local_store",
        "ttg.local_alloc",
        "ttg.convert_layout",
        "tt.reduce",
        "ttng.fence_async_shared",
        "tt.load",
        "tt.store",
    )
)  # shared memory, perhaps
_TOUCHING_KINDS = frozenset(
    (Kind.INIT, Kind.COPY, Kind.STORE, Kind.STORE_WAIT, Kind.CP, Kind.CP_COMMIT, Kind.CP_WAIT, Kind.CP_ARRIVE)
)
_BY_ONE_THREAD = frozenset((Kind.ARRIVE, Kind.EXPECT, Kind.COPY, Kind.STORE))  # after the warps of the task have met


class Compiler:
    """Makes the steps of a function."""

    def __init__(
        self,
        module: Operation,
        machine: Machine,
        coordinates: bool = False,
        serialized: bool = False,
        edits: Edits = NO_EDITS,
    ) -> None:
        """With `coordinates`, for what loads touch: they are followed too, and all else is left out.

        `serialized`: ptxas makes every wgmma wait for the one before. `edits`: of the PTX.
        """
        self.serialized, self.edits = serialized, edits
        self.behind_dots = False  # since the last wait for dots, only arithmetic and arrivals
        self.is_met = True  # nothing has touched shared memory since the task's warps last met
        functions = [op for op in module.walk() if op.name == "tt.func"]
        if len(functions) != 1 or not functions[0].regions or len(functions[0].regions[0].blocks) != 1:
            raise SimulationError("the simulator takes a module of one function without early returns")
        self.function, self.numbers = functions[0], numbers(machine)
        self.roots = 0
        self.barriers: dict[View, int] = {}  # numbers of those that were met
        self.warps = module.int_attr("ttg.num-warps") or 4
        self.around_copies = around_copies(self.function) if coordinates else None
        seen = list(self.function.walk()) if self.around_copies is None else self.around_copies
        seeds = [*deciding(seen), *(where(seen) if coordinates else ())]
        self.needed = scalars.closure(seeds)  # what decides conditions, trip counts and barriers
        self.fused = fused(self.function)
        self.task_warps, self.costing = self.warps, Costing(self.numbers, self.warps, self.fused)
        self.main = self._task("default", self.warps, self.function.regions[0].block, [])

    @property
    def names(self) -> list[str]:
        """Of the function's arguments; `arg3` is the fourth when it has none. A descriptor's sizes have its name."""
        arguments = self.function.regions[0].block.args
        return [value_name(one.location) or f"arg{number}" for number, one in enumerate(arguments)]

    @property
    def parameters(self) -> dict[str, Value]:
        """The function's arguments by name, of several of one name the first."""
        found: dict[str, Value] = {}
        for name, one in zip(self.names, self.function.regions[0].block.args, strict=True):
            found.setdefault(name, one)
        return found

    def axes(self) -> frozenset[int]:
        """The axes of the grid that decide what a block does: through conditions, trip counts, barriers."""
        ids = (v.op for v in self.needed if v.op is not None and v.op.name == "tt.get_program_id")
        return frozenset(op.int_attr("axis") or 0 for op in ids)

    # ---- tasks and blocks

    def _task(self, name: str, warps: int, block: Block, captured: list[tuple[Value, Value]]) -> TaskCode:
        outer = self.task_warps, self.costing
        self.task_warps, self.costing = warps, Costing(self.numbers, warps, self.fused)
        steps = self._block(block)
        self.task_warps, self.costing = outer
        return TaskCode(name, warps, steps, [pair for pair in captured if pair[0] in self.needed])

    def _block(self, block: Block) -> list[Step]:
        steps: list[Step] = []
        stretch: list[Operation] = []
        self.behind_dots, self.is_met = False, True
        for op in block.ops:
            if op.name in _ENDS:
                continue
            needed = bool(op.results) and any(result in self.needed for result in op.results)
            if needed:
                steps += self._scalar(op)
            if self.around_copies is not None and op not in self.around_copies and not (needed and op.regions):
                continue
            made = self._steps(op)
            if made is None:
                stretch.append(op)
                continue
            self._flush(stretch, steps)
            self._add(made, steps)
        self._flush(stretch, steps)
        return steps

    def _flush(self, stretch: list[Operation], steps: list[Step]) -> None:
        """The stretch so far as one action."""
        pieces = self.costing.pieces(stretch)
        touches = any(op.name in _TOUCHING for op in stretch)
        self.behind_dots, self.is_met = self.behind_dots and not touches, self.is_met and not touches
        if pieces:
            cycles = sum(piece.cycles if isinstance(piece, Flow) else piece for piece in pieces)
            main = max(stretch, key=lambda op: max((byte_size(r.type) for r in op.results), default=0))
            made = Action(Kind.WORK, main, pieces=pieces, ops=tuple(stretch), cycles=cycles)
            before = steps[-1].actions[0] if steps and isinstance(steps[-1], Emit) else None
            both = joined(before, made) if before is not None and before.kind is Kind.WORK else None
            if both is not None:
                steps[-1] = Emit((both,))
            else:
                steps.append(Emit((made,)))
        stretch.clear()

    def _add(self, made: Sequence[Step], steps: list[Step]) -> None:
        """One thread acts for all once they have met, and before a wait they meet, too; arrivals in a row need one
        meeting. Where such meetings are taken out, a warp group of its own needs none before waits and arrivals behind
        a wait for dots, and several none before a wait where nothing has touched shared memory since the last one."""
        for step in made:
            if isinstance(step, Emit) and step.actions[0].kind is Kind.DOT_WAIT:
                add_wait(step, steps, self.edits.hold_waits)
                self.behind_dots = True
                continue
            if isinstance(step, SCALAR):
                steps.append(step)
                continue
            alone = self.edits.elide_barriers and self.task_warps <= SCHEDULERS
            if isinstance(step, AtBarrier) and step.kind is Kind.ARRIVE and self.behind_dots:
                if alone:
                    add_arrival(step, steps)
                    continue
            else:
                self.behind_dots = False
            if isinstance(step, AtBarrier) and step.kind is Kind.WAIT:
                step.early = after_arithmetic(steps)
            before = next((one for one in reversed(steps) if not isinstance(one, SCALAR)), None)
            met = before is not None and _arrives(before) and _arrives(step)
            ordered = alone or (self.edits.elide_barriers and self.is_met)
            waits = isinstance(step, AtBarrier) and step.kind is Kind.WAIT and not ordered
            if (_by_one_thread(step) or waits) and self.task_warps >= 4 and not met:
                op = step.op if isinstance(step, AtBarrier) else _first(step).op
                steps.append(Emit((Action(Kind.TASK_SYNC, op),)))
                self.is_met = True
            self.is_met = self.is_met and not _touches(step)
            steps.append(step)

    # ---- integers

    def _scalar(self, op: Operation) -> list[Step]:
        if op.name == "ttg.local_alloc":
            self.roots += 1
            return [Root(op.result, self.roots)]
        if op.name == "ttg.memdesc_index":
            return [Index(op.result, op.operands[0], op.operands[1])]
        if op.name in _VIEWS:
            return [Index(op.result, op.operands[0], None)]
        if op.name in ("tt.get_program_id", "tt.get_num_programs"):
            return [Program(op.result, op.int_attr("axis") or 0, op.name == "tt.get_num_programs")]
        if op.name == "tt.addptr":
            return [Offset(op.result, op.operands[0], op.operands[1])]
        if op.name == "tt.load":
            return [Load(op.result, op.operands[0])]
        if op.name == "arith.constant":
            known = scalars.constant(op)
            return [] if known is None else [Compute(op.result, lambda: known, ())]
        function = scalars.function(op)
        return [] if function is None else [Compute(op.results[0], function, tuple(op.operands))]

    # ---- operations that are no arithmetic

    def _steps(self, op: Operation) -> list[Step] | None:
        """None for arithmetic."""
        if op.name in ("scf.for", "scf.while", "scf.if", ws.NAME):
            return [self._control(op)]
        if op.name in COPIES or op.name in AT_BARRIERS:
            return [at_barrier(op, self.numbers)]
        if op.name == "ttng.warp_group_dot" or op.name == "tt.dot":
            first, last = dot(op, self.costing.groups, self.numbers, self.serialized)
            after, hold = latency(op, self.numbers), held(op, self.costing.groups, self.numbers)
            # With A in registers ptxas has the next one converted between an instruction and its wait: no wait here.
            waited = self.serialized and isinstance(op.operands[0].type, MemDescType)
            hold = None if self.serialized else hold
            after = 0.0 if waited else after  # the latency of its last instruction is in the flow
            issue = Action(
                Kind.DOT, op, b=flop(op), pieces=(last,), flow=first, after=after, held=hold, gaps=self.serialized
            )
            setup = Action(
                Kind.WORK, op, pieces=(self.numbers.dot_setup,), ops=(op,), scalar=True, cycles=self.numbers.dot_setup
            )
            is_async = isinstance(flag := op.attr("isAsync"), IntegerAttr) and bool(flag.value) and not waited
            return [Emit((setup,)), Emit((issue,) if is_async else (issue, Action(Kind.DOT_WAIT, op)))]
        if op.name == "ttng.warp_group_dot_wait":
            return [Emit((Action(Kind.DOT_WAIT, op, op.int_attr("pendings") or 0),))]
        if op.name in STORES:
            size = byte_size(op.operands[0].type)
            return [Emit((Action(Kind.STORE, op, b=size, flow=store(size, self.numbers)),))]
        if op.name == "ttng.async_tma_store_wait":
            return [Emit((Action(Kind.STORE_WAIT, op, op.int_attr("pendings") or 0),))]
        if op.name in _BARRIERS:
            return [Emit((Action(Kind.TASK_SYNC, op),))]
        if op.name == "tt.elementwise_inline_asm" and (named := _NAMED.search(op.str_attr("asm_string") or "")):
            kind = Kind.SYNC if named[1] == "sync" else Kind.NAMED_ARRIVE
            return [Emit((Action(kind, op, int(named[2]), int(named[3])),))]
        if op.str_attr("asm_string") == AWAIT_WORD:
            waits = self.numbers.handed_latency
            return [Emit((Action(Kind.WORK, op, pieces=(waits,), ops=(op,), scalar=True, cycles=waits),))]
        return self._cp_async(op)

    def _cp_async(self, op: Operation) -> list[Step] | None:
        if op.name == "ttg.async_copy_global_to_local":
            size = byte_size(op.operands[1].type) // self.costing.groups
            threads = 32 * min(self.task_warps, 4)
            issued = Flow.of(self.costing.instructions(max(1.0, size / threads / 16)))
            issue = Action(Kind.WORK, op, pieces=(issued,), ops=(op,), cycles=issued.cycles)
            return [Emit((issue, Action(Kind.CP, op, b=size, flow=load(size, self.numbers))))]
        if op.name == "ttg.async_commit_group":
            return [Emit((Action(Kind.CP_COMMIT, op),))]
        if op.name == "ttg.async_wait":
            return [Emit((Action(Kind.CP_WAIT, op, op.int_attr("num") or 0),))]
        return None

    # ---- control

    def _control(self, op: Operation) -> Step:
        if op.name == ws.NAME:
            return self._specialize(op)
        if op.name == "scf.for":
            body = op.regions[0].block
            ends = body.terminator.operands
            rows = zip(body.args[1:], op.operands[3:], ends, op.results, strict=True)
            carried = [row for row in rows if row[0] in self.needed or row[3] in self.needed]
            innermost = not any(inner.name == "scf.for" for one in body.ops for inner in one.walk())
            return For(op, self._block(body), Action(Kind.MARK, op), carried, innermost)
        if op.name == "scf.while":
            before, after = (self._block(region.block) for region in op.regions)
            return While(op, before, after, Action(Kind.MARK, op))
        arms, results = [], []
        for number in range(2):
            block = op.regions[number].blocks[0] if number < len(op.regions) and op.regions[number].blocks else None
            arms.append([] if block is None else self._block(block))
            pairs = [] if block is None else zip(op.results, block.terminator.operands, strict=False)
            results.append([pair for pair in pairs if pair[0] in self.needed])
        return If(op, (arms[0], arms[1]), (results[0], results[1]))

    def _specialize(self, op: Operation) -> Specialize:
        counts = op.attr("partitionNumWarps")
        warps = counts.values if isinstance(counts, DenseArrayAttr) else ()
        partitions = []
        for number, (block, count) in enumerate(zip(ws.partition_blocks(op), warps, strict=True)):
            captured = list(zip(block.args, op.operands, strict=True))
            partitions.append(self._task(f"partition{number}", count, block, captured))
        default = self._block(ws.default_block(op))
        return Specialize(op, Action(Kind.FORK, op), Action(Kind.JOIN, op), default, partitions)


def _first(step: Step) -> Action:
    assert isinstance(step, Emit)
    return step.actions[0]


def _arrives(step: Step) -> bool:
    return isinstance(step, AtBarrier) and step.kind is Kind.ARRIVE


def _touches(step: Step) -> bool:
    """Shared memory, other than arithmetic does (`_TOUCHING`)."""
    if isinstance(step, AtBarrier):
        return step.kind in _TOUCHING_KINDS
    return isinstance(step, Emit) and any(one.kind in _TOUCHING_KINDS for one in step.actions)


def _by_one_thread(step: Step) -> bool:
    if isinstance(step, AtBarrier):
        return step.kind in _BY_ONE_THREAD
    return isinstance(step, Emit) and step.actions[0].kind in _BY_ONE_THREAD

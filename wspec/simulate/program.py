"""From a module to steps: which operations are stretches of arithmetic, and what the others do."""

from __future__ import annotations

import re
from collections.abc import Sequence
from math import prod

from wspec.ir import warp_specialize as ws
from wspec.ir.core import Block, Operation, Value, uses
from wspec.ir.loc import value_name
from wspec.ir.types import DenseArrayAttr, IntegerAttr, Layout, MemDescType, TensorType
from wspec.plan.machine import Machine
from wspec.simulate import scalars
from wspec.simulate.actions import Action, Flow, Kind
from wspec.simulate.costs import LOAD, SMEM, STORE, TENSOR, numbers
from wspec.simulate.errors import SimulationError
from wspec.simulate.steps import (
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
from wspec.simulate.tiles import bits, byte_size
from wspec.simulate.work import Costing

View = tuple[int, ...]  # an allocation in shared memory and positions in it
_NAMED = re.compile(r"\b(?:barrier(?:\.cta)?|bar)(?:\.cta)?\.(sync|arrive)(?:\.aligned)?\s+(\d+)\s*,\s*(\d+)")
_VIEWS = frozenset(
    f"ttg.memdesc_{name}" for name in ("trans", "reshape", "reinterpret", "subslice", "subview")
)  # of a barrier: the same one
_BARRIERS = frozenset(("gpu.barrier", "ttg.barrier", "ttg.local_barrier"))
_ENDS = frozenset(("scf.yield", "ttg.warp_yield", "ttg.warp_return", "tt.return", "scf.condition"))
_AT_BARRIERS = frozenset(
    f"ttng.{name}"
    for name in ("init_barrier", "wait_barrier", "arrive_barrier", "barrier_expect", "async_copy_mbarrier_arrive")
)
_COPIES = frozenset(("ttng.async_tma_copy_global_to_local", "ttng.async_tma_gather"))
_STORES = frozenset(("ttng.async_tma_copy_local_to_global", "ttng.async_tma_scatter", "ttng.async_tma_reduce"))
_BY_ONE_THREAD = frozenset((Kind.ARRIVE, Kind.EXPECT, Kind.COPY, Kind.STORE))  # after the warps of the task have met


class Compiler:
    """Makes the steps of a function."""

    def __init__(self, module: Operation, machine: Machine) -> None:
        functions = [op for op in module.walk() if op.name == "tt.func"]
        if len(functions) != 1 or not functions[0].regions or len(functions[0].regions[0].blocks) != 1:
            raise SimulationError("the simulator takes a module of one function without early returns")
        self.function, self.numbers = functions[0], numbers(machine)
        self.uses = uses(self.function)
        self.roots = 0
        self.barriers: dict[View, int] = {}  # numbers of those that were met
        self.warps = module.int_attr("ttg.num-warps") or 4
        self.needed = scalars.closure(self._seeds())  # what decides conditions, trip counts and barriers
        self.fused = self._fused()
        self.task_warps, self.costing = self.warps, Costing(self.numbers, self.warps, self.fused)
        self.main = self._task("default", self.warps, self.function.regions[0].block, [])

    @property
    def parameters(self) -> dict[str, Value]:
        """The arguments of the function by name; `arg3` is the fourth when it has none."""
        arguments = self.function.regions[0].block.args
        return {value_name(one.location) or f"arg{number}": one for number, one in enumerate(arguments)}

    def axes(self) -> frozenset[int]:
        """The axes of the grid that decide what a block does: through conditions, trip counts, barriers."""
        ids = (v.op for v in self.needed if v.op is not None and v.op.name == "tt.get_program_id")
        return frozenset(op.int_attr("axis") or 0 for op in ids)

    # ---- which integers matter

    def _seeds(self) -> list[Value]:
        found: list[Value] = []
        for op in self.function.walk():
            if op.name == "scf.for":
                found += op.operands[:3]
            elif op.name == "scf.if":
                found.append(op.operands[0])
            elif op.name == "scf.while":
                found.append(op.regions[0].block.terminator.operands[0])
            elif op.name in _AT_BARRIERS:
                found += op.operands
            elif op.name in _COPIES:
                found += [op.operands[-3], op.operands[-1]]
        return found

    # ---- tasks and blocks

    def _task(self, name: str, warps: int, block: Block, captured: list[tuple[Value, Value]]) -> TaskCode:
        outer = self.task_warps, self.costing
        self.task_warps, self.costing = warps, Costing(self.numbers, warps, self.fused)
        steps = self._block(block)
        self.task_warps, self.costing = outer
        return TaskCode(name, warps, steps, [pair for pair in captured if pair[0] in self.needed])

    def _fused(self) -> frozenset[Operation]:
        """Multiplications that become part of the addition that is their only user."""
        return frozenset(
            value.op
            for value, users in self.uses.items()
            if value.op is not None and value.op.name == "arith.mulf" and len(users) == 1
            and users[0][0].name in ("arith.addf", "arith.subf") and users[0][0].parent is value.op.parent
        )  # fmt: skip

    def _block(self, block: Block) -> list[Step]:
        steps: list[Step] = []
        stretch: list[Operation] = []
        for op in block.ops:
            if op.name in _ENDS:
                continue
            if op.results and any(result in self.needed for result in op.results):
                steps += self._scalar(op)
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
        if pieces:
            cycles = sum(piece.cycles if isinstance(piece, Flow) else piece for piece in pieces)
            main = max(stretch, key=lambda op: max((byte_size(r.type) for r in op.results), default=0))
            steps.append(Emit((Action(Kind.WORK, main, pieces=pieces, ops=tuple(stretch), cycles=cycles),)))
        stretch.clear()

    def _add(self, made: Sequence[Step], steps: list[Step]) -> None:
        """One thread acts for all once they have met; several such actions in a row need one meeting."""
        for step in made:
            before = next((one for one in reversed(steps) if not isinstance(one, SCALAR)), None)
            met = before is not None and _by_one_thread(before)
            if _by_one_thread(step) and self.task_warps >= 4 and not met:
                op = step.op if isinstance(step, AtBarrier) else _first(step).op
                steps.append(Emit((Action(Kind.TASK_SYNC, op),)))
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
        if op.name in _COPIES or op.name in _AT_BARRIERS:
            return self._at_barrier(op)
        if op.name == "ttng.warp_group_dot" or op.name == "tt.dot":
            dot = Action(Kind.DOT, op, b=_flop(op), flow=self._dot(op), after=self._after(op))
            is_async = isinstance(flag := op.attr("isAsync"), IntegerAttr) and bool(flag.value)
            return [Emit((dot,) if is_async else (dot, Action(Kind.DOT_WAIT, op)))]
        if op.name == "ttng.warp_group_dot_wait":
            return [Emit((Action(Kind.DOT_WAIT, op, op.int_attr("pendings") or 0),))]
        if op.name in _STORES:
            size = byte_size(op.operands[0].type)
            flow = Flow.of({STORE: size / self.numbers.store, SMEM: size / self.numbers.smem})
            return [Emit((Action(Kind.STORE, op, b=size, flow=flow),))]
        if op.name == "ttng.async_tma_store_wait":
            return [Emit((Action(Kind.STORE_WAIT, op, op.int_attr("pendings") or 0),))]
        if op.name in _BARRIERS:
            return [Emit((Action(Kind.TASK_SYNC, op),))]
        if op.name == "tt.elementwise_inline_asm" and (named := _NAMED.search(op.str_attr("asm_string") or "")):
            kind = Kind.SYNC if named[1] == "sync" else Kind.NAMED_ARRIVE
            return [Emit((Action(kind, op, int(named[2]), int(named[3])),))]
        return self._cp_async(op)

    def _cp_async(self, op: Operation) -> list[Step] | None:
        if op.name == "ttg.async_copy_global_to_local":
            size = byte_size(op.operands[1].type) // self.costing.groups
            threads = 32 * min(self.task_warps, 4)
            issued = Flow.of(self.costing.instructions(max(1.0, size / threads / 16)))
            issue = Action(Kind.WORK, op, pieces=(issued,), ops=(op,), cycles=issued.cycles)
            return [Emit((issue, Action(Kind.CP, op, b=size, flow=self._transfer(size))))]
        if op.name == "ttg.async_commit_group":
            return [Emit((Action(Kind.CP_COMMIT, op),))]
        if op.name == "ttg.async_wait":
            return [Emit((Action(Kind.CP_WAIT, op, op.int_attr("num") or 0),))]
        return None

    def _at_barrier(self, op: Operation) -> list[Step] | None:
        operands = op.operands
        match op.name:
            case "ttng.init_barrier":
                return [AtBarrier(Kind.INIT, op, operands[0], op.int_attr("count") or 1, None)]
            case "ttng.wait_barrier":
                segments = op.attr("operandSegmentSizes")
                given = segments.values[2] if isinstance(segments, DenseArrayAttr) else len(operands) > 2
                return [AtBarrier(Kind.WAIT, op, operands[0], operands[1], operands[2] if given else None)]
            case "ttng.arrive_barrier":
                predicate = operands[1] if len(operands) > 1 else None
                return [AtBarrier(Kind.ARRIVE, op, operands[0], op.int_attr("count") or 1, predicate)]
            case "ttng.barrier_expect":
                return [AtBarrier(Kind.EXPECT, op, operands[0], op.int_attr("size") or 0, operands[1])]
            case "ttng.async_copy_mbarrier_arrive":
                return [AtBarrier(Kind.CP_ARRIVE, op, operands[0], 1, None)]
        size = byte_size(operands[-2].type)
        return [AtBarrier(Kind.COPY, op, operands[-3], size, operands[-1], self._transfer(size))]

    def _transfer(self, size: int) -> Flow:
        return Flow.of({LOAD: size / self.numbers.load, SMEM: size / self.numbers.smem})

    def _dot(self, op: Operation) -> Flow:
        """One warp group's share of the rows. Operands in shared memory are read for every 64 rows anew."""
        left, right, result = (value.type for value in (op.operands[0], op.operands[1], op.results[0]))
        assert isinstance(result, TensorType) and isinstance(left, TensorType | MemDescType)
        inner, rows = left.shape[-1], max(64.0, result.shape[-2] / self.costing.groups)
        outer = prod(result.shape[:-2])
        rate = self.numbers.flop_8bit if bits(left) == 8 else self.numbers.flop_16bit
        read = byte_size(right) * rows / 64
        if isinstance(left, MemDescType):
            read += rows * inner * bits(left) / 8
        busy = {TENSOR: 2 * outer * rows * result.shape[-1] * inner / rate, SMEM: outer * read / self.numbers.smem}
        return Flow.of(busy, self._least(result, outer * rows / 64 * inner * bits(left) / 256))

    def _after(self, op: Operation) -> float:
        """From the end of the dot's last instruction to the warp that waited."""
        result, known = op.results[0].type, self.numbers.dot_latency
        columns = instruction_columns(result) if isinstance(result, TensorType) else 0
        return known.get(columns, min(known.values(), default=0.0))

    def _least(self, result: TensorType, instructions: float) -> float:
        """Narrow instructions take longer than their FLOP say."""
        columns = instruction_columns(result)
        return instructions * self.numbers.dot_interval.get(columns, 0.0) * result.shape[-1] / max(1, columns)

    # ---- control

    def _control(self, op: Operation) -> Step:
        if op.name == ws.NAME:
            return self._specialize(op)
        if op.name == "scf.for":
            body = op.regions[0].block
            ends = body.terminator.operands
            rows = zip(body.args[1:], op.operands[3:], ends, op.results, strict=True)
            carried = [row for row in rows if row[0] in self.needed or row[3] in self.needed]
            return For(op, self._block(body), Action(Kind.MARK, op), carried)
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


def instruction_columns(result: TensorType) -> int:
    """N of the instructions that make a tile; 0 where the layout does not say."""
    shape = result.encoding.ints("instrShape") if isinstance(result.encoding, Layout) else ()
    return shape[1] if len(shape) > 1 else 0


def _flop(op: Operation) -> int:
    """Of a dot, all warps together."""
    left, result = op.operands[0].type, op.results[0].type
    assert isinstance(result, TensorType) and isinstance(left, TensorType | MemDescType)
    return 2 * prod(result.shape) * left.shape[-1]


def _first(step: Step) -> Action:
    assert isinstance(step, Emit)
    return step.actions[0]


def _by_one_thread(step: Step) -> bool:
    if isinstance(step, AtBarrier):
        return step.kind in _BY_ONE_THREAD
    return isinstance(step, Emit) and step.actions[0].kind in _BY_ONE_THREAD

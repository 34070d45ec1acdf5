"""From TTGIR to the steps of each task."""

from __future__ import annotations

import math
from collections.abc import Sequence

from wspec.check import assembly, meetings, scalars
from wspec.check import code as c
from wspec.check.clock import timed
from wspec.check.conditions import Always, Condition, Extents
from wspec.check.global_memory import GlobalMemory
from wspec.check.linear import Terms, constant
from wspec.check.tracked_values import DOT, WAIT, Flow, bounds, followed, is_active, moduli
from wspec.ir import warp_specialize as ws
from wspec.ir.core import Block, Operation, Value
from wspec.ir.disjoint import Disjoint
from wspec.ir.ops import info
from wspec.ir.shared_memory import Placement, size_bytes
from wspec.ir.types import DenseArrayAttr, Layout, MemDescType, ScalarType, TensorDescType

_BARRIERS = frozenset(("ttng.init_barrier", "ttng.inval_barrier", "ttng.barrier_expect", "ttng.wait_barrier",
                       "ttng.arrive_barrier", "ttng.async_copy_mbarrier_arrive"))  # fmt: skip
_LOADS = frozenset(("ttng.async_tma_copy_global_to_local", "ttng.async_tma_gather"))
_STORES = frozenset(("ttng.async_tma_copy_local_to_global", "ttng.async_tma_reduce", "ttng.async_tma_scatter"))
_WITHIN = frozenset(("gpu.barrier", "ttg.barrier", "ttg.local_barrier"))  # among the threads of one task
_ELSEWHERE = frozenset(("ttng.tensormap_create", "ttng.tensormap_fenceproxy_acquire"))  # descriptors in global memory
_ENDS = frozenset(("scf.yield", "ttg.warp_yield", "ttg.warp_return", "tt.return", "tt.reduce.return"))


def translate(
    module: Operation,
    function: Operation,
    disjoint: Disjoint,
    unknown: frozenset[Value] = frozenset(),
    placement: Placement | None = None,
) -> tuple[c.Program, Extents]:
    """The steps of every task of a function, and the extents of its loops. `unknown`: values not to follow."""
    return _Translator(module, function, disjoint, unknown, placement).run()


class _Translator:
    def __init__(
        self,
        module: Operation,
        function: Operation,
        disjoint: Disjoint,
        unknown: frozenset[Value],
        placement: Placement | None,
    ) -> None:
        self.placement = placement
        self.fences = placement.fences if placement is not None else frozenset()
        self.module, self.function = module, function
        self.flow = Flow(function)
        self.terms = Terms(GlobalMemory(function, self.flow.sources, disjoint))
        self.extents = Extents(self.terms)
        self.regions = [op for op in function.walk() if op.name == ws.NAME]
        for region in self.regions:
            for block in ws.partition_blocks(region):
                self.terms.capture(block, region.operands)
        self.places = {op: at for at, op in enumerate(function.walk())}
        for op in function.walk():
            if op.name == "scf.for" and is_active(op):
                self.extents.add(op, self.task_of(op), self.places[op])
        self.scratch = self._shared_scratch()
        self.running = self.flow.running()
        self.exact: list[Value] = []
        self.values = followed(self.flow, self._roots(), unknown)
        self.moduli = moduli(self.flow, self.exact, self.values)
        self.roots: list[Operation] = []
        self.numbers: dict[Operation, int] = {}

    def _roots(self) -> list[Value]:
        """The values that steps look at. Those whose integers matter as they are go to `exact`."""
        found: list[Value] = []
        for op in timed(self.function.walk()):
            views = [v for v in op.operands if isinstance(v.type, MemDescType)]
            if op.name.startswith("ttg.memdesc_"):
                self.exact += op.operands[1:]
            elif op.name not in ("scf.for", "scf.yield", "scf.if", ws.NAME):
                found += views
            if op.name in _BARRIERS or op.name in _LOADS:
                self.exact += [v for v in op.operands if scalars.is_scalar(v.type) and not _coordinate(op, v)]
            if op.name == "scf.if":
                self.exact.append(op.operands[0])
            if op.name in (DOT, WAIT) or any(v in self.running for v in op.operands):
                found += [v for v in op.operands if v in self.running]
        return found + self.exact

    def _shared_scratch(self) -> set[Operation]:
        """The operations with memory of their own that an allocation, or another task, has too."""
        if self.placement is None:
            return set()
        areas = {op: area for op, area in self.placement.areas.items() if op.is_inside(self.function)}
        tasks = {op: self.task_of(op) for op in areas}

        def apart(one: Operation, other: Operation) -> bool:
            if "ttg.local_alloc" in (one.name, other.name):
                return True
            # What partitions are handed is read before anything inside begins, and written when all of it is over.
            handed = ws.NAME in (one.name, other.name) and (one.is_inside(other) or other.is_inside(one))
            return tasks[one] != tasks[other] and not handed

        return {
            one
            for one, area in areas.items()
            if one.name != "ttg.local_alloc"
            and any(area.overlaps(other) and apart(one, op) for op, other in timed(areas.items()) if op is not one)
        }

    def run(self) -> tuple[c.Program, Extents]:
        main = _Task(self, "kernel", self.module.int_attr("ttg.num-warps") or 4)
        codes = [main.code]
        self.tasks: dict[Block, tuple[int, _Task]] = {}
        for region in self.regions:
            warps = region.attr("partitionNumWarps")
            counts = warps.values if isinstance(warps, DenseArrayAttr) else ()
            for number, block in enumerate(ws.partition_blocks(region)):
                task = _Task(self, f"partition {number}", counts[number] if number < len(counts) else 0)
                self.tasks[block] = (len(codes), task)
                codes.append(task.code)
        main.block(self.function.regions[0].block, None)
        main.emit(c.Done(self.function))
        for block, (_, task) in self.tasks.items():
            task.block(block, None)
            task.emit(c.Done(block.terminator))
        for one in (main, *(task for _, task in self.tasks.values())):
            one.code.moduli = [self.moduli.get(value, scalars.NOTHING) for value in one.order]
            one.code.values = one.order
        return c.Program(codes, self.roots, self.flow.floor, self.module, self.placement), self.extents

    def task_of(self, op: Operation) -> int:
        """0: the code around and the default regions; else a partition."""
        region = op.parent.parent if op.parent is not None else None
        for around in op.ancestors():
            if around.name == "ttg.warp_specialize.partitions" and region is not None:
                owner = around.parent_op
                assert owner is not None
                return 1 + 100 * self.regions.index(owner) + around.regions.index(region)
            region = around.parent.parent if around.parent is not None else None
        return 0

    def condition(self, value: Value, op: Operation) -> Condition:
        """What an i1 asks where an operation uses it."""
        return self.extents.condition(value, op, self.task_of(op), self.places)

    def root(self, op: Operation) -> int:
        if op not in self.numbers:
            self.numbers[op] = len(self.roots)
            self.roots.append(op)
        return self.numbers[op]


def _is_strip(type: MemDescType) -> bool:
    """Is it a part of each row of a buffer, and no whole columns of what swizzling keeps together?

    TMA fills bytes in a row, which the part does not have (Triton does not lower such a copy).
    """
    if type.alloc_shape is None or not isinstance(type.encoding, Layout) or not isinstance(type.element, ScalarType):
        return False
    fields = dict(type.encoding.fields)
    at = -2 if fields.get("transposed") is True and len(type.shape) > 1 else -1
    width, row = fields.get("swizzlingByteWidth"), type.shape[at] * type.element.bits // 8
    if type.shape[at] == type.alloc_shape[at] or type.encoding.name != "ttg.nvmma_shared":
        return False
    return not isinstance(width, int) or width == 0 or row % width != 0


def _coordinate(op: Operation, value: Value) -> bool:
    """Coordinates of a tile come between the descriptor and the buffers."""
    if op.name not in _LOADS:
        return False
    first = next(i for i, v in enumerate(op.operands) if isinstance(v.type, MemDescType))
    return value in op.operands[:first] and value not in op.operands[first:]


class _Task:
    """The steps of one task."""

    def __init__(self, owner: _Translator, name: str, warps: int) -> None:
        self.owner = owner
        self.code = c.Code(name, warps)
        self.of: dict[Value, int] = {}
        self.order: list[Value] = []

    # ---- registers

    def emit(self, step: c.Step) -> c.Step:
        self.code.steps.append(step)
        return step

    @property
    def here(self) -> int:
        return len(self.code.steps)

    def register(self, value: Value) -> int:
        if value not in self.of:
            self.of[value] = len(self.order)
            self.order.append(value)
        return self.of[value]

    def maybe(self, value: Value) -> int | None:
        """The register of a value that is followed."""
        return self.register(value) if value in self.owner.values else None

    def moves(self, targets: Sequence[Value], sources: Sequence[Value], op: Operation) -> None:
        pairs = [(t, s) for t, s in zip(targets, sources, strict=True) if t in self.owner.values]
        if pairs:
            self.emit(c.Move(op, tuple((self.register(t), self.register(s)) for t, s in pairs)))

    def predicate(self, value: Value, op: Operation) -> c.Predicate | None:
        condition = self.owner.condition(value, op)
        if condition == Always(True):
            return None
        return c.Predicate(self.maybe(value), condition)

    # ---- control flow

    def block(self, block: Block, results: Sequence[Value] | None) -> None:
        """The steps of a block; what it yields goes to `results`."""
        for op in timed(block.ops):
            if op.name in _ENDS:
                if results is not None:
                    self.moves(results, op.operands, op)
                self._uses(op) if op.name == "tt.return" else None
            else:
                self.operation(op)

    def operation(self, op: Operation) -> None:
        if op in self.owner.fences:
            self.emit(c.Fence(op))
        match op.name:
            case "scf.for":
                self._for(op)
            case "scf.if":
                self._if(op)
            case ws.NAME:
                self._specialize(op)
            case "scf.while" | "scf.execute_region" | "scf.index_switch":
                self._opaque(op)
            case _:
                self._simple(op)

    def _opaque(self, op: Operation) -> None:
        if is_active(op):
            self.emit(c.Stuck(op, "unknown-control-flow", f"buffers or barriers are used inside {op.name}"))
        self._scratch(op)

    def _scratch(self, op: Operation) -> None:
        """The scratch of an operation and of those inside it, which are looked at no further."""
        for one in op.walk():
            if one in self.owner.scratch:
                self.emit(c.Scratch(one, self.owner.root(one), True))

    def _for(self, op: Operation) -> None:
        if not is_active(op):
            self._scratch(op)
            for result in op.results:  # what comes out of it is not known, unless it goes through unchanged
                if result in self.owner.values:
                    self._through(op, result)
            return
        if any(self.owner.terms.diverges(self.owner.terms.of(bound)) for bound in op.operands[:3]):
            message = "how often this runs differs from thread to thread"
            self.emit(c.Stuck(op, "unknown-control-flow", message))
        body = op.regions[0].block
        args = body.args[1:]
        space = self.owner.terms.space(op).number
        self.moves(args, op.operands[3:], op)
        position = self.maybe(body.args[0])
        counted = bounds(op)
        lower = self.maybe(op.operands[0]) if position is not None else None
        self.emit(c.Enter(op, space, position, lower))
        top = self.here
        runs = self.owner.extents.runs(op) if counted is None else None
        head = c.Head(op, space, runs, position, counted)
        self.emit(head)
        self.block(body, None)
        self.moves(args, body.terminator.operands, body.terminator)
        self.emit(c.Next(op, top, space, position, self.owner.terms.of(op.operands[2]).constant))
        head.target = self.here
        self.emit(c.Leave(op, space))
        self.moves(op.results, args, op)
        self.code.loops.append(c.Loop(op, space, top, self.here, runs.extent if runs is not None else None))

    def _through(self, op: Operation, result: Value) -> None:
        body = op.regions[0].block
        unchanged = body.terminator.operands[result.index] is body.args[result.index + 1]
        if unchanged:
            self.moves([result], [op.operands[3 + result.index]], op)
        else:
            self.emit(c.Forget(op, self.register(result)))

    def _if(self, op: Operation) -> None:
        if not is_active(op) and not any(result in self.owner.values for result in op.results):
            self._scratch(op)
            return
        condition: Condition = self.owner.condition(op.operands[0], op)
        branch = c.Branch(op, self.maybe(op.operands[0]), condition)
        self.emit(branch)
        self.block(op.regions[0].block, op.results)
        if len(op.regions) > 1 and op.regions[1].blocks:
            jump = c.Jump(op)
            self.emit(jump)
            branch.target = self.here
            self.block(op.regions[1].block, op.results)
            jump.target = self.here
        else:
            branch.target = self.here

    def _specialize(self, op: Operation) -> None:
        tasks, captured = [], []
        for block in ws.partition_blocks(op):
            number, task = self.owner.tasks[block]
            tasks.append(number)
            pairs = zip(block.args, op.operands, strict=False)
            captured.append(tuple((task.register(a), self.register(v)) for a, v in pairs if a in self.owner.values))
        if op in self.owner.scratch:  # the partitions have read what they are handed before anybody goes on
            self.emit(c.Scratch(op, self.owner.root(op), False))
        self.emit(c.Fork(op, tuple(tasks), tuple(captured)))
        self.block(ws.default_block(op), op.results)
        self.emit(c.Join(op, tuple(tasks)))

    # ---- operations

    def _simple(self, op: Operation) -> None:
        self._scratch(op)
        if op.name == DOT:
            return self._dot(op)
        if op.name == WAIT:
            pairs = list(zip(op.results, op.operands, strict=True))
            moved = tuple((self.register(r), self.register(o)) for r, o in pairs if o in self.owner.running)
            self.emit(c.WaitDots(op, op.int_attr("pendings") or 0, moved))
            through = [(r, o) for r, o in pairs if isinstance(r.type, MemDescType)]  # buffers that are kept until then
            self.moves([r for r, _ in through], [o for _, o in through], op)
            return None
        self._uses(op)
        if op.name in _BARRIERS:
            return self._barrier(op)
        if op.name in _LOADS or op.name in _STORES:
            return self._tile(op)
        return self._value(op)

    def _uses(self, op: Operation) -> None:
        for value in dict.fromkeys(op.operands):
            if value in self.owner.running:
                self.emit(c.Use(op, self.register(value)))

    def _dot(self, op: Operation) -> None:
        views = tuple(self.register(v) for v in op.operands if isinstance(v.type, MemDescType))
        for value in op.operands[:2]:
            if value in self.owner.running:
                self.emit(c.Use(op, self.register(value)))
        accumulator = op.operands[2]
        old = self.register(accumulator) if accumulator in self.owner.running else None
        asynchronous = str(op.attr("isAsync")) == "true"
        dst = self.register(op.result) if op.result in self.owner.running else None
        self.emit(c.Dot(op, views, old, dst, asynchronous))

    def _barrier(self, op: Operation) -> None:
        barrier = self.register(op.operands[0])
        flags = [v for v in op.operands[1:] if v.type == ScalarType("i1")]
        predicate = self.predicate(flags[0], op) if flags else None
        match op.name:
            case "ttng.init_barrier":
                self.emit(c.Init(op, barrier, op.int_attr("count") or 0))
            case "ttng.inval_barrier":
                self.emit(c.Invalidate(op, barrier))
            case "ttng.barrier_expect":
                self.emit(c.Expect(op, barrier, predicate, op.int_attr("size") or 0))
            case "ttng.arrive_barrier":
                self.emit(c.Arrive(op, barrier, predicate, op.int_attr("count") or 1))
            case "ttng.wait_barrier":
                self.emit(c.Wait(op, barrier, predicate, self.register(op.operands[1])))
            case "ttng.async_copy_mbarrier_arrive":
                alone = op.attr("noIncrement") is not None and str(op.attr("noIncrement")) != "false"
                self.emit(c.ArriveElements(op, barrier, 32 * self.code.warps if alone else 0))

    def _tile(self, op: Operation) -> None:
        views = [v for v in op.operands if isinstance(v.type, MemDescType)]
        if any(_is_strip(v.type) for v in views if isinstance(v.type, MemDescType)):
            message = "which bytes a copy of a part of rows is about is not followed"
            self.emit(c.Stuck(op, "unknown-operation", message))
        if op.name in _STORES:
            self.emit(c.StoreTile(op, self.register(views[0])))
            return
        barrier, buffer = views
        type = buffer.type
        assert isinstance(type, MemDescType)
        flags = [v for v in op.operands[op.operands.index(buffer) + 1 :] if v.type == ScalarType("i1")]
        predicate = self.predicate(flags[0], op) if flags else None
        box, room = self._box_bytes(op, type), size_bytes(type)
        self.emit(c.Copy(op, self.register(barrier), predicate, self.register(buffer), box, room))

    @staticmethod
    def _box_bytes(op: Operation, buffer: MemDescType) -> int:
        """What a copy moves is what its descriptor says; a gather moves a row at a time."""
        desc = op.operands[0].type
        if op.name == "ttng.async_tma_gather" or not isinstance(desc, TensorDescType):
            return size_bytes(buffer)
        block = desc.block
        bits = block.element.bits if isinstance(block.element, ScalarType) else 64
        return math.prod(block.shape) * bits // 8

    def _value(self, op: Operation) -> None:
        name = op.name
        if name == "ttg.local_alloc":
            self.emit(c.Allocate(op, self.register(op.result), self.owner.root(op), bool(op.operands)))
        elif name.startswith("ttg.memdesc_"):
            self._view(op)
        elif name == "ttg.local_dealloc":
            self.emit(c.Release(op, self.register(op.operands[0])))
        elif name in ("ttg.local_load", "ttg.local_store"):
            view = next(v for v in op.operands if isinstance(v.type, MemDescType))
            self.emit(c.Access(op, self.register(view), name != "ttg.local_load"))
        elif name == "ttg.async_copy_global_to_local":
            view = next(v for v in op.operands if isinstance(v.type, MemDescType))
            self.emit(c.CopyElements(op, self.register(view)))
        elif name == "ttg.async_commit_group":
            self.emit(c.CommitElements(op))
        elif name == "ttg.async_wait":
            self.emit(c.WaitElements(op, op.int_attr("num") or 0))
        elif name == "ttng.async_tma_store_wait":
            self.emit(c.WaitStores(op, op.int_attr("pendings") or 0))
        elif name in ("ttng.fence_async_shared", "ttng.fence"):
            self.emit(c.Fence(op))
        elif name == assembly.NAME:
            alone = 0 if self.owner.regions else 32 * self.code.warps
            for step in meetings.steps(op, alone):
                self.emit(step)
        elif name not in _WITHIN and name not in _ELSEWHERE:
            self._other(op)

    def _other(self, op: Operation) -> None:
        if len(op.results) == 1 and op.result in self.owner.values:
            dst = self.register(op.result)
            compute = scalars.function(op)
            if op.name == "arith.select":
                flag, then, other = op.operands
                condition = self.owner.condition(flag, op)
                step = c.Select(op, dst, self.maybe(flag), condition, self.register(then), self.register(other))
                self.emit(step)
                return
            if op.name in ("arith.extui", "arith.extsi") and op.operands[0].type == ScalarType("i1"):
                flag, value = op.operands[0], 1 if op.name == "arith.extui" else -1
                self.emit(c.Decide(op, dst, self.maybe(flag), self.owner.condition(flag, op), value))
                return
            if compute is not None:
                self.emit(c.Compute(op, dst, compute, tuple(map(self.register, op.operands))))
                return
            if op.name == "arith.constant" and (number := constant(op)) is not None:
                self.emit(c.Constant(op, dst, number))
                return
        views = [v for v in op.operands if isinstance(v.type, MemDescType)]
        row = info(op.name)
        if views or row is None or row.category == "barrier" or "barrier" in row.reads | row.writes:
            known = row is not None and row.pure and not views
            made = any(isinstance(v.type, TensorDescType) for v in (*op.operands, *op.results))
            if not known and not (made and not views) and (row is None or not row.nested):
                self.emit(c.Stuck(op, "unknown-operation", f"{op.name} is not known to the checker"))

    def _view(self, op: Operation) -> None:
        if op.result not in self.owner.values:
            return
        dst, source = self.register(op.result), self.register(op.operands[0])
        before, after = op.operands[0].type, op.result.type
        assert isinstance(before, MemDescType) and isinstance(after, MemDescType)
        if op.name == "ttg.memdesc_reinterpret" and size_bytes(after) > size_bytes(before):
            message = f"a buffer of {size_bytes(after)} bytes is made of one of {size_bytes(before)}"
            self.emit(c.Stuck(op, "range", message, "error"))
        if op.name == "ttg.memdesc_index":
            words = isinstance(before.element, ScalarType) and before.element.bits == 64
            size = size_bytes(after) if words else 0
            self.emit(c.Index(op, dst, source, self.register(op.operands[1]), before.shape[0], size))
        elif op.name == "ttg.memdesc_subslice":
            offsets = op.attr("offsets")
            starts = offsets.values if isinstance(offsets, DenseArrayAttr) else (0,) * len(after.shape)
            box = tuple(zip(starts, after.shape, strict=True))
            if any(start < 0 or start + size > whole for (start, size), whole in zip(box, before.shape, strict=True)):
                message = f"a part of {after.shape} from {tuple(starts)} on is taken of a buffer of {before.shape}"
                self.emit(c.Stuck(op, "range", message, "error"))
            self.emit(c.Part(op, dst, source, None if before.shape == after.shape else box, True))
        else:
            same = (before.shape, before.element, before.encoding) == (after.shape, after.element, after.encoding)
            self.emit(c.Part(op, dst, source, None, same and op.name != "ttg.memdesc_trans"))

"""A stretch of arithmetic as a few flows: what it keeps busy, and the latencies that it cannot hide.

Operations of a stretch overlap perfectly, except that what needs the result of a reduction or of a load comes after it:
a stretch is a sequence of levels, each as long as its busiest unit is busy, with the latency of the reduction between
them. A chain that holds a few numbers a thread (row statistics) and that nothing big waits for costs its instructions
and one latency at the end: ptxas schedules the others into the shadow of the rest.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from wspec.ir.core import Operation, Value, uses
from wspec.ir.ops import info
from wspec.ir.types import Layout, TensorType
from wspec.lab.simulate.actions import Flow, Piece
from wspec.lab.simulate.costs import ALU, FILL, FMA, ISSUE, LOAD, LSU, MUFU, SCHEDULERS, SMEM, STORE, WARP, Numbers
from wspec.lab.simulate.tiles import bits, byte_size, is_register_move, per_thread

_SMALL = 4  # numbers a thread; row statistics of a tile
_VECTOR = 16  # bytes a thread moves with one instruction

_FREE = frozenset(
    ("tt.splat", "tt.unsplat", "tt.broadcast", "tt.expand_dims", "tt.reshape", "tt.trans", "tt.join", "tt.split",
     "arith.constant", "arith.bitcast", "tt.bitcast", "ub.poison", "tt.make_range", "ttg.local_dealloc",
     "ttng.inval_barrier", "ttg.async_commit_group", "llvm.intr.assume", "tt.print", "tt.assert",
     *(f"ttg.memdesc_{name}" for name in ("index", "trans", "reshape", "reinterpret", "subslice", "subview")))
)  # fmt: skip
_FENCES = frozenset(("ttng.fence_async_shared", "ttng.fence"))  # after all that stands before them
_STORES = frozenset(("ttg.local_store", "ttg.local_alloc"))
_MUFU_ASM = re.compile(r"\b(ex2|lg2|rcp|rsqrt|sqrt|sin|cos|tanh)\.")
_FMA_ASM = re.compile(r"\b(fma|add|sub|mul)\.[\w.]*f(32|16)")


@dataclass(slots=True)
class _Level:
    busy: dict[int, float] = field(default_factory=dict)
    depth: float = 0.0  # of the longest chain of dependent instructions, cycles
    fill: float = 0.0  # until the first result of its longest chain of operations is there
    delay: float = 0.0  # before the next level
    rows: float = 1.0  # that a thread reduces one after the other at its end


class Costing:
    """Prices stretches of one task, whose tensors `warps` warps share."""

    def __init__(self, numbers: Numbers, warps: int, fused: frozenset[Operation] = frozenset()) -> None:
        self.numbers, self.warps, self.fused = numbers, warps, fused
        self.groups = -(-warps // SCHEDULERS)
        self.share = min(warps, SCHEDULERS) / SCHEDULERS  # of the schedulers that one warp group uses

    def pieces(self, ops: Sequence[Operation]) -> tuple[Piece, ...]:
        """What one warp group does for these operations."""
        at: dict[Value, int] = {}
        depth: dict[Value, float] = {}
        fill: dict[Value, float] = {}
        levels = [_Level()]
        top = 0
        placed = []
        stored = any(op.name in _STORES and op.operands for op in ops)
        for op in ops:
            level = top if op.name in _FENCES else max((at.get(value, 0) for value in op.operands), default=0)
            busy, delay = self._price(op)
            if op.name in _FENCES and stored:
                delay += self.numbers.stored_latency
            big = op.results and per_thread(op.operands[0].type if delay else op.results[0].type, self.warps) > _SMALL
            top = max(top, level) if big else top
            placed.append((op, level, busy, delay, big))
            at.update((result, level + bool(delay)) for result in op.results)
        if not any(big for *_, big in placed):
            top = max((level for _, level, *_ in placed), default=0)
        levels = [_Level() for _ in range(top + 1)]
        for op, level, busy, delay, _ in placed:
            here = levels[min(level, top)]
            for unit, cycles in busy.items():
                here.busy[unit] = here.busy.get(unit, 0.0) + cycles
            before = max((depth.get(v, 0.0) for v in op.operands if at.get(v, 0) == level), default=0.0)
            after = before + self.numbers.arithmetic_latency * self._chain(op, busy)
            begun = max((fill.get(v, 0.0) for v in op.operands if at.get(v, 0) == level), default=0.0)
            begun += max((self._latency(unit) for unit in busy if unit in (FMA, ALU, MUFU)), default=0.0)
            if level <= top:
                here.depth = max(here.depth, after)
                here.fill = max(here.fill, begun)
            # At the end of a stretch nothing is left that would hide a reduction's shuffles.
            here.delay = max(here.delay, delay)
            if op.name == "tt.reduce" and _in_core_layout(op.operands[0].type):
                here.rows = max(here.rows, per_thread(op.results[0].type, self.warps))
            depth.update((result, 0.0 if delay else after) for result in op.results)
            fill.update((result, 0.0 if delay else begun) for result in op.results)
        if not any(isinstance(value.type, TensorType) for op in ops for value in (*op.operands, *op.results)):
            return _latency_alone(levels)
        _stagger(levels)
        return tuple(piece for level in levels for piece in self._level(level))

    def _latency(self, unit: int) -> float:
        return self.numbers.mufu_latency if unit == MUFU else self.numbers.arithmetic_latency

    def _chain(self, op: Operation, busy: dict[int, float]) -> float:
        """Dependent instructions of one operation: a thread reduces what it holds of a row one after the other."""
        if op.name in ("tt.reduce", "tt.scan"):
            left = per_thread(op.results[0].type, self.warps)
            return max(1.0, per_thread(op.operands[0].type, self.warps) / left)
        return 1.0 if busy else 0.0

    def _level(self, level: _Level) -> list[Piece]:
        """`busy` is that of one scheduler; the SM's units are kept busy for as long as the schedulers in use say."""
        if not level.busy:
            return [level.delay] if level.delay else []
        whole = {SMEM, FILL, LOAD, STORE}
        if level.busy.get(
            MUFU
        ):  # where exponentials and other instructions mix, the exponential unit loses some cycles
            lost = self.numbers.interference * (level.busy.get(FMA, 0.0) + level.busy.get(ALU, 0.0))
            level.busy[MUFU] += lost
        units = max((cycles for unit, cycles in level.busy.items() if unit not in whole), default=0.0)
        alone = max(level.depth, units + level.fill)
        busy = {u: cycles if u in whole else cycles * self.share for u, cycles in level.busy.items()}
        return [Flow.of(busy, alone), *([level.delay] if level.delay else [])]

    # ---- one operation: cycles of the units of one scheduler for one warp, and what its users wait for

    def _price(self, op: Operation) -> tuple[dict[int, float], float]:
        if op.name in _FREE or op in self.fused:
            return {}, 0.0
        if op.name in ("tt.reduce", "tt.scan"):
            return self._reduction(op)
        if op.name == "ttg.convert_layout":
            return self._layout(op)
        if op.name in ("ttg.local_load", *_STORES):
            return self._shared(op)
        if op.name in ("tt.load", "tt.store", "tt.descriptor_load", "tt.descriptor_store", "tt.atomic_rmw"):
            return self._global(op)
        if op.name in _FENCES:
            more = max(0, self.warps - SCHEDULERS) * self.numbers.fence_more
            return {ISSUE: 1.0}, self.numbers.fence_latency + more
        if op.name == "tt.elementwise_inline_asm":
            return self._assembly(op), 0.0
        return self._elementwise(op), 0.0

    def instructions(self, count: float, unit: int | None = None) -> dict[int, float]:
        """So many instructions of a warp, on a unit."""
        rates = {FMA: self.numbers.fma, ALU: self.numbers.alu, MUFU: self.numbers.mufu, LSU: self.numbers.lsu}
        busy = {ISSUE: count}
        if unit is not None:
            busy[unit] = count * SCHEDULERS * WARP / rates[unit]
        return busy

    def _elementwise(self, op: Operation) -> dict[int, float]:
        if not op.results or not isinstance(op.results[0].type, TensorType):
            return self.instructions(1.0, ALU)
        held = per_thread(op.results[0].type, self.warps)
        row = info(op.name)
        unit = row.unit if row is not None else ""
        if row is not None and unit == "mufu":
            return _sum(self.instructions(held, MUFU), self.instructions(held * row.around, FMA))
        if op.name in ("arith.sitofp", "arith.uitofp") and _is_byte(op.operands[0].type):
            # Two bytes to bf16, counted in SASS: a PRMT, two LOP3, and an HADD2 that takes a number from another.
            return _sum(self.instructions(1.5 * held, ALU), self.instructions(held / 2, FMA))
        if unit == "convert":
            busy = self.instructions(held / 2)  # one instruction packs two
            busy[ALU] = held / 2 * SCHEDULERS * WARP / self.numbers.convert
            return busy
        return self.instructions(held, FMA if unit == "fma" else ALU)

    def _assembly(self, op: Operation) -> dict[int, float]:
        lines = [line for line in (op.str_attr("asm_string") or "").split(";") if re.search(r"\b[a-z]\w*\.", line)]
        held = per_thread(op.results[0].type, self.warps) if op.results else 1.0
        count = held / (op.int_attr("packed_element") or 1)
        busy: dict[int, float] = {}
        for line in lines:
            unit = MUFU if _MUFU_ASM.search(line) else FMA if _FMA_ASM.search(line) else ALU
            busy = _sum(busy, self.instructions(count, unit))
        return busy

    def _reduction(self, op: Operation) -> tuple[dict[int, float], float]:
        """Elements of a thread first, then across lanes, then across warps through shared memory."""
        held, left = per_thread(op.operands[0].type, self.warps), per_thread(op.results[0].type, self.warps)
        combine = [inner for inner in op.regions[0].block.ops if inner.operands and inner.results] or [op]
        type, axis = op.operands[0].type, op.int_attr("axis") or 0
        layout = type.encoding if isinstance(type, TensorType) else None
        is_core = _in_core_layout(type)
        steps = (2 if axis == 1 else 3) if is_core else 5
        per_warp = layout.ints("warpsPerCTA") if isinstance(layout, Layout) else ()
        across = per_warp[axis] > 1 if axis < len(per_warp) else self.warps > 1
        busy = self.instructions(left * steps * len(op.operands), LSU)
        for inner in combine:
            row = info(inner.name)
            unit = FMA if row is not None and row.unit == "fma" else ALU
            busy = _sum(busy, self.instructions(held + left * steps, unit))
        delay = steps * (self.numbers.shuffle_latency + self.numbers.arithmetic_latency)
        if across:
            delay += 2 * self.numbers.smem_latency + self.numbers.named_latency
        return busy, delay

    def _layout(self, op: Operation) -> tuple[dict[int, float], float]:
        source, result = op.operands[0].type, op.results[0].type
        if is_register_move(source, result):
            return {}, 0.0
        moved = _sum(self._moved(source, stored=True), self._moved(result))
        return moved, 2 * self.numbers.smem_latency + self.numbers.named_latency

    def _shared(self, op: Operation) -> tuple[dict[int, float], float]:
        if not op.operands:
            return {}, 0.0
        is_load = op.name == "ttg.local_load"
        if is_load:
            return self._moved(op.results[0].type), self.numbers.smem_latency
        return self._moved(op.operands[0].type, stored=True), 0.0

    def _moved(self, type: object, stored: bool = False) -> dict[int, float]:
        """A tensor from shared memory to registers, once, or `stored` the other way."""
        assert isinstance(type, TensorType)
        size = byte_size(type) / self.groups
        instructions = max(1.0, size / (WARP * min(self.warps, SCHEDULERS)) / _VECTOR)
        cycles = size / self.numbers.smem
        return {**self.instructions(instructions, LSU), SMEM: cycles, **({FILL: cycles} if stored else {})}

    def _global(self, op: Operation) -> tuple[dict[int, float], float]:
        is_load = bool(op.results)
        type = op.results[0].type if is_load else op.operands[1].type
        size = byte_size(type) / self.groups if isinstance(type, TensorType) else WARP
        instructions = max(1.0, size / (WARP * min(self.warps, SCHEDULERS)) / _VECTOR)
        unit, rate = (LOAD, self.numbers.load) if is_load else (STORE, self.numbers.store)
        busy = {**self.instructions(instructions, LSU), unit: size / rate}
        through_tma = op.name.startswith("tt.descriptor")
        latency = self.numbers.tma_latency if through_tma else self.numbers.load_latency
        return busy, latency if is_load else 0.0


def fused(function: Operation) -> frozenset[Operation]:
    """Multiplications that become part of the addition that is their only user."""
    return frozenset(
        value.op
        for value, users in uses(function).items()
        if value.op is not None and value.op.name == "arith.mulf" and len(users) == 1
        and users[0][0].name in ("arith.addf", "arith.subf") and users[0][0].parent is value.op.parent
    )  # fmt: skip


def _is_byte(type: object) -> bool:
    return isinstance(type, TensorType) and bits(type) == 8


def _in_core_layout(type: object) -> bool:
    """Is a tensor laid out as the tensor core leaves it: a thread has a few rows?"""
    layout = type.encoding if isinstance(type, TensorType) else None
    return isinstance(layout, Layout) and layout.name == "ttg.nvidia_mma"


def _stagger(levels: Sequence[_Level]) -> None:
    """A thread's first row is through its reduction while the others are still reduced: these run beside what follows.

    Seen in the SASS of attention: the second row's maxima stand between the first row's exponentials.
    """
    for level, following in itertools.pairwise(levels):
        if level.rows <= 1 or not level.delay or not following.busy:
            continue
        for unit, cycles in level.busy.items():
            later = cycles * (1 - 1 / level.rows)
            level.busy[unit] = cycles - later
            following.busy[unit] = following.busy.get(unit, 0.0) + later
        level.depth /= level.rows


def _latency_alone(levels: Sequence[_Level]) -> tuple[Piece, ...]:
    """Of integers that all threads agree on: they take the uniform pipe and next to no issue slots."""
    cycles = sum(max(level.depth, level.busy.get(ISSUE, 0.0)) + level.delay for level in levels)
    return (cycles,) if cycles else ()


def _sum(left: dict[int, float], right: dict[int, float]) -> dict[int, float]:
    return {unit: left.get(unit, 0.0) + right.get(unit, 0.0) for unit in left | right}

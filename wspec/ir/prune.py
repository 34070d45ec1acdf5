"""Remove what nothing needs: dead operations, loop-carried values and branch results.

Split copies a whole kernel into every task and lets this take out what the task does not do, so it must see through
loops: a carried value is alive only if its result or its use in the body is.
"""

from __future__ import annotations

from wspec.ir.core import Block, Operation, Value
from wspec.ir.ops import is_pure

ABSTRACT_PURE = frozenset({"wspec.buffer", "wspec.ring"})


def _removable(op: Operation) -> bool:
    """May the operation go when its results are unused? Structured control flow goes when all inside it may."""
    if op.name in ABSTRACT_PURE or op.name in _REGION_OPS:
        return True
    return is_pure(op) or op.name in _DEAD_LOADS


_REGION_OPS = frozenset({"scf.for", "scf.if"})
_DEAD_LOADS = frozenset({"tt.load", "tt.descriptor_load", "ttg.local_load", "ttg.local_alloc"})
_TERMINATORS = frozenset({"scf.yield", "ttg.warp_yield", "ttg.warp_return", "tt.return"})


class _Liveness:
    def __init__(self, holder: Operation | None) -> None:
        self.holder = holder  # of the block that is pruned: it stays, and what is in it need not
        self.ops: set[Operation] = set()
        self.values: set[Value] = set()
        self.work: list[Value] = []

    def keep_op(self, op: Operation) -> None:
        if op in self.ops:
            return
        self.ops.add(op)
        parent = op.parent_op
        if parent is not None and parent is not self.holder:
            self.keep_op(parent)
        for value in _always_needed(op):
            self.keep(value)

    def keep(self, value: Value) -> None:
        if value not in self.values:
            self.values.add(value)
            self.work.append(value)

    def drain(self) -> None:
        while self.work:
            value = self.work.pop()
            owner = value.owner
            if isinstance(owner, Operation):
                self.keep_op(owner)
                self._through_result(owner, value.index)
            elif owner.parent_op is not None:
                self._through_argument(owner.parent_op, value.index)

    def _through_result(self, op: Operation, index: int) -> None:
        if op.name == "scf.for":
            self._carried(op, index)
        elif op.name == "scf.if":
            for region in op.regions:
                self.keep(region.block.terminator.operands[index])

    def _through_argument(self, op: Operation, index: int) -> None:
        if op.name == "scf.for" and index > 0:
            self._carried(op, index - 1)

    def _carried(self, op: Operation, index: int) -> None:
        body = op.regions[0].block
        for value in (op.operands[3 + index], body.args[1 + index], body.terminator.operands[index], op.results[index]):
            self.keep(value)


def _always_needed(op: Operation) -> list[Value]:
    if op.name == "scf.for":
        return op.operands[:3]
    if op.name == "scf.if":
        return op.operands[:1]
    if op.name == "scf.yield" and op.parent_op is not None and op.parent_op.name in _REGION_OPS:
        return []
    return op.operands


def _has_opaque_regions(op: Operation) -> bool:
    return bool(op.regions) and op.name not in _REGION_OPS


def _mark(block: Block, live: _Liveness) -> None:
    for op in block.ops:
        if op.name in _TERMINATORS:
            live.keep_op(op) if op.parent_op is None or op.parent_op.name not in _REGION_OPS else None
        elif not _removable(op):
            live.keep_op(op)
        if op.name in _REGION_OPS:
            for inner in op.blocks:
                _mark(inner, live)


def _sweep(block: Block, live: _Liveness) -> None:
    kept: list[Operation] = []
    for op in block.ops:
        if op not in live.ops and op.name not in _TERMINATORS:
            continue
        if op.name in _REGION_OPS:
            for inner in op.blocks:
                _sweep(inner, live)
            _drop_dead_values(op, live)
        kept.append(op)
    block.ops[:] = kept


def _keep_only(items: list[Value], keep: list[bool], first: int = 0) -> list[Value]:
    return items[:first] + [value for value, alive in zip(items[first:], keep, strict=True) if alive]


def _renumber(values: list[Value]) -> None:
    for index, value in enumerate(values):
        value.index = index


def _drop_dead_values(op: Operation, live: _Liveness) -> None:
    keep = [value in live.values for value in op.results]
    if op.name == "scf.for":
        body = op.regions[0].block
        op.operands[:] = _keep_only(op.operands, keep, 3)
        body.args[:] = _keep_only(body.args, keep, 1)
        _renumber(body.args)
    for region in op.regions:
        if region.blocks:
            terminator = region.block.terminator
            terminator.operands[:] = _keep_only(terminator.operands, keep)
    op.results[:] = _keep_only(op.results, keep)
    _renumber(op.results)


def prune(block: Block) -> None:
    """Remove from `block`, in place, all that its side effects and terminator do not need."""
    live = _Liveness(block.parent_op)
    _mark(block, live)
    for value in block.terminator.operands:
        live.keep(value)
    live.drain()
    # A kept operation with regions we do not look into (tt.reduce, scf.while) keeps what they use.
    grew = True
    while grew:
        before = len(live.ops)
        for op in list(live.ops):
            if _has_opaque_regions(op):
                for inner in op.walk():
                    live.ops.add(inner)
                    for value in inner.operands:
                        live.keep(value)
        live.drain()
        grew = len(live.ops) != before
    _sweep(block, live)

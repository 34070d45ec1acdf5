"""A kernel that returns early has its rest under an if: what follows sees blocks inside blocks, and no jumps.

    cond_br %idle, ^a, ^b                    if %idle { first } else { rest }
    ^a: first; return                   =>   return
    ^b: rest; return

Where ways that have parted come together again, the if yields what they bring there. Where some of them have returned,
it also yields whether this one has not, and what follows stands under an if of that. Runs before a plan is made. Jumps
back, and ways that cross, are left as they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from wspec.ir.builder import Builder
from wspec.ir.core import Block, Operation, Region, Value, functions, replace_uses
from wspec.ir.types import I1


def nest_returns(module: Operation) -> None:
    """Do so in the module's kernel, in place, where all its jumps go forward and its ways do not cross."""
    kernels = functions(module)
    if len(kernels) != 1 or len(kernels[0].regions[0].blocks) == 1:
        return
    (function,) = kernels
    made = function.clone({})
    try:
        _Nesting(made).run()
    except _Crossing:
        return
    function.regions[0] = made.regions[0]
    function.regions[0].parent = function


class _Crossing(Exception):
    """The jumps are no ifs."""


@dataclass(frozen=True, slots=True)
class _End:
    """How what has been written ends: it has come to the block that it was to come to, has returned, or either."""

    arrives: bool
    values: tuple[Value, ...] = ()  # that it brings there
    condition: Value | None = None  # whether it has arrived, where it may also have returned


_RETURNED = _End(False)


class _Nesting:
    """Of one function, in place."""

    def __init__(self, function: Operation) -> None:
        self.function = function
        self.entry, *self.others = function.regions[0].blocks
        self.reach: dict[Block, frozenset[Block]] = {}
        self._visit(self.entry, [])

    def _visit(self, block: Block, path: list[Block]) -> None:
        """What can be reached from a block, itself included. Raises _Crossing where a jump goes back."""
        if block in path:
            raise _Crossing
        if block in self.reach:
            return
        if block.terminator.name not in ("cf.cond_br", "cf.br", "tt.return"):
            raise _Crossing
        found = {block}
        for target in block.terminator.successors:
            self._visit(target, [*path, block])
            found |= self.reach[target]
        self.reach[block] = frozenset(found)

    def run(self) -> None:
        """Leave one block."""
        last = self.entry.terminator.location
        body = Block()
        self._write(self.entry, body, None)
        body.append(Operation.create("tt.return", location=last))
        region = self.function.regions[0]
        body.args, body.parent = self.entry.args, region
        for arg in body.args:
            arg.owner = body
        region.blocks[:] = [body]

    def _write(self, block: Block, out: Block, stop: Block | None) -> _End:
        """Append a block and all that follows, up to `stop`."""
        end = block.terminator
        for op in block.ops[:-1]:
            out.append(op)
        if end.name == "tt.return":
            return _RETURNED
        if end.name == "cf.br":
            return self._go(end.successors[0], end.operands, out, stop)
        count = len(end.successors[0].args)
        brought = (end.operands[1 : 1 + count], end.operands[1 + count :])
        ways = list(zip(end.successors, brought, strict=True))
        meeting = self._meeting(*end.successors)
        target = stop if meeting is None else meeting
        regions, ends = [], []
        for way, values in ways:
            region = Region()
            ends.append(self._go(way, values, region.add_block(), target))
            regions.append(region)
        met = self._joined(out, end, regions, ends, target)
        if meeting is None or meeting is stop or not met.arrives:
            return met
        return self._after(meeting, met, out, stop, end)

    def _go(self, block: Block, values: Sequence[Value], out: Block, stop: Block | None) -> _End:
        """Append what a jump to `block` with these values leads to, up to `stop`."""
        if block is stop:
            return _End(True, tuple(values))
        if block.terminator.name == "tt.return" and len(block.ops) == 1:
            return _RETURNED
        if block not in self.others:
            raise _Crossing  # two ways lead there, and neither is done with the other
        self.others.remove(block)
        replaced = dict(zip(block.args, values, strict=True))
        for one in (self.entry, *self.function.regions[0].blocks):
            replace_uses(one, replaced)
        return self._write(block, out, stop)

    def _meeting(self, one: Block, other: Block) -> Block | None:
        """The first block that ways from both lead to, but for one that only returns."""
        both = {
            block
            for block in self.reach[one] & self.reach[other]
            if block.terminator.name != "tt.return" or len(block.ops) > 1
        }
        return next((block for block in both if both <= self.reach[block]), None) if both else None

    def _joined(
        self, out: Block, end: Operation, regions: list[Region], ends: list[_End], target: Block | None
    ) -> _End:
        """Append the if of a condition whose sides are written."""
        arriving = [one for one in ends if one.arrives]
        build = Builder(out, location=end.location)
        sure = all(one.arrives and one.condition is None for one in ends)
        types = [arg.type for arg in target.args] if arriving and target is not None else []
        for region, one in zip(regions, ends, strict=True):
            inside = Builder(region.block, location=end.location)
            try:
                values = list(one.values) if one.arrives else [inside.zero(type) for type in types]
            except TypeError:
                raise _Crossing from None
            if arriving and not sure:
                known = one.condition if one.arrives and one.condition is not None else None
                values.insert(0, known if known is not None else inside.constant(int(one.arrives), I1))
            inside.create("scf.yield", values)
        if arriving and not sure:
            types.insert(0, I1)
        made = build.create("scf.if", end.operands[:1], types, regions=regions)
        if not arriving:
            return _RETURNED
        return _End(True, tuple(made.results)) if sure else _End(True, tuple(made.results[1:]), made.results[0])

    def _after(self, block: Block, met: _End, out: Block, stop: Block | None, end: Operation) -> _End:
        """Append what follows where ways have met."""
        if met.condition is None:
            return self._go(block, met.values, out, stop)
        region, other = Region(), Region()
        after = self._go(block, met.values, region.add_block(), stop)
        other.add_block()
        branch = Operation.create("cf.cond_br", [met.condition], location=end.location)
        return self._joined(out, branch, [region, other], [after, _RETURNED], stop)

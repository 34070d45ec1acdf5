"""Do two lists of operations compute the same function of what they take in?"""

from __future__ import annotations

from collections.abc import Sequence

from wspec.ir.core import Block, Operation, Value


class Match:
    """A growing one-to-one map from the values of one list of operations to those of another.

    `free` values are the same on both sides when they are the same value; `inputs` are matched as they are met.
    """

    def __init__(self, inputs: set[Value], others: set[Value]) -> None:
        self.inputs, self.others = inputs, others
        self.there: dict[Value, Value] = {}
        self.back: dict[Value, Value] = {}

    def pair(self, one: Value, other: Value) -> bool:
        """Let the two stand for each other; False when either stands for something else."""
        if one.type != other.type or self.there.get(one, other) is not other or self.back.get(other, one) is not one:
            return False
        self.there[one], self.back[other] = other, one
        return True

    def operand(self, one: Value, other: Value) -> bool:
        if one in self.there or other in self.back:
            return self.there.get(one) is other
        if one in self.inputs or other in self.others:
            return one in self.inputs and other in self.others and self.pair(one, other)
        return one is other

    def operations(self, ones: Sequence[Operation], others: Sequence[Operation], ignore: frozenset[str]) -> bool:
        """The same operations in the same order; attributes named in `ignore` may differ."""
        return len(ones) == len(others) and all(self._same(a, b, ignore) for a, b in zip(ones, others, strict=True))

    def _same(self, one: Operation, other: Operation, ignore: frozenset[str]) -> bool:
        def kept(op: Operation) -> dict[str, object]:
            return {name: value for name, value in op.attributes.items() if name not in ignore}

        alike = one.name == other.name and one.properties == other.properties and kept(one) == kept(other)
        counts = len(one.operands), len(one.results), len(one.regions)
        if not alike or counts != (len(other.operands), len(other.results), len(other.regions)):
            return False
        if not all(self.operand(a, b) for a, b in zip(one.operands, other.operands, strict=True)):
            return False
        if not all(self.pair(a, b) for a, b in zip(one.results, other.results, strict=True)):
            return False
        blocks = [(a.blocks, b.blocks) for a, b in zip(one.regions, other.regions, strict=True)]
        return all(
            len(a) == len(b) and all(self._same_block(x, y, ignore) for x, y in zip(a, b, strict=True))
            for a, b in blocks
        )

    def _same_block(self, one: Block, other: Block, ignore: frozenset[str]) -> bool:
        if len(one.args) != len(other.args):
            return False
        paired = all(self.pair(a, b) for a, b in zip(one.args, other.args, strict=True))
        return paired and self.operations(one.ops, other.ops, ignore)

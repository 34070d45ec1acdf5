"""Do two modules have the same effects on the same values, in the same order?

Every value gets a number: equal numbers are equal values. Pure operations are numbered by what they compute; values
that loops carry are taken to be equal until what they start with or what becomes of them differs (Alpern, Wegman and
Zadeck, "Detecting equality of variables in programs", 1988). What is dead is taken out first. The answer "no" may be
wrong, "yes" is not.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from wspec.ir import warp_specialize as ws
from wspec.ir.core import Block, Operation, Value
from wspec.ir.ops import is_pure
from wspec.ir.prune import prune
from wspec.ir.types import IntegerAttr, Type
from wspec.ir.verify import PARTITIONS

Path = tuple[Hashable, ...]
EQUAL = 0  # predicate of arith.cmpi


class Meaning:
    """What a module does, to be compared with what variants of it do."""

    def __init__(self, module: Operation) -> None:
        self._table: dict[Hashable, int] = {}
        self._effects = self._of(module)

    def is_that_of(self, other: Operation) -> bool:
        """Are the modules equal but for dead code, and for what equal values are called?"""
        return self._of(other) == self._effects

    def _of(self, module: Operation) -> int:
        copy = module.clone({})
        task = ws.find(copy)
        for block in ws.task_blocks(task) if task is not None else []:
            prune(block)
        return Numbering(copy, self._table).effects


class Numbering:
    """Numbers of all values of a module: `numbering[value]`."""

    def __init__(self, module: Operation, table: dict[Hashable, int] | None = None) -> None:
        self._table = {} if table is None else table
        self._numbers: dict[Value, int] = {}
        self._constants: dict[int, int] = {}  # number -> the integer that it is known to be
        self.effects = self._region(module.regions[0].blocks, ("module",))

    def __getitem__(self, value: Value) -> int:
        return self._numbers[value]

    def _number(self, *key: Hashable) -> int:
        """Equal keys have equal numbers."""
        return self._table.setdefault(key, len(self._table))

    def _operands(self, op: Operation) -> tuple[int, ...]:
        return tuple(self._numbers[value] for value in op.operands)

    def _regions(self, op: Operation, path: Path) -> tuple[int, ...]:
        return tuple(self._region(region.blocks, (*path, number)) for number, region in enumerate(op.regions))

    def _region(self, blocks: Sequence[Block], path: Path) -> int:
        return self._number("region", *(self._block(block, (*path, index)) for index, block in enumerate(blocks)))

    def _block(self, block: Block, path: Path) -> int:
        """The effects of a block, whose arguments are named by its place unless they have been named before."""
        for arg in block.args:
            if arg not in self._numbers:
                self._numbers[arg] = self._number("argument", path, arg.index)
        found: list[int] = []
        for op in block.ops:
            done = self._op(op, (*path, len(found)))
            if done is not None:
                found.append(done)
        return self._number("block", *found)

    def _op(self, op: Operation, path: Path) -> int | None:
        """Number the results. Returns what the operation does, None when that is nothing."""
        if op.name == "scf.for":
            return self._loop(op, path)
        if op.name == "scf.if":
            return self._branch(op, path)
        if op.name == PARTITIONS:
            return self._partitions(op, path)
        inside = self._regions(op, path)
        types = tuple(result.type for result in op.results)
        known = self._known(op)
        if known is not None:
            self._numbers[op.result] = known
            return None
        what = self._number(op.name, _attributes(op), types, self._operands(op), inside)
        pure = is_pure(op)
        for result in op.results:
            self._numbers[result] = self._number("result", what if pure else path, result.index)
        return None if pure else what

    def _known(self, op: Operation) -> int | None:
        """The number of what integer arithmetic on constants gives; None where it is not that."""
        value = op.attr("value") if op.name == "arith.constant" else None
        if isinstance(value, IntegerAttr):
            return self._constant(value.value, value.type)
        known = [self._constants.get(number) for number in self._operands(op)]
        if op.name == "arith.select" and known[0] is not None:
            return self._numbers[op.operands[1 if known[0] else 2]]
        one, other = (*known, None, None)[:2]
        folded = None if one is None or other is None else _folded(op, one, other)
        return None if folded is None else self._constant(folded, op.result.type)

    def _constant(self, value: int, type: Type) -> int:
        number = self._number("constant", value, type)
        self._constants[number] = value
        return number

    def _partitions(self, op: Operation, path: Path) -> int:
        """Arguments of partitions are what is passed in."""
        outer = op.parent_op
        assert outer is not None
        for region in op.regions:
            for arg, operand in zip(region.block.args, outer.operands, strict=True):
                self._numbers[arg] = self._number("passed", self._numbers[operand], arg.type)
        return self._number("partitions", *self._regions(op, path))

    def _branch(self, op: Operation, path: Path) -> int:
        inside = self._regions(op, path)
        condition = self._numbers[op.operands[0]]
        ends = [region.block.terminator.operands for region in op.regions if region.blocks]
        for result in op.results:
            ways = tuple(self._numbers[end[result.index]] for end in ends)
            self._numbers[result] = ways[0] if len(set(ways)) == 1 else self._number("either", condition, ways)
        return self._number("if", condition, inside)

    def _loop(self, op: Operation, path: Path) -> int:
        """Splits classes of carried values until nothing splits any more."""
        position, *carried = op.regions[0].block.args
        self._numbers[position] = self._number("position", path)
        classes = _ranks([arg.type for arg in carried])
        while True:
            for arg, rank in zip(carried, classes, strict=True):
                self._numbers[arg] = self._number("carried", path, rank)
            body = self._region(op.regions[0].blocks, (*path, "body"))
            ends = op.regions[0].block.terminator.operands
            pairs = zip(classes, op.operands[3:], ends, strict=True)
            steps = [(rank, self._numbers[start], self._numbers[end]) for rank, start, end in pairs]
            finer = _ranks(steps)
            if finer == classes:
                break
            classes = finer
        for result, rank in zip(op.results, classes, strict=True):
            self._numbers[result] = self._number("after", path, rank)
        return self._number("for", self._operands(op)[:3], tuple(dict.fromkeys(steps)), body)


def _folded(op: Operation, one: int, other: int) -> int | None:
    """What moves a position on, of small numbers."""
    if op.name == "arith.addi":
        return one + other
    if op.name == "arith.xori":
        return one ^ other
    return int(one == other) if op.name == "arith.cmpi" and op.int_attr("predicate") == EQUAL else None


def _ranks(keys: Sequence[Hashable]) -> list[int]:
    """Equal keys get equal numbers, in the order of their first occurrences."""
    seen: dict[Hashable, int] = {}
    return [seen.setdefault(key, len(seen)) for key in keys]


def _attributes(op: Operation) -> tuple[tuple[str, str], ...]:
    return tuple(sorted((name, str(value)) for name, value in {**op.properties, **op.attributes}.items()))

"""The IR: operations, blocks, regions, values. One file, read it in one go.

There are no use lists: passes build new code by cloning with a value map (`Operation.clone`), and ask `uses` for a
snapshot where they need one. A module is an `Operation` named `builtin.module`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from wspec.ir.loc import UNKNOWN, Location
from wspec.ir.types import Attribute, DenseAttr, IntegerAttr, StringAttr, Type


@dataclass(eq=False, slots=True, repr=False)
class Value:
    """The result `index` of an operation, or argument `index` of a block."""

    type: Type
    owner: Operation | Block
    index: int
    location: Location = UNKNOWN  # only block arguments have one of their own

    def __repr__(self) -> str:
        """Short: following the links to owners and parents would print the whole module, many times over."""
        holder = self.owner.name if isinstance(self.owner, Operation) else "block"
        return f"<value {self.index} of {holder}: {self.type}>"

    @property
    def op(self) -> Operation | None:
        """The defining operation; None for a block argument."""
        return self.owner if isinstance(self.owner, Operation) else None

    @property
    def number(self) -> int | None:
        """Of an integer constant."""
        return self.op.int_attr("value") if self.op is not None and self.op.name == "arith.constant" else None

    @property
    def splat(self) -> int | None:
        """Of an integer constant, or of a tensor that is the same one in all of its elements."""
        known = self.op.attr("value") if self.op is not None and self.op.name == "arith.constant" else None
        if isinstance(known, DenseAttr):
            return int(known.text) if re.fullmatch(r"-?\d+", known.text) else None
        return known.value if isinstance(known, IntegerAttr) else None


@dataclass(eq=False, slots=True, repr=False)
class Block:
    """A list of operations; the last one is the terminator."""

    args: list[Value] = field(default_factory=list)
    ops: list[Operation] = field(default_factory=list)
    parent: Region | None = None

    def __repr__(self) -> str:
        return f"<block of {len(self.ops)} operations>"

    def add_arg(self, type: Type, location: Location = UNKNOWN) -> Value:
        value = Value(type, self, len(self.args), location)
        self.args.append(value)
        return value

    def append(self, op: Operation) -> Operation:
        op.parent = self
        self.ops.append(op)
        return op

    def insert(self, at: int, op: Operation) -> Operation:
        op.parent = self
        self.ops.insert(at, op)
        return op

    def behind(self, op: Operation) -> list[Operation]:
        """The operations of this block that come after `op`."""
        return self.ops[self.ops.index(op) + 1 :]

    @property
    def terminator(self) -> Operation:
        return self.ops[-1]

    @property
    def parent_op(self) -> Operation | None:
        return self.parent.parent if self.parent is not None else None

    def walk(self) -> Iterator[Operation]:
        """All operations inside as they are now, in program order, parents first."""
        found: list[Operation] = []
        _gather(self, found)
        return iter(found)

    def readers(self, value: Value) -> list[Operation]:
        """The operations inside, at any depth, that use `value`."""
        return [op for op in self.walk() if value in op.operands]

    def holder(self, op: Operation) -> Operation:
        """The operation of this block that is `op`, or has it inside."""
        while op.parent is not self and op.parent_op is not None:
            op = op.parent_op
        return op


@dataclass(eq=False, slots=True, repr=False)
class Region:
    """A list of blocks inside an operation."""

    blocks: list[Block] = field(default_factory=list)
    parent: Operation | None = None

    def __repr__(self) -> str:
        return f"<region of {len(self.blocks)} blocks>"

    def add_block(self, block: Block | None = None) -> Block:
        block = Block() if block is None else block
        block.parent = self
        self.blocks.append(block)
        return block

    @property
    def block(self) -> Block:
        """The only block of a structured region."""
        if len(self.blocks) != 1:
            raise ValueError(f"expected one block, found {len(self.blocks)}")
        return self.blocks[0]


@dataclass(eq=False, slots=True, repr=False)
class Operation:
    """One operation of any dialect, known or not."""

    name: str
    operands: list[Value] = field(default_factory=list)
    results: list[Value] = field(default_factory=list)
    properties: dict[str, Attribute] = field(default_factory=dict)  # <{...}>: the operation's own, inherent
    attributes: dict[str, Attribute] = field(default_factory=dict)  # {...}: anyone's, discardable
    regions: list[Region] = field(default_factory=list)
    successors: list[Block] = field(default_factory=list)
    location: Location = UNKNOWN
    parent: Block | None = None

    def __repr__(self) -> str:
        return f"<{self.name}>"

    @staticmethod
    def create(
        name: str,
        operands: Sequence[Value] = (),
        result_types: Sequence[Type] = (),
        properties: Mapping[str, Attribute] | None = None,
        attributes: Mapping[str, Attribute] | None = None,
        regions: Sequence[Region] = (),
        location: Location = UNKNOWN,
    ) -> Operation:
        """A detached operation; its regions' parents are set."""
        op = Operation(name, list(operands), [], dict(properties or {}), dict(attributes or {}), list(regions))
        op.location = location
        op.results = [Value(type, op, index) for index, type in enumerate(result_types)]
        for region in op.regions:
            region.parent = op
        return op

    # ---- reading

    @property
    def result(self) -> Value:
        """The only result."""
        if len(self.results) != 1:
            raise ValueError(f"{self.name} has {len(self.results)} results")
        return self.results[0]

    @property
    def parent_op(self) -> Operation | None:
        return self.parent.parent_op if self.parent is not None else None

    @property
    def blocks(self) -> list[Block]:
        """The blocks of all its regions, in order."""
        return [block for region in self.regions for block in region.blocks]

    @property
    def defined(self) -> list[Value]:
        """Its results, and the arguments of its blocks."""
        return [*self.results, *(arg for block in self.blocks for arg in block.args)]

    def attr(self, name: str) -> Attribute | None:
        """The attribute `name`, inherent or discardable; a quoted name may come without its quotes."""
        found = self.properties.get(name, self.attributes.get(name))
        return found if found is not None or name.startswith('"') else self.attributes.get(f'"{name}"')

    def int_attr(self, name: str) -> int | None:
        value = self.attr(name)
        return value.value if isinstance(value, IntegerAttr) else None

    def is_set(self, name: str) -> bool:
        """Is there a flag `name`, an integer that is not 0 or anything else?"""
        flag = self.attr(name)
        return flag is not None and not (isinstance(flag, IntegerAttr) and flag.value == 0)

    def str_attr(self, name: str) -> str | None:
        value = self.attr(name)
        return value.text if isinstance(value, StringAttr) else None

    def walk(self) -> Iterator[Operation]:
        """This operation and all inside it as they are now, in program order, parents first."""
        found = [self]
        for block in self.blocks:
            _gather(block, found)
        return iter(found)

    def ancestors(self) -> Iterator[Operation]:
        """The operations around this one, innermost first."""
        op = self.parent_op
        while op is not None:
            yield op
            op = op.parent_op

    def is_inside(self, other: Operation) -> bool:
        return any(op is other for op in self.ancestors())

    # ---- changing

    def add_result(self, type: Type) -> Value:
        value = Value(type, self, len(self.results))
        self.results.append(value)
        return value

    def erase(self) -> None:
        """Take the operation out of its block. Its results must have no uses left."""
        if self.parent is not None:
            self.parent.ops.remove(self)
            self.parent = None

    def clone(self, values: dict[Value, Value]) -> Operation:
        """A deep copy. Operands go through `values` (missing ones stay), which gains the new results and arguments."""
        early: list[tuple[Operation, int]] = []
        new = _clone(self, values, {}, early)
        for op, index in early:  # operands that a block further down defines
            op.operands[index] = values.get(op.operands[index], op.operands[index])
        return new


def _gather(block: Block, found: list[Operation]) -> None:
    """Add all operations inside: a list is three times as fast as generators inside each other."""
    for op in block.ops:
        found.append(op)
        for region in op.regions:
            for inner in region.blocks:
                _gather(inner, found)


def _clone(
    op: Operation, values: dict[Value, Value], blocks: dict[Block, Block], early: list[tuple[Operation, int]]
) -> Operation:
    new = Operation.create(
        op.name,
        [values.get(v, v) for v in op.operands],
        [r.type for r in op.results],
        op.properties,
        op.attributes,
        [_clone_region(region, values, blocks, early) for region in op.regions],
        op.location,
    )
    early.extend((new, index) for index, value in enumerate(op.operands) if value not in values)
    new.successors = [blocks.get(b, b) for b in op.successors]
    values.update(zip(op.results, new.results, strict=True))
    return new


def _clone_region(
    region: Region, values: dict[Value, Value], blocks: dict[Block, Block], early: list[tuple[Operation, int]]
) -> Region:
    new = Region()
    for block in region.blocks:
        copy = new.add_block()
        blocks[block] = copy
        for arg in block.args:
            values[arg] = copy.add_arg(arg.type, arg.location)
    for block in region.blocks:
        for op in block.ops:
            blocks[block].append(_clone(op, values, blocks, early))
    return new


def functions(module: Operation) -> list[Operation]:
    """The functions of a module, in order."""
    return [op for op in module.walk() if op.name == "tt.func"]


def uses(root: Operation) -> dict[Value, list[tuple[Operation, int]]]:
    """A snapshot of who uses what below `root`: value -> [(operation, operand index)]."""
    found: dict[Value, list[tuple[Operation, int]]] = {}
    for op in root.walk():
        for index, value in enumerate(op.operands):
            found.setdefault(value, []).append((op, index))
    return found


def replace_uses(root: Operation | Block, values: Mapping[Value, Value]) -> None:
    """Every operand below `root` that is a key of `values` becomes its entry."""
    for op in root.walk():
        for index, value in enumerate(op.operands):
            if value in values:
                op.operands[index] = values[value]

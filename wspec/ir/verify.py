"""Is the IR what it must be? Structure, terminators, dominance, isolation of partitions, types.

It knows nothing of plans or passes. Operations it has no row or rule for are held only to what every operation must
keep: its place in the tree, and values that are defined before they are used.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import networkx as nx

from wspec.ir.core import Block, Operation, Region, Value
from wspec.ir.loc import file_loc
from wspec.ir.names import Names
from wspec.ir.ops import info, is_terminator
from wspec.ir.printer import print_module
from wspec.ir.type_rules import type_problems

PARTITIONS = "ttg.warp_specialize.partitions"
_ISOLATED = frozenset(("builtin.module", "tt.func", PARTITIONS))
_NO_TERMINATOR = frozenset(("builtin.module",))
# What the regions of these end with, as long as they have one block.
_ENDS: dict[str, tuple[str, ...]] = {
    "scf.for": ("scf.yield",),
    "scf.if": ("scf.yield", "scf.yield"),
    "scf.while": ("scf.condition", "scf.yield"),
    "tt.reduce": ("tt.reduce.return",),
    "tt.scan": ("tt.scan.return",),
    "ttg.warp_specialize": ("ttg.warp_yield", PARTITIONS),
}
_HERE = "<here>"  # before a name
_ONE_BLOCK = frozenset(("scf.for", "scf.if", "scf.while", "tt.reduce", "tt.scan"))


@dataclass(frozen=True, slots=True)
class Problem:
    """Something wrong with one operation."""

    op: Operation
    message: str

    def __str__(self) -> str:
        place = file_loc(self.op.location)
        where = f"{place.file}:{place.line}:{place.column}: " if place is not None else ""
        return f"{where}error: {self.op.name}: {self.message}"


class InvalidIR(Exception):
    """The IR is broken; `problems` says where, in program order."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        shown = [f"{problem}\n    {_first_line(problem.op)}" for problem in problems[:10]]
        if len(problems) > 10:
            shown.append(f"and {len(problems) - 10} more")
        super().__init__("\n".join(shown))
        self.problems = tuple(problems)


def verify(module: Operation) -> list[Problem]:
    """Everything wrong with `module`, in program order; empty when it is valid."""
    return _Verifier(module).run()


def check_valid(module: Operation) -> None:
    """Raises InvalidIR when `module` is broken."""
    problems = verify(module)
    if problems:
        raise InvalidIR(problems)


def _first_line(op: Operation) -> str:
    """The operation as the printed module shows it."""
    *_, root = op, *op.ancestors()
    name, op.name = op.name, f"{_HERE}{op.name}"
    try:
        lines = print_module(root, locations=False).split("\n")
    finally:
        op.name = name
    first = next(line for line in lines if _HERE in line).replace(_HERE, "")
    return first.strip()[:200] + (" ..." if op.regions else "")


class _Verifier:
    """Walks in program order with the set of values that may be used at each point."""

    def __init__(self, module: Operation) -> None:
        self.module = module
        self.problems: list[Problem] = []
        self._visible: set[Value] = set()
        self._outside: list[set[Value]] = []  # what isolated operations hide, outermost first
        self._names: Names | None = None

    def run(self) -> list[Problem]:
        self._op(self.module)
        return self.problems

    def _report(self, op: Operation, message: str) -> None:
        self.problems.append(Problem(op, message.replace("\n", " ")))

    def _name(self, value: Value) -> str:
        """What the printed module calls a value."""
        if self._names is None:
            self._names = Names()
            self._names.add_module(self.module)
        return self._names.values.get(value, "a value that is not in the module")

    # ---- operations

    def _op(self, op: Operation) -> None:
        self._own(op)
        if op.regions:
            self._regions(op)
        self._visible.update(op.results)

    def _own(self, op: Operation) -> None:
        """What can be said of the operation without its regions."""
        for index, value in enumerate(op.operands):
            if value not in self._visible:
                self._report(op, self._invisible(index, value))
        for index, result in enumerate(op.results):
            if result.owner is not op or result.index != index:
                self._report(op, f"result {index} says it is result {result.index} of {_owner_name(result)}")
        for number, block in enumerate(op.successors):
            if op.parent is None or block.parent is not op.parent.parent:
                self._report(op, f"successor {number} is not a block of its region")
            elif block.parent is not None and block is block.parent.blocks[0]:
                self._report(op, f"successor {number} is the entry block of its region")
        for message in type_problems(op):
            self._report(op, message)

    def _invisible(self, index: int, value: Value) -> str:
        """Why operand `index` may not be used here."""
        text = f"operand {index} ({self._name(value)}, {value.type})"
        if any(value in hidden for hidden in self._outside):
            return f"{text} comes from outside an isolated region; it must be passed in as an argument"
        return f"{text} is not defined on every way to here"

    def _regions(self, op: Operation) -> None:
        isolated = op.name in _ISOLATED
        for number, region in enumerate(op.regions):
            if region.parent is not op:
                self._report(op, f"region {number} does not know that it belongs here")
            if op.name in _ONE_BLOCK and len(region.blocks) > 1:
                self._report(op, f"region {number} must have one block, has {len(region.blocks)}")
            before = self._visible
            if isolated:
                self._outside.append(before)
            self._visible = set() if isolated else set(before)
            self._region(op, number, region)
            self._visible = before
            if isolated:
                self._outside.pop()

    # ---- regions and blocks

    def _region(self, op: Operation, number: int, region: Region) -> None:
        if len(region.blocks) == 1:
            self._block(op, number, region.blocks[0])
            return
        children, unreachable = _dominators(region)
        if region.blocks:
            self._dominated(op, number, region.blocks[0], children)
        everything = {value for block in region.blocks for value in _defined_in(block)}
        for block in unreachable:  # anything goes where control never comes
            self._visible |= everything
            self._block(op, number, block)

    def _dominated(self, op: Operation, number: int, block: Block, children: dict[Block, list[Block]]) -> None:
        """Check `block` and the blocks it dominates, which see what it defines."""
        stack = [(block, self._visible)]
        while stack:
            current, before = stack.pop()
            self._visible = set(before)
            self._block(op, number, current)
            stack.extend((child, self._visible) for child in reversed(children[current]))

    def _block(self, op: Operation, number: int, block: Block) -> None:
        if block.parent is None or block.parent.parent is not op:
            self._report(op, f"a block of region {number} does not know that it belongs here")
        for index, arg in enumerate(block.args):
            if arg.owner is not block or arg.index != index:
                self._report(op, f"block argument {index} says it is argument {arg.index} of {_owner_name(arg)}")
        self._visible.update(block.args)
        for inner in block.ops:
            if inner.parent is not block:
                self._report(inner, "does not know the block it stands in")
            self._op(inner)
        self._ends(op, number, block)

    def _ends(self, op: Operation, number: int, block: Block) -> None:
        """Exactly one terminator, at the end."""
        for inner in block.ops[:-1]:
            if is_terminator(inner):
                self._report(inner, "ends its block but is not the last operation in it")
        if op.name in _NO_TERMINATOR or info(op.name) is None:
            return
        if not block.ops:
            self._report(op, f"region {number} has a block without operations; it needs a terminator")
            return
        last = block.ops[-1]
        wanted = _ENDS.get(op.name, ())
        if number < len(wanted) and len(op.regions[number].blocks) == 1:
            if last.name != wanted[number]:
                self._report(last, f"region {number} of {op.name} must end with {wanted[number]}")
        elif not is_terminator(last) and info(last.name) is not None:
            self._report(last, "is the last operation of its block but does not end it")


def _dominators(region: Region) -> tuple[dict[Block, list[Block]], list[Block]]:
    """The blocks that each block immediately dominates, and those that control never reaches."""
    blocks, graph = region.blocks, nx.DiGraph()
    graph.add_nodes_from(blocks)
    graph.add_edges_from((one, to) for one in blocks if one.ops for to in one.ops[-1].successors if to in graph)
    above = nx.immediate_dominators(graph, blocks[0]) if blocks else {}
    children: dict[Block, list[Block]] = {block: [] for block in blocks}
    for block in blocks[1:]:
        if block in above:
            children[above[block]].append(block)
    return children, [block for block in blocks[1:] if block not in above]


def _owner_name(value: Value) -> str:
    return value.owner.name if isinstance(value.owner, Operation) else "a block"


def _defined_in(block: Block) -> Iterator[Value]:
    yield from block.args
    for op in block.ops:
        yield from op.results

"""Generic MLIR text -> operations.

The text is what libtriton prints for a module in generic form: quoted operation names, `<{properties}>`,
`{attributes}`, `: (operand types) -> result types`, `loc(...)`, and aliases that may stand after their uses.

What versions of Triton write differently becomes one thing here: what partitions capture are the operands of
`ttg.warp_specialize`, also where the text has them at `ttg.warp_specialize.partitions` (from 3.7), and a TMA load says
how many operands are what (from 3.7) only where it has offsets of an im2col copy.
"""

from __future__ import annotations

import bisect
import re
from dataclasses import dataclass

from wspec.ir.attr_reader import AttrReader
from wspec.ir.core import Block, Operation, Region, Value
from wspec.ir.cursor import RESOURCES, SUFFIX_ID, ReadError
from wspec.ir.loc import UNKNOWN, FileLoc, Location
from wspec.ir.types import Attribute, DenseArrayAttr, OpaqueAttr, Type

_VALUE = "%" + SUFFIX_ID
_RESULT = re.compile(rf"({_VALUE})(?::(\d+))?")
_OPERAND = re.compile(rf"({_VALUE})(?:#(\d+))?")
_BLOCK = re.compile(r"\^" + SUFFIX_ID)
# The whole head of an operation: results, name, operands. Operands hold no parentheses.
_HEAD = re.compile(
    rf'(?:({_VALUE}(?::\d+)?(?:\s*,\s*{_VALUE}(?::\d+)?)*)\s*=\s*)?"([\w$.\-]+)"\s*\(\s*([^()"/]*)\)[ \t]*'
)
_QUOTED = re.compile(r'\s*"([^"\n]*)"')
_NAME = re.compile(r"[\w$.\-]+")
_LOC_ALIAS = re.compile(r"[ \t]*loc\((#[\w$\-]+)\)")
_FLAT_ATTRIBUTES = re.compile(r"\{[^{}\n]*\}")
_PROPERTIES = re.compile(r"<\{[^\n]*?\}>(?= :| \(| \{)")
_RESOURCES = re.compile(r"\{-#.*?#-\}", re.S)
_CUSTOM_FORM = re.compile(r"[A-Za-z_][\w$.]*")
_PARTITIONS = "ttg.warp_specialize.partitions"
_TMA_LOAD = "ttng.async_tma_copy_global_to_local"
_ISOLATED = {"builtin.module", "tt.func", "llvm.func", "gpu.module", "gpu.func", _PARTITIONS}

Signature = tuple[tuple[Type, ...], tuple[Type, ...]]
Entries = dict[str, Attribute]


def read(text: str, file: str | None = None) -> Operation:
    """The module in `text`. Several top-level operations, or one that is not a module, are wrapped in a module.

    With `file`, operations that carry no location get their place in the text, as in libtriton. Raises ReadError on
    anything it cannot take.
    """
    reader = _OpReader(text, file)
    try:
        return reader.module()
    except RecursionError:
        raise reader.error("nested too deeply") from None


class _Scope:
    """The values visible by name inside one isolated operation."""

    __slots__ = ("names", "outer", "values")

    def __init__(self, outer: _Scope | None) -> None:
        self.outer = outer
        self.values: dict[str, list[Value]] = {}
        self.names: list[str] = []  # in order of definition, so that a region can forget its own

    def define(self, name: str, values: list[Value]) -> None:
        self.values[name] = values
        self.names.append(name)

    def forget(self, mark: int) -> None:
        """Drop the names defined since there were `mark` of them."""
        for name in self.names[mark:]:
            del self.values[name]
        del self.names[mark:]

    def find(self, name: str) -> list[Value] | None:
        """Outer scopes are searched too: whether an operation may look out of its region is the verifier's call."""
        scope: _Scope | None = self
        while scope is not None:
            found = scope.values.get(name)
            if found is not None:
                return found
            scope = scope.outer
        return None


@dataclass(frozen=True, slots=True)
class _Pending:
    """An operand whose value was not defined yet when it was read."""

    op: Operation
    index: int
    name: str
    number: int
    type: Type
    at: int


class _OpReader(AttrReader):
    """Reads operations, regions and blocks."""

    def __init__(self, text: str, file: str | None) -> None:
        super().__init__(text)
        self._file = file
        self._line_ends = [match.start() for match in re.finditer("\n", text)] if file is not None else []
        self._scope = _Scope(None)
        self._pending: list[_Pending] = []
        self._capturing: list[Operation] = []  # partitions with operands of their own
        self._blocks: dict[str, tuple[Block, int]] = {}  # of the region being read, with a place that names it
        self._signatures: dict[str, Signature] = {}
        self._dictionaries: dict[str, Entries] = {}

    # ---- the module

    def module(self) -> Operation:
        """Everything in the text."""
        ops: list[Operation] = []
        resources = ""
        self.skip()
        while self.pos < len(self.text):
            if self.text[self.pos] in "#!":
                self.definition()
            elif (match := self.match(_RESOURCES)) is not None:
                resources = match.group()
            else:
                ops.append(self.operation())
            self.skip()
        self._settle(0)
        for partitions in self._capturing:
            _hand_captures_up(partitions)
        if not ops:
            raise self.error("expected an operation, found the end of the text")
        module = ops[0] if len(ops) == 1 and ops[0].name == "builtin.module" else _wrapped(ops)
        if resources:
            module.attributes[RESOURCES] = OpaqueAttr(resources)
        return module

    # ---- operations

    def operation(self) -> Operation:
        """One operation with everything inside it."""
        self.skip()
        start = self.pos
        head = _HEAD.match(self.text, start)
        if head is None:
            raise self._bad_head()
        results, name, operands = head.groups()
        op = Operation(name)
        self.pos = head.end()
        self._middle(op)
        self.expect(":")
        inputs, outputs = self._signature()
        op.location = self._trailing_location() or self._place(start)
        self._operands(op, operands, inputs, head.start(3))
        if name == _PARTITIONS and inputs:
            self._capturing.append(op)
        elif name == _TMA_LOAD:
            _without_segments(op)
        op.results = [Value(type, op, index) for index, type in enumerate(outputs)]
        if results is not None:
            self._define_results(op, results, start)
        return op

    def _middle(self, op: Operation) -> None:
        """Successors, properties, regions and attributes."""
        if self.text.startswith(":", self.pos):
            return
        if self.accept("["):
            op.successors = list(self.sequence("]", self._successor))
        if self.looking_at("<"):
            op.properties = dict(self._entries(_PROPERTIES, angled=True))
        if self.accept("("):
            self._regions(op)
        if self.looking_at("{"):
            op.attributes = dict(self._entries(_FLAT_ATTRIBUTES))

    def _bad_head(self) -> ReadError:
        word = _CUSTOM_FORM.match(self.text, self.pos)
        if word is not None:
            return self.error(f"expected an operation in generic form (a quoted name), found '{word.group()}'")
        self.match(re.compile(rf"{_RESULT.pattern}(?:\s*,\s*{_RESULT.pattern})*\s*="))
        if not self.looking_at('"'):
            return self.error(f"expected an operation, found {self.found()}")
        if (name := _QUOTED.match(self.text, self.pos)) is not None and _NAME.fullmatch(name[1]) is None:
            return self.error(f"{name.group()} is no operation's name")
        return self.error("expected an operation as in '%0 = \"name\"(%a, %b) : (types) -> type'")

    def _successor(self) -> Block:
        name = self.need(_BLOCK, "a block name")
        return self._blocks.setdefault(name.group(), (Block(), name.start()))[0]

    def _entries(self, simple: re.Pattern[str], angled: bool = False) -> Entries:
        """`{...}` or `<{...}>`, remembered by text: what `simple` matches need not be read again."""
        match = simple.match(self.text, self.pos)
        text = "" if match is None else match.group()
        found = self._dictionaries.get(text)
        if found is not None:
            self.pos += len(text)
            return found
        start = self.pos
        if angled:
            self.expect("<")
        entries = self.dictionary()
        if angled:
            self.expect(">")
        self._dictionaries[self.text[start : self.pos]] = entries
        return entries

    def _signature(self) -> Signature:
        """`(types) -> types`, remembered by text: it ends before ` loc(` or with the line."""
        self.skip()
        start = self.pos
        line_end = self.text.find("\n", start)
        line_end = len(self.text) if line_end < 0 else line_end
        end = self.text.find(" loc(", start, line_end)
        key = self.text[start : line_end if end < 0 else end]
        found = self._signatures.get(key)
        if found is not None:
            self.pos += len(key)
            return found
        parsed = self.function_type()
        signature = (parsed.inputs, parsed.results)
        self._signatures[self.text[start : self.pos]] = signature
        return signature

    def _place(self, start: int) -> Location:
        """Where in the text an operation without a location stands."""
        if self._file is None:
            return UNKNOWN
        line = bisect.bisect_left(self._line_ends, start)
        column = start - (self._line_ends[line - 1] if line else -1)
        return FileLoc(self._file, line + 1, column)

    def _trailing_location(self) -> Location | None:
        match = _LOC_ALIAS.match(self.text, self.pos)
        if match is not None:
            found = self.alias(match.group(1))
            if isinstance(found, Location):
                self.pos = match.end()
                return found
        return self.location() if self.looking_at("loc(") else None

    # ---- operands and results

    def _operands(self, op: Operation, text: str, types: tuple[Type, ...], start: int) -> None:
        names = text.split(",") if text and not text.isspace() else []
        if len(names) != len(types):
            raise self.error(f"{op.name} has {len(names)} operands but {len(types)} operand types", start)
        values = self._scope.values
        for index, (name, type) in enumerate(zip(names, types, strict=True)):
            found = values.get(name.strip())
            if found is None:
                self._rare_operand(op, name.strip(), type, start)
                continue
            value = found[0]
            if value.type is not type and value.type != type:
                raise self._type_error(name, index, value, type, start)
            op.operands.append(value)

    def _rare_operand(self, op: Operation, text: str, type: Type, start: int) -> None:
        """An operand `%0#1`, one of an outer isolated scope, or one that is defined further down."""
        match = _OPERAND.fullmatch(text)
        if match is None:
            raise self.error(f"expected an operand such as '%0', found '{text[:40]}'", start)
        name, index = match.group(1), len(op.operands)
        pending = _Pending(op, index, name, self.integer(match.group(2) or "0"), type, start)
        found = self._scope.find(name)
        op.operands.append(Value(type, op, -1))
        if found is None:
            self._pending.append(pending)
        else:
            self._resolve(pending, found)

    def _resolve(self, pending: _Pending, found: list[Value]) -> None:
        if pending.number >= len(found):
            message = f"value {pending.name} has {len(found)} results; there is no #{pending.number}"
            raise self.error(message, pending.at)
        value = found[pending.number]
        if value.type != pending.type:
            raise self._type_error(pending.name, pending.index, value, pending.type, pending.at)
        pending.op.operands[pending.index] = value

    def _type_error(self, name: str, index: int, value: Value, type: Type, at: int) -> ReadError:
        return self.error(f"operand {index} ({name.strip()}) has type {value.type} but is used as {type}", at)

    def _define_results(self, op: Operation, text: str, start: int) -> None:
        if "," not in text and ":" not in text and len(op.results) == 1:  # by far the most common
            self._define(text, op.results, start)
            return
        at = 0
        for match in _RESULT.finditer(text):
            count = self.integer(match.group(2) or "1")
            self._define(match.group(1), op.results[at : at + count], start)
            at += count
        if at != len(op.results):
            raise self.error(f"{op.name} has {len(op.results)} result types but names {at} results", start)

    def _define(self, name: str, values: list[Value], start: int) -> None:
        if name in self._scope.values:
            raise self.error(f"redefinition of value {name}", start)
        self._scope.define(name, values)

    def _settle(self, mark: int) -> None:
        """Resolve the operands pending since `mark` that this region defines; the others wait for the one around it."""
        waiting, self._pending[mark:] = self._pending[mark:], []
        for pending in waiting:
            found = self._scope.find(pending.name)
            if found is not None:
                self._resolve(pending, found)
            elif self._scope.outer is None:
                raise self.error(f"use of undefined value {pending.name}", pending.at)
            else:
                self._pending.append(pending)

    # ---- regions and blocks

    def _regions(self, op: Operation) -> None:
        outer, blocks = self._scope, self._blocks
        isolated = op.name in _ISOLATED
        while True:
            self._scope = _Scope(outer) if isolated else outer
            self._blocks, mark = {}, len(outer.names)
            region = self._region()
            region.parent = op
            op.regions.append(region)
            outer.forget(mark)
            if not self.accept(","):
                break
        self.expect(")")
        self._scope, self._blocks = outer, blocks

    def _region(self) -> Region:
        self.expect("{")
        region, mark = Region(), len(self._pending)
        if not self.looking_at("^") and not self.looking_at("}"):
            self._block_body(region.add_block())
        while not self.accept("}"):
            if self.pos >= len(self.text):
                raise self.error("expected '}' at the end of a region, found the end of the text")
            self._labelled_block(region)
        for name, (block, at) in self._blocks.items():
            if block.parent is None:
                raise self.error(f"block {name} is used but not defined", at)
        if mark < len(self._pending):
            self._settle(mark)
        return region

    def _labelled_block(self, region: Region) -> None:
        label = self.need(_BLOCK, "a block such as '^bb0'")
        block, _ = self._blocks.setdefault(label.group(), (Block(), label.start()))
        if block.parent is not None:
            raise self.error(f"redefinition of block {label.group()}", label.start())
        region.add_block(block)
        if self.accept("("):
            self.sequence(")", lambda: self._argument(block))
        self.expect(":")
        self._block_body(block)

    def _argument(self, block: Block) -> None:
        name = self.need(_RESULT, "a block argument")
        self.expect(":")
        type = self.type()
        value = block.add_arg(type, self._trailing_location() or UNKNOWN)
        self._define(name.group(1), [value], name.start())

    def _block_body(self, block: Block) -> None:
        """Operations up to the next label or the end of the region."""
        while True:
            self.skip()
            if self.text[self.pos : self.pos + 1] in ("^", "}", ""):
                return
            block.append(self.operation())


def _hand_captures_up(partitions: Operation) -> None:
    """To the `ttg.warp_specialize` around them."""
    outer = partitions.parent_op
    if outer is not None and not outer.operands:
        outer.operands, partitions.operands = partitions.operands, []


def _without_segments(load: Operation) -> None:
    sizes = load.properties.get("operandSegmentSizes")
    if isinstance(sizes, DenseArrayAttr) and sizes.values[2:3] == (0,):
        load.properties = {name: value for name, value in load.properties.items() if value is not sizes}


def _wrapped(ops: list[Operation]) -> Operation:
    module = Operation.create("builtin.module", regions=[Region()])
    block = module.regions[0].add_block()
    for op in ops:
        block.append(op)
    return module

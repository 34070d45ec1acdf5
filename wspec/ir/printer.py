"""Operations -> generic MLIR text, for libtriton, for our own reader and for people.

Layouts and locations that occur get aliases (`#mma`, `#loc3`), numbered in the order in which they occur, so equal
modules give equal text. Layout aliases stand before the module, location aliases after it, as MLIR wants.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from wspec.ir.core import Block, Operation, Region, Value
from wspec.ir.cursor import RESOURCES
from wspec.ir.loc import UNKNOWN, CallSiteLoc, FusedLoc, Location, NameLoc
from wspec.ir.names import Names
from wspec.ir.types import (
    SMEM,
    ArrayAttr,
    Attribute,
    DenseAttr,
    DictAttr,
    FloatAttr,
    FunctionType,
    IntegerAttr,
    Layout,
    LayoutField,
    MemDescType,
    OpaqueAttr,
    PointerType,
    TensorDescType,
    TensorType,
    Type,
    TypeAttr,
    UnitAttr,
)

# Layouts written in full everywhere: short, and MLIR does so too.
_INLINE = {"ttg.slice", "ttg.dot_op"}
_ALIAS_STEMS = {"ttg.nvidia_mma": "mma", "ttg.amd_mfma": "mma", "ttg.amd_wmma": "mma"}
_BARE_NAME = re.compile(r"[A-Za-z_][\w$.]*|\".*\"", re.S)


def print_module(op: Operation, *, locations: bool = True, names: bool = False) -> str:
    """`op`, normally a module, as generic text that ends with a newline.

    Without `locations` the text says nothing of the source. With `names` values are called as in the source where the
    locations know it.
    """
    named = Names(source=names)
    named.add_module(op)
    return _Printer(named, locations).document(op)


class _Aliases:
    """Names for layouts and locations in order of their first occurrence."""

    def __init__(self) -> None:
        self.layouts: dict[Attribute, str] = {}
        self.layout_lines: list[str] = []
        self.locations: dict[Location, str] = {}
        self.location_lines: list[str] = []
        self._taken: dict[str, int] = {}

    def layout(self, layout: Attribute, stem: str, text: str) -> str:
        """Define the alias of a layout that has none yet."""
        count = self._taken.get(stem, 0)
        self._taken[stem] = count + 1
        name = f"#{stem}{count or ''}"
        self.layouts[layout] = name
        self.layout_lines.append(f"{name} = {text}")
        return name

    def location(self, location: Location, text: str) -> str:
        """Define the alias of a location that has none yet."""
        name = f"#loc{len(self.locations) or ''}"
        self.locations[location] = name
        self.location_lines.append(f"{name} = loc({text})")
        return name


class _Texts:
    """The texts of types, attributes and locations, each made once.

    Remembered by identity (the module keeps its types and attributes alive while it is printed), since hashing a type
    costs as much as printing it.
    """

    def __init__(self) -> None:
        self.aliases = _Aliases()
        self._by_id: dict[int, str] = {}
        self._makers: dict[type, Callable[[Any], str]] = {
            Layout: self._layout,
            OpaqueAttr: self._opaque,
            TensorType: self._tensor,
            MemDescType: self._memdesc,
            PointerType: self._pointer,
            TensorDescType: lambda type: f"!tt.tensordesc<{self.of(type.block)}>",
            FunctionType: self._function,
            TypeAttr: lambda attr: self.of(attr.type),
            IntegerAttr: str,
            FloatAttr: lambda attr: f"{attr.text} : {self.of(attr.type)}",
            DenseAttr: lambda attr: f"dense<{attr.text}> : {self.of(attr.type)}",
            ArrayAttr: lambda attr: "[" + ", ".join([self.of(item) for item in attr.items]) + "]",
            DictAttr: lambda attr: "{" + self.entries(dict(attr.items)) + "}",
        }

    def of(self, thing: Type | Attribute) -> str:
        """The text of a type or attribute."""
        text = self._by_id.get(id(thing))
        if text is None:
            text = self._by_id[id(thing)] = self._makers.get(type(thing), str)(thing)
        return text

    def entries(self, entries: Mapping[str, Attribute]) -> str:
        """`a = 1 : i32, flag`: the inside of a dictionary."""
        return ", ".join([self._entry(name, value) for name, value in entries.items()])

    def _entry(self, name: str, value: Attribute) -> str:
        quoted = name if _BARE_NAME.fullmatch(name) else f'"{name}"'
        return quoted if type(value) is UnitAttr else f"{quoted} = {self.of(value)}"

    # ---- layouts

    def _layout(self, layout: Layout) -> str:
        known = self.aliases.layouts.get(layout)
        if known is not None:
            return known
        fields = ", ".join([f"{name} = {self._field(value)}" for name, value in layout.fields])
        text = f"#{layout.name}<{{{fields}}}{layout.tail}>"
        if layout.name in _INLINE:
            return text
        return self.aliases.layout(layout, _stem(layout), text)

    def _field(self, value: LayoutField) -> str:
        if isinstance(value, bool):
            return "true" if value else "false"
        if isinstance(value, tuple):
            return "[" + ", ".join([self._field(item) for item in value]) + "]"
        return self.of(value) if isinstance(value, Layout) else str(value)

    def _opaque(self, attr: OpaqueAttr) -> str:
        if attr != SMEM:
            return attr.text
        return self.aliases.layouts.get(attr) or self.aliases.layout(attr, "smem", attr.text)

    # ---- types

    def _tensor(self, type: TensorType) -> str:
        shape = "".join([f"{size}x" for size in type.shape]) + self.of(type.element)
        return f"tensor<{shape}>" if type.encoding is None else f"tensor<{shape}, {self.of(type.encoding)}>"

    def _memdesc(self, type: MemDescType) -> str:
        shape = "".join([f"{size}x" for size in type.shape]) + self.of(type.element)
        tail = ", mutable" if type.mutable else ""
        if type.alloc_shape is not None:
            tail += ", " + "x".join(map(str, type.alloc_shape))
        return f"!ttg.memdesc<{shape}, {self.of(type.encoding)}, {self.of(type.memory_space)}{tail}>"

    def _pointer(self, type: PointerType) -> str:
        space = "" if type.address_space is None else f", {type.address_space}"
        return f"!tt.ptr<{self.of(type.pointee)}{space}>"

    def _function(self, type: FunctionType) -> str:
        inputs = ", ".join([self.of(item) for item in type.inputs])
        results = ", ".join([self.of(item) for item in type.results])
        single = len(type.results) == 1 and not isinstance(type.results[0], FunctionType)
        return f"({inputs}) -> {results if single else f'({results})'}"

    # ---- locations

    def location(self, location: Location) -> str:
        """What stands inside `loc(...)`: an alias, or the text when it is as short."""
        text = self._by_id.get(id(location))
        if text is None:
            text = self._by_id[id(location)] = self._make_location(location)
        return text

    def _make_location(self, location: Location) -> str:
        if location == UNKNOWN:
            return str(location)
        return self.aliases.locations.get(location) or self.aliases.location(location, self._spelled(location))

    def _spelled(self, location: Location) -> str:
        """The location in full, its children as aliases."""
        match location:
            case NameLoc(name=name, child=child) if child is not None:
                return f'"{name}"({self.location(child)})'
            case CallSiteLoc(callee=callee, caller=caller):
                return f"callsite({self.location(callee)} at {self.location(caller)})"
            case FusedLoc(children=children, metadata=metadata):
                inner = ", ".join([self.location(child) for child in children])
                return f"fused{f'<{metadata}>' if metadata else ''}[{inner}]"
        return str(location)


def _stem(layout: Layout) -> str:
    """`blocked`, `mma`, `shared`, ...: what the alias of a layout is called before its number."""
    mnemonic = layout.name.rpartition(".")[2]
    return "shared" if "shared" in mnemonic else _ALIAS_STEMS.get(layout.name, mnemonic)


class _Printer:
    """Walks operations and collects lines."""

    def __init__(self, names: Names, locations: bool) -> None:
        self.lines: list[str] = []
        self._names = names
        self._texts = _Texts()
        self._locations = locations

    def document(self, op: Operation) -> str:
        """The whole text: layout aliases, the operation, location aliases, resources."""
        self.operation(op, "")
        aliases = self._texts.aliases
        resources = op.attributes.get(RESOURCES)
        extra = [] if resources is None else ["", str(resources)]
        return "\n".join([*aliases.layout_lines, *self.lines, *aliases.location_lines, *extra, ""])

    def operation(self, op: Operation, indent: str) -> None:
        """Append the lines of one operation."""
        operands = op.operands
        values = self._names.values
        names = [values.get(value) or self._names.value(value) for value in operands]
        parts = [indent, self._results(op), f'"{op.name}"({", ".join(names)})']
        if op.successors:
            parts.append("[" + ", ".join([self._names.block(block) for block in op.successors]) + "]")
        if op.properties:
            parts.append(f" <{{{self._texts.entries(op.properties)}}}>")
        if op.regions:
            self._regions(op, parts, indent)
        if op.attributes and (attributes := self._attributes(op)):
            parts.append(f" {{{attributes}}}")
        parts.append(self._signature(op))
        if self._locations:
            parts.append(f" loc({self._texts.location(op.location)})")
        self.lines.append("".join(parts))

    def _signature(self, op: Operation) -> str:
        text = self._texts.of
        results = op.results
        inputs = ", ".join([text(value.type) for value in op.operands])
        if len(results) == 1 and type(results[0].type) is not FunctionType:
            return f" : ({inputs}) -> {text(results[0].type)}"
        return f" : ({inputs}) -> ({', '.join([text(value.type) for value in results])})"

    def _attributes(self, op: Operation) -> str:
        return self._texts.entries({name: value for name, value in op.attributes.items() if name != RESOURCES})

    def _results(self, op: Operation) -> str:
        """`%0 = `, `%1:3 = ` or nothing."""
        if not op.results:
            return ""
        first = self._names.value(op.results[0])
        return f"{first} = " if len(op.results) == 1 else f"{first[:-2]}:{len(op.results)} = "

    def _regions(self, op: Operation, parts: list[str], indent: str) -> None:
        """Append the regions' lines. The line begun in `parts` goes out first, and `parts` starts again after them."""
        parts.append(" (")
        for number, region in enumerate(op.regions):
            parts.append(", {" if number else "{")
            self.lines.append("".join(parts))
            self._region(region, indent)
            parts[:] = [indent, "}"]
        parts.append(")")

    def _region(self, region: Region, indent: str) -> None:
        for number, block in enumerate(region.blocks):
            if number or block.args or not block.ops or len(region.blocks) > 1:
                self.lines.append(f"{indent}{self._names.block(block)}{self._arguments(block)}:")
            for op in block.ops:
                self.operation(op, indent + "  ")

    def _arguments(self, block: Block) -> str:
        if not block.args:
            return ""
        return "(" + ", ".join([self._argument(value) for value in block.args]) + ")"

    def _argument(self, value: Value) -> str:
        where = f" loc({self._texts.location(value.location)})" if self._locations else ""
        return f"{self._names.value(value)}: {self._texts.of(value.type)}{where}"

"""IR for people: short, with the names and lines of the source. Nothing reads it back.

    %k = wspec.wait {k} : i32  // 31
    %k_0 = wspec.buffer %k {k} : memdesc<64x64xbf16, shared>  // 31
    %scores = ttng.warp_group_dot %q, %k_0, 0 {async} : tensor<64x64xf32, mma>  // 32

Left out: operand types, attributes that say nothing about what is computed, and the text of layouts, which get names.
Constants stand where they are used.
"""

from __future__ import annotations

from collections.abc import Callable

from wspec.ir.builder import PREDICATES
from wspec.ir.core import Block, Operation, Region, Value
from wspec.ir.loc import CallSiteLoc, Location, NameLoc, file_loc
from wspec.ir.names import Names
from wspec.ir.types import (
    Attribute,
    DenseArrayAttr,
    DenseAttr,
    FloatAttr,
    IntegerAttr,
    Layout,
    MemDescType,
    PointerType,
    StringAttr,
    TensorDescType,
    TensorType,
    Type,
    UnitAttr,
)

_SILENT = frozenset({
    "wspec.id", "operandSegmentSizes", "resultSegmentSizes", "overflowFlags", "fastmath", "inputPrecision",
    "maxNumImpreciseAcc", "arg_attrs", "res_attrs", "function_type", "sym_name", "sym_visibility", "cache", "evict",
    "isVolatile", "noinline", "boundaryCheck", "propagateNan", "bCluster", "roundingMode", "nsw", "nuw",
})  # fmt: skip
_STEMS = {"ttg.nvidia_mma": "mma", "ttg.nvmma_shared": "shared", "ttg.swizzled_shared": "shared"}
INDENT = "  "


def print_brief(module: Operation, *, lines: bool = True) -> str:
    """The module; with `lines`, the source line of each operation as a comment."""
    names = Names(source=True)
    names.add_module(module)
    printer = _Brief(names, lines)
    for op in module.walk():
        printer.learn(op)
    for op in module.walk():
        if op.name in ("tt.func", "llvm.func"):
            printer.function(op)
    if not printer.out:
        printer.operation(module, "")
    head = [f"// {name} = {text}" for text, name in printer.layouts.items()]
    return "\n".join([*head, *printer.out, ""])


class _Brief:
    """Collects lines."""

    def __init__(self, names: Names, lines: bool) -> None:
        self.names, self.lines = names, lines
        self.out: list[str] = []
        self.layouts: dict[str, str] = {}
        self._constants: dict[Value, str] = {}
        self._special: dict[str, Callable[[Operation, str], None]] = {
            "scf.for": self._for,
            "scf.if": self._if,
            "ttg.warp_specialize": self._tasks,
            "tt.reduce": self._reduce,
            "tt.scan": self._reduce,
        }

    def learn(self, op: Operation) -> None:
        """Remember a constant, to write it where it is used."""
        if op.name == "arith.constant" and (text := _number(op.attr("value"))) is not None:
            self._constants[op.result] = text

    def function(self, op: Operation) -> None:
        """`func name(parameters) {`."""
        entry = op.regions[0].blocks[0] if op.regions and op.regions[0].blocks else Block()
        args = ", ".join(f"{self._name(a)}: {self.type(a.type)}" for a in _visible(entry.args, op))
        self.out.append(f"func {op.str_attr('sym_name')}({args}) {{{self._comment(op.location)}")
        self._blocks(op.regions[0], INDENT)
        self.out.append("}")

    def operation(self, op: Operation, indent: str) -> None:
        """One operation with everything inside it."""
        if op.results and op.results[0] in self._constants:
            return
        special = self._special.get(op.name)
        if special is not None and all(len(region.blocks) <= 1 for region in op.regions):
            special(op, indent)
            return
        if not op.regions:
            self._line(indent, f"{self._results(op)}{self._head(op)}{self._types(op)}", op)
            return
        self._line(indent, f"{self._results(op)}{self._head(op)} {{", op)
        for number, region in enumerate(op.regions):
            if number:
                self.out.append(f"{indent}}}, {{")
            self._blocks(region, indent + INDENT)
        self.out.append(f"{indent}}}")

    # ---- pieces

    def _line(self, indent: str, text: str, op: Operation) -> None:
        self.out.append(indent + text + self._comment(op.location))

    def _comment(self, location: Location) -> str:
        shown = ">".join(map(str, _source_lines(location))) if self.lines else ""
        return f"  // {shown}" if shown else ""

    def _name(self, value: Value) -> str:
        return self._constants.get(value) or self.names.value(value)

    def _values(self, values: list[Value]) -> str:
        return ", ".join(map(self._name, values))

    def _results(self, op: Operation) -> str:
        if not op.results:
            return ""
        first = self._name(op.results[0])
        return f"{first} = " if len(op.results) == 1 else f"{first.removesuffix('#0')}:{len(op.results)} = "

    def _head(self, op: Operation) -> str:
        words = [op.name, self._values(op.operands), self._attributes(op)]
        words += [self.names.block(block) for block in op.successors]
        return " ".join(filter(None, words))

    def _types(self, op: Operation) -> str:
        return f" : {', '.join(self.type(r.type) for r in op.results)}" if op.results else ""

    def _attributes(self, op: Operation) -> str:
        both = {**op.properties, **op.attributes}
        shown = [_entry(op, name, value) for name, value in both.items() if name.strip('"') not in _SILENT]
        text = ", ".join(filter(None, shown))
        return f"{{{text}}}" if text else ""

    def _blocks(self, region: Region, indent: str) -> None:
        for block in region.blocks:
            if len(region.blocks) > 1:
                args = ", ".join(f"{self._name(a)}: {self.type(a.type)}" for a in block.args)
                self.out.append(f"{indent[:-2]}{self.names.block(block)}({args}):")
            for op in block.ops:
                self.operation(op, indent)

    # ---- control flow

    def _for(self, op: Operation, indent: str) -> None:
        block = op.regions[0].block
        lower, upper, step, *inits = op.operands
        pairs = zip(block.args[1:], inits, strict=True)
        carried = ", ".join(f"{self._name(arg)} = {self._name(init)}" for arg, init in pairs)
        bounds = f"{self._name(block.args[0])} = {self._name(lower)} to {self._name(upper)} step {self._name(step)}"
        tail = f" carrying ({carried})" if carried else ""
        self._line(indent, f"{self._results(op)}for {bounds}{tail} {{", op)
        self._blocks(op.regions[0], indent + INDENT)
        self.out.append(f"{indent}}}")

    def _if(self, op: Operation, indent: str) -> None:
        self._line(indent, f"{self._results(op)}if {self._name(op.operands[0])} {{", op)
        self._blocks(op.regions[0], indent + INDENT)
        if len(op.regions) > 1 and op.regions[1].blocks:
            self.out.append(f"{indent}}} else {{")
            self._blocks(op.regions[1], indent + INDENT)
        self.out.append(f"{indent}}}")

    def _tasks(self, op: Operation, indent: str) -> None:
        """The regions of warp_specialize; what a partition captures is told as `inside = outside`."""
        attributes = self._attributes(op)
        self._line(indent, f"warp_specialize {attributes} default {{", op)
        self._blocks(op.regions[0], indent + INDENT)
        partitions = op.regions[1].block.ops[0].regions
        for number, region in enumerate(partitions):
            pairs = zip(region.block.args, op.operands, strict=True)
            seen = ", ".join(
                f"{self._name(arg)} = {self._name(value)}" for arg, value in pairs if self._used(arg, region)
            )
            self.out.append(f"{indent}}} partition{number}({seen}) {{")
            self._blocks(region, indent + INDENT)
        self.out.append(f"{indent}}}")

    @staticmethod
    def _used(value: Value, region: Region) -> bool:
        return any(value in op.operands for op in region.block.walk())

    def _reduce(self, op: Operation, indent: str) -> None:
        combine = ", ".join(inner.name for inner in op.regions[0].block.ops[:-1])
        axis = op.int_attr("axis")
        text = f"{op.name} {self._values(op.operands)} {{{combine}, axis {axis}}}"
        self._line(indent, f"{self._results(op)}{text}{self._types(op)}", op)

    # ---- types

    def type(self, type: Type) -> str:
        """`tensor<64x64xf32, mma>`."""
        match type:
            case TensorType(shape=shape, element=element, encoding=encoding):
                return f"tensor<{_shape(shape)}{self.type(element)}{self._layout(encoding)}>"
            case MemDescType(shape=shape, element=element, encoding=encoding):
                return f"memdesc<{_shape(shape)}{self.type(element)}{self._layout(encoding)}>"
            case TensorDescType(block=block):
                return f"desc<{_shape(block.shape)}{self.type(block.element)}{self._layout(block.encoding)}>"
            case PointerType(pointee=pointee):
                return f"ptr<{self.type(pointee)}>"
        return str(type)

    def _layout(self, layout: Attribute | None) -> str:
        if layout is None:
            return ""
        if not isinstance(layout, Layout):
            return f", {layout}"
        if layout.parent is not None:
            number = layout.get("dim", layout.get("opIdx", ""))  # of a slice, of an operand of a dot
            return f", {layout.name.removeprefix('ttg.')}{number}({self._layout(layout.parent).removeprefix(', ')})"
        text = str(layout)
        if text not in self.layouts:
            stem = _STEMS.get(layout.name, layout.name.removeprefix("ttg."))
            taken = sum(name.rstrip("0123456789") == stem for name in self.layouts.values())
            self.layouts[text] = f"{stem}{taken or ''}"
        return f", {self.layouts[text]}"


def _source_lines(location: Location) -> list[int]:
    """The line of the kernel, and behind it that of the helper an operation was inlined from."""
    match location:
        case CallSiteLoc(callee=callee, caller=caller):
            outer, inner = file_loc(caller), file_loc(callee)
            same = outer is not None and inner is not None and outer.file == inner.file  # Triton's own are no news
            return _source_lines(caller) + (_source_lines(callee) if same else [])
        case NameLoc(child=child) if child is not None:
            return _source_lines(child)
    place = file_loc(location)
    return [place.line] if place is not None else []


def _visible(args: list[Value], op: Operation) -> list[Value]:
    """The arguments somebody uses: a descriptor brings eight more along that mostly nobody reads."""
    used = {value for inner in op.walk() for value in inner.operands}
    return [arg for arg in args if arg in used]


def _shape(shape: tuple[int, ...]) -> str:
    return "".join(f"{size}x" for size in shape)


_BITS = {
    "0xFF800000": "-inf",
    "0x7F800000": "inf",
    "0xFC00": "-inf",
    "0x7C00": "inf",
    "0xFF80": "-inf",
    "0x7F80": "inf",
}


def _number(value: Attribute | None) -> str | None:
    """A constant in short, the same for a scalar and for a tensor of it; None for what is no one number."""
    match value:
        case DenseAttr(text=text) | FloatAttr(text=text):
            return _BITS.get(text) or _short_float(text)
        case IntegerAttr():
            return str(value).partition(" : ")[0]
    return None


def _short_float(text: str) -> str | None:
    """`1.000000e+00` -> `1`; None for the elements of a tensor that differ."""
    try:
        return f"{float(text):g}" if "." in text else text if text.lstrip("-").isalnum() else None
    except ValueError:
        return None


def _entry(op: Operation, name: str, value: Attribute) -> str:
    """One attribute in short; "" to leave it out."""
    if name == "predicate" and isinstance(value, IntegerAttr) and op.name == "arith.cmpi":
        return PREDICATES[value.value]
    if name == "channel" and isinstance(value, StringAttr):
        return value.text
    if str(value) in ("true", "false"):
        word = {"isAsync": "async"}.get(name, name)
        return word if str(value) == "true" else ""
    if isinstance(value, UnitAttr):
        return name
    if isinstance(value, DenseArrayAttr):
        return f"{name} = {list(value.values)}"
    return f"{name} = {_number(value) or value}"

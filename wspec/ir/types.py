"""Types and attributes of TTGIR as frozen values.

What wspec reasons about has a class of its own; everything else is kept as the text it was read from
(`OpaqueType`, `OpaqueAttr`) and prints back byte for byte. `str(x)` is the MLIR text of a type or attribute,
with layouts written out in full (the printer may abbreviate them with aliases).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Union

# ---------------------------------------------------------------------------------------------- layouts

LayoutField = Union[int, bool, str, "Layout", tuple["LayoutField", ...]]


def _field_text(value: LayoutField) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple):
        return "[" + ", ".join(_field_text(item) for item in value) + "]"
    return str(value)


class Attribute:
    """Base of every attribute. Subclasses are frozen and compare by value."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Layout(Attribute):
    """A tensor or shared-memory layout, e.g. `#ttg.nvidia_mma<{versionMajor = 3, ...}>`.

    `name` is the mnemonic with its dialect (`ttg.nvidia_mma`); `fields` keeps the order of the text. `tail` is what
    follows the braces, e.g. `, alignment = 16` of `ttg.shared_linear`.
    """

    name: str
    fields: tuple[tuple[str, LayoutField], ...]
    tail: str = ""

    def get(self, key: str, default: LayoutField | None = None) -> LayoutField | None:
        for name, value in self.fields:
            if name == key:
                return value
        return default

    def ints(self, key: str) -> tuple[int, ...]:
        """The field `key` as a tuple of ints; () when absent."""
        value = self.get(key)
        return tuple(int(v) for v in value if isinstance(v, int)) if isinstance(value, tuple) else ()

    def with_fields(self, changes: Mapping[str, LayoutField]) -> Layout:
        """The same layout with the named fields replaced (unknown names are errors)."""
        missing = set(changes) - {name for name, _ in self.fields}
        if missing:
            raise KeyError(f"layout {self.name} has no field {sorted(missing)}")
        return replace(self, fields=tuple((name, changes.get(name, value)) for name, value in self.fields))

    @property
    def parent(self) -> Layout | None:
        value = self.get("parent")
        return value if isinstance(value, Layout) else None

    def __str__(self) -> str:
        body = ", ".join(f"{name} = {_field_text(value)}" for name, value in self.fields)
        return f"#{self.name}<{{{body}}}{self.tail}>"


# ------------------------------------------------------------------------------------------------ types


class Type:
    """Base of every type. Subclasses are frozen and compare by value."""

    __slots__ = ()


@lru_cache(maxsize=256)
def _bits(name: str) -> int:
    """Of a scalar type."""
    if name == "index":
        return 64
    digits = {"bf16": 16, "tf32": 32}.get(name)
    if digits is not None:
        return digits
    text = name.lstrip("suif")
    number = "".join(ch for ch in text[: len(text) if text.isdigit() else text.find("E")] if ch.isdigit())
    return int(number)


@dataclass(frozen=True, slots=True)
class ScalarType(Type):
    """A builtin scalar by its MLIR name: i1, i32, i64, index, bf16, f16, f32, f8E4M3FN, ..."""

    name: str

    @property
    def bits(self) -> int:
        """Width in bits; index counts as 64."""
        return _bits(self.name)

    @property
    def is_float(self) -> bool:
        return self.name.startswith(("f", "bf", "tf"))

    def __str__(self) -> str:
        return self.name


def signless(type: Type) -> Type:
    """The type without a sign: descriptors say whether integers are signed (si32), tensors and buffers do not."""
    signed = isinstance(type, ScalarType) and type.name.startswith(("si", "ui"))
    return ScalarType(str(type)[1:]) if signed else type


@dataclass(frozen=True, slots=True)
class PointerType(Type):
    """`!tt.ptr<pointee>` or `!tt.ptr<pointee, address_space>`."""

    pointee: Type
    address_space: int | None = None

    def __str__(self) -> str:
        space = "" if self.address_space is None else f", {self.address_space}"
        return f"!tt.ptr<{self.pointee}{space}>"


def _shape_text(shape: tuple[int, ...], element: Type) -> str:
    return "".join(f"{size}x" for size in shape) + str(element)


@dataclass(frozen=True, slots=True)
class TensorType(Type):
    """`tensor<128x64xbf16, #layout>`; `encoding` is None before layouts are chosen."""

    shape: tuple[int, ...]
    element: Type
    encoding: Attribute | None = None

    def __str__(self) -> str:
        tail = "" if self.encoding is None else f", {self.encoding}"
        return f"tensor<{_shape_text(self.shape, self.element)}{tail}>"


@dataclass(frozen=True, slots=True)
class MemDescType(Type):
    """`!ttg.memdesc<128x64xbf16, #shared, #smem[, mutable][, allocShape]>`: a buffer in shared memory."""

    shape: tuple[int, ...]
    element: Type
    encoding: Attribute
    memory_space: Attribute
    mutable: bool = False
    alloc_shape: tuple[int, ...] | None = None

    def __str__(self) -> str:
        tail = f", {self.encoding}, {self.memory_space}"
        if self.mutable:
            tail += ", mutable"
        if self.alloc_shape is not None:
            tail += ", " + "x".join(str(size) for size in self.alloc_shape)
        return f"!ttg.memdesc<{_shape_text(self.shape, self.element)}{tail}>"


@dataclass(frozen=True, slots=True)
class TensorDescType(Type):
    """`!tt.tensordesc<tensor<...>>`: a TMA descriptor; `block` is the tile one copy moves.

    From Triton 3.8 its text is `!tt.tensordesc<64x64xbf16, #shared>`, which is read as the same.
    """

    block: TensorType

    def __str__(self) -> str:
        return f"!tt.tensordesc<{self.block}>"


@dataclass(frozen=True, slots=True)
class FunctionType(Type):
    """`(inputs) -> results`."""

    inputs: tuple[Type, ...]
    results: tuple[Type, ...]

    def __str__(self) -> str:
        ins = ", ".join(map(str, self.inputs))
        outs = ", ".join(map(str, self.results))
        single = len(self.results) == 1 and not isinstance(self.results[0], FunctionType)
        return f"({ins}) -> {outs if single else f'({outs})'}"


@dataclass(frozen=True, slots=True)
class OpaqueType(Type):
    """A type we do not look into, as its text."""

    text: str

    def __str__(self) -> str:
        return self.text


# ------------------------------------------------------------------------------------------- attributes


@dataclass(frozen=True, slots=True)
class IntegerAttr(Attribute):
    """`7 : i32`; booleans are `IntegerAttr(1, i1)` and print as true/false."""

    value: int
    type: Type

    def __str__(self) -> str:
        if self.type == ScalarType("i1"):
            return "true" if self.value else "false"
        return f"{self.value} : {self.type}"


@dataclass(frozen=True, slots=True)
class FloatAttr(Attribute):
    """`1.000000e+00 : f32` or `0xFF800000 : f32`: the digits are kept as text so that NaN and infinities survive."""

    text: str
    type: Type

    def __str__(self) -> str:
        return f"{self.text} : {self.type}"


@dataclass(frozen=True, slots=True)
class DenseAttr(Attribute):
    """`dense<...> : tensor<...>`: `text` is what stands between the angle brackets."""

    text: str
    type: Type

    def __str__(self) -> str:
        return f"dense<{self.text}> : {self.type}"


_ESCAPE = re.compile(r"\\([0-9A-Fa-f]{2}|.)")


def unescaped(text: str) -> str:
    r"""A string attribute's text without MLIR's escapes (`\22`, `\\`, `\n`)."""

    def plain(match: re.Match[str]) -> str:
        code = match.group(1)
        return chr(int(code, 16)) if len(code) == 2 else {"n": "\n", "t": "\t"}.get(code, code)

    found = _ESCAPE.sub(plain, text)
    return found.encode("latin-1", "replace").decode("utf-8", "replace") if "\\" in text else found


@dataclass(frozen=True, slots=True)
class StringAttr(Attribute):
    """A string; `text` is escaped as in the source, without the quotes."""

    text: str

    def __str__(self) -> str:
        return f'"{self.text}"'

    @property
    def plain(self) -> str:
        """The text without escapes."""
        return unescaped(self.text)


@dataclass(frozen=True, slots=True)
class DenseArrayAttr(Attribute):
    """`array<i32: 1, 2>`."""

    element: Type
    values: tuple[int, ...]

    def __str__(self) -> str:
        is_bool = self.element == ScalarType("i1")
        items = [("true" if value else "false") if is_bool else str(value) for value in self.values]
        return f"array<{self.element}{': ' + ', '.join(items) if items else ''}>"


@dataclass(frozen=True, slots=True)
class ArrayAttr(Attribute):
    """`[a, b]`."""

    items: tuple[Attribute, ...]

    def __str__(self) -> str:
        return "[" + ", ".join(map(str, self.items)) + "]"


@dataclass(frozen=True, slots=True)
class DictAttr(Attribute):
    """`{a = 1 : i32, flag}`; a unit value prints as its bare name."""

    items: tuple[tuple[str, Attribute], ...]

    def __str__(self) -> str:
        return "{" + ", ".join(entry_text(name, value) for name, value in self.items) + "}"


@dataclass(frozen=True, slots=True)
class UnitAttr(Attribute):
    """Presence is the value."""

    def __str__(self) -> str:
        return "unit"


@dataclass(frozen=True, slots=True)
class TypeAttr(Attribute):
    """A type used as an attribute, e.g. a function's type."""

    type: Type

    def __str__(self) -> str:
        return str(self.type)


@dataclass(frozen=True, slots=True)
class OpaqueAttr(Attribute):
    """An attribute we do not look into, as its text."""

    text: str

    def __str__(self) -> str:
        return self.text


def entry_text(name: str, value: Attribute) -> str:
    """One `name = value` of a dictionary; names that are not bare identifiers arrive already quoted."""
    return name if isinstance(value, UnitAttr) else f"{name} = {value}"


I1, I32, I64, F32 = ScalarType("i1"), ScalarType("i32"), ScalarType("i64"), ScalarType("f32")
SMEM = OpaqueAttr("#ttg.shared_memory")


def i32(value: int) -> IntegerAttr:
    """The attribute `value : i32`."""
    return IntegerAttr(value, I32)

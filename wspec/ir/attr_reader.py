"""Attributes of MLIR text, layouts among them."""

from __future__ import annotations

import re

from wspec.ir.aliases import SYMBOL
from wspec.ir.cursor import BARE_ID, STRING, ReadError
from wspec.ir.loc import Location
from wspec.ir.type_reader import BUILTIN_TYPES, SCALAR, TypeReader
from wspec.ir.types import (
    I1,
    I64,
    ArrayAttr,
    Attribute,
    DenseArrayAttr,
    DenseAttr,
    DictAttr,
    FloatAttr,
    IntegerAttr,
    Layout,
    LayoutField,
    OpaqueAttr,
    ScalarType,
    StringAttr,
    TypeAttr,
    UnitAttr,
)

_NUMBER = re.compile(r"-?(?:0x[0-9a-fA-F]+|\d+(\.\d*(?:[eE][-+]?\d+)?)?)(?![\w.])")
_FIELD_INT = re.compile(r"-?\d+(?![\w.])")
_SYMBOL_REF = re.compile(r'@(?:[\w$.\-]+|"(?:[^"\\\n]|\\.)*")(?:::@(?:[\w$.\-]+|"(?:[^"\\\n]|\\.)*"))*')
_LAYOUT = re.compile(r"#(ttg\.\w+)<(?=\{)")
_DENSE_ARRAY_ITEMS = re.compile(r"\s*(?:-?\d+|true|false)\s*(?:,\s*(?:-?\d+|true|false)\s*)*>")
# Attributes that begin with a word and whose brackets hold a syntax of their own.
_WORD_ATTRIBUTES = frozenset(("affine_map", "affine_set", "dense_resource", "sparse", "distinct", "opaque", "strided"))
_WORDS: dict[str, Attribute] = {"true": IntegerAttr(1, I1), "false": IntegerAttr(0, I1), "unit": UnitAttr()}
_F64 = ScalarType("f64")


class AttrReader(TypeReader):
    """Reads attributes at the cursor."""

    def attribute(self) -> Attribute:
        """Any attribute."""
        self.skip()
        first = self.text[self.pos : self.pos + 1]
        if first == "#":
            return self._symbol_attribute()
        if first == '"':
            return self._string()
        if first == "-" or (first.isdigit() and first.isascii()):
            return self._number()
        if first == "[":
            self.pos += 1
            return ArrayAttr(self.sequence("]", self.attribute))
        if first == "{":
            return DictAttr(tuple(self.dictionary().items()))
        if first == "@":
            return OpaqueAttr(self.need(_SYMBOL_REF, "a symbol").group())
        return self._word_attribute()

    def dictionary(self) -> dict[str, Attribute]:
        """`{name = value, flag}`; a quoted name keeps its quotes."""
        self.expect("{")
        entries: dict[str, Attribute] = {}

        def entry() -> None:
            name = self.match(BARE_ID) or self.need(STRING, "an attribute name")
            if name.group() in entries:
                raise self.error(f"attribute {name.group()} is given twice", name.start())
            entries[name.group()] = self.attribute() if self.accept("=") else _WORDS["unit"]

        self.sequence("}", entry)
        return entries

    def _word_attribute(self) -> Attribute:
        match = BARE_ID.match(self.text, self.pos)
        word = "" if match is None else match.group()
        end = self.pos + len(word)
        if word in _WORDS:
            self.pos = end
            return _WORDS[word]
        if word == "dense" and self.text.startswith("<", end):
            return self._dense(end)
        if word == "array" and self.text.startswith("<", end):
            return self._dense_array(end)
        if word == "loc":
            return OpaqueAttr(f"loc({self.location()})")
        if word in _WORD_ATTRIBUTES:
            return self._opaque_attribute(self.pos, end)
        is_type = word in BUILTIN_TYPES or SCALAR.match(self.text, self.pos) is not None
        if is_type or self.text[self.pos : self.pos + 1] in ("!", "("):
            return TypeAttr(self.type())
        raise self.error(f"expected an attribute, found {self.found()}")

    # ---- numbers, strings, dense

    def _number(self) -> Attribute:
        match = self.need(_NUMBER, "a number")
        digits, is_float = match.group(), match.group(1) is not None
        if not self.accept(":"):
            return FloatAttr(digits, _F64) if is_float else IntegerAttr(self.integer(digits), I64)
        type = self.type()
        if is_float or (isinstance(type, ScalarType) and type.is_float):
            return FloatAttr(digits, type)
        return IntegerAttr(self.integer(digits), type)

    def _string(self) -> Attribute:
        match = self.need(STRING, "a string closed on its line")
        if self.looking_at(":"):
            return self._opaque_attribute(match.start(), match.end())
        return StringAttr(match.group(1))

    def _dense(self, body: int) -> DenseAttr:
        self.pos = self.balanced(body)
        text = self.text[body + 1 : self.pos - 1]
        self.expect(":")
        return DenseAttr(text, self.type())

    def _dense_array(self, body: int) -> Attribute:
        start, self.pos = self.pos, body + 1
        element = self.type()
        if self.accept(">"):
            return DenseArrayAttr(element, ())
        self.expect(":")
        items = _DENSE_ARRAY_ITEMS.match(self.text, self.pos)
        if items is None:  # floats
            return self._opaque_attribute(start, body)
        self.pos = items.end()
        words = [word.strip() for word in items.group()[:-1].split(",")]
        return DenseArrayAttr(element, tuple([self._array_item(word) for word in words]))

    def _array_item(self, word: str) -> int:
        return int(word == "true") if word in ("true", "false") else self.integer(word)

    # ---- attributes of dialects

    def _symbol_attribute(self) -> Attribute:
        name = self.need(SYMBOL, "an attribute")
        found = self.alias(name.group())
        if isinstance(found, Location):
            return OpaqueAttr(f"loc({found})")
        if isinstance(found, Attribute):
            return found
        if "." not in name.group() and not self.text.startswith("<", self.pos):
            raise self.error(f"undefined attribute alias {name.group()}", name.start())
        layout = _LAYOUT.match(self.text, name.start())
        return self._opaque_attribute(name.start(), name.end()) if layout is None else self._layout_or_text(layout)

    def _opaque_attribute(self, start: int, body: int) -> OpaqueAttr:
        """An attribute kept as text: from `start` over the brackets at `body`, then perhaps a type."""
        self.pos = body
        while self.text[self.pos : self.pos + 1] in ("<", "["):
            self.pos = self.balanced(self.pos)
        end = self.pos
        if self.accept(":"):
            self.type()
            end = self.pos
        self.pos = end
        return OpaqueAttr(self.expand(self.text[start:end]))

    def _layout_or_text(self, head: re.Match[str]) -> Attribute:
        end = self.balanced(head.end() - 1)
        self.pos = head.end()
        try:
            return self._layout(head.group(1), end)
        except ReadError:
            if self.undefined_alias(head.end(), end):
                raise
            return self._opaque_attribute(head.start(), head.end() - 1)  # a field in a syntax we do not know

    def _layout(self, name: str, end: int) -> Layout:
        self.expect("{")
        fields = self.sequence("}", self._layout_field)
        tail = self.expand(self.text[self.pos : end - 1])
        self.pos = end
        return Layout(name, fields, tail)

    def _layout_field(self) -> tuple[str, LayoutField]:
        name = self.need(BARE_ID, "a field name").group()
        self.expect("=")
        return name, self._layout_value()

    def _layout_value(self) -> LayoutField:
        if (number := self.match(_FIELD_INT)) is not None:
            return self.integer(number.group())
        if self.accept("["):
            return self.sequence("]", self._layout_value)
        if self.looking_at("#"):
            parent = self._symbol_attribute()
            return parent if isinstance(parent, Layout) else str(parent)
        word = (self.match(STRING) or self.need(BARE_ID, "a layout field")).group()
        return word == "true" if word in ("true", "false") else word

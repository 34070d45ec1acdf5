"""Types of MLIR text.

Texts repeat a great deal in TTGIR (one tensor type on hundreds of lines), so equal texts give the same object, which
also makes comparing types cheap.
"""

from __future__ import annotations

import re
from abc import ABC
from collections.abc import Callable

from wspec.ir.aliases import SYMBOL
from wspec.ir.cursor import BARE_ID, ReadError
from wspec.ir.loc_reader import LocReader
from wspec.ir.types import (
    FunctionType,
    MemDescType,
    OpaqueType,
    PointerType,
    ScalarType,
    TensorDescType,
    TensorType,
    Type,
)

SCALAR = re.compile(r"(?:[su]?i\d+|index|bf16|tf32|f\d+(?:E\d+M\d+\w*)?)(?![\w$.])")
BUILTIN_TYPES = frozenset(("tensor", "vector", "memref", "complex", "tuple", "none"))
# A name and brackets nested no deeper than three: enough to find again a type that was read before.
_WHOLE = re.compile(r"[!\w.$\-]+(?:<(?:[^<>\n]|<(?:[^<>\n]|<[^<>\n]*>)*>)*>)?")
_DIMENSIONS = re.compile(r"(?:\d+x)*")
_DYNAMIC = re.compile(r"<[\dx]*[?*]")
_ALLOC_SHAPE = re.compile(r"\d+(?:x\d+)*(?![\w.])")
_ADDRESS_SPACE = re.compile(r"\d+(?![\w.])")


class TypeReader(LocReader, ABC):
    """Reads types at the cursor."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self._types: dict[str, Type] = {}
        self._bodies: dict[str, Callable[[], Type]] = {
            "!tt.ptr": self._pointer,
            "!tt.tensordesc": self._tensordesc,
            "!ttg.memdesc": self._memdesc,
        }

    def type(self) -> Type:
        """A type; equal texts give the same object."""
        self.skip()
        start = self.pos
        whole = _WHOLE.match(self.text, start)
        if whole is not None and (known := self._types.get(whole.group())) is not None:
            self.pos = whole.end()
            return known
        parsed = self._parse_type()
        return self._types.setdefault(self.text[start : self.pos], parsed)

    def function_type(self) -> FunctionType:
        """`(types) -> type` or `(types) -> (types)`."""
        inputs = self._type_list()
        self.expect("->")
        results = self._type_list() if self.looking_at("(") else (self.type(),)
        return FunctionType(inputs, results)

    def _type_list(self) -> tuple[Type, ...]:
        self.expect("(")
        return self.sequence(")", self.type)

    def _parse_type(self) -> Type:
        match = SCALAR.match(self.text, self.pos)
        if match is not None:
            self.pos = match.end()
            return ScalarType(match.group())
        first = self.text[self.pos : self.pos + 1]
        if first == "!":
            return self._dialect_type()
        if first == "(":
            return self.function_type()
        word = BARE_ID.match(self.text, self.pos)
        if word is None or word.group() not in BUILTIN_TYPES:
            raise self.error(f"expected a type, found {self.found()}")
        start, self.pos = self.pos, word.end()
        if word.group() == "tensor" and _DYNAMIC.match(self.text, self.pos) is None:
            return self._body(self._tensor)
        return self._opaque_type(start)

    def _dialect_type(self) -> Type:
        name = self.need(SYMBOL, "a type")
        found = self.alias(name.group())
        if isinstance(found, Type):
            return found
        has_body = self.text.startswith("<", self.pos)
        if "." not in name.group() and not has_body:
            raise self.error(f"undefined type alias {name.group()}", name.start())
        body = self._bodies.get(name.group())
        if body is None or not has_body:
            return self._opaque_type(name.start())
        try:
            return self._body(body)
        except ReadError:
            self.pos = name.end()
            if self.undefined_alias(self.pos, self.balanced(self.pos)):
                raise
            return self._opaque_type(name.start())  # a form of another version

    def _body(self, body: Callable[[], Type]) -> Type:
        """What `body` reads between angle brackets."""
        self.expect("<")
        parsed = body()
        self.expect(">")
        return parsed

    def _opaque_type(self, start: int) -> OpaqueType:
        """The text from `start` over the angle brackets that may follow here."""
        if self.text.startswith("<", self.pos):
            self.pos = self.balanced(self.pos)
        return OpaqueType(self.expand(self.text[start : self.pos]))

    # ---- bodies

    def _shape(self) -> tuple[int, ...]:
        match = self.need(_DIMENSIONS, "a shape")
        return tuple([self.integer(size) for size in match.group().split("x")[:-1]])

    def _tensor(self) -> Type:
        shape, element = self._shape(), self.type()
        return TensorType(shape, element, self.attribute() if self.accept(",") else None)

    def _pointer(self) -> Type:
        pointee = self.type()
        if not self.accept(","):
            return PointerType(pointee)
        return PointerType(pointee, self.integer(self.need(_ADDRESS_SPACE, "an address space").group()))

    def _tensordesc(self) -> Type:
        block = self._tensor() if self.text[self.pos : self.pos + 1].isdigit() else self.type()
        if not isinstance(block, TensorType):
            raise self.error("expected a tensor type, as in '!tt.tensordesc<tensor<...>>'")
        return TensorDescType(block)

    def _memdesc(self) -> Type:
        shape, element = self._shape(), self.type()
        self.expect(",")
        encoding = self.attribute()
        self.expect(",")
        space = self.attribute()
        mutable, alloc_shape = False, None
        while self.accept(","):
            if self.accept("mutable"):
                mutable = True
            else:
                sizes = self.need(_ALLOC_SHAPE, "'mutable' or a shape").group()
                alloc_shape = tuple([self.integer(size) for size in sizes.split("x")])
        return MemDescType(shape, element, encoding, space, mutable, alloc_shape)

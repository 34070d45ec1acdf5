"""Operands of PTX instructions (PTX ISA, "Instruction Operands")."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from wspec.ptx.errors import PtxError

_TOKEN = re.compile(r"\s*(0[fFdD][0-9a-fA-F]+|\d+\.\d*(?:[eE][-+]?\d+)?|[%$\w.]+|[\[\]{}()|,!+-])")
_NUMBER = re.compile(r"0[xX][0-9a-fA-F]+U?|0[bB][01]+U?|\d+U?", re.ASCII)
_FLOAT = re.compile(r"0[fFdD][0-9a-fA-F]+|\d+\.\d*(?:[eE][-+]?\d+)?", re.ASCII)
_NAME = re.compile(r"[%$_A-Za-z][%$\w.]*", re.ASCII)
_CLOSING = {"{": "}", "(": ")"}


@dataclass(frozen=True, slots=True)
class Register:
    """A register, a special register (`%tid.x`), or an operand of inline assembly (`$0`)."""

    name: str  # with `#n` behind it where it is declared in the inner block n of its function
    negated: bool = False  # `!p`


@dataclass(frozen=True, slots=True)
class Number:
    """An immediate."""

    text: str

    @property
    def value(self) -> int | None:
        """Its integer; None of a floating-point number."""
        return _integer(self.text)


@functools.lru_cache(maxsize=4096)
def _integer(text: str) -> int | None:
    digits = text.removeprefix("-")
    if _NUMBER.fullmatch(digits) is None:
        return None
    digits = digits.rstrip("U")
    octal = len(digits) > 1 and digits[0] == "0" and digits.isdigit()
    found = int(digits, 8 if octal else 0)
    return -found if text.startswith("-") else found


@dataclass(frozen=True, slots=True)
class Symbol:
    """A variable, a function or a label."""

    name: str


@dataclass(frozen=True, slots=True)
class Address:
    """`[base + offset]`; of a tensor copy `[base, {coordinates}]`."""

    base: Operand
    offset: int = 0  # bytes
    rest: tuple[Operand, ...] = ()


@dataclass(frozen=True, slots=True)
class Several:
    """`{a, b}`, `(a, b)` and `a|b`."""

    items: tuple[Operand, ...]


Operand = Register | Number | Symbol | Address | Several


def number_of(operand: Operand | int | None) -> int | None:
    """The integer that an immediate is; None of anything else."""
    return operand.value if isinstance(operand, Number) else None


def registers(operand: Operand) -> Iterator[str]:
    """The names of all registers in it; `_` is none."""
    match operand:
        case Register(name):
            yield name
        case Address(base, _, rest):
            yield from registers(base)
            for one in rest:
                yield from registers(one)
        case Several(items):
            for one in items:
                yield from registers(one)


@functools.lru_cache(maxsize=4096)
def plain_operands(text: str) -> tuple[Operand, ...]:
    """The operands of a text in which no name is declared in an inner block. Raises PtxError."""
    return _Reader(text, MappingProxyType({})).all()


def operands_of(text: str, declared: Mapping[str, str]) -> tuple[Operand, ...]:
    """The operands of a text; `declared`: names of registers that inner blocks declare -> unique ones."""
    return _Reader(text, declared).all() if declared else plain_operands(text)


class _Reader:
    """Of one instruction's operands."""

    def __init__(self, text: str, declared: Mapping[str, str]) -> None:
        self.text, self.declared = text, declared
        self.tokens, end = [], 0
        while match := _TOKEN.match(text, end):
            self.tokens.append(match[1])
            end = match.end()
        if text[end:].strip():
            raise PtxError(f"what is {text[end:].strip()!r}?")
        self.at = 0

    def all(self) -> tuple[Operand, ...]:
        found = self._list("") if self.tokens else ()
        if self.at != len(self.tokens):
            raise PtxError(f"the operands {self.text!r} cannot be read")
        return found

    def _next(self) -> str:
        self.at += 1
        return self.tokens[self.at - 1] if self.at <= len(self.tokens) else ""

    def _peek(self) -> str:
        return self.tokens[self.at] if self.at < len(self.tokens) else ""

    def _expect(self, token: str) -> None:
        if self._next() != token:
            raise PtxError(f"{token!r} is missing in {self.text!r}")

    def _list(self, closing: str) -> tuple[Operand, ...]:
        """Operands between commas, up to the closing bracket, which is taken."""
        found: list[Operand] = []
        if closing and self._peek() == closing:
            self.at += 1
            return ()
        while True:
            found.append(self._one())
            if self._peek() != ",":
                break
            self.at += 1
        if closing:
            self._expect(closing)
        return tuple(found)

    def _one(self) -> Operand:
        first = self._simple()
        if self._peek() != "|":
            return first
        self.at += 1
        return Several((first, self._simple()))

    def _simple(self) -> Operand:
        token = self._next()
        if token in _CLOSING:
            return Several(self._list(_CLOSING[token]))
        if token == "[":
            return self._address()
        if token == "!":
            inner = self._simple()
            if not isinstance(inner, Register):
                raise PtxError(f"what is negated in {self.text!r}?")
            return Register(inner.name, not inner.negated)
        if token == "-":
            number = self._next()
            if not _is_number(number):
                raise PtxError(f"what is negative in {self.text!r}?")
            return Number(f"-{number}")
        if _is_number(token):
            return Number(token)
        if _NAME.fullmatch(token) is None:
            raise PtxError(f"{token!r} is no operand")
        if token in self.declared:
            return Register(self.declared[token])
        if token[0] == "%" or token == "_" or (token[0] == "$" and token[1:].isdigit()):
            return Register(token)
        return Symbol(token)

    def _address(self) -> Address:
        base, offset = self._simple(), 0
        if self._peek() in ("+", "-"):
            negative = self._next() == "-"
            if self._peek() == "-":
                self.at, negative = self.at + 1, not negative
            number = Number(self._next()).value
            if number is None:
                raise PtxError(f"the offset in {self.text!r} is no integer")
            offset = -number if negative else number
        rest: tuple[Operand, ...] = ()
        if self._peek() == ",":
            self.at += 1
            rest = self._list("")
        self._expect("]")
        return Address(base, offset, rest)


def _is_number(token: str) -> bool:
    return bool(_NUMBER.fullmatch(token) or _FLOAT.fullmatch(token))

"""Aliases of MLIR text: `#mma = ...`, `!t = ...`, `#loc3 = loc(...)`, which may stand after their uses."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TypeVar

from wspec.ir.cursor import SUFFIX_ID, Cursor
from wspec.ir.loc import Location
from wspec.ir.types import Attribute, Type

T = TypeVar("T")

SYMBOL = re.compile(r"[#!]" + SUFFIX_ID)
_DEFINITION = re.compile(r"^[ \t]*([#!]" + SUFFIX_ID + r")[ \t]*=", re.M)
_ALIAS_OR_STRING = re.compile(r'"(?:[^"\\\n]|\\.)*"|[#!]' + SUFFIX_ID)
_MAX_DIGITS = 1000


class AliasReader(Cursor, ABC):
    """Resolves aliases where they are used, wherever they are defined."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self._alias_at = {m.group(1): m.end() for m in _DEFINITION.finditer(text)}
        self._alias_end: dict[str, int] = {}
        self._aliases: dict[str, Attribute | Type | Location] = {}
        self._resolving: list[str] = []

    @abstractmethod
    def type(self) -> Type:
        """The type at the cursor."""

    @abstractmethod
    def attribute(self) -> Attribute:
        """The attribute at the cursor."""

    @abstractmethod
    def location(self) -> Location:
        """The `loc(...)` at the cursor."""

    def definition(self) -> None:
        """Move over one `#name = value`."""
        match = self.need(SYMBOL, "an alias")
        self.expect("=")
        name = match.group()
        if self._alias_at.setdefault(name, self.pos) != self.pos:
            raise self.error(f"alias {name} is defined twice", match.start())
        self.alias(name)
        self.pos = self._alias_end[name]

    def alias(self, name: str) -> Attribute | Type | Location | None:
        """What the alias `#name` or `!name` stands for; None when the text defines no such alias."""
        found = self._aliases.get(name)
        if found is not None or name not in self._alias_at:
            return found
        if name in self._resolving:
            raise self.error(f"alias {name} is defined by itself", self._alias_at[name])
        self._resolving.append(name)
        back, self.pos = self.pos, self._alias_at[name]
        try:
            value = self._aliases[name] = self._alias_value(name)
            self._alias_end[name] = self.pos
        finally:
            self._resolving.pop()
        self.pos = back
        return value

    def _alias_value(self, name: str) -> Attribute | Type | Location:
        if name.startswith("!"):
            return self.type()
        return self.location() if self.looking_at("loc(") else self.attribute()

    def expand(self, text: str) -> str:
        """`text` with every alias written out, so that it stands on its own."""
        return _ALIAS_OR_STRING.sub(self._expansion, text) if "#" in text or "!" in text else text

    def _expansion(self, match: re.Match[str]) -> str:
        token = match.group()
        value = None if token[0] == '"' else self.alias(token)
        if isinstance(value, Location):
            return str(value) if match.string[: match.start()].endswith("loc(") else f"loc({value})"
        return token if value is None else str(value)

    def undefined_alias(self, start: int, end: int) -> bool:
        """Does the text between the positions name an alias that nothing defines?"""
        for match in _ALIAS_OR_STRING.finditer(self.text, start, end):
            token = match.group()
            if token[0] != '"' and "." not in token and self.alias(token) is None:
                return True
        return False

    # ---- small pieces that every kind of thing is made of

    def sequence(self, end: str, item: Callable[[], T]) -> tuple[T, ...]:
        """Comma-separated items up to and over `end`."""
        items: list[T] = []
        if self.accept(end):
            return ()
        while True:
            items.append(item())
            if self.accept(end):
                return tuple(items)
            if not self.accept(","):
                raise self.error(f"expected ',' or '{end}', found {self.found()}")

    def integer(self, digits: str) -> int:
        """The value of decimal or hexadecimal digits."""
        if len(digits) > _MAX_DIGITS:
            raise self.error("integer is too long")
        return int(digits, 0) if "x" in digits else int(digits)

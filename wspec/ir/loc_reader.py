"""Locations of MLIR text."""

from __future__ import annotations

import re
from abc import ABC

from wspec.ir.aliases import SYMBOL, AliasReader
from wspec.ir.cursor import STRING
from wspec.ir.loc import UNKNOWN, CallSiteLoc, FileLoc, FusedLoc, Location, NameLoc, OpaqueLoc

_UNSIGNED = re.compile(r"\d+")
# The shapes that nearly all locations have, in one match: "file":1:2, "name"(#loc), callsite(#loc at #loc1).
_COMMON = re.compile(
    r'loc\((?:"((?:[^"\\\n]|\\.)*)"(?::(\d{1,9}):(\d{1,9})|\((#[\w$\-]+)\))|callsite\((#[\w$\-]+) at (#[\w$\-]+)\))\)'
)
_RANGE = re.compile(r"\s*to\s*(?:\d+)?:\d+")


class LocReader(AliasReader, ABC):
    """Reads locations at the cursor; equal texts give the same object."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self._locations: dict[str, Location] = {}

    def location(self) -> Location:
        """`loc(...)`."""
        self.skip()
        start = self.pos
        parsed = self._common_location()
        if parsed is None:
            self.expect("loc")
            self.expect("(")
            parsed = self._location_body()
            self.expect(")")
        return self._locations.setdefault(self.text[start : self.pos], parsed)

    def _common_location(self) -> Location | None:
        match = _COMMON.match(self.text, self.pos)
        if match is None:
            return None
        name, line, column, child, callee, caller = match.groups()
        if line is not None:
            self.pos = match.end()
            return FileLoc(name, int(line), int(column))
        inner = [self.alias(alias) for alias in (child, callee, caller) if alias is not None]
        found = [location for location in inner if isinstance(location, Location)]
        if len(found) < len(inner):  # the general way reports it
            return None
        self.pos = match.end()
        return NameLoc(name, found[0]) if child is not None else CallSiteLoc(found[0], found[1])

    def _location_body(self) -> Location:
        """What stands inside `loc(...)`."""
        if (name := self.match(STRING)) is not None:
            return self._string_location(name)
        if self.accept("callsite"):
            self.expect("(")
            callee = self._location_body()
            self.expect("at")
            caller = self._location_body()
            self.expect(")")
            return CallSiteLoc(callee, caller)
        if self.accept("fused"):
            return self._fused_location()
        if self.accept("unknown"):
            return UNKNOWN
        return self._symbol_location(self.need(SYMBOL, "a location"))

    def _string_location(self, name: re.Match[str]) -> Location:
        if self.accept("("):
            child = self._location_body()
            self.expect(")")
            return NameLoc(name.group(1), child)
        if not self.accept(":"):
            return NameLoc(name.group(1), None)
        line = self.integer(self.need(_UNSIGNED, "a line").group())
        self.expect(":")
        column = self.integer(self.need(_UNSIGNED, "a column").group())
        if (rest := _RANGE.match(self.text, self.pos)) is not None:
            self.pos = rest.end()
            return OpaqueLoc(self.text[name.start() : self.pos])
        return FileLoc(name.group(1), line, column)

    def _fused_location(self) -> Location:
        metadata = ""
        if self.accept("<"):
            start = self.pos
            self.pos = self.balanced(start - 1)
            metadata = self.expand(self.text[start : self.pos - 1])
        self.expect("[")
        return FusedLoc(self.sequence("]", self._location_body), metadata)

    def _symbol_location(self, symbol: re.Match[str]) -> Location:
        found = self.alias(symbol.group())
        if isinstance(found, Location):
            return found
        if found is not None or "." not in symbol.group():
            raise self.error(f"undefined location alias {symbol.group()}", symbol.start())
        if self.text.startswith("<", self.pos):
            self.pos = self.balanced(self.pos)
        return OpaqueLoc(self.expand(self.text[symbol.start() : self.pos]))

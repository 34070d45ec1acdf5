"""Source locations, as frozen values. `str(x)` is the text inside `loc(...)`."""

from __future__ import annotations

from dataclasses import dataclass


class Location:
    """Base of every location."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class FileLoc(Location):
    """`"file.py":line:column`, both counted from 1."""

    file: str
    line: int
    column: int

    def __str__(self) -> str:
        return f'"{self.file}":{self.line}:{self.column}'


@dataclass(frozen=True, slots=True)
class NameLoc(Location):
    """`"name"(child)`: a value's name in the source."""

    name: str
    child: Location | None

    def __str__(self) -> str:
        return f'"{self.name}"' + (f"({self.child})" if self.child is not None else "")


@dataclass(frozen=True, slots=True)
class CallSiteLoc(Location):
    """`callsite(callee at caller)`: an operation inlined from a helper function."""

    callee: Location
    caller: Location

    def __str__(self) -> str:
        return f"callsite({self.callee} at {self.caller})"


@dataclass(frozen=True, slots=True)
class FusedLoc(Location):
    """`fused[...]` with optional metadata text."""

    children: tuple[Location, ...]
    metadata: str = ""

    def __str__(self) -> str:
        meta = f"<{self.metadata}>" if self.metadata else ""
        return f"fused{meta}[" + ", ".join(map(str, self.children)) + "]"


@dataclass(frozen=True, slots=True)
class OpaqueLoc(Location):
    """`unknown`, or a location we do not look into, as its text."""

    text: str = "unknown"

    def __str__(self) -> str:
        return self.text


UNKNOWN = OpaqueLoc()


def file_loc(loc: Location) -> FileLoc | None:
    """The place in the user's own source: for an inlined call the outermost caller; None when unknown."""
    match loc:
        case FileLoc():
            return loc
        case NameLoc(child=child):
            return file_loc(child) if child is not None else None
        case CallSiteLoc(callee=callee, caller=caller):
            return file_loc(caller) or file_loc(callee)
        case FusedLoc(children=children):
            return next((found for child in children if (found := file_loc(child)) is not None), None)
    return None


def value_name(loc: Location) -> str | None:
    """The name the source gives the value, when there is one."""
    match loc:
        case NameLoc(name=name):
            return name
        case CallSiteLoc(callee=callee):
            return value_name(callee)
        case FusedLoc(children=children):
            return next((found for child in children if (found := value_name(child)) is not None), None)
    return None

"""Types and values of a kernel's parameters, from the command line.

--sig "x_ptr=*bf16:16, n=i32, BLOCK=128"     everything at once; a literal makes a parameter a constexpr
--arg x_ptr=*bf16:16                         one type
--const BLOCK=128 --const DTYPE=tl.float16   one value: a literal, or a name the kernel's file knows
"""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from wspec.diagnostics import bad_input

_OPEN, _CLOSE = "<[({", ">])}"


@dataclass(frozen=True, slots=True)
class Signature:
    """What a kernel is compiled for: types of parameters as text, values of the others, launch and compiler options."""

    types: Mapping[str, str] = field(default_factory=dict)
    values: Mapping[str, Any] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)
    example: str = ""  # the function that makes inputs for `wspec run`: NAME of the kernel's file, FILE.NAME beside it

    def updated(self, other: Signature) -> Signature:
        """This one with everything `other` says; a parameter it gives a type loses its value, and the reverse."""
        types = {name: text for name, text in self.types.items() if name not in other.values}
        values = {name: value for name, value in self.values.items() if name not in other.types}
        options = {**self.options, **other.options}
        return Signature({**types, **other.types}, {**values, **other.values}, options, other.example or self.example)


def split_items(text: str) -> list[str]:
    """The items between commas that stand outside of brackets."""
    items, depth, start = [], 0, 0
    for at, char in enumerate(text):
        depth += (char in _OPEN) - (char in _CLOSE)
        if char == "," and depth == 0:
            items.append(text[start:at].strip())
            start = at + 1
    return [item for item in [*items, text[start:].strip()] if item]


def from_flags(sig: str | None, args: Sequence[str], consts: Sequence[str], names: Mapping[str, Any]) -> Signature:
    """What `--sig`, `--arg` and `--const` say; `names` are those the kernel's file defines. Raises WspecError."""
    types: dict[str, str] = {}
    values: dict[str, Any] = {}
    for item in split_items(sig or ""):
        name, text = _name_and_text("--sig", item)
        literal = _literal(text)
        if literal is _NOTHING:
            types[name] = text
        else:
            values[name] = literal
    types |= dict(_name_and_text("--arg", item) for item in args)
    pairs = (_name_and_text("--const", item) for item in consts)
    values |= {name: value_of(f"--const {name}", text, names) for name, text in pairs}
    return Signature(types, values)


def _name_and_text(flag: str, item: str) -> tuple[str, str]:
    name, equals, text = (part.strip() for part in item.partition("="))
    if not equals or not name.isidentifier() or not text:
        raise bad_input(f"{flag}: {item!r} is not NAME=VALUE", "for example x_ptr=*bf16:16, or BLOCK=128")
    return name, text


_NOTHING = object()


def _literal(text: str) -> Any:
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return _NOTHING


def value_of(where: str, text: str, names: Mapping[str, Any]) -> Any:
    """A literal, or what a dotted name (`tl.float16`) means in the kernel's file. Raises WspecError."""
    literal = _literal(text)
    if literal is not _NOTHING:
        return literal
    found: Any = _NOTHING
    for at, part in enumerate(text.split(".")):
        found = names.get(part, _NOTHING) if at == 0 else getattr(found, part, _NOTHING)
        if found is _NOTHING:
            raise bad_input(
                f"{where}: {text!r} is no literal and no name of the kernel's file", "write text in quotes: '\"fast\"'"
            )
    return found

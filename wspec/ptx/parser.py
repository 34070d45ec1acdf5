"""From text to functions, labels and instructions.

Two things make PTX more than lines: a brace begins a block, which has registers and labels of its own, or a vector; and
a directive ends at a semicolon or with its line.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import NoReturn

from wspec.ptx.errors import PtxError
from wspec.ptx.syntax import Comment, Directive, Function, Instruction, Label, Module

# Tokens, coarse ones: a statement without braces on one line is a single one; otherwise its text is, as far as its line
# and its braces go.
_REST = r'[^;{}:"/\n]*(?:::[^;{}:"/\n]*)*'
_PIECE = re.compile(
    rf"\s*(?:(?P<whole>[a-z@]{_REST};)|(?P<comment>//[^\n]*|/\*.*?\*/)"
    r'|(?P<line>\.(?:loc|file|version|target|address_size)\b(?:[^\n/"]+|/(?![/*])|"[^"\n]*")*)'
    rf'|(?P<text>(?:[^\s;{{}}:"/]|::){_REST}|"[^"\n]*")'
    r"|(?P<mark>[;{}:]))",
    re.DOTALL,
)
_INSTRUCTION = re.compile(r"(?:@\s*(!?)\s*([%$\w]+)\s+)?([a-z][\w.:]*)(?:\s+|(?=[\[{(%$-])|$)(.*)", re.DOTALL)
_NAME = re.compile(r"[$%_A-Za-z][$%\w]*", re.ASCII)
_ROW = re.compile(r"(.*?)<(\d+)>")
_FUNCTION = re.compile(r"\.(entry|func)\b")
_CALLED = re.compile(r"\.(?:entry|func)\b\s*(?:\([^)]*\)\s*)?([$%\w]+)")
_NOTHING: Mapping[str, str] = MappingProxyType({})


def read(text: str) -> Module:
    """The module of a text. Raises PtxError."""
    reader = _Parser(text)
    reader.run()
    return reader.module


def read_body(text: str) -> Function:
    """The statements of inline assembly: what could stand in a function. Raises PtxError."""
    reader = _Parser(text)
    reader.function = Function("", False, "")
    reader.scopes.append(_Scope(0, _NOTHING))
    reader.run(until=1)
    return reader.function


class _Scope:
    """A block in braces: the names that it and those around it declare, but for those of the function itself."""

    def __init__(self, number: int, declared: Mapping[str, str], around: tuple[int, ...] = ()) -> None:
        self.number, self.declared = number, declared
        self.around = around  # the numbers of the blocks that it is in, its own last
        self.labels: set[str] = set()


class _Parser:
    def __init__(self, text: str) -> None:
        self.text = text
        self.module = Module(text)
        self.function: Function | None = None
        self.scopes: list[_Scope] = []
        self.blocks = 0  # in the function
        self.skipped = 0  # braces open in a section that is not read
        self.braces = 0  # of vectors, open in the statement
        self.parts: list[str] = []  # of the statement
        self.start = 0  # of the statement
        self.loc = ""

    # ---- statements

    def run(self, until: int = 0) -> None:
        """Read all of it; `until`: blocks that are still open at the end."""
        end = 0
        for match in _PIECE.finditer(self.text):
            if match.start() != end:
                self._fail(f"what is {self.text[end : match.start()].strip()!r}?", end)
            end = match.end()
            kind = match.lastgroup or ""
            start, piece = match.start(kind), match[kind]
            if kind == "whole" and not self.parts and not self.skipped:
                self.start = start
                self._statement(piece[:-1], end)
            elif kind == "whole" and not self.skipped:
                self.parts.append(piece[:-1])
                self._mark(";", end - 1)
            elif kind == "comment":
                self.module.comments.append(Comment(piece, start))
            elif self.skipped:
                self.skipped += (piece == "{") - (piece == "}")
            elif kind == "mark":
                self._mark(piece, start)
            elif kind == "line" and not self.parts:
                self._line(piece, start)
            else:
                if not self.parts:
                    self.start = start
                self.parts.append(piece)
        if self.text[end:].strip():
            self._fail(f"what is {self.text[end:].strip()[:40]!r}?", end)
        if self.parts or self.skipped or len(self.scopes) != until:
            self._fail("the text ends within something", len(self.text) - 1)

    def _line(self, piece: str, start: int) -> None:
        name, _, rest = piece.partition(" " if " " in piece and "\t" not in piece else "\t")
        if piece.startswith(".loc"):
            self.loc = piece[4:].strip()
        else:
            self.module.directives.append(Directive(name, rest.strip(), start))

    def _mark(self, piece: str, start: int) -> None:
        if piece == ";":
            if self.braces:
                self._fail("a brace is not closed", start)
            if self.parts:
                self._statement(" ".join(self.parts), start + 1)
                self.parts = []
        elif piece == ":":
            name = " ".join(self.parts)
            if self.function is None or _NAME.fullmatch(name) is None:
                self._fail(f"what is {name!r}?", start)
            scope = self.scopes[-1]
            unique = f"{name}#{scope.number}" if scope.number else name
            if name in scope.labels:
                self._fail(f"two labels {name}", start)
            scope.labels.add(name)
            self.function.body.append(Label(unique, self.start, scope.around))
            self.parts = []
        elif piece == "{":
            self._open(start)
        elif self.braces:
            self.braces -= 1
            self.parts.append(piece)
        elif self.parts or not self.scopes:
            self._fail("a brace that nothing begins, or a statement without its semicolon", start)
        else:
            self._close()

    def _open(self, start: int) -> None:
        if not self.parts:
            if self.function is None:
                self._fail("a block outside of a function", start)
            self.blocks += 1
            outer = self.scopes[-1]
            self.scopes.append(_Scope(self.blocks, outer.declared, (*outer.around, self.blocks)))
            return
        header = " ".join(self.parts)
        found = _FUNCTION.search(header) if self.function is None else None
        if found is not None:
            called = _CALLED.search(header)
            self.function = Function(called[1] if called else "", found[1] == "entry", header, self.start)
            self.scopes, self.blocks, self.parts, self.loc = [_Scope(0, _NOTHING)], 0, [], ""
            self.module.functions.append(self.function)
        elif self.function is None and header.startswith(".section"):
            self.skipped, self.parts = 1, []
        else:
            self.braces += 1
            self.parts.append("{")

    def _close(self) -> None:
        self.scopes.pop()
        if not self.scopes:
            self.function = None

    def _statement(self, text: str, end: int) -> None:
        if text.startswith("."):
            return self._directive(text)
        match = _INSTRUCTION.fullmatch(text)
        if match is None or self.function is None:
            self._fail(f"{text!r} is no instruction", self.start)
        unless, guard, opcode, operands = match.groups()
        scope = self.scopes[-1]
        declared = scope.declared
        guard = declared.get(guard, guard) if guard else ""
        name = opcode.partition(".")[0]
        self.function.body.append(
            Instruction(opcode, name, operands, guard, unless == "!", self.start, end, self.loc, declared, scope.around)
        )
        return None

    def _directive(self, text: str) -> None:
        words = text.split(None, 1)
        name, rest = words[0], words[1] if len(words) > 1 else ""
        if self.function is None:
            self.module.directives.append(Directive(name, rest, self.start))
            return
        self.function.directives.append(Directive(name, rest, self.start))
        if name == ".branchtargets":
            table = self.function.body.pop() if self.function.body else None
            if not isinstance(table, Label):
                self._fail("a table of branches has no name", self.start)
            self.function.tables[table.name] = tuple(one.strip() for one in rest.split(","))
        elif name == ".reg":
            self._registers(rest)

    def _registers(self, text: str) -> None:
        type, _, names = " ".join(text.split()).partition(" ")
        if names.startswith(".v"):
            names = names.partition(" ")[2]
        scope = self.scopes[-1]
        found: dict[str, str] = {}
        assert self.function is not None
        for name in (one.strip() for one in names.split(",")):
            row = _ROW.fullmatch(name)
            if row is None and _NAME.fullmatch(name) is None:
                self._fail(f"what register is {name!r}?", self.start)
            if scope.number == 0:
                self.function.types[name] = type[1:]
            each = [f"{row[1]}{n}" for n in range(int(row[2]))] if row else [name]
            if scope.number or not name.startswith("%"):
                found |= {one: f"{one}#{scope.number}" if scope.number else one for one in each}
                self.function.types |= {found[one]: type[1:] for one in each}
        scope.declared = {**scope.declared, **found}

    def _fail(self, message: str, start: int) -> NoReturn:
        raise PtxError(message, self.module.line(start))

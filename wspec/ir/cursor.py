"""A position in MLIR text: the lexical half of the reader, and its one error."""

from __future__ import annotations

import re

WS = re.compile(r"(?:[ \t\r\n]+|//[^\n]*)*")
STRING = re.compile(r'"((?:[^"\\\n]|\\.)*)"')
BARE_ID = re.compile(r"[A-Za-z_][\w$.]*")
SUFFIX_ID = r"(?:\d+|[A-Za-z_$.\-][\w$.\-]*)"
_MAY_SKIP = frozenset(" \t\r\n/")
RESOURCES = "{-#"  # the attribute of a module under which its dialect resources travel, as their text
_CLOSERS = {"(": ")", "[": "]", "{": "}", "<": ">"}
# Everything that matters when looking for a closing bracket; `->` is one token so that its `>` closes nothing.
_BRACKETS = re.compile(r'"(?:[^"\\\n]|\\.)*"|->|[<>()\[\]{}"]')


class ReadError(Exception):
    """The text is not what the reader can take; `line` and `column` count from 1."""

    def __init__(self, line: int, column: int, message: str) -> None:
        super().__init__(f"{line}:{column}: {message}")
        self.line, self.column, self.message = line, column, message


class Cursor:
    """Text and a position in it. Every method skips white space and comments first."""

    def __init__(self, text: str) -> None:
        self.text, self.pos = text, 0

    def error(self, message: str, pos: int | None = None) -> ReadError:
        """The error to raise for what stands at `pos` (here by default)."""
        at = min(self.pos if pos is None else pos, len(self.text))
        line = self.text.count("\n", 0, at) + 1
        return ReadError(line, at - self.text.rfind("\n", 0, at), message.replace("\n", " "))

    def skip(self) -> None:
        """Move over white space and comments."""
        if self.text[self.pos : self.pos + 1] in _MAY_SKIP:
            match = WS.match(self.text, self.pos)
            assert match is not None  # the pattern matches the empty string
            self.pos = match.end()

    def looking_at(self, token: str) -> bool:
        self.skip()
        return self.text.startswith(token, self.pos)

    def accept(self, token: str) -> bool:
        """Move over `token` when it is next."""
        if not self.text.startswith(token, self.pos):
            self.skip()
            if not self.text.startswith(token, self.pos):
                return False
        self.pos += len(token)
        return True

    def expect(self, token: str) -> None:
        if not self.accept(token):
            raise self.error(f"expected '{token}', found {self.found()}")

    def match(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        """Move over `pattern` when it is next."""
        self.skip()
        match = pattern.match(self.text, self.pos)
        if match is not None:
            self.pos = match.end()
        return match

    def need(self, pattern: re.Pattern[str], what: str) -> re.Match[str]:
        match = self.match(pattern)
        if match is None:
            raise self.error(f"expected {what}, found {self.found()}")
        return match

    def found(self) -> str:
        """What stands here, quoted for a message."""
        self.skip()
        match = re.compile(r"[\w$.%#!@^\"\-]+|[^\s]").match(self.text, self.pos)
        return f"'{match.group()[:40]}'" if match is not None else "the end of the text"

    def balanced(self, start: int) -> int:
        """The position after the bracket that closes the one at `start`; strings inside are skipped."""
        stack: list[str] = []
        pos = start
        while (match := _BRACKETS.search(self.text, pos)) is not None:
            token, pos = match.group(), match.end()
            if token in _CLOSERS:
                stack.append(_CLOSERS[token])
            elif token == '"':
                raise self.error("string is not closed on its line", match.start())
            elif token in (")", "]", "}", ">"):
                if token != stack.pop():
                    raise self.error(f"unbalanced '{token}'", match.start())
                if not stack:
                    return pos
        raise self.error(f"'{self.text[start]}' is never closed", start)

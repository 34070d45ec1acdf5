"""What the reader of PTX raises."""

from __future__ import annotations


class PtxError(Exception):
    """A text is not the PTX that is read here; `line` of the text, from 1."""

    def __init__(self, message: str, line: int = 0) -> None:
        super().__init__(f"line {line} of the PTX: {message}" if line else message)
        self.message, self.line = message, line

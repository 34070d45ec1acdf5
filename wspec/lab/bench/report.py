"""Results on disk and on the screen."""

from __future__ import annotations

import json
import math
import os
import sys
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table as RichTable


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of text under columns; the same on screen and in Markdown."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]

    def markdown(self) -> str:
        """A Markdown table, numbers to the right."""
        lines = [f"### {self.title}", "", _row(self.columns), _row("---:" for _ in self.columns)]
        return "\n".join([*lines, *map(_row, self.rows), ""])

    def show(self, console: Console) -> None:
        table = RichTable(title=self.title, title_justify="left")
        for column in self.columns:
            table.add_column(column, justify="right", no_wrap=True)
        for row in self.rows:
            table.add_row(*row)
        console.print(table)


def _row(cells: Iterable[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def console() -> Console:
    """Standard output; wide when it is not a terminal, so that nothing is cut in a log."""
    return Console(width=None if sys.stdout.isatty() else 180, highlight=False, soft_wrap=True)


def geometric_mean(values: Iterable[float]) -> float:
    """NaN for no values."""
    logs = [math.log(value) for value in values]
    return math.exp(math.fsum(logs) / len(logs)) if logs else math.nan


def number(value: float | None, digits: int = 0) -> str:
    """A number for a table; a dash for none."""
    return "-" if value is None or math.isnan(value) else f"{value:.{digits}f}"


def write_json(path: str | Path, value: Any) -> None:
    """Write atomically: a reader, or a run that was cut short, never sees half a file. NaN becomes null."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile("w", dir=path.parent, delete=False, suffix=".tmp") as file:
        json.dump(_without_nan(value), file, indent=1, allow_nan=False)
        file.write("\n")
    os.replace(file.name, path)


def write_markdown(path: str | Path, tables: Sequence[Table], notes: Sequence[str] = ()) -> None:
    """Write tables, then notes as a list."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    parts = [table.markdown() for table in tables] + ["\n".join(f"- {note}" for note in notes)]
    path.write_text("\n".join(parts) + "\n")


def _without_nan(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, dict):
        return {str(key): _without_nan(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_without_nan(item) for item in value]
    return value

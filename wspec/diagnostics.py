"""What wspec tells a person: remarks with a reason code and a place in the person's own source.

A remark is a value. Passes return remarks or raise `Declined`; only `api` turns one into an error a user sees
(`WspecError`), and only when the user asked for that with `strict=True` or gave bad input.
"""

from __future__ import annotations

import ast
import difflib
import linecache
import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from wspec.ir.loc import UNKNOWN, FileLoc, Location, file_loc

SEVERITIES = ("remark", "warning", "error")

REASONS: dict[str, str] = {
    "specialized": "the kernel was warp-specialized",
    "tuned": "plans were timed, or could not be, on the arguments of a launch",
    "no-loop": "the kernel has no loop, so nothing can run ahead",
    "no-dot-loop": "no loop multiplies matrices on the tensor cores",
    "no-descriptor-load": "no loop that multiplies loads its tiles through a tensor descriptor",
    "short-loop": "the loop has too few iterations to pay for the handshakes",
    "unsupported-op": "an operation wspec does not know the effects of stands in the way",
    "unsupported-control-flow": "the control flow around the loop cannot be divided between warps",
    "memory-alias": "a load and a store may touch the same memory",
    "arguments-overlap": "arguments of a launch share memory that the specialized kernel takes to be apart",
    "rows-overlap": "rows that a launch stores reach into each other, which the specialized kernel takes not to",
    "promoted": "tiles that went through pointers go through tensor descriptors; nothing else has changed",
    "not-promoted": "tiles that go through pointers are not shown to be a tensor descriptor's",
    "torch-compile": "code of torch.compile launches Triton's own compilation of the kernel",
    "not-partitionable": "the operations cannot be divided into tasks",
    "shared-memory": "the rings do not fit into shared memory",
    "registers": "the registers of a task do not suffice",
    "num-ctas": "thread block clusters (num_ctas > 1) are not supported",
    "not-hopper": "the target is not a Hopper GPU (sm_90)",
    "disabled": "the compiler was turned off",
    "interpreter": "Triton's interpreter runs the kernel; there is nothing to compile",
    "not-persistent": "the blocks of the kernel cannot walk through tiles",
    "not-divided": "the tiles of the kernel cannot be divided between blocks",
    "excluded": "optimizations that exclude each other were asked for",
    "already-specialized": "the kernel states its own warp specialization",
    "own-specialization": "Triton's own specialization, which the kernel asks for, fails or is wrong",
    "no-chain": "a chain of tasks was asked for and cannot be had",
    "gate-slower": "the model expects the specialized kernel to be slower",
    "slower-when-timed": "launches took longer specialized than as the kernel was written",
    "serialized-wgmma": "ptxas serialized the asynchronous tensor core instructions",
    "internal-error": "wspec failed; this is a bug in wspec",
    "compile-error": "the back end did not accept the specialized kernel",
    "miscompiled": "the assembler's code does something else than what it was given",
    "cache-unusable": "what is compiled cannot be written to Triton's cache",
    "plan-mismatch": "the plan given does not fit the kernel",
    "triton-version": "this version of Triton is not supported",
    "bad-option": "an option has a value that is not allowed",
    "bad-input": "the kernel or its arguments cannot be understood",
    "check-failed": "the checker found an error in the specialized kernel",
    "check-undecided": "the checker could not prove the specialized kernel",
    "execution-error": "the executor met what no kernel may do, or what it does not know",
}


@dataclass(frozen=True, slots=True)
class Remark:
    """What was done, or why it was not, and where."""

    code: str  # a key of REASONS
    message: str
    location: Location = UNKNOWN
    path: tuple[tuple[str, Location], ...] = ()  # the steps that explain it, in order
    note: str = ""  # what to change
    severity: str = "remark"

    def __post_init__(self) -> None:
        if self.code not in REASONS:
            raise ValueError(f"unknown reason code {self.code!r}; add it to wspec.diagnostics.REASONS")
        if self.severity not in SEVERITIES:
            raise ValueError(f"unknown severity {self.severity!r}; one of {', '.join(SEVERITIES)}")


class Declined(Exception):
    """Raised inside the compiler when a kernel is to be left alone."""

    def __init__(self, remark: Remark) -> None:
        super().__init__(remark)
        self.remark = remark


class WspecError(Exception):
    """What a user sees with `strict=True`, or on bad input."""

    def __init__(self, remark: Remark) -> None:
        super().__init__(remark)
        self.remark = remark

    def __str__(self) -> str:
        return render(self.remark)


# ---------------------------------------------------------------------------------------------- to text


def render(remark: Remark, *, context: bool = True) -> str:
    """The remark as a person reads it: header, source line with a caret, aligned steps, note.

    `context=False` leaves the source line out.
    """
    place = file_loc(remark.location)
    where = "" if place is None else f"{place_text(place)}:{_column(place) + 1}: "
    lines = [f"{where}{remark.severity}: {remark.message} [{remark.code}]"]
    if context and place is not None:
        lines += _source_lines(place)
    lines += _path_lines(remark.path)
    if remark.note:
        lines.append(f"note: {remark.note}")
    return "\n".join(lines)


def in_words(remarks: Iterable[Remark]) -> tuple[str, ...]:
    """What they say, each once, with its place."""
    texts = ((remark.message, place_text(remark.location)) for remark in remarks)
    return tuple(dict.fromkeys(f"{message} ({place})" if place else message for message, place in texts))


def place_text(location: Location) -> str:
    """`file.py:12` of a location; "" when it is unknown."""
    place = file_loc(location)
    return "" if place is None else f"{_short_path(place.file)}:{place.line}"


def _short_path(path: str) -> str:
    """Relative to the working directory when that is shorter and does not climb out of it."""
    relative = os.path.relpath(path) if os.path.isabs(path) else path
    return path if relative.startswith("..") else relative


def _source_lines(place: FileLoc) -> list[str]:
    """The source line and a caret under the token; nothing when the file cannot be read."""
    source = linecache.getline(place.file, place.line).rstrip("\n")
    if not source.strip():
        return []
    column = min(_column(place), len(source))
    token = re.match(r"\w+", source[column:])
    tail = "~" * (len(token.group()) - 1) if token else ""
    # Keep tabs, so that the caret stands where the terminal puts the token.
    indent = "".join(ch if ch == "\t" else " " for ch in source[:column])
    return [f"  {source}", f"  {indent}^{tail}"]


def _path_lines(path: tuple[tuple[str, Location], ...]) -> list[str]:
    width = max((len(text) for text, _ in path), default=0)
    return [f"  {text:<{width}}  {place_text(location)}".rstrip() for text, location in path]


def _column(place: FileLoc) -> int:
    """The column in the file, from 0.

    Triton counts columns from 0, and in the text of the function after `textwrap.dedent`: methods and nested
    functions are off by their indentation, which is added back here.
    """
    return place.column + function_indent(place.file, place.line)


def function_indent(file: str, line: int) -> int:
    """The column at which the function around a line of a file begins, from 0."""
    spans = [span for span in _functions(file) if span[0] <= line <= span[1]]
    return max(spans)[2] if spans else 0


@lru_cache(maxsize=64)
def _functions(file: str) -> tuple[tuple[int, int, int], ...]:
    """(first line, last line, indentation) of every function in `file`."""
    try:
        tree = ast.parse("".join(linecache.getlines(file)))
    except (SyntaxError, ValueError):
        return ()
    found = (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))
    return tuple((node.lineno, node.end_lineno or node.lineno, node.col_offset) for node in found)


# --------------------------------------------------------------------------------------------- to a file


def to_json(remark: Remark) -> dict[str, Any]:
    """A plain dict; of locations only the place in the user's file is kept."""
    return {
        "code": remark.code,
        "message": remark.message,
        "location": _location_json(remark.location),
        "path": [[text, _location_json(location)] for text, location in remark.path],
        "note": remark.note,
        "severity": remark.severity,
    }


def from_json(data: dict[str, Any]) -> Remark:
    """The inverse of `to_json`."""
    path = tuple((str(text), _location_from(location)) for text, location in data["path"])
    location = _location_from(data["location"])
    return Remark(data["code"], data["message"], location, path, data["note"], data["severity"])


def _location_json(location: Location) -> list[str | int] | None:
    place = file_loc(location)
    return None if place is None else [place.file, place.line, place.column]


def _location_from(data: list[Any] | None) -> Location:
    return UNKNOWN if data is None else FileLoc(str(data[0]), int(data[1]), int(data[2]))


# ------------------------------------------------------------------------------- what a person got wrong


def bad_input(message: str, note: str = "") -> WspecError:
    """An error to raise; the command line prints it and ends with exit code 2."""
    return WspecError(Remark("bad-input", message, note=note, severity="error"))


def unknown(what: str, name: str, known: Iterable[str], where: str = "") -> WspecError:
    """`name` is no `what`: the close names if there are any, and all of them in the note."""
    names = list(known)
    close = difflib.get_close_matches(name, names, n=3, cutoff=0.6)
    guess = f"; did you mean {' or '.join(close)}?" if close else ""
    note = f"there {'is' if len(names) == 1 else 'are'}: {', '.join(names)}" if names else "there are none"
    return bad_input(f"{where}no {what} {name!r}{guess}", note)

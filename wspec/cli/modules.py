"""Modules in and out: a file or standard input, in generic form or in Triton's own syntax."""

from __future__ import annotations

import re
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from wspec import ir
from wspec.cli.child import in_child
from wspec.diagnostics import Remark, WspecError, bad_input
from wspec.ir.verify import Problem
from wspec.show.brief import print_brief

_PRETTY = re.compile(r"^\s*(?:module|[a-z]+\.(?:module|func))\b", re.M)  # generic form has these names in quotes
# The file libtriton read the text from: where operations without a location say they are.
_TEMPORARY = re.compile(rf'"{re.escape(tempfile.gettempdir())}/tmp\w+\.mlir":')
_LLVM = re.compile(r"^(?:target (?:triple|datalayout)|; ModuleID)", re.M)
_WARPS = (1, 2, 4, 8, 16, 32)
_PTX = re.compile(r"^\s*\.(?:version|target|visible) ", re.M)


def read_text(place: str) -> str:
    """The text of a file, or of standard input for `-`. Raises WspecError."""
    if place == "-":
        return sys.stdin.read()
    try:
        return Path(place).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = "it is not text" if isinstance(error, UnicodeDecodeError) else error.strerror
        raise bad_input(f"cannot read {place}: {reason}") from None


def read_module(text: str, place: str) -> ir.Operation:
    """The module in `text`. What is not generic goes through libtriton first. Raises WspecError."""
    if not text.strip():
        raise bad_input(f"{place} is empty")
    if _LLVM.search(text) or _PTX.search(text):
        raise bad_input(f"{place} is {'LLVM IR' if _LLVM.search(text) else 'PTX'}, not TTGIR")
    if _PRETTY.search(text):
        text = _generic(text, place)
    try:
        module = ir.read(text)
    except ir.ReadError as error:
        line = text.split("\n")[error.line - 1].strip()[:160]
        raise bad_input(f"{place}:{error}", f"the line is: {line}" if line else "") from None
    if (warps := module.int_attr("ttg.num-warps")) is not None and warps not in _WARPS:
        raise bad_input(f"{place}: ttg.num-warps is {warps}", f"a kernel has {', '.join(map(str, _WARPS))} warps")
    return module


def invalid(problems: Sequence[Problem], place: str) -> WspecError:
    """The error for a module that does not verify: the first problem, at its line of the source."""
    first, more = problems[0], len(problems) - 1
    message = f"{place} is not valid: {first.op.name}: {first.message}"
    note = f"and {more} more problem{'s' if more > 1 else ''}" if more else ""
    return WspecError(Remark("bad-input", message, first.op.location, note=note, severity="error"))


def _generic(text: str, place: str) -> str:
    from wspec import bridge

    try:
        generic = in_child(lambda: bridge.generic_text(bridge.reparse(text)), place)
    except bridge.BridgeError as error:
        raise bad_input(f"{place}: {error.message}", error.diagnostics.strip()) from None
    return _TEMPORARY.sub(f'"{place}":', generic)


def to_text(module: ir.Operation, form: str) -> str:
    """`generic` reads back; `brief` is for people; `pretty` is Triton's own syntax. Raises WspecError."""
    if form == "brief":
        return print_brief(module)
    text = ir.print_module(module, locations=form != "short", names=form == "short")
    if form != "pretty":
        return text
    from wspec import bridge

    try:
        return in_child(lambda: bridge.to_pretty(text), "the module")
    except bridge.BridgeError as error:
        note = "operations of wspec's own (wspec.*) have no such syntax; use --form brief"
        raise bad_input(f"libtriton does not take this module: {error.message}", note) from None


def write_output(text: str, place: str | None) -> None:
    """To a file, or to standard output."""
    if place is None or place == "-":
        sys.stdout.write(text if text.endswith("\n") else text + "\n")
        return
    try:
        Path(place).write_text(text, encoding="utf-8")
    except OSError as error:
        raise bad_input(f"cannot write {place}: {error.strerror}") from None

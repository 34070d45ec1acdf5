"""MLIR text in and out of libtriton, with libtriton's diagnostics in our exceptions."""

from __future__ import annotations

import contextlib
import os
import re
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, TypeVar

from triton._C.libtriton import ir, nvidia

from wspec.bridge.versions import INSTALLED
from wspec.ir.core import Operation
from wspec.ir.stages import WHOLE_VIEWS
from wspec.ir.types import i32

T = TypeVar("T")
_stderr_lock = threading.RLock()
_thread = threading.local()

# ModuleOp refuses attributes without a dialect prefix, and libtriton prints what it cannot verify in generic form.
_MARK = "wspec_generic_form"
_MARK_TEXT = re.compile(rf"\{{{_MARK} = true\}} |{_MARK} = true, |, {_MARK} = true")


class BridgeError(Exception):
    """libtriton or ptxas refused something; `diagnostics` is what they wrote to stderr."""

    def __init__(self, message: str, diagnostics: str = "") -> None:
        super().__init__(message + (f"\n{diagnostics.rstrip()}" if diagnostics.strip() else ""))
        self.message = message
        self.diagnostics = diagnostics


def new_context() -> Any:
    """A context that knows every dialect of the CUDA backend."""
    context = ir.context()
    ir.load_dialects(context)
    nvidia.load_dialects(context)
    return context


def reparse(text: str, context: Any = None) -> Any:
    """A libtriton module from generic or pretty text, parsed and verified. Raises BridgeError with the diagnostics."""
    context = new_context() if context is None else context
    with tempfile.NamedTemporaryFile("w", suffix=".mlir") as file:
        file.write(INSTALLED.spelled(text))
        file.flush()
        try:
            module = captured("this is not valid IR", partial(ir.parse_mlir_module, file.name, context))
        except BridgeError as error:
            raise _with_lines(error, file.name, text) from None
    module.context = context  # keeps the context alive as long as the module
    return module


def for_back_end(module: Operation) -> Operation:
    """A module that comes from elsewhere, in place, with what a front end's says of the installed back end."""
    if INSTALLED.whole_views:
        module.attributes[f'"{WHOLE_VIEWS}"'] = i32(1)
    return module


def _with_lines(error: BridgeError, path: str, text: str) -> BridgeError:
    """The error with the guilty lines of `text` in place of the name of a temporary file."""
    lines = text.split("\n")
    shown = error.diagnostics.replace(path, "<ir>")
    guilty = dict.fromkeys(int(number) for number in re.findall(r'"<ir>":(\d+):\d+', shown))
    quotes = [f"<ir>:{number}: {lines[number - 1].strip()}" for number in guilty if number <= len(lines)]
    return BridgeError(error.message, "\n".join([shown.rstrip(), *quotes[:10]]))


def generic_text(module: Any) -> str:
    """The module in MLIR's generic form, with locations.

    The module is spent: the mark that makes libtriton print generic form cannot be taken off again, and it would
    not verify. Print first, or `reparse` the text, to go on with it.
    """
    module.set_attr(_MARK, ir.builder(module.context).get_bool_attr(True))
    text: str = module.str()
    head, mark, _ = text.rpartition(_MARK)
    if not mark or not head.rstrip().endswith(("{", ",")):
        raise BridgeError("libtriton did not print the module in generic form")
    line = text.rfind("\n", 0, len(head)) + 1
    return text[:line] + _MARK_TEXT.sub("", text[line:], count=1)


def to_pretty(text: str) -> str:
    """The same module in Triton's own syntax."""
    return str(reparse(text).str())


def run_passes(module: Any, add: Callable[[Any], None], name: str) -> None:
    """Run the passes that `add` puts on a pass manager. Raises BridgeError with the diagnostics."""
    manager = ir.pass_manager(module.context)
    manager.enable_debug()
    add(manager)
    captured(f"{name} failed", lambda: manager.run(module, name))


def verify(module: Any) -> None:
    """Raises BridgeError when the module does not verify."""
    if not captured("the module does not verify", module.verify):
        raise BridgeError("the module does not verify")


def captured(message: str, call: Callable[[], T]) -> T:
    """`call()`; a RuntimeError becomes a BridgeError that carries what was written to file descriptor 2.

    libtriton reports only there. On success the text goes on to the real stderr, so that nothing is lost.
    """
    if getattr(_thread, "goes_with_others", False):
        try:
            return call()
        except (RuntimeError, IndexError, ValueError) as error:
            raise BridgeError(f"{message} ({error})") from error
    with _stderr_lock, _captured_stderr() as read:
        try:
            result = call()
        except (RuntimeError, IndexError, ValueError) as error:
            raise BridgeError(f"{message} ({error})", read(True)) from error
        read(False)
        return result


@contextlib.contextmanager
def words_go_with_others() -> Iterator[None]:
    """This thread works beside one that waits for it, and neither waits for the other while words are being captured:
    what is said here is taken for the other's."""
    _thread.goes_with_others = True
    try:
        yield
    finally:
        _thread.goes_with_others = False


@contextlib.contextmanager
def _captured_stderr() -> Iterator[Callable[[bool], str]]:
    """Point file descriptor 2 at a file. The value is called with whether to keep the text from the real stderr."""
    sys.stderr.flush()
    saved = os.dup(2)
    keep = False
    with tempfile.TemporaryFile("w+b") as file:

        def read(hide: bool) -> str:
            nonlocal keep
            keep = hide
            file.seek(0)
            return file.read().decode(errors="replace")

        os.dup2(file.fileno(), 2)
        try:
            yield read
        finally:
            sys.stderr.flush()
            os.dup2(saved, 2)
            file.seek(0)
            text = file.read()
            if text and not keep:
                os.write(2, text)
            os.close(saved)

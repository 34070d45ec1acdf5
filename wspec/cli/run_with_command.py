"""`wspec run-with`: a Python program whose Triton kernels all go through wspec."""

from __future__ import annotations

import argparse
import importlib.util
import os
import runpy
import sys
from pathlib import Path

import wspec
from wspec.diagnostics import Remark, WspecError


def run(args: argparse.Namespace) -> int:
    """The program's exit code. An exception of the program ends as Python ends it, with its traceback."""
    os.environ["WSPEC"] = "1"  # for processes that the program starts
    sys.argv = [args.program, *args.arguments]
    if args.module and importlib.util.find_spec(args.program) is None:
        raise WspecError(Remark("bad-input", f"there is no module {args.program!r}", severity="error"))
    if not args.module and not Path(args.program).is_file():
        raise WspecError(Remark("bad-input", f"there is no file {args.program!r}", severity="error"))
    with wspec.enable():
        try:
            if args.module:
                sys.path.insert(0, os.getcwd())
                runpy.run_module(args.program, run_name="__main__", alter_sys=True)
            else:
                sys.path.insert(0, str(Path(args.program).resolve().parent))
                runpy.run_path(args.program, run_name="__main__")
        except SystemExit as stop:
            if stop.code is not None and not isinstance(stop.code, int):
                print(stop.code, file=sys.stderr)
            return stop.code if isinstance(stop.code, int) else int(stop.code is not None)
        except Exception:
            sys.excepthook(*sys.exc_info())
            return 1
        finally:
            if not args.quiet:
                print(wspec.report(), file=sys.stderr)
    return 0

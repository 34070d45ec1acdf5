"""The command line: `wspec COMMAND INPUT ...`.

Exit codes: 0 it is done (a kernel that is left alone, with its reason, is done too); 1 it failed: the compiler,
`--strict`, a proof, a run or a benchmark; 2 the input cannot be used: one error on stderr says why.
"""

from __future__ import annotations

import os
import sys
import traceback
import warnings
from collections.abc import Sequence

from wspec.cli.environment import bound_memory, check_variables, out_of_memory
from wspec.cli.parser import make_parser
from wspec.diagnostics import WspecError, render

DONE, FAILED, UNUSABLE = 0, 1, 2
_INTERRUPTED = 130
_ABOUT_INPUT = ("bad-input", "bad-option", "plan-mismatch", "cache-unusable")


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit code and never raises for what a person can get wrong."""
    show_traceback = False
    warnings.filterwarnings("ignore", message="Failed to initialize NumPy")  # torch; nothing here uses it
    try:
        args = make_parser().parse_args(argv)
        show_traceback = args.traceback
        check_variables()
        bound_memory()
        code: int = args.run(args)
        sys.stdout.flush()
        return code
    except SystemExit as stop:  # argparse, after its own message
        return stop.code if isinstance(stop.code, int) else UNUSABLE
    except BrokenPipeError:  # `wspec dump ... | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return DONE
    except KeyboardInterrupt:
        return _INTERRUPTED
    except Exception as error:
        if show_traceback:
            traceback.print_exc()
        return _report(error)


def _report(error: Exception) -> int:
    """One error on stderr; what nobody foresaw is a bug."""
    error = out_of_memory(error) or error
    if isinstance(error, WspecError):
        print(render(error.remark), file=sys.stderr)
        return UNUSABLE if error.remark.code in _ABOUT_INPUT else FAILED
    if _is_about_input(error):
        print(f"error: {str(error).strip()}", file=sys.stderr)
        return UNUSABLE
    text = str(error).strip().split("\n")[0]
    print(f"error: internal error: {type(error).__name__}: {text}", file=sys.stderr)
    print("note: this is a bug in wspec; `wspec --traceback ...` shows where", file=sys.stderr)
    return FAILED


def _is_about_input(error: Exception) -> bool:
    """Errors whose text tells a person what is wrong with a file."""
    from wspec import ir
    from wspec.ir.verify import InvalidIR
    from wspec.model.machine import MachineError
    from wspec.plan.plan import PlanError

    if isinstance(error, ir.ReadError | InvalidIR | PlanError | MachineError | OSError):
        return True
    bridge = sys.modules.get("wspec.bridge")  # not imported when no command needed it
    return bridge is not None and isinstance(error, bridge.BridgeError)


__all__ = ["main"]

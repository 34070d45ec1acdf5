"""The back end in a process of its own: an assertion inside libtriton then costs the kernel, not the program.

Off by default (`isolate=True` or `WSPEC_ISOLATE=1` turns it on): it adds the second or two that importing triton takes.
"""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from wspec.bridge.backend import Finished, Text, finish
from wspec.bridge.frontend import KernelSource
from wspec.bridge.ptx.edits import NO_EDITS, PtxEdits
from wspec.bridge.text import BridgeError


def finish_isolated(
    text: str, source: KernelSource, edits: PtxEdits = NO_EDITS, told: Callable[[Text], None] | None = None
) -> Finished:
    """`finish` with the same arguments in another process. Raises BridgeError also when that process dies.

    `told` hears of the final module when the other process is done.
    """
    with tempfile.TemporaryDirectory(prefix="wspec-") as folder:
        request, answer = Path(folder, "request"), Path(folder, "answer")
        request.write_bytes(pickle.dumps((text, source.options, source.target, edits)))
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        command = _command(request, answer)
        done = subprocess.run(command, env=environment, capture_output=True, text=True, errors="replace", check=False)
        if done.returncode != 0:
            raise BridgeError(f"libtriton died ({_reason(done.returncode)})", done.stderr)
        finished: Finished | tuple[str, str] = pickle.loads(answer.read_bytes())
    if isinstance(finished, Finished):
        if told is not None:
            told(lambda: finished.final)
        return finished
    raise BridgeError(*finished)


def _command(request: Path, answer: Path) -> list[str]:
    return [sys.executable, "-m", "wspec.bridge.isolate", str(request), str(answer)]


def _reason(code: int) -> str:
    return signal.Signals(-code).name if code < 0 else f"exit code {code}"


def main(request: str, answer: str) -> None:
    """Run in the other process: read a request, write a Finished or a BridgeError's arguments."""
    text, options, target, edits = pickle.loads(Path(request).read_bytes())
    try:
        result: Finished | tuple[str, str] = finish(text, KernelSource(None, options, target), edits)
    except BridgeError as error:
        result = (error.message, error.diagnostics)
    Path(answer).write_bytes(pickle.dumps(result))


if __name__ == "__main__":
    main(*sys.argv[1:])

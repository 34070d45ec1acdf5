"""Failures of ours: a remark for the user, and a file with what is needed to repeat them."""

from __future__ import annotations

import hashlib
import os
import re
from pathlib import Path

from triton import knobs

from wspec.diagnostics import Remark
from wspec.ir.loc import Location
from wspec.options import Options


def failure(code: str, message: str, place: Location, reproducer: Path | None) -> Remark:
    """The remark; the plain kernel runs."""
    return Remark(code, message, place, note=plain_runs(reproducer), severity="error")


def plain_runs(reproducer: Path | None) -> str:
    """What happens instead, and what to do about it."""
    with_what = f" with {reproducer}" if reproducer is not None else "; no file to repeat it with could be written"
    return f"the plain kernel runs instead; please report this{with_what}"


def write_reproducer(name: str, text: str, details: str, options: Options) -> Path | None:
    """A file with the IR and, as comments, what went wrong with it; the same failure gives the same file.

    None where it cannot be written: a failure of ours must not become one of the program.
    """
    folder = Path(options.dump or os.path.join(knobs.cache.dir, "wspec-reproducers"))
    path = folder / f"{name[:60]}-{hashlib.sha256(text.encode()).hexdigest()[:12]}.ttgir"
    comments = "".join(f"// {line}\n" for line in [repr(options), *details.rstrip().split("\n")])
    try:
        folder.mkdir(parents=True, exist_ok=True)
        path.write_text(comments + text)
    except OSError:
        return None
    return path


def first_line(error: Exception) -> str:
    """The error in one line, with the first complaint of the tool that failed."""
    lines = str(error).strip().split("\n")
    complaint = next((line.strip() for line in lines[1:] if re.search(r"\b(error|fatal|Assertion)\b", line)), "")
    return f"{lines[0]}: {complaint}" if complaint else lines[0]

"""What of the environment no command can work with, and how much memory a command may take."""

from __future__ import annotations

import os
import resource
import tempfile
from pathlib import Path

from wspec.diagnostics import WspecError, bad_input
from wspec.options import misspelt

_MEMORY_SHARE = 0.75  # of the machine's


def check_variables() -> None:
    """Raises WspecError for a `WSPEC_...` variable that no option has."""
    if found := misspelt():
        raise found[0]


def check_folders() -> None:
    """Raises WspecError where compiled kernels, or files on the way to them, have no place."""
    _check_cache()
    try:
        with tempfile.TemporaryFile() as file:
            file.write(b"\0")
    except OSError as error:
        raise bad_input(f"no temporary file can be written: {error.strerror}", "TMPDIR names another folder") from None


def _check_cache() -> None:
    given = os.environ.get("TRITON_CACHE_DIR")
    if given is not None and not given.strip():
        raise bad_input("TRITON_CACHE_DIR is empty", "unset it, or let it name a folder")
    home = os.environ.get("TRITON_HOME") or str(Path.home())
    folder = Path(given) if given is not None else Path(home, ".triton", "cache")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(b"\0" * 4096)
    except OSError as error:
        message = f"Triton's cache {folder} cannot be written to: {error.strerror}"
        raise bad_input(message, "TRITON_CACHE_DIR names another folder") from None


def bound_memory() -> None:
    """Let what asks for more memory than the machine can spare fail, rather than the machine."""
    whole = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    most = int(_MEMORY_SHARE * whole)
    limits = [most, *(limit for limit in (soft, hard) if limit != resource.RLIM_INFINITY)]
    resource.setrlimit(resource.RLIMIT_DATA, (min(limits), hard))


def out_of_memory(error: Exception) -> WspecError | None:
    """The error of something that is too large; None for another error."""
    said = str(error)
    asked = isinstance(error, MemoryError) or "not enough memory" in said or "allocate memory" in said
    if not asked:
        return None
    return bad_input("there is not enough memory for this", "take smaller sizes, or a smaller grid")

"""Digests of the programs that decide a result: Triton's own files, and ours.

Triton's key is a digest of its sources and of libtriton, 0.4 GB that take 0.25 s of hashing. Here that is one call over
a mapped file, which leaves the interpreter free throughout, on a thread that begins as soon as a kernel is decorated or
compiled; Triton's own loop over pieces of it takes 0.35 s, and each piece would wait for whoever interprets meanwhile.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import mmap
import os
import pkgutil
import sysconfig
import threading
from collections.abc import Iterator
from pathlib import Path

import triton
from triton.runtime import cache as triton_cache

from wspec.version import VERSION

_SOURCES = (".py", ".json", ".toml")
_ELSEWHERE = ("kernels", "lab", "cli", "execute", "show", "specs", "tune", "__pycache__")  # no part in compiling

_lock = threading.Lock()
_library: threading.Thread | None = None
_rest: threading.Thread | None = None


def hash_library_ahead() -> None:
    """Begin with what takes longest, once in a process, and our sources behind it."""
    global _library
    with _lock:
        if _library is None:
            _library = threading.Thread(target=_hash_library, name="wspec-hash", daemon=True)
            _library.start()


def hash_ahead() -> None:
    """Begin with all that a key takes, and with Triton's own key, which a kernel that is left alone takes."""
    global _rest
    hash_library_ahead()
    with _lock:
        if _rest is None:
            _rest = threading.Thread(target=_hash_rest, name="wspec-hash-rest", daemon=True)
            _rest.start()


def _hash_library() -> None:
    for one in (_library_digest, wspec_digest):
        _quietly(one)


def _hash_rest() -> None:
    if _library is not None:
        _library.join()
    for one in (triton_key, triton_cache.triton_key):
        _quietly(one)


def _quietly(digest: functools._lru_cache_wrapper[str]) -> None:
    with contextlib.suppress(OSError):  # whoever asks for a key will see it
        digest()


def is_library_hashed() -> bool:
    """Would a key not wait for the digest of libtriton?"""
    return _library_digest.cache_info().currsize > 0


@functools.lru_cache(maxsize=1)
def triton_key() -> str:
    """What Triton 3.6's `triton.runtime.cache.triton_key` returns, to the letter; a test compares the two."""
    if _library is not None:
        _library.join()
    root = Path(triton.__file__).parent
    packages = {name: list(_modules(root / name, f"triton.{name}.")) for name in ("compiler", "backends", "language")}
    files = [Path(triton_cache.__file__), *packages["compiler"], *packages["backends"]]
    before = [hashlib.sha256(path.read_bytes()).hexdigest() for path in files]
    behind = [hashlib.sha256(path.read_bytes()).hexdigest() for path in packages["language"]]
    return str(triton.__version__) + "-".join([*before, _library_digest(), *behind])


def _modules(folder: Path, prefix: str) -> Iterator[Path]:
    for module in pkgutil.walk_packages([str(folder)], prefix=prefix):
        spec = module.module_finder.find_spec(module.name, None)
        if spec is not None and spec.origin is not None:
            yield Path(spec.origin)


@functools.lru_cache(maxsize=1)
def _library_digest() -> str:
    suffix = str(sysconfig.get_config_var("EXT_SUFFIX")).rpartition(".")[2]
    path = Path(triton.__file__).parent / "_C" / f"libtriton.{suffix}"
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        return hashlib.sha256(content).hexdigest()


@functools.lru_cache(maxsize=1)
def wspec_digest() -> str:
    """Our version and every source and data file that takes part in compiling."""
    hasher = hashlib.sha256(VERSION.encode())
    root = Path(__file__).parents[1]
    for path in sorted(_source_files(root)):
        hasher.update(str(path.relative_to(root)).encode() + b"\0" + path.read_bytes() + b"\0")
    return hasher.hexdigest()


def _source_files(root: Path) -> Iterator[Path]:
    for folder, subfolders, files in os.walk(root, followlinks=True):  # passes is a link in a checkout
        subfolders[:] = [name for name in subfolders if name not in _ELSEWHERE]
        yield from (Path(folder, name) for name in files if name.endswith(_SOURCES))

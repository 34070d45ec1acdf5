"""Results on disk, in Triton's cache, under a key of everything that decides them."""

from __future__ import annotations

import hashlib
import json
import os
import threading
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import triton
from triton import knobs

from wspec.bridge.digest import triton_key, wspec_digest
from wspec.bridge.files import files_of, moved
from wspec.bridge.frontend import KernelSource
from wspec.bridge.versions.internals import internal
from wspec.diagnostics import Remark, bad_input, from_json, to_json
from wspec.host_descriptors import Promotion
from wspec.ir.disjoint import Pair
from wspec.ir.rows import Apart
from wspec.ir.stages import NUM_STAGES
from wspec.options import Options
from wspec.tile_scheduler import LaunchWay, TileLoop

if TYPE_CHECKING:
    from wspec.bridge.backend import Finished

get_cache_invalidating_env_vars = internal("triton._C.libtriton", "get_cache_invalidating_env_vars")
FileCacheManager = internal("triton.runtime.cache", "FileCacheManager")
get_cache_manager = internal("triton.runtime.cache", "get_cache_manager")

Group = Mapping[str, str]  # file name -> path, as Triton's cache managers give it


@dataclass(frozen=True, slots=True)
class Result:
    """What became of one specialization of a kernel."""

    specialized: bool
    remarks: tuple[Remark, ...]
    plan: str = ""  # the plan's text; empty when there is none
    ptxas_log: str = ""
    proof: str = ""  # what the checker said of the specialized kernel, in a line; empty when there is none
    tile_loop: TileLoop | None = None  # how blocks take tiles; None where each takes one
    blocks_per_sm: int = 1
    disjoint: tuple[Pair, ...] = ()  # arguments of the compiled function whose memory must not overlap, by position
    module: str = ""  # a digest of the specialized module; empty when there is none
    ways: tuple[LaunchWay, ...] = ()  # what a launch may choose between, this kernel first; none: there is no choice
    promotion: Promotion | None = None  # descriptors that the launch makes; None: the kernel has its user's arguments
    rows: tuple[tuple[Apart, Remark], ...] = ()
    """What must hold of a launch's numbers, by positions in the compiled function; what is so where it does not."""

    @property
    def is_ours(self) -> bool:
        """Is there a binary of ours: specialized, or not divided into tasks and with descriptors for its pointers?"""
        return self.specialized or self.promotion is not None

    @property
    def reason(self) -> Remark | None:
        """Why the kernel was not specialized; None when it was."""
        if self.specialized or not self.remarks:
            return None
        grave = [remark for remark in self.remarks if remark.severity == "error"]
        return (grave or list(self.remarks))[-1]


def function_digest(options: Options, plan: str) -> str:
    """What our part adds to a function's own cache key."""
    return sha256(wspec_digest(), options.digest(), plan)


def key(source: KernelSource, options: Options, plan: str = "") -> str:
    """The key of one specialization: wspec, plan, kernel, arguments, launch options, Triton, ptxas and environment."""
    return sha256(*_of_program(source, options, plan), wspec_digest(), source.backend.hash(), triton_key())


def _of_program(source: KernelSource, options: Options, plan: str) -> tuple[str, ...]:
    """The part of a key that is no tool's."""
    kernel = (source.ast.hash(), source.options.hash(), str(source.target))
    return options.digest(), plan, *kernel, _environment()


def _environment() -> str:
    """The variables that Triton says decide what it makes."""
    return str(sorted(get_cache_invalidating_env_vars().items()))


def note_stored(source: KernelSource, options: Options, plan: str) -> None:
    """Remember that the kernel is in the cache, so that it can be told before the digests of all tools are there."""
    _manager(sha256("stored", *_of_program(source, options, plan))).put("", "stored")


def seems_stored(source: KernelSource, options: Options, plan: str) -> bool:
    """Has the kernel been stored, by these tools or others? A hint: what is run comes under its full key."""
    return _manager(sha256("stored", *_of_program(source, options, plan))).get_file("stored") is not None


def sha256(*parts: str) -> str:
    """A digest of texts."""
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def may_reuse(options: Options) -> bool:
    """May a result be taken from the cache?"""
    return options.cache and options.dump is None and not knobs.compilation.always_compile


def load(key: str, source: KernelSource) -> tuple[Result, Group] | None:
    """What is stored under `key`, with remarks on the source's own files.

    None when nothing is, or when a file of it is gone or damaged: it is made again then, and stored over it.
    """
    name = _file_name(source.name)
    try:
        group = _manager(key).get_group(f"{name}.wspec") or {}
        data = json.loads(Path(group[f"{name}.wspec"]).read_text())
        result = _result_from(data)
        if any(_digest(Path(group[file]).read_bytes()) != digest for file, digest in data["files"].items()):
            return None
        places, here = tuple(data["places"]), files_of(source)
        rows = tuple((apart, moved(one, places, here)) for apart, one in result.rows)
        return replace(result, remarks=tuple(moved(one, places, here) for one in result.remarks), rows=rows), group
    except (KeyError, OSError, ValueError, TypeError, AttributeError):
        return None


def store(
    key: str, source: KernelSource, result: Result, ttir: str = "", finished: Finished | None = None
) -> tuple[Result, Group]:
    """Write the result, and the kernel if there is one; several processes may do so at once.

    Every file is replaced atomically, and the list of files that `load` reads comes last. Raises OSError, which says
    how to choose another folder.
    """
    files: dict[str, str | bytes] = {}
    if finished is not None:
        metadata = json.dumps(_metadata(key, source, finished), default=vars)
        texts = {"ttir": ttir, "ttgir": finished.final, "llir": finished.llir, "ptx": finished.ptx}
        files = {**texts, "cubin": finished.cubin, "json": metadata}
    name = _file_name(source.name)
    return _write(key, source, result, {f"{name}.{kind}": data for kind, data in files.items()})


def _write(key: str, source: KernelSource, result: Result, files: Mapping[str, str | bytes]) -> tuple[Result, Group]:
    name, manager = _file_name(source.name), _manager(key)
    digests = {file: _digest(data.encode() if isinstance(data, str) else data) for file, data in files.items()}
    head = json.dumps({**_result_json(result), "files": digests, "places": files_of(source)})
    try:
        group = {file: manager.put(data, file) for file, data in {**files, f"{name}.wspec": head}.items()}
        manager.put_group(f"{name}.wspec", group)
    except OSError as error:
        raise _not_written(error) from error
    return result, group


def _not_written(error: OSError) -> OSError:
    """The error of a folder that is full or read-only, with the setting that names another."""
    why = f"cannot write to Triton's cache: {error.strerror or error}; TRITON_CACHE_DIR names another folder"
    return OSError(error.errno, why, str(knobs.cache.dir))


def _manager(key: str) -> Any:
    """Triton's manager of the cache's folder of that key. Raises WspecError where there can be none."""
    try:
        return get_cache_manager(key)
    except RuntimeError as error:
        raise bad_input(f"Triton has no cache: {error}", "TRITON_CACHE_DIR names its folder") from None
    except OSError as error:
        raise _not_written(error) from error


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


# --------------------------------------------------------------------- kernels that are equal, kernels on their way

_shared: dict[str, str] = {}  # what makes kernels equal -> the key of one of them
_expected: dict[str, threading.Event] = {}  # the key of a kernel -> set when nobody else works on it any more
_PATIENCE_S = 600.0  # no kernel takes that long; who works on it is stuck
os.register_at_fork(after_in_child=_expected.clear)  # nobody would tell a fork of this process


def share(source: KernelSource, text: str, options: Options, plan: str) -> str:
    """A digest over what decides the specialized kernel in this process once `text`, the TTGIR, is there.

    All but `num_stages`: it is for Triton's pipeliner, which a specialized kernel does not pass through. Whether it is
    specialized may hang on it.
    """
    text = text.replace(f'"{NUM_STAGES}" = {source.options.num_stages} : i32', "")
    theirs = sorted((name, str(value)) for name, value in source.options.__dict__.items() if name != "num_stages")
    return sha256(options.digest(), plan, source.name, text, str(theirs), str(source.target), _environment())


def remember(share: str, key: str) -> bool:
    """What is or will be stored under `key` is what every kernel with that `share` becomes. Is it the first of them?"""
    return _shared.setdefault(share, key) == key


def is_shared(share: str) -> bool:
    """Is, or will be, a kernel with that `share` stored?"""
    return share in _shared


def load_shared(share: str, key: str, source: KernelSource, plan: str, module: str) -> tuple[Result, Group] | None:
    """What is stored for an equal kernel, stored under `key` as well; None when there is nothing, or when that one
    became another `module`. `plan` is this kernel's own, which may differ in what the plain one is expected to take.
    """
    other = _shared.get(share, key)
    if other == key:
        return None
    wait_for(other)
    found = load(other, source)
    if found is None:
        return None
    result, group = found
    if result.module != module:
        return None
    result = replace(result, plan=plan)
    own: dict[str, str | bytes] = {}
    try:
        for file, path in group.items():
            data = Path(path).read_bytes()
            if file.endswith(".json"):
                launched = {"hash": key, "num_stages": source.options.num_stages}
                own[file] = json.dumps({**json.loads(data), **launched}).encode()
            elif not file.endswith(".wspec"):
                own[file] = data
        return _write(key, source, result, own)
    except OSError:
        return None


def load_awaited(key: str, source: KernelSource) -> tuple[Result, Group] | None:
    """What is stored under `key`, or will be when another process is done with it."""
    found = load(key, source)
    return load(key, source) if found is None and wait_for(key) else found


def expect(key: str, done: threading.Event) -> None:
    """Another process is about to store a kernel under `key`; `done` is set when it has, or has failed to."""
    _expected[key] = done


def is_expected(key: str) -> bool:
    """Does another process work on it?"""
    return key in _expected


def wait_for(key: str) -> bool:
    """Wait until no other process works on the kernel of that key; whether one did."""
    done = _expected.get(key)
    if done is None:
        return False
    done.wait(_PATIENCE_S)
    _expected.pop(key, None)
    return True


# ------------------------------------------------------------------------------------------------------- files


def is_on_disk() -> bool:
    """Is Triton's cache the folder that other processes share, and no manager of the user's own?"""
    return knobs.cache.manager_class in (None, FileCacheManager)


def _file_name(name: str) -> str:
    return name[:150]  # as Triton does: with its suffixes the name must stay below 255 characters


def _metadata(key: str, source: KernelSource, finished: Finished) -> dict[str, Any]:
    """What triton.compile writes, so that the ordinary launcher finds it."""
    options, env = source.options.__dict__, get_cache_invalidating_env_vars()
    head = {"hash": key, "target": source.target, **options, **env, "triton_version": triton.__version__}
    return {**head, **finished.metadata}


def _result_json(result: Result) -> dict[str, Any]:
    remarks = [to_json(remark) for remark in result.remarks]
    return {
        "specialized": result.specialized,
        "remarks": remarks,
        "plan": result.plan,
        "ptxas_log": result.ptxas_log,
        "proof": result.proof,
        "tile_loop": None if result.tile_loop is None else result.tile_loop.to_data(),
        "blocks_per_sm": result.blocks_per_sm,
        "disjoint": result.disjoint,
        "module": result.module,
        "ways": [way.to_data() for way in result.ways],
        "promotion": None if result.promotion is None else result.promotion.to_data(),
        "rows": [[apart.to_data(), to_json(remark)] for apart, remark in result.rows],
    }


def _result_from(data: dict[str, Any]) -> Result:
    remarks = tuple(from_json(item) for item in data["remarks"])
    texts = {name: str(data[name]) for name in ("plan", "ptxas_log", "proof", "module")}
    tiles = None if data["tile_loop"] is None else TileLoop.from_data(data["tile_loop"])
    pairs = tuple((int(one), int(other)) for one, other in data["disjoint"])
    return Result(
        bool(data["specialized"]), remarks, **texts, tile_loop=tiles, blocks_per_sm=int(data["blocks_per_sm"]),
        disjoint=pairs, ways=tuple(LaunchWay.from_data(way) for way in data["ways"]),
        promotion=None if data["promotion"] is None else Promotion.from_data(data["promotion"]),
        rows=tuple((Apart.from_data(apart), from_json(remark)) for apart, remark in data["rows"]),
    )  # fmt: skip

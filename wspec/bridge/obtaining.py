"""What a launch runs: from the cache, or made now.

Compiler, back end and checker are imported when a kernel has to be made: a launch from the cache needs none of them.
"""

from __future__ import annotations

import functools
from dataclasses import replace
from typing import TYPE_CHECKING

from triton import knobs

from wspec.bridge import cache
from wspec.bridge.cache import Group, Result, may_reuse
from wspec.bridge.collector import collector_paused
from wspec.bridge.digest import hash_library_ahead, is_library_hashed
from wspec.bridge.files import kernel_location
from wspec.bridge.frontend import KernelSource
from wspec.bridge.proof import Checker
from wspec.bridge.versions import unknown_version
from wspec.diagnostics import Remark
from wspec.options import Options
from wspec.target.hopper import ARCH, ARCH_NAME, BACKEND

if TYPE_CHECKING:
    from wspec.bridge.compile import Compiler


def obtain(
    source: KernelSource, options: Options, compiler: Compiler, checker: Checker, plan: str = ""
) -> tuple[Result, Group]:
    """The result for `source`, from the cache or made now. Raises only what Triton's own front end raises.

    A failure of ours is not stored: it may be the machine's (no space, a killed ptxas, no time to check), and it is a
    bug otherwise. An error that the checker found is: the same kernel has it again.
    """
    hindered = not_asked(source, options)
    if hindered is not None:
        return Result(False, (hindered,)), {}
    try:
        return _obtained(source, options, compiler, checker, plan)
    except OSError as error:  # no space, no permission: where the plain kernel is in the cache, it runs
        where = f" ({error.filename})" if error.filename else ""
        message = f"{source.name} is not specialized: {error.strerror or error}{where}"
        note = "TRITON_CACHE_DIR, TMPDIR and the option dump name the folders that are written to"
        remark = Remark("cache-unusable", message, kernel_location(source), note=note, severity="error")
        return Result(False, (remark,)), {}


def _obtained(
    source: KernelSource, options: Options, compiler: Compiler, checker: Checker, plan: str
) -> tuple[Result, Group]:
    hash_library_ahead()
    key = functools.cache(lambda: cache.key(source, options, plan))
    with collector_paused():
        looks = may_reuse(options) and (is_library_hashed() or cache.seems_stored(source, options, plan))
        found = cache.load_awaited(key(), source) if looks else None
        if found is not None:
            return found
        from wspec.bridge.compile import Job

        return Job(source, options, compiler, checker, plan).obtained(key, looks)


def not_asked(source: KernelSource, options: Options) -> Remark | None:
    """Why the compiler is not even asked."""
    place = kernel_location(source)
    if not options.enabled:
        return Remark("disabled", "wspec is turned off (enabled=False or WSPEC_ENABLED=0)", place)
    if (source.target.backend, source.target.arch) != (BACKEND, ARCH) or source.options.arch != ARCH_NAME:
        target = f"{source.target.backend}:{source.target.arch}"
        return Remark("not-hopper", f"the target is {target}; wspec specializes for cuda:90", place)
    unknown = unknown_version()
    if unknown is not None:
        return replace(unknown, location=place)
    overridden = source.options.ir_override or knobs.compilation.override or source.options.instrumentation_mode
    if overridden or knobs.runtime.add_stages_inspection_hook is not None:
        return Remark("disabled", "Triton's own compilation is overridden or instrumented", place)
    return None

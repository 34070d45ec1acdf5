"""The only package that imports triton: kernel -> TTGIR -> (wspec) -> cubin -> launch.

What stands here is imported when it is first asked for: a process that only compiles needs no torch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from wspec.bridge.ahead import CompilesAhead, compile_ahead
    from wspec.bridge.backend import Finished, final_ttgir, finish
    from wspec.bridge.cache import Group, Result
    from wspec.bridge.cache import key as cache_key
    from wspec.bridge.choice import choosing, launch_of
    from wspec.bridge.compile import Compiler, Verdict, judge, kernel_location, obtain
    from wspec.bridge.everywhere import Switch
    from wspec.bridge.frontend import (
        HOPPER,
        KernelSource,
        from_arguments,
        from_signature,
        lower,
        plain_ttgir,
        ttgir,
        ttir,
    )
    from wspec.bridge.hidden_arguments import Appended, load_appended
    from wspec.bridge.launch import (
        WspecFunction,
        current_target,
        fill_in,
        host_descriptor,
        innermost,
        is_autotuner,
        is_gluon,
        is_interpreted,
        is_wrapper,
        load_plain,
        place_of,
        replace_innermost,
        require_jit,
    )
    from wspec.bridge.outermost import answer
    from wspec.bridge.persistent import load_kernel
    from wspec.bridge.proof import Checker, Proof, Ruling, rule
    from wspec.bridge.ptx.edits import PtxEdits
    from wspec.bridge.sass.miscompiled import sass_line, wrong_by_itself
    from wspec.bridge.sass.resources import Resources, kernel_resources, resources, stage_text
    from wspec.bridge.sass.resources import sass as sass_text
    from wspec.bridge.shared_memory import placement
    from wspec.bridge.text import BridgeError, generic_text, reparse, to_pretty
    from wspec.bridge.trial import on_trial
    from wspec.bridge.tuning import Choice, Tuning, tuned
    from wspec.bridge.versions import unknown_version

_HOMES = {
    "Appended": "hidden_arguments",
    "BridgeError": "text",
    "Checker": "proof",
    "Choice": "tuning",
    "Compiler": "compile",
    "CompilesAhead": "ahead",
    "Finished": "backend",
    "Group": "cache",
    "HOPPER": "frontend",
    "KernelSource": "frontend",
    "Proof": "proof",
    "PtxEdits": "ptx.edits",
    "Resources": "sass.resources",
    "Result": "cache",
    "Ruling": "proof",
    "Switch": "everywhere",
    "Tuning": "tuning",
    "Verdict": "compile",
    "WspecFunction": "launch",
    "answer": "outermost",
    "compile_ahead": "ahead",
    "current_target": "launch",
    "fill_in": "launch",
    "final_ttgir": "backend",
    "finish": "backend",
    "from_arguments": "frontend",
    "from_signature": "frontend",
    "generic_text": "text",
    "host_descriptor": "launch",
    "innermost": "launch",
    "is_autotuner": "launch",
    "is_gluon": "launch",
    "is_interpreted": "launch",
    "is_wrapper": "launch",
    "judge": "compile",
    "kernel_location": "compile",
    "kernel_resources": "sass.resources",
    "load_appended": "hidden_arguments",
    "choosing": "choice",
    "launch_of": "choice",
    "load_kernel": "persistent",
    "load_plain": "launch",
    "lower": "frontend",
    "names_of": "overlap_guard",
    "obtain": "compile",
    "on_trial": "trial",
    "placement": "shared_memory",
    "plain_ttgir": "frontend",
    "reparse": "text",
    "replace_innermost": "launch",
    "place_of": "launch",
    "require_jit": "launch",
    "resources": "sass.resources",
    "rule": "proof",
    "sass_line": "sass.miscompiled",
    "stage_text": "sass.resources",
    "to_pretty": "text",
    "ttgir": "frontend",
    "ttir": "frontend",
    "tuned": "tuning",
    "wrong_by_itself": "sass.miscompiled",
    "unknown_version": "versions",
}
_RENAMED = {"cache_key": ("cache", "key"), "sass_text": ("sass.resources", "sass")}

__all__ = [
    "HOPPER",
    "Appended",
    "BridgeError",
    "Checker",
    "Choice",
    "Compiler",
    "CompilesAhead",
    "Finished",
    "Group",
    "KernelSource",
    "Proof",
    "PtxEdits",
    "Resources",
    "Result",
    "Ruling",
    "Switch",
    "Tuning",
    "Verdict",
    "WspecFunction",
    "answer",
    "cache_key",
    "choosing",
    "compile_ahead",
    "current_target",
    "fill_in",
    "final_ttgir",
    "finish",
    "from_arguments",
    "from_signature",
    "generic_text",
    "host_descriptor",
    "innermost",
    "is_autotuner",
    "is_gluon",
    "is_interpreted",
    "is_wrapper",
    "judge",
    "kernel_location",
    "kernel_resources",
    "launch_of",
    "load_appended",
    "load_kernel",
    "load_plain",
    "lower",
    "names_of",
    "obtain",
    "on_trial",
    "place_of",
    "placement",
    "plain_ttgir",
    "reparse",
    "replace_innermost",
    "require_jit",
    "resources",
    "rule",
    "sass_line",
    "sass_text",
    "stage_text",
    "to_pretty",
    "ttgir",
    "ttir",
    "tuned",
    "unknown_version",
    "wrong_by_itself",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES and name not in _RENAMED:
        raise AttributeError(f"module 'wspec.bridge' has no attribute {name!r}")
    module, its = _RENAMED.get(name) or (_HOMES[name], name)
    found = getattr(importlib.import_module(f"wspec.bridge.{module}"), its)
    globals()[name] = found
    return found

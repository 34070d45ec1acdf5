# ruff: noqa: F401
# mypy: implicit-reexport
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
    from wspec.bridge.card import card_name
    from wspec.bridge.choice import choosing, launch_of
    from wspec.bridge.compile import OUT_OF_TIME, Verdict, judge
    from wspec.bridge.everywhere import Switch
    from wspec.bridge.files import kernel_location
    from wspec.bridge.frontend import HOPPER, KernelSource, from_arguments, from_signature, lower, plain_ttgir, ttgir
    from wspec.bridge.launch import (
        WspecFunction,
        current_target,
        fill_in,
        host_descriptor,
        innermost,
        is_autotuner,
        is_gluon,
        is_interpreted,
        load_plain,
        place_of,
        replace_innermost,
        require_jit,
    )
    from wspec.bridge.obtaining import obtain
    from wspec.bridge.outermost import answer
    from wspec.bridge.overlap_guard import names_of
    from wspec.bridge.persistent import load_kernel
    from wspec.bridge.proof import Proof
    from wspec.bridge.ptx.edits import PtxEdits
    from wspec.bridge.repeated import decided_once
    from wspec.bridge.sass.miscompiled import sass_line, wrong_by_itself
    from wspec.bridge.sass.resources import Resources, kernel_resources, resources, stage_text
    from wspec.bridge.sass.resources import sass as sass_text
    from wspec.bridge.shared_memory import placement
    from wspec.bridge.text import BridgeError, for_back_end, generic_text, reparse, to_pretty
    from wspec.bridge.trial import on_trial
    from wspec.bridge.tuning import Choice, Tuning, tuned
    from wspec.bridge.versions import unknown_version

_NAMES = {
    "ahead": "CompilesAhead compile_ahead",
    "backend": "Finished final_ttgir finish",
    "cache": "Group Result",
    "card": "card_name",
    "choice": "choosing launch_of",
    "compile": "OUT_OF_TIME Verdict judge",
    "everywhere": "Switch",
    "files": "kernel_location",
    "frontend": "HOPPER KernelSource from_arguments from_signature lower plain_ttgir ttgir",
    "launch": "WspecFunction current_target fill_in host_descriptor innermost is_autotuner is_gluon is_interpreted "
    "load_plain place_of replace_innermost require_jit",
    "obtaining": "obtain",
    "outermost": "answer",
    "overlap_guard": "names_of",
    "persistent": "load_kernel",
    "proof": "Proof",
    "ptx.edits": "PtxEdits",
    "repeated": "decided_once",
    "sass.miscompiled": "sass_line wrong_by_itself",
    "sass.resources": "Resources kernel_resources resources stage_text",
    "shared_memory": "placement",
    "text": "BridgeError for_back_end generic_text reparse to_pretty",
    "trial": "on_trial",
    "tuning": "Choice Tuning tuned",
    "versions": "unknown_version",
}
_HOMES = {name: home for home, names in _NAMES.items() for name in names.split()}
_RENAMED = {"cache_key": ("cache", "key"), "sass_text": ("sass.resources", "sass")}


def __getattr__(name: str) -> Any:
    if name not in _HOMES and name not in _RENAMED:
        raise AttributeError(f"module 'wspec.bridge' has no attribute {name!r}")
    module, its = _RENAMED.get(name) or (_HOMES[name], name)
    found = getattr(importlib.import_module(f"wspec.bridge.{module}"), its)
    globals()[name] = found
    return found

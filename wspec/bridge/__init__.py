"""The only package that imports triton: kernel -> TTGIR -> (wspec) -> cubin -> launch."""

from wspec.bridge.ahead import CompilesAhead, compile_ahead
from wspec.bridge.backend import Finished, final_ttgir, finish
from wspec.bridge.cache import Group, Result
from wspec.bridge.cache import key as cache_key
from wspec.bridge.compile import Compiler, Verdict, judge, kernel_location, obtain
from wspec.bridge.frontend import HOPPER, KernelSource, from_arguments, from_signature, lower, plain_ttgir, ttgir, ttir
from wspec.bridge.hidden_arguments import Appended, load_appended
from wspec.bridge.launch import (
    WspecFunction,
    current_target,
    fill_in,
    host_descriptor,
    innermost,
    is_autotuner,
    is_interpreted,
    is_wrapper,
    load_plain,
    replace_innermost,
    require_jit,
)
from wspec.bridge.persistent import load_kernel
from wspec.bridge.proof import Checker, Proof, Ruling, rule
from wspec.bridge.ptx.edits import PtxEdits
from wspec.bridge.sass.miscompiled import sass_line, unassigned
from wspec.bridge.sass.resources import Resources, kernel_resources, resources, sass, stage_text
from wspec.bridge.text import BridgeError, generic_text, reparse, to_pretty
from wspec.bridge.tuning import Choice, Tuning, tuned

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
    "Tuning",
    "Verdict",
    "WspecFunction",
    "cache_key",
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
    "is_interpreted",
    "is_wrapper",
    "judge",
    "kernel_location",
    "kernel_resources",
    "load_appended",
    "load_kernel",
    "load_plain",
    "lower",
    "obtain",
    "plain_ttgir",
    "reparse",
    "replace_innermost",
    "require_jit",
    "resources",
    "rule",
    "sass",
    "sass_line",
    "stage_text",
    "to_pretty",
    "ttgir",
    "ttir",
    "tuned",
    "unassigned",
]

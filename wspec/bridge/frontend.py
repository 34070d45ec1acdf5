"""From a kernel and its arguments to TTGIR, as Triton's own front end would make it."""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from triton import knobs
from triton._C.libtriton import ir
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource, make_backend

from wspec.bridge import printed
from wspec.bridge.text import captured, generic_text, new_context, run_passes
from wspec.bridge.versions import INSTALLED
from wspec.bridge.versions.internals import internal
from wspec.diagnostics import bad_input, function_indent
from wspec.ir.stages import NUM_STAGES, WHOLE_VIEWS
from wspec.target.hopper import BLOCK_THREADS

CUDAOptions = internal("triton.backends.nvidia.compiler", "CUDAOptions")
MockTensor = internal("triton.runtime.jit", "MockTensor")
create_function_from_signature = internal("triton.runtime.jit", "create_function_from_signature")
filter_traceback = internal("triton.compiler.compiler", "filter_traceback")
HOPPER = GPUTarget("cuda", 90, 32)


@dataclass(frozen=True, slots=True)
class KernelSource:
    """One specialization of a kernel: everything that decides its TTGIR."""

    ast: Any  # triton.compiler.ASTSource: function, signature, constexprs, attributes
    options: Any  # the backend's options (CUDAOptions)
    target: GPUTarget

    @property
    def name(self) -> str:
        return str(self.ast.name)

    def describe(self) -> str:
        """`name(x: *bf16, n: i32, BLOCK=128; num_warps=8, num_stages=3)`."""
        names = list(self.ast.signature)
        values = {names[path[0]]: value for path, value in self.ast.constants.items() if len(path) == 1}
        shown = [f"{n}={values[n]}" if n in values else f"{n}: {text}" for n, text in self.ast.signature.items()]
        launch = f"num_warps={self.options.num_warps}, num_stages={self.options.num_stages}"
        return f"{self.name}({', '.join(shown)}; {launch})"

    @property
    def backend(self) -> Any:
        return make_backend(self.target)


# ------------------------------------------------------------------------------------- kernel -> source


def from_arguments(fn: Any, args: Sequence[Any], kwargs: Mapping[str, Any], target: GPUTarget = HOPPER) -> KernelSource:
    """The specialization a launch with these arguments would compile.

    Needs no GPU: tensors may be on any device, and an argument of a parameter that is not a constexpr may be the
    text of its type (`"*bf16:16"`, see `parse_type`). Keyword arguments may hold launch options (`num_warps`).
    """
    backend = make_backend(target)
    bound, options, texts = _bind(fn, args, kwargs)
    binder = create_function_from_signature(fn.signature, fn.params, backend)
    bound_args, specialization, options = binder(**bound, **options)
    for index, param in enumerate(fn.params):
        if param.name in texts:
            specialization[index] = _specialization(param, texts[param.name])
            bound_args[param.name] = specialization[index][1]
    try:
        packed = fn._pack_args(backend, options, bound_args, specialization, options)
    except KeyError as error:
        raise bad_input(f"{fn.__name__}: {error.args[0]}") from None
    triton_options, signature, constexprs, attrs = packed
    if triton_options.num_warps * 32 > BLOCK_THREADS:
        warps, most = triton_options.num_warps, BLOCK_THREADS // 32
        raise bad_input(f"{fn.__name__}: num_warps={warps}: a block has {most} warps at most")
    return KernelSource(ASTSource(fn, signature, constexprs, attrs), triton_options, target)


def from_signature(
    fn: Any, signature: Mapping[str, str], values: Mapping[str, Any], target: GPUTarget = HOPPER
) -> KernelSource:
    """A specialization from text alone.

    `signature` gives the types of parameters, `values` the values of others and launch options. Parameters with a
    default may be left out. Raises WspecError naming what is missing or unknown.
    """
    names = [param.name for param in fn.params]
    known = (*names, *CUDAOptions.__dataclass_fields__)
    for name in (*(name for name in signature if name not in names), *(name for name in values if name not in known)):
        raise bad_input(f"{fn.__name__} has no parameter {name!r}", f"parameters are: {', '.join(names)}")
    types = {name: text for name, text in signature.items() if text != "constexpr"}
    for param in fn.params:
        if param.name not in types and param.name not in values and not param.has_default:
            raise bad_input(f"{fn.__name__}: no type or value for parameter {param.name!r}")
        if param.name in types and param.is_constexpr:
            raise bad_input(f"{fn.__name__}: parameter {param.name!r} is a constexpr and needs a value, not a type")
    return from_arguments(fn, (), {**types, **values}, target)


def _bind(
    fn: Any, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> tuple[dict[str, Any], dict[str, Any], dict[str, str]]:
    """Arguments by name, launch options, and the parameters whose argument is the text of a type."""
    names = {param.name for param in fn.params}
    options = {key: value for key, value in kwargs.items() if key not in names}
    options["debug"] = options.get("debug", fn.debug) or knobs.runtime.debug
    options["instrumentation_mode"] = knobs.compilation.instrumentation_mode
    for key in ("grid", "warmup"):
        options.pop(key, None)
    signature: inspect.Signature = fn.signature
    try:
        bound = dict(signature.bind(*args, **{k: v for k, v in kwargs.items() if k in names}).arguments)
    except TypeError as error:
        raise bad_input(f"{fn.__name__}: {error}") from None
    bound = {name: MockTensor.wrap_dtype(value) for name, value in bound.items()}
    kinds = {param.name: param.is_constexpr for param in fn.params}
    texts = {name: value for name, value in bound.items() if isinstance(value, str) and not kinds[name]}
    return {**bound, **dict.fromkeys(texts, 0)}, options, texts


_INTEGERS = ("i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64")
_SCALARS = (*_INTEGERS, "i1", "u1", "fp16", "bf16", "fp32", "fp64")
_DTYPES = (*_SCALARS, "fp8e4nv", "fp8e5", "fp8e4b8", "fp8e5b16", "fp8e4b15")
_TYPE = re.compile(r"(?P<pointer>\*k?)?(?P<dtype>\w+)(:(?P<hint>16|1))?")
_DESCRIPTOR = re.compile(r"tensordesc<(?P<dtype>\w+)\[\d+(, ?\d+)*\]>")


def parse_type(text: str) -> tuple[str, str]:
    """(type, what is known of the value) of a type written as text. Raises WspecError.

    `*bf16` is a pointer, `i32` a scalar, `tensordesc<bf16[128, 64]>` a host tensor descriptor with its block;
    `:16` after a pointer or integer says that it is divisible by 16, `:1` after an integer that it is 1.
    """
    text = text.strip()
    descriptor = _DESCRIPTOR.fullmatch(text)
    if descriptor and descriptor["dtype"] in _DTYPES:
        return text, ""
    match = _TYPE.fullmatch(text)
    hints = {"16", "1"} if match and match["dtype"] in _INTEGERS else set()
    if match and match["pointer"]:
        hints = {"16"}
    known = match and match["dtype"] in (_DTYPES if match["pointer"] else _SCALARS)
    if not match or not known or (match["hint"] and match["hint"] not in hints):
        note = 'types look like "*bf16:16", "i32:16", "i32:1", "fp32", "tensordesc<bf16[128, 64]>"'
        raise bad_input(f"{text!r} is not a type", note)
    return (match["pointer"] or "") + match["dtype"], match["hint"] or ""


def _specialization(param: Any, text: str) -> tuple[str, str | int | None]:
    """The pair Triton's binder would make of an argument of that type: ("i32", "D") if divisible by 16, and so on."""
    kind, hint = parse_type(text)
    if param.do_not_specialize or not (kind.startswith("*") or kind in _INTEGERS):
        return kind, None
    if hint == "1":
        return "constexpr", 1
    return kind, "D" if hint == "16" and not param.do_not_specialize_on_alignment else ""


# --------------------------------------------------------------------------------------- source -> TTGIR


def ttir(source: KernelSource) -> str:
    """Triton IR after `make_ttir`, in Triton's own syntax, with locations. Raises Triton's own errors."""
    return str(_ttir_module(source).str())


def ttgir(source: KernelSource) -> str:
    """TTGIR with layouts chosen and nothing pipelined yet, as generic text with locations."""
    return lower(source)[1]


def lower(source: KernelSource) -> tuple[str, str]:
    """(`ttir(source)`, `ttgir(source)`) in one go."""
    module = _ttir_module(source)
    before, options = str(module.str()), source.options
    if options.maxnreg is not None:
        module.set_attr("ttg.maxnreg", ir.builder(module.context).get_int32_attr(options.maxnreg))
    module.set_attr(NUM_STAGES, ir.builder(module.context).get_int32_attr(options.num_stages))
    if INSTALLED.whole_views:
        module.set_attr(WHOLE_VIEWS, ir.builder(module.context).get_int32_attr(1))
    run_passes(module, partial(INSTALLED.add_ttgir_passes, arch=capability(source), options=options), "wspec_ttgir")
    return before, _placed(generic_text(module))


_PLACE = re.compile(r'"([^"\n]+)":(\d+):(\d+)(?=[) ])')


def _placed(text: str) -> str:
    """A front end's text with columns counted from 0 in the text of the function, as they are up to Triton 3.7."""
    return _PLACE.sub(_as_in_the_function, text) if INSTALLED.columns_of_files else text


def _as_in_the_function(place: re.Match[str]) -> str:
    file, line, column = place[1], int(place[2]), int(place[3])
    return f'"{file}":{line}:{max(column - 1 - function_indent(file, line), 0)}'


def plain_ttgir(source: KernelSource) -> str:
    """Generic text of what Triton's own `make_ttgir` ends with, pipelined and all. Raises BridgeError."""
    module, backend = _ttir_module(source), source.backend
    arch = capability(source)
    captured("make_ttgir failed", lambda: backend.make_ttgir(module, {}, source.options, arch))
    return _placed(generic_text(module))


def _ttir_module(source: KernelSource) -> Any:
    context = new_context()
    backend, options = source.backend, source.options
    codegen = backend.get_codegen_implementation(options)
    try:
        with printed.once(source):
            module = source.ast.make_ir(source.target, options, codegen, backend.get_module_map(), context)
    except Exception as error:
        filter_traceback(error)  # as triton.compile does: the user's own lines are what matters
        raise
    module.context = context
    captured("make_ttir failed", lambda: backend.make_ttir(module, {}, options, capability(source)))
    return module


def capability(source: KernelSource) -> int:
    """90 for sm_90; an override of the architecture counts."""
    return int(source.backend._parse_arch(source.options.arch))

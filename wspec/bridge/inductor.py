"""A kernel of ours inside `torch.compile`: Inductor's code launches it, and not a copy of its source.

Inductor writes the source of a kernel out again under `@triton.jit`, in which nothing of us is left. Where its code
would call that copy it is made to call the kernel itself, by module, name and options, which a second process that
takes the code from Inductor's cache finds as well. What cannot be called so (C++ wrappers, several configurations of an
autotuner) stays Inductor's copy, and a remark says so. The remark and the names here are all that depends on torch.
"""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.util
import sys
import threading
import weakref
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec
from typing import Any

from wspec.bridge.versions.internals import internal
from wspec.diagnostics import Remark

Autotuner = internal("triton.runtime.autotuner", "Autotuner")
JITFunction = internal("triton.runtime.jit", "JITFunction")

_LAUNCHES, _KEYS = "torch._inductor.ir", "torch._inductor.codegen.wrapper"  # each imports the other
_SOURCE = "user_defined_triton_kernel_transitive_closure_source_code"
_functions: list[weakref.ref[Any]] = []
_lock = threading.Lock()
_PLAIN = (bool, int, float, str, type(None))


def know(function: Any) -> None:
    """Have Inductor's code launch this function where it occurs; Inductor may be imported later, or never."""
    with _lock:
        _functions[:] = [one for one in _functions if one() is not None]
        _functions.append(weakref.ref(function))
    later = [name for name in (_LAUNCHES, _KEYS) if name not in sys.modules]
    for name in (_LAUNCHES, _KEYS):
        if name not in later:
            _install(sys.modules[name])
    if later and not any(isinstance(finder, _Watch) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Watch(later))


def kernel_of(module: str, name: str, digest: str) -> Any:
    """The function under `wspec.compile`, as Inductor's code names it. Imports the module where nobody has."""
    importlib.import_module(module)
    living = [one() for one in _functions]
    found = [one for one in living if one is not None and _name(one) == (module, name)]
    same = [one for one in found if one.wspec_digest == digest]
    if not (same or found):
        raise RuntimeError(f"{module} has no kernel {name} under wspec.compile, which compiled code launches")
    return (same or found)[0]


def _name(function: Any) -> tuple[str, str]:
    return function.fn.__module__, function.fn.__qualname__


# --------------------------------------------------------------------------------------------- Inductor's part


class _Watch(importlib.abc.MetaPathFinder):
    """Sees Inductor's modules being imported, and is gone."""

    def __init__(self, names: Sequence[str]) -> None:
        self.names = [*names]

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> ModuleSpec | None:
        if fullname not in self.names:
            return None
        self.names.remove(fullname)
        if not self.names:
            sys.meta_path.remove(self)
        spec = importlib.util.find_spec(fullname)
        if spec is not None and spec.loader is not None:
            spec.loader = _Installing(spec.loader)
        return spec


class _Installing(importlib.abc.Loader):
    """Loads the module as ever, and then installs what is here."""

    def __init__(self, loader: Any) -> None:
        self.loader = loader

    def create_module(self, spec: ModuleSpec) -> Any:
        return self.loader.create_module(spec)

    def exec_module(self, module: Any) -> None:
        self.loader.exec_module(module)
        _install(module)


def _install(module: Any) -> None:
    """Into one of the two."""
    (_write_launches if module.__name__ == _LAUNCHES else _tell_caches)(module)


def _write_launches(ir: Any) -> None:
    """Put our way of writing a launch before Inductor's own."""
    with _lock:
        node = getattr(ir, "UserDefinedTritonKernel", None)
        if node is None or hasattr(node, "wspec_theirs"):
            return
        theirs = node.codegen
        node.wspec_theirs = theirs

        def codegen(self: Any, wrapper: Any) -> None:
            if not write_launch(self, wrapper):
                theirs(self, wrapper)

        node.codegen = codegen
        fused = getattr(node, "can_fuse_epilogue", None)
        if fused is not None:
            node.can_fuse_epilogue = lambda self: _ours(self) is None and fused(self)


def _tell_caches(written: Any) -> None:
    """Code in Inductor's cache belongs to a kernel's options as well as to its source."""
    source: Callable[..., str] | None = getattr(written, _SOURCE, None)
    if source is None or hasattr(source, "wspec_theirs"):
        return

    def with_options(kernel: Any, *args: Any, **kwargs: Any) -> str:
        text = source(kernel, *args, **kwargs)
        digest = getattr(kernel, "wspec_digest", None)
        return text if digest is None else f"{text}\n# wspec {digest}\n"

    marked: Any = with_options
    marked.wspec_theirs = source
    setattr(written, _SOURCE, marked)


def _ours(node: Any) -> tuple[Any, dict[str, Any] | str] | None:
    """The function of ours that a node launches, with the options of the launch or why it cannot be launched from
    Inductor's code; None for a kernel that is not ours."""
    from torch._higher_order_ops.triton_kernel_wrap import kernel_side_table

    kernel: Any = kernel_side_table.get_kernel(node.kernel_idx)
    options: dict[str, Any] | str = {}
    inner = kernel
    while not isinstance(inner, JITFunction) and hasattr(inner, "fn"):
        inner = inner.fn
    if not hasattr(inner, "wspec_options"):
        return None
    if isinstance(kernel, Autotuner):
        if len(kernel.configs) != 1 or kernel.configs[0].pre_hook is not None or kernel.fn is not inner:
            options = "an autotuner chooses between its configurations"
        else:
            options = kernel.configs[0].all_kwargs()
    elif kernel is not inner:
        options = "heuristics stand over it"
    return inner, options


def write_launch(node: Any, wrapper: Any) -> bool:
    """Write the launch of a kernel of ours into Inductor's code; False where that is left to Inductor."""
    found = _ours(node)
    if found is None:
        return False
    from torch._inductor.virtualized import V

    function, options = found
    if not isinstance(options, str) and (V.graph.cpp_wrapper or V.graph.aot_mode):
        options = "the code is to be C++"
    arguments: dict[str, Any] = {}
    if not isinstance(options, str):
        arguments = {name: node.get_kwargs_value(name) for name in node.ordered_kwargs_for_cpp_kernel}
        constants = [arguments[p.name] for p in function.params if p.is_constexpr and p.name in arguments]
        if not all(isinstance(value, _PLAIN) for value in constants):
            options = "a constant is more than a number or a text"
    if isinstance(options, str):
        _say(function, options)
        return False
    module, name = _name(function)
    handle = f"wspec_{function.__name__}_{function.wspec_digest[:12]}"
    wrapper.add_import_once("import triton.tools.tensor_descriptor")
    wrapper.add_import_once("from wspec.bridge.inductor import kernel_of as wspec_kernel_of")
    wrapper.add_import_once(f"{handle} = wspec_kernel_of({module!r}, {name!r}, {function.wspec_digest!r})")
    given = [f"{key}={wrapper.val_to_arg_str(value)}" for key, value in arguments.items()]
    given += [f"{key}={value!r}" for key, value in options.items() if key not in arguments and value is not None]
    wrapper.writeline(f"{handle}[{_grid(node.grid[0], wrapper)}]({', '.join(given)})")
    return True


def _grid(sizes: Sequence[Any], wrapper: Any) -> str:
    return "(" + "".join(f"{wrapper.val_to_arg_str(size)}, " for size in sizes) + ")"


def _say(kernel: Any, why: str) -> None:
    note = "launch it with one configuration, or outside of what is compiled"
    message = f"{kernel.__name__} runs as it was inside torch.compile: {why}"
    kernel.wspec_say(Remark("torch-compile", message, kernel.wspec_place, note=note, severity="warning"))

"""The TTGIR that a launch compiles, on a machine without a GPU."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import triton
from triton.experimental.gluon._runtime import GluonASTSource

from tests.outside.launch import Launch
from wspec import bridge
from wspec.bridge.frontend import capability
from wspec.bridge.text import new_context
from wspec.ir import print_module, read
from wspec.ir.core import Operation, uses


def ttgir(launch: Launch) -> str:
    """Generic text of the module at the end of Triton's TTGIR stage.

    For a Triton kernel that is the end of `make_ttgir`: specialized if it was asked for, pipelined, and with the fences
    of `add_fence_insertion`. For a Gluon kernel it is the end of `gluon_to_ttgir`: what was written, no fence added.
    """
    if isinstance(launch.kernel, Edited):
        return generic(launch.kernel.text(launch.args, launch.options))
    return _ttgir(launch.kernel, launch.args, launch.options)


def _ttgir(kernel: Any, args: tuple[Any, ...], launch_options: dict[str, Any]) -> str:
    source = bridge.from_arguments(kernel, args, launch_options)
    backend, options, arch = source.backend, source.options, capability(source)
    gluon = kernel.is_gluon()
    tree = source.ast
    if gluon:
        tree = GluonASTSource(kernel, tree.signature, tree.constants, tree.attrs)
    context = new_context()
    codegen = backend.get_codegen_implementation(options)
    module = tree.make_ir(source.target, options, codegen, backend.get_module_map(), context)
    metadata: dict[str, Any] = {}
    if gluon:
        module = backend.gluon_to_ttgir(module, metadata, options, arch)
    else:
        module = backend.make_ttgir(backend.make_ttir(module, metadata, options, arch), metadata, options, arch)
    module.context = context
    return bridge.generic_text(module)


@dataclass(slots=True, eq=False)
class Edited:
    """A Triton kernel whose TTGIR is changed before it goes on. It is compiled once: for one kind of arguments."""

    kernel: Any
    edit: Callable[[str], str]
    compiled: Any = None

    def text(self, args: tuple[Any, ...], options: dict[str, Any]) -> str:
        return self.edit(bridge.to_pretty(_ttgir(self.kernel, args, options)))

    def __getitem__(self, grid: tuple[int, ...]) -> Callable[..., Any]:
        def run(*args: Any, **options: Any) -> Any:
            if self.compiled is None:
                self.compiled = _compile(self.text(args, options))
            values = [value for value, param in zip(args, self.kernel.params, strict=True) if not param.is_constexpr]
            self.compiled[(*grid, 1, 1)[:3]](*values)
            return self.compiled

        return run


def _compile(text: str) -> Any:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "edited.ttgir"
        path.write_text(text)
        return triton.compile(str(path), target=bridge.HOPPER)


def invalidated(text: str) -> str:
    """With every barrier invalidated that is initialized and then never used."""
    module = read(generic(text))
    users = uses(module)
    for op in list(module.walk()):
        if op.name != "ttg.local_alloc" or op.operands:
            continue
        views = [user for user, _ in users.get(op.result, [])]
        if not all(view.name == "ttg.memdesc_index" for view in views):
            continue
        made = [user for view in views for user, _ in users.get(view.result, [])]
        if made and all(user.name == "ttng.init_barrier" for user in made):
            for init in made:
                assert init.parent is not None
                at = init.parent.ops.index(init) + 1
                init.parent.insert(at, Operation.create("ttng.inval_barrier", [init.operands[0]]))
    return print_module(module)


def generic(text: str) -> str:
    """TTGIR in Triton's own syntax as generic text."""
    return bridge.generic_text(bridge.reparse(text))


__all__ = ["Edited", "generic", "invalidated", "ttgir"]

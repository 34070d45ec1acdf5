"""A kernel's module at several stages of Triton's pipeline, as libtriton's generic text."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from triton._C.libtriton import ir, nvidia, passes
from triton.compiler import make_backend
from triton.experimental.gluon._runtime import GluonASTSource

from wspec import bridge
from wspec.ir import print_module, read

ARCH, PTX = 90, 86


@dataclass(frozen=True, eq=False)
class Case:
    """A kernel with what it is compiled for. Types are text as in `bridge.from_signature`."""

    name: str
    fn: Any
    types: Mapping[str, str] = field(default_factory=dict)
    values: Mapping[str, Any] = field(default_factory=dict)
    stages: tuple[str, ...] = ("ttir", "before", "final")


def text_of(case: Case, stage: str) -> str:
    """Generic text of the case's module at `stage` (a key of STAGES)."""
    return STAGES[stage](case)


@functools.cache
def _source(case: Case) -> bridge.KernelSource:
    return bridge.from_signature(case.fn, case.types, case.values)


@functools.cache
def _lowered(case: Case) -> tuple[str, str]:
    return bridge.lower(_source(case))


def _ttir(case: Case) -> str:
    return bridge.generic_text(bridge.reparse(_lowered(case)[0]))


@functools.cache
def _final(case: Case) -> str:
    """The end of Triton's own TTGIR pipeline: pipelined, perhaps specialized."""
    source = _source(case)
    module = bridge.reparse(_lowered(case)[0])
    module = source.backend.make_ttgir(module, {}, source.options, ARCH)
    return bridge.generic_text(module)


def _specialized(case: Case) -> str:
    """What wspec makes of it, as libtriton prints it."""
    outcome = _outcome(case)
    assert outcome.module is not None, outcome.remarks
    return bridge.generic_text(bridge.reparse(print_module(outcome.module)))


def dumps(case: Case) -> dict[str, str]:
    """The module between wspec's passes, by pass."""
    return {name: text for name, text in _outcome(case).stages.items() if name != "plan"}


@functools.cache
def _outcome(case: Case) -> Any:
    # Imported here: the IR's own tests use this file and must not depend on the passes.
    from tests.support.proved import assert_proved
    from tests.support.verified import specialize
    from wspec.options import Options

    made = specialize(read(_lowered(case)[1]), Options(gate="off", persistent=False), keep_stages=True)
    if made.module is not None:
        assert_proved(made.module)
    return made


def _gluon(case: Case) -> str:
    values = dict(case.values)
    backend = make_backend(bridge.HOPPER)
    options = backend.parse_options({"num_warps": values.pop("num_warps", 4)})
    names = list(case.fn.arg_names)
    signature = {name: case.types.get(name, "constexpr") for name in names}
    constexprs = {(names.index(name),): value for name, value in values.items()}
    source = GluonASTSource(case.fn, signature, constexprs)
    context = bridge.text.new_context()
    codegen = backend.get_codegen_implementation(options)
    module = source.make_ir(bridge.HOPPER, options, codegen, backend.get_module_map(), context)
    module = backend.gluon_to_ttgir(module, {}, options, ARCH)
    return bridge.generic_text(module)


def _to_cf(manager: Any) -> None:
    """The first passes of `make_llir`: structured control flow becomes blocks, memory gets its places."""
    passes.ttgpuir.add_combine_tensor_select_and_if(manager)
    passes.ttgpuir.add_allocate_warp_groups(manager)
    passes.convert.add_scf_to_cf(manager)
    passes.gluon.add_inliner(manager)
    nvidia.passes.ttgpuir.add_allocate_shared_memory_nv(manager, ARCH, PTX)
    nvidia.passes.ttnvgpuir.add_allocate_tensor_memory(manager)
    passes.ttgpuir.add_allocate_global_scratch_memory(manager)


def _to_llvm(manager: Any) -> None:
    """On to MLIR's LLVM dialect, which the reader knows nothing of."""
    _to_cf(manager)
    nvidia.passes.ttnvgpuir.add_proxy_fence_insertion(manager, ARCH)
    nvidia.passes.ttgpuir.add_to_llvmir(manager, ARCH, PTX)
    passes.common.add_canonicalizer(manager)
    passes.common.add_cse(manager)
    nvidia.passes.ttnvgpuir.add_nvgpu_to_llvm(manager)
    nvidia.passes.ttnvgpuir.add_warp_specialize_to_llvm(manager)
    passes.convert.add_nvvm_to_llvm(manager)
    passes.llvmir.add_di_scope(manager)


def _after(case: Case, add: Callable[[Any], None]) -> str:
    text = _gluon(case) if case.stages[0] == "gluon" else _final(case)
    module = bridge.reparse(text)
    manager = ir.pass_manager(module.context)
    add(manager)
    manager.run(module, "stage")
    return bridge.generic_text(module)


STAGES: dict[str, Callable[[Case], str]] = {
    "ttir": _ttir,
    "before": lambda case: _lowered(case)[1],
    "final": _final,
    "specialized": _specialized,
    "gluon": _gluon,
    "cf": lambda case: _after(case, _to_cf),
    "llvm": lambda case: _after(case, _to_llvm),
}

"""Kernel and arguments to TTGIR: what we specialize on and which passes we run must be Triton's own."""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch
import triton
from triton.tools.tensor_descriptor import TensorDescriptor

from tests.bridge.sample_kernels import ADD_SIGNATURE, GEMM_BLOCKS, GEMM_SIGNATURE, add, gemm, gemm_source, wrong
from wspec import bridge
from wspec.bridge import frontend
from wspec.diagnostics import WspecError


def test_ttgir_stands_before_the_pipeliner() -> None:
    text = bridge.ttgir(gemm_source())
    assert '"ttng.warp_group_dot"(' in text and '"tt.descriptor_load"(' in text
    assert "async_tma_copy" not in text and "tt.dot" not in text
    assert '"ttg.num-warps" = 8' in text and "gemm" in text and "sample_kernels.py" in text


def test_arguments_and_signature_give_the_same_specialization() -> None:
    x = torch.empty(1024, device="meta")
    actual = bridge.from_arguments(add, (x, x, 1024), {"BLOCK": 128})
    offline = bridge.from_signature(add, ADD_SIGNATURE, {"BLOCK": 128})
    assert actual.ast.hash() == offline.ast.hash() and actual.options.hash() == offline.options.hash()


def test_host_descriptors() -> None:
    a = TensorDescriptor.from_tensor(torch.empty(512, 512, dtype=torch.float16, device="meta"), [128, 64])
    b = TensorDescriptor.from_tensor(torch.empty(512, 512, dtype=torch.float16, device="meta"), [64, 128])
    c = torch.empty(512, 512, dtype=torch.float16, device="meta")
    actual = bridge.from_arguments(gemm, (a, b, c, 512, 512), {**GEMM_BLOCKS, "num_warps": 8})
    assert actual.ast.hash() == gemm_source().ast.hash()


@pytest.mark.parametrize(
    "args, signature",
    [
        ((torch.empty(64), torch.empty(64), 1), {"x_ptr": "*fp32:16", "y_ptr": "*fp32:16", "n": "i32:1"}),
        ((torch.float16, torch.float16, 3), {"x_ptr": "*fp16:16", "y_ptr": "*fp16:16", "n": "i32"}),
        ((torch.empty(64)[1:], torch.empty(64), 2**40), {"x_ptr": "*fp32", "y_ptr": "*fp32:16", "n": "i64:16"}),
    ],
)
def test_specialization_of_arguments(args: tuple[Any, ...], signature: dict[str, str]) -> None:
    actual, offline = bridge.from_arguments(add, args, {}), bridge.from_signature(add, signature, {})
    assert actual.ast.signature == offline.ast.signature
    assert actual.ast.attrs == offline.ast.attrs
    assert actual.ast.constants == offline.ast.constants


def test_a_specialization_is_what_triton_itself_would_compile() -> None:
    x = torch.empty(1024)
    ours = bridge.from_arguments(add, (x, x, 1024), {"num_warps": 2}).ast
    backend = triton.compiler.make_backend(bridge.HOPPER)
    binder = triton.runtime.jit.create_function_from_signature(add.signature, add.params, backend)
    kwargs = {"num_warps": 2, "debug": False, "instrumentation_mode": ""}
    bound, specialization, options = binder(x, x, 1024, **kwargs)
    _, signature, constexprs, attrs = add._pack_args(backend, kwargs, bound, specialization, options)
    assert (ours.signature, ours.constants, ours.attrs) == (signature, constexprs, attrs)


@pytest.mark.parametrize(
    "signature, values, message",
    [
        ({"x": "i32"}, {}, "add has no parameter 'x'"),
        (ADD_SIGNATURE, {"nun_warps": 8}, "add has no parameter 'nun_warps'"),
        ({"x_ptr": "*fp32"}, {"n": 3}, "no type or value for parameter 'y_ptr'"),
        ({**ADD_SIGNATURE, "BLOCK": "i32"}, {}, "'BLOCK' is a constexpr"),
        ({**ADD_SIGNATURE, "n": "int"}, {}, "'int' is not a type"),
        ({**ADD_SIGNATURE, "n": "i32:8"}, {}, "'i32:8' is not a type"),
        ({**ADD_SIGNATURE, "n": "fp32:16"}, {}, "'fp32:16' is not a type"),
        ({**ADD_SIGNATURE, "n": "*fp32:1"}, {}, "'*fp32:1' is not a type"),
    ],
)
def test_bad_signatures(signature: dict[str, str], values: dict[str, Any], message: str) -> None:
    with pytest.raises(WspecError, match=re.escape(message)):
        bridge.from_signature(add, signature, values)


def test_bad_arguments() -> None:
    with pytest.raises(WspecError, match="missing a required argument: 'y_ptr'"):
        bridge.from_arguments(add, ("*fp32",), {})
    with pytest.raises(WspecError, match="num_wraps"):
        bridge.from_arguments(add, ("*fp32", "*fp32", 3), {"num_wraps": 8})


@pytest.mark.parametrize("text", ["*bf16", "*kfp32:16", "i1", "u64:16", "fp64", GEMM_SIGNATURE["a_desc"], "*fp8e4nv"])
def test_types(text: str) -> None:
    kind, hint = frontend.parse_type(text)
    assert text == kind + (":16" if hint else "")


def test_parameters_that_triton_does_not_specialize() -> None:
    fn = triton.jit(add.fn, do_not_specialize=["n"], do_not_specialize_on_alignment=["x_ptr"])
    x = torch.empty(64)
    for number, text in ((1, "i32:1"), (16, "i32:16"), (3, "i32")):
        actual = bridge.from_arguments(fn, (x, x, number), {}).ast
        offline = bridge.from_signature(fn, {**ADD_SIGNATURE, "n": text}, {}).ast
        assert (actual.signature, actual.attrs) == (offline.signature, offline.attrs)


def test_errors_of_the_kernel_itself_are_tritons() -> None:
    with pytest.raises(triton.compiler.errors.CompilationError, match="reshape"):
        bridge.ttgir(bridge.from_signature(wrong, {"x_ptr": "*fp32"}, {"BLOCK": 64}))

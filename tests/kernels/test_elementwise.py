"""`wspec.kernels.elementwise` without a GPU: what it refuses, and that it compiles."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from wspec import bridge
from wspec.bridge.launch import compile_plain
from wspec.kernels import elementwise


def test_cpu_tensors_are_refused_by_name() -> None:
    x = torch.zeros(4, 4)
    refused = pytest.raises(ValueError, match=r"^x: expected a CUDA tensor")
    with refused:
        elementwise.add(x, x)
    with refused:
        elementwise.softmax(x)
    with refused:
        elementwise.layer_norm(x, x[0], x[0])


def test_types_are_refused_by_name() -> None:
    with pytest.raises(TypeError, match=r"^x: expected dtype"):
        elementwise.softmax(torch.zeros(4, 4, dtype=torch.int32))
    with pytest.raises(TypeError, match=r"^x: expected a torch.Tensor, got list"):
        elementwise.softmax([1.0])  # type: ignore[arg-type]


SIGNATURES: list[tuple[Any, tuple[str, ...]]] = [
    (elementwise.add_kernel, ("*fp32:16", "*fp32:16", "*fp32:16", "i32:16")),
    (elementwise.softmax_kernel, ("*bf16:16", "*bf16:16", "i32")),
    (elementwise.layer_norm_kernel, ("*fp16:16", "*fp16:16", "*fp16:16", "*fp16:16", "i32:16", "fp32")),
]


@pytest.mark.parametrize(("kernel", "types"), SIGNATURES, ids=lambda value: getattr(value, "__name__", ""))
def test_compiles(kernel: Any, types: tuple[str, ...]) -> None:
    names = [param.name for param in kernel.params]
    source = bridge.from_signature(kernel, dict(zip(names, types, strict=False)), {"BLOCK": 1024})
    assert compile_plain(source).asm["cubin"]

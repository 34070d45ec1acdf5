"""`wspec.kernels.matmul` without a GPU: what it refuses, its reference, its configurations, its binaries."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from wspec import bridge
from wspec.bridge.launch import compile_plain
from wspec.kernels.matmul import (
    SHARED_MEMORY_BYTES,
    VARIANTS,
    Config,
    Launch,
    Variant,
    check_inputs,
    check_out_dtype,
    default_config,
    empty_output,
    matmul,
    matmul_reference,
    plain_configs,
    plain_kernel,
    shared_memory_bytes,
)
from wspec.lab.bench.matmul import Entry, Kind, launch_on_cpu


def half(*shape: int) -> torch.Tensor:
    return torch.zeros(*shape, dtype=torch.float16)


@pytest.mark.parametrize(
    ("a", "b", "error", "match"),
    [
        (None, half(8, 8), TypeError, "a: expected a torch.Tensor"),
        (half(8, 8), half(8, 8).float(), TypeError, "b: expected dtype"),
        (half(8, 8), half(8, 8).bfloat16(), TypeError, "b: dtype torch.bfloat16 differs from a"),
        (half(8, 8, 8), half(8, 8), ValueError, "a: expected 2 dimensions, got 3"),
        (half(8, 16), half(8, 8), ValueError, "b: has 8 rows, but a has 16 columns"),
        (half(8, 8).requires_grad_(), half(8, 8), ValueError, "a: requires grad"),
    ],
)
def test_bad_input_names_the_argument(a: Any, b: Any, error: type[Exception], match: str) -> None:
    with pytest.raises(error, match=f"^{match}"):
        check_inputs(a, b, need_cuda=False)


def test_cpu_tensors_are_refused_by_name() -> None:
    with pytest.raises(ValueError, match=r"^a: expected a CUDA tensor"):
        matmul(half(8, 8), half(8, 8))


@pytest.mark.parametrize(
    ("a", "b", "match"),
    [
        (
            half(8, 17),
            half(24, 17).T,
            "a: stride of dimension 0 .* pad its last dimension .* or choose variant='pointer'",
        ),
        (half(8, 16), half(16, 17), "b: stride of dimension 0"),
        (half(16, 8).T, half(16, 8), "a: last dimension must be contiguous"),
    ],
)
def test_strides_tma_cannot_walk_name_the_argument(a: torch.Tensor, b: torch.Tensor, match: str) -> None:
    with pytest.raises(ValueError, match=f"^{match}"):
        Launch.of(a, b, empty_output(a, b, a.dtype), variant="descriptor")
    Launch.of(a, b, empty_output(a, b, a.dtype), variant="pointer")


def test_b_may_be_stored_transposed() -> None:
    a, weight = half(8, 16), half(24, 16)
    straight = Launch.of(a, half(16, 24), empty_output(a, weight.T, a.dtype), variant="descriptor")
    turned = Launch.of(a, weight.T, empty_output(a, weight.T, a.dtype), variant="descriptor")
    assert (straight.meta["B_TRANSPOSED"], turned.meta["B_TRANSPOSED"]) == (False, True)
    assert list(turned.args[1].shape) == [24, 16]


def test_output_rows_are_aligned_for_any_width() -> None:
    out = empty_output(half(3, 8), half(8, 17), torch.float16)
    assert out.shape == (3, 17) and out.stride() == (24, 1)


def test_reference() -> None:
    torch.manual_seed(0)
    a, b = torch.randn(5, 7), torch.randn(7, 3)
    torch.testing.assert_close(matmul_reference(a, b, dtype=torch.float64).float(), a @ b)


def test_configs_fit() -> None:
    configs = plain_configs()
    assert len(configs) == len(set(configs))
    for config in configs:
        assert shared_memory_bytes(config) <= SHARED_MEMORY_BYTES
    for m, n in ((1, 1), (8192, 8192)):
        for variant in VARIANTS:
            for b_transposed in (False, True):
                assert default_config(m, n, variant, b_transposed) in configs


@pytest.mark.parametrize("b_transposed", [False, True])
@pytest.mark.parametrize("variant", VARIANTS)
def test_default_compiles_without_spilling(variant: Variant, b_transposed: bool) -> None:
    kernel, launch = launch_on_cpu(Entry("plain", Config()), Kind(variant, b_transposed, "bf16"))
    source = bridge.from_arguments(kernel, launch.args, launch.meta)
    plain = compile_plain(source)
    found = bridge.kernel_resources(source, plain, "")
    assert found.hgmma > 0
    assert found.stack_bytes == 0
    assert 0 <= shared_memory_bytes(Config()) - plain.metadata.shared <= 2048


def test_unknown_variant_and_dtype() -> None:
    with pytest.raises(ValueError, match=r"^variant: expected one of"):
        plain_kernel("tma")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"^out_dtype: expected one of"):
        check_out_dtype(torch.int8)

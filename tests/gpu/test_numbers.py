"""The kernels' numbers on a GPU, plain and specialized, against float32 references."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch

from wspec.kernels import elementwise
from wspec.kernels.attention import (
    HEAD_DIMS,
    Config,
    attention,
    attention_fwd,
    attention_fwd_ws,
    attention_reference,
    plain_configs,
)
from wspec.kernels.matmul import VARIANTS, Variant, matmul, matmul_reference, plain_kernel
from wspec.lab.bench.accuracy import Error, all_identical, as_accurate
from wspec.lab.bench.attention_cases import ODD_SHAPES, Case, Kind, make_inputs

pytestmark = pytest.mark.gpu

ATTENTION_KERNELS: dict[str, Callable[[], Any]] = {"plain": lambda: attention_fwd, "specialized": attention_fwd_ws}
CUDA = torch.device("cuda")

both = pytest.mark.parametrize("which", ["plain", "specialized"])


def assert_close(out: torch.Tensor, reference: torch.Tensor, dtype: torch.dtype) -> None:
    """Within the rounding of the result and of the probabilities to `dtype`."""
    error = Error.of(out, reference)
    assert error.relative < (2e-3 if dtype == torch.float16 else 1e-2), error


def assert_attends(case: Case, which: str, config: Config | None = None, scale: float | None = None) -> None:
    q, k, v = make_inputs(case, CUDA, seed=1)
    kernel, causal = ATTENTION_KERNELS[which](), case.kind.causal
    out, lse = attention(q, k, v, causal=causal, scale=scale, return_lse=True, config=config, kernel=kernel)
    out_ref, lse_ref = attention_reference(q, k, v, causal=causal, scale=scale)
    assert_close(out, out_ref, q.dtype)
    torch.testing.assert_close(lse, lse_ref, atol=2e-5, rtol=2e-5)
    hidden = lse_ref == -math.inf
    assert out[hidden].eq(0).all()
    assert out.stride() == torch.empty_like(q).stride()


@both
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("head_dim", HEAD_DIMS)
@pytest.mark.parametrize("shape", ODD_SHAPES, ids=str)
def test_attention_odd_shapes(shape: tuple[Any, ...], head_dim: int, causal: bool, which: str) -> None:
    assert_attends(Case(Kind(head_dim, causal, "bf16"), *shape), which)


@both
@pytest.mark.parametrize("dtype", ["fp16", "bf16"])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("head_dim", HEAD_DIMS)
@pytest.mark.parametrize("seqlen", [127, 128, 129, 256, 640])
def test_attention_lengths_around_a_tile(seqlen: int, head_dim: int, causal: bool, dtype: str, which: str) -> None:
    assert_attends(Case(Kind(head_dim, causal, dtype), 2, 4, 4, seqlen, seqlen), which)


@both
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("config", [Config(64, 64, 4, 2), Config(64, 128, 4, 3), Config(128, 64, 8, 3)], ids=str)
def test_attention_tiles(config: Config, causal: bool, which: str) -> None:
    assert_attends(Case(Kind(128, causal, "bf16"), 1, 2, 1, 700, 900), which, config)


@pytest.mark.slow
@pytest.mark.parametrize("head_dim", HEAD_DIMS)
def test_every_plain_config(head_dim: int) -> None:
    for config in plain_configs(head_dim):
        assert_attends(Case(Kind(head_dim, True, "fp16"), 1, 2, 1, 300, 333), "plain", config)


@both
@pytest.mark.parametrize("scale", [0.0, -0.2, 0.5])
def test_attention_scale(scale: float, which: str) -> None:
    assert_attends(Case(Kind(64, True, "fp16"), 1, 2, 2, 200, 200), which, scale=scale)


@both
def test_attention_large_scores(which: str) -> None:
    """Scores of many hundreds: a softmax that is not shifted by the maximum overflows."""
    assert_attends(Case(Kind(128, False, "bf16"), 1, 2, 2, 256, 1024), which, scale=20.0)


@both
@pytest.mark.parametrize("shape", [(0, 2, 5, 5), (2, 2, 0, 5), (2, 2, 5, 0)])
def test_attention_of_nothing(shape: tuple[int, int, int, int], which: str) -> None:
    batch, heads, seqlen_q, seqlen_k = shape
    q = torch.randn(batch, heads, seqlen_q, 64, device=CUDA, dtype=torch.bfloat16)
    k = torch.randn(batch, heads, seqlen_k, 64, device=CUDA, dtype=torch.bfloat16)
    out, lse = attention(q, k, k, return_lse=True, kernel=ATTENTION_KERNELS[which]())
    assert out.shape == q.shape and out.eq(0).all()
    assert lse.shape == q.shape[:3] and lse.eq(-math.inf).all()


@both
def test_attention_of_slices_of_one_projection(which: str) -> None:
    """q, k and v as views of one [B, S, 3, H, D] tensor, as a fused projection leaves them."""
    packed = torch.randn(2, 150, 3, 4, 64, device=CUDA, dtype=torch.bfloat16)
    q, k, v = packed.permute(2, 0, 3, 1, 4)
    out = attention(q, k, v, causal=True, kernel=ATTENTION_KERNELS[which]())
    assert_close(out, attention_reference(q, k, v, causal=True)[0], q.dtype)


@both
def test_attention_of_more_sequences_than_a_grid_has_rows(which: str) -> None:
    q = torch.randn(70000, 1, 1, 64, device=CUDA, dtype=torch.float16)
    out = attention(q, q, q, kernel=ATTENTION_KERNELS[which]())
    assert_close(out, q.float(), q.dtype)


@both
def test_attention_writes_nothing_past_its_output(which: str) -> None:
    """Rows of the last tile that lie past the queries are not stored: not into the next head, nor past the end."""
    from wspec.kernels.attention import Launch

    q, k, v = make_inputs(Case(Kind(64, False, "bf16"), 1, 2, 2, 70, 70), CUDA, seed=2)
    room = torch.full((1, 2, 300, 64), 7.0, device=CUDA, dtype=torch.bfloat16)
    lse = torch.full((1, 2, 70 + 64), 7.0, device=CUDA)
    out = room[:, :, :70]
    launch = Launch.of(q, k, v, out, lse, causal=False, scale=0.125)
    launch.run(ATTENTION_KERNELS[which]())
    assert room[:, :, 70:].eq(7).all()
    assert lse.flatten()[140:].eq(7).all()


def test_specialized_is_as_accurate_as_plain_and_repeatable() -> None:
    case = Case(Kind(128, True, "bf16"), 2, 4, 4, 1000, 1000)
    q, k, v = make_inputs(case, CUDA, seed=3)
    reference, _ = attention_reference(q, k, v, causal=True)
    plain = Error.of(attention(q, k, v, causal=True, kernel=attention_fwd), reference)
    run = functools.partial(attention, q, k, v, causal=True)
    assert as_accurate(Error.of(run(), reference).ratio_to(plain))
    assert all_identical(lambda: (run(),), 20)


def matmul_kernel(which: str, variant: Variant) -> Any:
    """The jit function to launch; None is the specialized one."""
    return plain_kernel(variant) if which == "plain" else None


@both
@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize(
    "size", [(1, 8, 8), (17, 24, 40), (128, 256, 64), (300, 520, 1000), (4096, 512, 2048)], ids=str
)
def test_matmul(size: tuple[int, int, int], variant: Variant, transposed: bool, which: str) -> None:
    m, n, k = size
    a = torch.randn(m, k, device=CUDA, dtype=torch.bfloat16)
    b = torch.randn(n, k, device=CUDA, dtype=torch.bfloat16).T
    b = b if transposed else b.contiguous()
    out = matmul(a, b, variant=variant, kernel=matmul_kernel(which, variant))
    assert out.shape == (m, n) and out.is_contiguous()
    assert_close(out, matmul_reference(a, b), a.dtype)


@both
@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("out_dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_matmul_out_dtype(out_dtype: torch.dtype, variant: Variant, which: str) -> None:
    a, b = (torch.randn(256, 256, device=CUDA, dtype=torch.float16) for _ in range(2))
    out = matmul(a, b, out_dtype=out_dtype, variant=variant, kernel=matmul_kernel(which, variant))
    assert out.dtype == out_dtype
    reference = matmul_reference(a, b)
    if out_dtype == torch.float32:
        assert Error.of(out, reference).relative < 3e-5
    else:
        assert_close(out, reference, out_dtype)


@both
def test_matmul_any_strides_and_sizes_through_pointers(which: str) -> None:
    a = torch.randn(77, 131, device=CUDA, dtype=torch.float16).T
    b = torch.randn(77, 90, device=CUDA, dtype=torch.float16)[:, ::2]
    out = matmul(a, b, variant="pointer", kernel=matmul_kernel(which, "pointer"))
    assert_close(out, matmul_reference(a, b), a.dtype)


@both
def test_matmul_odd_width_through_descriptors(which: str) -> None:
    a = torch.randn(100, 64, device=CUDA, dtype=torch.bfloat16)
    b = torch.randn(17, 64, device=CUDA, dtype=torch.bfloat16).T
    out = matmul(a, b, kernel=matmul_kernel(which, "descriptor"))
    assert out.is_contiguous()
    assert_close(out, matmul_reference(a, b), a.dtype)


@pytest.mark.parametrize("size", [(0, 8, 8), (8, 0, 8), (8, 8, 0)])
def test_matmul_of_nothing(size: tuple[int, int, int]) -> None:
    m, n, k = size
    a, b = (torch.randn(*shape, device=CUDA, dtype=torch.float16) for shape in ((m, k), (k, n)))
    assert torch.equal(matmul(a, b), torch.zeros(m, n, device=CUDA, dtype=torch.float16))


def specialized(kernel: Any) -> Any:
    import wspec

    return wspec.compile(kernel, remarks="off")


@both
@pytest.mark.parametrize("shape", [(1, 1), (5, 1000), (64, 4096), (3, 7, 777)], ids=str)
def test_rowwise(shape: tuple[int, ...], which: str) -> None:
    """Left alone by wspec, they must still run under it."""
    wrap = specialized if which == "specialized" else lambda kernel: kernel
    x, y = (torch.randn(shape, device=CUDA) for _ in range(2))
    weight, bias = (torch.randn(shape[-1], device=CUDA) for _ in range(2))
    assert torch.equal(elementwise.add(x, y, kernel=wrap(elementwise.add_kernel)), x + y)
    soft = elementwise.softmax(x, kernel=wrap(elementwise.softmax_kernel))
    torch.testing.assert_close(soft, elementwise.softmax_reference(x))
    normed = elementwise.layer_norm(x, weight, bias, kernel=wrap(elementwise.layer_norm_kernel))
    torch.testing.assert_close(normed, elementwise.layer_norm_reference(x, weight, bias), atol=1e-5, rtol=1e-5)

"""`wspec.kernels.attention` without a GPU: what it refuses, its reference, its configurations, its binaries."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention

from wspec import bridge
from wspec.bridge.launch import compile_plain
from wspec.kernels.arguments import tma_strides
from wspec.kernels.attention import (
    HEAD_DIMS,
    SHARED_MEMORY_BYTES,
    Config,
    Launch,
    attention,
    attention_reference,
    check_inputs,
    default_config,
    plain_configs,
    shared_memory_bytes,
    tiles,
)
from wspec.lab.bench.attention import Entry, launch_on_cpu
from wspec.lab.bench.attention_cases import Kind

Tensors = dict[str, torch.Tensor]


def good() -> Tensors:
    q = torch.zeros(2, 4, 8, 64, dtype=torch.bfloat16)
    k, v = (torch.zeros(2, 2, 16, 64, dtype=torch.bfloat16) for _ in range(2))
    return {"q": q, "k": k, "v": v}


def strided(tensor: torch.Tensor, stride: int, first: int = 0) -> torch.Tensor:
    """A tensor of the same shape whose sequence stride is `stride` elements, `first` elements into its storage."""
    batch, heads, seqlen, head_dim = tensor.shape
    return torch.zeros(batch, heads, seqlen, stride, dtype=tensor.dtype)[..., first : first + head_dim]


BAD: list[tuple[str, Callable[[Tensors], Any], type[Exception], str]] = [
    ("q", lambda t: None, TypeError, "q: expected a torch.Tensor, got NoneType"),
    ("k", lambda t: t["k"].float(), TypeError, "k: expected dtype torch.float16 or torch.bfloat16, got torch.float32"),
    ("k", lambda t: t["k"].half(), TypeError, "k: dtype torch.float16 differs from q, which is torch.bfloat16"),
    ("v", lambda t: t["v"][0], ValueError, "v: expected 4 dimensions, got 3"),
    ("k", lambda t: t["k"][:1], ValueError, "k: batch 1 differs from q's 2"),
    ("k", lambda t: t["k"][..., :32], ValueError, "k: head dimension 32 differs from q's 64"),
    ("v", lambda t: t["v"][:, :, :8], ValueError, r"v: shape .* differs from k's"),
    ("q", lambda t: torch.cat([t["q"], t["q"][:, :1]], 1), ValueError, "k: 2 heads do not divide q's 5 heads"),
    ("q", lambda t: t["q"].clone().requires_grad_(), ValueError, "q: requires grad, .* no backward"),
    ("v", lambda t: t["v"].mT.contiguous().mT, ValueError, "v: last dimension must be contiguous, got stride 16"),
    (
        "k",
        lambda t: strided(t["k"], 68),
        ValueError,
        "k: stride of dimension 2 .* multiple of 16 bytes .* pass k.contiguous",
    ),
    ("k", lambda t: t["k"][:, :1].expand(2, 2, 16, 64), ValueError, "k: stride of dimension 1 .* got 0"),
    ("q", lambda t: strided(t["q"], 72, 1), ValueError, "q: first element must be at a multiple of 16 bytes"),
]


@pytest.mark.parametrize(("name", "change", "error", "match"), BAD, ids=[case[3][:40] for case in BAD])
def test_bad_input_names_the_argument(
    name: str, change: Callable[[Tensors], Any], error: type[Exception], match: str
) -> None:
    tensors = good()
    tensors[name] = change(tensors)
    with pytest.raises(error, match=f"^{match}"):
        check_inputs(*tensors.values(), need_cuda=False)


def test_good_input_is_taken() -> None:
    check_inputs(*good().values(), need_cuda=False)


def test_cpu_tensors_are_refused_by_name() -> None:
    with pytest.raises(ValueError, match=r"^q: expected a CUDA tensor, got one on cpu"):
        attention(*good().values())


@pytest.mark.parametrize("head_dim", [32, 96, 512])
def test_head_dimension(head_dim: int) -> None:
    tensors = {name: torch.zeros(1, 1, 4, head_dim, dtype=torch.float16) for name in "qkv"}
    with pytest.raises(ValueError, match=rf"^q: head dimension must be one of .* got {head_dim}"):
        check_inputs(*tensors.values(), need_cuda=False)


@pytest.mark.parametrize(("scale", "error"), [("1", TypeError), (True, TypeError), (math.nan, ValueError)])
def test_bad_scale(scale: Any, error: type[Exception]) -> None:
    with pytest.raises(error, match=r"^scale: "):
        attention_reference(*good().values(), scale=scale)


def test_dimensions_of_length_one_may_have_any_stride() -> None:
    base = torch.zeros(3 * 64, dtype=torch.bfloat16)
    assert tma_strides("q", base.as_strided((1, 1, 3, 64), (7, 0, 64, 1))) == [8, 8, 64, 1]


def test_transposed_storage_is_taken_as_it_is() -> None:
    q = torch.zeros(2, 8, 4, 64, dtype=torch.bfloat16).transpose(1, 2)
    assert tma_strides("q", q) == [8 * 4 * 64, 64, 4 * 64, 1]


# ------------------------------------------------------------------------------------------------- the reference


def draw(batch: int, heads: int, kv_heads: int, seqlen_q: int, seqlen_k: int) -> Tensors:
    torch.manual_seed(0)
    q = torch.randn(batch, heads, seqlen_q, 64, dtype=torch.float64)
    k, v = (torch.randn(batch, kv_heads, seqlen_k, 64, dtype=torch.float64) for _ in range(2))
    return {"q": q, "k": k, "v": v}


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("heads", [(3, 3), (6, 2), (4, 1)])
def test_reference_agrees_with_torch(causal: bool, heads: tuple[int, int]) -> None:
    tensors = draw(2, *heads, 37, 37)
    out, lse = attention_reference(*tensors.values(), causal=causal, dtype=torch.float64)
    q, k, v = tensors.values()
    expected = scaled_dot_product_attention(q, k, v, is_causal=causal, enable_gqa=True)
    torch.testing.assert_close(out, expected)
    assert lse.shape == (2, heads[0], 37)


@pytest.mark.parametrize("lengths", [(5, 9), (9, 5), (1, 7), (7, 1)])
def test_reference_aligns_the_causal_mask_to_the_bottom_right(lengths: tuple[int, int]) -> None:
    seqlen_q, seqlen_k = lengths
    tensors = draw(1, 1, 1, seqlen_q, seqlen_k)
    out, lse = attention_reference(*tensors.values(), causal=True, scale=0.3, dtype=torch.float64)
    for row in range(seqlen_q):
        seen = max(0, row + seqlen_k - seqlen_q + 1)
        scores = tensors["k"][0, 0, :seen] @ tensors["q"][0, 0, row] * 0.3
        torch.testing.assert_close(out[0, 0, row], scores.softmax(0) @ tensors["v"][0, 0, :seen])
        torch.testing.assert_close(lse[0, 0, row], scores.logsumexp(0))


def test_reference_in_chunks_is_the_same() -> None:
    tensors = draw(1, 2, 1, 33, 21)
    whole = attention_reference(*tensors.values(), causal=True, dtype=torch.float64)
    parts = attention_reference(*tensors.values(), causal=True, dtype=torch.float64, score_bytes=3 * 2 * 21 * 8)
    for one, other in zip(whole, parts, strict=True):
        torch.testing.assert_close(one, other)


def test_reference_of_no_keys() -> None:
    out, lse = attention_reference(*draw(1, 2, 1, 3, 0).values())
    assert out.eq(0).all() and lse.eq(-math.inf).all()


# -------------------------------------------------------------------------------------- configurations, binaries


@pytest.mark.parametrize("head_dim", HEAD_DIMS)
def test_configs_fit(head_dim: int) -> None:
    configs = plain_configs(head_dim)
    assert len(configs) == len(set(configs))
    for config in configs:
        assert shared_memory_bytes(config, head_dim) <= SHARED_MEMORY_BYTES
        assert config.block_m >= 16 * config.num_warps
    assert set(tiles(head_dim)) <= set(configs)


@pytest.mark.parametrize("head_dim", HEAD_DIMS)
def test_default_tile_follows_the_launch(head_dim: int) -> None:
    low, high = tiles(head_dim)
    assert default_config(head_dim, 16384) == high
    assert default_config(head_dim, 50) == low  # half of a high tile would be padding
    assert default_config(head_dim, 150, heads=16) == low
    if head_dim > 64:
        assert default_config(head_dim, 1024) == high
        assert default_config(head_dim, 1024, heads=4) == low  # SMs are idle: the longest tile decides
    few = default_config(head_dim, 64, True, seqlen_k=8192)
    assert few == default_config(head_dim, 64, seqlen_k=8192)  # every row sees all keys but the last 64
    assert default_config(head_dim, 512, True, seqlen_k=100) in (low, high)


@pytest.mark.parametrize(
    ("head_dim", "seqlen", "causal", "heads", "is_low"),
    [
        (128, 464, True, 4096, True), (128, 606, True, 8192, True), (128, 1144, True, 2048, False),
        (128, 318, False, 1024, True), (128, 639, False, 1024, False), (64, 761, True, 4096, True),
        (64, 3934, True, 256, False), (64, 1621, False, 4096, False), (256, 263, True, 2048, True),
        (256, 749, True, 128, False),
    ],
)  # fmt: skip
def test_default_tile_is_the_faster(head_dim: int, seqlen: int, causal: bool, heads: int, is_low: bool) -> None:
    """Of these an H100 took 8 to 39 % more in the other one (docs/results/launches.md)."""
    assert default_config(head_dim, seqlen, causal, heads=heads) == tiles(head_dim)[0 if is_low else 1]


def test_unknown_head_dim_is_refused() -> None:
    for function in (plain_configs, default_config):
        with pytest.raises(ValueError, match=r"^head_dim: expected one of"):
            function(80)


def compiled(entry: Entry, kind: Kind) -> tuple[Any, Any]:
    kernel, launch = launch_on_cpu(entry, kind)
    source = bridge.from_arguments(kernel, launch.args, launch.meta)
    return source, compile_plain(source)


@pytest.mark.parametrize("dtype", [pytest.param("fp16", marks=pytest.mark.slow), "bf16"])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("head_dim", HEAD_DIMS)
def test_default_compiles_without_spilling(head_dim: int, causal: bool, dtype: str) -> None:
    kind = Kind(head_dim, causal, dtype)
    source, kernel = compiled(Entry("plain", default_config(head_dim)), kind)
    found = bridge.kernel_resources(source, kernel, "")
    assert found.hgmma > 0
    assert found.stack_bytes == 0
    assert kernel.metadata.shared <= shared_memory_bytes(default_config(head_dim), head_dim)


@pytest.mark.parametrize(("head_dim", "config"), [(64, Config(64, 64, 4, 4)), (128, Config(128, 128, 8, 3))])
def test_shared_memory_formula(head_dim: int, config: Config) -> None:
    _, kernel = compiled(Entry("plain", config), Kind(head_dim, True, "bf16"))
    assert 0 <= shared_memory_bytes(config, head_dim) - kernel.metadata.shared <= 2048


def test_lengths_and_heads_do_not_specialize() -> None:
    """One binary for every problem of a kind."""
    tile = default_config(64)
    kernel, small = launch_on_cpu(Entry("plain", tile), Kind(64, False, "bf16"))
    q = torch.empty(2, 16, 48, 64, dtype=torch.bfloat16)
    k, v = (torch.empty(2, 4, 80, 64, dtype=torch.bfloat16) for _ in range(2))
    large = Launch.of(q, k, v, torch.empty_like(q), torch.empty(2, 16, 48), causal=False, scale=0.125, config=tile)
    sources = [bridge.from_arguments(kernel, launch.args, launch.meta) for launch in (small, large)]
    assert sources[0].ast.hash() == sources[1].ast.hash()

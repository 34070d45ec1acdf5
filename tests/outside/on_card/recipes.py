"""What each entry needs to run on a card: three sizes, and what its tensors of integers hold.

Sizes change numbers or names in the entry's source (`entries.Sizes`); the second and third are ragged: odd lengths, and
sequences, groups and experts of different lengths.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from tests.outside.on_card import inputs
from tests.outside.on_card.entries import Change, Sizes
from tests.outside.on_card.inputs import Fill, Routing, begins, below, constant, counting, lengths, offsets, parts

Fills = Callable[[Sizes], Mapping[int, Fill]]


def _nothing(sizes: Sizes) -> Mapping[int, Fill]:
    return {}


@dataclass(frozen=True, slots=True)
class Recipe:
    """`floats`: what floating tensors hold, where that is not `inputs.scaled`. `without`: attributes of a library that
    the entry sets for the sake of a pretended GPU, and that stay as they are."""

    sizes: tuple[Sizes, Sizes, Sizes]
    fills: Fills = _nothing
    floats: Callable[[Tensor], Tensor] | None = None
    without: frozenset[str] = frozenset()


def recipe(entry: str) -> Recipe | None:
    """The first that matches the entry's name; None for an entry that is not known."""
    return next((found for pattern, found in RECIPES if re.fullmatch(pattern, entry)), None)


def three(second: Mapping[Change, int], third: Mapping[Change, int]) -> tuple[Sizes, Sizes, Sizes]:
    return Sizes(), Sizes(_named(second), second, ragged=True), Sizes(_named(third), third, ragged=True)


def _named(changes: Mapping[Change, int]) -> str:
    return " ".join(f"{key}={value}" for key, value in changes.items())


def positive(tensor: Tensor) -> Tensor:
    """As `inputs.scaled`, with what is of 32 bits small and positive: decays, scales."""
    found = inputs.scaled(tensor)
    return found.abs() * 0.1 if tensor.dtype == torch.float32 else found


def _pages_of(pages: int, length: int, table: int = 0, lens: int = 1) -> Fills:
    """A table of pages, then lengths of sequences."""
    return lambda sizes: {table: below(pages), lens: lengths(sizes.of(length), sizes.ragged)}


def _unified(total: int, sequences: int, most: int) -> Fills:
    """vLLM's attention: queries one behind the other, lengths, pages."""

    def fills(sizes: Sizes) -> dict[int, Fill]:
        tokens = sizes.of(total)
        return {0: offsets(tokens, sizes.ragged), 1: lengths(sizes.of(most), False), 2: below(4096)}

    return fills


def _moe(top: int, experts: int, block: int, tokens: int, first: int, rows: int, tight: bool = False) -> Fills:
    """`first`: the number of sorted rows among the tensors; experts of blocks and the number of rows follow. The entry
    makes room for one block in `rows` rows. `tight`: results lie in the order of sorted rows, as many as there are
    tokens times `top`, so that the last ones have no place."""

    def fills(sizes: Sizes) -> dict[int, Fill]:
        pairs = sizes.changes.get("M", tokens) * top
        routing = Routing(pairs, experts, block, sizes.ragged)
        room, places = pairs // rows + experts, pairs + experts * 128 * (not tight)
        found = {first: routing.sorted_rows(), first + 1: routing.experts(), first + 2: routing.padded(room, places)}
        if first:
            found[0] = lambda tensor, draw: routing.chosen
        return found

    return fills


def _prefill(sizes: Sizes) -> dict[int, Fill]:
    """Where sequences begin, and their lengths."""
    total = sizes.of(8192)
    return {0: begins(total, sizes.ragged), 1: parts(total, sizes.ragged)}


def _decode(sizes: Sizes) -> dict[int, Fill]:
    """Where each sequence's rows begin in a list of rows; the rows; how often a sequence is split."""
    return {0: offsets(sizes.changes.get(64, 64) * 1024, sizes.ragged), 1: below(65536), 2: constant(8)}


def _lora_a(sizes: Sizes) -> dict[int, Fill]:
    total = 16 * sizes.of(512)
    return {0: parts(total, sizes.ragged), 1: offsets(total, sizes.ragged), 2: below(8), 3: constant(16)}


def _lora(sizes: Sizes) -> dict[int, Fill]:
    """Which of eight each token has, tokens in that order, how many have each, where those begin, and which these are:
    the last group, of tokens without, is empty."""
    tokens = sizes.changes.get("M", 4096)
    each = tokens // 8

    def counted(tensor: Tensor, draw: torch.Generator) -> Tensor:
        return torch.tensor([each] * 7 + [tokens - 7 * each, 0], device="cpu")

    return {
        0: lambda tensor, draw: (torch.arange(tokens, device="cpu") // each).clamp(max=7),
        1: counting(),
        2: counted,
        3: lambda tensor, draw: torch.cat([torch.zeros(1, device="cpu"), counted(tensor, draw).cumsum(0)]),
        4: lambda tensor, draw: torch.tensor([*range(8), -1], device="cpu"),
    }


def _grouped(sizes: Sizes) -> dict[int, Fill]:
    """How many rows each of 32 experts has, and which."""
    return {0: parts(sizes.of(4096) * 4, sizes.ragged), 1: inputs.shuffled()}


def _verify(sizes: Sizes) -> dict[int, Fill]:
    """Where queries and prefixes begin stands in the entry; then rows of the prefix, a mask and where it begins."""
    return {1: below(65536), 2: lambda tensor, draw: torch.rand(tensor.shape, generator=draw, device="cpu") < 0.7,
            3: lambda tensor, draw: torch.arange(tensor.numel(), device="cpu") * (8 * 1032)}  # fmt: skip


RECIPES: tuple[tuple[str, Recipe], ...] = (
    ("fla_hgrn", Recipe(three({2048: 1000}, {2048: 4033, "B": 1}), floats=inputs.forgetting)),
    ("fla_.*", Recipe(three({2048: 1000}, {2048: 4033, "B": 1}), floats=inputs.gates)),
    ("liger_rms_norm", Recipe(three({4096: 4001}, {4096: 1000, 8192: 5120}))),
    ("liger_cross_entropy", Recipe(three({4096: 1023}, {32768: 32000}),
                                   lambda sizes: {0: below(sizes.of(32768))})),
    ("liger_swiglu", Recipe(three({4096: 777}, {14336: 11008}))),
    ("liger_rope", Recipe(three({2048: 1000}, {2048: 333}))),
    ("liger_mlp_tma", Recipe(three({2048: 1000}, {2048: 777, 14336: 11008}))),
    ("liger_int8int2", Recipe(three({2048: 1000}, {2048: 333}))),
    ("liger_fused_moe", Recipe(three({"T": 3001}, {"T": 1024, "E": 16}),
                               without=frozenset({"compute_routing_metadata"}))),
    ("liger_neighborhood_attn", Recipe(three({1024: 1000}, {1024: 520}))),
    ("unsloth_.*", Recipe(three({4096: 3004}, {4096: 1024, 1536: 1408}), _grouped)),
    ("bnb_4bit", Recipe(three({4096: 2048, 8192: 4096}, {4096: 1024, 8192: 2048}))),
    ("sgl_extend_attn_unified", Recipe(three({8192: 8000}, {8192: 4080}),
                                       lambda sizes: {1: below(65536), 2: constant(64)})),
    ("sgl_extend_attn_.*", Recipe(three({8192: 8000}, {8192: 4080}), lambda sizes: {1: below(65536)})),
    ("sgl_dense_prefill.*", Recipe(three({8192: 8000}, {8192: 4080}))),
    ("sgl_decode_attn_.*", Recipe(three({64: 48}, {64: 7}), _decode)),
    ("sgl_prefill_attn|vllm_prefill_attn", Recipe(three({8192: 8000}, {8192: 3333}), _prefill)),
    ("sgl_fused_moe_bf16_tma", Recipe(three({"M": 3001}, {"M": 513}), _moe(2, 8, 128, 4096, 1, 64, tight=True))),
    ("sgl_fused_moe_fp8.*_tma", Recipe(three({"M": 3001}, {"M": 513}), _moe(8, 256, 64, 4096, 1, 64, tight=True))),
    ("sgl_fused_moe_bf16.*", Recipe(three({"M": 3001}, {"M": 513}), _moe(2, 8, 128, 4096, 1, 64))),
    ("sgl_fused_moe_fp8.*", Recipe(three({"M": 3001}, {"M": 513}), _moe(8, 256, 64, 4096, 1, 64))),
    ("sgl_w8a8_block_fp8", Recipe(three({"M": 4001}, {"M": 129}))),
    ("sgl_w8a8_block_int8|vllm_w8a8_block_fp8", Recipe(three({4096: 4001}, {4096: 129}))),
    ("(sgl|vllm)_scaled_mm", Recipe(three({4096: 4000}, {4096: 2064}))),
    ("(sgl|vllm)_batch_invariant_.*", Recipe(three({4096: 4000, 1024: 1000}, {4096: 2056, 1024: 520}))),
    ("sgl_seg_la", Recipe(three({8192: 8000, 1024: 1000}, {8192: 4000, 1024: 500}),
                          lambda sizes: {1: inputs.shuffled(), 4: inputs.shuffled()}, floats=positive)),
    ("sgl_sgemm_lora_a", Recipe(three({512: 500}, {512: 333}), _lora_a)),
    ("sgl_moe_router", Recipe(three({4096: 2048}, {4096: 1024, 64: 33}))),
    ("sgl_verify_splitkv", Recipe(three({"B": 12}, {"B": 5}), _verify)),
    ("vllm_unified_attn_3d_decode", Recipe(three({"ns": 48, 1024: 1000}, {"ns": 7, 1024: 777}),
                                           lambda sizes: {0: counting(), 1: lengths(sizes.of(1024), sizes.ragged),
                                                          2: below(4096)})),
    ("vllm_unified_attn_2d.*", Recipe(three({8192: 8000, 1024: 1000}, {8192: 3333, 1024: 777}),
                                      _unified(8192, 64, 1024))),
    ("vllm_prefix_prefill", Recipe(three({8192: 8000, 512: 500}, {8192: 4096, 512: 256, 1024: 700}),
                                   lambda sizes: {0: below(4096)})),
    ("vllm_paged_decode_2d", Recipe(three({"n": 48, 1024: 1000}, {"n": 7, 1024: 777}),
                                    lambda sizes: {0: below(4096), 2: lengths(sizes.of(1024), sizes.ragged)})),
    ("vllm_decode_attn_.*", Recipe(three({"B": 48}, {"B": 7}), _pages_of(4096, 1024))),
    ("vllm_fused_moe_bf16_prefill", Recipe(three({"M": 3001}, {"M": 513}), _moe(2, 8, 128, 4096, 0, 128))),
    ("vllm_fused_moe_bf16_decode", Recipe(three({"M": 7}, {"M": 33}), _moe(2, 8, 16, 16, 0, 128))),
    ("vllm_fused_moe_fp8_tensor", Recipe(three({"M": 3001}, {"M": 513}), _moe(2, 8, 128, 4096, 0, 128))),
    ("vllm_fused_moe_fp8_block", Recipe(three({"M": 3001}, {"M": 513}), _moe(8, 256, 64, 4096, 0, 128))),
    ("vllm_awq_gemm", Recipe(three({32: 17}, {32: 64}), lambda sizes: {0: inputs.words(), 1: inputs.words()})),
    ("vllm_lora_shrink_expand", Recipe(three({"M": 4001}, {"M": 999}), _lora)),
    ("vllm_merge_attn_states", Recipe(three({4096: 4000}, {4096: 333}))),
)  # fmt: skip

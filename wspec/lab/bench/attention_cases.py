"""The shapes of the attention benchmark."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

import torch

TOKENS = 16384
"""Batch times sequence length of every main case."""

HIDDEN = 2048
"""Heads times head dimension of every main case."""

HEAD_DIMS = (128, 64, 256)
SEQLENS = (512, 1024, 2048, 4096, 8192, 16384)
DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}


@dataclass(frozen=True, slots=True)
class Kind:
    """What decides which compiled kernels run; lengths and heads do not."""

    head_dim: int
    causal: bool
    dtype: str

    def __str__(self) -> str:
        return f"D={self.head_dim} {'causal' if self.causal else 'full'} {self.dtype}"


@dataclass(frozen=True, slots=True)
class Case:
    """One problem: [batch, heads, seqlen_q, head_dim] queries on [batch, kv_heads, seqlen_k, head_dim] keys.

    layout: "bhsd", contiguous, or "bshd", heads inside sequence.
    """

    kind: Kind
    batch: int
    heads: int
    kv_heads: int
    seqlen_q: int
    seqlen_k: int
    layout: str = "bhsd"

    def __str__(self) -> str:
        heads = str(self.heads) if self.heads == self.kv_heads else f"{self.heads}/{self.kv_heads}"
        lengths = str(self.seqlen_q) if self.seqlen_q == self.seqlen_k else f"{self.seqlen_q}x{self.seqlen_k}"
        layout = "" if self.layout == "bhsd" else f" {self.layout}"
        return f"{self.kind} B={self.batch} H={heads} S={lengths}{layout}"

    @property
    def flops(self) -> int:
        """Of the two products, 4 B H Sq Sk D; half of it for a causal mask (FlashAttention's convention)."""
        full = 4 * self.batch * self.heads * self.seqlen_q * self.seqlen_k * self.kind.head_dim
        return full // 2 if self.kind.causal else full

    @property
    def bytes(self) -> int:
        """Of q, k, v and the output."""
        queries = self.batch * self.heads * self.seqlen_q
        keys = self.batch * self.kv_heads * self.seqlen_k
        return 2 * self.kind.head_dim * (2 * queries + 2 * keys)

    def as_json(self) -> dict[str, Any]:
        return {**asdict(self), "flops": self.flops}


def main_cases(kinds: Iterable[Kind], seqlens: Iterable[int] = SEQLENS) -> list[Case]:
    """Every kind at every length, all lengths of one kind together."""
    seqlens = tuple(seqlens)
    return [main_case(kind, seqlen) for kind in kinds for seqlen in seqlens]


def main_case(kind: Kind, seqlen: int) -> Case:
    """A length at TOKENS tokens in all and HIDDEN columns."""
    heads = HIDDEN // kind.head_dim
    return Case(kind, max(1, TOKENS // seqlen), heads, heads, seqlen, seqlen)


ODD_SHAPES: tuple[tuple[int, int, int, int, int, str], ...] = (
    (2, 3, 3, 1, 1, "bhsd"),
    (2, 3, 3, 17, 17, "bhsd"),
    (1, 4, 4, 1000, 1000, "bshd"),
    (1, 2, 2, 4095, 4095, "bhsd"),
    (2, 2, 2, 1, 1000, "bhsd"),
    (2, 2, 2, 129, 4095, "bhsd"),
    (1, 2, 2, 1000, 17, "bhsd"),
    (2, 8, 2, 1000, 1000, "bhsd"),
    (1, 8, 1, 300, 700, "bshd"),
)
"""(batch, heads, kv_heads, seqlen_q, seqlen_k, layout): lengths of one, small, off every tile and just under one;
decoding; more queries than keys, so that causal rows see nothing; grouped and single key heads; strided storage."""


def odd_cases(kinds: Iterable[Kind]) -> list[Case]:
    """Every odd shape for every kind; checked, not timed."""
    return [Case(kind, *shape) for kind in kinds for shape in ODD_SHAPES]


def make_inputs(case: Case, device: torch.device, seed: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Normally distributed q, k, v of a case."""
    generator = torch.Generator(device).manual_seed(seed)

    def draw(heads: int, seqlen: int) -> torch.Tensor:
        strided = case.layout == "bshd"
        shape = (case.batch, seqlen, heads) if strided else (case.batch, heads, seqlen)
        values = torch.randn(
            *shape, case.kind.head_dim, device=device, dtype=DTYPES[case.kind.dtype], generator=generator
        )
        return values.transpose(1, 2) if strided else values

    return (
        draw(case.heads, case.seqlen_q),
        draw(case.kv_heads, case.seqlen_k),
        draw(case.kv_heads, case.seqlen_k),
    )

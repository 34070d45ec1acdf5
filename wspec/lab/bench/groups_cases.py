"""The ways to put one to four consumer warp groups on an SM that `wspec.lab.bench.groups` compares."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

import wspec
from wspec.kernels.attention import Config, Launch, attention_fwd
from wspec.lab.bench.attention_cases import Case
from wspec.lab.bench.measured_points import attention_point
from wspec.lab.simulate.points import Point

FA3 = "FlashAttention-3"


@dataclass(frozen=True, slots=True)
class Arrangement:
    """`groups` consumer warp groups on an SM, in all blocks together, and how they come by their work.

    A tile of 64 rows is one group's; one of 128 is divided between two. A team of groups has a tile each.
    """

    groups: int
    config: Config  # `coarsening` of it is the number of tiles that share K and V
    blocks: int = 1
    ping_pong: bool = False

    def __str__(self) -> str:
        tile = f"{self.config.block_m}x{self.config.block_n}"
        if self.blocks > 1:
            how = f"{self.blocks} blocks, {tile}"
        elif self.config.coarsening > 1:
            how = f"team, {self.config.coarsening} tiles of {tile}"
        else:
            how = f"a tile of {tile}"
        return how + (", turns" if self.ping_pong else "")

    @property
    def shared(self) -> bool:
        """Could the groups of a block take turns: are there several?"""
        return self.groups > self.blocks

    @property
    def options(self) -> dict[str, Any]:
        """Of `wspec.compile`; what is compared is fixed, and the rest is the compiler's."""
        sharing = (
            {"coarsening": self.config.coarsening}
            if self.config.coarsening > 1
            else {"coarsening": 1, "consumers": self.groups // self.blocks}
        )
        return {
            **sharing,
            "blocks": self.blocks,
            "persistent": True,
            "ping_pong": self.ping_pong,
            "gate": "off",
            "chain": "off",
        }

    def point(self, case: Case) -> Point:
        """The launch, for the predictor; its time is not known."""
        tile = (self.config.block_m, self.config.block_n, self.config.num_warps, self.config.num_stages)
        key = (case.kind.head_dim, case.kind.causal, case.kind.dtype, case.seqlen_q)
        return attention_point(key, "specialized", tile, 1.0).with_options(**self.options)


def arrangements(head_dim: int) -> list[Arrangement]:
    """Those of a head dimension, 64 or 128; each with several groups in a block once without and once with turns.

    At 128 the accumulators of three groups leave too few registers for 128 keys: they are compared at 64 keys too,
    and so is the tile of two. At 64 there are registers for four groups with 64 keys, and for fewer besides.
    """
    wide = [
        Arrangement(1, Config(64, 128, 4)),
        Arrangement(2, Config(128, 128, 8)),
        Arrangement(2, Config(64, 128, 4, coarsening=2)),
        Arrangement(2, Config(64, 128 if head_dim == 64 else 64, 4), blocks=2),
        Arrangement(3, Config(64, 128, 4, coarsening=3)),
    ]
    three = Arrangement(3, Config(64, 64, 4, coarsening=3))
    if head_dim == 128:
        narrow = [Arrangement(2, Config(128, 64, 8)), three]
    else:
        four = Arrangement(4, Config(64, 64, 4, coarsening=4))
        narrow = [Arrangement(3, Config(64, 64, 4), blocks=3), three, four]
    found = sorted([*wide, *narrow], key=lambda one: one.groups)
    return [Arrangement(one.groups, one.config, one.blocks, turns) for one in found for turns in _turns(one)]


def _turns(one: Arrangement) -> Sequence[bool]:
    return (False, True) if one.shared else (False,)


@functools.cache
def function(one: Arrangement) -> Any:
    """The specialized kernel of an arrangement."""
    return wspec.compile(remarks="off", **one.options)(attention_fwd)


def launch_of(
    case: Case, one: Arrangement, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor
) -> tuple[Launch, torch.Tensor, torch.Tensor]:
    """A launch of a case, its output and its log-sum-exp, which hold NaN before it has run."""
    out, lse = torch.full_like(q, torch.nan), torch.full(q.shape[:3], torch.nan, device=q.device)
    scale = case.kind.head_dim**-0.5
    return Launch.of(q, k, v, out, lse, causal=case.kind.causal, scale=scale, config=one.config), out, lse


def make(case: Case, one: Arrangement) -> tuple[Any, Launch]:
    """For `precompile`: the kernel is specialized on the types of its arguments, not on their sizes."""
    q, k, v = (torch.empty(1, 1, 1, case.kind.head_dim, dtype=torch.bfloat16) for _ in range(3))
    return function(one), launch_of(case, one, q, k, v)[0]

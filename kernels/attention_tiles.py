"""Tiles of attention: which there are for the plain kernel, and which one a launch has when nobody chose one."""

from __future__ import annotations

import functools
from dataclasses import dataclass

from wspec.kernels.arguments import SHARED_MEMORY_BYTES
from wspec.kernels.attention_inputs import HEAD_DIMS


@dataclass(frozen=True, slots=True)
class Config:
    """A tile of block_m queries by block_n keys, and how many warps and pipeline stages work on it.

    coarsening: how many neighbouring tiles share what they read, when the kernel is specialized; 1: the launch chooses.
    """

    block_m: int = 128
    block_n: int = 128
    num_warps: int = 8
    num_stages: int = 2
    coarsening: int = 1

    def __str__(self) -> str:
        shares = f" team {self.coarsening}" if self.coarsening > 1 else ""
        return f"{self.block_m}x{self.block_n} w{self.num_warps} s{self.num_stages}{shares}"


def shared_memory_bytes(config: Config, head_dim: int, element_bytes: int = 2) -> int:
    """Shared memory of the plain kernel under Triton's own pipeliner: Q, and num_stages buffers of K and of V.

    The output tile reuses them after the loop. Barriers add 8 bytes a stage and buffer; 1 KiB is set aside for them
    and for alignment.
    """
    q_bytes = config.block_m * head_dim * element_bytes
    kv_bytes = 2 * config.num_stages * config.block_n * head_dim * element_bytes
    return q_bytes + kv_bytes + 1024


def accumulator_registers(config: Config, head_dim: int) -> int:
    """32-bit registers a thread needs for the output and score accumulators alone, out of the 255 it can have."""
    return config.block_m * (head_dim + config.block_n) // (32 * config.num_warps)


def plain_configs(head_dim: int) -> list[Config]:
    """An honest grid for the unspecialized kernel: every tile, warp count and depth that can run well on sm_90.

    Tiles of 64 or 128 queries by 32 to 256 keys, 4 or 8 warps, 2 to 4 stages. Left out: what exceeds shared memory by
    `shared_memory_bytes`, warps with fewer than 16 rows (wgmma works on 64 rows a warp group), and accumulators
    that alone need more than 224 registers a thread, which spill.
    """
    _check_head_dim(head_dim)
    grid = [
        Config(block_m, block_n, num_warps, num_stages)
        for block_m in (64, 128)
        for block_n in (32, 64, 128, 256)
        for num_warps in (4, 8)
        for num_stages in (2, 3, 4)
    ]
    return [config for config in grid if _can_run_well(config, head_dim)]


def _can_run_well(config: Config, head_dim: int) -> bool:
    return (
        config.block_m >= 16 * config.num_warps
        and shared_memory_bytes(config, head_dim) <= SHARED_MEMORY_BYTES
        and accumulator_registers(config, head_dim) <= 224
    )


@functools.cache
def tiles(head_dim: int) -> tuple[Config, Config]:
    """What `default_config` chooses between for the specialized kernel: the lower or narrower tile, and the other.

    Where the exponentials take as long as the products (head_dim 64) both are low, so that warp groups hide them from
    each other: a team of three on tiles that share K and V, or, as the launch chooses, two blocks an SM. Elsewhere high
    tiles read K and V less often. Raises ValueError for a head dimension the kernel does not have.
    """
    _check_head_dim(head_dim)
    low = Config(64, 64, num_warps=4, num_stages=2)
    if head_dim == 64:
        return low, Config(64, 128, num_warps=4, num_stages=2)
    return low, Config(128, 64 if head_dim == 256 else 128, num_warps=8, num_stages=2)


SMS = 132
"""Of an H200."""

LOW_TILE_TIME = {64: 1.1, 128: 1.2, 256: 1.2}
"""Head dimension -> time of a score in the first of `tiles` over that in the second. Least regret over 124 cases on an
H100, of 91 to 5,000 tokens and 32 to 8,192 heads (docs/results/launches.md)."""


def default_config(
    head_dim: int, seqlen_q: int = 4096, causal: bool = False, seqlen_k: int | None = None, heads: int = 1024
) -> Config:
    """The tile of the specialized kernel when nobody chose one: of `tiles`, that in which the launch should end first.

    Rows and keys are counted as the tiles pad them, and what a tile does before and behind its loop as an iteration;
    the time is that of an SM's share of all tiles or, where SMs are idle, of the longest tile. seqlen_k: as many as
    queries if None; heads: of queries, of all sequences together. Lengths between two multiples of 32 are alike.

    Raises ValueError for a head dimension the kernel does not have.
    """
    rows, keys = ((seqlen_q - 1) | 31) + 1, (((seqlen_q if seqlen_k is None else seqlen_k) - 1) | 31) + 1
    low, high = tiles(head_dim)
    slower = LOW_TILE_TIME[head_dim] * _scores(low, rows, keys, causal, heads)
    return low if slower < _scores(high, rows, keys, causal, heads) else high


def _scores(tile: Config, seqlen_q: int, seqlen_k: int, causal: bool, heads: int) -> float:
    """How many scores the launch takes as long as that one SM computes."""
    rows, columns = tile.block_m, tile.block_n
    most = least = -(-seqlen_k // columns) * columns
    if causal:  # the rows of the first tile see the fewest keys, and those between about the mean
        seen = seqlen_k - seqlen_q + rows
        if seen < seqlen_k:
            least = -(-seen // columns) * columns if seen > 0 else 0
    share = -(-seqlen_q // rows) * heads * ((least + most) / 2 + columns) / SMS
    return rows * (share if share > most + columns else most + columns)


def _check_head_dim(head_dim: int) -> None:
    if head_dim not in HEAD_DIMS:
        raise ValueError(f"head_dim: expected one of {HEAD_DIMS}, got {head_dim}")

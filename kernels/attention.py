"""FlashAttention forward as a plain Triton kernel for Hopper, with its torch-facing function and its reference.

The kernel is unspecialized: a loop that loads K and V through TMA descriptors and multiplies them. It is what a person
would write, and what `wspec.compile` takes apart.

Conventions:

* tensors are [batch, heads, sequence, head_dim]; any strides that TMA can walk, so [batch, sequence, heads, head_dim]
  storage is passed as a transposed view;
* grouped queries: `heads` of q is a multiple of `heads` of k and v, query head h reads key head h // (Hq / Hk);
* the causal mask is aligned to the bottom right, as in FlashAttention 2.1 and later: query i of Sq sees key j of Sk
  when j <= i + Sk - Sq. (torch's `is_causal=True` is aligned to the top left; they agree when Sq == Sk.);
* a query that sees no key gives a row of zeros and a log-sum-exp of minus infinity.
"""

# mypy: disallow-untyped-defs=False, disallow-incomplete-defs=False, disallow-untyped-decorators=False
# The bodies of jit functions are read by Triton, which has no types to give their arguments.

from __future__ import annotations

import functools
import math
from dataclasses import dataclass, field
from typing import Any, Literal, overload

import torch
import triton
import triton.language as tl

from wspec.bridge.again import Ready
from wspec.bridge.alike import Alike
from wspec.bridge.launcher import keep
from wspec.bridge.ready import MOST, Memo, are_alike, current_stream, like_before
from wspec.bridge.ready import launch as launched
from wspec.kernels.arguments import (
    HALF_DTYPES,
    MAX_GRID_YZ,
    TMA_ALIGNMENT_BYTES,
    check_cuda,
    check_no_grad,
    check_same,
    check_tensor,
    on_device,
    tma_descriptors,
    tma_strides,
)
from wspec.kernels.operators import is_traced, operator
from wspec.kernels.reference import exact_float32_products

HEAD_DIMS = (64, 128, 256)
SHARED_MEMORY_BYTES = 232448
"""Shared memory one block may use on sm_90: 227 KiB (CUDA programming guide, compute capabilities)."""

LOG2_E = math.log2(math.e)
SMALLEST_SCALE = 2.0**-126
"""Stands for a scale of 0, by which a masked score of minus infinity must not be multiplied."""


@triton.jit
def _attend_block(
    acc, row_sum, row_max, q, k_desc, v_desc, batch, kv_head, start, last_key, scale_log2,
    BLOCK_N: tl.constexpr, HEAD_DIM: tl.constexpr, MASKED: tl.constexpr,
):  # fmt: skip
    """One step of online softmax: fold keys [start, start + BLOCK_N) into (acc, row_sum, row_max).

    row_max is in units of log2. With MASKED, keys past last_key (a scalar, or one a row as [BLOCK_M, 1]) do not count.
    """
    k = k_desc.load([batch, kv_head, start, 0]).reshape(BLOCK_N, HEAD_DIM)
    scores = tl.dot(q, k.T)
    if MASKED:
        # In two parts: a thread's columns differ in the upper bits, which then are constants of its code.
        keys = tl.arange(0, BLOCK_N)[None, :]
        seen = (keys & -8) <= last_key - start - (keys & 7)
        scores = tl.where(seen, scores, -float("inf"))
    new_max = tl.maximum(row_max, tl.max(scores, 1) * scale_log2)
    # A row that has seen no key yet has maximum -inf, and -inf - -inf is NaN: measure such a row from 0.
    base = tl.where(new_max == -float("inf"), 0.0, new_max) if MASKED else new_max
    p = tl.math.exp2(scores * scale_log2 - base[:, None])
    decay = tl.math.exp2(row_max - base)
    row_sum = row_sum * decay + tl.sum(p, 1)
    acc = acc * decay[:, None]
    v = v_desc.load([batch, kv_head, start, 0]).reshape(BLOCK_N, HEAD_DIM)
    acc = tl.dot(p.to(v.dtype), v, acc)
    return acc, row_sum, new_max


@triton.jit(do_not_specialize=["seqlen_q", "seqlen_k", "heads", "group"])
def attention_fwd(
    q_desc, k_desc, v_desc, o_desc, lse_ptr, scale_log2, seqlen_q, seqlen_k, heads, group,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, HEAD_DIM: tl.constexpr, CAUSAL: tl.constexpr,
):  # fmt: skip
    """One tile of BLOCK_M queries of one head; grid (ceil(seqlen_q / BLOCK_M), heads, batch).

    q_desc, o_desc: [B, H, Sq, D] in blocks [1, 1, BLOCK_M, D]; k_desc, v_desc: [B, H / group, Sk, D] in blocks
    [1, 1, BLOCK_N, D]; lse_ptr: float32 [B, H, Sq] contiguous; scale_log2: softmax scale times log2(e), positive.
    """
    tile = tl.program_id(0)
    head = tl.program_id(1)
    batch = tl.program_id(2)
    if CAUSAL:
        # The last queries see the most keys: start them first.
        tile = tl.cdiv(seqlen_q, BLOCK_M) - 1 - tile
    kv_head = head // group
    first = tile * BLOCK_M
    rows = first + tl.arange(0, BLOCK_M)

    # Keys [0, full_end) are seen by every row, keys [full_end, end) by some.
    if CAUSAL:
        diagonal = first + seqlen_k - seqlen_q  # the last key that the tile's first row sees
        full_end = tl.maximum(diagonal + 1, 0) // BLOCK_N * BLOCK_N
        end = tl.minimum(diagonal + BLOCK_M, seqlen_k)
        last_key = (diagonal + tl.arange(0, BLOCK_M))[:, None]
    else:
        full_end = seqlen_k // BLOCK_N * BLOCK_N
        end = seqlen_k
        last_key = seqlen_k - 1

    row_max = tl.full([BLOCK_M], -float("inf"), tl.float32)
    row_sum = tl.zeros([BLOCK_M], tl.float32)
    acc = tl.zeros([BLOCK_M, HEAD_DIM], tl.float32)
    q = q_desc.load([batch, head, first, 0]).reshape(BLOCK_M, HEAD_DIM)
    for start in tl.range(0, full_end, BLOCK_N):
        acc, row_sum, row_max = _attend_block(
            acc, row_sum, row_max, q, k_desc, v_desc, batch, kv_head, start, last_key, scale_log2,
            BLOCK_N, HEAD_DIM, MASKED=False,
        )  # fmt: skip
    for start in tl.range(full_end, end, BLOCK_N):
        acc, row_sum, row_max = _attend_block(
            acc, row_sum, row_max, q, k_desc, v_desc, batch, kv_head, start, last_key, scale_log2,
            BLOCK_N, HEAD_DIM, MASKED=True,
        )  # fmt: skip

    # A row without keys has row_sum 0 and acc 0: divide by 1; log2(0) makes its log-sum-exp -inf.
    inverse = 1.0 / tl.where(row_sum == 0.0, 1.0, row_sum)
    out = acc * inverse[:, None]
    lse = (row_max + tl.math.log2(row_sum)) * 0.6931471805599453
    lse_row = lse_ptr + (batch * heads + head).to(tl.int64) * seqlen_q
    tl.store(lse_row + rows, lse, mask=rows < seqlen_q)
    o_desc.store([batch, head, first, 0], out.to(q.dtype).reshape(1, 1, BLOCK_M, HEAD_DIM))


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

LOW_TILE_TIME = {64: 1.05, 128: 1.15, 256: 1.15}
"""Head dimension -> time of a score in the first of `tiles` over that in the second; AROUND_TILE: scores of a row that
take as long as what a tile does before and behind its loop. Least regret over 246 cases of 50 to 2,048 tokens and 16 to
1,536 heads on an H200 (docs/results/launches.md)."""

AROUND_TILE = 128


def default_config(
    head_dim: int, seqlen_q: int = 4096, causal: bool = False, seqlen_k: int | None = None, heads: int = 1024
) -> Config:
    """The tile of the specialized kernel when nobody chose one: of `tiles`, that in which the launch should end first.

    Rows and keys are counted as the tiles pad them; the time is that of an SM's share of all tiles or, where SMs are
    idle, of the longest tile. seqlen_k: as many as queries if None; heads: of queries, of all sequences together.
    Lengths between two multiples of 32 are alike.

    Raises ValueError for a head dimension the kernel does not have.
    """
    keys = seqlen_q if seqlen_k is None else seqlen_k
    return _sooner(head_dim, ((seqlen_q - 1) | 31) + 1, causal, ((keys - 1) | 31) + 1, heads)


@functools.lru_cache(maxsize=4096)
def _sooner(head_dim: int, seqlen_q: int, causal: bool, keys: int, heads: int) -> Config:
    low, high = tiles(head_dim)
    slower = LOW_TILE_TIME[head_dim] * _scores(low, seqlen_q, keys, causal, heads)
    return low if slower < _scores(high, seqlen_q, keys, causal, heads) else high


def _scores(tile: Config, seqlen_q: int, seqlen_k: int, causal: bool, heads: int) -> float:
    """How many scores the launch takes as long as that one SM computes."""
    rows, columns = tile.block_m, tile.block_n
    most = least = -(-seqlen_k // columns) * columns
    if causal:  # the rows of the first tile see the fewest keys, and those between about the mean
        seen = seqlen_k - seqlen_q + rows
        if seen < seqlen_k:
            least = -(-seen // columns) * columns if seen > 0 else 0
    share = -(-seqlen_q // rows) * heads * ((least + most) / 2 + AROUND_TILE) / SMS
    return rows * (share if share > most + AROUND_TILE else most + AROUND_TILE)


def _check_head_dim(head_dim: int) -> None:
    if head_dim not in HEAD_DIMS:
        raise ValueError(f"head_dim: expected one of {HEAD_DIMS}, got {head_dim}")


@functools.cache
def attention_fwd_ws(team: int = 1) -> Any:
    """`attention_fwd` under `wspec.compile`, made on first use so that the plain kernel needs no compiler of ours.

    With a team of more than one the compiler is told so; else each launch chooses by its sizes.
    """
    import wspec

    if team > 1:
        return wspec.compile(attention_fwd, coarsening=team, trials=0)
    return wspec.compile(attention_fwd, trials=0)


@overload
def attention(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *, causal: bool = ..., scale: float | None = ...,
    return_lse: Literal[False] = ..., config: Config | None = ..., kernel: Any = ...,
) -> torch.Tensor: ...  # fmt: skip


@overload
def attention(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *, causal: bool = ..., scale: float | None = ...,
    return_lse: Literal[True], config: Config | None = ..., kernel: Any = ...,
) -> tuple[torch.Tensor, torch.Tensor]: ...  # fmt: skip


def attention(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    *,
    causal: bool = False,
    scale: float | None = None,
    return_lse: bool = False,
    config: Config | None = None,
    kernel: Any = None,
) -> torch.Tensor | tuple[torch.Tensor, torch.Tensor]:
    """softmax(q k^T * scale) v, with the conventions this module's docstring gives.

    q: [B, Hq, Sq, D]; k, v: [B, Hk, Sk, D]; float16 or bfloat16 on one CUDA device, D 64, 128 or 256, any lengths,
    zero included. scale: 1 / sqrt(D) if None; it may be negative. config and kernel: the tile and the jit function to
    launch: `default_config`'s and the specialized kernel where they are not given.

    A call like one before, tensors elsewhere, is launched without looking at anything twice.

    Returns [B, Hq, Sq, D] in q's dtype and stride order and, with return_lse, the natural log-sum-exp of the scaled
    scores as float32 [B, Hq, Sq]. Raises TypeError (type, dtype) or ValueError (shape, device, strides), naming the
    argument. There is no backward.
    """
    if config is None and kernel is None and is_traced(q, k, v):
        traced: tuple[torch.Tensor, torch.Tensor] = _operator(q, k, v, causal, scale)
        return traced if return_lse else traced[0]
    key = _key(q, k, v, causal, scale, config, kernel, return_lse)
    found = _launches.get(key) if key is not None else None
    if found is None:
        return _attention(q, k, v, causal, scale, return_lse, config, kernel, key)
    again, unread, _ = found
    at_q, at_k, at_v, out = q.data_ptr(), k.data_ptr(), v.data_ptr(), torch.empty_like(q)
    lse = None if unread else torch.empty(q.shape[:3], dtype=torch.float32, device=q.device)
    aligned = not (at_q | at_k | at_v) % TMA_ALIGNMENT_BYTES
    if not (aligned and again(at_q, at_k, at_v, out.data_ptr(), unread if lse is None else lse.data_ptr())):
        return _attention(q, k, v, causal, scale, return_lse, config, kernel, key)
    return out if lse is None or not return_lse else (out, lse)


def _computed(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, causal: bool = False, scale: float | None = None
) -> tuple[torch.Tensor, torch.Tensor]:
    """What the operator runs on tensors with memory."""
    return attention(q, k, v, causal=causal, scale=scale, return_lse=True)


def _fake(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, causal: bool = False, scale: float | None = None
) -> tuple[torch.Tensor, torch.Tensor]:
    """What comes out; raises as `attention` does for what is wrong whatever lies in memory."""
    check_forms(q, k, v)
    check_scale(scale, q.shape[-1])
    return torch.empty_like(q), q.new_empty(q.shape[:3], dtype=torch.float32)


_operator = operator(
    "attention(Tensor q, Tensor k, Tensor v, bool causal=False, float? scale=None) -> (Tensor, Tensor)",
    lambda *args, **named: _computed(*args, **named),
    _fake,
)
_SCALES = (float, int, type(None))
_launches = Memo()
"""By what decides a launch, the launch to be made again, where its log-sum-exp may go if nobody reads it (0: nowhere),
and the kernel, whose identity is part of that."""
UNREAD_ROWS = 1 << 20  # 4 MiB; what takes longer to compute than memory takes to be had gets memory of its own


@functools.cache
def _unread(device: torch.device, stream: int) -> torch.Tensor:
    """Memory for the log-sum-exp of launches of a stream that nobody asked for: they may all write there, one after the
    other. It is never given back, for a graph may keep its address."""
    return torch.empty(UNREAD_ROWS, dtype=torch.float32, device=device)


@dataclass(slots=True)
class _Others:
    """What calls have in common that differ in shapes and strides only: all else about them was looked at once."""

    scale_log2: float
    config: Config | None
    kernel: Any  # its identity is part of the key
    unread: torch.Tensor | None  # where the log-sum-exp goes; None: it is asked for
    launches: dict[Config, Alike] = field(default_factory=dict)
    near: dict[tuple[int, int, int], tuple[Alike, int]] = field(default_factory=dict)
    """By what `default_config` looks at, what launches, and rows of the tile."""


_others = Memo()
"""By the head dimension and what stands in a key behind strides."""


def _of_another_shape(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, key: tuple[Any, ...]
) -> tuple[torch.Tensor, torch.Tensor] | None:
    """`attention`, of an ordinary key, like one before; None where there was none, or it is not so after all."""
    (batch, heads, rows, head_dim), (_, kv_heads, keys, _) = key[:2]
    others: _Others | None = _others.get((head_dim, key[6:]))
    lines = batch * heads
    if others is None or not (rows and keys and 0 < batch <= MAX_GRID_YZ):
        return None
    lse = others.unread
    if lse is None:
        lse = torch.empty((batch, heads, rows), dtype=torch.float32, device=q.device)
    elif lines * rows > UNREAD_ROWS:
        return None
    near = (rows - 1) >> 5, (keys - 1) >> 5, lines
    found = others.near.get(near)
    if found is None:
        tile = others.config or default_config(head_dim, rows, key[12], keys, lines)
        launch = others.launches.get(tile)
        if launch is None:
            return None
        found = launch, tile.block_m
        keep(others.near, near, found, MOST)
    launch, block_m = found
    out = torch.empty_like(q)
    given = q, k, v, out, lse, others.scale_log2, rows, keys, heads, heads // kv_heads
    done, again = launch.launch((-(-rows // block_m), heads, batch), given, (key[9], key[-1]))
    if not done:
        return None
    _launches.keep(key, (again, 0 if others.unread is None else lse.data_ptr(), others.kernel))
    return out, lse


def _key(
    q: Any, k: Any, v: Any, causal: Any, scale: Any, config: Config | None, kernel: Any, return_lse: bool
) -> tuple[Any, ...] | None:
    """Everything that is checked and that decides the launch, but for addresses; None where that is looked at anew."""
    if not are_alike((q, k, v)) or type(causal) is not bool or type(scale) not in _SCALES:
        return None
    device = q.get_device()
    return (
        q.shape, k.shape, v.shape, q.stride(), k.stride(), v.stride(), q.dtype, k.dtype, v.dtype,
        device, k.get_device(), v.get_device(), causal, scale, config, id(kernel), return_lse, current_stream(device),
    )  # fmt: skip


def _attention(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    causal: bool,
    scale: float | None,
    return_lse: bool,
    config: Config | None,
    kernel: Any,
    key: tuple[Any, ...] | None,
) -> torch.Tensor | tuple[torch.Tensor, torch.Tensor]:
    """`attention` of inputs that were not seen before; what was launched is kept under the key."""
    if key is not None and _are_ordinary(key):
        made = _of_another_shape(q, k, v, key)
        if made is not None:
            return made if return_lse else made[0]
    else:
        check_forms(q, k, v)
        for name, tensor in (("q", q), ("k", k), ("v", v)):
            check_cuda(name, tensor)
    empty = q.numel() == 0 or k.shape[2] == 0
    scale = check_scale(scale, q.shape[-1])
    turned = scale < 0
    if empty or turned:  # else descriptors of them are made
        check_inputs(q, k, v)
    if empty:
        out, lse = torch.zeros_like(q), torch.full(q.shape[:3], -math.inf, device=q.device)
        return (out, lse) if return_lse else out
    if turned:
        q, scale = -q, -scale  # The kernel takes the maximum before it scales.
    stream = -1 if key is None else key[-1]
    tile = config or _tile_for(q, k, causal)
    runs = attention_fwd_ws(tile.coarsening) if kernel is None else kernel
    like = q.dtype, tile.block_m, tile.block_n, q.shape[3], causal, tile.num_warps, tile.num_stages
    launch = like_before(runs, like, (key[9], stream)) if key is not None and stream >= 0 and not turned else None
    if key is not None and launch is not None:
        known, nobody = (q.shape[3], key[6:]), None if return_lse else _unread(q.device, stream)
        others = _others.get(known)
        if others is None:
            others = _Others(_numbers(q, k, scale)[0], config, kernel, nobody)
            _others.keep(known, others)
        others.launches[tile] = launch
        made = _of_another_shape(q, k, v, key)
        if made is not None:
            return made if return_lse else made[0]
    out = torch.empty_like(q)
    rows = q.numel() // q.shape[3]
    unread = not return_lse and stream >= 0 and rows <= UNREAD_ROWS and q.shape[0] <= MAX_GRID_YZ
    if unread:
        lse = _unread(q.device, stream)
    else:
        lse = torch.empty(q.shape[:3], dtype=torch.float32, device=q.device)
    if q.shape[0] > MAX_GRID_YZ:
        for part in _batch_parts(q.shape[0]):
            tensors = [tensor[part] for tensor in (q, k, v, out, lse)]
            Launch.of(*tensors, causal=causal, scale=scale, config=tile).run(runs)
        return (out, lse) if return_lse else out
    again = Launch.of(q, k, v, out, lse, causal=causal, scale=scale, config=tile).run(runs, like)
    if again is not None and stream >= 0 and not turned:
        _launches.keep(key, (again, lse.data_ptr() if unread else 0, kernel))
    return (out, lse) if return_lse else out


@dataclass(frozen=True, slots=True)
class Launch:
    """Everything `kernel[grid](*args, **meta)` needs for one call; made once, it can be run many times."""

    grid: tuple[int, int, int]
    args: tuple[Any, ...]
    meta: dict[str, Any]
    device: torch.device

    @staticmethod
    def of(
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        out: torch.Tensor,
        lse: torch.Tensor,
        *,
        causal: bool,
        scale: float,
        config: Config | None = None,
    ) -> Launch:
        """The launch for inputs that passed `check_inputs`: nothing empty, scale not negative, batch <= 65535."""
        head_dim = q.shape[3]
        tile = config or _tile_for(q, k, causal)
        q_block, kv_block = (1, 1, tile.block_m, head_dim), (1, 1, tile.block_n, head_dim)
        descriptors = tma_descriptors(("q", q, q_block), ("k", k, kv_block), ("v", v, kv_block), ("out", out, q_block))
        return Launch(
            _grid(q, tile),
            (*descriptors, lse, *_numbers(q, k, scale)),
            {
                "BLOCK_M": tile.block_m,
                "BLOCK_N": tile.block_n,
                "HEAD_DIM": head_dim,
                "CAUSAL": causal,
                "num_warps": tile.num_warps,
                "num_stages": tile.num_stages,
            },
            q.device,
        )

    def run(self, kernel: Any, like: tuple[Any, ...] | None = None) -> Ready | None:
        """Launch `kernel` on the inputs' device and current stream; what makes the launch again, if there is that."""
        with on_device(self.device):
            return launched(kernel, self.grid, self.args, self.meta, like)

    def warmup(self, kernel: Any) -> Any:
        """Compile `kernel` for these arguments without running it; returns what Triton's `warmup` returns."""
        with on_device(self.device):
            return kernel.warmup(*self.args, grid=self.grid, **self.meta)


def _grid(q: torch.Tensor, tile: Config) -> tuple[int, int, int]:
    batch, heads, seqlen_q, _ = q.shape
    return -(-seqlen_q // tile.block_m), heads, batch


def _numbers(q: torch.Tensor, k: torch.Tensor, scale: float) -> tuple[float, int, int, int, int]:
    """The kernel's arguments behind its tensors."""
    (_, heads, seqlen_q, _), (_, kv_heads, seqlen_k, _) = q.shape, k.shape
    return max(scale * LOG2_E, SMALLEST_SCALE), seqlen_q, seqlen_k, heads, heads // kv_heads


def _tile_for(q: torch.Tensor, k: torch.Tensor, causal: bool) -> Config:
    return default_config(q.shape[-1], q.shape[2], causal, k.shape[2], q.shape[0] * q.shape[1])


def _batch_parts(batch: int) -> list[slice]:
    return [slice(at, at + MAX_GRID_YZ) for at in range(0, batch, MAX_GRID_YZ)]


def check_inputs(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *, need_cuda: bool = True) -> None:
    """Raises TypeError or ValueError naming the argument that `attention` cannot take."""
    check_forms(q, k, v)
    for name, tensor in (("q", q), ("k", k), ("v", v)):
        if need_cuda:
            check_cuda(name, tensor)
        if tensor.numel():
            tma_strides(name, tensor)


def check_forms(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> None:
    """The same of what can be told without the tensors' memory."""
    for name, tensor in (("q", q), ("k", k), ("v", v)):
        check_tensor(name, tensor, 4, HALF_DTYPES)
        check_no_grad(name, tensor)
    check_shapes(q, k, v)
    if q.shape[-1] not in HEAD_DIMS:
        raise ValueError(f"q: head dimension must be one of {HEAD_DIMS}, got {q.shape[-1]}")
    if q.shape[1] > MAX_GRID_YZ:
        raise ValueError(f"q: at most {MAX_GRID_YZ} heads, got {q.shape[1]}")
    for name, tensor in (("k", k), ("v", v)):
        check_same(name, tensor, "q", q)


def _are_ordinary(key: tuple[Any, ...]) -> bool:
    """Would `check_forms` find nothing in tensors of that `_key`? No in case of doubt."""
    shape, other, third, _, _, _, dtype, k_dtype, v_dtype, device, k_device, v_device = key[:12]
    if dtype not in HALF_DTYPES or k_dtype is not dtype or v_dtype is not dtype or third != other:
        return False
    if len(shape) != 4 or len(other) != 4 or not device == k_device == v_device:
        return False
    (batch, heads, _, head_dim), (kv_batch, kv_heads, _, kv_dim) = shape, other
    same = kv_batch == batch and kv_dim == head_dim and head_dim in HEAD_DIMS
    return same and 0 < kv_heads <= heads <= MAX_GRID_YZ and not heads % kv_heads


def check_shapes(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> None:
    """Raises ValueError naming the argument whose shape does not fit the others'."""
    batch, heads, _, head_dim = q.shape
    if k.shape[0] != batch:
        raise ValueError(f"k: batch {k.shape[0]} differs from q's {batch}")
    if k.shape[3] != head_dim:
        raise ValueError(f"k: head dimension {k.shape[3]} differs from q's {head_dim}")
    if v.shape != k.shape:
        raise ValueError(f"v: shape {tuple(v.shape)} differs from k's {tuple(k.shape)}")
    if (heads % k.shape[1] if k.shape[1] else heads) != 0:
        raise ValueError(f"k: {k.shape[1]} heads do not divide q's {heads} heads")


def check_scale(scale: float | None, head_dim: int) -> float:
    """The softmax scale to use; raises TypeError or ValueError naming `scale` if it is no finite number."""
    if scale is None:
        return 1.0 / math.sqrt(head_dim)
    if isinstance(scale, bool) or not isinstance(scale, int | float):
        raise TypeError(f"scale: expected a number, got {type(scale).__name__}")
    if not math.isfinite(scale):
        raise ValueError(f"scale: must be finite, got {scale}")
    return float(scale)


def attention_reference(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    *,
    causal: bool = False,
    scale: float | None = None,
    dtype: torch.dtype = torch.float32,
    score_bytes: int = 1 << 30,
) -> tuple[torch.Tensor, torch.Tensor]:
    """What `attention` approximates, on any device: (output, log-sum-exp), both in `dtype` (float32 or float64).

    Works through one batch row at a time and as many queries as keep a score matrix under `score_bytes`, so that
    sequences of 16384 fit in memory. float32 products are exact float32, never TF32.
    """
    check_shapes(q, k, v)
    scale = check_scale(scale, q.shape[-1])
    out = torch.zeros(q.shape, dtype=dtype, device=q.device)
    lse = torch.full(q.shape[:3], -math.inf, dtype=dtype, device=q.device)
    if q.numel() == 0 or k.numel() == 0:
        return out, lse
    rows = max(1, score_bytes // (q.shape[1] * k.shape[2] * dtype.itemsize))
    group = q.shape[1] // k.shape[1]
    for b in range(q.shape[0]):
        keys = k[b].to(dtype).repeat_interleave(group, 0)
        values = v[b].to(dtype).repeat_interleave(group, 0)
        for at in range(0, q.shape[2], rows):
            queries = q[b, :, at : at + rows].to(dtype)
            first = at + k.shape[2] - q.shape[2] if causal else None
            with exact_float32_products():
                part = _reference_rows(queries, keys, values, scale, first)
            out[b, :, at : at + rows], lse[b, :, at : at + rows] = part
    return out, lse


def _reference_rows(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, scale: float, last_key: int | None
) -> tuple[torch.Tensor, torch.Tensor]:
    """Output and log-sum-exp of [H, rows, D] queries; query r sees keys up to last_key + r, or all if None."""
    scores = (q @ k.mT) * scale
    if last_key is not None:
        limit = torch.arange(q.shape[1], device=q.device) + last_key
        hidden = torch.arange(k.shape[1], device=q.device)[None, :] > limit[:, None]
        scores.masked_fill_(hidden, -math.inf)
    lse = scores.logsumexp(-1)
    base = torch.where(lse == -math.inf, torch.zeros_like(lse), lse)
    return (scores - base[..., None]).exp_() @ v, lse

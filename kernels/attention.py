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
from wspec.bridge.ready import MOST, are_alike, current_stream
from wspec.bridge.ready import launch as launched
from wspec.kernels.arguments import (
    HALF_DTYPES,
    MAX_GRID_YZ,
    SHARED_MEMORY_BYTES,
    TMA_ALIGNMENT_BYTES,
    check_cuda,
    on_device,
    tma_descriptors,
)
from wspec.kernels.attention_inputs import HEAD_DIMS, check_forms, check_inputs, check_scale, check_shapes
from wspec.kernels.attention_tiles import Config, default_config, plain_configs, shared_memory_bytes, tiles
from wspec.kernels.front import Calls, Key
from wspec.kernels.operators import is_traced, operator
from wspec.kernels.reference import exact_float32_products

__all__ = [
    "HEAD_DIMS", "SHARED_MEMORY_BYTES", "Config", "Launch", "attention", "attention_fwd", "attention_fwd_ws",
    "attention_reference", "check_forms", "check_inputs", "check_scale", "check_shapes", "default_config",
    "plain_configs", "shared_memory_bytes", "tiles",
]  # fmt: skip
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

    A call like one before, of any sizes, is launched without looking at anything twice.

    Returns [B, Hq, Sq, D] in q's dtype and stride order and, with return_lse, the natural log-sum-exp of the scaled
    scores as float32 [B, Hq, Sq]. Raises TypeError (type, dtype) or ValueError (shape, device, strides), naming the
    argument. There is no backward.
    """
    if config is None and kernel is None and is_traced(q, k, v):
        traced: tuple[torch.Tensor, torch.Tensor] = _operator(q, k, v, causal, scale)
        return traced if return_lse else traced[0]
    form, made = None, None
    if are_alike((q, k, v)) and type(causal) is bool and type(scale) in _SCALES and len(shape := q.shape) == 4:
        device = q.get_device()
        place = device, current_stream(device)
        form = (
            q.dtype, k.dtype, v.dtype, k.get_device(), v.get_device(), shape[3], causal, scale, config, id(kernel),
            return_lse, *place,
        )  # fmt: skip
        known = _calls.classes.get(form)
        if known is not None:
            made = _of_class(q, k, v, shape, known, place)
    if made is None:
        return _attention(q, k, v, causal, scale, return_lse, config, kernel, form)
    return made if return_lse else made[0]


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
_calls = Calls()
_launches = _calls.launches
"""With where a launch's log-sum-exp may go if nobody reads it (0: nowhere), and the kernel, whose identity is part of
the key."""
UNREAD_ROWS = 1 << 20  # 4 MiB; what takes longer to compute than memory takes to be had gets memory of its own


@functools.cache
def _unread(device: torch.device, stream: int) -> torch.Tensor:
    """Memory for the log-sum-exp of launches of a stream that nobody asked for: they may all write there, one after the
    other. It is never given back, for a graph may keep its address."""
    return torch.empty(UNREAD_ROWS, dtype=torch.float32, device=device)


@dataclass(slots=True)
class _Class:
    """What calls of a form have in common."""

    causal: bool
    scale_log2: float
    config: Config | None
    kernel: Any  # its identity is part of the key
    unread: torch.Tensor | None  # where the log-sum-exp goes; None: it is asked for
    nowhere: Any  # its address
    binaries: dict[Config, Alike] = field(default_factory=dict)
    near: dict[tuple[int, int, int], tuple[Alike, int]] = field(default_factory=dict)
    """By what `default_config` looks at, what launches, and rows of the tile."""


def _of_class(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, shape: torch.Size, known: _Class, place: tuple[int, int]
) -> tuple[torch.Tensor, torch.Tensor] | None:
    """`attention` of any sizes, q's shape among them, of a form that is known; None where it is not so after all."""
    other = k.shape
    if len(other) != 4 or v.shape != other:
        return None
    (batch, heads, rows, head_dim), (kv_batch, kv_heads, keys, kv_dim) = shape, other
    lines = batch * heads
    if not (rows and keys and 0 < batch <= MAX_GRID_YZ and 0 < kv_heads <= heads <= MAX_GRID_YZ):
        return None
    if kv_batch != batch or kv_dim != head_dim or heads % kv_heads:
        return None
    near = (rows - 1) >> 5, (keys - 1) >> 5, lines
    found = known.near.get(near)
    if found is None:
        tile = known.config or default_config(head_dim, rows, known.causal, keys, lines)
        binary = known.binaries.get(tile)
        if binary is None:
            return None
        found = binary, tile.block_m
        keep(known.near, near, found, MOST)
    binary, block_m = found
    out, lse, written = torch.empty_like(q), known.unread, known.nowhere
    if lse is None or lines * rows > UNREAD_ROWS:
        written = lse = torch.empty((batch, heads, rows), dtype=torch.float32, device=q.device)
    tensors = (q, shape, q.stride()), (k, other, k.stride()), (v, other, v.stride()), (out, shape, out.stride())
    given = *tensors, written, known.scale_log2, rows, keys, heads, heads // kv_heads
    return (out, lse) if binary.launch((-(-rows // block_m), heads, batch), given, place) else None


def _attention(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    causal: bool,
    scale: float | None,
    return_lse: bool,
    config: Config | None,
    kernel: Any,
    form: Key | None,
) -> torch.Tensor | tuple[torch.Tensor, torch.Tensor]:
    """`attention` of inputs of which no class is known, or which are not as it expects; what was launched is kept under
    the key. form: everything that is checked and that decides the launch, but for sizes, strides and addresses; None
    where that is looked at anew."""
    key: Key | None = None
    if form is not None:
        key = (q.shape, k.shape, v.shape, q.stride(), k.stride(), v.stride(), *form)
        found = _launches.get(key)
        made = _made_again(q, k, v, *found[:2]) if found is not None else None
        if made is not None:
            return made if return_lse else made[0]
    if key is None or not _are_ordinary(key):
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
    if form is not None and not turned:
        _calls.remember(key, again, lse.data_ptr() if unread else 0, kernel)
        binary = _calls.binary(runs, like, form)
        if binary is not None:
            known = _calls.classes.get(form)
            if known is None:
                nobody = None if return_lse else _unread(q.device, stream)
                nowhere = None if nobody is None else nobody.data_ptr()
                known = _Class(causal, _numbers(q, k, scale)[0], config, kernel, nobody, nowhere)
                _calls.classes.keep(form, known)
            known.binaries[tile] = binary
    return (out, lse) if return_lse else out


def _made_again(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, again: Ready, unread: int
) -> tuple[torch.Tensor, torch.Tensor] | None:
    """A launch of that key, with other addresses; None where it cannot be. unread: as `_launches` has it."""
    at_q, at_k, at_v, out = q.data_ptr(), k.data_ptr(), v.data_ptr(), torch.empty_like(q)
    lse = out if unread else torch.empty(q.shape[:3], dtype=torch.float32, device=q.device)
    aligned = not (at_q | at_k | at_v) % TMA_ALIGNMENT_BYTES
    return (out, lse) if aligned and again(at_q, at_k, at_v, out.data_ptr(), unread or lse.data_ptr()) else None


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


def _are_ordinary(key: Key) -> bool:
    """Would `check_forms` find nothing in tensors of that `_key`? No in case of doubt."""
    shape, other, third, _, _, _, dtype, k_dtype, v_dtype, k_device, v_device = key[:11]
    if dtype not in HALF_DTYPES or k_dtype is not dtype or v_dtype is not dtype or third != other:
        return False
    if len(shape) != 4 or len(other) != 4 or not key[-2] == k_device == v_device:
        return False
    (batch, heads, _, head_dim), (kv_batch, kv_heads, _, kv_dim) = shape, other
    same = kv_batch == batch and kv_dim == head_dim and head_dim in HEAD_DIMS
    return same and 0 < kv_heads <= heads <= MAX_GRID_YZ and not heads % kv_heads


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

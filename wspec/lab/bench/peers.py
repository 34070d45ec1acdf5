"""Attention as the libraries do it: cuDNN and FlashAttention-2 through torch, FlashAttention-3 where it is at hand.

Each peer makes, for one set of inputs, a callable that launches it once and returns its output as [B, H, S, D].
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

Run = Callable[[], torch.Tensor]


@dataclass(frozen=True, slots=True)
class Peer:
    """A library's attention: `make(q, k, v, causal)` prepares a launch; `around` is entered around launches."""

    name: str
    make: Callable[[torch.Tensor, torch.Tensor, torch.Tensor, bool], Run]
    around: Callable[[], contextlib.AbstractContextManager[Any]] = contextlib.nullcontext


def peers() -> list[Peer]:
    """cuDNN, FlashAttention-2 and, when FA3_ROOT names a folder with its library, FlashAttention-3."""
    found = [
        Peer("cuDNN", _torch_run, functools.partial(sdpa_kernel, SDPBackend.CUDNN_ATTENTION)),
        Peer("FA2", _torch_run, functools.partial(sdpa_kernel, SDPBackend.FLASH_ATTENTION)),
    ]
    root = os.environ.get("FA3_ROOT")
    return [*found, Peer("FA3", functools.partial(_fa3_run, root))] if root else found


def _torch_run(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, causal: bool) -> Run:
    """torch aligns its causal mask to the top left, so causal cases must have as many keys as queries."""
    if causal and q.shape[2] != k.shape[2]:
        raise ValueError("torch's causal mask agrees with ours only where the lengths are the same")
    grouped = q.shape[1] != k.shape[1]
    return functools.partial(scaled_dot_product_attention, q, k, v, is_causal=causal, enable_gqa=grouped)


@functools.cache
def _fa3_operators(root: str) -> Any:
    """FlashAttention-3's operators from `root`/fa3.so, a libtorch library that wants `root`/libcudart.so.12 loaded."""
    ctypes.CDLL(os.path.join(root, "libcudart.so.12"))
    torch.ops.load_library(os.path.join(root, "fa3.so"))  # type: ignore[no-untyped-call]  # torch
    return torch.ops.flash_attn_3


def fa3_call(root: str, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, causal: bool) -> Callable[[], Any]:
    """A call of FlashAttention-3's operator, whose first result is the output as [B, S, H, D]. Its inputs have that
    layout too: they are rearranged here, outside of what is timed."""
    forward = _fa3_operators(root).fwd
    packed = [tensor.transpose(1, 2).contiguous() for tensor in (q, k, v)]
    scale = q.shape[-1] ** -0.5
    return lambda: forward(*packed, softmax_scale=scale, is_causal=causal, num_splits=1)


def _fa3_run(root: str, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, causal: bool) -> Run:
    call = fa3_call(root, q, k, v, causal)

    def run() -> torch.Tensor:
        out: torch.Tensor = call()[0]
        return out.transpose(1, 2)

    return run

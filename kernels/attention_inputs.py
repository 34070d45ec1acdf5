"""What attention can be asked, and what is said of all else."""

from __future__ import annotations

import math

import torch

from wspec.kernels.arguments import (
    HALF_DTYPES,
    MAX_GRID_YZ,
    check_cuda,
    check_no_grad,
    check_same,
    check_tensor,
    tma_strides,
)

HEAD_DIMS = (64, 128, 256)


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

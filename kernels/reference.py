"""What the references share."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch


@contextlib.contextmanager
def exact_float32_products() -> Iterator[None]:
    """Matrix products of float32 tensors without TF32, whatever the process chose."""
    chosen = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = False
    try:
        yield
    finally:
        torch.backends.cuda.matmul.allow_tf32 = chosen

"""Tensors that entries make, with something in them.

Entries make everything of zeros, since nothing ran. While `filled` is on, what code in the folder of entries makes with
PyTorch's constructors is random where it is floating (the gates of linear attention are negative), random bytes where
it is 8 bits wide, and else what the entry's recipe says for the n-th tensor of integers.
"""

from __future__ import annotations

import contextlib
import functools
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

PLACED = ("zeros", "empty", "ones", "full", "arange", "randint")
MADE = (*PLACED, "zeros_like", "empty_like", "tensor")
CHUNK = 1 << 26
FLOATS = (torch.float32, torch.float16, torch.bfloat16)
NARROW = (torch.float8_e4m3fn, torch.float8_e5m2)
INDICES = (torch.int32, torch.int64, torch.bool)

Fill = Callable[[Tensor, torch.Generator], Tensor]
"""Of a tensor as the entry made it: what it is to hold, of the same shape, on the processor."""


class Filler:
    """What an entry makes. `fills`: by number, what the n-th tensor of integers or booleans holds."""

    def __init__(self, fills: Mapping[int, Fill], floats: Callable[[Tensor], Tensor] | None = None) -> None:
        self.fills, self.floats = fills, floats or scaled
        self.count = 0
        self.generator = torch.Generator(device="cpu").manual_seed(0)
        self.made: list[tuple[int, torch.dtype, tuple[int, ...]]] = []

    def __call__(self, tensor: Tensor, name: str) -> Tensor:
        if tensor.dtype in INDICES:
            number, self.count = self.count, self.count + 1
            self.made.append((number, tensor.dtype, tuple(tensor.shape)))
            fill = self.fills.get(number)
            if fill is not None:
                tensor.copy_(fill(tensor, self.generator).to(tensor.dtype).reshape(tensor.shape))
            return tensor
        if name in ("full", "arange", "tensor", "randint"):
            return tensor
        with torch.no_grad():
            return tensor.copy_(self.floats(tensor)) if tensor.is_floating_point() else noise(tensor)


def scaled(tensor: Tensor) -> Tensor:
    """Normal numbers, small enough for sums of products over the last dimension to stay near 1."""
    depth = tensor.shape[-1] if tensor.dim() else 1
    scale = 1.0 if tensor.dtype == torch.float32 else max(1, min(depth, 128)) ** -0.25
    found = torch.empty(tensor.numel(), dtype=tensor.dtype, device=tensor.device)
    for part in found.split(CHUNK):
        part.copy_(torch.randn(part.shape, device=tensor.device) * scale)
    return found.view(tensor.shape)


def gates(tensor: Tensor) -> Tensor:
    """For linear attention: 32 bits are logarithms of decays, three dimensions of 16 bits are factors below 1, and the
    rest is normal, each row of length 1."""
    values = torch.randn(tensor.shape, device=tensor.device)
    if tensor.dtype == torch.float32:
        return torch.nn.functional.logsigmoid(values + 3)
    if tensor.dim() == 3:
        return values.sigmoid().to(tensor.dtype)
    return torch.nn.functional.normalize(values, dim=-1).to(tensor.dtype)


def forgetting(tensor: Tensor) -> Tensor:
    """Logarithms of decays."""
    return torch.nn.functional.logsigmoid(torch.randn(tensor.shape, device=tensor.device) + 3).to(tensor.dtype)


def noise(tensor: Tensor) -> Tensor:
    """Random bytes."""
    low, high = (-127, 128) if tensor.dtype == torch.int8 else (0, 256)
    return tensor.copy_(torch.randint(low, high, tensor.shape, device=tensor.device, dtype=torch.int16))


@contextlib.contextmanager
def filled(filler: Filler, folder: Path) -> Iterator[None]:
    """While it lasts, `filler` has what the files in the folder make."""
    originals = {name: getattr(torch, name) for name in MADE}
    for name, original in originals.items():
        setattr(torch, name, _filling(original, name, filler, str(folder)))
    try:
        yield
    finally:
        for name, original in originals.items():
            setattr(torch, name, original)


def _filling(original: Any, name: str, filler: Filler, folder: str) -> Any:
    @functools.wraps(original)
    def make(*args: Any, **kwargs: Any) -> Any:
        ours = sys._getframe(1).f_code.co_filename.startswith(folder)
        if ours and name in PLACED:
            kwargs.setdefault("device", "cuda")
        made = original(*args, **kwargs)
        return filler(made, name) if ours else made

    return make


# ------------------------------------------------------------------------------------------- integers


def below(limit: int) -> Fill:
    """Numbers from 0 to limit - 1: pages, rows, classes, experts."""
    return lambda tensor, draw: torch.randint(0, limit, tensor.shape, generator=draw, device="cpu")


def words() -> Fill:
    """Packed weights: any 32 bits."""
    return lambda tensor, draw: torch.randint(-(2**31), 2**31, tensor.shape, generator=draw, device="cpu")


def constant(value: int) -> Fill:
    return lambda tensor, draw: torch.full(tensor.shape, value, device="cpu")


def counting() -> Fill:
    """0, 1, 2, ..."""
    return lambda tensor, draw: torch.arange(tensor.numel(), device="cpu")


def shuffled() -> Fill:
    """0, 1, 2, ..., in any order."""
    return lambda tensor, draw: torch.randperm(tensor.numel(), generator=draw, device="cpu")


def parts(total: int, ragged: bool) -> Fill:
    """How many of `total` each gets."""
    return lambda tensor, draw: _parts(total, tensor.numel(), ragged, draw)


def begins(total: int, ragged: bool) -> Fill:
    """Where each begins of those that `parts` gives the same total."""
    return lambda tensor, draw: _begins(total, tensor.numel(), ragged, draw)[:-1]


def offsets(total: int, ragged: bool) -> Fill:
    """The same with the end: one more than there are parts."""
    return lambda tensor, draw: _begins(total, tensor.numel() - 1, ragged, draw)


def lengths(most: int, ragged: bool) -> Fill:
    """Up to so many each, of no common total."""

    def fill(tensor: Tensor, draw: torch.Generator) -> Tensor:
        low = max(1, most // 3) if ragged else most
        return torch.randint(low, most + 1, tensor.shape, generator=draw, device="cpu")

    return fill


def _parts(total: int, count: int, ragged: bool, draw: torch.Generator) -> Tensor:
    even = torch.full((count,), total // count, device="cpu")
    if not ragged:
        return even
    again = torch.Generator(device="cpu").manual_seed(total + count)  # what `begins` gets
    given = torch.randint(0, total // count, (count // 2,), generator=again, device="cpu")
    even[: count // 2] -= given
    even[count - count // 2 :] += 0  # sums stay within the total, and what is taken away is left over
    return even


def _begins(total: int, count: int, ragged: bool, draw: torch.Generator) -> Tensor:
    return torch.cat([torch.zeros(1, dtype=torch.int64, device="cpu"), _parts(total, count, ragged, draw).cumsum(0)])


class Routing:
    """Tokens given to experts, `block` rows of one expert at a time, as fused mixture-of-experts kernels take it."""

    def __init__(self, pairs: int, experts: int, block: int, ragged: bool) -> None:
        draw = torch.Generator(device="cpu").manual_seed(pairs)
        weights = torch.rand(experts, generator=draw, device="cpu") if ragged else torch.ones(experts, device="cpu")
        chosen = torch.multinomial(weights + 0.05, pairs, replacement=True, generator=draw)
        rows, owners = [], []
        for expert in range(experts):
            tokens = (chosen == expert).nonzero().flatten()
            padded = -(-len(tokens) // block) * block
            rows.append(torch.cat([tokens, torch.full((padded - len(tokens),), pairs, device="cpu")]))
            owners += [expert] * (padded // block)
        self.pairs, self.block = pairs, block
        self.rows, self.owners, self.chosen = torch.cat(rows), torch.tensor(owners, device="cpu"), chosen

    def sorted_rows(self) -> Fill:
        return lambda tensor, draw: _fitted(self.rows, tensor.numel(), self.pairs)

    def experts(self) -> Fill:
        return lambda tensor, draw: _fitted(self.owners, tensor.numel(), 0)

    def padded(self, blocks: int, rows: int) -> Fill:
        """How many rows there are: as many as there is room for in tensors of so many blocks and rows."""
        count = min(len(self.rows), blocks * self.block, rows // self.block * self.block)
        return constant(count)


def _fitted(values: Tensor, length: int, rest: int) -> Tensor:
    """So many of the values, with `rest` behind them."""
    kept = values[:length]
    return torch.cat([kept, torch.full((length - len(kept),), rest, dtype=kept.dtype, device="cpu")])

"""The shapes and plans that the model's predictions are held against: attention, products, products of int8 weights.

A shape is a problem; a plan is a way to run it: a tile, warps, options of the compiler (`model_changes`), or Triton's
own kernel. The numbers of the machine description come from microbenchmarks (`wspec calibrate`), so no point here was
used for them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch

from wspec.kernels import attention as a
from wspec.kernels import matmul as m
from wspec.kernels import quantized as k
from wspec.lab.bench import attention_cases as cases
from wspec.lab.bench import quantized as q
from wspec.lab.bench.measured_points import attention_point, matmul_point, quantized_point
from wspec.lab.bench.model_changes import CHANGES, TRITONS, compiler_options, in_words
from wspec.lab.simulate.points import Point

Tensors = tuple[torch.Tensor, ...]
NOTHING: Mapping[str, Any] = {}


class Shape(ABC):
    """A problem and the plans for it."""

    @property
    @abstractmethod
    def bytes(self) -> int:
        """Of one set of inputs and outputs."""

    @abstractmethod
    def points(self) -> list[Point]:
        """The plans, not measured yet."""

    @abstractmethod
    def inputs(self, device: torch.device, seed: int) -> Tensors:
        """Random ones."""

    @abstractmethod
    def launch(self, inputs: Tensors, point: Point) -> tuple[Any, torch.Tensor]:
        """(a launch of the plan, as `precompile` takes it; where the result will be)."""

    @abstractmethod
    def on_cpu(self, point: Point) -> Any:
        """A launch that compiles the same kernel, of small tensors."""

    def function(self, point: Point) -> Any:
        """The jit function of the plan."""
        import wspec

        kernel = self.plain_kernel()
        if point.kind == "plain":
            return kernel
        told: dict[str, Any] = {} if point.kind == "default" else {"gate": "off"}
        return wspec.compile(**told, **compiler_options(point))(kernel)

    @abstractmethod
    def plain_kernel(self) -> Any: ...


def _specialized(shape: str, tile: Point, told: Mapping[str, Any] = NOTHING) -> Iterator[Point]:
    """The plans of a tile, whose names say what is forced; `told` is what the compiler knows of the launch."""
    for change in CHANGES:
        options = {name: value for name, value in tile.options.items() if name in TRITONS}
        if change and change.items() <= told.items():
            continue  # known already
        forced = in_words(change)
        yield replace(_named(shape, tile, forced), options={**options, **told, **change}, forced=forced)


def _named(shape: str, point: Point, told: str = "") -> Point:
    plan = point.name.removeprefix(shape).strip()
    return replace(point, name=f"{shape} {plan} {told}".strip(), shape=shape)


# ------------------------------------------------------------------------------------------------ attention

_ATTENTION_TILES: Mapping[int, tuple[tuple[int, int, int], ...]] = {
    64: ((64, 128, 4), (64, 64, 4), (128, 128, 8)),
    128: ((128, 128, 8), (128, 64, 8), (64, 128, 4)),
    256: ((128, 64, 8), (64, 64, 4), (128, 32, 8)),
}
_ATTENTION_PLAIN: Mapping[int, tuple[tuple[int, int, int, int], ...]] = {
    64: ((64, 128, 4, 2), (128, 128, 8, 2), (64, 64, 4, 3)),
    128: ((128, 64, 4, 2), (128, 128, 8, 2), (64, 64, 4, 3)),
    256: ((128, 64, 8, 2), (64, 64, 4, 2), (64, 32, 4, 3)),
}


@dataclass(frozen=True, slots=True)
class AttentionShape(Shape):
    """bf16, 16384 tokens, hidden size 2048."""

    head_dim: int
    causal: bool
    length: int

    def __str__(self) -> str:
        return f"D={self.head_dim} {'causal' if self.causal else 'full'} bf16 S={self.length}"

    @property
    def case(self) -> cases.Case:
        return cases.main_case(cases.Kind(self.head_dim, self.causal, "bf16"), self.length)

    @property
    def bytes(self) -> int:
        return self.case.bytes

    def points(self) -> list[Point]:
        case = (self.head_dim, self.causal, "bf16", self.length)
        found: list[Point] = []
        for tile in _ATTENTION_TILES[self.head_dim]:
            found += _specialized(str(self), attention_point(case, "specialized", (*tile, 2), 1.0))
        for plain in _ATTENTION_PLAIN[self.head_dim]:
            found.append(_named(str(self), attention_point(case, "plain", plain, 1.0)))
        return found

    def inputs(self, device: torch.device, seed: int) -> Tensors:
        return cases.make_inputs(self.case, device, seed)

    def launch(self, inputs: Tensors, point: Point) -> tuple[Any, torch.Tensor]:
        query, key, value = inputs
        out = torch.empty_like(query)
        lse = torch.empty(query.shape[:3], dtype=torch.float32, device=query.device)
        scale = self.head_dim**-0.5
        made = a.Launch.of(query, key, value, out, lse, causal=self.causal, scale=scale, config=_attention_tile(point))
        return made, out

    def on_cpu(self, point: Point) -> Any:
        query, key, value, out = (torch.empty(1, 1, 1, self.head_dim, dtype=torch.bfloat16) for _ in range(4))
        lse, tile = torch.empty(1, 1, 1), _attention_tile(point)
        return a.Launch.of(query, key, value, out, lse, causal=self.causal, scale=1.0, config=tile)

    def plain_kernel(self) -> Any:
        return a.attention_fwd


def _attention_tile(point: Point) -> a.Config:
    at, options = point.constexprs, point.options
    return a.Config(at["BLOCK_M"], at["BLOCK_N"], options["num_warps"], options["num_stages"])


# ------------------------------------------------------------------------------------------------- products

_MATMUL_TILES = ((128, 256, 64, 8, 3, 8), (128, 128, 64, 8, 3, 8), (128, 128, 64, 4, 3, 8))
_MATMUL_PLAIN = ((128, 256, 64, 8, 3, 8), (128, 128, 64, 4, 3, 8), (128, 256, 32, 8, 5, 8))


@dataclass(frozen=True, slots=True)
class MatmulShape(Shape):
    """A B, or A B^T, in bf16."""

    m: int
    n: int
    k: int
    transposed: bool

    def __str__(self) -> str:
        return f"{'A B^T' if self.transposed else 'A B'} bf16 {self.m}x{self.n}x{self.k}"

    @property
    def bytes(self) -> int:
        return 2 * (self.m * self.k + self.k * self.n + self.m * self.n)

    def points(self) -> list[Point]:
        sizes = (self.m, self.n, self.k)
        found: list[Point] = []
        for tile in _MATMUL_TILES:
            point = matmul_point(sizes, self.transposed, "bf16", "specialized", tile, 1.0)
            found += _specialized(str(self), point)
        for tile in _MATMUL_PLAIN:
            found.append(_named(str(self), matmul_point(sizes, self.transposed, "bf16", "plain", tile, 1.0)))
        return found

    def inputs(self, device: torch.device, seed: int) -> Tensors:
        draw = torch.Generator(device).manual_seed(seed)
        left = torch.randn(self.m, self.k, device=device, dtype=torch.bfloat16, generator=draw)
        shape = (self.n, self.k) if self.transposed else (self.k, self.n)
        right = torch.randn(*shape, device=device, dtype=torch.bfloat16, generator=draw)
        return left, right.T if self.transposed else right

    def launch(self, inputs: Tensors, point: Point) -> tuple[Any, torch.Tensor]:
        left, right = inputs
        out = torch.empty(left.shape[0], right.shape[1], dtype=left.dtype, device=left.device)
        return m.Launch.of(left, right, out, variant="descriptor", config=_matmul_tile(point)), out

    def on_cpu(self, point: Point) -> Any:
        left, right = (torch.empty(256, 256, dtype=torch.bfloat16) for _ in range(2))
        right = right.T if self.transposed else right
        return m.Launch.of(left, right, torch.empty_like(left), variant="descriptor", config=_matmul_tile(point))

    def plain_kernel(self) -> Any:
        return m.matmul_descriptor_kernel


def _matmul_tile(point: Point) -> m.Config:
    at, options = point.constexprs, point.options
    sides = (at["BLOCK_M"], at["BLOCK_N"], at["BLOCK_K"])
    return m.Config(*sides, options["num_warps"], options["num_stages"], at["GROUP_M"])


# --------------------------------------------------------------------------------- products of int8 weights

_QUANTIZED_TILES = ((64, 128, 4), (64, 64, 4), (128, 128, 8))
"""Rows of W, depth, warps."""


@dataclass(frozen=True, slots=True)
class QuantizedShape(Shape):
    """bf16 times int8 weights, n = k."""

    m: int
    n: int

    def __str__(self) -> str:
        return f"int8 {self.m}x{self.n}x{self.n}"

    @property
    def case(self) -> q.Case:
        return q.Case(8, self.m, self.n, self.n)

    @property
    def bytes(self) -> int:
        return self.n * self.n

    def points(self) -> list[Point]:
        sizes = (self.m, self.n, self.n)
        found: list[Point] = []
        for columns, depth, warps in _QUANTIZED_TILES:
            tile = (min(self.m, 128 if warps == 8 else 256), columns, depth, warps, 3)
            point = quantized_point(sizes, "specialized", tile)
            found += _specialized(str(self), point, k.told(k.one_block(point.grid)))
            found.append(_named(str(self), quantized_point(sizes, "plain", tile)))
        return found

    def inputs(self, device: torch.device, seed: int) -> Tensors:
        return q.make_inputs(self.case, device, seed)

    def launch(self, inputs: Tensors, point: Point) -> tuple[Any, torch.Tensor]:
        left, weight, scale = inputs
        made = k.Launch.int8(left, weight, scale, config=_quantized_tile(point))
        return made, made.sums

    def on_cpu(self, point: Point) -> Any:
        case = q.Case(8, 16, 256, 1024)
        return q.make_launch(case, q.make_inputs(case, torch.device("cpu"), 0), _quantized_tile(point))

    def plain_kernel(self) -> Any:
        return k.plain_kernel(8)


def _quantized_tile(point: Point) -> k.Config:
    at, options = point.constexprs, point.options
    return k.Config(at["BLOCK_M"], at["BLOCK_N"], at["BLOCK_K"], options["num_warps"], options["num_stages"])


@dataclass(frozen=True, slots=True)
class Sizes:
    """Of problems: lengths of sequences; (m, n, k); rows and n = k of products of int8 weights."""

    lengths: tuple[int, ...]
    products: tuple[tuple[int, int, int], ...]
    quantized: tuple[tuple[int, int], ...]
    dims: tuple[int, ...] = (64, 128, 256)


_TESTED = Sizes(
    lengths=(1024, 4096, 16384),
    products=((4096, 4096, 4096), (8192, 8192, 8192), (16384, 2048, 8192)),
    quantized=((64, 16384), (128, 16384), (256, 16384), (512, 8192), (1024, 8192)),
)
_OTHERS = Sizes(
    lengths=(2048, 8192),
    products=((6144, 6144, 6144), (8192, 4096, 2048)),
    quantized=((128, 12288), (512, 16384), (1024, 12288), (2048, 8192)),
)
_QUICK = Sizes(lengths=(1024,), products=((4096, 4096, 4096),), quantized=((256, 16384),), dims=(128,))


def shapes(quick: bool = False, others: bool = False) -> list[Shape]:
    """Those that the model is tested on; with `quick` one of each sort. `others` are no points of the test: the margin
    of `wspec.lab.search` is from these, and changes of the model may be tried on them."""
    sizes = _QUICK if quick else _OTHERS if others else _TESTED
    found: list[Shape] = [
        AttentionShape(dim, causal, length)
        for dim in sizes.dims
        for causal in (False, True)
        for length in sizes.lengths
    ]
    found += [MatmulShape(*size, transposed) for size in sizes.products for transposed in (False, True)]
    found += [QuantizedShape(rows, size) for rows, size in sizes.quantized]
    return found

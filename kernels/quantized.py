"""Products with quantized weights as plain Triton kernels for Hopper: bf16 activations, weights of 8 or 4 bits.

C = A W^T with A [M, K] in bfloat16 and W [N, K] as whole numbers times scales. Few rows of A (a decoding step has 16
to 256) leave most of a tensor core instruction's 64 rows empty, so the kernels compute the transposed product: the
weights' N is the instruction's M, and a tile has as many columns as there are tokens.

* `int8_weights_kernel`: one scale for each row of W, applied to the sum;
* `int4_weights_kernel`: two numbers a byte, which lie K / 2 apart, and a scale for each group of K, applied to tiles.

With few tiles, K is divided between programs, whose sums `sum_parts_kernel` adds afterwards. A product of few rows is
so short that a launch counts: the specialized one and its sum start early, their blocks are there when what is before
them in the stream ends.
"""

# mypy: disallow-untyped-defs=False, disallow-incomplete-defs=False, disallow-untyped-decorators=False
# The bodies of jit functions are read by Triton, which has no types to give their arguments.

from __future__ import annotations

import functools
import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch
import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from wspec.bridge.alike import Alike
from wspec.bridge.ready import are_alike, current_stream, like_before
from wspec.bridge.ready import launch as launched
from wspec.kernels.arguments import TMA_ALIGNMENT_BYTES, ceil_div, check_cuda, on_device, special, tma_descriptors
from wspec.kernels.front import Calls, Key
from wspec.kernels.operators import is_traced, operator
from wspec.kernels.weights import check_int4, check_int8


@triton.jit
def int8_weights_kernel(
    a_desc, w_desc, scale_ptr, c_desc, n, k_part,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """One BLOCK_M x BLOCK_N tile of C, or of one part of its sum; grid (columns, rows, parts).

    a_desc: [M, K]; w_desc: [N, K] int8; scale_ptr: [N] float32; c_desc: [parts, M, N].
    """
    first_n = tl.program_id(0) * BLOCK_N
    first_m = tl.program_id(1) * BLOCK_M
    part = tl.program_id(2)
    start = part * k_part
    columns = first_n + tl.arange(0, BLOCK_N)
    scale = tl.load(scale_ptr + columns, mask=columns < n, other=0.0)  # read while the loop runs
    acc = tl.zeros([BLOCK_N, BLOCK_M], tl.float32)
    for first_k in tl.range(start, start + k_part, BLOCK_K):
        q = w_desc.load([first_n, first_k])
        a = a_desc.load([first_m, first_k])
        w = q.to(tl.bfloat16)
        acc = tl.dot(w, a.T, acc)
    c = (acc * scale[:, None]).T.to(c_desc.dtype)
    c_desc.store([part, first_m, first_n], c.reshape(1, BLOCK_M, BLOCK_N))


@triton.jit
def int4_weights_kernel(
    a_desc, w_desc, scale_ptr, c_desc, n, k_half, k_part,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP: tl.constexpr,
):  # fmt: skip
    """One BLOCK_M x BLOCK_N tile of C, or of one part of its sum; grid (columns, rows, parts).

    a_desc: [M, K]; w_desc: [N, K / 2] int8, of which the low halves belong to columns 0 .. K / 2 - 1 of W and the high
    ones to the others; scale_ptr: [K / GROUP, N] bfloat16; c_desc: [parts, M, N]. A step covers BLOCK_K bytes, at most
    GROUP. Scales are read a step ahead.
    """
    first_n = tl.program_id(0) * BLOCK_N
    first_m = tl.program_id(1) * BLOCK_M
    part = tl.program_id(2)
    start = part * k_part
    columns = first_n + tl.arange(0, BLOCK_N)
    inside = columns < n
    scales = scale_ptr + columns
    low_scale = tl.load(scales + start // GROUP * n, mask=inside, other=0.0)
    high_scale = tl.load(scales + (k_half + start) // GROUP * n, mask=inside, other=0.0)
    acc = tl.zeros([BLOCK_N, BLOCK_M], tl.float32)
    for first_k in tl.range(start, start + k_part, BLOCK_K):
        following = tl.minimum(first_k + BLOCK_K, k_half - BLOCK_K)
        next_low = tl.load(scales + following // GROUP * n, mask=inside, other=0.0)
        next_high = tl.load(scales + (k_half + following) // GROUP * n, mask=inside, other=0.0)
        q = w_desc.load([first_n, first_k])
        low = ((q & 15).to(tl.bfloat16) - 8) * low_scale[:, None]
        high = (((q >> 4) & 15).to(tl.bfloat16) - 8) * high_scale[:, None]
        a_low = a_desc.load([first_m, first_k])
        a_high = a_desc.load([first_m, k_half + first_k])
        acc = tl.dot(low, a_low.T, acc)
        acc = tl.dot(high, a_high.T, acc)
        low_scale, high_scale = next_low, next_high
    c = acc.T.to(c_desc.dtype)
    c_desc.store([part, first_m, first_n], c.reshape(1, BLOCK_M, BLOCK_N))


@triton.jit
def sum_parts_kernel(parts_ptr, out_ptr, count, PARTS: tl.constexpr, BLOCK: tl.constexpr, EARLY: tl.constexpr):
    """The sum of the parts, rounded once: [PARTS, count] float32 to [count] bfloat16; grid (blocks of BLOCK).

    EARLY: for launches with `launch_pdl`, whose blocks start while the kernel before them runs. They let the kernel
    behind them start its blocks as well before they wait; it has to wait too, for them and so for all before.
    """
    if EARLY:
        gdc_launch_dependents()
        gdc_wait()
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    total = tl.load(parts_ptr + at, mask=at < count, other=0.0)
    for part in tl.static_range(1, PARTS):
        total += tl.load(parts_ptr + part * count + at, mask=at < count, other=0.0)
    tl.store(out_ptr + at, total.to(tl.bfloat16), mask=at < count)


SUM_BLOCK = 512  # numbers of one block of `sum_parts_kernel`


@dataclass(frozen=True, slots=True)
class Config:
    """A tile of block_m rows of A by block_n rows of W; block_k numbers or bytes of W a step; K in `parts`.

    blocks: how many blocks of the launch an SM has room for, as `wspec.compile` is told; None: one where the launch has
    no more blocks than there are SMs, else what the compiler finds.
    """

    block_m: int = 64
    block_n: int = 64
    block_k: int = 128
    num_warps: int = 4
    num_stages: int = 4
    parts: int = 1
    blocks: int | None = None

    def __str__(self) -> str:
        tile = f"{self.block_m}x{self.block_n}x{self.block_k}"
        said = f" b{self.blocks}" if self.blocks else ""
        return f"{tile} w{self.num_warps} s{self.num_stages} p{self.parts}{said}"


SMS = 132  # of an H200


_tile = functools.cache(Config)  # of which there are few


def default_config(m: int, n: int, steps_k: int, bits: int = 8) -> Config:
    """The tile when nobody chose one; `steps_k` is what the loop over K goes through. Measured, docs/chains.md.

    All rows of A in one tile, up to 128; with 128 rows of W for two groups of warps. From 128 rows on at int4, where
    rings of that would have one buffer, up to 256 with 64 rows of W, and a third task converts. K is divided while SMs
    would have no tile, or only one where two fit and convert in turns.
    """
    block_m = min(128 if bits == 8 else 256, max(16, 1 << (m - 1).bit_length()))
    tall = bits == 8 or block_m <= 64
    two = block_m <= (64 if bits == 8 else 16)  # blocks fit on an SM
    block_n, warps = (128, 8) if tall else (64, 4)
    tiles = ceil_div(n, block_n) * ceil_div(m, block_m)
    parts = 1
    wanted = 2 * SMS if two and bits == 4 else SMS
    while tiles * parts * 2 <= wanted and steps_k % (256 * parts) == 0:
        parts *= 2
    blocks = 2 if two and tiles * parts <= 2 * SMS else None
    return _tile(block_m, block_n, 64 if block_m > 128 else 128, warps, 3, parts, blocks)


def _whole_steps(config: Config, half: int, group: int) -> Config:
    """With steps that divide rows of `half` bytes, and groups: shorter ones where these are short."""
    return replace(config, block_k=math.gcd(config.block_k, half, group))


@functools.cache
def specialized_kernel(bits: int, blocks: int | None = None, **options: Any) -> Any:
    """The jit function for weights of 8 or 4 bits under `wspec.compile`, made on first use; it starts early.

    blocks: how many a launch has for each SM at most (`Launch.blocks`), where that is known; they do not walk through
    tiles then. options: others of `wspec.compile`.
    """
    import wspec

    return wspec.compile(plain_kernel(bits), **{"programmatic_launch": True, "trials": 0, **told(blocks), **options})


def told(blocks: int | None) -> dict[str, Any]:
    """What the compiler is told of launches that have so many blocks for each SM at most."""
    return {} if blocks is None else {"blocks": blocks, "persistent": False}


def one_block(grid: tuple[int, int, int]) -> int | None:
    """1, where a launch has no more blocks than there are SMs."""
    return 1 if math.prod(grid) <= SMS else None


def plain_kernel(bits: int) -> Any:
    """The unspecialized jit function for weights of 8 or 4 bits."""
    return int8_weights_kernel if bits == 8 else int4_weights_kernel


def matmul_int8_weights(
    a: torch.Tensor, weight: torch.Tensor, scale: torch.Tensor, *, config: Config | None = None, kernel: Any = None
) -> torch.Tensor:
    """A (weight * scale)^T as a contiguous bfloat16 [M, N], with sums in float32.

    a: [M, K] bfloat16; weight: [N, K] int8; scale: [N] float32, all on one CUDA device, rows 16-byte aligned.
    kernel: the jit function to launch; the specialized one if None.

    Raises TypeError or ValueError, naming the argument.
    """
    if config is None and kernel is None and is_traced(a, weight, scale):
        traced: torch.Tensor = _int8_operator(a, weight, scale)
        return traced
    return _again(8, a, weight, scale, config, kernel)


def matmul_int4_weights(
    a: torch.Tensor, weight: torch.Tensor, scale: torch.Tensor, *, config: Config | None = None, kernel: Any = None
) -> torch.Tensor:
    """A W^T as a contiguous bfloat16 [M, N], W being what `quantize_int4` packed; sums in float32.

    a: [M, K] bfloat16; weight: [N, K / 2] int8; scale: [K / group, N] bfloat16. kernel: the jit function to launch; the
    specialized one if None. Raises TypeError or ValueError, naming the argument.
    """
    if config is None and kernel is None and is_traced(a, weight, scale):
        traced: torch.Tensor = _int4_operator(a, weight, scale)
        return traced
    return _again(4, a, weight, scale, config, kernel)


def _int8_fake(a: torch.Tensor, weight: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    check_int8(a, weight, scale)
    return a.new_empty((a.shape[0], weight.shape[0]))


def _int4_fake(a: torch.Tensor, weight: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    check_int4(a, weight, scale)
    return a.new_empty((a.shape[0], weight.shape[0]))


_ARGUMENTS = "(Tensor a, Tensor weight, Tensor scale) -> Tensor"
_int8_operator = operator("matmul_int8_weights" + _ARGUMENTS, lambda *args: matmul_int8_weights(*args), _int8_fake)
_int4_operator = operator("matmul_int4_weights" + _ARGUMENTS, lambda *args: matmul_int4_weights(*args), _int4_fake)
_calls = Calls()
_launches = _calls.launches
"""With what a launch writes, what sums that up, and the kernel, whose identity is part of the key."""


@dataclass(slots=True)
class _Class:
    """What products have in common that have a tile, blocks an SM, and a key but for A's rows and strides."""

    binary: Alike
    numbers: tuple[int, ...]  # the kernel's arguments behind its tensors
    total: Sum
    kernel: Any  # its identity is part of the key


def _again(
    bits: int, a: torch.Tensor, weight: torch.Tensor, scale: torch.Tensor, config: Config | None, kernel: Any
) -> torch.Tensor:
    """The product, launched as before where everything but addresses is as before."""
    key: Key | None = None
    if are_alike((a, weight, scale)):
        device = a.get_device()
        key = (
            bits, a.shape, a.stride(), weight.shape, scale.shape, weight.stride(), scale.stride(), a.dtype,
            weight.dtype, scale.dtype, weight.get_device(), scale.get_device(), config, id(kernel), device,
            current_stream(device),
        )  # fmt: skip
        at = a.data_ptr(), weight.data_ptr(), scale.data_ptr()
        aligned = not (at[0] | at[1] | at[2]) % TMA_ALIGNMENT_BYTES
        if aligned and (made := _of_class((a, weight, scale), key)) is not None:
            return made
        if aligned and (found := _launches.get(key)) is not None:
            product, shape, dtype, total = found[:4]
            sums = torch.empty(shape, dtype=dtype, device=a.device)
            if product(*at, sums.data_ptr()):
                summed: torch.Tensor = total(sums)
                return summed
    (check_int8 if bits == 8 else check_int4)(a, weight, scale)
    check_cuda("a", a)
    launch = (Launch.int8 if bits == 8 else Launch.int4)(a, weight, scale, config=config)
    return launch.made(specialized_kernel(bits, launch.blocks) if kernel is None else kernel, key, kernel)


def _of_class(inputs: tuple[torch.Tensor, ...], key: Key) -> torch.Tensor | None:
    """The product, where its class is known; None where it is not, or the product is not as it expects."""
    if len(key[1]) != 2 or len(key[3]) != 2 or 0 in key[1] or 0 in key[3]:
        return None
    tile, grid, common = _tile_of(key)
    known: _Class | None = _calls.classes.get(common)
    if known is None:
        return None
    m, n = key[1][0], key[3][0]
    sums_shape, dtype = (tile.parts, m, n), torch.bfloat16 if tile.parts == 1 else torch.float32
    sums = torch.empty(sums_shape, dtype=dtype, device=inputs[0].device)
    a, weight, scale = inputs
    given = (a, key[1], key[2]), (weight, key[3], key[5]), scale, (sums, sums_shape, sums.stride()), *known.numbers
    done = known.binary.launch(grid, given, key[-2:], (1, 1))
    return known.total(sums) if done else None


def _tile_of(key: Key) -> tuple[Config, tuple[int, int, int], tuple[Any, ...]]:
    """Of a product of that key the tile but for its steps, the grid, and what its class has in common."""
    bits, (m, k), (n, width) = key[0], key[1], key[3]
    tile = key[12] or default_config(m, n, k if bits == 8 else width, bits)
    grid = -(-n // tile.block_n), -(-m // tile.block_m), tile.parts
    return tile, grid, (tile, _blocks(grid, tile), bits, k, key[3:])


@dataclass(frozen=True)
class Launch:
    """Everything `kernel[grid](*args, **meta)` needs for one call; made once, it can be run many times."""

    grid: tuple[int, int, int]
    inputs: tuple[torch.Tensor, ...]  # A, the weights and their scales
    sums: torch.Tensor  # [parts, M, N]
    numbers: tuple[int, ...]  # the kernel's arguments behind its tensors
    boxes: tuple[tuple[int, ...], ...]  # in which A, the weights and the sums are moved
    meta: dict[str, Any]
    blocks: int | None = None  # an SM, for `specialized_kernel`

    @staticmethod
    def int8(a: torch.Tensor, weight: torch.Tensor, scale: torch.Tensor, *, config: Config | None = None) -> Launch:
        """The launch for inputs that passed `check_int8`."""
        tile = config or default_config(a.shape[0], weight.shape[0], a.shape[1])
        numbers = weight.shape[0], _part(a.shape[1], tile)
        return Launch._of((a, weight, scale), tile, numbers, _meta(tile))

    @staticmethod
    def int4(a: torch.Tensor, weight: torch.Tensor, scale: torch.Tensor, *, config: Config | None = None) -> Launch:
        """The launch for inputs that passed `check_int4`."""
        half = weight.shape[1]
        group = a.shape[1] // scale.shape[0]
        tile = config or _whole_steps(default_config(a.shape[0], weight.shape[0], half, bits=4), half, group)
        if group % tile.block_k or half % (tile.block_k * tile.parts):
            raise ValueError(f"weight: {half} bytes a row in groups of {group} do not divide into steps of {tile}")
        numbers = weight.shape[0], half, half // tile.parts
        return Launch._of((a, weight, scale), tile, numbers, {**_meta(tile), "GROUP": group})

    @staticmethod
    def _of(inputs: tuple[torch.Tensor, ...], tile: Config, numbers: tuple[int, ...], meta: dict[str, Any]) -> Launch:
        a, weight, _ = inputs
        shape, dtype = (tile.parts, a.shape[0], weight.shape[0]), torch.bfloat16 if tile.parts == 1 else torch.float32
        sums = torch.empty(shape, dtype=dtype, device=a.device)
        rows, columns, steps = tile.block_m, tile.block_n, tile.block_k
        moved = (rows, steps), (columns, steps), (1, rows, columns)
        grid = ceil_div(shape[2], columns), ceil_div(shape[1], rows), shape[0]
        return Launch(grid, inputs, sums, numbers, moved, meta, _blocks(grid, tile))

    def run(self, kernel: Any, early: bool | None = None) -> torch.Tensor:
        """Launch `kernel` on the inputs' device and current stream; the sum of the parts, in bfloat16.

        early: the sum starts early; None: if the product does.
        """
        with on_device(self.sums.device):
            kernel[self.grid](*self.args, **self.meta)
            return Sum(starts_early(kernel) if early is None else early)(self.sums)

    def made(self, kernel: Any, key: Key | None, given: Any) -> torch.Tensor:
        """The same; what makes it again is kept under the key, with the kernel that was `given`."""
        sums, inputs, numbers = self.sums, self.inputs, self.numbers
        with on_device(sums.device):
            scale = inputs[2]
            place = (scale.get_device(), -1) if key is None else key[-2:]
            types = *(one.dtype for one in inputs), sums.dtype
            like = (*types, *self.meta.values(), *special(scale.data_ptr() & 15, *numbers))
            again = launched(kernel, self.grid, self.args, self.meta, like)
            total = Sum(starts_early(kernel), place)
            if key is not None and not any(tensor.data_ptr() % TMA_ALIGNMENT_BYTES for tensor in inputs):
                _calls.remember(key, again, sums.shape, sums.dtype, total, given)
                binary = _calls.binary(kernel, like, key)
                if binary is not None:
                    _calls.classes.keep(_tile_of(key)[2], _Class(binary, numbers, total, given))
            return total(sums)

    @cached_property
    def args(self) -> tuple[Any, ...]:
        """What the kernel takes. Raises ValueError for strides that descriptors cannot have."""
        a, weight, scale = self.inputs
        described = tma_descriptors(*zip(("a", "weight", "out"), (a, weight, self.sums), self.boxes, strict=True))
        return (*described[:2], scale, described[2], *self.numbers)

    def warmup(self, kernel: Any) -> Any:
        """Compile `kernel` for these arguments without running it; returns what Triton's `warmup` returns."""
        with on_device(self.sums.device):
            return kernel.warmup(*self.args, grid=self.grid, **self.meta)


@dataclass(frozen=True, slots=True)
class Sum:
    """Adds the parts of one product; `early`: while the product still runs.

    `place`: the device, which is the current one, and its stream if that is known by its handle, else -1.
    """

    early: bool
    place: tuple[int, int] = (0, -1)

    def __call__(self, sums: torch.Tensor) -> torch.Tensor:
        """The sum of [parts, M, N], in bfloat16."""
        parts, m, n = sums.shape
        if parts == 1:
            return sums[0]
        out, count, place = torch.empty((m, n), dtype=torch.bfloat16, device=sums.device), m * n, self.place
        grid, given = (-(-count // SUM_BLOCK), 1, 1), (sums, out, count)
        aligned = not (sums.data_ptr() | out.data_ptr()) % TMA_ALIGNMENT_BYTES
        like = (parts, self.early, *special(count)) if aligned else None
        found = like_before(sum_parts_kernel, like, place) if like is not None and place[1] >= 0 else None
        if found is None or not found.launch(grid, given, place):
            meta = {"PARTS": parts, "BLOCK": SUM_BLOCK, "EARLY": self.early, "launch_pdl": self.early}
            launched(sum_parts_kernel, grid, given, meta, like, own=True)
        return out


def _part(k: int, tile: Config) -> int:
    """How much of K one program goes through, in whole steps."""
    return -(-k // (tile.block_k * tile.parts)) * tile.block_k


def _blocks(grid: tuple[int, int, int], tile: Config) -> int | None:
    """Of one launch on an SM, where that can be said. The compiler, which does not know the grid, counts on as many
    blocks as fit, which hide each other's conversion, and lets them walk through tiles."""
    return tile.blocks or one_block(grid)


def starts_early(kernel: Any) -> bool:
    """Is it a function under `wspec.compile` that was asked to, on a GPU that can?"""
    options = getattr(kernel, "wspec_options", None)
    can = options is not None and options.programmatic_launch is not False
    return can and torch.cuda.get_device_capability() >= (9, 0)


def _meta(tile: Config) -> dict[str, Any]:
    return {
        "BLOCK_M": tile.block_m,
        "BLOCK_N": tile.block_n,
        "BLOCK_K": tile.block_k,
        "num_warps": tile.num_warps,
        "num_stages": tile.num_stages,
    }

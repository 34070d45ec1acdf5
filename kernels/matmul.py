"""Matrix product as plain Triton kernels for Hopper, with the torch-facing function and its reference.

Two unspecialized variants of C = A B with float32 accumulation, one output tile a program, tiles in grouped order:

* `matmul_descriptor_kernel`: tiles come and go through TMA descriptors, which pad what lies outside with zeros;
* `matmul_pointer_kernel`: tiles come through tensors of pointers and masks, and take any strides.
"""

# mypy: disallow-untyped-defs=False, disallow-incomplete-defs=False, disallow-untyped-decorators=False
# The bodies of jit functions are read by Triton, which has no types to give their arguments.

from __future__ import annotations

import functools
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

from wspec.bridge.again import Ready
from wspec.bridge.alike import Alike
from wspec.bridge.launcher import keep
from wspec.bridge.ready import MOST, are_alike, current_stream
from wspec.bridge.ready import launch as launched
from wspec.kernels.arguments import (
    HALF_DTYPES,
    SHARED_MEMORY_BYTES,
    TMA_ALIGNMENT_BYTES,
    ceil_div,
    check_cuda,
    check_no_grad,
    check_same,
    check_tensor,
    on_device,
    special,
    tma_descriptors,
)
from wspec.kernels.front import Calls, Key
from wspec.kernels.operators import is_traced, operator
from wspec.kernels.reference import exact_float32_products

Variant = Literal["descriptor", "pointer"]
VARIANTS: tuple[Variant, ...] = ("descriptor", "pointer")
OUT_DTYPES = (torch.float16, torch.bfloat16, torch.float32)


@triton.jit
def _grouped_tile(tile, m, n, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP_M: tl.constexpr):
    """Row and column of the tile with this number.

    Tiles are numbered down GROUP_M rows before the next column, so that tiles in flight together share rows of A and
    columns of B in L2.
    """
    rows = tl.cdiv(m, BLOCK_M)
    columns = tl.cdiv(n, BLOCK_N)
    tiles_in_group = GROUP_M * columns
    first_row = tile // tiles_in_group * GROUP_M
    group_rows = tl.minimum(rows - first_row, GROUP_M)
    within = tile % tiles_in_group
    return first_row + within % group_rows, within // group_rows


@triton.jit
def matmul_descriptor_kernel(
    a_desc, b_desc, c_desc, m, n, k,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
    B_TRANSPOSED: tl.constexpr,
):  # fmt: skip
    """One BLOCK_M x BLOCK_N tile of C; grid (tiles,).

    a_desc: [M, K]; b_desc: [K, N], or [N, K] with B_TRANSPOSED; c_desc: [M, N], whose type is the result's.
    """
    row, column = _grouped_tile(tl.program_id(0), m, n, BLOCK_M, BLOCK_N, GROUP_M)
    first_m = row * BLOCK_M
    first_n = column * BLOCK_N
    acc = tl.zeros([BLOCK_M, BLOCK_N], tl.float32)
    for first_k in tl.range(0, k, BLOCK_K):
        a = a_desc.load([first_m, first_k])
        if B_TRANSPOSED:
            b = b_desc.load([first_n, first_k]).T
        else:
            b = b_desc.load([first_k, first_n])
        acc = tl.dot(a, b, acc)
    c_desc.store([first_m, first_n], acc.to(c_desc.dtype))


@triton.jit
def matmul_pointer_kernel(
    a_ptr, b_ptr, c_ptr, m, n, k, stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    """One BLOCK_M x BLOCK_N tile of C; grid (tiles,). Strides in elements; c_ptr's type is the result's."""
    row, column = _grouped_tile(tl.program_id(0), m, n, BLOCK_M, BLOCK_N, GROUP_M)
    offs_m = (row * BLOCK_M + tl.arange(0, BLOCK_M)).to(tl.int64)
    offs_n = (column * BLOCK_N + tl.arange(0, BLOCK_N)).to(tl.int64)
    offs_k = tl.arange(0, BLOCK_K)
    rows_in = offs_m[:, None] < m
    columns_in = offs_n[None, :] < n
    a_ptrs = a_ptr + offs_m[:, None] * stride_am + offs_k[None, :] * stride_ak
    b_ptrs = b_ptr + offs_k[:, None] * stride_bk + offs_n[None, :] * stride_bn
    acc = tl.zeros([BLOCK_M, BLOCK_N], tl.float32)
    for first_k in tl.range(0, k, BLOCK_K):
        left = k - first_k
        a = tl.load(a_ptrs, mask=rows_in & (offs_k[None, :] < left), other=0.0)
        b = tl.load(b_ptrs, mask=columns_in & (offs_k[:, None] < left), other=0.0)
        acc = tl.dot(a, b, acc)
        a_ptrs += BLOCK_K * stride_ak
        b_ptrs += BLOCK_K * stride_bk
    c_ptrs = c_ptr + offs_m[:, None] * stride_cm + offs_n[None, :] * stride_cn
    tl.store(c_ptrs, acc.to(c_ptr.dtype.element_ty), mask=rows_in & columns_in)


@dataclass(frozen=True, slots=True)
class Config:
    """A tile of block_m by block_n, block_k deep; tiles are numbered in groups of group_m rows."""

    block_m: int = 128
    block_n: int = 256
    block_k: int = 64
    num_warps: int = 8
    num_stages: int = 3
    group_m: int = 8

    def __str__(self) -> str:
        return f"{self.block_m}x{self.block_n}x{self.block_k} w{self.num_warps} s{self.num_stages} g{self.group_m}"


def shared_memory_bytes(config: Config, out_bytes: int = 2) -> int:
    """Shared memory of the plain kernels: num_stages buffers of A and B in 2-byte elements, or the output tile that
    reuses them after the loop, whichever is larger; 1 KiB is set aside for barriers and alignment."""
    buffers = 2 * config.num_stages * config.block_k * (config.block_m + config.block_n)
    return max(buffers, out_bytes * config.block_m * config.block_n) + 1024


def plain_configs() -> list[Config]:
    """An honest grid for the unspecialized kernels.

    Left out: what exceeds shared memory by `shared_memory_bytes` and accumulators past 128 registers a thread, which
    leave too few for the rest.
    """
    grid = [
        Config(block_m, block_n, block_k, num_warps, num_stages)
        for block_m, block_n in ((64, 128), (128, 128), (128, 256), (256, 128))
        for block_k in (32, 64, 128)
        for num_warps in (4, 8)
        for num_stages in (3, 4, 5)
    ]
    return [config for config in grid if _can_run_well(config)]


def _can_run_well(config: Config) -> bool:
    accumulator_registers = config.block_m * config.block_n // (32 * config.num_warps)
    return (
        config.block_m >= 16 * config.num_warps
        and accumulator_registers <= 128
        and shared_memory_bytes(config) <= SHARED_MEMORY_BYTES
    )


def default_config(m: int, n: int, variant: Variant = "descriptor", b_transposed: bool = False) -> Config:
    """The tile when nobody chose one; measured on an H200, docs/results.

    128 x 256 tiles, which the specialized kernel likes where B is stored [N, K], and the plain one on large problems;
    128 x 128, several blocks an SM, where 256 columns would leave a card's 132 SMs with less than two tiles each.
    """
    return _tile(variant, b_transposed, -(-m // 128) * -(-n // 256) < 2 * 132)


@functools.cache
def _tile(variant: Variant, b_transposed: bool, few: bool) -> Config:
    if variant == "pointer":
        return Config(128, 128 if b_transposed else 256, 32, num_warps=8, num_stages=5 if b_transposed else 4)
    if few:
        return Config(128, 128, 64 if b_transposed else 32, num_warps=4, num_stages=3 if b_transposed else 5)
    return Config(128, 256, 64, num_warps=8, num_stages=3)


@functools.cache
def specialized_kernel(variant: Variant) -> Any:
    """A variant's jit function under `wspec.compile`, made on first use."""
    import wspec

    described = variant == "descriptor"
    return wspec.compile(plain_kernel(variant), promote=described, trials=0)  # the other takes what none describes


def plain_kernel(variant: Variant) -> Any:
    """The unspecialized jit function of a variant; raises ValueError naming `variant` for another word."""
    check_variant(variant)
    return matmul_descriptor_kernel if variant == "descriptor" else matmul_pointer_kernel


def check_variant(variant: object) -> None:
    """Raises ValueError naming `variant` unless it is one of VARIANTS."""
    if variant not in VARIANTS:
        raise ValueError(f"variant: expected one of {VARIANTS}, got {variant!r}")


def matmul(
    a: torch.Tensor,
    b: torch.Tensor,
    *,
    out_dtype: torch.dtype | None = None,
    variant: Variant = "descriptor",
    config: Config | None = None,
    kernel: Any = None,
) -> torch.Tensor:
    """A B with float32 accumulation, as a contiguous [M, N] tensor of `out_dtype` (a's dtype if None).

    a: [M, K]; b: [K, N]; float16 or bfloat16 on one CUDA device, any sizes, zero included. The descriptor variant
    needs rows of a and rows or columns of b contiguous and 16-byte aligned: a weight stored [N, K] is passed as
    `weight.T`. The pointer variant takes any strides. kernel: the jit function of that variant to launch; the
    specialized one if None.

    Raises TypeError (type, dtype) or ValueError (shape, device, strides, variant), naming the argument.
    """
    if config is None and kernel is None and is_traced(a, b):
        traced: torch.Tensor = _operator(a, b, out_dtype, variant)
        return traced
    form = _form(a, b, out_dtype, variant, config, kernel)
    if form is not None and (known := _calls.classes.get(form)) is not None:
        made = _of_class(a, b, known, form[-2:])
        if made is not None:
            return made
    return _matmul(a, b, out_dtype, variant, config, kernel, form)


def _computed(
    a: torch.Tensor, b: torch.Tensor, out_dtype: torch.dtype | None = None, variant: Variant = "descriptor"
) -> torch.Tensor:
    """What the operator runs on tensors with memory."""
    return matmul(a, b, out_dtype=out_dtype, variant=variant)


def _fake(
    a: torch.Tensor, b: torch.Tensor, out_dtype: torch.dtype | None = None, variant: Variant = "descriptor"
) -> torch.Tensor:
    """What comes out; raises as `matmul` does for what is wrong whatever lies in memory."""
    check_inputs(a, b, need_cuda=False)
    check_variant(variant)
    dtype = a.dtype if out_dtype is None else check_out_dtype(out_dtype)
    return a.new_empty((a.shape[0], b.shape[1]), dtype=dtype)


_operator = operator(
    'matmul(Tensor a, Tensor b, ScalarType? out_dtype=None, str variant="descriptor") -> Tensor',
    lambda *args, **named: _computed(*args, **named),
    _fake,
)
_calls = Calls()
_launches = _calls.launches
"""With what a launch writes, and the kernel, whose identity is part of the key."""


@dataclass(slots=True)
class _Class:
    """What products of a form have in common: all but A's rows and strides."""

    k: int
    n: int
    dtype: torch.dtype
    width: int  # of C in memory
    turned: bool
    stored: tuple[tuple[int, ...], tuple[int, ...]]  # shape and strides of B as it lies in memory
    config: Config | None
    kernel: Any  # its identity is part of the form
    binaries: dict[tuple[Any, ...], Alike] = field(default_factory=dict)  # by the tile, and what is `special` of rows
    near: dict[tuple[Any, ...], tuple[Alike, int, int]] = field(default_factory=dict)
    """By what `default_config` looks at, and what is `special`: what launches, rows of the tile, and tiles in a row."""


def _of_class(a: torch.Tensor, b: torch.Tensor, known: _Class, place: tuple[int, int]) -> torch.Tensor | None:
    """`matmul` of any rows, of a form that is known; None where it is not so after all."""
    shape, n, width = a.shape, known.n, known.width
    if len(shape) != 2 or shape[1] != known.k or not shape[0]:
        return None
    m, k = shape
    near = (m - 1) // 128, *special(m)
    found = known.near.get(near)
    if found is None:
        tile = known.config or default_config(m, n, "descriptor", known.turned)
        binary = known.binaries.get((tile, *special(m)))
        if binary is None:
            return None
        found = binary, tile.block_m, -(-n // tile.block_n)
        keep(known.near, near, found, MOST)
    binary, block_m, columns = found
    out = torch.empty((m, width), dtype=known.dtype, device=a.device)
    given = (a, shape, a.stride()), (b, *known.stored), (out, (m, n), (width, 1)), m, n, k
    if not binary.launch((-(-m // block_m) * columns, 1, 1), given, place, (0, columns)):
        return None
    return out if width == n else out[:, :n].contiguous()


def _form(a: Any, b: Any, out_dtype: Any, variant: Any, config: Config | None, kernel: Any) -> Key | None:
    """Everything that is checked and that decides the launch, but for A's sizes and strides, and addresses; None where
    that is looked at anew."""
    if not are_alike((a, b)):
        return None
    device = a.get_device()
    return (
        b.shape, b.stride(), a.dtype, b.dtype, b.get_device(), out_dtype, variant, config, id(kernel), device,
        current_stream(device),
    )  # fmt: skip


def _made_again(
    a: torch.Tensor, b: torch.Tensor, again: Ready, shape: tuple[int, int], dtype: torch.dtype, n: int
) -> torch.Tensor | None:
    """A launch of that key, with other addresses; None where it cannot be. shape: of C in memory, of which n columns
    are the product."""
    at, other = a.data_ptr(), b.data_ptr()
    out = torch.empty(shape, dtype=dtype, device=a.device)
    if (at | other) % TMA_ALIGNMENT_BYTES or not again(at, other, out.data_ptr()):
        return None
    return out if n == shape[1] else out[:, :n].contiguous()


def _matmul(
    a: torch.Tensor,
    b: torch.Tensor,
    out_dtype: torch.dtype | None,
    variant: Variant,
    config: Config | None,
    kernel: Any,
    form: Key | None,
) -> torch.Tensor:
    """`matmul` of inputs of which no class is known, or which are not as it expects; what was launched is kept under
    the key."""
    key: Key | None = None
    if form is not None:
        key = (a.shape, a.stride(), *form)
        found = _launches.get(key)
        if found is not None and (made := _made_again(a, b, *found[:4])) is not None:
            return made
    check_inputs(a, b)
    check_variant(variant)
    dtype = a.dtype if out_dtype is None else check_out_dtype(out_dtype)
    out = empty_output(a, b, dtype)
    if not (out.numel() and a.shape[1]):
        return out.zero_().contiguous()
    runs = specialized_kernel(variant) if kernel is None else kernel
    (m, k), n, turned, like = a.shape, b.shape[1], is_transposed(b), None
    tile = config or default_config(m, n, variant, turned)
    if variant == "descriptor":
        like = (
            a.dtype, b.dtype, dtype, turned, tile.block_m, tile.block_n, tile.block_k, tile.group_m, tile.num_warps,
            tile.num_stages, *special(m, n, k),
        )  # fmt: skip
    again = Launch.of(a, b, out, variant=variant, config=config).run(runs, like)
    if not (a.data_ptr() | b.data_ptr()) % TMA_ALIGNMENT_BYTES:
        _calls.remember(key, again, (m, out.stride(0)), dtype, n, kernel)
    binary = _calls.binary(runs, like, form)
    if form is not None and binary is not None:
        known = _calls.classes.get(form)
        if known is None:
            stored = tuple(b.shape), b.stride()
            if turned:
                stored = stored[0][::-1], stored[1][::-1]
            known = _Class(k, n, dtype, out.stride(0), turned, stored, config, kernel)
            _calls.classes.keep(form, known)
        known.binaries[tile, *special(m)] = binary
    return out.contiguous()


def empty_output(a: torch.Tensor, b: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """An uninitialized [M, N] tensor whose rows start at multiples of 16 bytes, as a TMA store needs."""
    m, n = a.shape[0], b.shape[1]
    unit = 16 // dtype.itemsize
    width = ceil_div(n, unit) * unit
    made = torch.empty((m, width), dtype=dtype, device=a.device)
    return made if width == n else made[:, :n]


@dataclass(frozen=True, slots=True)
class Launch:
    """Everything `kernel[grid](*args, **meta)` needs for one call; made once, it can be run many times."""

    grid: tuple[int]
    args: tuple[Any, ...]
    meta: dict[str, Any]
    device: torch.device

    @staticmethod
    def of(
        a: torch.Tensor, b: torch.Tensor, out: torch.Tensor, *, variant: Variant, config: Config | None = None
    ) -> Launch:
        """The launch for inputs that passed `check_inputs`, nothing empty; raises ValueError for strides that the
        descriptor variant cannot take."""
        (m, k), n = a.shape, b.shape[1]
        tile = config or default_config(m, n, variant, is_transposed(b))
        meta = {
            "BLOCK_M": tile.block_m,
            "BLOCK_N": tile.block_n,
            "BLOCK_K": tile.block_k,
            "GROUP_M": tile.group_m,
            "num_warps": tile.num_warps,
            "num_stages": tile.num_stages,
        }
        args: tuple[Any, ...]
        if variant == "descriptor":
            descriptors, b_transposed = make_descriptors(a, b, out, tile)
            args = (*descriptors, m, n, k)
            meta["B_TRANSPOSED"] = b_transposed
        else:
            args = (a, b, out, m, n, k, *a.stride(), *b.stride(), *out.stride())
        return Launch(_grid(m, n, tile), args, meta, a.device)

    def run(self, kernel: Any, like: tuple[Any, ...] | None = None) -> Ready | None:
        """Launch `kernel` on the inputs' device and current stream; what makes the launch again, if there is that."""
        with on_device(self.device):
            return launched(kernel, self.grid, self.args, self.meta, like)

    def warmup(self, kernel: Any) -> Any:
        """Compile `kernel` for these arguments without running it; returns what Triton's `warmup` returns."""
        with on_device(self.device):
            return kernel.warmup(*self.args, grid=self.grid, **self.meta)


def _grid(m: int, n: int, tile: Config) -> tuple[int]:
    return (ceil_div(m, tile.block_m) * ceil_div(n, tile.block_n),)


def is_transposed(b: torch.Tensor) -> bool:
    """Does b, [K, N], lie in memory as [N, K]?"""
    return b.shape[0] > 1 and b.stride(0) == 1 and (b.shape[1] == 1 or b.stride(1) != 1)


def make_descriptors(
    a: torch.Tensor, b: torch.Tensor, out: torch.Tensor, tile: Config
) -> tuple[tuple[TensorDescriptor, TensorDescriptor, TensorDescriptor], bool]:
    """Descriptors of a, b and out, and whether b's is of its transpose; raises ValueError naming the argument."""
    b_transposed = is_transposed(b)
    m, n, k = tile.block_m, tile.block_n, tile.block_k
    stored, block = (b.T, (n, k)) if b_transposed else (b, (k, n))
    try:
        a_desc, b_desc, out_desc = tma_descriptors(("a", a, (m, k)), ("b", stored, block), ("out", out, (m, n)))
    except ValueError as error:
        raise ValueError(f"{error}, or choose variant='pointer'") from None
    return (a_desc, b_desc, out_desc), b_transposed


def check_inputs(a: torch.Tensor, b: torch.Tensor, *, need_cuda: bool = True) -> None:
    """Raises TypeError or ValueError naming the argument that `matmul` cannot take."""
    for name, tensor in (("a", a), ("b", b)):
        check_tensor(name, tensor, 2, HALF_DTYPES)
        check_no_grad(name, tensor)
    if a.shape[1] != b.shape[0]:
        raise ValueError(f"b: has {b.shape[0]} rows, but a has {a.shape[1]} columns")
    check_same("b", b, "a", a)
    if need_cuda:
        check_cuda("a", a)


def check_out_dtype(dtype: object) -> torch.dtype:
    """`dtype` if the kernels can write it; raises TypeError naming `out_dtype`."""
    if not isinstance(dtype, torch.dtype) or dtype not in OUT_DTYPES:
        raise TypeError(f"out_dtype: expected one of {OUT_DTYPES}, got {dtype}")
    return dtype


def matmul_reference(a: torch.Tensor, b: torch.Tensor, *, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """A B in `dtype` (float32 or float64) on the inputs' device, without TF32."""
    with exact_float32_products():
        return a.to(dtype) @ b.to(dtype)

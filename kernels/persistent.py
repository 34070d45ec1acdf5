"""A persistent matrix product as a plain Triton kernel for Hopper: each program multiplies one tile after another.

C = A B^T with A [M, K] and B [N, K], as weights are stored. As many programs are launched as the card has SMs; each
walks the tiles in steps of that number, in grouped order.
"""

# mypy: disallow-untyped-defs=False, disallow-incomplete-defs=False, disallow-untyped-decorators=False
# The bodies of jit functions are read by Triton, which has no types to give their arguments.

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

import torch
import triton
import triton.language as tl

from wspec.kernels.arguments import HALF_DTYPES, check_cuda, check_no_grad, check_same, check_tensor, tma_descriptors
from wspec.kernels.matmul import Config, empty_output


@triton.jit
def matmul_persistent_kernel(
    a_desc, b_desc, c_desc, m, n, k,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    """Every tile of C whose number is this program's plus a multiple of the number of programs; grid (programs,).

    a_desc: [M, K]; b_desc: [N, K]; c_desc: [M, N], whose type is the result's.
    """
    rows = tl.cdiv(m, BLOCK_M)
    columns = tl.cdiv(n, BLOCK_N)
    tiles_in_group = GROUP_M * columns
    for tile in tl.range(tl.program_id(0), rows * columns, tl.num_programs(0), flatten=False):
        first_row = tile // tiles_in_group * GROUP_M
        group_rows = tl.minimum(rows - first_row, GROUP_M)
        first_m = (first_row + tile % tiles_in_group % group_rows) * BLOCK_M
        first_n = tile % tiles_in_group // group_rows * BLOCK_N
        acc = tl.zeros([BLOCK_M, BLOCK_N], tl.float32)
        for first_k in tl.range(0, k, BLOCK_K):
            a = a_desc.load([first_m, first_k])
            b = b_desc.load([first_n, first_k])
            acc = tl.dot(a, b.T, acc)
        c_desc.store([first_m, first_n], acc.to(c_desc.dtype))


def default_config() -> Config:
    """The tile when nobody chose one; the best of four on an H200, docs/chains.md."""
    return Config(128, 256, 64, num_warps=8, num_stages=3)


@functools.cache
def specialized_kernel() -> Any:
    """The jit function under `wspec.compile`, made on first use."""
    import wspec

    return wspec.compile(matmul_persistent_kernel, trials=0)


def matmul_persistent(
    a: torch.Tensor, weight: torch.Tensor, *, config: Config | None = None, kernel: Any = None
) -> torch.Tensor:
    """A W^T with float32 accumulation, as a contiguous [M, N] tensor of a's dtype.

    a: [M, K]; weight: [N, K]; float16 or bfloat16 on one CUDA device, rows contiguous and 16-byte aligned, none empty.
    kernel: the jit function to launch; the specialized one if None.

    Raises TypeError or ValueError, naming the argument.
    """
    check_inputs(a, weight)
    check_cuda("a", a)
    out = empty_output(a, weight.T, a.dtype)
    launch = Launch.of(a, weight, out, config=config)
    launch.run(specialized_kernel() if kernel is None else kernel)
    return out.contiguous()


def check_inputs(a: torch.Tensor, weight: torch.Tensor) -> None:
    """Raises TypeError or ValueError naming the argument that `matmul_persistent` cannot take."""
    for name, tensor in (("a", a), ("weight", weight)):
        check_tensor(name, tensor, 2, HALF_DTYPES)
        check_no_grad(name, tensor)
        if not tensor.numel():
            raise ValueError(f"{name}: is empty: {tuple(tensor.shape)}")
    if a.shape[1] != weight.shape[1]:
        raise ValueError(f"weight: has rows of {weight.shape[1]}, but a has {a.shape[1]} columns")
    check_same("weight", weight, "a", a)


@dataclass(frozen=True, slots=True)
class Launch:
    """Everything `kernel[grid](*args, **meta)` needs for one call; made once, it can be run many times."""

    grid: tuple[int]
    args: tuple[Any, ...]
    meta: dict[str, Any]
    device: torch.device

    @staticmethod
    def of(
        a: torch.Tensor, weight: torch.Tensor, out: torch.Tensor, *, config: Config | None = None, programs: int = 0
    ) -> Launch:
        """The launch for inputs that passed `check_inputs`; as many programs as SMs, if `programs` is 0."""
        tile = config or default_config()
        rows, columns, steps = tile.block_m, tile.block_n, tile.block_k
        descriptors = tma_descriptors(
            ("a", a, (rows, steps)), ("weight", weight, (columns, steps)), ("out", out, (rows, columns))
        )
        (m, k), n = a.shape, weight.shape[0]
        tiles = triton.cdiv(m, tile.block_m) * triton.cdiv(n, tile.block_n)
        if not programs:
            on_card = a.device.type == "cuda"
            programs = torch.cuda.get_device_properties(a.device).multi_processor_count if on_card else 132
        meta = {
            "BLOCK_M": tile.block_m,
            "BLOCK_N": tile.block_n,
            "BLOCK_K": tile.block_k,
            "GROUP_M": tile.group_m,
            "num_warps": tile.num_warps,
            "num_stages": tile.num_stages,
        }
        return Launch((min(programs, tiles),), (*descriptors, m, n, k), meta, a.device)

    def run(self, kernel: Any) -> None:
        """Launch `kernel` on the inputs' device and current stream."""
        with torch.cuda.device(self.device):
            kernel[self.grid](*self.args, **self.meta)

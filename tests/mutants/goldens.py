"""The kernels that are mutated: specialized modules, each with launches that are small enough to execute.

Odd kernels come with the launches of tests/gpu/structures.py, at small sizes; programs of the passes' tests and the
kernels of wspec.kernels with launches made here. Rings are two deep unless said otherwise, so that few iterations go
round them several times: the last launch of each, which is the longest, goes round more than twice where it can.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from triton.tools.tensor_descriptor import TensorDescriptor

from tests.gpu import structures, structures_more
from tests.gpu.structures import Size, Tile
from tests.passes.test_programs import NAMES, PROGRAMS, outputs
from tests.support import kernels as odd
from tests.support.verified import specialize
from wspec import bridge
from wspec.ir import print_module, read
from wspec.ir.core import Operation
from wspec.ir.loc import value_name
from wspec.ir.types import PointerType, ScalarType, TensorDescType
from wspec.kernels import attention, matmul
from wspec.lab.persistent_launch import even_table
from wspec.options import Options
from wspec.tile_scheduler import PARTIALS
from wspec.tile_scheduler.names import TABLE

SEED = 20


@dataclass(frozen=True, slots=True)
class Launch:
    """What to run a golden with. `outputs` are those of the arguments' tensors that the kernel writes."""

    name: str
    grid: tuple[int, ...]
    arguments: tuple[Any, ...]  # of the kernel's parameters that are not constexprs, as a caller gives them
    outputs: tuple[torch.Tensor, ...]


@dataclass(frozen=True, eq=False)
class Golden:
    """A specialized kernel. `launches` makes fresh tensors, always with the same values."""

    name: str
    text: Callable[[], str]
    launches: Callable[[], list[Launch]]

    def module(self) -> Operation:
        """A fresh module."""
        return self._read.clone({})

    @functools.cached_property
    def _read(self) -> Operation:
        return read(self.text())

    def __str__(self) -> str:
        return self.name


# ------------------------------------------------------------------------------------------------ odd kernels

LOW, TALL, LOW_FP8 = Tile(64, 64, 64, 4), Tile(128, 64, 64, 8), Tile(64, 64, 64, 4, "fp8")
FEW_TRIPS = (0, 1, 2)
TRIPS = (*FEW_TRIPS, 5)


def _up_to(most: int) -> tuple[Size, ...]:
    """Launches with few iterations, and one with that many."""
    return tuple(Size(trips, 1, 1) for trips in (*FEW_TRIPS, most))


SIZES = _up_to(5)
SEVERAL = (Size(0, 2, 2), Size(1, 2, 3), Size(3, 2, 3))  # tiles, for kernels that take one after the other
DIAGONAL = tuple(Size(0, rows, 1) for rows in (1, 2, 5))  # attention: as many iterations as rows of tiles


def _odd(
    kernel: str,
    tile: Tile = LOW,
    sizes: Sequence[Size] = SIZES,
    options: Mapping[str, Any] | None = None,
    suffix: str = "",
    **constexprs: Any,
) -> Golden:
    """A kernel of tests/support/kernels.py."""
    asked = {"depth": 2, "chain": "off"} if options is None else dict(options)
    words = [kernel, *(str(value) for value in constexprs.values()), f"{tile.m}", suffix]
    name = "-".join(word for word in words if word)
    make = functools.partial(_odd_launch, kernel, tile, tuple(constexprs.items()))
    return Golden(
        name,
        functools.cache(functools.partial(_odd_text, kernel, make, sizes[-1], asked)),
        lambda: [_as_launch(f"{size}", make(size)) for size in sizes],
    )


def _odd_launch(kernel: str, tile: Tile, constexprs: tuple[tuple[str, Any], ...], size: Size) -> structures.Launch:
    torch.manual_seed(SEED)
    module = structures if hasattr(structures, kernel) else structures_more
    made = getattr(module, kernel)(tile, size, "cpu", **dict(constexprs))
    assert isinstance(made, structures.Launch)
    return made


def _as_launch(name: str, launch: structures.Launch) -> Launch:
    return Launch(name, launch.grid, launch.args, tuple(output.flat for output in launch.outputs))


def _odd_text(kernel: str, make: Callable[[Size], structures.Launch], size: Size, options: Mapping[str, Any]) -> str:
    launch = make(size)
    return _specialized(getattr(odd, kernel), launch.args, launch.meta, options)


def _specialized(kernel: Any, args: Sequence[Any], meta: Mapping[str, Any], options: Mapping[str, Any]) -> str:
    """The module that is checked, after Triton's last passes. Raises AssertionError for a kernel that is left alone."""
    source = bridge.from_arguments(kernel, args, meta)
    made = specialize(
        read(bridge.ttgir(source)), Options(**{"gate": "off", "persistent": False, "promote": False, **options})
    )
    assert made.module is not None, f"{kernel.__name__}: {made.remarks[0].message}"
    return bridge.final_ttgir(print_module(made.module), source)


def _odd_goldens() -> Iterator[Golden]:
    yield _odd("gemm")
    yield _odd("gemm", TALL)
    yield _odd("gemm", options={"depth": 1, "overlap": False}, suffix="depth1")
    yield _odd("gemm", TALL, _up_to(7), {"consumers": 1, "depth": 3}, suffix="one")
    yield _odd("gemm_transposed", LOW_FP8, suffix="fp8")
    yield _odd("a_transposed")
    for flatten in (False, True):
        yield _odd("persistent", sizes=SEVERAL, FLATTEN=flatten)
    yield _odd("persistent", TALL, sizes=SEVERAL, FLATTEN=False)
    yield _odd("bias")
    yield _odd("store_between_loops")
    yield _odd("two_products")
    yield _odd("load_in_branch", sizes=_up_to(7))  # three tiles one way, four the other
    yield _odd("skipped_tiles", TALL, _up_to(10))  # every other one
    yield _odd("compute_in_branch")
    yield _odd("dequantized_a")
    yield _odd("dequantized_b", TALL)
    yield _odd("read_twice")
    yield _odd("block_scales")
    yield _odd("one_pointer")
    yield _odd("guarded", sizes=[Size(trips, 2, 1) for trips in TRIPS])
    yield _odd("loop_in_branch", sizes=[*_up_to(6), Size(5, 1, 1)])  # even numbers go one way, odd ones the other
    yield _odd("nested_loops")
    yield _odd("dot_behind")
    yield _odd("moving", sizes=SIZES[1:])
    yield _odd("twice_stored")
    yield _odd("writes_in_loop")
    yield _odd("constant_trips", sizes=SIZES[:1], TRIPS=7)
    yield _odd("three_dots")
    yield _odd("attention_masked", CAUSAL=True, sizes=DIAGONAL)
    yield _odd("attention_masked", TALL, CAUSAL=False, sizes=SIZES[1:])
    yield _odd("attention_two_loops", sizes=DIAGONAL)
    yield _odd("attention_grouped", sizes=SIZES[1:])
    yield _odd("attention_persistent", sizes=[Size(trips, 5, 1) for trips in (1, 2, 3)])


# --------------------------------------------------------------------------------------------------- programs

NUMBERS: tuple[Mapping[str, int], ...] = (
    {"k": 0, "n": 0, "middle": 0, "last": 0, "tiles": 0},
    {"k": 64, "n": 64, "middle": 64, "last": 64, "tiles": 1},
    {"k": 128, "n": 128, "middle": 320, "last": 448, "tiles": 3},
    {"k": 64, "n": 320, "middle": 0, "last": 448, "tiles": 3},
    {"k": 448, "n": 320, "middle": 192, "last": 320, "tiles": 5},
)
CHAINS = ("dequantize", "persistent_store", "scores")  # what a mutant of a chain may do is not argued yet
EXTENT = 512  # rows and columns of the tensors that programs are given


def _program(name: str) -> Golden:
    text = functools.partial(_program_text, name)
    return Golden(f"program-{name}", text, lambda: [_program_launch(text(), numbers) for numbers in NUMBERS])


def _program_text(name: str) -> str:
    return outputs(name)[NAMES[-1]]


def _program_launch(text: str, numbers: Mapping[str, int]) -> Launch:
    """Random tensors for descriptors; a table of tiles; integers by the names of the arguments, for others three."""
    torch.manual_seed(SEED)
    function = next(op for op in read(text).walk() if op.name == "tt.func")
    arguments: list[Any] = []
    for argument in function.regions[0].block.args:
        if isinstance(argument.type, TensorDescType):
            arguments.append(_descriptor(argument.type))
        elif isinstance(argument.type, PointerType) and value_name(argument.location) == PARTIALS:
            arguments.append(torch.zeros(1, dtype=torch.int32))
        elif isinstance(argument.type, PointerType) and value_name(argument.location) != TABLE:
            arguments.append(_pointed(argument.type))
        elif isinstance(argument.type, PointerType):
            arguments.append(torch.from_numpy(even_table((max(1, numbers["tiles"]),), blocks=1)[1]))
        else:
            assert isinstance(argument.type, ScalarType) and not argument.type.is_float, str(argument.type)
            arguments.append(numbers.get(value_name(argument.location) or "", 3))
    tensors = [argument.base for argument in arguments if isinstance(argument, TensorDescriptor)]
    tensors += [
        argument for argument in arguments if isinstance(argument, torch.Tensor) and argument.is_floating_point()
    ]
    name = ", ".join(f"{key} = {value}" for key, value in numbers.items())
    return Launch(name, (1,), tuple(arguments), tuple(tensors))


def _pointed(type: PointerType) -> torch.Tensor:
    """What is gathered from, a row behind the other; sums and the like of a row in float32."""
    if str(type.pointee) == "f16":
        return torch.randn(EXTENT * EXTENT).to(torch.float16)
    return torch.zeros(EXTENT)


def _descriptor(type: TensorDescType) -> TensorDescriptor:
    assert str(type.block.element) == "f16", "programs compute in float16"
    shape = [EXTENT if extent > 1 else 1 for extent in type.block.shape]
    return TensorDescriptor.from_tensor(torch.randn(shape).to(torch.float16), list(type.block.shape))


# ---------------------------------------------------------------------------------------------- our own kernels


def _attention(name: str, config: attention.Config, head: int, causal: bool, **options: Any) -> Golden:
    """Queries and keys of different lengths, so that both loops run not at all, once, several times if they can: that
    over whole tiles without a mask, and the one with a mask, of three iterations at most."""
    longest = {64: (64, 600), 128: (128, 840), 256: (128, 350)}[head]
    lengths = [(192, 40), (128, 192), longest]
    return Golden(
        f"attention-{name}",
        functools.cache(lambda: _attention_text(config, head, causal, options)),
        lambda: [_attention_launch(config, head, causal, q, k)[0] for q, k in lengths],
    )


def _attention_text(config: attention.Config, head: int, causal: bool, options: Mapping[str, Any]) -> str:
    launch = _attention_launch(config, head, causal, 128, 128)[1]
    return _specialized(attention.attention_fwd, launch.args, launch.meta, options)


def _attention_launch(
    config: attention.Config, head: int, causal: bool, queries: int, keys: int
) -> tuple[Launch, attention.Launch]:
    torch.manual_seed(SEED)
    q, k, v = (torch.randn(1, 1, rows, head).to(torch.bfloat16) for rows in (queries, keys, keys))
    out, lse = torch.zeros_like(q), torch.zeros(1, 1, queries)
    made = attention.Launch.of(q, k, v, out, lse, causal=causal, scale=head**-0.5, config=config)
    return Launch(f"{queries} queries, {keys} keys", made.grid, made.args, (out, lse)), made


TEAM = 2  # members: as many programs at the same time as follow each other in a grid of rows


def _team(name: str, causal: bool) -> Golden:
    """Several groups on neighbouring tiles of one stream, small tiles, rings of two. The last launch goes twice round
    the grid with more keys than queries, and leaves a member without a tile of its own."""
    config, options = attention.Config(64, 64, 4, 2), {"persistent": True, "coarsening": TEAM, "depth": 2}
    lengths = [(64, 40), (128, 192), (320, 448)]
    return Golden(
        f"attention-team-{name}",
        functools.cache(lambda: _attention_text(config, 64, causal, options)),
        lambda: [_in_team(_attention_launch(config, 64, causal, q, k)[0]) for q, k in lengths],
    )


def _in_team(launch: Launch) -> Launch:
    """One block walks through all tiles."""
    grid, table = even_table(launch.grid, blocks=1, coarsening=TEAM)
    return Launch(launch.name, grid, (*launch.arguments, torch.from_numpy(table)), launch.outputs)


def _matmul(name: str, config: matmul.Config, turned: bool, dtype: torch.dtype, **options: Any) -> Golden:
    lengths = (0, 64, 128, 576)
    return Golden(
        f"matmul-{name}",
        functools.cache(lambda: _matmul_text(config, turned, dtype, options)),
        lambda: [_matmul_launch(config, turned, dtype, k)[0] for k in lengths],
    )


def _matmul_text(config: matmul.Config, turned: bool, dtype: torch.dtype, options: Mapping[str, Any]) -> str:
    launch, meta = _matmul_launch(config, turned, dtype, 384)
    return _specialized(matmul.matmul_descriptor_kernel, launch.arguments, meta, options)


def _matmul_launch(config: matmul.Config, turned: bool, dtype: torch.dtype, k: int) -> tuple[Launch, dict[str, Any]]:
    torch.manual_seed(SEED)
    m, n, inner = config.block_m, config.block_n, max(k, config.block_k)
    a, b = torch.randn(m, inner).to(dtype), torch.randn(*((n, inner) if turned else (inner, n))).to(dtype)
    c = torch.zeros(m, n, dtype=dtype)
    blocks = [m, config.block_k], [n, config.block_k] if turned else [config.block_k, n], [m, n]
    tensors = [TensorDescriptor.from_tensor(t, block) for t, block in zip((a, b, c), blocks, strict=True)]
    meta = {"BLOCK_M": m, "BLOCK_N": n, "BLOCK_K": config.block_k, "GROUP_M": config.group_m, "B_TRANSPOSED": turned}
    launch = Launch(f"k = {k}", (1,), (*tensors, m, n, k), (c,))
    return launch, {**meta, "num_warps": config.num_warps, "num_stages": config.num_stages}


def _own_goldens() -> Iterator[Golden]:
    small = attention.Config(64, 64, 4, 2)
    for head, config in ((64, small), (128, attention.Config()), (256, attention.Config(128, 64))):
        for causal in (False, True):
            yield _attention(f"{head}-{'causal' if causal else 'full'}", config, head, causal)
    yield _attention("64-depth2", small, 64, True, depth=2)
    yield _attention("64-plain", small, 64, False, overlap=False, depth=1)
    for causal in (False, True):
        yield _team("causal" if causal else "full", causal)
    for turned, dtype, name in (
        (False, torch.bfloat16, "bf16"),
        (True, torch.bfloat16, "bf16_transposed"),
        (False, torch.float16, "fp16"),
    ):
        yield _matmul(name, matmul.Config(), turned, dtype)
    yield _matmul("small", matmul.Config(128, 64, 64), False, torch.bfloat16, depth=2)


@functools.cache
def goldens() -> dict[str, Golden]:
    """All of them, by name."""
    programs = [name for name in PROGRAMS if name not in CHAINS]
    found = [*map(_program, programs), *_odd_goldens(), *_own_goldens()]
    assert len({golden.name for golden in found}) == len(found), "two goldens have one name"
    return {golden.name: golden for golden in found}

"""Products whose last tiles are divided between blocks: the bits of the plain kernel, whatever else the GPU does."""

from __future__ import annotations

import functools
from typing import Any

import pytest
import torch

import wspec
from wspec.bridge import workspace as partials
from wspec.kernels.matmul import Config, Launch, empty_output, plain_kernel
from wspec.lab.bench.in_a_row import same_in_a_row

pytestmark = pytest.mark.gpu

TILE = Config(128, 256, 64)
SIZES = [
    (4096, 3584, 1024), (2304, 4096, 4096), (2304, 4096, 512), (4000, 3600, 1048), (3072, 5120, 2048),
    (16512, 2048, 264), (8192, 8192, 576), (1, 34056, 520), (17024, 8, 1000),
]  # fmt: skip


@functools.cache
def kernel(**options: Any) -> Any:
    return wspec.compile(plain_kernel("descriptor"), gate="off", persistent=True, **options)


def inputs(m: int, n: int, k: int, seed: int = 0, turned: bool = False) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator("cuda").manual_seed(seed)
    draw = functools.partial(torch.randn, device="cuda", dtype=torch.bfloat16, generator=generator)
    return draw(m, k), draw(n, k).T if turned else draw(k, n)


def run(function: Any, a: torch.Tensor, b: torch.Tensor, config: Config = TILE) -> torch.Tensor:
    out = empty_output(a, b, a.dtype).fill_(torch.nan)
    Launch.of(a, b, out, variant="descriptor", config=config).run(function)
    return out


def words_are_clear() -> bool:
    torch.cuda.synchronize()
    return not any(memory[: 256 * 512].any() for memory in partials._made.values())


@pytest.mark.parametrize("size", SIZES, ids=lambda size: "x".join(map(str, size)))
@pytest.mark.parametrize("turned", [False, True])
def test_the_bits_of_the_plain_kernel(size: tuple[int, int, int], turned: bool) -> None:
    a, b = inputs(*size, turned=turned)
    expected = run(plain_kernel("descriptor"), a, b)
    for _ in range(20):
        assert torch.equal(run(kernel(stream_k=True), a, b), expected)
    assert torch.equal(run(kernel(), a, b), expected), "where the model decides"
    assert words_are_clear()


@pytest.mark.parametrize("config", [Config(128, 128, 64, 8), Config(64, 256, 64, 4), Config(256, 128, 64, 8)], ids=str)
def test_other_tiles(config: Config) -> None:
    a, b = inputs(4000, 3600, 1048)
    assert torch.equal(
        run(kernel(stream_k=True, blocks=1), a, b, config), run(plain_kernel("descriptor"), a, b, config)
    )


def test_two_streams_at_once() -> None:
    """Each has memory of its own; blocks of both wait on the same SMs."""
    sets = [inputs(2304, 4096, 1024, seed) for seed in range(2)]
    expected = [run(plain_kernel("descriptor"), a, b) for a, b in sets]
    streams = [torch.cuda.Stream() for _ in sets]
    torch.cuda.synchronize()
    made: list[list[torch.Tensor]] = [[], []]
    for _ in range(30):
        for stream, (a, b), found in zip(streams, sets, made, strict=True):
            with torch.cuda.stream(stream):
                found.append(run(kernel(stream_k=True), a, b))
    torch.cuda.synchronize()
    for found, wanted in zip(made, expected, strict=True):
        assert all(torch.equal(one, wanted) for one in found)
    assert words_are_clear()


def test_in_a_row_and_in_graphs() -> None:
    """Each takes the last one's result, and starts while that one ends."""
    first, weight = inputs(2304, 2304, 2304)
    weight /= 2304**0.5

    def step(function: Any, a: torch.Tensor, _: int) -> torch.Tensor:
        return run(function, a, weight)

    divided = functools.partial(step, kernel(stream_k=True))
    alone = functools.partial(step, kernel(stream_k=False, programmatic_launch=False))
    assert same_in_a_row(divided, alone, [first, first.flip(0)], steps=6)
    result, expected = first, first
    for number in range(12):
        result = divided(result, number)
    for number in range(12):
        expected = alone(expected, number)
        torch.cuda.synchronize()
    assert torch.equal(result, expected) and words_are_clear()


@pytest.mark.parametrize("launches", [1, 2])
def test_graphs_beside_each_other_and_beside_launches(launches: int) -> None:
    """Captured behind one launch, when the table is written beside the capture, or where it is there already."""
    a, b = inputs(2304, 4096, 1024 + 64 * launches)
    expected = run(plain_kernel("descriptor"), a, b)
    function = kernel(stream_k=True)
    outs = [empty_output(a, b, a.dtype) for _ in range(3)]
    made = [Launch.of(a, b, out, variant="descriptor", config=TILE) for out in outs]
    for _ in range(launches):
        made[0].run(function)
    graphs = [torch.cuda.CUDAGraph() for _ in made[1:]]
    for graph, launch in zip(graphs, made[1:], strict=True):
        with torch.cuda.graph(graph):
            launch.run(function)
            launch.run(function)
    steps = [functools.partial(made[0].run, function), *(graph.replay for graph in graphs)]
    streams = [torch.cuda.Stream() for _ in steps]
    for _ in range(10):
        for out in outs:
            out.fill_(torch.nan)
        torch.cuda.synchronize()
        for _ in range(3):
            for stream, step in zip(streams, steps, strict=True):
                with torch.cuda.stream(stream):
                    step()
        torch.cuda.synchronize()
        assert all(torch.equal(out, expected) for out in outs)
    assert words_are_clear()


def test_beside_work_that_takes_sms_away() -> None:
    """A block that waits holds its SM; the one it waits for was started before it."""
    a, b = inputs(2304, 4096, 512)
    expected = run(plain_kernel("descriptor"), a, b)
    other = torch.cuda.Stream()
    x = torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16)
    torch.cuda.synchronize()
    for _ in range(20):
        with torch.cuda.stream(other):
            x @ x
        assert torch.equal(run(kernel(stream_k=True), a, b), expected)
    assert words_are_clear()

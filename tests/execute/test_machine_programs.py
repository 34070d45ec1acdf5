"""The programs of the passes' tests on the executor, against float64, in orders a GPU seldom chooses."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping

import pytest
import torch

from tests.passes.test_programs import FOLDER, NAMES, outputs
from wspec.execute import FirstReady, Kernel, Priorities, Random, Schedule, one_thread
from wspec.ir import read
from wspec.lab.persistent_launch import even_table

BOUND = 2e-2  # of the largest value: half precision between the products


@functools.cache
def plain(program: str) -> Kernel:
    return Kernel(read((FOLDER / program / "input.ttgir").read_text()))


@functools.cache
def specialized(program: str) -> Kernel:
    return Kernel(read(outputs(program)[NAMES[-1]]))


def schedules(program: str) -> Iterator[Schedule]:
    yield FirstReady()
    yield from (Random(seed) for seed in range(3))
    yield from (Priorities(seed) for seed in range(3))
    yield from specialized(program).adversaries


def normal(seed: int, *shape: int) -> torch.Tensor:
    draw = torch.Generator().manual_seed(seed)
    return (torch.randn(shape, generator=draw) / 4).half()


def assert_close(actual: torch.Tensor, expected: torch.Tensor) -> None:
    error = float((actual.double() - expected).abs().max())
    assert error <= BOUND * max(1.0, float(expected.abs().max())), error


def check(
    program: str,
    grid: tuple[int, ...],
    arguments: Mapping[str, torch.Tensor | int],
    output: str,
    expected: torch.Tensor,
) -> None:
    """Plain and specialized near the expected values, and the same bits in every order."""

    def run(kernel: Kernel, schedule: Schedule | None = None) -> torch.Tensor:
        made = torch.full(expected.shape, torch.nan, dtype=torch.float16)
        with one_thread():
            kernel.run(grid, {**arguments, output: made}, schedule=schedule)
        return made

    first = run(plain(program))
    assert_close(first, expected)
    for schedule in schedules(program):
        assert torch.equal(run(specialized(program), schedule), first), schedule.name


@pytest.mark.parametrize(("trips", "taken"), [(0, 0), (1, 0), (1, 1), (5, 0), (5, 3), (5, 5)])
def test_a_buffer_released_in_either_branch(trips: int, taken: int) -> None:
    """The tile of a is handed back inside the branch that reads it, and in the one that does not."""
    a, b = normal(1, 64, 64 * max(trips, 1)), normal(2, 64 * max(trips, 1), 64)
    read_of = 64 * taken
    expected = a[:, :read_of].double() @ b[:read_of].double()
    check("branch", (1,), {"a_desc": a, "b_desc": b, "last": read_of, "k": 64 * trips}, "c_desc", expected)


def attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, keys: slice, squared: bool) -> torch.Tensor:
    scores = torch.exp2(q.double() @ k[keys].double().T)
    return (scores**2 if squared else scores) @ v[keys].double()


@pytest.mark.parametrize(("middle", "keys"), [(0, 0), (0, 1), (1, 1), (2, 2), (3, 4), (0, 3), (2, 5)])
def test_two_loops_that_meet_and_groups_that_take_turns(middle: int, keys: int) -> None:
    """The second loop squares the scores, so that a late part on the wrong side of the seam shows."""
    q, k, v = normal(1, 128, 64), normal(2, 64 * max(keys, 1), 64), normal(3, 64 * max(keys, 1), 64)
    at, end = 64 * middle, 64 * keys
    expected = attention(q, k, v, slice(0, at), False) + attention(q, k, v, slice(at, end), True)
    arguments = {"q_desc": q, "k_desc": k, "v_desc": v, "middle": at, "n": end}
    check("turns", (1,), arguments, "o_desc", expected)


@pytest.mark.parametrize("keys", [0, 1, 2, 5])
@pytest.mark.parametrize("blocks", [1, 2, 3, 7])
def test_tiles_one_after_the_other(keys: int, blocks: int) -> None:
    """Several tiles a block, an uneven number, and blocks with one tile: the output of each leaves in time."""
    tiles = 5
    q, k, v = normal(1, 64 * (tiles + 1), 64), normal(2, 64 * max(keys, 1), 64), normal(3, 64 * max(keys, 1), 64)
    expected = torch.full((64 * (tiles + 1), 64), torch.nan, dtype=torch.float64)
    expected[64:] = attention(q[64:], k, v, slice(0, 64 * keys), False)
    grid, numbers = even_table((tiles,), blocks)
    made = torch.from_numpy(numbers)
    arguments = {"q_desc": q, "k_desc": k, "v_desc": v, "n": 64 * keys}
    out = torch.full(expected.shape, torch.nan, dtype=torch.float16)
    with one_thread():
        plain("tiles").run((tiles,), {**arguments, "o_desc": out})
    assert_close(out[64:], expected[64:])
    for schedule in schedules("tiles"):
        again = torch.full(expected.shape, torch.nan, dtype=torch.float16)
        with one_thread():
            specialized("tiles").run(grid, {**arguments, "o_desc": again, "wspec_tiles": made}, schedule=schedule)
        assert torch.equal(again[64:], out[64:]) and bool(again[:64].isnan().all()), schedule.name

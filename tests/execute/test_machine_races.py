"""Races on global memory: found in every schedule if the two accesses are made, and never between what is ordered."""

from __future__ import annotations

import pytest
import torch

from tests.check.script import kernel
from tests.support.aliased_kernels import bound_elsewhere
from tests.support.verified import specialize
from wspec import bridge
from wspec.execute import FirstReady, Kernel, ProgramError, Random
from wspec.ir import read
from wspec.options import Options


def ran(text: str, seed: int | None = None, count: int = 1) -> torch.Tensor:
    """What is in memory after a script has run."""
    memory = torch.zeros(count, dtype=torch.int32)
    given = {0: memory}
    Kernel(kernel(text)).run(1, list(given.values()), schedule=FirstReady() if seed is None else Random(seed))
    return memory


UNORDERED = {
    "two writes": """
        def kernel(p: ptr):
            with specialize():
                with task(4):
                    write(p, 1)
                with task(4):
                    write(p, 2)
    """,
    "a write and a read": """
        def kernel(p: ptr):
            with specialize():
                with task(4):
                    write(p, 1)
                with task(4):
                    use_number(read(p))
    """,
    "a write and an addition": """
        def kernel(p: ptr):
            with specialize():
                with task(4):
                    write(p, 1)
                with task(4):
                    add(p, 2)
    """,
    "told before it is written": """
        def kernel(p: ptr):
            done = barriers(1)
            with specialize():
                with task(4):
                    arrive(done[0])
                    write(p, 1)
                with task(4):
                    wait(done[0], 0)
                    write(p, 2)
    """,
    "one of two told": """
        def kernel(p: ptr):
            done = barriers(1)
            with specialize():
                with task(4):
                    write(p, 1)
                    arrive(done[0])
                with task(4):
                    wait(done[0], 0)
                with task(4):
                    write(p, 2)
    """,
}
ORDERED = {
    "told through a barrier": """
        def kernel(p: ptr):
            done = barriers(1)
            with specialize():
                with task(4):
                    write(p, 1)
                    arrive(done[0])
                with task(4):
                    wait(done[0], 0)
                    write(p, 2)
    """,
    "told through another task": """
        def kernel(p: ptr):
            one, two = barriers(1), barriers(1)
            with specialize():
                with task(4):
                    write(p, 1)
                    arrive(one[0])
                with task(4):
                    wait(one[0], 0)
                    arrive(two[0])
                with task(4):
                    wait(two[0], 0)
                    write(p, 2)
    """,
    "told through a named barrier": """
        def kernel(p: ptr):
            with specialize():
                with task(4):
                    write(p, 1)
                    bar_arrive(8, 256)
                with task(4):
                    bar_sync(8, 256)
                    write(p, 2)
    """,
    "before the tasks and after": """
        def kernel(p: ptr):
            write(p, 1)
            with specialize():
                with task(4):
                    pass
                with task(4):
                    write(p, 3)
            write(p, 2)
    """,
    "two additions": """
        def kernel(p: ptr):
            with specialize():
                with task(4):
                    add(p, 1)
                with task(4):
                    add(p, 1)
    """,
    "the same value": """
        def kernel(p: ptr):
            with specialize():
                with task(4):
                    write(p, 2)
                with task(4):
                    write(p, 2)
    """,
}


@pytest.mark.parametrize("name", UNORDERED)
@pytest.mark.parametrize("seed", [None, 0, 1, 2])
def test_what_nothing_orders_is_an_error(name: str, seed: int | None) -> None:
    text = UNORDERED[name].replace("use_number(read(p))", "read(p)")
    with pytest.raises(ProgramError, match=r"global memory that .* and nothing orders the two"):
        ran(text, seed)


@pytest.mark.parametrize("name", ORDERED)
@pytest.mark.parametrize("seed", [None, 0, 1, 2])
def test_what_is_ordered_is_not(name: str, seed: int | None) -> None:
    assert ran(ORDERED[name], seed).tolist() == [2]


@pytest.mark.parametrize("seed", range(3))
def test_a_bound_that_is_stored_through_another_argument(seed: int) -> None:
    """What the launch's guard keeps from running. Where a tile is handed on it orders load and store; here is none."""
    box = "tensordesc<fp16[64, 64]>"
    types = {"a_desc": box, "b_desc": box, "c_desc": box, "bound_ptr": "*i32", "next_ptr": "*i32"}
    source = bridge.from_signature(bound_elsewhere, types, {"BM": 64, "BN": 64, "BK": 64, "num_warps": 4})
    text = bridge.ttgir(source)
    made = specialize(read(text), Options(gate="off", persistent=False)).module
    assert made is not None

    def run(module: Kernel, shared: bool, count: int = 3) -> torch.Tensor:
        a, b, c = (torch.ones(size, dtype=torch.float16) for size in ((64, 256), (256, 64), (64, 64)))
        bound = torch.tensor([count, 0], dtype=torch.int32)
        module.run(1, [a, b, c, bound[:1], bound[:1] if shared else bound[1:]], schedule=Random(seed))
        return c

    assert torch.equal(run(Kernel(made), False), run(Kernel(read(text)), False))
    assert torch.equal(run(Kernel(read(text)), True), run(Kernel(read(text)), False))
    with pytest.raises(ProgramError, match="and nothing orders the two"):
        run(Kernel(made), True, count=0)

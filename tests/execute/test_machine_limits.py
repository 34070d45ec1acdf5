"""What the card or Triton's back end refuses, and shared memory where Triton's allocator puts it."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import pytest
import torch

from tests.check.script import kernel
from wspec.bridge import placement
from wspec.bridge.text import generic_text, reparse, run_passes
from wspec.bridge.versions import INSTALLED
from wspec.execute import Kernel, ProgramError
from wspec.execute.errors import ExecutionError
from wspec.ir import print_module, read, shared_memory
from wspec.ir.core import Operation
from wspec.ir.types import i32
from wspec.target.hopper import ARCH


def ran(module: Operation, tiles: int = 0) -> None:
    made = Kernel(module)
    given: list[Any] = [torch.zeros(64, 64, dtype=torch.float16)] * tiles
    scalars = [4] * (len(made.parameters) - tiles)
    made.run(1, [*scalars, *given], implied_fences=False)


def placed(text: str) -> Operation:
    """A script as Triton gives it shared memory."""
    module = kernel(text)
    return shared_memory.placed(module, placement(module))


REFUSED: dict[str, tuple[str, str]] = {
    "a dot on one warp": (
        """
        def kernel(n):
            tile = buffer(64, 64)
            store(tile)
            fence()
            with specialize():
                with task(4):
                    pass
                with task(1):
                    dot_wait(0, dot(tile, tile, zeros(64, 64)))
        """,
        r"ttng.warp_group_dot on 1 warps; it takes whole groups of 4",
    ),
    "a barrier that Triton uses": (
        """
        def kernel(n):
            with specialize():
                with task(4):
                    bar_sync(1, 256)
                with task(4):
                    bar_sync(1, 256)
        """,
        r"named barrier 1 is Triton's; free are those from 3",
    ),
    "a barrier that is not there": (
        """
        def kernel(n):
            with specialize():
                with task(4):
                    bar_sync(16, 256)
                with task(4):
                    bar_sync(16, 256)
        """,
        r"there is no named barrier 16",
    ),
    "a store over a barrier that is in use": (
        """
        def kernel(n):
            done = barriers(16)
            store(reinterpret(done, 8, 8))
        """,
        r"ttg.local_store: it overwrites a barrier that is in use",
    ),
    "registers that are not there": (
        """
        def kernel(n):
            with specialize(registers=(240, 240)):
                with task(4):
                    pass
                with task(4):
                    pass
                with task(4):
                    pass
        """,
        "",
    ),
}


@pytest.mark.parametrize("name", [name for name, (_, said) in REFUSED.items() if said])
def test_what_is_refused(name: str) -> None:
    text, said = REFUSED[name]
    with pytest.raises(ProgramError, match=said):
        ran(kernel(text))


@pytest.mark.parametrize(
    ("flags", "registers", "said"),
    [
        ({"ttg.maxnreg": 176}, (24, 24), "176 registers for each of 384 threads are 67584; an SM has 65536"),
        ({}, (256, 256), "ask for 65536 registers, which leaves less than 24 for the others"),
        ({}, (240, 20), "20 registers a thread; setmaxnreg takes multiples of 8 from 24 to 256"),
        ({"ttg.shared": 232449}, (24, 24), "232449 bytes of shared memory; a block has at most 232448"),
        ({"ttg.num-warps": 28}, (24, 24), "1152 threads; a block has at most 1024"),
        ({"ttg.maxnreg": 168}, (240, 240), ""),
    ],
)
def test_registers_and_memory(flags: dict[str, int], registers: Sequence[int], said: str) -> None:
    text, _ = REFUSED["registers that are not there"]
    module = kernel(text.replace("(240, 240)", str(tuple(registers))))
    module.attributes.update({name: i32(value) for name, value in flags.items()})
    if said:
        with pytest.raises(ExecutionError, match=said):
            Kernel(module)
    else:
        ran(module)


# --------------------------------------------------------------------------------- where Triton puts things

UNDER_A_TILE = """
    def kernel(n):
        done = barriers(1)
        arrive(done[0])
        wait(done[0], 0)
        {inval}
        tile, full = buffer(64, 64), barriers(1)
        expect(full[0], 8192)
        copy(tile, full[0])
        wait(full[0], 0)
        load(tile)
"""


def test_a_barrier_that_is_still_in_use_under_a_tile() -> None:
    """Triton gives a barrier's bytes away after its last use. Where they are invalidated first that is right."""
    with pytest.raises(ProgramError, match="it overwrites a barrier that is in use"):
        ran(placed(UNDER_A_TILE.format(inval="")), tiles=1)
    ran(placed(UNDER_A_TILE.format(inval="inval(done[0])")), tiles=1)
    ran(kernel(UNDER_A_TILE.format(inval="")), tiles=1)  # each has a place of its own before Triton shares them out


GIVEN_AWAY = """
    def kernel(n):
        one = buffer(64, 64)
        store(one)
        fence()
        tma_store(one)
        {wait}
        two = buffer(64, 64)
        store(two)
        fence()
        tma_store(two)
        store_wait(0)
"""


def test_a_buffer_that_a_store_still_reads_under_another() -> None:
    with pytest.raises(ProgramError, match=r"overwrites two.*while a TMA store may still be reading it"):
        ran(placed(GIVEN_AWAY.format(wait="")), tiles=2)
    ran(placed(GIVEN_AWAY.format(wait="store_wait(0)")), tiles=2)


def test_loops_and_tasks_run_as_blocks() -> None:
    """Where Triton itself gives memory out, loops have become branches, in the tasks too."""
    text = """
        def kernel(n):
            tile, full, empty = buffer(2, 64, 64), barriers(2), barriers(2)
            with specialize():
                with task(4):
                    for i in range(0, n, 1):
                        wait(full[i % 2], i // 2 & 1)
                        load(tile[i % 2])
                        fence()
                        arrive(empty[i % 2])
                with task(1):
                    for i in range(0, n, 1):
                        wait(empty[i % 2], i // 2 + 1 & 1)
                        expect(full[i % 2], 8192)
                        copy(tile[i % 2], full[i % 2])
    """

    def lowered(text: str) -> Operation:
        made = reparse(print_module(kernel(text)))
        run_passes(made, functools.partial(INSTALLED.add_memory_passes, arch=ARCH), "test_allocate")
        return read(generic_text(made))

    module = lowered(text)
    assert any(op.name == "cf.cond_br" for op in module.walk()) and not any(
        op.name == "scf.for" for op in module.walk()
    )
    ran(module, tiles=1)
    with pytest.raises(ProgramError, match="deadlock"):
        ran(lowered(text.replace("arrive(empty[i % 2])", "pass")), tiles=1)


def test_two_tasks_that_write_with_nothing_between() -> None:
    """Whatever the order in which they happen to run, and though both write the same."""
    text = """
        def kernel(n):
            tile, done = buffer(64, 64), barriers(1)
            with specialize():
                with task(4):
                    store(tile)
                    {tell}
                with task(4):
                    {wait}
                    store(tile)
    """
    with pytest.raises(ProgramError, match=r"writes tile .*, which ttg.local_store of .* touched, and nothing orders"):
        ran(kernel(text.format(tell="pass", wait="pass")))
    ran(kernel(text.format(tell="arrive(done[0])", wait="wait(done[0], 0)")))

"""Which actions a block does, from the numbers it is launched with."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.check.script import kernel
from tests.lab.simulate.playing import MACHINE, simulator
from wspec.lab.simulate import SimulationError
from wspec.lab.simulate.actions import Block, Flow, Kind
from wspec.lab.simulate.costs import LOAD
from wspec.lab.simulate.occupancy import blocks_per_sm, shared_bytes, total_warps
from wspec.lab.simulate.program import Compiler
from wspec.lab.simulate.ptxas_reordering import Edits
from wspec.lab.simulate.walk import Arrival, Arrivals, Walker


def walk(
    text: str, grid: tuple[int, int, int] = (1, 1, 1), program: tuple[int, int, int] = (0, 0, 0), **given: int
) -> Block:
    return Walker(Compiler(kernel(text), MACHINE), given, grid).block(program)


def kinds(block: Block, task: int = 0) -> Counter[Kind]:
    return Counter(action.kind for action in block.tasks[task].actions)


NESTED = """
def kernel(n, m):
    a, b = buffer(64, 64), buffer(64, 64)
    for i in range(0, n, 2):
        for j in range(i, m, 1):
            if j % 3 == 0:
                one = dot_wait(0, dot(a, b, zeros(64, 64)))
"""


@pytest.mark.parametrize(("n", "m"), ((0, 5), (1, 7), (6, 6), (7, 3)))
def test_loops_and_branches(n: int, m: int) -> None:
    inner = [j for i in range(0, n, 2) for j in range(i, m)]
    found = kinds(walk(NESTED, arg0=n, arg1=m))
    assert found[Kind.DOT] == sum(j % 3 == 0 for j in inner)
    assert found[Kind.MARK] == len(range(0, n, 2)) + len(inner)


def test_numbers_that_are_not_given_are_named() -> None:
    with pytest.raises(SimulationError, match=r"scf\.for needs a number that is not known(.|\n)*give arg1"):
        walk(NESTED, arg0=4)
    assert simulator(NESTED).missing({"arg0": 1}) == ["arg1"]


def test_the_same_step_is_the_same_object() -> None:
    text = """
def kernel(n):
    tile, full = buffer(2, 64, 64), barriers(2)
    for i in range(0, n, 1):
        expect(full[i % 2], 8192)
        copy(tile[i % 2], full[i % 2])
        wait(full[i % 2], i // 2 & 1)
"""
    waits = [action for action in walk(text, arg0=8).tasks[0].actions if action.kind is Kind.WAIT]
    assert [(one.a, one.b) for one in waits] == [(barrier, phase) for phase in (0, 1) * 2 for barrier in (0, 1)]
    assert len(set(map(id, waits))) == 4


def test_the_way_of_a_tile_may_change_after_so_many() -> None:
    text = """
def kernel(n):
    tile, full = buffer(1, 64, 64), barriers(1)
    for i in range(0, n, 1):
        copy(tile[0], full[0])
"""
    program = Compiler(kernel(text), MACHINE)
    actions = Walker(program, {"arg0": 1}, (1, 1, 1)).block((0, 0, 0)).tasks[0].actions
    (copy,) = [action.op for action in actions if action.kind is Kind.COPY]
    ways = [Arrival(Flow.of({LOAD: cycles}), latency) for cycles, latency in ((10.0, 5.0), (2.0, 1.0))]
    walker = Walker(program, {"arg0": 5}, (1, 1, 1), arrivals={copy: Arrivals([0.0, 3.0], ways)})
    for _ in range(2):  # each block begins anew
        actions = walker.block((0, 0, 0)).tasks[0].actions
        found = [(one.flow, one.after) for one in actions if one.kind is Kind.COPY]
        assert found == [(way.flow, way.latency) for way in (*ways[:1] * 3, *ways[1:] * 2)]


def test_what_one_thread_does_and_a_wait_come_after_a_meeting() -> None:
    """As Triton 3.6 has them: a bar.sync in front of each; arrivals in a row need one. Not of one warp."""
    text = """
def kernel(n):
    tile, full, empty = buffer(1, 64, 64), barriers(1), barriers(2)
    expect(full[0], 8192)
    copy(tile[0], full[0])
    wait(full[0], 0)
    arrive(empty[0])
    arrive(empty[1])
"""
    for warps, expected in ((8, 4), (1, 0)):
        block = Walker(Compiler(kernel(text, warps=warps), MACHINE), {}, (1, 1, 1)).block((0, 0, 0))
        assert kinds(block)[Kind.TASK_SYNC] == expected


@pytest.mark.parametrize(("between", "meetings"), [("", 2), ("    load(tile[0])\n", 3)])
def test_several_groups_meet_before_a_wait_where_shared_memory_was_touched(between: str, meetings: int) -> None:
    """Without the barriers that order nothing: behind those that make mbarriers, and before the arrival, in which one
    thread speaks for all, they stay."""
    text = """
def kernel(n):
    tile, full, empty = buffer(1, 64, 64), barriers(2), barriers(1)
    wait(full[0], 0)
    arrive(empty[0])
BETWEEN    wait(full[1], 0)
""".replace("BETWEEN", between)
    program = Compiler(kernel(text, warps=8), MACHINE, edits=Edits(elide_barriers=True))
    assert kinds(Walker(program, {}, (1, 1, 1)).block((0, 0, 0)))[Kind.TASK_SYNC] == meetings


def test_program_ids_decide() -> None:
    text = """
def kernel(n):
    a, b = buffer(64, 64), buffer(64, 64)
    for i in range(pid(1), n, 1):
        one = dot_wait(0, dot(a, b, zeros(64, 64)))
"""
    assert kinds(walk(text, (4, 8, 2), (3, 5, 1), arg0=7))[Kind.DOT] == 2
    assert Compiler(kernel(text), MACHINE).axes() == {1}


def test_an_array_that_is_loaded_from() -> None:
    text = """
def kernel(p: ptr):
    a, b = buffer(64, 64), buffer(64, 64)
    for i in range(0, read(p), 1):
        one = dot_wait(0, dot(a, b, zeros(64, 64)))
"""
    block = Walker(Compiler(kernel(text), MACHINE), {"arg0": [3, 9]}, (1, 1, 1)).block((0, 0, 0))
    assert kinds(block)[Kind.DOT] == 3


def test_tasks_and_their_warps() -> None:
    text = """
def kernel(n):
    full = barriers(1, 2)
    with specialize(registers=[240, 24]):
        with task(4):
            wait(full[0], 0)
        with task(4):
            arrive(full[0])
        with task(1):
            arrive(full[0])
"""
    block = walk(text)
    assert [(task.name, task.warps) for task in block.tasks] == [("default", 4), ("partition0", 4), ("partition1", 1)]
    assert Kind.TASK_SYNC in kinds(block, 1) and Kind.TASK_SYNC not in kinds(block, 2)  # one warp has nobody to meet
    assert total_warps(kernel(text)) == 12


def test_shared_memory_is_what_is_alive_at_a_time() -> None:
    text = """
def kernel(n):
    a = buffer(64, 64)
    use(load(a))
    dealloc(a)
    b, c = buffer(128, 64), buffer(64, 64)
    use(load(b))
    use(load(c))
"""
    assert shared_bytes(kernel(text)) == 3 * 64 * 64 * 2


@pytest.mark.parametrize(
    ("columns", "warps", "registers", "blocks"), ((64, 8, 64, 4), (64, 8, 255, 1), (64, 4, 16, 16), (512, 4, 64, 3))
)
def test_how_many_blocks_share_an_sm(columns: int, warps: int, registers: int, blocks: int) -> None:
    """By registers, twice; by threads; by shared memory."""
    text = f"""
def kernel(n):
    a = buffer(64, {columns})
    use(load(a))
"""
    assert blocks_per_sm(kernel(text, warps=warps), MACHINE, registers) == blocks

"""The simulation that other tests lean on: programs pass it in any order, and broken ones do not."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from tests.passes.test_programs import FOLDER, PROGRAMS, outputs
from tests.support.invariants import assert_sound
from tests.support.simulate import Term, World, stores_of_plain, stores_of_tasks, term
from tests.support.worlds import walked
from wspec.ir import print_module, read
from wspec.ir import warp_specialize as ws
from wspec.ir.builder import Builder
from wspec.ir.core import Block, Operation
from wspec.ir.types import I32, IntegerAttr, i32
from wspec.pipeline import PASSES
from wspec.plan.plan import Plan

LAST = PASSES[-1].__name__


def world(trips: int, other: int, blind: bool = False) -> World:
    """Integers for the arguments of every program."""
    integers = {"k": 64 * trips, "n": 64 * trips, "middle": 64 * min(other, trips), "last": 64 * other, "tiles": other}
    return World(integers, grid=(3, 2, 1), blind=blind)


def plain(program: str) -> Operation:
    return read((FOLDER / program / "input.ttgir").read_text())


CHAINS = frozenset({"dequantize", "persistent_store", "scores"})  # tests/execute runs chains


@pytest.mark.parametrize("program", [program for program in PROGRAMS if program not in CHAINS])
@pytest.mark.parametrize("trips", [0, 1, 2, 3, 6])
def test_programs_store_what_they_stored(program: str, trips: int) -> None:
    module = read(outputs(program)[LAST])
    for other in (0, 1, 3):
        for seed in range(4):
            tiles, launched = walked(module, world(trips, other), random.Random(seed))
            expected = [stored for tile in tiles for stored in stores_of_plain(plain(program), tile)]
            first, *_, producer = stores_of_tasks(module, launched, seed)
            assert whole(first) == expected
            assert producer == []


HALF = 64  # columns of half of a tile of `programs/halves`


def whole(stored: list[Term]) -> list[Term]:
    """Stores of both halves of a tile, one behind the other, as the one that they were."""
    found: list[Term] = []
    for one in stored:
        name, desc, tile, *place = one.key
        if not isinstance(tile, Term) or tile.key[0] != "tt.split":
            found.append(one)
        elif tile.key[1] == 0:
            found.append(term(name, desc, tile.key[2].key[2], *place))
        else:
            other = term(name, desc, tile.key[2].key[2], *place[:-1], place[-1] - HALF)
            assert found and found[-1] is other, "the second half belongs to the first, and is beside it"
    return found


def test_replicas_store_the_same_form() -> None:
    module = read(outputs("gemm")[LAST])
    for trips in range(4):
        form = world(trips, 1, blind=True)
        first, second, _ = stores_of_tasks(module, form, trips)
        assert first == second == stores_of_plain(plain("gemm"), form)


# ---------------------------------------------------------------------------------------------------------- mutants


def named(block: Block, name: str) -> list[Operation]:
    return [op for top in block.ops for op in top.walk() if op.name == name]


def tasks(module: Operation) -> list[Block]:
    op = ws.find(module)
    assert op is not None
    return ws.task_blocks(op)


def drop_arrive(module: Operation) -> None:
    named(tasks(module)[0], "ttng.arrive_barrier")[0].erase()


def arrive_twice(module: Operation) -> None:
    arrive = named(tasks(module)[0], "ttng.arrive_barrier")[0]
    assert arrive.parent is not None
    arrive.parent.insert(arrive.parent.ops.index(arrive), arrive.clone({}))


def release_early(module: Operation) -> None:
    """Before the wait for the dot that still reads the buffer: the last release of a loop frees the producer."""
    arrive = [op for op in named(tasks(module)[0], "ttng.arrive_barrier") if _in_loop_with_wait(op)][-1]
    block = arrive.parent
    assert block is not None
    needed = [value.op for value in arrive.operands if value.op is not None and value.op.parent is block]
    wait = next(op for op in block.ops if op.name == "ttng.warp_group_dot_wait")
    for op in [*needed, arrive]:
        op.erase()
        block.insert(block.ops.index(wait), op)


def _in_loop_with_wait(op: Operation) -> bool:
    beside = op.parent.ops if op.parent is not None else []
    loops = [outer for outer in op.ancestors() if outer.name == "scf.for"]
    return bool(loops) and any(other.name == "ttng.warp_group_dot_wait" for other in beside)


def drop_copy(module: Operation) -> None:
    named(tasks(module)[-1], "ttng.async_tma_copy_global_to_local")[-1].erase()


def expect_less(module: Operation) -> None:
    named(tasks(module)[-1], "ttng.barrier_expect")[0].properties["size"] = i32(4096)


def start_with_other_phase(module: Operation) -> None:
    """The producer waits for buffers that nobody has filled yet."""
    for op in tasks(module)[-1].ops[:8]:
        value = op.attr("value")
        if op.name == "arith.constant" and isinstance(value, IntegerAttr) and value == i32(1):
            op.properties["value"] = i32(0)


def never_turn_phase(module: Operation) -> None:
    for op in named(tasks(module)[0], "arith.xori"):
        assert op.parent is not None
        zero = Builder(op.parent, op.parent.ops.index(op)).constant(0, I32)
        op.operands[1] = zero


def expect_more_arrivals(module: Operation) -> None:
    named(module.regions[0].block, "ttng.init_barrier")[-1].properties["count"] = i32(3)


def swap_coordinates(module: Operation) -> None:
    copy = named(tasks(module)[-1], "ttng.async_tma_copy_global_to_local")[-1]
    copy.operands[1], copy.operands[2] = copy.operands[2], copy.operands[1]


def fill_other_buffer(module: Operation) -> None:
    """Always the first one, while the barrier is that of the next."""
    copy = named(tasks(module)[-1], "ttng.async_tma_copy_global_to_local")[-1]
    element = copy.operands[-2].op
    assert element is not None and element.parent is not None
    element.operands[1] = Builder(element.parent, element.parent.ops.index(element)).constant(0)


def forget_the_last_wait(module: Operation) -> None:
    """The results are taken as they are, whether the dots are done or not."""
    wait = named(tasks(module)[0], "ttng.warp_group_dot_wait")[-1]
    wait.properties["pendings"] = i32(1)


MUTANTS: list[Callable[[Operation], None]] = [
    drop_arrive,
    arrive_twice,
    drop_copy,
    expect_less,
    start_with_other_phase,
    never_turn_phase,
    expect_more_arrivals,
    swap_coordinates,
    fill_other_buffer,
    forget_the_last_wait,
]


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: str(mutant.__name__))
@pytest.mark.parametrize("program", ["branch", "chain", "persistent"])
def test_mutants_are_noticed(program: str, mutant: Callable[[Operation], None]) -> None:
    module = read(outputs(program)[LAST])
    mutant(module)
    assert not same_stores(program, module)


@pytest.mark.parametrize("program", ["chain", "persistent"])
def test_a_release_before_the_read_is_noticed(program: str) -> None:
    """In some order; where another ring holds the producer back it would do no harm."""
    module = read(outputs(program)[LAST])
    release_early(module)
    assert not same_stores(program, module)


def same_stores(program: str, module: Operation) -> bool:
    """Does the module run to its end and store what the program stores, in every order that is tried?"""
    form = world(6, 6)
    expected = stores_of_plain(plain(program), form)
    try:
        return all(stores_of_tasks(module, form, seed)[0] == expected for seed in range(12))
    except AssertionError:
        return False


@pytest.mark.parametrize("mutant", [drop_arrive, drop_copy, expect_less, expect_more_arrivals, fill_other_buffer])
def test_some_are_noticed_without_running(mutant: Callable[[Operation], None]) -> None:
    module = read(outputs("persistent")[LAST])
    plan = Plan.from_text((FOLDER / "persistent" / "plan.toml").read_text())
    assert_sound(module, plan)
    before = print_module(module)
    mutant(module)
    assert print_module(module) != before
    with pytest.raises(AssertionError):
        assert_sound(module, plan)

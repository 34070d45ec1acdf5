"""Barriers: phases, counts, bytes; named barriers; and what is said when everybody waits."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from tests.execute.small import BARRIER, BYTES, Code, Small, launch
from wspec.execute import ExecutionError, ProgramError, Random
from wspec.execute.barrier import Barrier, NamedBarrier


def test_a_phase_ends_when_all_have_arrived_and_all_bytes_are_there() -> None:
    barrier = Barrier(2)
    assert barrier.passed(1) and not barrier.passed(0), "a fresh barrier is in phase 0, as if a phase 1 had ended"
    barrier.expect(64)
    barrier.arrive()
    barrier.arrive()
    assert not barrier.passed(0), "bytes are missing"
    barrier.complete(32)
    assert not barrier.passed(0)
    barrier.complete(32)
    assert barrier.passed(0) and not barrier.passed(1) and barrier.pending == 2
    barrier.arrive(2)
    assert barrier.passed(1) and not barrier.passed(0) and barrier.phases == 2


def test_bytes_may_come_before_they_are_expected() -> None:
    barrier = Barrier(1)
    barrier.complete(64)
    assert not barrier.passed(0)
    barrier.expect(64)
    barrier.arrive()
    assert barrier.passed(0)


def test_more_arrivals_than_a_phase_waits_for() -> None:
    barrier = Barrier(3)
    barrier.arrive(2)
    with pytest.raises(ExecutionError, match="2 arrivals, but the phase waits for 1 of 3"):
        barrier.arrive(2)


@pytest.mark.parametrize("count", [0, -1, 1 << 20])
def test_counts_the_hardware_has_not(count: int) -> None:
    with pytest.raises(ExecutionError, match="it can count from 1 to"):
        Barrier(count)


def test_more_bytes_than_the_hardware_counts() -> None:
    barrier = Barrier(1)
    barrier.expect((1 << 20) - 1)
    with pytest.raises(ExecutionError, match="1048576 bytes are expected in one phase"):
        barrier.expect(1)


def ping_pong(rounds: int, phase_of_second: int = 0) -> Small:
    """Two tasks hand x on in shared memory, `rounds` times; the default one writes it to y."""
    kernel = Small(partitions=1)
    buffer = kernel.outside.buffer("b")
    full, empty = kernel.outside.barrier("full"), kernel.outside.barrier("empty")
    reader, writer = kernel.tasks
    for index in range(rounds):
        writer.wait(empty, index & 1 ^ 1)
        writer.fetch(kernel.x, full, buffer)
        reader.wait(full, index & 1 if index else phase_of_second)
        reader.write(kernel.y, reader.load(buffer))
        reader.fence()
        reader.arrive(empty)
    return kernel


@pytest.mark.parametrize("rounds", [1, 2, 5])
def test_tasks_take_turns(rounds: int) -> None:
    kernel = ping_pong(rounds).ready()
    for schedule in (*kernel.adversaries, Random(0), Random(1)):
        tensors, _ = launch(kernel, schedule)
        assert torch.equal(tensors.x, tensors.y), schedule.name


def test_the_wrong_phase_lets_a_reader_through() -> None:
    with pytest.raises(ProgramError, match=r"ttg.local_load reads b \(16x16 float16.*has never been written"):
        launch(ping_pong(1, phase_of_second=1).ready())


def test_a_wait_for_two_phases_ahead_passes_a_phase_too_early() -> None:
    """Parity is all that a barrier knows: skip a phase, and the wait is for the one before."""
    kernel = Small(partitions=1)
    barrier, buffer = kernel.outside.barrier("b"), kernel.outside.buffer("buffer")
    kernel.default.wait(barrier, 1)  # meant for the second phase; passes at once
    kernel.default.write(kernel.y, kernel.default.load(buffer))
    kernel.tasks[1].fetch(kernel.x, barrier, buffer)
    with pytest.raises(ProgramError, match="has never been written"):
        launch(kernel.ready())


def test_waits_and_arrivals_that_are_not_wanted() -> None:
    kernel = Small()
    barrier = kernel.outside.barrier("b", arrivals=1)
    kernel.outside.wait(barrier, 0, wanted=0)
    kernel.outside.arrive(barrier, count=1, wanted=0)
    kernel.outside.expect(barrier, wanted=0)
    kernel.outside.arrive(barrier)
    kernel.outside.wait(barrier, 0)
    launch(kernel.ready())


# ------------------------------------------------------------------------------------------- what goes wrong


def no_initialization(kernel: Small, code: Code) -> None:
    code.arrive(code.slot(code.ring("raw", 1, BARRIER), 0))


def twice_initialized(kernel: Small, code: Code) -> None:
    code.init(code.barrier("twice"))


def used_after_its_end(kernel: Small, code: Code) -> None:
    barrier = code.barrier("gone")
    code.op("ttng.inval_barrier", [barrier])
    code.wait(barrier, 1)


def ended_in_use(kernel: Small, code: Code) -> None:
    barrier = code.barrier("busy", arrivals=2)
    code.expect(barrier)
    code.op("ttng.inval_barrier", [barrier])


def too_many(kernel: Small, code: Code) -> None:
    code.arrive(code.barrier("one"), count=2)


def expected_in_vain(kernel: Small, code: Code) -> None:
    code.expect(code.barrier("few", arrivals=2))


def never_expected(kernel: Small, code: Code) -> None:
    """The copy brings more than the barrier was told of, and nobody waits for it."""
    few, other = code.barrier("few", arrivals=2), code.barrier("other")
    code.expect(few, size=BYTES // 2)
    code.copy(kernel.x, few, code.buffer("first"))
    code.fetch(kernel.x, other, code.buffer("second"))
    code.wait(other, 0)  # the effects are in order: the first copy has landed too


def never_waited(kernel: Small, code: Code) -> None:
    code.fetch(kernel.x, code.barrier("full"), code.buffer("first"))


def wrong_size(kernel: Small, code: Code) -> None:
    code.init(code.ring("ring", 2, BARRIER))


@pytest.mark.parametrize(
    ("write", "message"),
    [
        (no_initialization, r"ttng.arrive_barrier: there is no initialized barrier in raw\[0\]"),
        (twice_initialized, r"twice\[0\] is initialized while it is in use"),
        (used_after_its_end, r"ttng.wait_barrier: there is no initialized barrier in gone\[0\]"),
        (ended_in_use, r"busy\[0\] is invalidated while it is in use; it is in phase 0 .* 512 bytes missing"),
        (too_many, r"ttng.arrive_barrier at one\[0\]: 2 arrivals, but the phase waits for 1 of 1"),
        (expected_in_vain, "at the end of the program a barrier is in phase 0 .* 512 bytes missing"),
        (never_expected, "at the end of the program a barrier is in phase 0 .* 256 bytes there that nobody expected"),
        (never_waited, "the program ends while a copy is on its way"),
        (wrong_size, r"a barrier is one i64, not \(2, 1\)"),
    ],
)
def test_what_no_kernel_may_do(write: Callable[[Small, Code], None], message: str) -> None:
    kernel = Small()
    write(kernel, kernel.outside)
    ready = kernel.ready()
    with pytest.raises(ProgramError, match=message):
        launch(ready)


def test_a_deadlock_says_who_waits_for_what() -> None:
    kernel = Small(partitions=2)
    one, two = kernel.outside.barrier("one", arrivals=2), kernel.outside.barrier("two")
    kernel.default.wait(one, 0)
    line = kernel.line
    kernel.tasks[1].arrive(one)
    kernel.tasks[1].wait(two, 0)
    with pytest.raises(ProgramError) as caught:
        launch(kernel.ready())
    text = str(caught.value)
    assert "deadlock: no task can go on" in text
    missing = "1 of 2 arrivals missing"
    assert f"default waits for phase 0 of one[0], which is in phase 0 (0 completed), {missing}, at k.py:{line}" in text
    assert "partition 1 waits for phase 0 of two[0]" in text and "partition 2" not in text


def test_a_task_that_ends_early_leaves_the_others_waiting() -> None:
    kernel = Small(partitions=1)
    barrier = kernel.outside.barrier("b")
    kernel.tasks[1].wait(barrier, 0)
    with pytest.raises(ProgramError, match=r"partition 1 waits for phase 0 .*default waits for the other tasks to end"):
        launch(kernel.ready())


# -------------------------------------------------------------------------------------------- named barriers


def test_a_named_barrier_opens_for_whoever_came() -> None:
    barrier = NamedBarrier(8)
    first, second = barrier.arrive(128, 256), barrier.arrive(128, 256)
    assert first == second == barrier.opened == 1 and barrier.arrived == 0
    assert not barrier.has_opened(barrier.arrive(128, 256))


def handed_over(reader: str, writer: str, warps: int = 4) -> Small:
    """The partition writes a tile in shared memory, the default region reads it; named barriers keep the order."""
    kernel = Small(partitions=1, warps=warps)
    buffer = kernel.outside.buffer("b")
    kernel.tasks[1].store(kernel.tasks[1].tile_of(kernel.x), buffer)
    kernel.tasks[1].meet(writer)
    kernel.default.meet(reader)
    kernel.default.write(kernel.y, kernel.default.load(buffer))
    return kernel


@pytest.mark.parametrize(
    ("reader", "writer", "warps"),
    [
        ("bar.sync 8, 256;", "bar.sync 8, 256;", 4),
        ("bar.sync 8, 256;", "bar.arrive 8, 256;", 4),
        ("barrier.sync.aligned 15, 160;", "mov.u32 $0, 0; bar.arrive 15, 160;", 1),
        ("bar.sync 8, 256; bar.sync 9, 256;", "{ bar.arrive 8, 256;\\n bar.arrive 9, 256; }", 4),
    ],
)
def test_named_barriers_order_tasks(reader: str, writer: str, warps: int) -> None:
    kernel = handed_over(reader, writer, warps).ready()
    for schedule in kernel.adversaries:
        tensors, _ = launch(kernel, schedule)
        assert torch.equal(tensors.x, tensors.y), schedule.name


@pytest.mark.parametrize(
    ("reader", "writer", "message"),
    [
        ("bar.arrive 8, 256;", "bar.sync 8, 256;", "b .16x16 float16.*has never been written"),
        ("bar.sync 8, 256;", "bar.sync 9, 256;", "default waits for named barrier 8, 128 of 256 threads there"),
        ("bar.sync 8, 256;", "bar.sync 8, 384;", "barrier 8 for 384 threads, but others wait there for 256"),
        ("bar.sync 8, 192;", "bar.sync 8, 192;", "named barrier 8 is for 192 threads; 256 came"),
        ("bar.sync 16, 256;", "bar.sync 16, 256;", "there is no named barrier 16"),
    ],
)
def test_named_barriers_that_do_not_fit(reader: str, writer: str, message: str) -> None:
    with pytest.raises(ProgramError, match=message):
        launch(handed_over(reader, writer).ready())


@pytest.mark.parametrize("text", ["bar.red.popc.u32 $0, 8, 256, 1;", "bar.sync 8, 256; ex2.approx.f32 $0, $1;"])
def test_assembly_beside_named_barriers_is_not_guessed(text: str) -> None:
    with pytest.raises(ExecutionError, match="not supported"):
        handed_over(text, "bar.sync 8, 256;").ready()

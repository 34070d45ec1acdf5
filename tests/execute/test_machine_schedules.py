"""Schedules, and failures that are repeated and made small."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from tests.execute.small import Small, launch
from wspec.execute import (
    ExecutionError,
    FirstReady,
    Kernel,
    Priorities,
    ProgramError,
    Random,
    Recorded,
    Replay,
    Schedule,
    Unfair,
    adversarial,
    minimize,
)
from wspec.ir.loc import UNKNOWN

HERE = (0, 0, 0)


@dataclass(frozen=True)
class Fake:
    """Somebody who can go next."""

    name: str
    index: int = 0
    is_task: bool = True
    site: int = -1


FIRST, SECOND = Fake("first", 0), Fake("second", 1)
OLD, NEW = Fake("old", 1, False, 0), Fake("new", 1, False, 1)
ACTORS = (SECOND, FIRST, OLD, NEW)  # the second task went last


@pytest.mark.parametrize(
    ("schedule", "chosen"),
    [
        (FirstReady(), SECOND),
        (Unfair(0), FIRST),
        (Unfair(1), SECOND),
        (Unfair(0, starved=True), SECOND),
        (Unfair(1, starved=True), FIRST),
        (Unfair(0, effects="early"), OLD),
        (Unfair(0, effects="reversed"), FIRST),
        (Recorded([3, 1, 9]), NEW),
    ],
)
def test_whom_a_schedule_chooses(schedule: Schedule, chosen: Fake) -> None:
    assert ACTORS[schedule.chooser(HERE)(ACTORS)] is chosen


def test_effects_in_reverse() -> None:
    effects = (OLD, NEW)
    assert effects[Unfair(0, effects="late").chooser(HERE)(effects)] is OLD
    assert effects[Unfair(0, effects="reversed").chooser(HERE)(effects)] is NEW


def test_a_delayed_copy_waits_for_everybody() -> None:
    delayed = next(s for s in adversarial(2, sites=2) if s.name == "copies of operation 0 late")
    choose = delayed.chooser(HERE)
    assert ACTORS[choose(ACTORS)] is NEW
    assert ACTORS[choose((SECOND, FIRST, OLD))] is SECOND


def test_recorded_choices_end_with_the_first() -> None:
    choose = Recorded([1, 9]).chooser(HERE)
    assert [choose(ACTORS) for _ in range(4)] == [1, 0, 0, 0], "a choice that is not there, and then none"
    assert Recorded([1]).chooser((1, 0, 0))(ACTORS) == 0, "another program"


@pytest.mark.parametrize("make", [Random, Priorities])
def test_seeds_say_everything(make: type[Random]) -> None:
    def choices(seed: int, program: tuple[int, int, int] = HERE) -> list[int]:
        choose = make(seed).chooser(program)
        return [choose(ACTORS) for _ in range(400)]

    assert choices(1) == choices(1) != choices(2) and choices(1) != choices(1, (1, 0, 0))
    assert set(choices(1)) | set(choices(2)) | set(choices(3)) == {0, 1, 2, 3}


def test_adversaries_differ() -> None:
    for tasks in (1, 2, 3, 4):
        names = [schedule.name for schedule in adversarial(tasks, sites=3)]
        assert len(set(names)) == len(names)


# ------------------------------------------------------------------------------------------------- replays


def lucky() -> Kernel:
    """A ring of two buffers, filled three times by the task that reads it, which forgets to wait for the third."""
    kernel = Small(partitions=1)
    ring = kernel.outside.ring("ring", 2)
    full = [kernel.outside.barrier(f"full{at}") for at in range(2)]
    task, other = kernel.tasks
    for at in range(3):
        slot = at % 2
        task.fetch(kernel.x, full[slot], task.slot(ring, slot))
        if at < 2:
            task.wait(full[slot], 0)
        task.write(kernel.y, task.load(task.slot(ring, slot)))
        task.fence()
    task.wait(full[0], 1)
    other.fence()
    return kernel.ready()


@pytest.fixture(scope="module")
def failing() -> Kernel:
    return lucky()


def failure_of(kernel: Kernel) -> ProgramError:
    for seed in range(200):
        try:
            launch(kernel, Random(seed))
        except ProgramError as error:
            if "which is being filled" in str(error):
                return error
    raise AssertionError("no order shows it")


def test_a_failure_is_repeated(failing: Kernel) -> None:
    failure = failure_of(failing)
    assert failure.replay.made_by.startswith("random")
    for _ in range(3):
        with pytest.raises(ProgramError) as again:
            launch(failing, failure.replay.schedule)
        assert str(again.value) == str(failure) and again.value.replay.choices == failure.replay.choices


def test_a_run_is_repeated(failing: Kernel) -> None:
    good = next(seed for seed in range(200) if not fails(failing, Random(seed)))
    _, result = launch(failing, Random(good))
    _, again = launch(failing, result.replays[0].schedule)
    assert again.replays[0].choices == result.replays[0].choices


def fails(kernel: Kernel, schedule: Schedule) -> bool:
    try:
        launch(kernel, schedule)
    except ProgramError:
        return True
    return False


def test_a_failure_is_made_small(failing: Kernel) -> None:
    failure = failure_of(failing)
    runs = 0

    def attempt(schedule: Schedule) -> object:
        nonlocal runs
        runs += 1
        return launch(failing, schedule)

    least = minimize(attempt, failure, budget=150)
    assert runs <= 150 and least.is_like(failure)
    chosen = [choice for choice in least.replay.choices if choice]
    before = [choice for choice in failure.replay.choices if choice]
    assert len(chosen) < len(before) and len(least.replay.choices) < len(failure.replay.choices)
    with pytest.raises(ProgramError) as again:
        launch(failing, least.replay.schedule)
    assert again.value.is_like(failure)
    for at, choice in enumerate(least.replay.choices):  # none of them could be left out
        if choice:
            fewer = tuple(0 if at == other else kept for other, kept in enumerate(least.replay.choices))
            with pytest.raises(ProgramError) as other:
                launch(failing, Recorded(fewer))
                raise ProgramError(ExecutionError("no failure"), least.replay)
            assert not other.value.is_like(failure)


def test_a_budget_is_kept(failing: Kernel) -> None:
    failure = failure_of(failing)

    def attempt(schedule: Schedule) -> object:
        raise AssertionError("no run was allowed")

    assert minimize(attempt, failure, budget=0).replay.choices == failure.replay.choices


def test_the_error_says_how_to_replay(failing: Kernel) -> None:
    failure = failure_of(failing)
    text = f"note: to replay, run it with schedule=Recorded([{', '.join(map(str, failure.replay.choices))}"
    assert text in str(failure)


def test_replays_are_written_and_read() -> None:
    replay = Replay((1, 2, 3), (0, 4, 1), "random 7")
    assert Replay.from_json(replay.to_json()) == replay


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"program": [0, 0], "choices": []}', '{"program": [0, 0, 0], "choices": [-1]}']
)
def test_replays_that_are_none(text: str) -> None:
    with pytest.raises(ValueError):
        Replay.from_json(text)


def test_what_counts_as_the_same_failure() -> None:
    def error(message: str) -> ProgramError:
        return ProgramError(ExecutionError(message, UNKNOWN, "default"), Replay(HERE, ()))

    assert error("read of k[1], which is being filled").is_like(error("read of k[0], which is being filled"))
    assert not error("read of k, which is being filled").is_like(error("deadlock: nobody can go on"))


def test_tasks_really_interleave() -> None:
    """Two tasks that do not wait for each other: many orders of the two occur."""
    kernel = Small(partitions=1)
    for task, code in enumerate(kernel.tasks):
        buffer = kernel.outside.buffer(f"b{task}", kernel.outside.tile_of(kernel.x))
        code.store(code.narrow(code.zeros()), buffer)
        code.fence()
    ready = kernel.ready()
    seen = {tuple(launch(ready, Random(seed))[1].replays[0].choices) for seed in range(40)}
    assert len(seen) > 3

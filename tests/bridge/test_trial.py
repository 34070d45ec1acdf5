"""Launches that take turns: which runs when, what is kept, when nothing can be told. Cards and clocks are played."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest
from triton.runtime.errors import OutOfResources

from wspec.bridge import overlap_guard
from wspec.bridge import trial as room
from wspec.bridge.recording import recording
from wspec.bridge.trial import AGREED, ATTEMPTS, CLOSE, HOT_MS, LATER, QUIET, ROW, Trial
from wspec.diagnostics import Remark
from wspec.ir.loc import UNKNOWN

PAIRS = 3
TURNS = ["ours"] * QUIET + ["plain"] + ["ours", "plain"] * PAIRS
AGAIN = [*["ours"] * ROW, *["plain"] * ROW] * PAIRS


@dataclass
class Card:
    """Kernels that take so many milliseconds. The card comes up with the host between calls, or later, or is idle."""

    ours_ms: float = 1.0
    plain_ms: float = 2.0
    is_idle: bool = False
    is_stuck: bool = False
    behind: int = 1  # calls until what was launched is over, unless it is idle
    is_tireless: bool = False
    fails: bool = False
    is_wrong: bool = False
    falls_back: bool = False  # ours launches the plain kernel
    behind_other: float = 1.0  # times as long a kernel takes behind the other one
    now: float = 0.0
    calls: int = 0
    ran: list[str] = field(default_factory=list)
    waits: list[float] = field(default_factory=list)

    def keep_busy(self, milliseconds: float) -> None:
        self.waits.append(milliseconds)

    def ours(self, *_: Any) -> None:
        overlap_guard.fell_back.count += self.falls_back
        self._run("ours", self.ours_ms)

    def load(self) -> None:
        if self.fails:
            raise RuntimeError("out of resource")

    def start(self, *_: Any) -> None:
        self._run("plain", self.plain_ms)

    def _run(self, which: str, ms: float) -> None:
        self.now += ms * (self.behind_other if self.ran and self.ran[-1] != which else 1.0)
        self.ran.append(which)


class Event:
    def __init__(self, card: Card) -> None:
        self.card = card

    def record(self) -> None:
        self.at, self.call = self.card.now, self.card.calls

    def query(self) -> bool:
        idle = self.card.is_idle and (self.card.is_tireless or not self.card.waits)
        return not self.card.is_stuck and (idle or self.card.calls >= self.call + self.card.behind)

    def elapsed_time(self, end: Any) -> float:
        return float(end.at - self.at)


@dataclass
class Stage:
    """A kernel on trial on such a card."""

    card: Card
    is_capturing: bool = False
    begins: bool = True
    said: list[Remark] = field(default_factory=list)

    def __post_init__(self) -> None:
        source = SimpleNamespace(ast=SimpleNamespace(signature={"x": "*fp32", "n": "i32"}), name="kernel")
        plain = SimpleNamespace(
            load=self.card.load,
            start=self.card.start,
            told_once=lambda why, remark: self.said.append(remark()),
            is_wrong=self.card.is_wrong,
        )
        self.trial = Trial(
            self.card.ours, source, plain, PAIRS, self.begins, lambda: Event(self.card), lambda: self.is_capturing,  # type: ignore[arg-type]
            contextlib.nullcontext, self.card.keep_busy,
        )  # fmt: skip

    def launch(self, times: int, n: int = 5) -> list[str]:
        """What ran."""
        self.card.ran.clear()
        for _ in range(times):
            self.card.calls += 1
            self.trial(1, 1, 1, 0, None, None, None, None, None, "x", n)
        return list(self.card.ran)


@pytest.fixture(autouse=True)
def nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "kernel_location", lambda source: UNKNOWN)


@pytest.mark.parametrize(("ours_ms", "kept"), [(1.0, "ours"), (2.01, "ours"), (2.1, "plain")])
def test_the_faster_one_stays(ours_ms: float, kept: str) -> None:
    stage = Stage(Card(ours_ms=ours_ms))
    assert stage.launch(len(TURNS)) == TURNS
    assert stage.launch(3) == [kept] * 3
    assert [one.code for one in stage.said] == ["slower-when-timed"] * (kept == "plain")


def test_each_size_has_a_trial_of_its_own() -> None:
    stage = Stage(Card())
    stage.launch(len(TURNS) + 1)
    stage.card.ours_ms = 3.0
    assert stage.launch(len(TURNS), n=6) == TURNS
    assert stage.launch(2, n=6) == ["plain"] * 2 and stage.launch(2) == ["ours"] * 2


def test_sizes_that_end_alike_speak_for_others() -> None:
    stage = Stage(Card(ours_ms=3.0))
    for size in range(AGREED):
        stage.launch(len(TURNS) + 1, n=size)
    assert stage.launch(1, n=99) == ["plain"]


def test_close_ones_take_turns_again_when_the_card_is_warm() -> None:
    stage = Stage(Card(ours_ms=1.0, plain_ms=1.1))
    stage.launch(len(TURNS) + 1)
    until = LATER * (len(TURNS) + 1) - len(TURNS) - 2
    assert stage.launch(until) == ["ours"] * until
    stage.card.ours_ms = 1.2
    assert stage.launch(len(AGAIN)) == AGAIN
    assert stage.launch(3) == ["plain"] * 3
    assert [one.code for one in stage.said] == ["slower-when-timed"]


def test_what_runs_behind_the_other_kernel_is_not_timed_when_they_take_turns_again() -> None:
    """What that one left in L2 may be of use to it, as it is not to most launches."""
    stage = Stage(Card(ours_ms=1.0, plain_ms=1.1))
    stage.launch(LATER * (len(TURNS) + 1) - 1)
    stage.card.ours_ms, stage.card.behind_other = 1.2, 0.5
    assert stage.launch(len(AGAIN)) == AGAIN
    assert stage.launch(3) == ["plain"] * 3


@pytest.mark.parametrize(("ms", "looks"), [(0.1, 6), (1.0, 4), (50.0, 1), (200.0, 0)])
def test_looks_come_to_an_end_when_the_card_is_warm(ms: float, looks: int) -> None:
    stage = Stage(Card(ours_ms=ms, plain_ms=1.1 * ms))
    many = stage.launch(int(2 * LATER * max(HOT_MS / ms, len(TURNS))))
    assert many.count("plain") == 1 + PAIRS * (1 + looks * ROW)
    assert set(stage.launch(LATER * len(many))) == {"ours"}


def test_what_is_far_slower_is_not_looked_at_again() -> None:
    stage = Stage(Card(ours_ms=1.0, plain_ms=1.0 * CLOSE + 0.01))
    stage.launch(len(TURNS) + 1)
    assert set(stage.launch(LATER**3 * len(TURNS))) == {"ours"}


class DoesNotFit:
    """A compiled kernel that the device has too little shared memory for, which shows when it is loaded."""

    @property
    def run(self) -> Any:
        raise OutOfResources(262176, 232448, "shared memory")


@pytest.mark.parametrize("begins", [True, False])
def test_where_the_plain_kernel_does_not_fit_the_specialized_one_runs(
    begins: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(overlap_guard, "load_plain", lambda source: DoesNotFit())
    stage = Stage(Card(), begins=begins)
    stage.trial.plain = overlap_guard.Plain(stage.trial.source, lambda remark: None)
    assert stage.launch(2 * len(TURNS)) == ["ours"] * (2 * len(TURNS))


def test_nobody_waits_for_the_card() -> None:
    stage = Stage(Card(ours_ms=3.0))
    stage.launch(len(TURNS))
    stage.card.is_stuck = True
    assert stage.launch(4) == ["ours"] * 4
    stage.card.is_stuck = False
    assert stage.launch(2) == ["plain"] * 2


def test_where_the_host_is_slower_the_card_is_kept_busy() -> None:
    """An idle card's events would say how long the host took."""
    stage = Stage(Card(ours_ms=1e-6, plain_ms=1e-7, is_idle=True))
    assert stage.launch(len(TURNS)) == TURNS
    assert stage.card.waits and not stage.said
    assert stage.launch(2 * PAIRS)[:3] == ["ours", "plain", "ours"], "the first time was the host's, so once more"
    assert stage.launch(2) == ["plain"] * 2


def test_a_card_that_has_work_is_not_kept_busy() -> None:
    """The host was slower in the first trial, and is ahead of the card in the next one."""
    stage = Stage(Card(ours_ms=1e-6, plain_ms=1e-6, is_idle=True))
    stage.launch(len(TURNS) + 2 * PAIRS + 1)
    first = len(stage.card.waits)
    stage.card.is_idle, stage.card.behind = False, 3
    assert "plain" in stage.launch(2 * LATER * len(TURNS))
    assert first > 0 and len(stage.card.waits) == first


def test_a_card_that_cannot_be_kept_busy() -> None:
    stage = Stage(Card(ours_ms=1e-6, plain_ms=1e-7, is_idle=True, is_tireless=True))
    many = QUIET + 1 + ATTEMPTS * 2 * PAIRS
    assert stage.launch(many).count("plain") == 1 + ATTEMPTS * PAIRS
    assert stage.launch(2) == ["ours"] * 2 and not stage.said


def test_launches_that_become_the_plain_kernels_tell_nothing() -> None:
    """As where a launch cannot have descriptors: of what took so long nothing may be said."""
    stage = Stage(Card(ours_ms=3.0, falls_back=True))
    stage.launch(QUIET + 1 + ATTEMPTS * 2 * PAIRS)
    assert stage.launch(2) == ["ours"] * 2 and not stage.said


def test_long_kernels_on_an_idle_card() -> None:
    stage = Stage(Card(ours_ms=3000.0, plain_ms=2000.0, is_idle=True))
    stage.launch(len(TURNS))
    assert stage.launch(1) == ["plain"]


def test_a_graph_has_no_turns() -> None:
    stage = Stage(Card(ours_ms=3.0), is_capturing=True)
    assert stage.launch(2 * len(TURNS)) == ["ours"] * 2 * len(TURNS)


@pytest.mark.parametrize("ours_ms", [1.0, 3.0])
@pytest.mark.parametrize("turns", [1, 2, 2 * PAIRS])
def test_a_graph_holds_what_was_faster_so_far(ours_ms: float, turns: int) -> None:
    stage = Stage(Card(ours_ms=ours_ms))
    stage.launch(QUIET + 1 + turns)
    stage.is_capturing = True
    assert stage.launch(3) == ["ours" if turns == 1 or ours_ms == 1.0 else "plain"] * 3
    stage.is_capturing = False
    assert stage.launch(2 * PAIRS + 3)[-1] == ("ours" if ours_ms == 1.0 else "plain")


def test_a_graph_is_told_nothing_by_turns_that_the_card_has_not_come_to() -> None:
    stage = Stage(Card(ours_ms=3.0, is_stuck=True))
    stage.launch(QUIET + 1 + 2 * PAIRS)
    stage.is_capturing = True
    assert stage.launch(2) == ["ours"] * 2


def test_a_plain_kernel_that_does_not_compile() -> None:
    stage = Stage(Card(ours_ms=3.0, fails=True))
    assert stage.launch(len(TURNS)) == ["ours"] * len(TURNS)


def test_a_plain_kernel_that_ptxas_has_miscompiled() -> None:
    stage = Stage(Card(ours_ms=3.0, is_wrong=True))
    assert stage.launch(len(TURNS)) == ["ours"] * len(TURNS)


def test_a_launch_on_trial_is_not_made_again_without_looking() -> None:
    for ours_ms in (1.0, 3.0):
        stage = Stage(Card(ours_ms=ours_ms))
        found = []
        for _ in range(len(TURNS) + 3):
            with recording.on() as now:
                stage.launch(1)
            found.append(now.once)
            assert not now.relied
        assert found == [True] * (len(TURNS) + 1) + [False] * 2


def test_close_ones_are_made_again_until_the_next_look() -> None:
    stage = Stage(Card(ours_ms=1.0, plain_ms=1.1))
    stage.launch(len(TURNS) + 1)
    with recording.on() as now:
        stage.launch(1)
    (held,) = now.relied
    until = LATER * (len(TURNS) + 1) - len(TURNS) - 3
    assert not now.once and all(held() is not None for _ in range(until)) and held() is None
    assert stage.launch(len(AGAIN) - 1) == AGAIN[:-1]
    assert held() is None, "they are on trial"
    assert stage.launch(3)[0] == AGAIN[-1]
    assert held() is None, "what is launched now may be the other kernel"


def test_what_the_model_holds_for_equal_begins_as_it_was_written() -> None:
    stage = Stage(Card(), begins=False)
    assert stage.launch(len(TURNS)) == ["plain"] * QUIET + ["ours"] + ["ours", "plain"] * PAIRS
    assert stage.launch(2) == ["ours"] * 2
    other = Stage(Card(), begins=False, is_capturing=True)
    assert other.launch(3) == ["plain"] * 3
    broken = Stage(Card(fails=True), begins=False)
    assert broken.launch(3) == ["ours"] * 3

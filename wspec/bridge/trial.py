"""Trials: the first launches of a kernel take turns, specialized and plain, and the faster of the two stays.

The gate's model is right about kernels like those that it was calibrated with. Of others it may not know what bounds
them, and a launch's sizes decide too. So a kernel that the model lets through proves itself: of each size, launches are
timed with events, some of either kind, each of them made once, as it would be anyway. Nobody waits for the card. Where
the host is slower than the card, its times would be the host's: a card that has nothing left to do is then kept busy
while a launch is made, for twice as long as the host took before. While a graph is captured there are no turns: it
holds the kernel that was faster so far.

A card that has just begun to work runs at a higher clock than one that has worked for a tenth of a second, while memory
and L2 are as fast; so which of two kernels is faster may change. Where the two were close they take turns again, later,
and then several launches a turn: a launch behind one of the other kernel finds other tiles in L2.
"""

from __future__ import annotations

import functools
import statistics
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import torch

from wspec.bridge.again import asking, is_capturing
from wspec.bridge.files import kernel_location
from wspec.bridge.frontend import KernelSource
from wspec.bridge.launch import Run, around, is_hooked
from wspec.bridge.launcher import keep
from wspec.bridge.overlap_guard import Plain, Tell, fell_back
from wspec.bridge.recording import recording
from wspec.bridge.slots import BEFORE, reader, slots_of
from wspec.diagnostics import Remark

MOST = 4096  # sizes that are remembered
QUIET = 3  # launches of a size before its trial: a program that makes no more pays nothing
TOLERANCE = 1.01  # the specialized kernel stays unless it takes longer than this part of the plain one's time
ATTEMPTS = 3  # rounds of turns in which no times could be told, until the trial ends without them
AGREED = 8  # sizes in a row that ended alike: others are taken to end so too
LATER = 4  # times as many launches as until a trial's end, until the next one of that size
ROW = 4  # launches a turn, then; the first one is not timed
HOT_MS = 2e3  # of launches of a size, after which it has no more trials
CLOSE = 1.3  # a warm card makes up for less: for 1.25 at most, of what was seen (docs/cost-model.md)
HOST_BOUND = 3.0  # of an idle card, times below so many times the host's own say nothing
AHEAD = 2.0  # so many times as long as the host takes for a launch the card is kept busy meanwhile
MOST_BUSY_MS = 1.0
CYCLES = 2e6  # of a card in a millisecond, or fewer


class Event(Protocol):
    """As torch.cuda.Event."""

    def record(self) -> None: ...
    def query(self) -> bool: ...
    def elapsed_time(self, end: Any) -> float: ...


@dataclass(slots=True)
class Turn:
    """A launch that was timed."""

    start: Event
    end: Event
    ours: bool
    host_ms: float
    was_busy: bool  # had the card not come to the start yet when the launch was made?

    def elapsed_ms(self) -> float | None:
        """None where the time is the host's."""
        found = self.start.elapsed_time(self.end)
        return found if self.was_busy or found > HOST_BOUND * self.host_ms else None


@dataclass(slots=True)
class Contest:
    """Of one size."""

    launches: int = 0
    tried: int = 0  # launches of the trial that is on
    turns: list[Turn] = field(default_factory=list)  # those of them that were timed
    end: Event | None = None  # of the last launch of the trial, timed or not
    host_ms: float = 0.0  # that the host took for a launch on an idle card: the last one, or half of one before
    keeps: bool | None = None  # the specialized kernel; None: not settled
    begins: bool = True  # what runs until then is the specialized one
    looks: int = 0  # trials that told something
    next_look: int = 0  # at so many launches; 0: never

    def since(self, look: int) -> Contest | None:
        """Counts a launch that is made again as that look decided; None where it is to be timed, or was since then."""
        self.launches += 1
        return self if look == self.looks and self.launches < self.next_look else None

    @property
    def row(self) -> int:
        """Launches a turn."""
        return ROW if self.looks else 1


def on_trial(
    kernel: Any, source: KernelSource, pairs: int, begins: Callable[[], bool], tell: Tell, how: str = "specialized"
) -> Any:
    """The kernel, whose first launches of each size take turns with the plain one's, `pairs` times.

    `begins`: is it the specialized one that runs before, and where nothing can be told?
    """
    if pairs == 0 or not torch.cuda.is_available():
        return kernel
    ours = begins()
    return around(kernel, lambda run: Trial(run, source, Plain(source, tell), pairs, ours, how=how))


def _new_event() -> Event:
    make: Callable[..., Event] = torch.cuda.Event
    return make(enable_timing=True)


def _keep_busy(milliseconds: float) -> None:
    torch.cuda._sleep(int(milliseconds * CYCLES))  # type: ignore[no-untyped-call]


class Trial:
    """What launches: the specialized kernel, the plain one, or for a while either in turn."""

    def __init__(
        self,
        run: Run,
        source: KernelSource,
        plain: Plain,
        pairs: int,
        begins: bool = True,
        event: Callable[[], Event] = _new_event,
        is_capturing: Callable[[], bool] = is_capturing,
        asking: Callable[[], AbstractContextManager[None]] = asking,
        keep_busy: Callable[[float], None] = _keep_busy,
        how: str = "specialized",  # it is that runs beside the plain one
    ) -> None:
        self.run, self.source, self.plain, self.pairs, self.begins = run, source, plain, pairs, begins
        self.how = how
        self.event, self.is_capturing, self.asking, self.keep_busy = event, is_capturing, asking, keep_busy
        numbers = [slot for slot in slots_of(source.ast.signature) if slot is not None]
        self._read = reader(numbers, BEFORE)
        self.contests: dict[tuple[int, ...], Contest] = {}
        self.in_a_row, self.last, self.certain = 0, begins, False
        self.lock = threading.Lock()

    def __call__(self, x: int, y: int, z: int, stream: int, function: Any, packed: Any, *rest: Any) -> None:
        key = () if self.certain else (x, y, z, *self._read(rest))
        keeps = self._settled(key) if key else self.last
        recording.alone()
        if recording.count and (now := recording.now) is not None:
            contest = self.contests.get(key)
            now.once |= keeps is None
            if contest is not None and contest.next_look:
                now.relied.append(functools.partial(contest.since, contest.looks))
        if keeps:
            self.run(x, y, z, stream, function, packed, *rest)
            return
        if keeps is not None:
            self.plain.start((x, y, z), stream, rest)
            return
        with self.lock:
            self._take_turn(key, (x, y, z, stream, function, packed, *rest), rest)

    def _settled(self, key: tuple[int, ...]) -> bool | None:
        contest = self.contests.get(key)
        if contest is None:
            keep(self.contests, key, contest := Contest(begins=self.begins), MOST)
        elif contest.next_look and contest.keeps is not None:
            contest.launches += 1
            if contest.launches >= contest.next_look and not self.is_capturing():
                contest.begins, contest.keeps, contest.next_look = contest.keeps, None, 0
        return contest.keeps

    def _take_turn(self, key: tuple[int, ...], launch: tuple[Any, ...], rest: Sequence[Any]) -> None:
        contest = self.contests.get(key) or Contest(begins=self.begins)
        if contest.keeps is not None:
            self._start(contest.keeps, launch, rest)
            return
        if self.is_capturing():
            self._start(self._so_far(contest), launch, rest)
            return
        if is_hooked():
            self._start(contest.begins, launch, rest)
            return
        contest.launches += 1
        if contest.launches == (QUIET + 1 if self.begins else 1) and not self._has_plain():
            contest.keeps = True
            self.run(*launch)
        elif contest.launches <= QUIET:
            self._start(self.begins, launch, rest)
        elif contest.launches == QUIET + 1:  # it is loaded: its first time does not count
            self._start(not self.begins, launch, rest)
        elif not self._is_round_over(contest):
            self._timed(contest, launch, rest)
        elif contest.end is not None and not contest.end.query():  # the card has not come that far
            self._start(contest.begins, launch, rest)
        elif self._can_tell(contest) or contest.tried >= ATTEMPTS * self._round(contest):
            self._settle(contest)
            self._start(contest.keeps is True, launch, rest)
        else:
            self._timed(contest, launch, rest)

    def _start(self, ours: bool, launch: tuple[Any, ...], rest: Sequence[Any]) -> None:
        if ours:
            self.run(*launch)
        else:
            self.plain.start(launch[:3], launch[3], rest)

    def _has_plain(self) -> bool:
        """Is there a plain kernel that may run in place of the specialized one?"""
        try:
            self.plain.load()
        except Exception:  # whatever is wrong with it: the specialized kernel runs
            return False
        return not self.plain.is_wrong

    def _timed(self, contest: Contest, launch: tuple[Any, ...], rest: Sequence[Any]) -> None:
        """A launch of the one whose turn it is."""
        ours, behind = contest.tried // contest.row % 2 == 0, contest.tried % contest.row
        contest.tried += 1
        before, end = contest.end, self.event()
        contest.end = end
        if contest.row > 1 and not behind:
            self._start(ours, launch, rest)
            end.record()
            return
        start = self.event()
        if contest.host_ms and (before is None or before.query()):
            self.keep_busy(min(AHEAD * contest.host_ms, MOST_BUSY_MS))
        plain = fell_back.count
        began = time.perf_counter()
        start.record()
        self._start(ours, launch, rest)
        end.record()
        if fell_back.count > plain:  # it was no launch of the specialized kernel
            return
        host_ms = (time.perf_counter() - began) * 1e3
        was_busy = not start.query()
        contest.host_ms = contest.host_ms if was_busy else max(host_ms, contest.host_ms / 2)
        contest.turns.append(Turn(start, end, ours, host_ms, was_busy))

    def _round(self, contest: Contest) -> int:
        """Launches until times are looked at."""
        return 2 * self.pairs * contest.row

    def _is_round_over(self, contest: Contest) -> bool:
        return contest.tried > 0 and contest.tried % self._round(contest) == 0

    def _can_tell(self, contest: Contest) -> bool:
        return all(len(self._times(contest, ours)) >= self.pairs for ours in (True, False))

    @staticmethod
    def _times(contest: Contest, ours: bool) -> list[float]:
        found = [turn.elapsed_ms() for turn in contest.turns if turn.ours == ours]
        return [one for one in found if one is not None]

    def _medians(self, contest: Contest) -> tuple[float, float]:
        ours, plain = (statistics.median(self._times(contest, ours)) for ours in (True, False))
        return ours, plain

    def _so_far(self, contest: Contest) -> bool:
        """Does a graph hold the specialized kernel, which is captured before the trial is over?"""
        with self.asking():
            ended = replace(contest, turns=[turn for turn in contest.turns if turn.end.query()])
            if not all(self._times(ended, ours) for ours in (True, False)):
                return contest.begins
            ours_ms, plain_ms = self._medians(ended)
        return ours_ms <= TOLERANCE * plain_ms

    def _settle(self, contest: Contest) -> None:
        contest.tried, contest.end = 0, None
        if not self._can_tell(contest):
            contest.keeps = contest.begins
            return
        times = self._medians(contest)
        contest.turns.clear()
        contest.keeps = times[0] <= TOLERANCE * times[1]
        contest.looks += 1
        if max(times) < CLOSE * min(times) and contest.launches * min(times) < HOT_MS:
            contest.next_look = LATER * contest.launches
        if contest.looks == 1:
            self.in_a_row = self.in_a_row + 1 if contest.keeps == self.last else 1
            self.last = contest.keeps
        elif contest.keeps != contest.begins:
            self.in_a_row = 0
        self.certain = self.in_a_row >= AGREED
        if not contest.keeps:
            self.plain.told_once("slower-when-timed", lambda: self._remark(times[0], times[1]))

    def _remark(self, ours_ms: float, plain_ms: float) -> Remark:
        message = (
            f"launches of {self.source.name} took {ours_ms * 1e3:.1f} us {self.how} and {plain_ms * 1e3:.1f} us as it "
            f"was written (medians of {self.pairs}): of this size it runs as it was written"
        )
        note = "gate=off and trials=0 keep the specialized kernel"
        return Remark("slower-when-timed", message, kernel_location(self.source), note=note)

"""In which order variants take their turns."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise

import pytest

from wspec.bench import timing
from wspec.bench.clock_probe import timed_windows
from wspec.bench.timing import Variant, measure, orders


@pytest.mark.parametrize("variants", [1, 2, 5, 30])
def test_every_round_times_every_variant_once(variants: int) -> None:
    for order in orders(variants, 15):
        assert sorted(order) == list(range(variants))


def test_no_variant_comes_behind_the_same_one_in_every_round() -> None:
    behind = Counter(pair for order in orders(6, 15) for pair in pairwise(order))
    assert max(behind.values()) < 15 / 2
    first = Counter(order[0] for order in orders(6, 15))
    assert max(first.values()) < 15 / 2


def test_a_run_can_be_repeated() -> None:
    assert orders(7, 9) == orders(7, 9)


class Event:
    """Of a queue in which every launch takes a millisecond."""

    now = 0.0

    def record(self) -> None:
        self.at = Event.now

    def elapsed_time(self, other: Event) -> float:
        return other.at - self.at


def test_the_windows_that_were_timed_are_known_by_their_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """A variant's n-th sample is of the window that is found for the n-th round."""
    monkeypatch.setattr(timing, "_event", Event)
    monkeypatch.setattr(timing.torch.cuda, "synchronize", lambda: None)
    windows: list[tuple[str, float]] = []

    def variant(name: str) -> Variant:
        @contextlib.contextmanager
        def around() -> Iterator[None]:
            begin = Event.now
            yield
            windows.append((name, Event.now - begin))

        def run() -> None:
            Event.now += 1.0 + len(windows) / 1000  # tells windows apart

        return Variant(name, (run,), around)

    found = measure([variant(name) for name in "abc"], rounds=5, window_ms=1.0, warm=2)
    turns = timed_windows([name for name, _ in windows], 5)
    for name, timed in found.items():
        assert timed.samples_us == pytest.approx([1000 * windows[turn[name]][1] for turn in turns])


def test_windows_of_something_else() -> None:
    with pytest.raises(ValueError, match="2 rounds"):
        timed_windows(["a", "b", "a", "a"], 2)
    with pytest.raises(ValueError, match="1 rounds"):
        timed_windows(["a", "a", "b", "b"], 1)

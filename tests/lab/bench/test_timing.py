"""In which order variants take their turns, and what of that counts."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterator
from itertools import groupby, pairwise

import pytest

from tests.support.events import Event
from wspec.lab.bench import timing
from wspec.lab.bench.clock_probe import timed_windows
from wspec.lab.bench.timing import Run, Variant, measure, measure_sustained, orders


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


@pytest.fixture
def card(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timing, "_event", Event)
    monkeypatch.setattr(timing.torch.cuda, "synchronize", lambda: None)


def run_of(milliseconds: float, seen: list[str], name: str) -> Run:
    """Of a launch that takes as long; `seen` hears of each."""

    def run() -> None:
        Event.now += milliseconds
        seen.append(name)

    return run


@pytest.mark.usefixtures("card")
def test_a_sustained_sample_is_the_mean_of_a_launch() -> None:
    """Input sets of different times take turns; each part lasts as long as asked for, whatever a launch takes."""
    seen: list[str] = []
    variants = [
        Variant("even", (run_of(2.0, seen, "even"),)),
        Variant("uneven", (run_of(0.25, seen, "first"), run_of(0.75, seen, "second"))),
    ]
    found = measure_sustained(variants, seconds=0.6, rounds=4)
    assert found["even"].samples_us == pytest.approx([2000] * 4)
    assert found["uneven"].samples_us == pytest.approx([500] * 4)
    assert found["uneven"].speedup_over(found["even"]) == pytest.approx(4.0)
    names = Counter(seen)
    assert names["first"] == names["second"]
    in_rounds = 4 * 2 * 600
    assert names["even"] * 2 == pytest.approx(in_rounds, abs=50)  # the rest found out how long a launch takes
    assert names["first"] == pytest.approx(in_rounds, abs=50)


@pytest.mark.usefixtures("card")
def test_sustained_variants_run_alone_in_shuffled_order() -> None:
    """In one piece a round, so much longer than what comes before the rounds that it can be told from that."""
    seen: list[str] = []
    found = measure_sustained([Variant(name, (run_of(1.0, seen, name),)) for name in "abcd"], seconds=0.5, rounds=5)
    assert all(len(timed.samples_us) == 5 for timed in found.values())
    pieces = [(name, len(list(piece))) for name, piece in groupby(seen)]
    turns = [name for name, length in pieces if length >= 1000]
    expected = ["abcd"[at] for order in orders(4, 5) for at in order]
    # A variant that ends one round and starts the next makes one piece of two.
    assert turns == [name for name, _ in groupby(expected)]
    assert sum(length // 1000 for _, length in pieces) == 4 * 5


@pytest.mark.usefixtures("card")
def test_what_runs_before_a_sustained_sample_does_not_count() -> None:
    """Launches take three times as long for 0.9 s after another variant's: less than the part that does not count."""
    last = {"name": "", "since": 0.0}

    def variant(name: str, milliseconds: float) -> Variant:
        def run() -> None:
            if last["name"] != name:
                last.update(name=name, since=Event.now)
            cold = Event.now - last["since"] < 900
            Event.now += milliseconds * (3 if cold else 1)

        return Variant(name, (run,))

    found = measure_sustained([variant("one", 1.0), variant("two", 0.5)], seconds=3.0)
    assert found["one"].samples_us == pytest.approx([1000] * timing.SUSTAINED_ROUNDS)
    assert found["two"].samples_us == pytest.approx([500] * timing.SUSTAINED_ROUNDS)


def test_sustained_variants_of_one_name_are_an_error() -> None:
    with pytest.raises(ValueError, match="share a name"):
        measure_sustained([Variant("v", ()), Variant("v", ())], seconds=1.0)


def test_windows_of_something_else() -> None:
    with pytest.raises(ValueError, match="2 rounds"):
        timed_windows(["a", "b", "a", "a"], 2)
    with pytest.raises(ValueError, match="1 rounds"):
        timed_windows(["a", "a", "b", "b"], 1)

"""The report on sizes never seen, on functions that take as long as the test says."""

from __future__ import annotations

import gc
import time
from collections import Counter
from typing import Any

import pytest

from wspec.lab.bench.new_sizes import (
    FARTHEST,
    Call,
    Found,
    Subject,
    climb,
    far_table,
    is_good,
    measure,
    measure_far,
    mixed,
    steps_table,
    tables,
)


@pytest.fixture(autouse=True)
def no_collection(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before each row of calls garbage is looked for, which takes a tenth of a second among the tests' objects."""
    monkeypatch.setattr(gc, "collect", lambda: 0)


def found(**changes: Any) -> Found:
    given = {
        "name": "f", "known_us": 15.0, "first_us": 900.0, "new_us": 70.0, "near_us": 90.0, "again_us": 16.0,
        "equal_us": {"short": 20.0, "long": 300.0}, "different_us": {"short": 80.0, "long": 310.0},
        "second_us": {"short": 20.0, "long": 301.0},
    }  # fmt: skip
    return Found(**{**given, **changes})  # type: ignore[arg-type]


def test_bars() -> None:
    quick = {"short": 21.0, "long": 310.0}
    assert is_good(found(different_us=quick)) and not is_good(found(different_us=quick, new_us=76.0))
    assert not is_good(found()) and not is_good(found(different_us=quick, second_us={"short": 22.0, "long": 301.0}))
    host, speeds = tables([found()])
    assert host.rows == (("f", "15.0", "70.0", "55.0", "90.0", "900.0", "16.0"),)
    assert speeds.rows == (("f, short", "20.0", "0.250", "1.000"), ("f, long", "300.0", "0.968", "0.997"))


def test_which_sizes_are_called() -> None:
    calls: Counter[int] = Counter()
    waits: list[None] = []

    def of(size: int) -> Call:
        return lambda: calls.update([size])

    made = measure(Subject("f", of, 100, 5000), lambda: waits.append(None), 50)
    assert made.name == "f" and made.known_us > 0 and made.to_data()["worst_ratio"] > 0 and waits
    assert [calls[size] for size in (100, 101, 102, 150, 349)] == [401, 1, 1, 1, 1]
    assert calls[529] == 2 and calls[658] == 2, "far from others"
    assert [calls[size] for size in (4975, 4976, 5000, 5025, 5026)] == [1 + 4 * 50, 2, 2, 2, 0], "one is called before"


def test_long_sizes_are_called_three_times() -> None:
    calls: Counter[int] = Counter()
    waits: list[int] = []

    def of(size: int) -> Call:
        return lambda: calls.update([size])

    made = measure_far(("f", of), lambda: waits.append(len(calls)))
    assert set(calls) - {16000} == {size for size, count in calls.items() if count == 3}
    assert len(calls) == 21 and min(calls) == 16000 and max(calls) == FARTHEST and waits[-1] == 21
    assert made.more_us == made.new_us - made.known_us and far_table([made]).rows[0][0] == "f"


def test_drawn_sizes_are_of_all_lengths_and_new() -> None:
    calls: Counter[int] = Counter()

    def of(size: int) -> Call:
        return lambda: calls.update([size])

    made = mixed(Subject("f", of, 300, 6500), lambda: None, 400)
    assert len(calls) == 400 and 64 <= min(calls) < 70 and max(calls) <= 8000 and 900 < made.size < 1300
    assert sum(count == 2 for count in calls.values()) > 300, "a first and a second time, and not before"


def test_climbing_ends_where_different_sizes_are_as_fast() -> None:
    """As the card, which takes as long for a size whether it was seen or not, decides from 3,000 on."""
    seen: set[int] = set()
    now = [0.0]

    def of(size: int) -> Call:
        def call() -> None:
            now[0] += size / 100 if size >= 3000 or size in seen else 100.0
            seen.add(size)

        return call

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(time, "perf_counter_ns", lambda: int(now[0] * 1e3))
        found = climb(Subject("f", of, 300, 24000), lambda: None, 30, 6)
    assert [one.size for one in found] == [300, 721, 1731, 4159, 9991]
    assert found[0].ratio < 0.1 and found[-1].ratio > 0.99
    assert [row[1] for row in steps_table(found, "").rows] == [str(one.size) for one in found]

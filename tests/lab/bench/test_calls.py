"""The table of calls, on a card that is made of the reference and takes as long as the test says."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from tests.support.events import Event
from wspec.kernels.attention import attention_reference
from wspec.lab.bench import calls, launch, timing
from wspec.lab.bench.attention_cases import Case, Kind
from wspec.lab.bench.calls import Way, cases, parser, rounds_for, wall
from wspec.lab.bench.calls_report import ahead, tables
from wspec.lab.bench.timing import Variant

HOST_MS = 0.02


class Clock:
    """Calls take the host HOST_MS and the card as long as they say; who waits for the card waits for the later one."""

    def __init__(self) -> None:
        self.host = 0.0

    def call(self, card_ms: float) -> None:
        self.host += HOST_MS
        Event.now = max(Event.now, self.host) + card_ms

    def wait(self, *_: Any) -> None:
        self.host = Event.now = max(self.host, Event.now)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    found = Clock()
    Event.now = 0.0
    monkeypatch.setattr(calls.time, "perf_counter_ns", lambda: int(found.host * 1e6))
    return found


@pytest.mark.parametrize(("card_ms", "expected_us"), [(0.001, 20.0), (0.5, 500.0)])
def test_a_wall_time_is_that_of_the_slower_one_of_host_and_card(
    clock: Clock, card_ms: float, expected_us: float
) -> None:
    variant = Variant("one", (lambda: clock.call(card_ms),))
    (found,) = wall([variant], 5, 2.0, clock.wait).values()
    assert len(found.samples_us) == 5
    assert found.median_us == pytest.approx(expected_us, rel=0.06)


def test_as_many_rounds_as_there_is_time_for() -> None:
    assert rounds_for(20.0, 0.5, 4, 2.0, 15) == 15
    assert rounds_for(20_000.0, 0.5, 4, 2.0, 15) == 6
    assert rounds_for(500_000.0, 0.5, 4, 2.0, 15) == 3


def test_cheap_cases_come_first() -> None:
    found = cases(parser().parse_args([]))
    assert len(found) == 80
    assert found[0].batch == 1 and found[0].seqlen_q == 50 and found[-1].batch == 512 and found[-1].seqlen_q == 4096


@pytest.fixture
def card(clock: Clock, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[str, float], None]:
    """Sets how long a way of that name takes the card, in ms a row of queries; FA3's result is laid out its own way."""
    took = {"wspec": 1e-3, "FA3": 2e-3, "SDPA": 3e-3, "64x64 w4 s3": 5e-3, "64x128 w4 s2": 4e-3}

    def make(name: str, wrong: float = 0.0) -> Callable[..., Callable[[], Any]]:
        def of(q: Any, k: Any, v: Any, causal: bool) -> Callable[[], Any]:
            @functools.cache  # it is called some hundred times
            def computed() -> torch.Tensor:
                return attention_reference(q, k, v, causal=causal)[0].to(q.dtype) + wrong

            def call() -> Any:
                clock.call(took[name] * q.shape[2])
                return [computed().transpose(1, 2)] if name == "FA3" else computed()

            return call

        return of

    def ways() -> list[Way]:
        return [Way("wspec", make("wspec", took.get("wrong", 0.0))), Way("SDPA", make("SDPA")),
                Way("FA3", make("FA3"), lambda result: result[0].transpose(1, 2))]  # fmt: skip

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(calls, "ways", ways)
    monkeypatch.setattr(calls, "plain_ways", lambda _: [Way(name, make(name)) for name in took if " " in name])
    monkeypatch.setattr(calls, "require_hopper", lambda: torch.device("cpu"))
    monkeypatch.setattr(calls, "precompile", lambda makes, jobs: [None] * len(makes))
    monkeypatch.setattr(torch.cuda, "synchronize", clock.wait)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda *_: SimpleNamespace(L2_cache_size=1))
    monkeypatch.setattr(timing, "_event", Event)
    monkeypatch.setattr(timing, "_captured", lambda variant: variant)
    return took.__setitem__


SMALL = ["--batches", "1", "2", "--seqlens", "50", "--head-dims", "64", "--heads", "1", "--window-ms", "0.5"]


def test_a_run(card: Callable[[str, float], None], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert calls.main(SMALL) == 0
    found = json.loads((tmp_path / "calls.json").read_text())
    assert len(found["cases"]) == 4 and not found["not_run"]
    for one in found["cases"]:
        assert one["plain_tile"] == "64x128 w4 s2"
        assert one["wall"]["wspec"]["us"] == pytest.approx(50, rel=0.5)
        ratios = {peer: one["speedups"][peer]["card"] for peer in ("FA3", "SDPA", "plain")}
        assert ratios == pytest.approx({"FA3": 2.0, "SDPA": 3.0, "plain": 4.0}, rel=0.3)
        assert max(one["far"].values()) == 0.0
    said = capsys.readouterr().out
    assert (
        "0 of 4 calls take more than 1.08 times as long as FA3's" in said
        and "D=64 causal bf16 B=2 H=1 S=50: wall" in said
    )


def test_a_call_that_takes_longer_than_its_peer_fails(card: Callable[[str, float], None], capsys: Any) -> None:
    card("wspec", 8e-3)
    assert calls.main(SMALL) == 1
    assert "4 of 4 calls take more than 1.08 times as long as FA3's" in capsys.readouterr().out


def test_a_wrong_result_fails(card: Callable[[str, float], None], tmp_path: Path) -> None:
    card("wrong", 0.5)
    assert calls.main(SMALL) == 1
    assert all(one["far"]["wspec"] > 0.1 for one in json.loads((tmp_path / "calls.json").read_text())["cases"])


def test_what_there_was_no_time_for(card: Callable[[str, float], None], tmp_path: Path, capsys: Any) -> None:
    assert calls.main([*SMALL, "--time-budget", "-1"]) == 1
    assert len(json.loads((tmp_path / "calls.json").read_text())["not_run"]) == 4
    assert "time was up" in capsys.readouterr().out


def test_without_a_peer_its_ratios_are_dashes(clock: Clock) -> None:
    case = Case(Kind(64, False, "bf16"), 1, 1, 1, 50, 50)
    times = {name: timing.Timing((us,)) for name, us in (("wspec", 10.0), ("SDPA", 15.0), ("plain", 20.0))}
    one = calls.Measured(case, "", times, None, {"wspec": 0.0})
    assert one.is_good
    assert tables([one])[0].rows == (("64", "full", "50", "10.0 - 1.50 2.00"),)
    assert [text.split(",")[0] for text in ahead([one])] == ["over SDPA", "over plain"]


def test_host_times_are_held_against_the_peer_at_hand() -> None:
    assert launch.is_cheap({"attention()": 22.0, "matmul()": 20.0})
    assert not launch.is_cheap({"attention()": 22.0, "matmul()": 20.0, launch.FA3: 21.0})
    assert not launch.is_cheap({"attention()": 20.0, "matmul()": 21.0})


def test_the_calls_that_are_timed_can_be_made(monkeypatch: pytest.MonkeyPatch) -> None:
    """As far as a machine without a card can tell: their arguments are right, only the device is not."""
    for name, call in launch.calls("cpu").items():
        if name.startswith("torch"):
            call()
        else:
            with pytest.raises(ValueError, match="expected a CUDA tensor"):
                call()

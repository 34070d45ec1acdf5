"""What the flags of a benchmark make of its contests, on a card on which time passes as launches say."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.support.events import Event
from wspec.lab.bench import attention, matmul, session, timing
from wspec.lab.bench.session import Session, add_arguments, contest, finish, run_cases
from wspec.lab.bench.timing import Variant
from wspec.lab.bench.tuning import Tuner


@pytest.fixture
def folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(timing, "_event", Event)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda *_: None)
    monkeypatch.setattr(session, "card_state", dict)
    return tmp_path


def session_of(*flags: str) -> Session:
    parser = argparse.ArgumentParser()
    add_arguments(parser, "some")
    return Session(parser.parse_args(flags), torch.device("cpu"))


class Hot:
    """A variant with a launch of 1 ms, and of `when_hot` ms once it has run for 0.5 s on end."""

    running: Hot | None = None
    since = 0.0

    def __init__(self, when_hot: float) -> None:
        self.when_hot = when_hot
        self.launches = 0

    def __call__(self) -> None:
        if Hot.running is not self:
            Hot.running, Hot.since = self, Event.now
        self.launches += 1
        Event.now += self.when_hot if Event.now - Hot.since >= 500 else 1.0

    def variant(self, name: str) -> Variant:
        return Variant(name, (self,))


def times(on: Session) -> session.Record:
    """Ours keeps its clock, the plain kernel becomes half as fast, the peer four fifths."""
    ours, plain, peer = Hot(1.0), Hot(2.0), Hot(1.25)
    return contest(on, 10**9, [plain.variant("plain")], [ours.variant("ours")], [peer.variant("peer")])


def test_a_sustained_contest_sees_the_power_that_a_short_one_does_not(folder: Path) -> None:
    short = times(session_of())
    assert {role: short[role]["ratio"] for role in ("plain", "peer")} == pytest.approx({"plain": 1.0, "peer": 1.0})
    sustained = times(session_of("--sustained", "1"))
    assert sustained["plain"]["us"] == pytest.approx(2000)
    assert sustained["specialized"]["tflops"] == pytest.approx(1.0)
    ratios = {role: sustained[role]["ratio"] for role in ("plain", "specialized", "peer")}
    assert ratios == pytest.approx({"plain": 2.0, "specialized": 1.0, "peer": 1.25})
    assert short.keys() == sustained.keys()


@pytest.mark.parametrize(
    ("flags", "rounds"),
    [
        ([], 15),
        (["--rounds", "4"], 4),
        (["--sustained", "0.5"], 3),
        (["--sustained", "0.5", "--rounds", "4"], 4),
        (["--sustained", "0.5", "--rounds", "15"], 15),
    ],
)
def test_rounds(flags: list[str], rounds: int, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    def orders(variants: int, rounds: int) -> list[list[int]]:
        asked.append(rounds)
        return [list(range(variants))] * rounds

    monkeypatch.setattr(timing, "orders", orders)
    made = session_of(*flags)
    times(made)
    assert asked == [made.rounds] == [rounds]
    assert made.results["timing"]["rounds"] == rounds


@pytest.mark.parametrize("bench", [attention, matmul])
@pytest.mark.parametrize(
    ("flags", "rounds"), [([], 7), (["--sustained", "1"], 3), (["--sustained", "1", "--rounds", "2"], 2)]
)
def test_rounds_of_a_quick_run(
    bench: Any, flags: list[str], rounds: int, monkeypatch: pytest.MonkeyPatch, folder: Path
) -> None:
    started: list[argparse.Namespace] = []
    monkeypatch.setattr(bench, "start", started.append)
    assert bench.main(["--quick", *flags]) == 2
    assert Session(started[0], torch.device("cpu")).rounds == rounds


def test_configurations_are_chosen_by_short_samples(folder: Path) -> None:
    one, two = Hot(1.0), Hot(1.0)
    makers = {"one": lambda: one.variant("one"), "two": lambda: two.variant("two")}
    Tuner[str, str](session_of("--sustained", "1")).compare("kind", "case", 10**9, makers)
    assert 0 < one.launches + two.launches < 100


@pytest.mark.parametrize("bench", [attention, matmul])
@pytest.mark.parametrize("seconds", ["0", "-1", "-0.5", "nan", "inf", "long"])
def test_seconds_that_are_none(bench: Any, seconds: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        bench.parser().parse_args(["--sustained", seconds])
    assert stopped.value.code == 2
    assert f"argument --sustained: '{seconds}' is not a positive number of seconds" in capsys.readouterr().err


def finished(on: Session) -> None:
    run_cases(on, ["case"], lambda _: {"check": {"accurate": True, "identical": True}}, lambda _: "done")
    assert finish(on, lambda _: [], lambda _: ["a note"]) == 0


def test_results_say_that_they_are_sustained(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    finished(session_of("--sustained", "1.5", "--rounds", "2", "--graph"))
    said = "- SUSTAINED timings: each variant alone, 1.5 s that do not count and 1.5 s that do, in 2 shuffled rounds"
    assert (folder / "some.md").read_text().splitlines()[-2:] == [said, "- a note"]
    assert said in capsys.readouterr().out
    results = json.loads((folder / "some.json").read_text())
    assert results["timing"] == {"rounds": 2, "window_ms": None, "sustained_seconds": 1.5, "graph": True}


@pytest.mark.parametrize("flags", [[], ["--sustained", "1", "--no-timing"]])
def test_results_that_are_not_sustained_do_not_say_so(flags: list[str], folder: Path) -> None:
    finished(session_of(*flags))
    assert "SUSTAINED" not in (folder / "some.md").read_text()
    how = None if flags else {"rounds": 15, "window_ms": 2.0, "sustained_seconds": None, "graph": False}
    assert json.loads((folder / "some.json").read_text())["timing"] == how


def test_a_long_contest_is_not_taken_for_a_hang(folder: Path) -> None:
    """With as many variants as a case can have, at two thirds of the clock."""
    made = session_of("--sustained", "5", "--rounds", "4", "--keep", "3", "--hang-timeout", "10")
    variants = [Hot(1.5).variant(str(at)) for at in range(2 * 3 + 1 + 3)]
    begin = Event.now
    contest(made, 1, variants[1:], variants[:1], [])
    assert 400 < (Event.now - begin) / 1000 < made.watchdog.seconds
    assert session_of("--hang-timeout", "10").watchdog.seconds == 10

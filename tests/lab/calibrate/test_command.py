"""`wspec calibrate` without a GPU, and with one that the test makes up."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.cli.helpers import done, wspec
from wspec.lab.calibrate import about, driver, measure
from wspec.lab.calibrate.driver import Driver, NoGpu
from wspec.lab.calibrate.measure import Results
from wspec.lab.calibrate.statistics import Spread
from wspec.lab.calibrate.topic import Topic
from wspec.lab.calibrate.topics import TOPICS
from wspec.lab.calibrate.write import of_card
from wspec.lab.measurements import load_measurements, read_measurements
from wspec.model.machine import text_of


class NoDevice:
    """A driver library that sees no GPU."""

    def __getattr__(self, name: str) -> Any:
        return lambda *_: 100


@pytest.fixture
def no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver.ctypes, "CDLL", lambda _: NoDevice())


@pytest.fixture
def card(monkeypatch: pytest.MonkeyPatch) -> None:
    """A card on which everything measures 5, but whatever `shared` is about."""

    def calibrate(topics: Sequence[Topic], *, quick: bool, say: Any) -> Results:
        results = Results()
        for topic in topics:
            say(topic.name)
            tables = load_measurements("h100").tables
            keys = {one.name: tuple(tables[one.key(topic.name)]) if one.by else (0,) for one in topic.quantities}
            results.spreads[topic.name] = {
                name: {key: Spread(5, 4, 6) for key in rows} for name, rows in keys.items()
            }  # fmt: skip
        if results.spreads.pop("shared", None):
            results.failures["shared"] = "did not end within 180 s"
        return results

    monkeypatch.setattr(about, "require_gpu", lambda: "a card")
    monkeypatch.setattr(about, "l2_bytes", lambda: 7 << 20)
    monkeypatch.setattr(measure, "calibrate", calibrate)


def test_without_a_gpu_it_says_so(no_gpu: None) -> None:
    said = wspec("calibrate")
    assert said.code == 2 and said.out == ""
    assert said.err.startswith("error: no CUDA GPU is visible; calibrating needs a Hopper GPU")
    assert "`wspec calibrate --list` says what would be measured" in said.err


def test_without_a_driver_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(_: str) -> Any:
        raise OSError

    monkeypatch.setattr(driver.ctypes, "CDLL", missing)
    assert "there is no CUDA driver (libcuda.so.1) here" in wspec("calibrate").err
    with pytest.raises(NoGpu):
        Driver()


def test_the_list_needs_no_gpu(no_gpu: None) -> None:
    out = done("calibrate", "--list")
    for topic in TOPICS.values():
        assert f"\n{topic.name}: " in f"\n{out}"
        assert all(f"  {quantity.name} ({quantity.unit}" in out for quantity in topic.quantities)
    assert "bf16_ss_issue (cycles, by N)" in out


def test_one_topic_is_listed_alone() -> None:
    out = done("calibrate", "--list", "--only", "clock")
    assert out.startswith("clock: ") and "arithmetic" not in out


def test_a_topic_that_is_not_there_names_the_close_one() -> None:
    said = wspec("calibrate", "--only", "tma_lode")
    assert said.code == 2 and "no topic 'tma_lode'; did you mean tma_load" in said.err


def test_it_writes_a_description(card: None, tmp_path: Path) -> None:
    said = wspec("calibrate", "--quick", "-o", str(tmp_path / "mine.toml"))
    assert said.code == 1 and said.out == "" and "error: shared: did not end within 180 s" in said.err
    text = (tmp_path / "mine.toml").read_text()
    found = read_measurements(text, "mine")
    assert (
        'name = "mine"' in text and "\nbytes = 7340032 " in text and found.about["command"] == "wspec calibrate --quick"
    )
    assert found.numbers["arithmetic.ex2_latency"].value == 5
    assert found.numbers["shared.load_latency"] == load_measurements("h200").numbers["shared.load_latency"]


def test_the_head_names_the_card() -> None:
    """And the size of its L2; all else stays."""
    base = text_of("h200")
    made = of_card(base, "NVIDIA H300", 1 << 26)
    assert made.startswith("# Machine description of the NVIDIA H300 (Hopper, sm_90), for the latency model.")
    assert made.replace("H300", "H200").replace("67108864", "62914560") == base


def test_it_prints_where_no_file_is_named(card: None) -> None:
    said = wspec("calibrate", "--only", "clock")
    found, known = read_measurements(said.out, "h200"), load_measurements("h200")
    assert said.code == 0 and found.numbers["clock.light_mhz"].value == 5
    assert found.tables["wgmma.bf16_ss_issue"] == known.tables["wgmma.bf16_ss_issue"]
    assert "... clock" in said.err


def test_a_topic_that_hangs_or_fails_costs_itself_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """memory hangs, blocks faults, clock is measured."""

    def child(command: Sequence[str], **_: Any) -> Any:
        name = command[3]
        if name == "memory":
            raise subprocess.TimeoutExpired(list(command), 90)
        text = '{"light_mhz": {"0": {"value": 1980, "low": 1979, "high": 1980}}}'
        code = int(name == "blocks")
        return subprocess.CompletedProcess(list(command), code, text, "Traceback ...\nDriverError: a fault (700)\n")

    monkeypatch.setattr(measure, "assemble", lambda *_: Path("no.cubin"))
    monkeypatch.setattr(measure.subprocess, "run", child)
    topics = [TOPICS[name] for name in ("memory", "blocks", "clock")]
    found = measure.calibrate(topics, quick=True, say=lambda _: None)
    assert found.spreads == {"clock": {"light_mhz": {0: Spread(1980, 1979, 1980)}}}
    assert found.failures == {"memory": "did not end within 180 s", "blocks": "DriverError: a fault (700)"}

"""A machine description with measurements: written, read back, and what is refused."""

from __future__ import annotations

import math
from importlib.resources import files
from pathlib import Path

import pytest

from wspec.lab.calibrate.measure import Results
from wspec.lab.calibrate.statistics import Spread
from wspec.lab.calibrate.topic import Quantity, Topic
from wspec.lab.calibrate.topics import TOPICS
from wspec.lab.calibrate.write import description, digits
from wspec.lab.measurements import Measured, load_measurements, read_measurements
from wspec.model import machine
from wspec.model.machine import MachineError, load_machine, read_machine

ABOUT = {"date": "2026-11-21", "card": 'a "card"\\'}


def topic(name: str, *quantities: Quantity) -> Topic:
    return Topic(name, "made up", (), quantities, lambda _: {})


COPIES = topic("copies", Quantity("rate", "bytes/clk/SM", "a rate"), Quantity("latency", "cycles", "by size", "KiB"))
RESULTS = Results(
    {"copies": {"rate": {0: Spread(64, 63.5, 64.25)}, "latency": {2: Spread(350, 340, 360), 64: Spread(925, 9, 1e4)}}}
)


def base() -> str:
    return (files("wspec.model") / "h200.toml").read_text()


def test_what_is_written_reads_back() -> None:
    text = description(base(), "other", ABOUT, [COPIES], RESULTS)
    found = read_measurements(text, "other")
    assert found.about == ABOUT and found.sources["copies"] == "wspec calibrate, copies: made up"
    assert found.numbers["copies.rate"] == Measured(64, 63.5, 64.25, "bytes/clk/SM")
    rows = found.tables["copies.latency"]
    assert {key: (row.value, row.low, row.high, row.unit) for key, row in rows.items()} == {
        2: (350, 340, 360, "cycles"), 64: (925, 9, 10000, "cycles"),
    }  # fmt: skip


def test_topics_that_were_not_measured_anew_stay() -> None:
    text = description(base(), "other", ABOUT, [COPIES], RESULTS)
    found, old = read_measurements(text, "other"), load_measurements("h200")
    assert set(found.sources) == {*old.sources, "copies"}
    assert {key: found.numbers[key] for key in old.numbers} == old.numbers
    assert {key: found.tables[key] for key in old.tables} == old.tables


def test_the_numbers_set_by_hand_stay() -> None:
    text = description(base(), "other", ABOUT, [COPIES], RESULTS)
    new, old = read_machine(text, "other"), load_machine("h200")
    assert new.name == "other" and new == type(new)(**{**fields(old), "name": "other"})
    assert description(text, "other", ABOUT, [COPIES], RESULTS) == text


def fields(found: machine.Machine) -> dict[str, object]:
    return {name: getattr(found, name) for name in found.__slots__}


def test_a_topic_that_failed_is_left_out() -> None:
    both = [COPIES, topic("lost", Quantity("never", "cycles", "not measured"))]
    text = description(base(), "other", ABOUT, both, Results(RESULTS.spreads, {"lost": "it hung"}))
    assert "measured.lost" not in text and "copies.rate" in read_measurements(text, "other").numbers


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.0, "0.0"), (4.0, "4.0"), (128.0, "128.0"), (16.0004, "16.0"), (6.8472, "6.847"), (4533.92, "4533.9"),
     (0.012345, "0.01235"), (-3.5, "-3.5")],
)  # fmt: skip
def test_four_digits(value: float, text: str) -> None:
    assert digits(value) == text


def test_infinity_is_no_measurement() -> None:
    with pytest.raises(ValueError, match="inf is no measurement"):
        digits(math.inf)


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ('rate = { value = 1.0, low = 1.0, unit = "x" }', "copies.rate is not value, low and high"),
        ('rate = { value = 1.0, low = 1.0, high = 1.0, mean = 1.0, unit = "x" }', "copies.rate is not value"),
        ("rate = { value = 1.0, low = 1.0, high = 1.0 }", "copies.rate.unit is not text"),
        ('rate = { value = "1", low = 1.0, high = 1.0, unit = "x" }', "copies.rate is not three numbers"),
        ("rate = 1.0", "copies.rate is not a measurement"),
        ('[measured.copies.t]\nby = "N"\nunit = "x"\nwide = { value = 1, low = 1, high = 1 }', "copies.t.wide is not"),
    ],
)
def test_what_is_not_a_measurement_is_named(entry: str, message: str) -> None:
    with pytest.raises(MachineError, match=message):
        read_measurements(f'[measured.copies]\nsource = "s"\n{entry}\n', "some")


def test_a_source_is_asked_for() -> None:
    with pytest.raises(MachineError, match="'some': copies does not say its source"):
        read_measurements('[measured.copies]\nrate = { value = 1, low = 1, high = 1, unit = "x" }', "some")


def test_text_that_is_no_toml_is_named() -> None:
    with pytest.raises(MachineError, match="machine description 'some': "):
        read_measurements("[measured", "some")


@pytest.mark.parametrize(("card", "missing"), [("h100", {"tma_load.past_rate"}), ("h200", set())])
def test_cards_were_measured_entirely(card: str, missing: set[str]) -> None:
    """Every quantity there is, and no other, but for what no card was at hand for; a spread that holds its median."""
    found = load_measurements(card)
    numbers = {q.key(t.name) for t in TOPICS.values() for q in t.quantities if not q.by} - missing
    tables = {q.key(t.name) for t in TOPICS.values() for q in t.quantities if q.by} - missing
    assert set(found.numbers) == numbers and set(found.tables) == tables
    assert card.upper() in found.about["card"] and set(found.sources) == set(TOPICS)
    measured = [*found.numbers.values(), *(row for table in found.tables.values() for row in table.values())]
    assert all(0 < one.low <= one.value <= one.high for one in measured)


def test_a_description_without_measurements_has_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = base()
    (tmp_path / "bare.toml").write_text(text[: text.index("[measured]")])
    monkeypatch.setattr(machine, "files", lambda _: tmp_path)
    assert load_measurements("bare").numbers == {}

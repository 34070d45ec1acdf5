"""All that was measured on a card: the section `[measured]` of a machine description."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from wspec.model.machine import MachineError, parse, text_of


@dataclass(frozen=True, slots=True)
class Measured:
    """The median of a measurement, and the range that holds nine in ten of its samples."""

    value: float
    low: float
    high: float
    unit: str


@dataclass(frozen=True, slots=True)
class Measurements:
    """What was measured on a card. Names are TOPIC.QUANTITY, e.g. `arithmetic.ex2_latency`."""

    about: Mapping[str, str]  # card, versions, date
    sources: Mapping[str, str]  # of a topic's numbers
    numbers: Mapping[str, Measured]
    tables: Mapping[str, Mapping[int, Measured]]  # by an integer: N of wgmma, KiB of a tile, warps


@lru_cache(maxsize=8)
def load_measurements(name: str) -> Measurements:
    """What was measured, of the description `name`.toml. Raises MachineError."""
    return read_measurements(text_of(name), name)


_NUMBER = {"value", "low", "high"}


def read_measurements(text: str, name: str) -> Measurements:
    """The section `[measured]`, all of it. Raises MachineError for what is missing, unknown or no number."""
    data = parse(text, name)
    about: dict[str, str] = {}
    sources: dict[str, str] = {}
    numbers: dict[str, Measured] = {}
    tables: dict[str, dict[int, Measured]] = {}
    for topic, section in data.get("measured", {}).items():
        if not isinstance(section, dict):
            about[topic] = _string(section, topic, name)
            continue
        for key, entry in section.items():
            here = f"{topic}.{key}"
            if key == "source":
                sources[topic] = _string(entry, here, name)
            elif isinstance(entry, dict) and "by" in entry:
                unit = _string(entry.get("unit"), f"{here}.unit", name)
                rows = {row: value for row, value in entry.items() if row not in ("by", "unit", "what")}
                tables[here] = {
                    _integer(row, here, name): _measured(value, f"{here}.{row}", unit, name)
                    for row, value in rows.items()
                }
            elif isinstance(entry, dict):
                rest = {part: value for part, value in entry.items() if part not in ("unit", "what")}
                numbers[here] = _measured(rest, here, _string(entry.get("unit"), f"{here}.unit", name), name)
            else:
                raise _wrong(here, "a measurement", name)
        if topic not in sources:
            raise MachineError(f"machine description {name!r}: {topic} does not say its source")
    return Measurements(about, sources, numbers, tables)


def _measured(entry: Any, where: str, unit: str, name: str) -> Measured:
    if not isinstance(entry, dict) or set(entry) != _NUMBER:
        raise _wrong(where, "value, low and high", name)
    if not all(isinstance(part, int | float) and not isinstance(part, bool) for part in entry.values()):
        raise _wrong(where, "three numbers", name)
    return Measured(float(entry["value"]), float(entry["low"]), float(entry["high"]), unit)


def _string(entry: Any, where: str, name: str) -> str:
    if not isinstance(entry, str):
        raise _wrong(where, "text", name)
    return entry


def _integer(text: str, where: str, name: str) -> int:
    if not text.isdecimal():
        raise _wrong(f"{where}.{text}", "a table's row, an integer", name)
    return int(text)


def _wrong(where: str, what: str, name: str) -> MachineError:
    return MachineError(f"machine description {name!r}: {where} is not {what}")

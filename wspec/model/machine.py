"""The machine description: rates, latencies and budgets of one GPU, read from a data file.

Of the file's sections `load_machine` reads what the planner decides by; `load_measurements` reads `[measured]`, what
`wspec calibrate` wrote.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from typing import Any


@dataclass(frozen=True, slots=True)
class Machine:
    """One GPU. Rates are per clock and SM, latencies in cycles, sizes in bytes."""

    name: str
    target: str
    sm_count: int
    registers: int
    smem_bytes: int
    max_registers_thread: int
    l2_kept_bytes: float  # of data that SMs everywhere read, which both halves of L2 keep
    mma_flop_16bit: float
    mma_flop_8bit: float
    fma: float
    exp2: float
    convert: float
    smem_rate: float
    tma_rate: float
    hand_on_rate: float  # of sums that a block leaves to another one, and takes up itself
    mma_latency: float
    smem_latency: float
    l2_latency: float
    dram_latency: float
    tma_extra_latency: float
    mbarrier_latency: float
    ready_latency: float
    shuffle_latency: float
    handed_latency: float  # beside what moving the sums takes
    setup_latency: float
    plain_k_major: float  # time of the plain accumulating loop over the specialized one's, B stored [N, K]
    plain_mn_major: float  # B stored [K, N]
    plain_walking: float  # the same where blocks walk through tiles
    plain_copied: float  # the same where a producer's threads copy the tiles with cp.async


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


class MachineError(ValueError):
    """No such machine description, or one with a field missing."""


def available() -> list[str]:
    """The names of the machine descriptions that come with wspec."""
    names = (item.name for item in files(__package__).iterdir())
    return sorted(name.removesuffix(".toml") for name in names if name.endswith(".toml"))


@lru_cache(maxsize=8)
def load_machine(name: str) -> Machine:
    """The description `name`.toml. Raises MachineError."""
    return read_machine(_text(name), name)


@lru_cache(maxsize=8)
def load_measurements(name: str) -> Measurements:
    """What was measured, of the description `name`.toml. Raises MachineError."""
    return read_measurements(_text(name), name)


def _text(name: str) -> str:
    if name not in available():
        raise MachineError(f"no machine description {name!r}; there are: {', '.join(available())}")
    return (files(__package__) / f"{name}.toml").read_text(encoding="utf-8")


def read_machine(text: str, name: str) -> Machine:
    """What the planner needs. Raises MachineError; `name` is for its message."""
    data = _parse(text, name)
    try:
        return _machine(data)
    except KeyError as error:
        raise MachineError(f"machine description {name!r} lacks {error}") from None


@lru_cache(maxsize=8)
def _parse(text: str, name: str) -> dict[str, Any]:
    """Read twice for each machine, and 0.02 s long. Nobody changes what it returns."""
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise MachineError(f"machine description {name!r}: {error}") from None


def _machine(data: dict[str, Any]) -> Machine:
    sm, rate, latency = data["sm"], data["rate"], data["latency"]
    return Machine(
        name=data["name"],
        target=data["target"],
        sm_count=sm["count"],
        registers=sm["registers"],
        smem_bytes=sm["smem_bytes"],
        max_registers_thread=sm["max_registers_thread"],
        l2_kept_bytes=data["l2"]["bytes"] / data["l2"]["copies"],
        mma_flop_16bit=rate["mma_flop_16bit"],
        mma_flop_8bit=rate["mma_flop_8bit"],
        fma=rate["fma"],
        exp2=rate["exp2"],
        convert=rate["convert"],
        smem_rate=rate["smem_bytes"],
        tma_rate=rate["tma_bytes"],
        hand_on_rate=rate["hand_on_bytes"],
        mma_latency=latency["mma"],
        smem_latency=latency["smem"],
        l2_latency=latency["l2"],
        dram_latency=latency["dram"],
        tma_extra_latency=latency["tma_extra"],
        mbarrier_latency=latency["mbarrier"],
        ready_latency=latency["wait_ready"],
        shuffle_latency=latency["shuffle"],
        handed_latency=latency["handed"],
        setup_latency=latency["setup"],
        plain_k_major=data["plain"]["k_major"],
        plain_mn_major=data["plain"]["mn_major"],
        plain_walking=data["plain"]["walking"],
        plain_copied=data["plain"]["copied"],
    )


_NUMBER = {"value", "low", "high"}


def read_measurements(text: str, name: str) -> Measurements:
    """The section `[measured]`, all of it. Raises MachineError for what is missing, unknown or no number."""
    data = _parse(text, name)
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

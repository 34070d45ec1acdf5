"""Machine descriptions: data files that say what they are and what is missing."""

from __future__ import annotations

import dataclasses
import tomllib
from importlib.resources import files
from pathlib import Path

import pytest

from wspec.model import machine
from wspec.model.fitted import NAMES_OF_MACHINE, TABLE
from wspec.model.machine import AUTO, Machine, MachineError, available, description_of, load_machine


def test_the_h200_is_there() -> None:
    assert "h200" in available()
    found = load_machine("h200")
    assert (found.name, found.target, found.sm_count, found.registers) == ("h200", "cuda:90", 132, 65536)
    assert found.smem_bytes == 227 * 1024


@pytest.mark.parametrize(
    ("card", "name"),
    [
        ("NVIDIA H100 80GB HBM3", "h100"), ("NVIDIA H100 PCIe", "h100"), ("NVIDIA H200", "h200"),
        ("NVIDIA GH200 480GB", "h200"), ("NVIDIA H20", "h200"), ("NVIDIA B200", "h200"), ("", "h200"),
    ],
)  # fmt: skip
def test_the_description_of_a_card(card: str, name: str) -> None:
    """The usual one where nobody has its own."""
    assert description_of(card) == name and load_machine(AUTO) == load_machine("h200")


def test_every_description_has_every_number() -> None:
    for name in available():
        found = load_machine(name)
        for field in dataclasses.fields(Machine):
            value = getattr(found, field.name)
            assert isinstance(value, str) or value > 0, field.name


def test_every_number_says_where_it_is_from() -> None:
    text = (files("wspec.model") / "h200.toml").read_text()
    numbers = [line for line in text.splitlines() if line[:1].isalpha() and "= " in line and '"' not in line]
    assert numbers and all("#" in line for line in numbers)


def test_an_unknown_machine_names_the_known_ones() -> None:
    with pytest.raises(MachineError, match=r"no machine description 'h300'; there are: .*h200"):
        load_machine("h300")


def test_a_number_that_is_missing_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = (files("wspec.model") / "h200.toml").read_text()
    for name in ("handed", "ffma_rate"):
        assert f"\n{name} = " in text
        half = "\n".join(line for line in text.splitlines() if not line.startswith(f"{name} = "))
        (tmp_path / "half.toml").write_text(half)
        monkeypatch.setattr(machine, "files", lambda _: tmp_path)
        with pytest.raises(MachineError, match=f"machine description 'half' lacks '{name}'"):
            load_machine("half")
        load_machine.cache_clear()


def test_what_is_fitted_says_to_what() -> None:
    """No number of the planner is set by hand but those that the table has."""
    text = (files("wspec.model") / "h200.toml").read_text()
    assert set(tomllib.loads(text)["fitted"]) == set(NAMES_OF_MACHINE)
    assert all(one.what and one.to and one.elsewhere for one in TABLE.values())
    assert {"core_rate", "held_share", "tile_trips"} <= set(TABLE)

"""The arithmetic of rates, on a card whose rates are known."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from wspec.lab.bench import loads
from wspec.lab.calibrate.tiles import Walk
from wspec.lab.calibrate.tma_product import Case

BESIDE = 5000.0  # cycles of a launch beside its loads


def test_by_the_number_of_sms(monkeypatch: pytest.MonkeyPatch) -> None:
    """L2 sends 4,800 bytes a cycle in all, memory half of that, and an SM takes 100."""
    matrix: Any = SimpleNamespace(fresh=lambda size: 7)

    def cycles(of: Any, walk: Walk, sms: int, tiles: int) -> float:
        assert of is matrix
        total = 2400 if walk.first_row == 7 else 4800
        return BESIDE + tiles * walk.size / min(100, total / sms)

    monkeypatch.setattr(loads, "_cycles", cycles)
    table = loads.by_sms(matrix)
    found = {row[0]: [int(cell) for cell in row[1:]] for row in table.rows}
    assert found["own"] == [round(min(100, 4800 / sms)) for sms in loads.SMS]
    assert found["from memory"] == [round(min(100, 2400 / sms)) for sms in loads.SMS]


def test_of_a_and_of_b() -> None:
    """A comes at 40 bytes a cycle and B at 80, half as fast with rows beyond lines; blocks of an SM share that."""

    def run(case: Case, steps: int) -> Any:
        of_a, of_b = (rate / (2 if pitch % 128 else 1) for rate, pitch in ((40, case.pitch_a), (80, case.pitch_b)))
        tile = case.tile
        one = 2 * tile.depth * (tile.rows / of_a + tile.columns / of_b)
        return SimpleNamespace(cycles=BESIDE + steps * one * case.blocks)

    bed: Any = SimpleNamespace(run=run)
    for blocks, beyond, *rates in loads.by_pitches(bed).rows:
        assert blocks in "123"
        assert rates == [
            str(rate // 2 if int(more) else rate) for rate, more in zip((40, 80), beyond.split(","), strict=True)
        ]

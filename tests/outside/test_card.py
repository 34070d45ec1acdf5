"""Running cases in child processes, with children that only pretend to have a card."""

from __future__ import annotations

import os
import time
from multiprocessing.connection import Connection
from pathlib import Path

import torch

from tests.outside import card


def pretend(names: list[str], launches: int, log: Path, connection: Connection) -> None:
    """A case does what it is called."""
    log.write_text("\n".join(names))
    for name in names:
        if name.startswith("refused"):
            os._exit(3)
        connection.send(("launched", f"text of {name}"))
        if name.startswith("hang"):
            time.sleep(100)
        if name.startswith("fault"):
            os._exit(4)
        connection.send(("done", card.Outcome(name, "right", launches)))
    connection.close()
    os._exit(0)


def outcomes(groups: list[list[str]], folder: Path, jobs: int = 2) -> dict[str, card.Outcome]:
    found = list(card.run_all(groups, 5, 0.5, jobs, folder, pretend))
    assert len({one.name for one in found}) == len(found)
    return {one.name: one for one in found}


def test_every_kind_of_end_is_told_apart(tmp_path: Path) -> None:
    names = ["right", "hang", "fault", "refused"]
    found = outcomes([[name] for name in names], tmp_path)
    assert {name: one.kind for name, one in found.items()} == {name: name for name in names}
    assert found["right"].launches == 5
    assert found["hang"].ttgir == "text of hang"  # what hangs can still be checked
    assert found["refused"].ttgir == ""


def test_a_group_goes_on_after_a_hang(tmp_path: Path) -> None:
    found = outcomes([["right1", "hang1", "right2", "fault1", "right3"]], tmp_path, jobs=1)
    assert [one.kind for one in found.values()] == ["right", "hang", "right", "fault", "right"]


def test_every_child_has_a_log(tmp_path: Path) -> None:
    outcomes([["right/of way"], ["right"]], tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["right.log", "right.of way.log"]


def test_distance_is_by_row_and_keeps_nan() -> None:
    expected = torch.tensor([[3.0, 4.0], [30.0, 40.0], [1.0, 1.0]])
    out = torch.tensor([[3.0, 4.5], [30.0, 40.0], [torch.nan, 1.0]])
    apart = card.rows_apart(out, expected)
    assert torch.isclose(apart[0], torch.tensor(0.5 / 12.5**0.5))
    assert apart[1] == 0.0 and apart[2].isnan()

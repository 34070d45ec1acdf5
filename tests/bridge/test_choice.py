"""A kernel of several binaries: which one a launch has, when it is compiled, and what is said of it."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import triton

import wspec
from tests.bridge.fake_driver import FakeDriver
from tests.support import host_tables
from wspec import api
from wspec.bridge import choice, persistent
from wspec.bridge.choice import Chooser, Ways
from wspec.kernels import attention
from wspec.tile_scheduler import LaunchWay, LoopCost, TileCost
from wspec.tile_scheduler.costs import Trips
from wspec.tile_scheduler.scalars import Scalar

REST = "metadata", None, None


def way(name: str, cycles: float, fixed: float) -> LaunchWay:
    scalars = Scalar("constant", 32, (), 0), Scalar("argument", 32, (), 1), Scalar("constant", 32, (), 1)
    return LaunchWay(name, {}, TileCost(fixed, (LoopCost(7, cycles, (Trips(0, 1, 2),)),), scalars))


class Launches:
    """Two kernels and what was launched of them; `there` says whether the other one can be had."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, there: bool = True) -> None:
        self.seen: list[tuple[str, tuple[Any, ...]]] = []
        self.loaded: list[str] = []
        self.there = there
        ways = way("own", 10.0, 0.0), way("other", 1.0, 100.0)
        slots = [(0, "value", 0), (1, "value", 0)]
        monkeypatch.setattr(choice, "_sms", lambda: 132)
        self.chooser = Chooser(lambda *args: self.seen.append(("own", args)), Ways(ways, slots, self.load))

    def load(self, found: LaunchWay) -> Any | None:
        self.loaded.append(found.name)
        run = lambda *args: self.seen.append(("other", args))  # noqa: E731
        return SimpleNamespace(run=run, function="F2", packed_metadata="P2") if self.there else None

    def launch(self, n: int) -> tuple[str, tuple[Any, ...]]:
        self.chooser(4, 1, 1, 7, "F", "P", *REST, "x", n)
        return self.seen[-1]


def test_sizes_decide(monkeypatch: pytest.MonkeyPatch) -> None:
    found = Launches(monkeypatch)
    assert found.launch(3) == ("own", (4, 1, 1, 7, "F", "P", *REST, "x", 3)) and not found.loaded
    assert found.launch(300) == ("other", (4, 1, 1, 7, "F2", "P2", *REST, "x", 300)) and found.loaded == ["other"]
    found.launch(300), found.launch(400)
    assert [who for who, _ in found.seen] == ["own", "other", "other", "other"] and found.loaded == ["other"]
    assert len(found.chooser.chosen) == 3


def test_a_binary_that_cannot_be_had(monkeypatch: pytest.MonkeyPatch) -> None:
    found = Launches(monkeypatch, there=False)
    assert [found.launch(n)[0] for n in (300, 300, 400)] == ["own"] * 3 and found.loaded == ["other"]


# ------------------------------------------------------------------------------------------------ attention


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> FakeDriver:
    fake = FakeDriver()
    monkeypatch.setattr(triton.runtime.driver, "_active", fake)
    monkeypatch.setattr(api, "_announced", set())
    monkeypatch.setattr(persistent.Tables, "get", host_tables.get)
    return fake


def launch_of(
    seqlen: int, batch: int, *, causal: bool = False, tile: attention.Config | None = None
) -> attention.Launch:
    q = torch.empty(batch, 16, seqlen, 64, dtype=torch.bfloat16)
    lse = torch.empty(batch, 16, seqlen)
    return attention.Launch.of(q, q.clone(), q.clone(), q.clone(), lse, causal=causal, scale=0.125, config=tile)


def test_attention_has_teams_for_long_sequences(driver: FakeDriver, capsys: pytest.CaptureFixture[str]) -> None:
    kernel = wspec.compile(attention.attention_fwd)
    groups = []
    for seqlen, batch in ((512, 2), (4096, 2), (512, 2), (8192, 1)):
        driver.launches.clear()
        launch = launch_of(seqlen, batch)
        kernel[launch.grid](*launch.args, **launch.meta)
        groups.append(int(driver.launches[0].packed_metadata[0]) // 4)
    assert groups == [2, 4, 2, 4], "a group and a producer, or three and a producer"
    assert "no launch has" not in capsys.readouterr().err


@pytest.mark.slow
def test_narrow_tiles_have_teams_of_four(driver: FakeDriver) -> None:
    kernel, tile = wspec.compile(attention.attention_fwd, remarks="off"), attention.Config(64, 64, 4)
    groups = []
    for seqlen, batch in ((256, 2), (8192, 1)):
        driver.launches.clear()
        launch = launch_of(seqlen, batch, tile=tile)
        kernel[launch.grid](*launch.args, **launch.meta)
        groups.append(int(driver.launches[0].packed_metadata[0]) // 4)
    assert groups == [2, 5], "a group and a producer, or four and a producer"


def test_what_is_chosen_is_explained(session_cache: Path) -> None:
    kernel, launch = wspec.compile(attention.attention_fwd, remarks="off"), launch_of(4096, 2)
    report = kernel.outcome(*launch.args, grid=launch.grid, **launch.meta)
    assert [name for name, _ in report.choice] == ["teams of 3 tiles", "one tile at a time"]
    assert report.choice[0][1] < report.choice[1][1]
    said = kernel.explain(*launch.args, grid=lambda meta: launch.grid, **launch.meta)
    assert "this launch has teams of 3 tiles, expected to take" in said and "one tile at a time 1." in said
    assert "explain(..., grid=...) says which" in kernel.explain(*launch.args, **launch.meta)
    short = launch_of(512, 2)
    assert kernel.outcome(*short.args, grid=short.grid, **short.meta).choice[0][0] == "one tile at a time"
    asked = wspec.compile(attention.attention_fwd, coarsening=1, remarks="off")
    assert not asked.outcome(*launch.args, grid=launch.grid, **launch.meta).choice, "somebody has said which"

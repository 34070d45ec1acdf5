"""The part of `wspec demo` that runs on a card, with a card that the test makes up."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.cli.helpers import done, wspec
from wspec.cli import demo_command
from wspec.cli.run_table import Worst
from wspec.kernels import attention
from wspec.lab.bench import environment, timing


@pytest.fixture
def card(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """A card on which the plain kernel errs by 0.01; by how much the specialized one does is what the list holds."""
    errors: list[Any] = [0.01]

    def run(launch: attention.Launch, kernel: Any) -> None:
        q, k, v, out = (descriptor.base for descriptor in launch.args[:4])
        exact, _ = attention.attention_reference(q, k, v, causal=launch.meta["CAUSAL"])
        out.copy_(exact + (0.01 if kernel is attention.attention_fwd else errors[0]))

    def measure(variants: Iterable[timing.Variant], **_: Any) -> dict[str, timing.Timing]:
        times = {"plain": 200.0, "specialized": 160.0}
        return {variant.name: timing.Timing((times[variant.name],)) for variant in variants}

    monkeypatch.setattr(demo_command, "SEQLEN", 64)
    monkeypatch.setattr(demo_command, "SEEDS", 1)
    monkeypatch.setattr(demo_command, "BATCH", 1)
    monkeypatch.setattr(environment, "require_hopper", lambda: torch.device("cpu"))
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda _: "a card")
    monkeypatch.setattr(attention.Launch, "run", run)
    monkeypatch.setattr(timing, "measure", measure)
    return errors


def test_a_demo_that_runs_nowhere(card: list[Any], tmp_path: Path) -> None:
    out = done("demo", "--no-run", "-o", str(tmp_path / "stages"))
    assert "a card" not in out and "on the CPU" not in out and "proved: " in out
    assert (tmp_path / "stages" / "attention_fwd.cubin").read_bytes().startswith(b"\x7fELF")
    assert f"bytes, in {tmp_path}/stages (" in out


def test_a_demo_that_is_wrong_on_the_cpu(card: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """An output that is off by more than its bound; the card is not asked any more."""
    monkeypatch.setattr(Worst, "add", lambda worst, *_: setattr(worst, "share", 2.0))
    said = wspec("demo")
    assert said.code == 1 and "\nwrong: o_desc of the plain kernel" in said.out and "on a card" not in said.out


@pytest.fixture
def right_on_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """As tests/cli/test_compile.py sees it to be."""
    monkeypatch.setattr(demo_command, "_on_the_cpu", lambda variant: 0)


def test_demo_on_a_card(card: list[Any], right_on_the_cpu: None) -> None:
    out = done("demo", "--head-dim", "128")
    assert "on a card: batch 1, 16 heads, 64 keys, bf16" in out
    assert "1.25 x the plain kernel at the same tile" in out and "as accurate as the plain one" in out


def test_demo_that_is_wrong(card: list[Any], right_on_the_cpu: None) -> None:
    card[0] = 0.5
    said = wspec("demo")
    assert said.code == 1 and "WRONG" in said.out


def test_demo_whose_output_is_not_written(card: list[Any], right_on_the_cpu: None) -> None:
    card[0] = float("nan")
    assert wspec("demo").code == 1

"""The runner of operators with wspec and without, on processes that are only pretended."""

from __future__ import annotations

import json
import subprocess
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from tests.outside.operators import __main__ as runner
from tests.outside.operators.judge import NO_TIME, Row, judged

NAN = float("nan")


def test_operators_are_judged_by_each_other_and_by_pytorch() -> None:
    expected = {"output": torch.tensor([3.0, 4.0])}
    near, far = {"output": torch.tensor([3.001, 4.0])}, {"output": torch.tensor([3.0, 5.0])}
    odd = {"output": torch.tensor([3.0, NAN])}

    def said(before: Any, ours: Any, after: Any) -> str:
        return judged({"before": before, "with": ours, "after": after}, expected)[0]

    assert said(near, expected, near) == ""
    assert said(near, far, near) == "output is another one with wspec; output is not PyTorch's"
    assert said(near, near, odd) == "output is another one after wspec"
    assert "another one with wspec" in said(odd, odd, odd)


def row(**given: Any) -> Row:
    return Row("f", **{"far": {"output": {"with": 1e-4, "after": 0.0}}, **given})


@pytest.mark.parametrize(
    ("found", "verdict", "wrong"),
    [
        (row(far={"output": {"with": 0.0, "after": 0.0}}), "equal", False),
        (row(), "the same", False),
        (row(wrong="output is another one with wspec"), "different", True),
        (row(failed={"before": "exit 1", "with": "exit 1"}), "never runs", False),
        (row(failed={"with": "exit 1"}), "fails", True),
        (row(failed={"with": "not done after 100 s"}), "fails", True),
        (row(failed={"after": "exit 1"}), "fails", True),
        (row(failed={"before": NO_TIME}), "no time", True),
    ],
)
def test_verdicts(found: Row, verdict: str, wrong: bool) -> None:
    assert found.verdict == verdict and found.is_wrong == wrong


class Processes:
    """In the place of `subprocess.run`. `results`: what a turn writes down, or its exit code, by operator."""

    def __init__(self, results: dict[str, dict[str, float | int]]) -> None:
        self.results, self.asked, self.together = results, list[tuple[str, str]](), threading.Barrier(2)

    def __call__(self, command: list[str], *, env: dict[str, str], timeout: float, **_: Any) -> Any:
        given = dict(zip(command[3::2], command[4::2], strict=True))
        name, turn = given["--one"], given["--turn"]
        self.asked.append((name, turn))
        assert (env["WSPEC"] == "1") == (turn == "with")
        if turn != "after":
            self.together.wait(10)  # neither of the two comes to an end without the other
        value = self.results[name][turn]
        if isinstance(value, int):
            if value == -1:
                raise subprocess.TimeoutExpired(command, timeout)
            return SimpleNamespace(returncode=value)
        kernels = [{"kernel": "k", "specialized": True, "reason": ""}, {"kernel": "l", "specialized": False,
                   "reason": "no-dot: nothing is multiplied"}]  # fmt: skip
        results, reference = {"output": torch.tensor([value])}, {"output": torch.tensor([1.0])}
        found = {"results": results, "kernels": kernels * (turn == "with"), "reference": reference}
        torch.save(found if turn == "before" else {**found, "reference": {}}, given["--out"])
        return SimpleNamespace(returncode=0)


def run(monkeypatch: pytest.MonkeyPatch, folder: Path, results: dict[str, Any], *flags: str) -> tuple[int, Any]:
    processes = Processes(results)
    monkeypatch.setattr(runner.subprocess, "run", processes)
    monkeypatch.setattr("tests.outside.operators.catalogue.OPERATORS", dict.fromkeys(results))
    monkeypatch.setattr("sys.argv", ["operators", "--packages", "p", "--entries", "e", "--jobs", "2", "--scratch",
                                     str(folder), "--json", str(folder / "rows.json"), *flags])  # fmt: skip
    return runner.main(), processes


def test_with_and_without_run_at_the_same_time(tmp_path: Path, monkeypatch: Any, capsys: Any) -> None:
    results = {"f": {"before": 1.0, "with": 1.0, "after": 1.0}, "g": {"before": 1.0, "with": 1.001, "after": 1.0}}
    code, processes = run(monkeypatch, tmp_path, results)
    assert code == 0
    assert sorted(processes.asked) == [(name, turn) for name in "fg" for turn in ("after", "before", "with")]
    said = capsys.readouterr().out
    assert "f: equal; 1 of 2 kernels specialized" in said and "g: the same" in said and "k: specialized" in said
    assert "2 of 2 operators: equal 1, the same 1" in said and "left alone: no-dot 2" in said
    assert "farthest with wspec and without: 1.0e-03 (g, output)" in said
    assert {one["operator"]: one["verdict"] for one in json.loads((tmp_path / "rows.json").read_text())} == {
        "f": "equal", "g": "the same",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("results", "said", "code"),
    [
        ({"before": 1.0, "with": 2.0, "after": 1.0}, "f: different", 1),
        ({"before": 1.0, "with": 1.0, "after": 2.0}, "output is another one after wspec", 1),
        ({"before": 1.0, "with": 1, "after": 1.0}, "f: fails", 1),
        ({"before": 1.0, "with": -1, "after": 1.0}, "with: not done after 100 s", 1),
        ({"before": 1, "with": 1, "after": 1.0}, "f: never runs", 0),
    ],
)
def test_what_is_wrong(tmp_path: Path, monkeypatch: Any, capsys: Any, results: Any, said: str, code: int) -> None:
    assert run(monkeypatch, tmp_path, {"f": results})[0] == code
    assert said in capsys.readouterr().out


def test_no_time(tmp_path: Path, monkeypatch: Any, capsys: Any) -> None:
    code, processes = run(monkeypatch, tmp_path, {"f": {}, "g": {}}, "--limit", "0")
    assert code == 1 and not processes.asked
    assert "2 of 2 operators: no time 2" in capsys.readouterr().out

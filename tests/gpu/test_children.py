"""Child processes: those that run cases, and one that answers, with children that only pretend to have a card."""

from __future__ import annotations

import functools
import os
import time
from multiprocessing.connection import Connection
from pathlib import Path

import pytest

from tests.gpu import children


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
        connection.send(("done", children.Outcome(name, "right", launches)))
    connection.close()
    os._exit(0)


def outcomes(groups: list[list[str]], folder: Path, jobs: int = 2) -> dict[str, children.Outcome]:
    found = list(children.run_all(groups, 5, 0.5, jobs, folder, pretend))
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


def measure(name: str, launches: int, outcome: children.Outcome, tell: children.Tell) -> None:
    """Raises, if it is called so, before or after its first launch."""
    if name.startswith("refused"):
        raise ValueError(name)
    tell(f"text of {name}")
    outcome.launches, outcome.kind = launches, "right"
    if name.startswith("fault"):
        raise ValueError(name)


def test_what_comes_after_a_fault_is_not_blamed_for_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(children, "start_cuda", lambda: None)
    names = ["right1", "fault1", "right2", "refused1", "fault2", "right3"]
    body = functools.partial(children.each, measure)
    found = list(children.run_all([names], 5, 5.0, 1, tmp_path, body))
    assert [(one.name, one.kind) for one in found] == [(name, name[:-1]) for name in names]
    assert found[1].message == "ValueError: fault1" and found[1].ttgir == "text of fault1"
    assert [one.launches for one in found] == [5, 5, 5, 0, 5, 5]


def test_every_child_has_a_log(tmp_path: Path) -> None:
    outcomes([["right/of way"], ["right"]], tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["right.log", "right.of way.log"]


def respond(question: str) -> str:
    """What is asked for happens."""
    if question == "raise":
        raise ValueError("what is\nasked for")
    if question == "die":
        os._exit(4)
    if question == "hang":
        time.sleep(100)
    return f"{question} by {os.getpid()}"


def is_broken() -> bool:
    return False


def test_a_child_answers_until_it_dies(tmp_path: Path) -> None:
    child: children.Child[str, str] = children.Child(respond, tmp_path / "log", "fork")
    first = child.ask("a", 1.0)
    assert isinstance(first, children.Answered) and first.value.startswith("a by ")
    assert child.ask("raise", 1.0) == children.Lost("refused", "ValueError: what is")
    assert child.ask("a", 1.0) == first  # the same process
    assert child.ask("die", 1.0) == children.Lost("fault", "exit code 4")
    second = child.ask("a", 1.0)
    assert isinstance(second, children.Answered) and second != first
    assert child.started == 2
    assert child.ask("hang", 0.2) == children.Lost("hang", "no answer in 0.2 s")
    assert isinstance(child.ask("a", 1.0), children.Answered) and child.started == 3
    child.close()


def test_after_an_error_of_the_card_a_child_is_a_new_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(children, "cuda_is_well", is_broken)
    child: children.Child[str, str] = children.Child(respond, tmp_path / "log", "fork")
    assert child.ask("raise", 1.0) == children.Lost("fault", "ValueError: what is")
    assert isinstance(child.ask("a", 1.0), children.Answered) and child.started == 2
    child.close()


def test_a_child_that_is_not_a_fork(tmp_path: Path) -> None:
    child: children.Child[str, str] = children.Child(respond, tmp_path / "log")
    answered = child.ask("a", 60.0)
    assert isinstance(answered, children.Answered) and answered.value != f"a by {os.getpid()}"
    assert child.ask("raise", 1.0) == children.Lost("refused", "ValueError: what is")
    child.close()
    assert "raise: ValueError: what is\nasked for" in (tmp_path / "log").read_text()

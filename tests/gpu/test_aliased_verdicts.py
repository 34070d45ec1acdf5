"""What is said of two kernels on the same memory, with stand-ins for the processes that run them."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.gpu import aliased
from tests.gpu.aliased import Answer, Bytes, Compared, Fuzzed, Launched, Question, until_compared
from tests.gpu.children import Answered, Lost

FAULT, HANG = Lost("fault", "an illegal memory access"), Lost("hang", "no answer")
RIGHT, OTHER = 1.0, 2.0
LAYOUTS = 3

Behaviour = Callable[[Question], Answered[Answer] | Lost]


class Sound(Launched):
    """Whatever happens, the plain kernel is not to blame."""

    def after_executed(self, layout: object, *, backwards: bool = False) -> Bytes | None:
        return left(RIGHT).value.seen[0]


class Unsound(Launched):
    def after_executed(self, layout: object, *, backwards: bool = False) -> Bytes | None:
        return None


class Spoilt(Launched):
    """The back end made something else of the plain kernel."""

    def after_executed(self, layout: object, *, backwards: bool = False) -> Bytes | None:
        return left(OTHER).value.seen[0]


class Racing(Launched):
    """The block that comes last decides."""

    def after_executed(self, layout: object, *, backwards: bool = False) -> Bytes | None:
        return left(OTHER if backwards else RIGHT).value.seen[0]


def launched(kind: type[Launched] = Sound) -> Launched:
    """Of two tensors."""

    def opened() -> Any:
        raise AssertionError("a stand-in is not compiled")

    return kind("a kernel", opened, {}, (1,), {"a": torch.zeros(64), "b": torch.zeros(64)})


def left(*values: float, specialized: bool = True) -> Answered[Answer]:
    """Both tensors hold this value; for each of the values that were seen."""
    data: Iterator[Bytes] = ((torch.full((64,), value).numpy().tobytes(),) * 2 for value in values)
    return Answered(Answer(tuple(data), specialized))


@dataclass
class Process:
    """Does the same each time, or what `then` says once a layout is asked for again."""

    usual: Answered[Answer] | Lost = field(default_factory=lambda: left(RIGHT))
    overlapping: Answered[Answer] | Lost = field(default_factory=lambda: left(RIGHT))
    again: Answered[Answer] | Lost | None = None
    asked: list[Question] = field(default_factory=list)

    def ask(self, question: Question, seconds: float) -> Answered[Answer] | Lost:
        before = any(one.layout == question.layout for one in self.asked)
        self.asked.append(question)
        if before and self.again is not None:
            return self.again
        return self.usual if question.layout is None else self.overlapping


def verdict(plain: Process, ours: Process, kind: type[Launched] = Sound) -> tuple[list[str], dict[str, int]]:
    """(what is wrong, what was counted)."""
    seen = Counter[str]()
    kernel = Fuzzed(1, Path())
    wrong = list(Compared(kernel, launched(kind), plain.ask, ours.ask).examine(7, LAYOUTS, seen))
    return wrong, {name: count for name, count in seen.items() if count}


def test_the_same_numbers_are_compared() -> None:
    assert verdict(Process(), Process()) == ([], {"steady": LAYOUTS, "compared": 1})


@pytest.mark.parametrize("lost", [FAULT, HANG, Lost("refused", "OutOfResources")], ids=lambda lost: lost.kind)
def test_a_plain_kernel_that_does_not_run_is_counted(lost: Lost) -> None:
    what = f"the plain kernel does not run ({lost.kind})"
    ours = Process(usual=FAULT, overlapping=FAULT)
    assert verdict(Process(usual=lost), ours) == ([], {what: 1})
    assert ours.asked == []
    assert verdict(Process(overlapping=lost), Process()) == ([], {what: LAYOUTS})


@pytest.mark.parametrize("lost", [FAULT, HANG], ids=lambda lost: lost.kind)
def test_ours_must_run_where_the_plain_one_does(lost: Lost) -> None:
    wrong, seen = verdict(Process(), Process(usual=lost))
    assert wrong == [f"a kernel, seed 7, as it is: {lost.kind}, {lost.message}"] and seen == {}
    wrong, seen = verdict(Process(), Process(overlapping=lost))
    assert len(wrong) == LAYOUTS and seen == {}


def test_a_plain_kernel_that_faults_now_and_then_has_no_numbers() -> None:
    plain = Process(again=FAULT)
    assert verdict(plain, Process(usual=FAULT)) == ([], {"the plain kernel does not always run (fault)": 1})
    assert plain.asked[-1].launches == aliased.FAULT_RUNS


def test_other_numbers_are_wrong() -> None:
    wrong, seen = verdict(Process(), Process(overlapping=left(OTHER)))
    assert len(wrong) == LAYOUTS and seen == {}
    assert "a: 64 of 64 elements, by 1 at most; b: 64 of 64" in wrong[0]
    wrong, seen = verdict(Process(), Process(usual=left(OTHER)))
    assert len(wrong) == 1 and "as it is" in wrong[0]


def test_rounding_counts_where_the_two_give_the_same_bits() -> None:
    nearly = left(RIGHT * 1.001)
    assert len(verdict(Process(), Process(overlapping=nearly))[0]) == LAYOUTS
    assert verdict(Process(), Process(usual=nearly, overlapping=nearly))[1]["steady"] == LAYOUTS


def test_what_races_has_no_numbers() -> None:
    races = "the plain kernel's blocks race"
    other = Process(overlapping=left(OTHER))
    assert verdict(Process(overlapping=left(RIGHT, OTHER)), Process()) == ([], {races: LAYOUTS})
    assert verdict(Process(again=left(RIGHT, OTHER)), other) == ([], {races: LAYOUTS})
    assert verdict(Process(again=left(OTHER)), other) == ([], {races: LAYOUTS})
    assert verdict(Process(), other, Racing) == ([], {races: LAYOUTS}), "though the card runs them in one order"


def test_blocks_of_a_drawn_kernel_that_store_into_one_place(tmp_path: Path) -> None:
    """105031006: two heads write the same tile."""
    one = Fuzzed(105_031_006, tmp_path).launched()
    in_turn, backwards = one.after_executed(None), one.after_executed(None, backwards=True)
    assert in_turn is not None and backwards is not None
    assert one.difference(in_turn, backwards, False).startswith("out_ptr: ")


def test_out_of_bounds_there_are_no_numbers() -> None:
    wrong, seen = verdict(Process(), Process(overlapping=left(OTHER)), Unsound)
    assert wrong == [] and seen == {"the executor finds the plain kernel wrong": LAYOUTS}


def test_a_plain_kernel_that_the_back_end_made_wrong_has_no_numbers() -> None:
    spoilt = "the back end made the plain kernel wrong"
    assert verdict(Process(), Process(overlapping=left(OTHER)), Spoilt) == ([], {spoilt: LAYOUTS})
    wrong, _ = verdict(Process(), Process(overlapping=left(OTHER + 1)), Spoilt)
    assert len(wrong) == LAYOUTS and "plain is not what the executor says" in wrong[0]


def test_what_is_left_alone_is_the_plain_kernel_whatever_it_leaves() -> None:
    what = "the plain kernel leaves other numbers in another process"
    assert verdict(Process(), Process(usual=left(OTHER, specialized=False))) == ([], {what: 1})


def test_what_a_guard_had_run_is_the_plain_kernel_whatever_it_leaves() -> None:
    """As 105011003 once: 33 launches of the plain kernel had agreed, and the executor finds nothing in one block."""
    what = "the plain kernel leaves other numbers in another process"
    assert verdict(Process(), Process(overlapping=left(OTHER, specialized=False))) == ([], {what: LAYOUTS})


def test_what_the_proof_left_alone_is_not_compared() -> None:
    wrong, seen = verdict(Process(), Process(usual=left(RIGHT, specialized=False)))
    assert wrong == [] and seen == {"steady": LAYOUTS, "left alone": 1}


def test_kernels_are_drawn_until_enough_were_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every fourth is not specialized, every third of the plain ones faults, the fifth of ours cannot be looked at."""
    monkeypatch.setattr(Fuzzed, "launched", lambda self: launched())
    looked, ran = [], []

    def ours(question: Question, seconds: float) -> Answered[Answer] | Lost:
        assert isinstance(question.kernel, Fuzzed)
        if question.by == "look":
            looked.append(question.kernel.number)
            return FAULT if question.kernel.number == 5 else left(specialized=question.kernel.number % 4 != 0)
        ran.append(question.kernel.number)
        return left(RIGHT)

    def plain(question: Question, seconds: float) -> Answered[Answer] | Lost:
        assert isinstance(question.kernel, Fuzzed)
        return FAULT if question.kernel.number % 3 == 0 else left(RIGHT)

    seen = Counter[str]()
    kernels = (Fuzzed(number, Path()) for number in itertools.count(1))
    assert until_compared(kernels, 4, 1, LAYOUTS, plain, ours, seen) == []
    assert looked == [1, 2, 3, 4, 5, 6, 7]
    assert sorted(set(ran)) == [1, 2, 5, 7]
    assert seen["compared"] == 4 and seen["the plain kernel does not run (fault)"] == 2

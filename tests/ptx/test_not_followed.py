"""Launches in which the TTGIR of a task cannot be followed, or divides by nothing: they show nothing, others may."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

import pytest

from tests.ptx.test_copies import ELEMENTS, GATHERED, LAUNCH, MATMUL, NESTED, beside, coordinates, copies_of, text_of
from wspec import ir
from wspec.bridge.ptx.same_tiles import FOR_ROUNDS, _compared, _Match, _Task
from wspec.bridge.ptx.tiles import NotFollowed, Over, Tiles
from wspec.ptx.copies import Copies, Taken
from wspec.ptx.errors import PtxError
from wspec.ptx.launched import Copy
from wspec.ptx.roles import Role

WHY = "where a tile is in global memory is not known"
COPIES, ELEMENT = Tiles.copies, Tiles.element


def lost_in(which: Callable[[int], bool], monkeypatch: pytest.MonkeyPatch) -> None:
    """The TTGIR is not followed in these of a task's launches, by their number."""
    seen: dict[int | None, int] = {}

    def copies(self: Tiles, function: object, partition: int | None) -> Iterator[object]:
        number = seen[partition] = seen.get(partition, -1) + 1
        if which(number):
            raise NotFollowed(WHY)
        return COPIES(self, function, partition)  # type: ignore[arg-type]

    monkeypatch.setattr(Tiles, "copies", copies)


@pytest.mark.parametrize(("launches", "said"), [(0, ""), (1, ""), (2, ""), (3, WHY)])
def test_the_first_launches_cannot_be_followed(monkeypatch: pytest.MonkeyPatch, launches: int, said: str) -> None:
    """Others are taken; not for ever."""
    lost_in(lambda number: number < launches, monkeypatch)
    assert beside(MATMUL, text_of(MATMUL)[1]) == said


def test_a_task_that_is_lost_again_and_again_is_not_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where each of its copies was seen once, as launches with a further round or an end were not compared."""
    lost_in(lambda number: number > 0, monkeypatch)
    monkeypatch.setattr("wspec.bridge.ptx.same_tiles._Task.asks_again", True)
    monkeypatch.setattr("wspec.bridge.ptx.same_tiles._Task.is_new", lambda *_: True)
    assert beside(MATMUL, text_of(MATMUL)[1]) == WHY


def test_what_is_wrong_is_found_in_another_launch(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = text_of(MATMUL)[1].split("\n")
    at = next(at for at, line in enumerate(lines) if "cp.async.bulk.tensor.2d.shared::" in line)
    row = re.findall(r"%r\d+", coordinates(lines[at]))[-1]
    lines[at] = f"add.s32 {row}, {row}, 1;{lines[at]}"
    lost_in(lambda number: number < 2, monkeypatch)
    with pytest.raises(PtxError, match="something else of global memory"):
        beside(MATMUL, "\n".join(lines))


def unknown_source(text: str) -> str:
    """With one address of cp.async out of what nobody knows."""
    line = next(line for line in text.split("\n") if ELEMENTS in line)
    (source,) = re.findall(r"\[ (%rd\d+)", line)
    return text.replace(line, f"mov.u64 {source}, %clock64;{line}", 1)


def test_elements_of_a_launch_that_divides_by_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the TTGIR has no meaning the PTX may do anything, also what cannot be followed; nothing is compared."""
    text = text_of(GATHERED)[1]
    with pytest.raises(PtxError, match="cannot be followed"):
        beside(GATHERED, unknown_source(text))

    launches: list[object] = []  # in their order

    def divides(self: Tiles, *rest: object) -> object:
        launch = self._launch
        if launch not in launches:
            launches.append(launch)
        if launches.index(launch) in without:
            raise Over
        return ELEMENT(self, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(Tiles, "element", divides)
    without: range = range(1)
    assert beside(GATHERED, text) == ""
    launches.clear()
    with pytest.raises(PtxError, match="cannot be followed"):  # in the second launch, which has a meaning
        beside(GATHERED, unknown_source(text))
    launches.clear()
    without = range(1000)
    assert "no launch was found that comes to it" in beside(GATHERED, unknown_source(text))


@pytest.mark.parametrize(
    ("compared", "ends", "rounds"),
    [(0, False, 0), (0, True, 0), (2, False, 2), (3, False, 3), (4, False, 3), (4, True, 5)],
)
def test_a_round_is_shown_by_what_comes_in_it(
    monkeypatch: pytest.MonkeyPatch, compared: int, ends: bool, rounds: int
) -> None:
    """The first one begins in front of all copies, the others behind one each; of four."""
    copies = copies_of(NESTED)
    (first, *_) = copies.loops
    one = next(iter(copies.all))
    begins = [(number, first, number + 1) for number in (0, 1, 2, 4)]
    taken = Taken([Copy(one, ())] * 4, ends, begins, False, 10, 4)
    monkeypatch.setattr(Copies, "in_launch", lambda *_: taken)

    def wrong(self: _Match, *_: object) -> str:
        self.compared = compared
        return ""

    monkeypatch.setattr(_Match, "wrong", wrong)
    task = _Task(Role((0,), frozenset(), (0, 0), None), copies)
    function = next(op for op in ir.read(text_of(MATMUL)[0]).walk() if op.name == "tt.func")
    assert _compared(function, task, LAUNCH, {}, None) == ({one} if compared else set())
    assert (task.rounds[first], task.ended) == (rounds, ends and compared == 4)
    assert task.shown == (compared > 0)


def test_one_launch_that_shows_something_is_not_enough() -> None:
    """Of a task whose copies, loops and end have all been seen: another launch that comes to copies is compared too."""
    copies = copies_of(NESTED)
    task = _Task(Role((0,), frozenset(), (0, 0), None), copies)
    task.rounds, task.ended = dict.fromkeys(copies.loops, 3), True
    taken = Taken([Copy(next(iter(copies.all)), ())], True, [], False, 10, 1)
    for shown, again in ((0, True), (1, True), (2, False)):
        task.shown = shown
        assert task.asks_again == task.is_new(taken, set()) == again
        assert not task.is_new(taken._replace(copies=[]), set())
    task.shown, task.passed = 1, FOR_ROUNDS
    assert not task.asks_again

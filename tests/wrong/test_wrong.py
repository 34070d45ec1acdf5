"""Wrong inputs end in one clear error. `python -m tests.wrong` draws three hundred; here are a few of each kind."""

from __future__ import annotations

import multiprocessing
from pathlib import Path

import pytest

from tests.wrong.draw import KINDS, Case, Good, draw
from tests.wrong.running import Ended, good, run, warm

SEED, COUNT = 7, 2 * len(KINDS)


def _failures(seed: int, count: int) -> list[str]:
    """In a process of its own: it forks, and has no threads of other tests."""
    warm()
    ended = [run(case) for case in draw(seed, count, good())]
    return [f"{one.wrong}: {one.case}\n{one.err[:500]}" for one in ended if one.wrong]


def test_wrong_inputs_end_in_one_error(fresh_cache: Path) -> None:
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        assert pool.apply(_failures, (SEED, COUNT)) == []


@pytest.mark.parametrize(
    ("code", "out", "err", "wrong"),
    [
        (2, "", "error: no\nnote: so\n", ""),
        (2, "", "f.py:3:1: error: no\n  code\n", ""),
        (1, "", "error: no\n", "exit code 1"),
        (2, "", "", "0 errors"),
        (2, "", "error: a\nerror: b\n", "2 errors"),
        (2, "", "error: internal error: X\n", "an internal error"),
        (2, "line\n" * 99, "error: no\n", "100 lines"),
        (-9, "", "", "ended by SIGKILL"),
    ],
)
def test_how_an_end_is_judged(code: int, out: str, err: str, wrong: str) -> None:
    assert Ended(Case("flag", ()), code, out, err, 0.0, 0).wrong == wrong


def test_what_is_drawn_hangs_on_the_seed_alone() -> None:
    texts = Good("depth = 4\n" * 99, "%1 = tensor<128x256xf32>\n" * 99)
    assert [str(one) for one in draw(3, 6, texts)] == [str(one) for one in draw(3, 6, texts)]
    assert [str(one) for one in draw(3, 6, texts)] != [str(one) for one in draw(4, 6, texts)]

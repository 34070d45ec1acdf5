"""Arguments laid over each other, on a Hopper GPU: the numbers are the plain kernel's.

Two tensors of a launch are laid over each other at a time: at the same place, shifted, half of one over the other, side
by side. Every shipped variant with an example is launched so, and 200 kernels of the fuzzer, small enough for few
blocks (aliased.py). The launch's guard is what sees to it; tests/fuzz/test_overlap.py does the same in the executor.
What is wrong is told in a line for each launch: the seed, the layout, the arguments that differ, in how many elements.
"""

from __future__ import annotations

import itertools
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from tests.gpu.aliased import Answer, Compared, Fuzzed, Question, Shipped, answer, until_compared
from tests.gpu.children import Child
from tests.ptx.shipped_ptx import variants

pytestmark = pytest.mark.gpu

FUZZED, EACH, FIRST = 40, 5, 105_000_000  # tests, kernels that each compares, and the number of the first
SHIPPED_LAYOUTS, FUZZED_LAYOUTS = 12, 4

Pair = tuple[Child[Question, Answer], Child[Question, Answer]]


@pytest.fixture(scope="session")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    """Processes for the plain kernels and for ours."""
    folder = tmp_path_factory.mktemp("children")
    made = Child(answer, folder / "plain.log"), Child(answer, folder / "ours.log")
    yield made
    for one in made:
        one.close()


@pytest.mark.parametrize("variant", list(variants()), ids=" ".join)
def test_shipped(variant: tuple[str, str], pair: Pair) -> None:
    kernel, seen = Shipped(*variant), Counter[str]()
    one = kernel.launched()
    if one is None:
        pytest.skip("there is no example of it")
    wrong = list(Compared(kernel, one, pair[0].ask, pair[1].ask).examine(1, SHIPPED_LAYOUTS, seen))
    assert not wrong, _told(wrong)
    assert seen["steady"] > 0, f"nothing was compared: {dict(seen)}"


@pytest.mark.parametrize("part", range(FUZZED))
def test_fuzzed(part: int, tmp_path: Path, pair: Pair) -> None:
    seen = Counter[str]()
    kernels = (Fuzzed(number, tmp_path) for number in itertools.count(FIRST + 1000 * part))
    wrong = until_compared(kernels, EACH, part, FUZZED_LAYOUTS, pair[0].ask, pair[1].ask, seen)
    warnings.warn(f"part {part}: {dict(seen)}", stacklevel=1)  # what the summary of the tests shows
    assert not wrong, _told(wrong)
    assert seen["compared"] == EACH and seen["steady"] > EACH, f"next to nothing was compared: {dict(seen)}"


def _told(wrong: Sequence[str]) -> str:
    """In a line, for those who see only the first one of a message."""
    return f"{len(wrong)} wrong: {' | '.join(wrong)}"

"""The checker on kernels that are broken in every way we know: all mutants of two small kernels, without running them.

`accepted.txt` lists those the checker does not refuse, with the reason why that is right; a person has read it.
`pytest tests/mutants --update` writes it anew. `python -m tests.mutants` does all kernels, and runs the mutants.
"""

from __future__ import annotations

import functools
from collections import Counter
from pathlib import Path

import pytest

from tests.mutants.goldens import goldens
from tests.mutants.judge import Judge, Judgement
from tests.mutants.mutate import BY_NAME
from tests.mutants.table import BAD
from tests.support.disjoint import all_apart
from tests.support.goldens import assert_golden
from tests.support.seldom import one_of
from wspec.check import check

ALWAYS = {"double-wait", "double-fence", "double-store-wait", "swap-tiles", "late-fence"}
HARMLESS = {  # a matrix product, and attention without a softmax, on small tiles; operators that do no harm there
    "gemm-64": ALWAYS | {"swap-copies"},  # both tiles are waited for before either is read
    "program-chain": ALWAYS | {"shrink-ring"},  # nothing is read while the next tile is waited for
}
KERNELS = tuple(HARMLESS)
FEW = 6  # runs of each mutant that is accepted
ACCEPTED = Path(__file__).with_name("accepted.txt")


@functools.cache
def judged(kernel: str, runs: int = FEW) -> list[Judgement]:
    judge = Judge(goldens()[kernel], runs, look_at_refused=False)
    return [one for operator in BY_NAME for one in judge.by(operator)]


@pytest.mark.parametrize("name", one_of(2, goldens()))
def test_unchanged_kernels_are_proved(name: str) -> None:
    found = check(module := goldens()[name].module(), disjoint=all_apart(module))
    assert found.ok, str(found)


@pytest.mark.parametrize("kernel", one_of(2, KERNELS))
def test_what_is_wrong_in_some_order_is_refused(kernel: str) -> None:
    assert [str(one) for one in judged(kernel) if one.verdict in BAD] == []


@pytest.mark.parametrize("kernel", one_of(2, KERNELS))
def test_every_operator_breaks_something(kernel: str) -> None:
    caught = Counter(one.operator for one in judged(kernel) if one.verdict == "caught")
    there = {one.operator for one in judged(kernel)}
    refused = {one.operator for one in judged(kernel) if one.verdict in ("caught", "undecided")}  # neither runs
    assert there - refused == HARMLESS[kernel]
    assert caught.total() > 0.7 * len(judged(kernel))


@pytest.mark.slow
def test_what_is_accepted(update: bool) -> None:
    """Every mutant that is not refused, and why it does no harm."""
    lines = [_line(one) for kernel in KERNELS for one in judged(kernel) if one.verdict not in ("caught", "invalid")]
    assert_golden(ACCEPTED, "\n".join(lines) + "\n", update)


def _line(one: Judgement) -> str:
    return f"{one.place} {one.change}: {one.verdict}. {one.reason}"


@pytest.mark.slow
@pytest.mark.parametrize("kernel", [*KERNELS, "program-gemm", "dequantized_a-64"])
def test_what_is_accepted_runs_like_the_original(kernel: str) -> None:
    assert [str(one) for one in judged(kernel, 200) if one.verdict in BAD] == []

"""Which tiles of attention are timed at short lengths, and what the choice between them loses."""

from __future__ import annotations

import pytest

from wspec.kernels.attention import HEAD_DIMS, tiles
from wspec.lab.bench.attention import chosen_entry
from wspec.lab.bench.attention_cases import Case, Kind
from wspec.lab.bench.short_tiles import cases, entries, regrets, table, to_compile


@pytest.mark.parametrize("head_dim", HEAD_DIMS)
def test_what_is_chosen_between_is_timed(head_dim: int) -> None:
    found = entries(head_dim)
    assert len(found) == len(set(found))
    assert {entry.config for entry in found if entry.kernel == "specialized"} >= set(tiles(head_dim))
    assert {str(chosen_entry(case)) for case in cases([head_dim])} <= {str(entry) for entry in found}
    made = [make()[1].meta for make in to_compile([head_dim])[:2]]
    assert [meta["CAUSAL"] for meta in made] == [False, True]


def test_cheap_cases_come_first() -> None:
    found = [case.batch * case.seqlen_q for case in cases(HEAD_DIMS)]
    assert found == sorted(found) and len(found) == 246


def test_what_the_choice_loses() -> None:
    case = Case(Kind(128, False, "bf16"), 8, 16, 16, 50, 50)
    times = {str(entry): 10.0 for entry in entries(128)} | {str(chosen_entry(case)): 12.0}
    ((_, regret),) = regrets([(case, times)])
    assert regret == pytest.approx(1.2)
    assert table([(case, times)]).rows == (("128", "1", "1.200", "1.200", str(case)),)

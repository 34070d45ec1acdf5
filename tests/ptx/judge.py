"""What the validation says of mutants, and which of those that it accepts may be accepted."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tests.ptx.edits_gone_wrong import wrong_edits
from tests.ptx.mutants import Mutant, mutants
from tests.ptx.shipped_ptx import Pair
from wspec.ptx.parser import read
from wspec.ptx.validation.validate import validate, validate_modules


@dataclass(frozen=True, slots=True)
class Judgement:
    """Of a mutant."""

    operator: str
    what: str
    verdict: str  # refused, equivalent, unexplained


def judged(pair: Pair, step: int = 1) -> Iterator[Judgement]:
    """All mutants of a variant, or every `step`th."""
    before, edited = read(pair.emitted), read(pair.edited)
    for number, mutant in enumerate(mutants(edited)):
        if number % step == 0:
            said = validate_modules(before, mutant.of(edited), pair.constant)
            verdict = "refused" if said.refusal else "equivalent" if is_harmless(mutant) else "unexplained"
            yield Judgement(mutant.operator, mutant.what, verdict)
    for number, (what, text) in enumerate(wrong_edits(pair.emitted, pair.edited)):
        if number % step == 0:
            said = validate(pair.emitted, text, pair.constant)
            gone = "barrier" in what and not said.refusal  # one that orders nothing, and that the edit has left
            verdict = "refused" if said.refusal else "equivalent" if gone and "one more" in what else "unexplained"
            yield Judgement("wrong edit", what, verdict)


def is_harmless(mutant: Mutant) -> bool:
    """Is it of a kind that may be accepted? docs/results/mutants.md says why."""
    if mutant.what.startswith("griddepcontrol"):
        return mutant.operator in ("drop", "double", "hoist", "sink")
    return mutant.operator in ("drop", "hoist", "sink") and mutant.what.startswith("bar.sync")

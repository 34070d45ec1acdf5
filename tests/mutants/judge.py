"""What the checker says of a mutant, and whether that can be.

A mutant the checker accepts must do what its original does: for a reason that can be said (`arguments.py`), or because
no order of its launches is another (`order.py`); and as far as the executor sees. One that the checker refuses is
caught, right or wrong; where it is known to be harmless, that is noted.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

from tests.mutants.arguments import Case, Original, argument
from tests.mutants.edits import Mutant
from tests.mutants.goldens import Golden
from tests.mutants.mutate import BY_NAME, built, mutants
from tests.mutants.running import Observation, Runner
from tests.mutants.trace import Unknown
from tests.support.disjoint import all_apart
from wspec.check import Report, check
from wspec.ir.core import Operation

Verdict = Literal["caught", "equivalent", "other values", "undecided", "unexplained", "missed", "invalid", "crash"]
LIMIT_S = 10.0  # for the checker
FEW = 24  # runs to see whether a mutant that was refused is harmless
BY_ORDER = "No rule; but in none of the launches is there a deadlock or a race, in any order."


@dataclass(frozen=True, slots=True)
class Judgement:
    """One mutant."""

    golden: str
    operator: str
    name: str
    line: int
    change: str  # the operation, and what was done to it
    verdict: Verdict
    codes: tuple[str, ...] = ()  # of the checker's findings
    reason: str = ""  # why it does what the original does
    seen: str = ""  # by the executor, or wrong in some order
    harmless: bool = False  # refused or undecided, and yet there is a reason
    message: str = ""  # of the checker's first finding, or of its crash

    @staticmethod
    def of(data: Mapping[str, Any]) -> Judgement:
        """From what `asdict` and JSON make of one."""
        return Judgement(**{**data, "codes": tuple(data["codes"])})

    @property
    def place(self) -> str:
        return f"{self.golden} {self.name}"


class Judge:
    """Judges the mutants of one golden, with so many runs of those that are accepted, and perhaps of the others."""

    def __init__(self, golden: Golden, runs: int = 200, look_at_refused: bool = True) -> None:
        self.golden = golden
        self.module = golden.module()
        self.runs = runs
        self.look_at_refused = look_at_refused

    @cached_property
    def original(self) -> Original:
        return Original(self.module)

    @cached_property
    def runner(self) -> Runner:
        return Runner(self.golden)

    def by(self, operator: str) -> Iterator[Judgement]:
        """All mutants of one operator."""
        for mutant in mutants(self.module, [operator]):
            yield self.judge(mutant)

    def judge(self, mutant: Mutant) -> Judgement:
        module = built(mutant)
        if module is None:
            return self._judgement(mutant, "invalid")
        try:
            report = check(module, limit_s=LIMIT_S, disjoint=all_apart(module))
        except Exception as error:  # whatever it is, a mutant must not bring the checker down
            return self._judgement(mutant, "crash", message=f"{type(error).__name__}: {error}")
        if not report.ok:
            return self._refused(mutant, module, report)
        wrong, reason = self._reason(mutant, module)
        seen = self.runner.observe(module, self.runs)
        text = wrong or str(seen)
        return self._judgement(mutant, _accepted(wrong, reason, seen), reason=reason, seen=text)

    def _reason(self, mutant: Mutant, module: Operation) -> tuple[str, str]:
        """(What is wrong in some order, why nothing is); both are empty where nothing is known."""
        try:
            if wrong := self.runner.wrong_order(module):
                return wrong, ""
            known = BY_ORDER if BY_NAME[mutant.operator].about_order else ""
        except Unknown:
            known = ""
        return "", argument(Case(self.original, mutant, module)) or known

    def _refused(self, mutant: Mutant, module: Operation, report: Report) -> Judgement:
        _, reason = self._reason(mutant, module) if self.look_at_refused else ("", "")
        harmless = bool(reason) and self.runner.observe(module, FEW).is_in_order
        first = (report.errors or report.undecided)[0]
        return self._judgement(
            mutant,
            "caught" if report.errors else "undecided",
            codes=tuple(one.code for one in report.findings),
            reason=reason if harmless else "",
            harmless=harmless,
            message=first.message,
        )

    def _judgement(
        self,
        mutant: Mutant,
        verdict: Verdict,
        *,
        codes: tuple[str, ...] = (),
        reason: str = "",
        seen: str = "",
        harmless: bool = False,
        message: str = "",
    ) -> Judgement:
        edit = mutant.edit
        change = f"{edit.op.name} ({edit.what})" if edit.what else edit.op.name
        here = self.golden.name, mutant.operator, mutant.name, mutant.line, change, verdict
        return Judgement(*here, codes, reason, seen, harmless, message)


def _accepted(wrong: str, reason: str, seen: Observation) -> Verdict:
    """What to make of a mutant that the checker accepts."""
    if wrong or not seen.is_in_order:
        return "missed"
    if not reason:
        return "unexplained"
    return "equivalent" if seen.seen == "agrees" else "other values"

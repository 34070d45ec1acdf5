"""One kernel of a run: drawn from its number, examined, and made as small as can be if something is wrong with it."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from unittest import mock

import hypothesis
from hypothesis import HealthCheck, Phase
from hypothesis.internal.conjecture import providers
from hypothesis.internal.constants_ast import Constants

from tests.fuzz.case import Case, cases
from tests.fuzz.examine import SECONDS, examine
from tests.fuzz.findings import Finding, Verdict
from tests.fuzz.reduction import reduced


@dataclass(frozen=True, slots=True)
class Limits:
    """Seconds one kernel may take, and making it small may take in all (0: it stays as it is).

    Of the latter hypothesis gets a third, and what is left is cut.
    """

    kernel: float = SECONDS
    shrinking: float = 90.0


@dataclass(slots=True)
class Trial:
    """What came of a number."""

    number: int
    case: Case
    verdict: Verdict
    smallest: tuple[Case, Finding] | None = None  # of the first finding that was not known
    seconds: float = 0.0


class _Failed(Exception):
    """Tells hypothesis that this case shows what the first one did."""


@dataclass(slots=True)
class _Search:
    """What hypothesis calls with one case after the other."""

    folder: Path
    known: frozenset[str]
    limits: Limits
    calls: int = 0
    first: tuple[Case, Verdict] | None = None
    wanted: str = ""  # the signature to be kept
    smallest: tuple[Case, Finding] | None = None
    deadline: float = 0.0
    seen: dict[str, bool] = field(default_factory=dict)  # digest -> does it show the wanted signature?

    def call(self, case: Case) -> None:
        self.calls += 1
        if self.calls == 1:  # hypothesis starts with the simplest case there is, whatever the seed
            return
        if self.first is None:
            self._start(case)
        if self._shows(case):
            raise _Failed

    def _start(self, case: Case) -> None:
        verdict = examine(case, self.folder, self.limits.kernel)
        self.first = case, verdict
        fresh = [one for one in verdict.findings if one.signature not in self.known]
        if fresh:
            self.wanted, self.smallest = fresh[0].signature, (case, fresh[0])
        self.seen[case.digest()] = bool(fresh) and self.limits.shrinking > 0
        self.deadline = time.monotonic() + self.limits.shrinking / 3

    def cut(self) -> None:
        """Make the smallest case smaller yet."""
        self.deadline = time.monotonic() + self.limits.shrinking * 2 / 3
        if self.smallest is not None and self.limits.shrinking > 0:
            reduced(self.smallest[0], self._shows)

    def _shows(self, case: Case) -> bool:
        digest = case.digest()
        if digest not in self.seen:
            late = time.monotonic() > self.deadline
            found = [] if late else examine(case, self.folder, self.limits.kernel).findings
            same = [one for one in found if one.signature == self.wanted]
            self.seen[digest] = bool(same)
            if same:
                self.smallest = case, same[0]
        return self.seen[digest]


def made_small(case: Case, finding: Finding, folder: Path, limits: Limits) -> tuple[Case, Finding]:
    """A smaller case with the same finding, by cuts alone."""
    search = _Search(folder, frozenset(), limits, wanted=finding.signature, smallest=(case, finding))
    search.cut()
    assert search.smallest is not None
    return search.smallest


def try_number(number: int, folder: Path, known: frozenset[str] = frozenset(), limits: Limits | None = None) -> Trial:
    """Draw the case with that number and examine it. Signatures in `known` are not worth making it small for."""
    start = time.perf_counter()
    search = _Search(folder, known, limits or Limits())
    _drive(number, search)
    search.cut()
    assert search.first is not None, "hypothesis drew nothing"
    return Trial(number, *search.first, search.smallest, time.perf_counter() - start)


def draw(number: int) -> Case:
    """The case with that number."""
    drawn: list[Case] = []
    _hypothesis(number, lambda case: drawn.append(case), (Phase.generate,))
    return drawn[1]


def _drive(number: int, search: _Search) -> None:
    with contextlib.suppress(_Failed, hypothesis.errors.Flaky):  # flaky: fails only sometimes; what was found stands
        _hypothesis(number, search.call, (Phase.generate, Phase.shrink))


def _hypothesis(number: int, test: object, phases: tuple[Phase, ...]) -> None:
    """Two examples: the simplest, and the one that the seed gives."""
    settings = hypothesis.settings(
        max_examples=2, database=None, deadline=None, phases=phases, report_multiple_bugs=False,
        suppress_health_check=list(HealthCheck), verbosity=hypothesis.Verbosity.quiet, print_blob=False,
    )  # fmt: skip

    def body(case: Case) -> None:
        assert callable(test)
        test(case)

    with _no_constants_of_modules():
        hypothesis.seed(number)(settings(hypothesis.given(cases())(body)))()


@contextlib.contextmanager
def _no_constants_of_modules() -> Iterator[None]:
    """hypothesis draws numbers that it finds in modules that were imported: a number's kernel would depend on these."""
    none = Constants()
    cache = providers.CONSTANTS_CACHE.cache  # what may be taken of them, by kind
    cache.clear()
    with mock.patch.object(providers, "_get_local_constants", lambda: none):
        yield
    cache.clear()

"""What follows from the checker's verdict on the module that is compiled, under the option `check`."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from wspec.bridge.reproducer import failure, first_line, plain_runs, write_reproducer
from wspec.bridge.text import words_go_with_others
from wspec.diagnostics import Remark, render
from wspec.ir.disjoint import Disjoint
from wspec.ir.loc import Location
from wspec.ir.rows import Apart
from wspec.options import Options

if TYPE_CHECKING:
    from wspec.bridge.backend import Finished, Text

NOT_CHECKED = "not checked (check=off)"


@dataclass(frozen=True, slots=True)
class Proof:
    """What the checker says of a module."""

    summary: str  # in one line
    errors: tuple[Remark, ...] = ()
    undecided: tuple[Remark, ...] = ()
    timed_out: bool = False
    rows: tuple[tuple[Apart, Remark], ...] = ()  # what must hold of a launch, and what is so where it does not

    @property
    def line(self) -> str:
        """The verdict, and whose it is."""
        return f"checker: {self.summary}" if self.errors or self.undecided else self.summary

    def stops(self, options: Options) -> bool:
        """May the module not be run? `options.check` says what an undecided finding counts for."""
        return bool(self.errors or (self.undecided and options.check == "strict"))


Checker = Callable[[str, Disjoint], Proof]
"""TTGIR after the finishing passes, in generic form or Triton's own, and which of the arguments a launch makes sure do
not overlap -> what the checker says of it."""


class Proving:
    """The checker at work on a thread of its own, beside LLVM and ptxas, which leave the interpreter free."""

    def __init__(self, checker: Checker, disjoint: Disjoint, options: Options) -> None:
        self._checker, self._disjoint, self._wanted = checker, disjoint, options.check != "off"
        self._pool = ThreadPoolExecutor(1, "wspec-checker")
        self._proof: Future[Proof] | None = None

    def begin(self, final: Text) -> None:
        """Start on the module that will be compiled."""
        if self._wanted:
            self._proof = self._pool.submit(self._check, final)
            self._pool.shutdown(wait=False)

    def _check(self, final: Text) -> Proof:
        with words_go_with_others():
            return self._checker(final(), self._disjoint)

    def proof(self, final: str) -> Proof:
        """What came of it. Raises what the checker raised."""
        return self._checker(final, self._disjoint) if self._proof is None else self._proof.result()


@dataclass(frozen=True, slots=True)
class Ruling:
    """What is done about it."""

    accepted: bool  # the specialized kernel may run
    line: str
    remarks: tuple[Remark, ...] = ()
    final: bool = True  # False: another time it may be another
    rows: tuple[tuple[Apart, Remark], ...] = ()  # as Proof has them


def rule(name: str, place: Location, text: str, checker: Callable[[str], Proof], options: Options) -> Ruling:
    """Ask the checker about kernel `name`, whose source is at `place`. Never raises.

    An error, and a failure of the checker itself, leave a reproducer that `wspec check` reads.
    """
    if options.check == "off":
        return Ruling(True, NOT_CHECKED)
    try:
        proof = checker(text)
    except Exception as error:
        path = write_reproducer(name, text, traceback.format_exc(), options)
        message = f"the checker failed on the specialized {name}: {type(error).__name__}: {first_line(error)}"
        remark = failure("internal-error", message, place, path)
        return Ruling(False, "not checked: the checker failed", (remark,), final=False)
    if proof.errors:
        return Ruling(False, proof.line, _wrong(name, text, proof, options))
    undecided = tuple(_about(f"the specialized {name} is not proved", remark) for remark in proof.undecided)
    if not proof.stops(options):
        return Ruling(True, proof.line, undecided, rows=proof.rows)
    note = "the plain kernel runs instead; check=errors runs the specialized one all the same"
    return Ruling(False, proof.line, _with_note(undecided, note), final=not proof.timed_out)


def rule_ptx(name: str, place: Location, finished: Finished, options: Options) -> Ruling:
    """The same of the PTX: where it is not shown to do what was proved the plain kernel runs."""
    validation = finished.validation
    if options.check == "off":
        return Ruling(True, "")
    if not validation.refusal:
        return Ruling(True, validation.summary)
    path = write_reproducer(name, finished.final, f"{validation.summary}: {validation.refusal}", options)
    message = f"the PTX of the specialized {name} is not shown to do what was proved: {validation.refusal}"
    return Ruling(False, validation.summary, (failure("check-undecided", message, place, path),))


def _wrong(name: str, text: str, proof: Proof, options: Options) -> tuple[Remark, ...]:
    details = "\n\n".join(render(remark, context=False) for remark in (*proof.errors, *proof.undecided))
    again = "repeated by: wspec check --disjoint all (a launch compares arguments that must not overlap)"
    path = write_reproducer(name, text, f"{proof.summary}\n\n{details}\n\n{again}", options)
    errors = tuple(_about(f"the checker refuses the specialized {name}", remark) for remark in proof.errors)
    return _with_note(errors, plain_runs(path))


def _about(what: str, remark: Remark) -> Remark:
    return replace(remark, message=f"{what}: {remark.message.removeprefix('undecided: ')}")


def _with_note(remarks: tuple[Remark, ...], note: str) -> tuple[Remark, ...]:
    """After what the last one, which counts as the reason, says itself."""
    *others, last = remarks
    return (*others, replace(last, note="; ".join(filter(None, (last.note, note)))))

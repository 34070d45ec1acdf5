"""`wspec explain`: what was done and why; or why not, and what to change."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import replace

from rich.text import Text

from wspec import ir
from wspec.cli.compile_command import verdict
from wspec.cli.inputs import open_input
from wspec.cli.screen import remark_text, show
from wspec.cli.subject import Subject
from wspec.diagnostics import REASONS, Remark, place_text
from wspec.host_descriptors import compared
from wspec.model.machine import load_machine
from wspec.plan.overlap import in_words
from wspec.plan.plan import Plan
from wspec.planner.decide import function_of
from wspec.show.explain import changes, done, why


def run(args: argparse.Namespace) -> int:
    """Sentences with source lines."""
    subject = open_input(args)
    remarks, specialized = subject.remarks, subject.front.specialized and subject.specialized
    show(f"{subject.title}: {subject.became}", "")
    show(*(remark_text(replace(remark, note="")) for remark in remarks))
    if subject.proof:
        show(subject.proof)
    if specialized and subject.front.plan is not None:
        _explain_plan(subject, subject.front.plan)
    elif remarks:
        _section("what was done", subject.alone.in_words() if subject.alone is not None else [])
        _explain_reason(remarks[-1])
    return verdict(subject, remarks, specialized)


def _explain_plan(subject: Subject, plan: Plan) -> None:
    machine = load_machine(subject.options.machine)
    front = subject.front
    said = in_words(function_of(ir.read(front.stages["input"])), compared(front.disjoint, front.promotion))
    made = [] if front.promotion is None else front.promotion.in_words()
    rows = [f"a launch looks at its numbers, and runs the plain kernel where {words}" for words in subject.conditions]
    _section("what was done", [*done(plan, subject.operations), *made, *([said] if said else []), *rows])
    _section("why", why(plan, machine))
    _section("what you can change", changes(plan))


def _explain_reason(reason: Remark) -> None:
    _section("why", [f"{reason.code}: {REASONS[reason.code]}"])
    where, note = place_text(reason.location), reason.note or "nothing"
    _section("what to change", [note if note.startswith("nothing") or not where else f"{where}: {note}"])


def _section(title: str, lines: Sequence[str]) -> None:
    if lines:
        show("", Text(title, style="bold"), *(f"  {line}" for line in lines))

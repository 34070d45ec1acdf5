"""`wspec plan`: the plan, made here or given, as a table or as its text."""

from __future__ import annotations

import argparse
from dataclasses import replace

from wspec.cli.inputs import open_input
from wspec.cli.modules import write_output
from wspec.cli.screen import remark_text, show
from wspec.cli.subject import Subject
from wspec.diagnostics import WspecError
from wspec.plan.machine import load_machine
from wspec.show.tables import plan_view


def run(args: argparse.Namespace) -> int:
    """A table; with `--toml` the text. A kernel that is left alone has no plan, and the reason is shown."""
    subject = open_input(args)
    plan = subject.front.plan
    if plan is None:
        return _no_plan(subject, wanted=args.plan is not None or args.toml or args.output is not None)
    if args.output is not None:
        write_output(plan.to_text(), args.output)
    if args.toml:
        write_output(plan.to_text(), None)
    elif args.output is None:
        show(subject.title, "", plan_view(plan, subject.operations, load_machine(subject.options.machine)))
    return 0


def _no_plan(subject: Subject, wanted: bool) -> int:
    """The reason; an error for one who needs a plan to go on with."""
    reason = subject.front.reason
    assert reason is not None
    if wanted:
        raise WspecError(replace(reason, severity="error"))
    show(f"{subject.title}: there is no plan, the kernel is left as it was", "", remark_text(reason))
    return 0

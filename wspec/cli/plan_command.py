"""`wspec plan`: the plan, made here or given, as tables, as its text, or as JSON with the plans that lost."""

from __future__ import annotations

import argparse
import json
from dataclasses import replace
from typing import TYPE_CHECKING

from rich.console import RenderableType

from wspec import ir
from wspec.cli.inputs import open_input
from wspec.cli.modules import write_output
from wspec.cli.screen import remark_text, show
from wspec.cli.subject import KernelSubject, Subject
from wspec.diagnostics import Declined, WspecError
from wspec.model.machine import load_machine
from wspec.plan.plan import Plan
from wspec.show.tables import plan_view

if TYPE_CHECKING:
    from wspec.lab.search import Search


def run(args: argparse.Namespace) -> int:
    """Tables; with `--toml` the text, with `--json` all as values. Of a kernel that is left alone also the reason."""
    subject = open_input(args)
    plan = subject.front.plan
    wanted = args.toml or args.output is not None
    if plan is None and (wanted or args.plan is not None):
        assert subject.front.reason is not None
        raise WspecError(replace(subject.front.reason, severity="error"))
    if plan is not None and args.output is not None:
        write_output(plan.to_text(), args.output)
    if plan is not None and args.toml:
        write_output(plan.to_text(), None)
    if not wanted or args.json is not None:
        _explain(args, subject, plan)
    return 0


def _explain(args: argparse.Namespace, subject: Subject, plan: Plan | None) -> None:
    from wspec.lab.search.tables import plan_json, search_view

    found = None if args.no_runners_up or args.plan is not None else _search(subject)
    if args.json is not None:
        text = json.dumps(plan_json(plan, found), indent=1) + "\n"
        write_output(text, None if args.json == "-" else args.json)
    if args.json == "-" or args.toml or args.output is not None:
        return
    parts: list[RenderableType] = []
    if plan is None:
        assert subject.front.reason is not None
        title = f"{subject.title}: there is no plan, the kernel is left as it was"
        parts += ["", remark_text(subject.front.reason)]
    else:
        title = subject.title
        parts += ["", plan_view(plan, subject.operations, load_machine(subject.options.machine))]
    if found is not None:
        parts += ["", search_view(found, plan is not None)]
    show(title, *parts)


def _search(subject: Subject) -> Search | None:
    """The candidates; None for a kernel that cannot be specialized at all."""
    from wspec import bridge
    from wspec.lab.search import search

    module = ir.read(subject.front.stages["ttgir"])
    plain = None
    if isinstance(subject, KernelSubject):
        plain = ir.read(bridge.plain_ttgir(subject.offline.source))
    try:
        return search(module, load_machine(subject.options.machine), subject.options, plain=plain)
    except Declined:
        return None

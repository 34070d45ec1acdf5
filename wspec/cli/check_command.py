"""`wspec check`: a kernel, or a module as it is, has no deadlock and no race; or what stands against that."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rich.text import Text

from wspec import ir
from wspec.check import Report
from wspec.cli.child import placement
from wspec.cli.inputs import each_variant, is_ir, open_kernel, refuse_kernel_flags
from wspec.cli.modules import invalid, read_module, read_text, write_output
from wspec.cli.screen import remark_text, show
from wspec.diagnostics import Remark, bad_input, to_json
from wspec.ir.disjoint import NONE, Disjoint, Pair
from wspec.ir.loc import value_name
from wspec.ir.verify import verify
from wspec.proof import Placing, checked
from wspec.tile_scheduler import PARTIALS, TABLE

if TYPE_CHECKING:
    from wspec.cli.subject import KernelSubject

PLAIN = "plain"  # what Triton itself makes of a kernel


@dataclass(frozen=True, slots=True)
class Checked:
    """One module and the verdict on it."""

    title: str
    variant: str
    stage: str  # final, specialized, ttgir, PLAIN, or "" for a module that was given
    left_alone: Remark | None  # why a kernel was not specialized
    report: Report

    @property
    def verdict(self) -> str:
        return "proved" if self.report.ok else "wrong" if self.report.errors else "undecided"

    def to_json(self) -> dict[str, Any]:
        report = self.report
        return {
            "name": self.title,
            "variant": self.variant,
            "stage": self.stage,
            "left_alone": to_json(self.left_alone) if self.left_alone is not None else None,
            "verdict": self.verdict,
            "findings": [
                {**to_json(one.remark()), "kind": one.kind, "code": one.code, "message": one.message}
                for one in report.findings
            ],
            "assumptions": list(report.assumptions),
            "tasks": list(report.tasks),
            "barriers": report.barriers,
            "buffers": report.buffers,
            "states": report.states,
            "events": report.events,
            "seconds": round(report.seconds, 3),
        }


def run(args: argparse.Namespace) -> int:
    """0 when all is proved, else 1. Raises WspecError for what cannot be checked."""
    if not 0 < args.limit < 1e6:  # nor what is no number at all
        raise bad_input(f"--limit: {args.limit:g} seconds are no time to search")
    quiet, done = args.json == "-", list[Checked]()
    for one in _modules(args):
        if done and not quiet:
            show("")
        done.append(one)
        if not quiet:
            _show(one)
    if args.json is not None:
        write_output(json.dumps({"modules": [one.to_json() for one in done]}, indent=2), args.json)
    proved = sum(one.report.ok for one in done)
    if not quiet:
        assumed = dict.fromkeys(text for one in done for text in one.report.assumptions)
        show(*([""] if assumed else []), *(f"assumed: {text}" for text in assumed))
        show(*(["", f"{proved} of {len(done)} proved"] if args.all else []))
    return 0 if proved == len(done) else 1


def _modules(args: argparse.Namespace) -> Iterator[Checked]:
    if is_ir(args.input):
        yield _given(args)
        return
    for variant in each_variant(args) if args.all else [args]:
        yield _kernel(variant)


def _given(args: argparse.Namespace) -> Checked:
    refuse_kernel_flags(args, ("stage", "plain", "all", "plan"))
    place = "<stdin>" if args.input == "-" else args.input
    module = read_module(read_text(args.input), place)
    functions = [op for op in module.walk() if op.name == "tt.func"]
    if not functions:
        raise bad_input(f"{place} has no function to check")
    name = functions[0].str_attr("sym_name") or "kernel"
    disjoint = _disjoint(args.disjoint, functions[0]) if args.disjoint is not None else NONE
    return Checked(f"{name} of {place}", "", "", None, _report(module, place, args, disjoint, placement))


def _kernel(args: argparse.Namespace) -> Checked:
    if args.disjoint is not None:
        raise bad_input("--disjoint is for modules", "of a kernel the pairs are known that its launches compare")
    subject = open_kernel(args)
    stage, left_alone = args.stage or "final", None
    if args.plain:
        stage = PLAIN
    elif args.stage is None and not subject.front.specialized:  # then this is what runs
        stage, left_alone = PLAIN, subject.front.reason
    module = read_module(_text(subject, stage), f"{subject.name}, {stage}")
    disjoint = subject.front.disjoint if stage in ("final", "specialized") else NONE
    report = _report(module, f"{subject.name}, {stage}", args, disjoint)
    return Checked(subject.title, args.variant or "", stage, left_alone, report)


def _text(subject: KernelSubject, stage: str) -> str:
    """Of a stage; the last one is made without the back end, and whether or not the kernel may run."""
    from wspec import bridge

    if stage == PLAIN:
        return bridge.plain_ttgir(subject.offline.source)
    if stage != "final":
        return subject.text(stage)
    return bridge.final_ttgir(subject.text("specialized"), subject.offline.source)


def _disjoint(text: str, function: ir.Operation) -> Disjoint:
    """What `--disjoint` says. Raises WspecError for what are no pairs of arguments of the function."""
    names = [value_name(arg.location) for arg in function.regions[0].block.args]
    if text == "all":
        return Disjoint(own=next((at for at, name in enumerate(names) if name in (TABLE, PARTIALS)), None), every=True)
    pairs = set[Pair]()
    for pair in text.split(","):
        found = [names.index(name) if name in names else -1 for name in pair.strip().split(":")]
        if len(found) != 2 or min(found) < 0 or found[0] == found[1]:
            known = ", ".join(dict.fromkeys(name for name in names if name))
            raise bad_input(f"--disjoint: {pair.strip()!r} are no two arguments", f"a:b, with two of {known}")
        pairs.add((min(found), max(found)))
    return Disjoint(frozenset(pairs))


def _report(
    module: ir.Operation, place: str, args: argparse.Namespace, disjoint: Disjoint, placing: Placing | None = None
) -> Report:
    if problems := verify(module):
        raise invalid(problems, place)
    abstract = next((op for op in module.walk() if op.name.startswith("wspec.")), None)
    if abstract is not None:
        note = "the checker takes modules without operations of wspec's own: those from the pass finish on"
        raise bad_input(f"{place} is not lowered yet: it has {abstract.name}", note)
    return checked(module, args.limit, disjoint=disjoint, placing=placing)


def _show(one: Checked) -> None:
    stage = {"": "", PLAIN: ", as Triton itself makes it"}.get(one.stage, f", stage {one.stage}")
    show(f"{one.variant}: {one.title}{stage}" if one.variant else f"{one.title}{stage}")
    if one.left_alone is not None:
        show("", remark_text(one.left_alone))
    for finding in one.report.findings:
        show("", remark_text(finding.remark()))
    if one.report.findings and one.stage in ("specialized", "ttgir"):
        show("", "note: Triton's last passes, which add proxy fences, come after this stage")
    style = {"proved": "green", "wrong": "red", "undecided": "yellow"}[one.verdict]
    show("", Text(one.report.summary(), style=style))

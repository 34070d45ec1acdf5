"""`wspec compile`: everything, to the cubin."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path

from wspec.cli.inputs import open_input
from wspec.cli.screen import remark_text, show
from wspec.cli.subject import SUFFIXES, Subject
from wspec.diagnostics import Remark, WspecError, bad_input
from wspec.model.machine import load_machine
from wspec.show.binaries import binaries_view
from wspec.show.tables import plan_view

_FAILURES = ("internal-error", "compile-error", "miscompiled", "check-failed")


def run(args: argparse.Namespace) -> int:
    """Remarks, plan, resources; with `-o` every stage in a folder."""
    subject = open_input(args)
    if args.output is not None:
        _make_folder(Path(args.output))
    binary, specialized, remarks = subject.binary, subject.specialized, subject.remarks
    show(f"{subject.title}: {subject.became}", "")
    show(*(remark_text(remark) for remark in remarks), "")
    faulty = False
    if binary is not None and specialized:
        from wspec import bridge

        found = bridge.wrong_by_itself(binary.cubin)
        faulty = bool(found)
        show(*filter(None, [subject.proof]), bridge.sass_line(found), "")
    elif subject.proof:
        show(subject.proof, "")
    plan = subject.front.plan
    if plan is not None:
        show(plan_view(plan, subject.operations, load_machine(subject.options.machine)), "")
    if binary is None and subject.proof:
        show("no binary of what the checker refuses; --check off makes one all the same")
    elif binary is None:
        show("no binary: what Triton makes of the plain kernel starts from the kernel's source, not from its TTGIR")
    else:
        show(binaries_view({subject.name: binary.resources}))
    if args.output is not None:
        show("", f"{write_stages(subject, Path(args.output))} files in {args.output}")
    return 1 if faulty else verdict(subject, remarks, specialized)


def verdict(subject: Subject, remarks: tuple[Remark, ...], specialized: bool) -> int:
    """The exit code: 1 when the compiler itself failed. Raises WspecError for a kernel left alone under `--strict`."""
    if subject.options.strict and not specialized and subject.alone is None:
        code = remarks[-1].code if remarks else "not-partitionable"
        raise WspecError(Remark(code, f"{subject.name} is left alone, and strict=1", severity="error"))
    return 1 if any(remark.code in _FAILURES for remark in remarks) else 0


def write_stages(subject: Subject, folder: Path) -> int:
    """Every stage as a numbered file, and the cubin; how many files. Raises WspecError."""
    _make_folder(folder)
    try:
        files = dict(_files(subject))
        for name, data in files.items():
            (folder / name).write_bytes(data)
    except OSError as error:
        raise bad_input(f"cannot write to {folder}: {error.strerror}") from None
    return len(files)


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise bad_input(f"cannot write to {folder}: {error.strerror}") from None


def _files(subject: Subject) -> Iterator[tuple[str, bytes]]:
    for number, stage in enumerate(subject.stage_names()):
        yield f"{number:02}-{stage}.{SUFFIXES.get(stage, 'ttgir')}", subject.text(stage).encode()
    if subject.binary is not None:
        yield f"{subject.name}.cubin", subject.binary.cubin

"""The edited PTX beside the PTX as the back end wrote it: what the edits did, and that it may be done."""

from __future__ import annotations

from dataclasses import dataclass

from wspec.ptx.errors import PtxError
from wspec.ptx.parser import read
from wspec.ptx.syntax import Instruction, Module
from wspec.ptx.validation.alignment import align
from wspec.ptx.validation.early_start import show_early_start, show_unread
from wspec.ptx.validation.group_barriers import show_barriers
from wspec.ptx.validation.put_off import show_put_off
from wspec.ptx.validation.tied_values import show_tied, tied_in


@dataclass(frozen=True, slots=True)
class Validation:
    """What came of it."""

    summary: str  # in a line
    refusal: str = ""  # what cannot be shown; "" when all is


def validate(before: str, after: str, constant: int | None = None) -> Validation:
    """Does the edited text do what the one before it does, as far as threads wait for each other? Never raises.

    `constant`: the number of the entry's parameter that points to memory which no kernel writes.
    """
    if before == after:
        return Validation("PTX: as the back end wrote it")
    try:
        return validate_modules(read(before), read(after), constant)
    except PtxError as error:
        return _not_shown(error)


def validate_modules(before: Module, after: Module, constant: int | None = None) -> Validation:
    """The same of texts that have been read."""
    try:
        return Validation(_shown(before, after, constant))
    except PtxError as error:
        return _not_shown(error)


def _not_shown(error: PtxError) -> Validation:
    return Validation("PTX: the edits are not proved", error.message)


def _shown(before: Module, after: Module, constant: int | None) -> str:
    aligned = align(before, after)
    barriers = [one for one in aligned.gone if one.name in ("bar", "barrier")]
    arrivals = [one for one in aligned.gone if one.name == "mbarrier"]
    early = [one for one in aligned.come if one.name == "griddepcontrol"]
    tied = tied_in([one for one in aligned.come if one.name != "griddepcontrol"])
    ties = {id(one) for group in tied for one in group}
    again = [one for one in aligned.come if one.name != "griddepcontrol" and id(one) not in ties]
    rows = show_tied(aligned.merged, tied)
    show_put_off(aligned.merged, arrivals, again, barriers)
    show_barriers(aligned.merged, aligned.gone)
    show_unread(aligned.after, [one for one in aligned.gone if one.name == "mov"])
    if early:
        parameter = f"{aligned.after.name}_param_{constant}" if constant is not None else ""
        show_early_start(aligned.after, early, parameter)
    return f"PTX: {_counts(barriers, arrivals, early, rows)}, shown to be equivalent"


def _counts(barriers: list[Instruction], arrivals: list[Instruction], early: list[Instruction], rows: int) -> str:
    waits = sum(one.opcode == "griddepcontrol.wait" for one in early)
    parts = [
        f"{number} {what}{'' if number == 1 else 's'}{how}"
        for number, what, how in (
            (len(barriers), "barrier", " gone"),
            (len(arrivals), "arrival", " put off"),
            (waits, "early start", ""),
            (rows, "row", " beside others"),
        )
        if number
    ]
    return ", ".join(parts) or "other names"

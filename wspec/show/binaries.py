"""Binaries as a table a person can read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from wspec.show.tables import table

_ROWS: tuple[tuple[str, str], ...] = (
    ("registers", "registers a thread at launch"),
    ("spill_bytes", "bytes spilled"),
    ("shared_bytes", "bytes of shared memory"),
    ("warps", "warps"),
    ("hgmma", "HGMMA"),
    ("usetmaxreg", "USETMAXREG"),
    ("tma_loads", "TMA loads"),
    ("tma_stores", "TMA stores"),
    ("bar", "BAR (named barriers)"),
    ("syncs", "SYNCS (mbarriers)"),
)


def binaries_view(binaries: Mapping[str, Any]) -> RenderableType:
    """Side by side what `wspec.bridge.Resources` has of each, and the ptxas that made them."""
    made = table("binary", "", *binaries, right=list(binaries))
    for field, title in _ROWS:
        made.add_row(title, *(_fact(getattr(facts, field)) for facts in binaries.values()))
    versions = dict.fromkeys(facts.ptxas_version for facts in binaries.values())
    notes = dict.fromkeys(note for facts in binaries.values() for note in facts.ptxas_notes)
    said = f"; it said {', '.join(notes)}" if notes else ""
    return Group(made, Text(f"\nptxas {', '.join(versions)}{said}"))


def _fact(value: object) -> str:
    """A number; of register changes how many there are, and to what."""
    if not isinstance(value, tuple):
        return str(value)
    kinds = "/".join(str(count) for count in sorted(set(value), reverse=True))
    return f"{len(value)} (to {kinds})" if value else "0"

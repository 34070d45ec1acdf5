"""What ptxas says of a kernel that it has assembled."""

from __future__ import annotations

import re

FRAME = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
_NOTE = re.compile(r"\b(C75\d\d)\b")


def spill_bytes(ptxas_log: str) -> int:
    """Bytes spilled, stores and loads, without disassembling."""
    frame = FRAME.search(ptxas_log)
    return int(frame[2]) + int(frame[3]) if frame else 0


def ptxas_notes(ptxas_log: str) -> tuple[str, ...]:
    """The codes of advice ptxas gives about wgmma, e.g. C7510."""
    return tuple(sorted(set(_NOTE.findall(ptxas_log))))

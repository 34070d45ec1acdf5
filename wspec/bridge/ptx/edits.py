"""What is done to PTX between LLVM and ptxas, as the plan and the options say."""

from __future__ import annotations

from dataclasses import dataclass

from wspec.bridge.ptx.barrier_elision import without_idle_barriers
from wspec.bridge.ptx.held_waits import with_held_waits
from wspec.bridge.ptx.programmatic_launch import started_early


@dataclass(frozen=True, slots=True)
class PtxEdits:
    """Which edits a specialized kernel gets; none of them changes what it computes."""

    elide_barriers: bool = False  # barrier_elision.py
    hold_waits: bool = False  # held_waits.py
    programmatic_launch: bool = False  # programmatic_launch.py
    constant: int | None = None  # the number of the argument that points to what no kernel writes: the table of tiles

    def apply(self, ptx: str) -> str:
        """The PTX with the edits made."""
        if self.elide_barriers:
            ptx, _ = without_idle_barriers(ptx)
        if self.hold_waits:
            ptx, _ = with_held_waits(ptx)
        return started_early(ptx) if self.programmatic_launch else ptx


NO_EDITS = PtxEdits()

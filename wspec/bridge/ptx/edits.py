"""What is done to PTX between LLVM and ptxas, as the plan and the options say."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from wspec.bridge.ptx.barrier_elision import drop_idle_barriers
from wspec.bridge.ptx.code import Lines
from wspec.bridge.ptx.held_waits import hold_waits
from wspec.bridge.ptx.interleaved_rows import interleave_rows
from wspec.bridge.ptx.programmatic_launch import start_early
from wspec.ptx.errors import PtxError
from wspec.ptx.flow import reached
from wspec.ptx.parser import read
from wspec.ptx.syntax import Module


@dataclass(frozen=True, slots=True)
class PtxEdits:
    """Which edits a specialized kernel gets; none of them changes what it computes."""

    elide_barriers: bool = False  # barrier_elision.py
    hold_waits: bool = False  # held_waits.py
    programmatic_launch: bool = False  # programmatic_launch.py
    interleave_rows: bool = False  # interleaved_rows.py; `apply` is told where ptxas computes rows in turn
    constant: int | None = None  # the number of the argument that points to what no kernel writes: the table of tiles

    def apply(self, ptx: str, read: Callable[[str], Module] = read, in_turn: bool = False) -> str:
        """The PTX with the edits made; as it was, where it cannot be read. `read` may remember what it has read.

        `in_turn`: is it known that ptxas computes rows of it one after the other?
        """
        tied = self.interleave_rows and in_turn
        if not (self.elide_barriers or self.hold_waits or self.programmatic_launch or tied):
            return ptx
        lines = Lines(ptx)
        try:
            module = read(ptx)
            gone = {id(one) for one in drop_idle_barriers(module, lines)} if self.elide_barriers else set[int]()
            body = [one for one in reached(module.entry()) if id(one) not in gone]
            if self.hold_waits:
                hold_waits(body, lines)
            if tied:
                interleave_rows(module, lines)
            if self.programmatic_launch:
                start_early(module, body, lines)
        except PtxError:
            return ptx
        return lines.text()


NO_EDITS = PtxEdits()

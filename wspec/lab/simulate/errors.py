"""What the simulator cannot play."""

from __future__ import annotations

from wspec.diagnostics import Remark, WspecError
from wspec.ir.loc import UNKNOWN, Location


class SimulationError(WspecError):
    """A kernel, or the values it was given, that the simulator cannot play."""

    def __init__(self, message: str, location: Location = UNKNOWN, note: str = "") -> None:
        super().__init__(Remark("bad-input", message, location, note=note, severity="error"))

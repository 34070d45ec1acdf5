"""The one error of the executor: what was wrong, where in the source, in which task."""

from __future__ import annotations

from wspec.diagnostics import Remark, WspecError
from wspec.ir.loc import UNKNOWN, Location


class ExecutionError(WspecError):
    """A kernel did what no kernel may (an access outside memory, a failed assertion), or what is not known here.

    `location` is where in the source, `task` the name of the task it happened in; both may be filled in later, by
    `placed`, since the leaf that finds the fault knows neither.
    """

    def __init__(self, message: str, location: Location = UNKNOWN, task: str = "", note: str = "") -> None:
        where = f"{message} (in task {task})" if task else message
        super().__init__(Remark("execution-error", where, location, note=note, severity="error"))
        self.message = message
        self.location = location
        self.task = task
        self.note = note

    def placed(self, location: Location, task: str = "") -> ExecutionError:
        """The same error with the location and the task, where it has none yet."""
        found = self.location if self.location != UNKNOWN else location
        return ExecutionError(self.message, found, self.task or task, self.note)

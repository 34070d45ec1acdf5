"""Failures that can be repeated: the choices that led to one, and fewer choices that do too."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from wspec.execute.errors import ExecutionError
from wspec.execute.schedule import Program, Recorded, Schedule

_SHOWN = 40  # choices that an error's text holds


@dataclass(frozen=True, slots=True)
class Replay:
    """The choices that one program of the grid made, each the position among those that could go next."""

    program: Program
    choices: tuple[int, ...]
    made_by: str = ""  # the schedule

    @property
    def schedule(self) -> Schedule:
        """Makes the same choices again; other programs run without surprises."""
        return Recorded(self.choices, self.program)

    def to_json(self) -> str:
        """Text that `from_json` reads."""
        data = {"program": self.program, "choices": self.choices, "made_by": self.made_by}
        return json.dumps(data) + "\n"

    @staticmethod
    def from_json(text: str) -> Replay:
        """Raises ValueError, which says what is wrong."""
        data: Any = json.loads(text)
        if not isinstance(data, dict) or not {"program", "choices"} <= set(data):
            raise ValueError("a replay is a JSON object with program and choices")
        program, choices = data["program"], data["choices"]
        if not _are_numbers(program) or len(program) != 3 or not _are_numbers(choices):
            raise ValueError("program must be three numbers, and choices a list of numbers, none negative")
        return Replay((program[0], program[1], program[2]), tuple(choices), str(data.get("made_by", "")))

    def __str__(self) -> str:
        choices = ", ".join(map(str, self.choices[:_SHOWN]))
        if len(self.choices) > _SHOWN:
            choices += f", ... {len(self.choices)} in all"
        return f"Recorded([{choices}], program={self.program})"


def _are_numbers(value: Any) -> bool:
    return isinstance(value, list) and all(type(item) is int and item >= 0 for item in value)


class ProgramError(ExecutionError):
    """What went wrong in one program of the grid, and the choices that lead there."""

    def __init__(self, error: ExecutionError, replay: Replay) -> None:
        how = f"to replay, run it with schedule={replay}"
        super().__init__(error.message, error.location, error.task, f"{error.note}\nnote: {how}" if error.note else how)
        self.cause = error
        self.replay = replay

    def is_like(self, other: ProgramError) -> bool:
        """Is it the same fault: of the same operation, said in the same words but for numbers and positions?"""
        return self.location == other.location and _words(self.message) == _words(other.message)


def _words(message: str) -> list[str]:
    head = message.split(";")[0]  # of a deadlock: not who waits for what
    return [word for word in head.split() if word.isalpha()]


Attempt = Callable[[Schedule], object]
"""Runs the kernel anew, on fresh arguments, under a schedule; raises ProgramError where it fails."""


def minimize(attempt: Attempt, failure: ProgramError, budget: int = 300) -> ProgramError:
    """A failure like `failure` with fewer choices that matter, by at most `budget` runs.

    First the choices are cut off at the end, for what follows is then no choice any more: the first that is ready goes
    on. Then pieces of those left, halves first and single ones last, are set to that too (delta debugging).
    """
    shrink = _Shrink(attempt, failure, budget)
    before: Sequence[int] | None = None
    while before != shrink.choices and shrink.left > 0:
        before = shrink.choices
        shrink.cut()
        shrink.flatten()
    return shrink.best


class _Shrink:
    def __init__(self, attempt: Attempt, failure: ProgramError, budget: int) -> None:
        self.attempt = attempt
        self.best = failure
        self.choices = failure.replay.choices
        self.left = budget

    def works(self, choices: tuple[int, ...]) -> bool:
        """Do these choices lead to the failure? Then they are the best so far."""
        if self.left <= 0:
            return False
        self.left -= 1
        program = self.best.replay.program
        try:
            self.attempt(Recorded(choices, program))
        except ProgramError as error:
            if error.is_like(self.best) and error.replay.program == program:
                kept = _trimmed(choices)
                self.choices = kept
                self.best = ProgramError(error.cause, Replay(program, kept, self.best.replay.made_by))
                return True
        return False

    def cut(self) -> None:
        """The shortest beginning that fails, if failing is monotonous; a short one anyway."""
        low, high = 0, len(self.choices)
        while low < high:
            middle = (low + high) // 2
            if self.works(self.choices[:middle]):
                high = min(middle, len(self.choices))
            else:
                low = middle + 1
            if self.left <= 0:
                return

    def flatten(self) -> None:
        """Pieces that need not be chosen."""
        size = len(self.choices)
        while size >= 1 and self.left > 0:
            at = 0
            while at < len(self.choices):
                piece = self.choices[at : at + size]
                if any(piece):
                    self.works((*self.choices[:at], *(0,) * len(piece), *self.choices[at + size :]))
                at += size
            size //= 2


def _trimmed(choices: tuple[int, ...]) -> tuple[int, ...]:
    """Without zeros at the end, which is what comes after the end anyway."""
    end = len(choices)
    while end and choices[end - 1] == 0:
        end -= 1
    return choices[:end]

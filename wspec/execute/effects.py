"""What a task has issued and what has not happened yet, as shared memory and the machine see it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from wspec.ir.core import Operation


class Issuer(Protocol):
    """A task, as its effects see it."""

    index: int
    name: str

    @property
    def threads(self) -> int: ...

    @property
    def dots(self) -> Sequence[Effect]: ...

    def site_of(self, op: Operation) -> int:
        """The number of the operation in the program; -1 for one that is not numbered."""
        ...

    def fault(self, message: str, op: Operation, note: str = "") -> None: ...


class Effect:
    """Something issued that has not happened yet."""

    __slots__ = ("done", "known", "number", "op", "site", "task")
    is_task = False
    what = "an asynchronous operation"

    def __init__(self, task: Issuer, op: Operation) -> None:
        self.task = task
        self.op = op
        self.site = task.site_of(op)
        self.done = False
        self.number = 0  # among those of its task
        self.known: dict[int, int] = {}  # what it comes after (races.py)

    @property
    def index(self) -> int:
        return self.task.index

    def can_happen(self) -> bool:
        """Or must something else of the task happen first?"""
        return True

    def happen(self) -> None:
        """Do it. Called once."""
        self.done = True

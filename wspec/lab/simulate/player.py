"""What plays an SM, as its parts see it: time, results, and how a warp group goes on."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Protocol

from wspec.lab.simulate.actions import Action, Block
from wspec.lab.simulate.clock import Clock
from wspec.lab.simulate.costs import Numbers
from wspec.lab.simulate.state import Group, Instance
from wspec.lab.simulate.timeline import SmResult


class Player(Protocol):
    """The engine (`engine.py`), without its parts."""

    numbers: Numbers
    result: SmResult
    clock: Clock
    instances: dict[int, Instance]

    @property
    def todo(self) -> Sequence[Collection[Block]]:
        """By slot, blocks that have not begun."""
        ...

    def slice(self, track: str, name: str, start: float, action: Action | None, cause: str = "") -> None:
        """Note what was done up to now."""
        ...

    def resume(self, group: Group, cause: str) -> None:
        """The action is over; the warp group waited in it."""
        ...

    def resume_after(self, delay: float, group: Group, cause: str) -> None: ...

    def computing(self, group: Group) -> int:
        """How many other warp groups have instructions for the schedulers at this moment."""
        ...

    def give_up(self) -> None:
        """Nothing more is played: all blocks end now."""
        ...

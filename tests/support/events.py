"""CUDA events for tests of what is timed: a queue whose clock the test moves."""

from __future__ import annotations


class Event:
    """Of a queue that `Event.now` milliseconds have passed in."""

    now = 0.0

    def record(self) -> None:
        self.at = Event.now

    def elapsed_time(self, later: Event) -> float:
        return later.at - self.at

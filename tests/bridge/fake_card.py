"""Stands for a card's addresses: notes what is reserved and mapped."""

from __future__ import annotations

from wspec.bridge.ground import PAGE, RANGE, Grounds


class Card:
    """Refuses the first so many ranges, or gives each so many bytes from where it is wanted."""

    def __init__(self, refused: int = 0, elsewhere: int = 0) -> None:
        self.refused, self.elsewhere = refused, elsewhere
        self.ranges: list[int] = []
        self.pages: set[int] = set()
        self.grounds = Grounds(self)

    def reserve(self, wanted: int, size: int) -> int | None:
        assert size == RANGE and wanted % PAGE == 0
        self.refused -= 1
        if self.refused >= 0:
            return None
        self.ranges.append(wanted + self.elsewhere)
        return self.ranges[-1]

    def release(self, at: int, size: int) -> None:
        assert size == RANGE
        self.ranges.remove(at)

    def map(self, at: int) -> bool:
        assert at % PAGE == 0 and at not in self.pages
        assert any(begin <= at and at + PAGE <= begin + RANGE for begin in self.ranges)
        self.pages.add(at)
        return True

    def holds(self, address: int) -> bool:
        """Is there memory?"""
        return {address // PAGE * PAGE, (address + 15) // PAGE * PAGE} <= self.pages

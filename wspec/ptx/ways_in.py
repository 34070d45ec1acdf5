"""On which ways a role's threads come to a block, and what they pass."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import networkx as nx

from wspec.ptx import flow
from wspec.ptx.fixed_points import all_from

_OUTSIDE = -1  # leads to the blocks that the role's threads begin with

Place = tuple[flow.Block, int]
"""An instruction, by its block and its number there."""


class WaysIn:
    """How blocks are entered."""

    def __init__(self, blocks: Sequence[flow.Block]) -> None:
        self._numbered = {block.number: block for block in blocks}
        self._before: dict[int, list[int]] = {}
        for block in blocks:
            for way in block.follow:
                if way in self._numbered:
                    self._before.setdefault(way, []).append(block.number)
        graph = nx.DiGraph((before, way) for way, those in self._before.items() for before in those)
        begin = (number for number in self._numbered if number == 0 or number not in self._before)
        graph.add_edges_from((_OUTSIDE, number) for number in begin)
        self._above = nx.immediate_dominators(graph, _OUTSIDE)
        self._between: dict[int, frozenset[int]] = {}

    def kept_since(self, block: flow.Block, writing: set[int]) -> flow.Block | None:
        """The last block that every way in comes through, where no block from there on is one of those that write.

        So a register that these write holds, where `block` is entered, what it held at the end of that block. None
        where there is no such block, or one of them may come in between.
        """
        above = self._numbered.get(self._above.get(block.number, _OUTSIDE))
        return above if above is not None and writing.isdisjoint(self._from_above(block.number)) else None

    def _from_above(self, number: int) -> frozenset[int]:
        """The blocks on ways from the block above to this one, which belongs to them if it is in a loop below that."""
        if number not in self._between:
            above = self._above[number]

            def before(one: int) -> Iterator[int]:
                return (way for way in self._before[one] if way != above)

            self._between[number] = frozenset(all_from(before(number), before))
        return self._between[number]

    def leads_past(self, source: Place, stops: Sequence[Place], target: Place) -> bool:
        """Is there a way from behind an instruction to in front of a place that passes none of the stops?"""
        work, seen = [(source[0], source[1] + 1)], set[int]()
        while work:
            here, start = work.pop()
            end = min((at for block, at in stops if block is here and at >= start), default=len(here.instructions))
            if here is target[0] and start <= target[1] <= end:
                return True
            if end == len(here.instructions):
                following = [number for number in here.follow if number in self._numbered and number not in seen]
                seen.update(following)
                work += [(self._numbered[number], 0) for number in following]
        return False

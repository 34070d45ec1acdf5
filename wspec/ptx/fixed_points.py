"""Going through a graph until nothing new is found."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Set
from typing import TypeVar

K = TypeVar("K")
S = TypeVar("S")


def all_from(starts: Iterable[K], following: Callable[[K], Iterable[K]]) -> set[K]:
    """The starts, and what they lead to, and what that leads to, and so on."""
    found = set(starts)
    work = list(found)
    while work:
        for one in following(work.pop()):
            if one not in found:
                found.add(one)
                work.append(one)
    return found


def states_before(
    begin: Mapping[K, S], behind: Callable[[K, S], Iterable[tuple[K, S]]], joined: Callable[[S, S], S]
) -> dict[K, S]:
    """What holds before each block that is come to. `begin`: before the first ones; `behind`: of a block and what holds
    before it, the blocks that follow and what holds there; `joined`: what holds where two ways meet."""
    before = dict(begin)
    work = list(before)
    while work:
        block = work.pop()
        for way, state in behind(block, before[block]):
            now = joined(before[way], state) if way in before else state
            if way not in before or now != before[way]:
                before[way] = now
                work.append(way)
    return before


def live_before(
    follow: Mapping[int, Iterable[int]], uses: Mapping[int, Set[K]], makes: Mapping[int, Set[K]]
) -> dict[int, set[K]]:
    """What is still needed before each block, of one that `uses` something before it `makes` anything."""
    before: dict[int, list[int]] = {}
    for block, ways in follow.items():
        for way in ways:
            before.setdefault(way, []).append(block)
    live = {block: set(needed) for block, needed in uses.items()}
    work = list(live)
    while work:
        block = work.pop()
        for way in before.get(block, ()):
            more = live[block] - makes[way] - live[way]
            if more:
                live[way] |= more
                work.append(way)
    return live

"""Which block every way to a block leads through last.

By Cooper, Harvey and Kennedy, "A Simple, Fast Dominance Algorithm" (2001).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from wspec.ptx.flow import Block


def dominators(blocks: Sequence[Block]) -> dict[int, int]:
    """Of each block that is reached from the first but for that one, the last other block on every way to it."""
    order = _reverse_postorder(blocks)
    place = {number: at for at, number in enumerate(order)}
    before: dict[int, list[int]] = {number: [] for number in order}
    for block in blocks:
        for way in block.follow if block.number in place else ():
            if way in place:
                before[way].append(block.number)
    found = {order[0]: order[0]}
    changed = True
    while changed:
        changed = False
        for number in order[1:]:
            known = [one for one in before[number] if one in found]
            common = known[0]
            for one in known[1:]:
                common = _common(common, one, found, place)
            if found.get(number) != common:
                found[number], changed = common, True
    del found[order[0]]
    return found


def _common(one: int, other: int, found: Mapping[int, int], place: Mapping[int, int]) -> int:
    while one != other:
        while place[one] > place[other]:
            one = found[one]
        while place[other] > place[one]:
            other = found[other]
    return one


def _reverse_postorder(blocks: Sequence[Block]) -> list[int]:
    numbered = {block.number: block for block in blocks}
    first = blocks[0].number
    done: list[int] = []
    seen, work = {first}, [(first, iter(numbered[first].follow))]
    while work:
        number, ways = work[-1]
        way = next((way for way in ways if way in numbered and way not in seen), None)
        if way is None:
            done.append(number)
            work.pop()
        else:
            seen.add(way)
            work.append((way, iter(numbered[way].follow)))
    return done[::-1]


def between(first: int, last: int, blocks: Sequence[Block]) -> set[int]:
    """The blocks on the ways from one to another that do not come to the first again, with the last, without the
    first."""
    before: dict[int, list[int]] = {}
    for block in blocks:
        for way in block.follow:
            before.setdefault(way, []).append(block.number)
    found, work = {last}, [last]
    while work:
        for one in before.get(work.pop(), ()):
            if one != first and one not in found:
                found.add(one)
                work.append(one)
    return found

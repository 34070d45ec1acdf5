"""Ways through a role, told apart by predicates that several of its branches ask.

LLVM skips what is in front of a loop and what is behind it by one predicate, both or neither. Who follows a role's ways
without that finds some that no thread goes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from wspec.ptx.effects import has_target, writes
from wspec.ptx.flow import Block
from wspec.ptx.roles import Role

MOST = 6  # predicates that are followed, with two states each

Known = frozenset[tuple[str, bool]]
"""What predicates are known to be."""

NOTHING: Known = frozenset()


def guards_of(blocks: Sequence[Block], role: Role) -> dict[str, int]:
    """The predicates that several branches of a role ask and one instruction sets, with the block of that; a few at
    most."""
    turns = [turn for number in sorted(role.blocks) if (turn := blocks[number].turn) is not None and turn.name == "bra"]
    asked = Counter(turn.guard for turn in turns if turn.guard)
    several = [guard for guard, count in asked.items() if count > 1]
    places: dict[str, list[int]] = {guard: [] for guard in several}
    for number in sorted({*role.blocks, *role.way}):
        for one in blocks[number].instructions:
            for name in writes(one) if has_target(one) else ():
                if name in places:
                    places[name].append(number)
    once = {guard: found[0] for guard, found in places.items() if len(found) == 1 and found[0] in role.blocks}
    return {guard: once[guard] for guard in list(once)[:MOST]}


def ways_of(block: Block, known: Known, guards: Mapping[str, int]) -> Iterator[tuple[int, Known]]:
    """The blocks behind one, each with what is known there of `guards`; `known`: at its beginning."""
    turn = block.turn
    held = {guard: value for guard, value in known if guards[guard] != block.number}  # what it sets is another one now
    left = frozenset(held.items())
    if turn is None or turn.name != "bra" or turn.guard not in guards or len(block.follow) != 2:
        yield from ((way, left) for way in block.follow)
        return
    for way, value in zip(block.follow, (not turn.unless, turn.unless), strict=True):
        if held.get(turn.guard, value) == value:
            yield way, left | {(turn.guard, value)}

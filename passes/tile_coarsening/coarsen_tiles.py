"""coarsen_tiles: let the consumer groups of a block work on neighbouring tiles at a time, on one stream of operands.

    for tile (x, y, z):                        for tiles (x .. x + 2, y, z):
      for j < n(x): k = load K[j]; ...    =>     x' = min(x + member, last)
                                                 for j < min over members of n:  k = load K[j]; ...
                                                 for j < max over members of n:  k = load K[j]
                                                                                 if j < n(x'): ...

`member` is the number of the group; later passes put it in for each. What does not depend on it is loaded once for
all. Members whose loops end at different times (a causal mask) have a common part, which stays the loop it was, and a
rest in which a member works or only lets the tile pass. A loop that goes on where the one before ended (the masked
part) becomes a part of that rest. So all groups take the same number of tiles from every ring.

Runs after persist and before the plan is made.
"""

from __future__ import annotations

from dataclasses import dataclass

from wspec.ir.builder import Builder
from wspec.ir.core import Block, Operation, Region, Value, functions, replace_uses
from wspec.ir.isomorphism import Match
from wspec.ir.numbering import ID
from wspec.ir.types import I32, i32
from wspec.passes.tile_coarsening.choice import hindrance
from wspec.passes.tile_coarsening.counted_offsets import count_offsets, is_same
from wspec.plan.coarsening import MEMBER, differing_in, slice_in
from wspec.plan.partition import hot_loops
from wspec.plan.tile_table import grid_size, tile_loop

LOAD = "tt.descriptor_load"


class CannotCoarsen(Exception):
    """Why the tiles cannot be worked on by a team, and the operation at fault."""

    def __init__(self, why: str, where: Operation) -> None:
        super().__init__(why)
        self.where = where


def coarsen_tiles(module: Operation, size: int, axis: int = 0) -> Operation:
    """Let `size` groups work on neighbours along a grid axis, in place.

    Raises CannotCoarsen; the module is spoilt then.
    """
    function = functions(module)[0]
    tile = tile_loop(function)
    if (found := hindrance(function, tile)) is not None:
        raise CannotCoarsen(*found)
    block, outer = tile.regions[0].block, tile.parent
    assert outer is not None
    first = block.args[2 + axis]
    if not any(first in op.operands for op in block.walk()):
        raise CannotCoarsen(f"its tiles are all the same along {'xyz'[axis]}", tile)
    before = Builder.before(tile)
    extent = grid_size(before, function, axis)
    last = before.binary("arith.subi", extent, before.constant(1))
    within = Builder(block, 0, tile.location)
    member = within.create(MEMBER, [], [I32], attributes={"size": i32(size)}).result
    mine = within.binary("arith.minsi", within.binary("arith.addi", first, member), last)
    mine.location = first.location
    for op in block.ops[within.at or 0 :]:
        replace_uses(op, {first: mine})
    team = _Team(function, block, first, mine, last, size)
    loops = [op for op in hot_loops(function) if op.parent is block]
    if len(loops) != len(hot_loops(function)):
        raise CannotCoarsen("its loops that multiply stand in other loops or in branches", tile)
    for loop in loops:
        count_offsets(loop)
    varies = team.varies
    if not any(_shares(loop, varies) for loop in loops):
        raise CannotCoarsen("neighbouring tiles share nothing that its loops load", loops[0])
    while loops:
        loop = loops.pop(0)
        if not team.varies.isdisjoint(loop.operands[:3]):
            following = loops.pop(0) if loops and _goes_on(loop, loops[0]) else None
            _divide(team, loop, following)
    return module


@dataclass(frozen=True, slots=True)
class _Team:
    function: Operation
    block: Block  # the body of the loop over tiles
    first: Value  # the tile of member 0
    mine: Value
    last: Value  # the last tile of the axis
    size: int

    @property
    def varies(self) -> set[Value]:
        return differing_in(self.function.regions[0].block, {self.mine})


def _shares(loop: Operation, varies: set[Value]) -> bool:
    """Does the loop load a tile whose place is the same for all members?"""
    return any(_place(load, loop, varies) is not None for load in loop.regions[0].block.ops if load.name == LOAD)


def _place(load: Operation, loop: Operation, varies: set[Value]) -> list[Operation] | None:
    """What in a loop computes where its load is from, if that depends on the iteration and on what all members have."""
    body = loop.regions[0].block
    within = {*body.args[1:], *(value for op in body.ops for value in op.results)}
    ops = slice_in(body, load.operands, within)
    if ops is None:
        return None
    made = {body.args[0], *(value for op in ops for value in op.results)}
    return None if any(v in varies and v not in made for op in (*ops, load) for v in op.operands) else ops


# ------------------------------------------------------------------------------- loops of different length


def _goes_on(one: Operation, two: Operation) -> bool:
    """Does the second loop take up where the first one ends: its bounds, its loads and all that it carries?"""
    if not is_same(two.operands[0], one.operands[1]) or not is_same(two.operands[2], one.operands[2]):
        return False
    return sorted(v.index for v in two.operands[3:] if v.op is one) == list(range(len(one.results)))


def _divide(team: _Team, one: Operation, two: Operation | None) -> None:
    """Make a loop, and the one that goes on behind it, a common part and a rest."""
    lower, upper, step = one.operands[:3]
    varies = team.varies
    stride, start = step.number, lower.number
    if stride is None or stride <= 0 or start is None or one.attr("unsignedCmp") is not None:
        raise CannotCoarsen("the members' loops differ in length, and begin or step by what is not a constant", one)
    if not _is_multiple(upper, start, stride, team.mine):
        raise CannotCoarsen("the members' loops differ in length, which is not known to be whole steps", one)
    ends = upper if two is None else two.operands[1]
    at = one if two is None else two
    if two is not None:
        _check_only_carried_on(team.block, one, two)
        _move_up(team.block, one, two)
    build = Builder.before(one)
    common = _of_all(team, build, "arith.minsi", upper, varies)
    furthest = ends if two is None else build.binary("arith.maxsi", upper, ends)
    longest = _of_all(team, build, "arith.maxsi", furthest, {*varies, furthest})
    one.operands[1] = common
    if two is None:
        replaced = list(one.results)
    else:
        replaced = [two.results[[v.index for v in two.operands[3:]].index(i)] for i in range(len(one.results))]
    behind = team.block.behind(at)
    rest = _rest(Builder.behind(at, one.location), team, one, two, upper, ends, longest)
    for op in behind:
        replace_uses(op, dict(zip(replaced, rest.results, strict=True)))
    if two is not None:
        two.erase()


def _is_multiple(value: Value, start: int, step: int, tile: Value) -> bool:
    """Is it start, or beyond it by whole steps: the tile's first row, or `x // c * c` of an x that is not negative?

    Neither overflows: the one is a row of a tensor, the other at most x.
    """
    op = value.op
    if op is None or op.name != "arith.muli" or start != 0:
        return False
    for whole, by in (op.operands, reversed(op.operands)):
        factor, divided = by.number, whole.op
        if factor is None or factor <= 0 or factor % step:
            continue
        if whole is tile:
            return True
        if divided is None or divided.name != "arith.divsi":
            continue
        if (divided.operands[1].number or 0) >= factor and _not_negative(divided.operands[0]):
            return True
    return False


def _not_negative(value: Value) -> bool:
    op = value.op
    if op is None:
        return False
    if op.name == "arith.constant":
        return (op.result.number or 0) >= 0
    if op.name == "arith.maxsi":
        return any(_not_negative(v) for v in op.operands)
    if op.name in ("arith.divsi", "arith.minsi", "arith.shrsi", "arith.remsi"):
        return all(_not_negative(v) for v in op.operands)
    return False


def _of_all(team: _Team, build: Builder, how: str, value: Value, varies: set[Value]) -> Value:
    """The least or greatest of what a value is for each member."""
    ops = slice_in(team.block, [value], varies)
    if ops is None:
        raise CannotCoarsen("the length of the loop is not computed from the tile by arithmetic alone", team.function)
    own = ops[ops.index(team.mine.op) + 1 :] if team.mine.op in ops else ops
    found: Value | None = None
    for member in range(team.size):
        tile = build.binary("arith.addi", team.first, build.constant(member)) if member else team.first
        values = {team.mine: build.binary("arith.minsi", tile, team.last) if member else tile}
        for op in own:
            build.add(op.clone(values))
        this = values.get(value, value)
        found = this if found is None else build.binary(how, found, this)
    assert found is not None
    return found


def _check_only_carried_on(block: Block, one: Operation, two: Operation) -> None:
    """The second loop alone may use what the first one computes. Raises CannotCoarsen."""
    results = set(one.results)
    for top in block.behind(one):
        for op in top.walk():
            if op is not two and any(value in results for value in op.operands):
                raise CannotCoarsen("what the first of two loops computes is used behind it, beside the second", op)


def _move_up(block: Block, one: Operation, two: Operation) -> None:
    """Let everything between the two loops stand before the first: nothing there needs its results."""
    first, second = block.ops.index(one), block.ops.index(two)
    for op in block.ops[first + 1 : second]:
        if op.regions or any(v in one.results for v in op.operands):
            raise CannotCoarsen("the second of two loops needs more of the first than what it carries on", op)
        op.erase()
        block.insert(block.ops.index(one), op)


def _rest(
    build: Builder, team: _Team, one: Operation, two: Operation | None, upper: Value, ends: Value, longest: Value
) -> Operation:
    """The loop in which members work as long as they have iterations left."""
    region = Region()
    block = region.add_block()
    index = block.add_arg(one.regions[0].block.args[0].type, one.regions[0].block.args[0].location)
    carried = [block.add_arg(v.type) for v in one.results]
    inner = Builder(block, None, one.location)
    tiles = _loads(inner, team, one, two, index)
    goes_on = inner.compare("slt", index, upper)

    def work(side: Builder, loop: Operation, order: list[int]) -> list[Value]:
        body = loop.regions[0].block
        values: dict[Value, Value] = {body.args[0]: index}
        values.update(zip(body.args[1:], (carried[i] for i in order), strict=True))
        loads = [op for op in body.ops if op.name == LOAD]
        values.update(zip((op.result for op in loads), tiles, strict=True))
        for op in body.ops[:-1]:
            if op not in loads:
                side.add(op.clone(values))
        yielded = [values.get(v, v) for v in body.terminator.operands]
        return [yielded[order.index(i)] for i in range(len(order))]

    def masked(side: Builder) -> list[Value]:
        if two is None:
            return carried
        nested, order = Builder(side.block, location=two.location), [v.index for v in two.operands[3:]]
        runs = nested.compare("slt", index, ends)
        return nested.branch(runs, lambda inside: work(inside, two, order), lambda _: carried)

    done = inner.branch(goes_on, lambda side: work(side, one, list(range(len(carried)))), masked)
    inner.create("scf.yield", done)
    operands = [one.operands[1], longest, one.operands[2], *one.results]
    return build.create("scf.for", operands, [v.type for v in carried], one.properties, {}, [region])


def _loads(build: Builder, team: _Team, one: Operation, two: Operation | None, index: Value) -> list[Value]:
    """The tiles of one iteration, for whoever needs them."""
    body, varies = one.regions[0].block, team.varies
    ops = _with_places(one, varies)
    if two is not None:
        first = two.regions[0].block.args[0]
        match = Match({body.args[0]}, {first})
        if not match.pair(body.args[0], first) or not match.operations(ops, _with_places(two, varies), frozenset({ID})):
            raise CannotCoarsen("two loops in a row load different tiles", two)
    values = {body.args[0]: index}
    for op in ops:
        build.add(op.clone(values))
    return [values[op.result] for op in ops if op.name == LOAD]


def _with_places(loop: Operation, varies: set[Value]) -> list[Operation]:
    """The loads of a loop, with what computes where they are from."""
    found: set[Operation] = set()
    for load in (op for op in loop.regions[0].block.ops if op.name == LOAD):
        place = _place(load, loop, varies)
        if place is None:
            raise CannotCoarsen(
                "a tile's place in a loop of different lengths depends on more than the iteration", load
            )
        found.update(place, {load})
    return [op for op in loop.regions[0].block.ops if op in found]

"""fix_up: sums go from the block that does the first part of a tile to the one that does the rest.

    %s = select %fresh, %z, %z {wspec.resume}   =>   %s = if %fresh: %z
                                                          else: wait until the words of slot %from are set, clear them
                                                                load the sums from slot %from
    %a = select %last, %acc, %acc {wspec.fix_up}  =>  if not %last: store the sums to slot %to
                                                                     set the words of slot %to
                                                       %acc

Both blocks run the same code, so thread t of a warp group takes exactly what thread t of that group left: each thread
has a word of its own, which it sets when its sums are stored (release) and which its twin waits for (acquire), with no
barrier. The other block clears the word, so that words that were zero before a launch are zero behind it. Sums lie in
blocks of 8 x 8: a warp holds such a block in consecutive lanes.

Blocks wait for blocks of lower numbers only, which hand their sums on before they wait for anything themselves
(wspec/tile_scheduler/division.py), so nobody waits for ever. Runs behind lower_channels, when the loop carries all it
will.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from wspec.ir import warp_specialize as ws
from wspec.ir.assembly import AWAIT_WORD, SET_WORD
from wspec.ir.builder import Builder
from wspec.ir.core import Operation, Value, functions, replace_uses
from wspec.ir.loc import value_name
from wspec.ir.types import (
    I32,
    Attribute,
    DenseArrayAttr,
    DenseAttr,
    Layout,
    TensorType,
    i32,
)
from wspec.ir.wgmma import wait_for
from wspec.passes.stream_k.choice import HAND_ON, RESUME
from wspec.plan.plan import Plan
from wspec.plan.tile_table import POINTER
from wspec.tile_scheduler.names import PARTIALS, SLOTS, WORDS


def fix_up(module: Operation, plan: Plan) -> Operation:
    """Put the code where sums are taken up and handed on, into every consumer that has such places."""
    if not plan.stream_k:
        return module
    op = ws.need(module)
    function = functions(module)[0]
    partials = next(arg for arg in function.regions[0].block.args if value_name(arg.location) == PARTIALS)
    seen = ws.capture(op, partials)
    groups = plan.consumer.replicas
    for replica, block in enumerate(ws.task_blocks(op)[:groups]):
        marked = [inner for inner in block.walk() if inner.name == "arith.select"]
        starts = [inner for inner in marked if RESUME in inner.attributes]
        ends = [inner for inner in marked if HAND_ON in inner.attributes]
        sizes = [_words(one.result) for one in ends]
        place = _Place(seen[replica], groups, replica, plan.consumer.warps, tuple(sizes))
        _resume(starts, place)
        _give(ends, place)
    return module


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a warp group's words and sums are, in int32."""

    partials: Value
    groups: int
    group: int
    warps: int
    sizes: tuple[int, ...]  # of the sums of one group

    @property
    def threads(self) -> int:
        return 32 * self.warps

    @property
    def word(self) -> int:
        """The first word of the group in slot 0."""
        return self.group * self.threads

    @property
    def slot(self) -> int:
        """The sums of a slot."""
        return self.groups * sum(self.sizes)

    def sums(self, number: int) -> int:
        """The first sum of the group in slot 0."""
        return SLOTS * WORDS + self.group * sum(self.sizes) + sum(self.sizes[:number])


def _resume(marks: list[Operation], place: _Place) -> None:
    fresh, taken = _condition(marks[0])

    def loaded(side: Builder) -> list[Value]:
        # ptxas has to see that no product is under way when its registers are loaded: else it waits for each (C7515)
        side.add(wait_for([marks[0].operands[1]], 0, side.location))
        _at_the_words(side, place, taken, AWAIT_WORD)
        slot = _slot(side, place, taken, place.slot)
        return [_load(side, slot, place.sums(number), mark.result.type) for number, mark in enumerate(marks)]

    starts = [mark.operands[1] for mark in marks]
    _replace(marks, Builder.before(marks[-1]).branch(fresh, lambda _: starts, loaded))


def _give(marks: list[Operation], place: _Place) -> None:
    last, given = _condition(marks[0])

    def stored(side: Builder) -> list[Value]:
        slot = _slot(side, place, given, place.slot)
        for number, mark in enumerate(marks):
            _store(side, slot, place.sums(number), mark.operands[1])
        _at_the_words(side, place, given, SET_WORD)
        return []

    Builder.before(marks[-1]).branch(last, lambda _: [], stored)
    _replace(marks, [mark.operands[1] for mark in marks])


def _condition(mark: Operation) -> tuple[Value, Value]:
    """(that nothing is to be done here, the number of the slot)."""
    condition = mark.operands[0]
    assert condition.op is not None and condition.op.name == "arith.cmpi"
    return condition, condition.op.operands[0]


def _replace(marks: list[Operation], values: list[Value]) -> None:
    for mark, value in zip(marks, values, strict=True):
        assert mark.parent is not None
        replace_uses(mark.parent, {mark.result: value})
        mark.erase()


def _words(value: Value) -> int:
    assert isinstance(value.type, TensorType)
    rows, columns = value.type.shape
    return rows * columns


# ------------------------------------------------------------------------------------------------ addresses


def _slot(build: Builder, place: _Place, number: Value, size: int) -> Value:
    """A pointer to the slot of that number, where slots have that size."""
    offset = build.binary("arith.muli", number, build.constant(size))
    return build.offset(place.partials, offset)


def _at_the_words(build: Builder, place: _Place, number: Value, code: str) -> None:
    """Run the code on each thread's word of a slot."""
    slot = _slot(build, place, number, WORDS)
    numbers = TensorType((place.threads,), I32, _one_each(place.warps))
    pointers = replace(numbers, element=POINTER)
    first = build.offset(slot, build.constant(place.word))
    thread = _range(build, numbers)
    many = build.create("tt.splat", [first], [pointers]).result
    each = build.offset(many, thread)
    build.assembly(code, each, numbers, "=&r,l,~{memory}")


def _one_each(warps: int) -> Layout:
    """Element t at thread t."""
    fields = (("sizePerThread", (1,)), ("threadsPerWarp", (32,)), ("warpsPerCTA", (warps,)), ("order", (0,)))
    return Layout("ttg.blocked", fields)


def _store(build: Builder, slot: Value, offset: int, sums: Value) -> None:
    assert isinstance(sums.type, TensorType)
    words = build.create("tt.bitcast", [sums], [replace(sums.type, element=I32)]).result
    build.create("tt.store", [_pointers(build, slot, offset, sums.type), words], [], _STORE)


def _load(build: Builder, slot: Value, offset: int, type: object) -> Value:
    assert isinstance(type, TensorType)
    pointers = _pointers(build, slot, offset, type)
    words = build.load(pointers, replace(type, element=I32), cache=3)  # in L2 only: what another block wrote
    return build.create("tt.bitcast", [words], [type]).result


_STORE: dict[str, Attribute] = {"boundaryCheck": DenseArrayAttr(I32, ()), "cache": i32(1), "evict": i32(1)}


def _pointers(build: Builder, slot: Value, offset: int, sums: TensorType) -> Value:
    """Where each element of a tensor of sums is: in blocks of 8 x 8, row after row of blocks."""
    columns = sums.shape[1]
    row, column = _along(build, sums, 0), _along(build, sums, 1)
    below = _sum(build, _times(build, _shift(build, row), 8 * columns), _times(build, _rest(build, row), 8))
    across = _sum(build, _times(build, _shift(build, column), 64), _rest(build, column))
    whole = replace(sums, element=I32)
    parts = [build.create("tt.broadcast", [part], [whole]).result for part in (below, across)]
    place = build.offset(slot, build.constant(offset))
    pointers = replace(sums, element=POINTER)
    many = build.create("tt.splat", [place], [pointers]).result
    return build.create("tt.addptr", [many, _sum(build, *parts)], [pointers], attributes=_IN_PAIRS).result


_BOTH = TensorType((2,), I32)
_IN_PAIRS: dict[str, Attribute] = {
    "tt.contiguity": DenseAttr("[1, 2]", _BOTH),
    "tt.divisibility": DenseAttr("[8, 8]", _BOTH),
}
"""Two neighbours in a row are neighbours in memory, on 8 bytes: what Triton cannot see through the arithmetic."""


def _along(build: Builder, sums: TensorType, dim: int) -> Value:
    """[rows, 1] or [1, columns]: the number of each row or column."""
    assert isinstance(sums.encoding, Layout)
    size = sums.shape[dim]
    line = Layout("ttg.slice", (("dim", 1 - dim), ("parent", sums.encoding)))
    numbers = _range(build, TensorType((size,), I32, line))
    shape = (size, 1) if dim == 0 else (1, size)
    type = TensorType(shape, I32, sums.encoding)
    return build.create("tt.expand_dims", [numbers], [type], {"axis": i32(1 - dim)}).result


def _range(build: Builder, type: TensorType) -> Value:
    return build.create("tt.make_range", [], [type], {"start": i32(0), "end": i32(type.shape[0])}).result


def _shift(build: Builder, value: Value) -> Value:
    return build.binary("arith.shrui", value, build.constant(3, value.type))


def _rest(build: Builder, value: Value) -> Value:
    return build.binary("arith.andi", value, build.constant(7, value.type))


def _times(build: Builder, value: Value, number: int) -> Value:
    return build.binary("arith.muli", value, build.constant(number, value.type))


def _sum(build: Builder, one: Value, two: Value) -> Value:
    return build.binary("arith.addi", one, two)

"""Loads and stores of tiles through pointers become accesses of tensor descriptors that the launch makes.

    %p = a_ptr + (%row + i) * stride + (%column + j)         %a = tt.descriptor_load %a_ptr_tiles[%row, %column]
    %a = tt.load %p, mask (%column + j < %k)           =>

    func(..., a_ptr, ...)                                    func(..., a_ptr, ..., a_ptr_tiles: [m, k], [stride, 1])

What makes it the same is in tiles.py (which tile, where masks are TMA's zero fill) and dead.py (elements that a mask of
a load does not leave out but nobody sees). What depends on the launch comes back as a `Promotion`. Runs before a plan
is made, which sees an ordinary kernel with descriptors.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from wspec.diagnostics import Remark
from wspec.host_descriptors import ALIGNMENT, MOST, Bound, HostDescriptor, LaunchSlice, Promotion
from wspec.ir.builder import Builder
from wspec.ir.core import Block, Operation, Value, functions, replace_uses
from wspec.ir.loc import value_name
from wspec.ir.prune import prune
from wspec.ir.shapes import shape_of
from wspec.ir.types import (
    I32,
    I64,
    SMEM,
    Attribute,
    DenseArrayAttr,
    Layout,
    MemDescType,
    ScalarType,
    TensorDescType,
    TensorType,
    Type,
)
from wspec.passes.pointer_promotion.addresses import (
    Addresses,
    Monomial,
    NotAffine,
    Polynomial,
    Room,
    add,
    index,
    is_before,
)
from wspec.passes.pointer_promotion.dead import Seen, check_unseen
from wspec.passes.pointer_promotion.masks import NotATile
from wspec.passes.pointer_promotion.tiles import ANY, Tile, Tiles
from wspec.plan.arguments import add_arguments
from wspec.plan.contiguity import divisibility
from wspec.plan.graph import LOADS, STORES, Dataflow, memory_base
from wspec.plan.partition import feeds_dot

LEAST_SIDE = 8  # rows of a buffer that is swizzled
LEAST_BYTES = 32  # of its rows
_ELEMENTS = {
    "f16": "fp16", "bf16": "bf16", "f32": "fp32", "i8": "i8", "i16": "i16", "i32": "i32", "f8E4M3FN": "fp8e4nv",
    "f8E5M2": "fp8e5",
}  # fmt: skip
"""Types of elements as a signature has them."""


@dataclass(frozen=True, slots=True)
class Promoted:
    """What became of a kernel's accesses through pointers."""

    promotion: Promotion | None  # None: nothing was changed
    done: tuple[Operation, ...] = ()  # the accesses that are descriptors' now
    left: tuple[tuple[Operation, str], ...] = ()  # tiles that stay pointers, and why

    def remarks(self) -> list[Remark]:
        """A line for each access that stays, on the user's source."""
        found = []
        for op, why in self.left:
            what = "load" if op.results else "store"
            found.append(Remark("not-promoted", f"this {what} keeps its pointers: {why}", op.location))
        return found


def promote(module: Operation, operands_only: bool = False) -> Promoted:
    """Give a module descriptors for the tiles that it loads and stores through pointers, in place; or for those alone
    that go to products."""
    kernels = functions(module)
    if len(kernels) != 1 or len(kernels[0].regions[0].blocks) != 1:
        return Promoted(None)
    (function,) = kernels
    flow = Dataflow(function)
    operands = {op for op in function.walk() if op.name == "tt.load" and feeds_dot(flow, op)}
    tiles = Tiles(Addresses(function), LaunchSlice(function))
    accesses = [op for op in function.walk() if op.name in LOADS | STORES]
    found: list[Tile] = []
    left: list[tuple[Operation, str]] = []
    for op in accesses:
        if op.name not in ("tt.load", "tt.store") or not _is_tile(_moved(op).type):
            continue
        if operands_only and op not in operands:
            continue
        try:
            found.append(_checked(flow, tiles, op, accesses))
        except (NotATile, NotAffine, Seen) as why:
            left.append((op, str(why)))
    if not any(tile.op.results for tile in found):
        return Promoted(None, (), tuple(left))
    maker = _Maker(function, tiles, operands)
    done = tuple(maker.rewrite(tile) for tile in found)
    prune(function.regions[0].block)
    bounds = tuple(dict.fromkeys(bound for tile in found for bound in tile.bounds))
    return Promoted(Promotion(tuple(tiles.slice.scalars), tuple(maker.descriptors), bounds), done, tuple(left))


def _is_tile(type: Type) -> bool:
    return isinstance(type, TensorType) and len(type.shape) == 2 and min(type.shape) > 1


def _moved(op: Operation) -> Value:
    return op.result if op.results else op.operands[1]


def _checked(flow: Dataflow, tiles: Tiles, op: Operation, accesses: Sequence[Operation]) -> Tile:
    """The tile of an access that may become a descriptor's. Raises NotATile, NotAffine, Seen."""
    tile = tiles.of(op)
    element = _moved(op).type
    assert isinstance(element, TensorType)
    if str(element.element) not in _ELEMENTS:
        raise NotATile(f"descriptors have no elements of type {element.element}")
    inside = [one for one in tile.dimensions if one.tile is not None]
    assert isinstance(element.element, ScalarType)
    if min(one.size for one in inside[:-1]) < LEAST_SIDE:
        raise NotATile(f"it has fewer than {LEAST_SIDE} rows")
    if inside[-1].size * element.element.bits // 8 < LEAST_BYTES:
        raise NotATile(f"its rows have fewer than {LEAST_BYTES} bytes")
    if divisibility(flow.function, tile.base.index) % ALIGNMENT:  # Triton compiles for what a launch has
        raise NotATile("its address is not known to be a multiple of 16 bytes")
    same = [other for other in accesses if other is not op and memory_base(other) is tile.base]
    if op.results:
        if any(other.name in STORES for other in same):
            raise NotATile("the kernel also stores through that argument")
        if any(memory_base(other) is None for other in accesses if other.name in STORES):
            raise NotATile("the kernel also stores to memory that it is not clear which it is")
        try:
            check_unseen(flow, tiles, op.result, tile.dead)
        except Seen as seen:
            tile = replace(tile, bounds=(*tile.bounds, *_none_dead(tiles, tile, seen)), dead=())
        _check_buffers(flow.function, tile)
    elif tile.dead:
        raise NotATile("rows that begin again are stored")
    elif same:
        raise NotATile("the kernel uses that argument elsewhere")
    return tile


def _none_dead(tiles: Tiles, tile: Tile, seen: Seen) -> list[Bound]:
    """That no rows begin again in the launch, where they would be stored: a kernel that does that counts on it.

    Raises Seen where something else sees them, and where only the kernel knows.
    """
    found = []
    if seen.op.name != "tt.store":
        raise seen
    shape = shape_of(tile.op.result.type)
    for one in tile.dead:
        room = add(one.end, one.inner, -1)
        if tiles.is_found(add(room, {(index(one.dim),): 1})):
            raise seen
        found.append(Bound(tiles.sum(room, shape), 1, ANY, "rows that begin again may be seen"))
    return found


def _check_buffers(function: Operation, tile: Tile) -> None:
    """Buffers that the loaded tile goes to must be such as a descriptor fills, or may become such. Raises NotATile."""
    for op in _buffers(function, tile):
        if op.result.type != _filled(tile) and not _may_turn(function, op.result):
            raise NotATile("the buffer that it goes to is laid out in another order than memory")


def _buffers(function: Operation, tile: Tile) -> list[Operation]:
    """The allocations that the loaded tile goes to."""
    return [op for op in function.walk() if op.name == "ttg.local_alloc" and tile.op.result in op.operands]


def _filled(tile: Tile) -> MemDescType:
    """The buffer that a descriptor fills with the tile."""
    type = tile.op.result.type
    assert isinstance(type, TensorType)
    shared = _shared(type, _block_shape(tile)[-2:], transposed=tile.is_transposed, rank=2)
    return MemDescType(type.shape, type.element, shared, SMEM)


def _may_turn(function: Operation, buffer: Value) -> bool:
    """May the buffer be laid out in the other order: do products alone read it, which take elements of 16 bits so?"""
    type = buffer.type
    if not isinstance(type, MemDescType) or not isinstance(type.element, ScalarType) or type.mutable:
        return False
    readers = [op for op in function.walk() if buffer in op.operands]
    swizzled = isinstance(type.encoding, Layout) and type.encoding.name == "ttg.nvmma_shared"
    return swizzled and type.element.bits == 16 and all(op.name == "ttng.warp_group_dot" for op in readers)


def _block_shape(tile: Tile) -> tuple[int, ...]:
    return tuple(one.size for one in tile.dimensions)


def _shared(type: Type, block: tuple[int, ...], transposed: bool, rank: int) -> Layout:
    """How a descriptor's box lies in shared memory."""
    assert isinstance(type, TensorType) and isinstance(type.element, ScalarType)
    bits = type.element.bits
    width = next(width for width in (128, 64, 32) if block[-1] * bits // 8 >= width)
    fields: tuple[tuple[str, int | bool], ...] = (
        ("swizzlingByteWidth", width),
        ("transposed", transposed),
        ("elementBitWidth", bits),
    )
    return Layout("ttg.nvmma_shared", fields + ((("rank", rank),) if rank != 2 else ()))


class _Maker:
    """Rewrites accesses, and collects descriptors."""

    def __init__(self, function: Operation, tiles: Tiles, operands: set[Operation]) -> None:
        self.function, self.tiles, self.operands = function, tiles, operands
        self.descriptors: list[HostDescriptor] = []
        self.values: list[list[Value]] = []  # of each the descriptor and its extents
        self._rooms: dict[tuple[Block, Room], Value] = {}

    def rewrite(self, tile: Tile) -> Operation:
        """The access in a descriptor's terms, in the place of the one that there was."""
        op, block = tile.op, tile.op.parent
        assert block is not None
        descriptor, *extents = self._descriptor(tile)
        places = []
        for one, extent in zip(tile.dimensions, extents, strict=True):
            places.append(self._free_place(op, one.place, extent) if one.is_free else self._place(op, one.place))
        build = Builder.before(op)
        made = self._load(build, tile, descriptor, places) if op.results else None
        if made is None:
            made = self._store(build, tile, descriptor, places)
        op.erase()
        return made

    def _load(self, build: Builder, tile: Tile, descriptor: Value, places: list[Value]) -> Operation:
        op, type = tile.op, tile.op.result.type
        assert isinstance(type, TensorType)
        kept = {name: value for name, value in op.properties.items() if name in ("cache", "evict")}
        moved = _turned(type) if tile.is_transposed else type
        loaded = build.create("tt.descriptor_load", [descriptor, *places], [moved], kept)
        for alloc in _buffers(self.function, tile):
            alloc.result.type = _filled(tile)
        if not tile.is_transposed:
            replace_uses(self.function, {op.result: loaded.result})
            return loaded
        order: dict[str, Attribute] = {"order": DenseArrayAttr(I32, (1, 0))}
        for alloc in _buffers(self.function, tile):
            assert isinstance(alloc.result.type, MemDescType)
            inside = Builder.before(alloc)
            shared = _shared(type, moved.shape, transposed=False, rank=2)
            buffer = replace(alloc.result.type, shape=moved.shape, encoding=shared)
            filled = inside.create("ttg.local_alloc", [loaded.result], [buffer], alloc.properties)
            seen = inside.create("ttg.memdesc_trans", [filled.result], [alloc.result.type], order)
            replace_uses(self.function, {alloc.result: seen.result})
            alloc.erase()
        if any(op.result in one.operands for one in self.function.walk()):
            turned = build.create("tt.trans", [loaded.result], [type], order)
            replace_uses(self.function, {op.result: turned.result})
        return loaded

    def _store(self, build: Builder, tile: Tile, descriptor: Value, places: list[Value]) -> Operation:
        value = tile.op.operands[1]
        if tile.is_transposed:
            assert isinstance(value.type, TensorType)
            order: dict[str, Attribute] = {"order": DenseArrayAttr(I32, (1, 0))}
            value = build.create("tt.trans", [value], [_turned(value.type)], order).result
        else:
            value = _unconverted(value)
        return build.create("tt.descriptor_store", [descriptor, value, *places])

    def _descriptor(self, tile: Tile) -> list[Value]:
        """The function's arguments that stand for the tile's descriptor and its extents."""
        assert tile.base.op is None
        type = _moved(tile.op).type
        assert isinstance(type, TensorType) and isinstance(type.element, ScalarType)
        block = _block_shape(tile)
        made = HostDescriptor(
            "", tile.base.index, _ELEMENTS[str(type.element)], type.element.bits // 8, block,
            self.tiles.sum(tile.offset),
            tuple(None if one.end is None else self.tiles.sum(one.end) for one in tile.dimensions),
            tuple(self.tiles.sum(one.stride) for one in tile.dimensions),
            tuple(
                None if one.end is not None or one.is_free else (self.tiles.sum(one.place),) for one in tile.dimensions
            ),
            not tile.op.results,
            bool(tile.op.results) and tile.may_be_outside,
            tile.op in self.operands,
        )  # fmt: skip
        for at, known in enumerate(self.descriptors):
            if (either := known.with_boxes_of(made)) is not None:
                self.descriptors[at] = either
                return self.values[at]
        pointer = value_name(tile.base.location) or f"argument {tile.base.index}"
        count = sum(known.argument == made.argument for known in self.descriptors)
        made = replace(made, name=f"{pointer}_tiles{count + 1 if count else ''}")
        rank = len(block)
        shared = None if type.encoding is None else _shared(type, block, transposed=False, rank=rank)
        described = TensorDescType(TensorType(block, type.element, shared))
        added = add_arguments(self.function, made.name, [described, *[I32] * rank, *[I64] * rank])
        self.descriptors.append(made)
        self.values.append(added[: 1 + rank])
        return self.values[-1]

    def _free_place(self, op: Operation, sum: Polynomial, extent: Value) -> Value:
        """Where a tile begins along a dimension that reaches half of its extent before the argument's address.

        A store at a place before the first one would fault, also where its mask leaves out all of it.
        """
        place = self._place(op, sum, I64)
        build = Builder.before(op)
        half = build.binary("arith.shrui", extent, build.constant(1))
        place = build.binary("arith.addi", place, build.create("arith.extsi", [half], [I64]).result)
        if not op.results:
            place = build.binary("arith.maxsi", place, build.constant(0, I64))
            place = build.binary("arith.minsi", place, build.constant(MOST, I64))
        return build.create("arith.trunci", [place], [I32]).result

    def _place(self, op: Operation, sum: Polynomial, type: ScalarType = I32) -> Value:
        """The value of a polynomial at an operation; what no loop changes is computed before all."""
        body, block = self.function.regions[0].block, op.parent
        assert block is not None
        outermost = next((one for one in (op, *op.ancestors()) if one.parent is body), op)
        early = {monomial: factor for monomial, factor in sum.items() if self._is_before(monomial, outermost)}
        late = {monomial: factor for monomial, factor in sum.items() if monomial not in early}
        first = None
        if early and outermost is not op:
            first = self._emitted(Builder.before(outermost, op.location), early, type)
            if not late:
                return first
            sum = late
        return self._emitted(Builder.before(op), sum, type, first)

    def _is_before(self, monomial: Monomial, op: Operation) -> bool:
        """Are all factors there before an operation of the function's body begins?"""
        return all(is_before(self.tiles.addresses.atoms[number], op) for number in monomial)

    def _emitted(self, build: Builder, sum: Polynomial, type: ScalarType, total: Value | None = None) -> Value:
        """An integer with the value of a polynomial, added to another one."""
        for monomial, factor in sorted(sum.items()):
            product: Value | None = None
            for number in monomial:
                product, factor = self._times(build, product, number, factor, type)
            term = build.constant(factor, type) if product is None else product
            if product is not None and factor != 1:
                term = build.binary("arith.muli", product, build.constant(factor, type))
            total = term if total is None else build.binary("arith.addi", total, term)
        return build.constant(0, type) if total is None else total

    def _times(
        self, build: Builder, product: Value | None, number: int, factor: int, type: ScalarType
    ) -> tuple[Value, int]:
        """(product times an atom, what of the factor is left)."""
        atom = self.tiles.addresses.atoms[number]
        if isinstance(atom, Operation):
            value, factor = self._turns(build, atom, factor)
        elif isinstance(atom, Room):
            value = self._room(build, atom)
        else:
            value = atom
        value = _resized(build, value, type)
        return (value if product is None else build.binary("arith.muli", product, value)), factor

    def _room(self, build: Builder, room: Room) -> Value:
        """How many elements there are, from the first one on."""
        key = (build.block, room)
        if key in self._rooms:
            return self._rooms[key]
        count = build.constant(room.size, I64)
        for end in room.ends:
            count = build.binary("arith.minsi", count, self._emitted(build, end, I64))
        none = build.constant(0, I64)
        count = build.binary("arith.maxsi", count, none)
        for condition in room.when:
            count = build.select(condition, count, none)
        self._rooms[key] = count
        return count

    def _turns(self, build: Builder, loop: Operation, factor: int) -> tuple[Value, int]:
        """How often a loop has gone round; where the factor is a multiple of its step, the way its counter has come."""
        now = _resized(build, loop.regions[0].block.args[0], I32)
        first, step = loop.operands[0], loop.operands[2]
        if self.tiles.addresses.constant_of(first) != 0:
            now = build.binary("arith.subi", now, _resized(build, first, I32))
        width = self.tiles.addresses.constant_of(step)
        if width is not None and width > 0 and factor % width == 0:
            return now, factor // width
        return build.create("arith.divsi", [now, _resized(build, step, I32)], [I32]).result, factor


def _resized(build: Builder, value: Value, type: ScalarType) -> Value:
    """A signed integer in as many bits."""
    if value.type == type:
        return value
    name = "arith.index_cast"
    if str(value.type) != "index":
        assert isinstance(value.type, ScalarType)
        name = "arith.extsi" if value.type.bits < type.bits else "arith.trunci"
    return build.create(name, [value], [type]).result


def _unconverted(value: Value) -> Value:
    """A product before its layout was changed for addresses side by side: a box is stored from any."""
    op = value.op
    if op is None or op.name != "ttg.convert_layout":
        return value
    (source,) = op.operands
    layout = source.type.encoding if isinstance(source.type, TensorType) else None
    return source if isinstance(layout, Layout) and layout.name == "ttg.nvidia_mma" else value


def _turned(type: TensorType) -> TensorType:
    """The type of a tile's transposed one."""
    layout = type.encoding
    if layout is None:
        return TensorType(type.shape[::-1], type.element)
    assert isinstance(layout, Layout)
    fields = {name: tuple(reversed(layout.ints(name))) for name in ("sizePerThread", "threadsPerWarp", "warpsPerCTA")}
    order = tuple(1 - dim for dim in layout.ints("order"))
    return TensorType(type.shape[::-1], type.element, layout.with_fields({**fields, "order": order}))

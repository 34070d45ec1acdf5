"""What the scripts of `script.py` can call: each makes one operation, or a few."""

from __future__ import annotations

from wspec.ir.builder import Builder
from wspec.ir.core import Block, Operation, Value
from wspec.ir.loc import UNKNOWN, NameLoc
from wspec.ir.types import (
    F32,
    I1,
    I32,
    I64,
    SMEM,
    Attribute,
    DenseArrayAttr,
    DenseAttr,
    FloatAttr,
    IntegerAttr,
    Layout,
    MemDescType,
    OpaqueAttr,
    OpaqueType,
    PointerType,
    ScalarType,
    StringAttr,
    TensorDescType,
    TensorType,
    Type,
    UnitAttr,
    i32,
)

F16 = ScalarType("f16")
BAR = Layout("ttg.swizzled_shared", (("vec", 1), ("perPhase", 1), ("maxPhase", 1), ("order", (0,))))
MMA = Layout(
    "ttg.nvidia_mma",
    (("versionMajor", 3), ("versionMinor", 0), ("warpsPerCTA", (4, 1)), ("instrShape", (16, 64, 16))),
)
LINE = Layout(
    "ttg.blocked", (("sizePerThread", (1,)), ("threadsPerWarp", (32,)), ("warpsPerCTA", (4,)), ("order", (0,)))
)
BLOCKED = Layout(
    "ttg.blocked",
    (("sizePerThread", (1, 8)), ("threadsPerWarp", (4, 8)), ("warpsPerCTA", (4, 1)), ("order", (1, 0))),
)
ACROSS = Layout(
    "ttg.blocked",
    (("sizePerThread", (8, 1)), ("threadsPerWarp", (8, 4)), ("warpsPerCTA", (1, 4)), ("order", (0, 1))),
)
I8 = ScalarType("i8")
TOKEN = OpaqueType("!ttg.async.token")
ARGUMENTS: dict[str, Type] = {"i32": I32, "i64": I64, "i1": I1, "f16": F16, "ptr": PointerType(I32)}

# Which arguments, by position or name, are literals and not values.
CALLS: dict[str, frozenset[int | str]] = {
    "buffer": frozenset(range(4)),
    "barriers": frozenset((0, 1)),
    "raw_barriers": frozenset((0,)),
    "init": frozenset((1,)),
    "expect": frozenset((1,)),
    "arrive": frozenset((1, "count")),
    "copy": frozenset(("box",)),
    "part": frozenset((1, 2)),
    "trans": frozenset((1,)),
    "reinterpret": frozenset(range(1, 4)),
    "as_barriers": frozenset((1,)),
    "as_bytes": frozenset((1, 2)),
    "words": frozenset((0,)),
    "zeros": frozenset((0, 1)),
    "numbers": frozenset((0, 1)),
    "dot": frozenset(("sync",)),
    "dot_wait": frozenset((0,)),
    "store_wait": frozenset((0,)),
    "cp_wait": frozenset((0,)),
    "cp_arrive": frozenset(("alone",)),
    "asm": frozenset((0, 1, 2, 3, "pure", "size", "each", "packed")),
    "bar_sync": frozenset((0, 1)),
    "bar_arrive": frozenset((0, 1)),
    "op": frozenset((0,)),
    "asm_of": frozenset((0,)),
    "pid": frozenset((0,)),
    "real": frozenset((0,)),
    "warp_id": frozenset(),
    **dict.fromkeys(
        ("filled", "dealloc", "inval", "wait", "load", "store", "tma_store", "fence", "cp", "commit", "number",
         "set_number", "use", "select", "ult", "umod", "smin", "smax", "ceildiv", "read", "read_volatile", "write",
         "add", "extui", "extsi", "trunc", "convert", "keep", "fetch", "all_of", "byte", "tma_store_back", "at",
         "write_rows", "write_tile", "write_tile_of_rows"),
        frozenset(),
    ),
}  # fmt: skip


STORED = NameLoc("stored", UNKNOWN)  # of descriptors that tiles are stored through


class Calls:
    """Makes operations at the builder's place. TMA descriptors become arguments of the function, `entry`."""

    def __init__(self, builder: Builder, entry: Block) -> None:
        self.builder, self.entry = builder, entry

    def _true(self) -> Value:
        return self.builder.constant(1, I1)

    # ---- buffers

    def buffer(self, *shape: int) -> Value:
        return self.builder.create("ttg.local_alloc", [], [_memory(shape)]).result

    def filled(self, tile: Value) -> Value:
        """A buffer allocated with what is in registers."""
        assert isinstance(tile.type, TensorType)
        return self.builder.create("ttg.local_alloc", [tile], [_memory(tile.type.shape)]).result

    def dealloc(self, view: Value) -> None:
        self.builder.create("ttg.local_dealloc", [view])

    def index(self, view: Value, index: Value) -> Value:
        type = _type(view)
        inner = MemDescType(type.shape[1:], type.element, type.encoding, SMEM, True)
        return self.builder.create("ttg.memdesc_index", [view, index], [inner]).result

    def part(self, view: Value, offsets: tuple[int, ...], shape: tuple[int, ...]) -> Value:
        type = _type(view)
        inner = MemDescType(shape, type.element, type.encoding, SMEM, True, type.alloc_shape or type.shape)
        return self.builder.create(
            "ttg.memdesc_subslice", [view], [inner], {"offsets": DenseArrayAttr(I32, offsets)}
        ).result

    def trans(self, view: Value, order: tuple[int, ...] = (1, 0)) -> Value:
        type = _type(view)
        layout = type.encoding
        if isinstance(layout, Layout) and order[-2:] != tuple(range(len(order)))[-2:]:
            fields = ((name, not value if name == "transposed" else value) for name, value in layout.fields)
            layout = Layout(layout.name, tuple(fields))
        turned = MemDescType(tuple(type.shape[i] for i in order), type.element, layout, SMEM, True)
        return self.builder.create("ttg.memdesc_trans", [view], [turned], {"order": DenseArrayAttr(I32, order)}).result

    def reinterpret(self, view: Value, *shape: int) -> Value:
        return self.builder.create("ttg.memdesc_reinterpret", [view], [_memory(shape)]).result

    def as_barriers(self, view: Value, depth: int) -> Value:
        """A buffer seen as a ring of mbarriers."""
        type = MemDescType((depth, 1), I64, BAR, SMEM, True)
        return self.builder.create("ttg.memdesc_reinterpret", [view], [type]).result

    def as_bytes(self, view: Value, rows: int, columns: int) -> Value:
        """A buffer seen as one of 8 bit integers."""
        layout = Layout("ttg.nvmma_shared", (("swizzlingByteWidth", 64), ("transposed", False), ("elementBitWidth", 8)))
        type = MemDescType((rows, columns), I8, layout, SMEM, True)
        return self.builder.create("ttg.memdesc_reinterpret", [view], [type]).result

    def words(self, count: int) -> Value:
        """Integers of 64 bits, in one dimension."""
        return self.builder.create("ttg.local_alloc", [], [MemDescType((count,), I64, BAR, SMEM, True)]).result

    def load(self, view: Value) -> Value:
        type = _type(view)
        return self.builder.create("ttg.local_load", [view], [TensorType(type.shape, type.element, BLOCKED)]).result

    def store(self, view: Value, tile: Value | None = None) -> None:
        type = TensorType(_type(view).shape, _type(view).element, BLOCKED)
        self.builder.create("ttg.local_store", [tile if tile is not None else self._tensor(type), view])

    def _tensor(self, type: TensorType) -> Value:
        zero = "0" if type.element == I8 else "0.000000e+00"
        return self.builder.create("arith.constant", [], [type], {"value": DenseAttr(zero, type)}).result

    def number(self, view: Value) -> Value:
        """The first of integers of 64 bits in shared memory, as every thread reads it."""
        held = (("sizePerThread", (1,)), ("threadsPerWarp", (32,)), ("warpsPerCTA", (4,)), ("order", (0,)))
        tile = TensorType(_type(view).shape, I64, Layout("ttg.blocked", held))
        loaded = self.builder.create("ttg.local_load", [view], [tile]).result
        wide = self.builder.create("tt.unsplat", [loaded], [I64]).result
        return self.builder.create("arith.trunci", [wide], [I32], {"overflowFlags": OpaqueAttr(_WRAP)}).result

    def set_number(self, view: Value, value: Value) -> None:
        """Write it there."""
        held = (("sizePerThread", (1,)), ("threadsPerWarp", (32,)), ("warpsPerCTA", (4,)), ("order", (0,)))
        wide = self.builder.create("arith.extsi", [value], [I64]).result
        tile = TensorType(_type(view).shape, I64, Layout("ttg.blocked", held))
        self.builder.create("ttg.local_store", [self.builder.create("tt.splat", [wide], [tile]).result, view])

    def fetch(self) -> Value:
        """A tile from global memory."""
        pointers = self._opaque("tt.splat", TensorType((64, 64), PointerType(F16), BLOCKED))
        flags: dict[str, Attribute] = {
            "boundaryCheck": DenseArrayAttr(I32, ()),
            "cache": i32(1),
            "evict": i32(1),
            "isVolatile": IntegerAttr(0, I1),
            "operandSegmentSizes": DenseArrayAttr(I32, (1, 0, 0)),
        }
        return self.builder.create("tt.load", [pointers], [TensorType((64, 64), F16, BLOCKED)], flags).result

    def convert(self, tile: Value) -> Value:
        """Another layout, through scratch."""
        assert isinstance(tile.type, TensorType)
        other = ACROSS if tile.type.encoding == BLOCKED else BLOCKED
        type = TensorType(tile.type.shape, tile.type.element, other)
        return self.builder.create("ttg.convert_layout", [tile], [type]).result

    def keep(self, tile: Value) -> None:
        """Store to global memory, so that nobody leaves it out."""
        assert isinstance(tile.type, TensorType)
        type = tile.type
        pointers = self._opaque("tt.splat", TensorType(type.shape, PointerType(type.element), type.encoding))
        flags: dict[str, Attribute] = {"boundaryCheck": DenseArrayAttr(I32, ()), "cache": i32(1), "evict": i32(1)}
        self.builder.create("tt.store", [pointers, tile], [], flags)

    # ---- mbarriers

    def barriers(self, depth: int, count: int = 1) -> Value:
        """A ring of mbarriers, initialized."""
        ring = self.raw_barriers(depth)
        for number in range(depth):
            self.init(self.index(ring, self.builder.constant(number)), count)
        return ring

    def raw_barriers(self, depth: int) -> Value:
        return self.builder.create("ttg.local_alloc", [], [MemDescType((depth, 1), I64, BAR, SMEM, True)]).result

    def init(self, barrier: Value, count: int) -> None:
        self.builder.create("ttng.init_barrier", [barrier], [], {"count": i32(count)})

    def inval(self, barrier: Value) -> None:
        self.builder.create("ttng.inval_barrier", [barrier])

    def expect(self, barrier: Value, size: int, pred: Value | None = None) -> None:
        self.builder.create("ttng.barrier_expect", [barrier, pred or self._true()], [], {"size": i32(size)})

    def wait(self, barrier: Value, phase: Value, pred: Value | None = None) -> None:
        segments = {"operandSegmentSizes": DenseArrayAttr(I32, (1, 1, 1, 0))}
        self.builder.create("ttng.wait_barrier", [barrier, phase, pred or self._true()], [], segments)

    def arrive(self, barrier: Value, count: int = 1, pred: Value | None = None) -> None:
        operands = [barrier] if pred is None else [barrier, pred]
        self.builder.create("ttng.arrive_barrier", operands, [], {"count": i32(count)})

    # ---- TMA

    def _descriptor(self, shape: tuple[int, ...]) -> Value:
        """What tiles of that shape are copied from."""
        type = TensorDescType(TensorType(shape, F16, _rows(shape)))
        found = (arg for arg in self.entry.args if arg.type == type and arg.location != STORED)
        return next(found, None) or self.entry.add_arg(type)

    def copy(self, view: Value, barrier: Value, pred: Value | None = None, box: tuple[int, ...] | None = None) -> None:
        """TMA into a buffer; its box has the buffer's shape unless said otherwise."""
        where = [self.builder.constant(0) for _ in range(2)]
        flags: dict[str, Attribute] = {"cache": i32(1), "evict": i32(1), "isVolatile": IntegerAttr(0, I1)}
        operands = [self._descriptor(box or _type(view).shape), *where, barrier, view, pred or self._true()]
        self.builder.create("ttng.async_tma_copy_global_to_local", operands, [], flags)

    def tma_store(self, view: Value) -> None:
        """To a tensor that nobody else touches."""
        descriptor = self.entry.add_arg(TensorDescType(TensorType(_type(view).shape, F16, _rows(_type(view).shape))))
        descriptor.location = STORED
        self._tma_store(view, descriptor)

    def tma_store_back(self, view: Value, row: Value | None = None) -> None:
        """To where tiles are copied from, from that row on."""
        self._tma_store(view, self._descriptor(_type(view).shape), row)

    def _tma_store(self, view: Value, descriptor: Value, row: Value | None = None) -> None:
        where = [row or self.builder.constant(0), self.builder.constant(0)]
        self.builder.create("ttng.async_tma_copy_local_to_global", [descriptor, *where, view])

    def store_wait(self, pending: int) -> None:
        self.builder.create("ttng.async_tma_store_wait", [], [], {"pendings": i32(pending)})

    def fence(self) -> None:
        self.builder.create("ttng.fence_async_shared", [], [], {"bCluster": IntegerAttr(0, I1)})

    # ---- cp.async

    def cp(self, view: Value) -> None:
        type = TensorType(_type(view).shape, PointerType(F16), BLOCKED)
        pointers = self._opaque("tt.splat", type)
        segments = {"operandSegmentSizes": DenseArrayAttr(I32, (1, 1, 0, 0))}
        self.builder.create("ttg.async_copy_global_to_local", [pointers, view], [TOKEN], segments)

    def _opaque(self, name: str, type: TensorType) -> Value:
        """A tensor of pointers, all the same."""
        element = type.element
        found = next((arg for arg in self.entry.args if arg.type == element), None)
        argument = self.entry.add_arg(element) if found is None else found
        return self.builder.create(name, [argument], [type]).result

    def commit(self) -> None:
        self.builder.create("ttg.async_commit_group", [], [TOKEN])

    def cp_wait(self, pending: int) -> None:
        self.builder.create("ttg.async_wait", [], [TOKEN], {"num": i32(pending)})

    def cp_arrive(self, barrier: Value, alone: bool = True) -> None:
        """Arrive when the thread's cp.async are done; `alone`: that counts as an arrival of its own."""
        flags: dict[str, Attribute] = {"noIncrement": UnitAttr()} if alone else {}
        self.builder.create("ttng.async_copy_mbarrier_arrive", [barrier], [], flags)

    # ---- tensor cores

    def zeros(self, rows: int, columns: int) -> Value:
        return self._tensor(TensorType((rows, columns), F32, MMA))

    def real(self, number: int) -> Value:
        """A constant."""
        return self.builder.create("arith.constant", [], [F16], {"value": FloatAttr(f"{number}.0", F16)}).result

    def all_of(self, value: Value) -> Value:
        """A tile of one value."""
        return self.builder.create("tt.splat", [value], [TensorType((64, 64), F16, BLOCKED)]).result

    def numbers(self, rows: int, columns: int) -> Value:
        """A tile in registers."""
        return self._tensor(TensorType((rows, columns), F16, BLOCKED))

    def dot(self, left: Value, right: Value, total: Value, sync: bool = False) -> Value:
        flags: dict[str, Attribute] = {
            "inputPrecision": i32(0),
            "isAsync": IntegerAttr(int(not sync), I1),
            "maxNumImpreciseAcc": i32(0),
        }
        return self.builder.create("ttng.warp_group_dot", [left, right, total], [total.type], flags).result

    def dot_wait(self, pending: int, *values: Value) -> list[Value]:
        return self.builder.create(
            "ttng.warp_group_dot_wait", values, [v.type for v in values], {"pendings": i32(pending)}
        ).results

    def use(self, value: Value) -> None:
        """Compute with a tensor."""
        self.builder.create("arith.addf", [value, value], [value.type], {"fastmath": OpaqueAttr(_FAST)})

    # ---- named barriers, and anything

    def bar_sync(self, number: int, threads: int) -> None:
        self._assembly(f"bar.sync {number}, {threads};")

    def bar_arrive(self, number: int, threads: int) -> None:
        self._assembly(f"bar.arrive {number}, {threads};")

    def _assembly(self, text: str, given: Value | None = None, pure: bool = False, packed: int = 1) -> Value:
        flags: dict[str, Attribute] = {
            "asm_string": StringAttr(text),
            "constraints": StringAttr("=r,r"),
            "packed_element": i32(packed),
            "pure": IntegerAttr(int(pure), I1),
        }
        given = self.builder.constant(0) if given is None else given
        return self.builder.create("tt.elementwise_inline_asm", [given], [given.type], flags).result

    def asm(self, text: str, pure: bool = False, size: int = 0, each: int = 1, packed: int = 1) -> Value:
        """Inline assembly on a number, or on `size` numbers that a warp group holds, `each` in a row to a thread."""
        type: Type = I32
        if size:
            shape = (("sizePerThread", (each,)), ("threadsPerWarp", (32,)), ("warpsPerCTA", (4,)), ("order", (0,)))
            type = TensorType((size,), I32, Layout("ttg.blocked", shape))
        given = self.builder.constant(0)
        if size:
            given = self.builder.create("tt.splat", [given], [type]).result
        return self._assembly(text, given, pure, packed)

    def op(self, name: str, *values: Value) -> None:
        """An operation of any name, without results; `asm: ...` is inline assembly."""
        if name.startswith("asm: "):
            self._assembly(name.removeprefix("asm: "))
        else:
            self.builder.create(name, values)

    # ---- scalars

    def select(self, condition: Value, yes: Value, no: Value) -> Value:
        return self.builder.select(condition, yes, no)

    def ult(self, left: Value, right: Value) -> Value:
        return self.builder.compare("ult", left, right)

    def umod(self, left: Value, right: Value) -> Value:
        return self.builder.binary("arith.remui", left, right)

    def smin(self, left: Value, right: Value) -> Value:
        return self.builder.binary("arith.minsi", left, right)

    def ceildiv(self, left: Value, right: Value) -> Value:
        return self.builder.binary("arith.ceildivsi", left, right)

    def smax(self, left: Value, right: Value) -> Value:
        return self.builder.binary("arith.maxsi", left, right)

    def read(self, pointer: Value, volatile: bool = False) -> Value:
        """A scalar from global memory."""
        flags: dict[str, Attribute] = {
            "boundaryCheck": DenseArrayAttr(I32, ()),
            "cache": i32(1),
            "evict": i32(1),
            "isVolatile": IntegerAttr(volatile, I1),
            "operandSegmentSizes": DenseArrayAttr(I32, (1, 0, 0)),
        }
        assert isinstance(pointer.type, PointerType)
        return self.builder.create("tt.load", [pointer], [pointer.type.pointee], flags).result

    def read_volatile(self, pointer: Value) -> Value:
        return self.read(pointer, volatile=True)

    def write(self, pointer: Value, value: Value) -> None:
        """A scalar to global memory."""
        flags: dict[str, Attribute] = {"boundaryCheck": DenseArrayAttr(I32, ()), "cache": i32(1), "evict": i32(1)}
        self.builder.create("tt.store", [pointer, value], [], flags)

    def write_rows(self, pointer: Value, row: Value, stride: Value, *more: Value) -> None:
        """A number to the first element of each of 64 rows, from one on, so far from each other. `more`: numbers of
        other strides, with these."""
        numbers, places = TensorType((64,), I32, LINE), TensorType((64,), pointer.type, LINE)
        make, binary = self.builder.create, self.builder.binary
        count = make("tt.make_range", [], [numbers], {"start": i32(0), "end": i32(64)}).result
        all_of = [make("tt.splat", [value], [numbers]).result for value in (row, stride, *more)]
        offsets = binary("arith.muli", binary("arith.addi", all_of[0], count), all_of[1])
        for number, by in zip(all_of[2::2], all_of[3::2], strict=True):
            offsets = binary("arith.addi", offsets, binary("arith.muli", number, by))
        first = make("tt.splat", [pointer], [places]).result
        self.write(make("tt.addptr", [first, offsets], [places]).result, count)

    def write_tile(self, pointer: Value, row: Value, column: Value, stride: Value, columns: Value) -> None:
        """A number to each element of a tile of 64 x 64 of a matrix of so many columns."""
        self._write_tile(pointer, (row, column), stride, columns, 1)

    def write_tile_of_rows(self, pointer: Value, row: Value, column: Value, stride: Value, rows: Value) -> None:
        """The same of a matrix of so many rows."""
        self._write_tile(pointer, (row, column), stride, rows, 0)

    def _write_tile(self, pointer: Value, begins: tuple[Value, Value], stride: Value, end: Value, axis: int) -> None:
        make, binary = self.builder.create, self.builder.binary
        whole, bits = TensorType((64, 64), I32, BLOCKED), TensorType((64, 64), I1, BLOCKED)
        places = TensorType((64, 64), pointer.type, BLOCKED)
        each = []
        for at, first in enumerate(begins):
            line = TensorType((64,), I32, Layout("ttg.slice", (("dim", 1 - at), ("parent", BLOCKED))))
            count = make("tt.make_range", [], [line], {"start": i32(0), "end": i32(64)}).result
            place = binary("arith.addi", make("tt.splat", [first], [line]).result, count)
            shape = (64, 1) if at == 0 else (1, 64)
            one = make("tt.expand_dims", [place], [TensorType(shape, I32, BLOCKED)], {"axis": i32(1 - at)}).result
            each.append(make("tt.broadcast", [one], [whole]).result)
        less: dict[str, Attribute] = {"predicate": IntegerAttr(2, I64)}
        inside = make("arith.cmpi", [each[axis], make("tt.splat", [end], [whole]).result], [bits], less).result
        lines = binary("arith.muli", each[0], make("tt.splat", [stride], [whole]).result)
        first = make("tt.splat", [pointer], [places]).result
        place = make("tt.addptr", [first, binary("arith.addi", lines, each[1])], [places]).result
        flags: dict[str, Attribute] = {"boundaryCheck": DenseArrayAttr(I32, ()), "cache": i32(1), "evict": i32(1)}
        make("tt.store", [place, each[0], inside], [], flags)

    def at(self, pointer: Value, offset: Value) -> Value:
        """So many elements behind a pointer."""
        return self.builder.create("tt.addptr", [pointer, offset], [pointer.type]).result

    def add(self, pointer: Value, value: Value) -> Value:
        """An atomic addition; what was there before."""
        flags: dict[str, Attribute] = {"atomic_rmw_op": i32(4), "scope": i32(1), "sem": i32(4)}
        assert isinstance(pointer.type, PointerType)
        return self.builder.create("tt.atomic_rmw", [pointer, value], [pointer.type.pointee], flags).result

    def asm_of(self, text: str, value: Value) -> Value:
        """Pure inline assembly of one number."""
        flags: dict[str, Attribute] = {
            "asm_string": StringAttr(text),
            "constraints": StringAttr("=r,r"),
            "packed_element": i32(1),
            "pure": IntegerAttr(1, I1),
        }
        return self.builder.create("tt.elementwise_inline_asm", [value], [I32], flags).result

    def pid(self, axis: int) -> Value:
        return self.builder.create("tt.get_program_id", [], [I32], {"axis": i32(axis)}).result

    def warp_id(self) -> Value:
        return self.builder.create("ttg.warp_id", [], [I32]).result

    def extui(self, flag: Value) -> Value:
        return self.builder.create("arith.extui", [flag], [I32]).result

    def extsi(self, flag: Value) -> Value:
        return self.builder.create("arith.extsi", [flag], [I32]).result

    def byte(self, value: Value) -> Value:
        """The low 8 bits, sign extended."""
        low = self.builder.create("arith.trunci", [value], [I8], {"overflowFlags": OpaqueAttr(_WRAP)}).result
        return self.builder.create("arith.extsi", [low], [I32]).result

    def trunc(self, value: Value) -> Value:
        return self.builder.create("arith.trunci", [value], [I1], {"overflowFlags": OpaqueAttr(_WRAP)}).result


_FAST = "#arith.fastmath<none>"
_WRAP = "#arith.overflow<none>"


def _memory(shape: tuple[int, ...]) -> MemDescType:
    return MemDescType(shape, F16, _rows(shape), SMEM, True)


def _rows(shape: tuple[int, ...]) -> Layout:
    """Rows of f16, swizzled no farther than they reach: Triton refuses the rest from 3.7 on."""
    swizzle = next((size for size in (128, 64, 32) if 2 * shape[-1] >= size), 0)
    return Layout("ttg.nvmma_shared", (("swizzlingByteWidth", swizzle), ("transposed", False), ("elementBitWidth", 16)))


def _type(view: Value) -> MemDescType:
    assert isinstance(view.type, MemDescType), "not a buffer"
    return view.type


__all__ = ["ARGUMENTS", "CALLS", "Calls", "Operation"]

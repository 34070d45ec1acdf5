"""Small kernels for the tests of the machine, built operation by operation; each at a line of its own.

    kernel = Small(partitions=1)
    with_bytes = kernel.outside.barrier("full", arrivals=1)
    kernel.default.wait(with_bytes, 0)

Tiles are 16 x 16 f16. The arguments are three descriptors of such tiles (x, y, z) and an integer n; what is made
outside of the tasks is visible in all of them under the same Python value.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from wspec import ir
from wspec.execute import Kernel, Result, Schedule
from wspec.ir import warp_specialize as ws
from wspec.ir.builder import Builder
from wspec.ir.core import Operation, Region, Value
from wspec.ir.loc import FileLoc, NameLoc, value_name
from wspec.ir.types import (
    F32,
    I1,
    I32,
    I64,
    SMEM,
    Attribute,
    DenseArrayAttr,
    DenseAttr,
    FunctionType,
    IntegerAttr,
    Layout,
    MemDescType,
    ScalarType,
    StringAttr,
    TensorDescType,
    TensorType,
    Type,
    TypeAttr,
    i32,
)
from wspec.ir.verify import check_valid

F16 = ScalarType("f16")
SIZE = 16
BYTES = SIZE * SIZE * 2
SHARED = Layout("ttg.nvmma_shared", (("swizzlingByteWidth", 32), ("transposed", False), ("elementBitWidth", 16)))
PLAIN = Layout("ttg.swizzled_shared", (("vec", 1), ("perPhase", 1), ("maxPhase", 1), ("order", (0,))))
MMA = Layout(
    "ttg.nvidia_mma",
    (("versionMajor", 3), ("versionMinor", 0), ("warpsPerCTA", (4, 1)), ("instrShape", (16, 16, 16))),
)
TILE, SUM = TensorType((SIZE, SIZE), F16, MMA), TensorType((SIZE, SIZE), F32, MMA)
DESC = TensorDescType(TensorType((SIZE, SIZE), F16))


def memdesc(*shape: int) -> MemDescType:
    """A buffer of f16."""
    return MemDescType(shape, F16, SHARED, SMEM, True)


BUFFER = memdesc(SIZE, SIZE)
BARRIER = MemDescType((1,), I64, PLAIN, SMEM, True)
SEGMENTS: Mapping[str, Attribute] = {"operandSegmentSizes": DenseArrayAttr(I32, (1, 1, 1, 0))}
NO_CLUSTER: Mapping[str, Attribute] = {"bCluster": IntegerAttr(0, I1)}


class Code:
    """Writes operations into one block; line n is the n-th operation of the whole kernel."""

    def __init__(self, kernel: Small, region: Region, task: int = 0) -> None:
        self.kernel, self.task = kernel, task
        self.block = region.blocks[0] if region.blocks else region.add_block()

    def op(
        self,
        name: str,
        operands: Sequence[Value] = (),
        results: Sequence[Type] = (),
        properties: Mapping[str, Attribute] | None = None,
        called: str = "",
        regions: Sequence[Region] = (),
    ) -> Operation:
        """Any operation. Its line is `kernel.line`."""
        self.kernel.line += 1
        place = FileLoc("k.py", self.kernel.line, 0)
        build = Builder(self.block, location=NameLoc(called, place) if called else place)
        seen = [self.kernel.seen(value, self.task) for value in operands]
        return build.create(name, seen, list(results), properties, regions=regions)

    def number(self, value: int, type: Type = I32) -> Value:
        return self.op("arith.constant", [], [type], {"value": IntegerAttr(value, type)}).result

    def zeros(self) -> Value:
        return self.op("arith.constant", [], [SUM], {"value": DenseAttr("0.000000e+00", SUM)}).result

    # ---- buffers

    def ring(self, name: str, depth: int, type: MemDescType = BUFFER) -> Value:
        made = MemDescType((depth, *type.shape), type.element, type.encoding, SMEM, True)
        return self.op("ttg.local_alloc", [], [made], called=name).result

    def slot(self, ring: Value, index: int | Value) -> Value:
        at = self.number(index) if isinstance(index, int) else index
        assert isinstance(ring.type, MemDescType)
        inner = MemDescType(ring.type.shape[1:], ring.type.element, ring.type.encoding, SMEM, True)
        name = value_name(ring.op.location if ring.op is not None else ring.location) or ""
        return self.op("ttg.memdesc_index", [ring, at], [inner], called=name).result

    def buffer(self, name: str, source: Value | None = None) -> Value:
        return self.op("ttg.local_alloc", [] if source is None else [source], [BUFFER], called=name).result

    def load(self, buffer: Value) -> Value:
        assert isinstance(buffer.type, MemDescType)
        return self.op("ttg.local_load", [buffer], [TensorType(buffer.type.shape, F16, MMA)]).result

    def store(self, tile: Value, buffer: Value) -> None:
        self.op("ttg.local_store", [tile, buffer])

    def free(self, buffer: Value) -> None:
        self.op("ttg.local_dealloc", [buffer])

    def part(self, buffer: Value, offsets: tuple[int, ...], shape: tuple[int, ...]) -> Value:
        properties = {"offsets": DenseArrayAttr(I32, offsets)}
        return self.op("ttg.memdesc_subslice", [buffer], [memdesc(*shape)], properties, "part").result

    def turned(self, buffer: Value) -> Value:
        order = {"order": DenseArrayAttr(I32, (1, 0))}
        return self.op("ttg.memdesc_trans", [buffer], [buffer.type], order, "turned").result

    def as_type(self, buffer: Value, *shape: int) -> Value:
        return self.op("ttg.memdesc_reinterpret", [buffer], [memdesc(*shape)], called="other").result

    # ---- barriers

    def barrier(self, name: str, arrivals: int = 1) -> Value:
        made = self.slot(self.ring(name, 1, BARRIER), 0)
        self.init(made, arrivals)
        return made

    def init(self, barrier: Value, arrivals: int = 1) -> None:
        self.op("ttng.init_barrier", [barrier], [], {"count": i32(arrivals)})

    def wait(self, barrier: Value, phase: int | Value, wanted: int = 1) -> None:
        parity = self.number(phase) if isinstance(phase, int) else phase
        self.op("ttng.wait_barrier", [barrier, parity, self.number(wanted, I1)], [], SEGMENTS)

    def arrive(self, barrier: Value, count: int = 1, wanted: int = 1) -> None:
        self.op("ttng.arrive_barrier", [barrier, self.number(wanted, I1)], [], {"count": i32(count)})

    def expect(self, barrier: Value, size: int = BYTES, wanted: int = 1) -> None:
        self.op("ttng.barrier_expect", [barrier, self.number(wanted, I1)], [], {"size": i32(size)})

    def meet(self, text: str) -> None:
        properties: dict[str, Attribute] = {
            "asm_string": StringAttr(text),
            "constraints": StringAttr("=r"),
            "packed_element": i32(1),
            "pure": IntegerAttr(0, I1),
        }
        self.op("tt.elementwise_inline_asm", [], [I32], properties)

    # ---- copies and dots

    def fetch(self, desc: Value, barrier: Value, buffer: Value, wanted: int = 1) -> None:
        """A TMA copy, and what its barrier is to expect."""
        self.expect(barrier, wanted=wanted)
        self.copy(desc, barrier, buffer, wanted)

    def copy(self, desc: Value, barrier: Value, buffer: Value, wanted: int = 1) -> None:
        """A TMA copy alone."""
        zero = self.number(0)
        operands = [desc, zero, zero, barrier, buffer, self.number(wanted, I1)]
        self.op("ttng.async_tma_copy_global_to_local", operands)

    def put(self, desc: Value, buffer: Value) -> None:
        """A TMA store."""
        zero = self.number(0)
        self.op("ttng.async_tma_copy_local_to_global", [desc, zero, zero, buffer])

    def put_wait(self, pendings: int = 0) -> None:
        self.op("ttng.async_tma_store_wait", [], [], {"pendings": i32(pendings)})

    def fence(self) -> None:
        self.op("ttng.fence_async_shared", [], [], NO_CLUSTER)

    def tile_of(self, desc: Value) -> Value:
        """A descriptor load into registers."""
        zero = self.number(0)
        return self.op("tt.descriptor_load", [desc, zero, zero], [TILE]).result

    def write(self, desc: Value, tile: Value) -> None:
        """A descriptor store from registers."""
        zero = self.number(0)
        self.op("tt.descriptor_store", [desc, tile, zero, zero])

    def dot(self, a: Value, b: Value, acc: Value, is_async: bool = True) -> Value:
        properties = {
            "inputPrecision": i32(0),
            "isAsync": IntegerAttr(int(is_async), I1),
            "maxNumImpreciseAcc": i32(0),
        }
        return self.op("ttng.warp_group_dot", [a, b, acc], [SUM], properties).result

    def dot_wait(self, *sums: Value, pendings: int = 0) -> list[Value]:
        types = [value.type for value in sums]
        return self.op("ttng.warp_group_dot_wait", list(sums), types, {"pendings": i32(pendings)}).results

    def narrow(self, value: Value) -> Value:
        """An f32 sum as an f16 tile."""
        return self.op("arith.truncf", [value], [TILE]).result

    def loop(self, times: Value | int) -> tuple[Code, Value]:
        """Its body, which carries nothing, and the counter; `end` it."""
        zero, one = self.number(0), self.number(1)
        bound = self.number(times) if isinstance(times, int) else times
        region = Region()
        counter = region.add_block().add_arg(I32)
        self.op("scf.for", [zero, bound, one], regions=[region])
        return Code(self.kernel, region, self.task), counter

    def end(self) -> None:
        """Of a loop's body."""
        self.op("scf.yield")


class Small:
    """A kernel with a body before the tasks, and with partitions or without."""

    def __init__(self, partitions: int = 0, warps: int = 4) -> None:
        self.line = 0
        self.captured: dict[Value, list[Value]] = {}
        body = Region()
        block = body.add_block()
        types: list[Type] = [DESC, DESC, DESC, I32]
        names = zip(("x", "y", "z", "n"), types, strict=True)
        self.x, self.y, self.z, self.n = (block.add_arg(t, NameLoc(n, FileLoc("k.py", 0, 0))) for n, t in names)
        properties = {"function_type": TypeAttr(FunctionType(tuple(types), ())), "sym_name": StringAttr("small")}
        function = Operation.create("tt.func", properties=properties, regions=[body])
        module = Region()
        module.add_block().append(function)
        attributes: dict[str, Attribute] = {'"ttg.num-warps"': i32(4), '"ttg.num-ctas"': i32(1)}
        self.module = Operation.create("builtin.module", attributes=attributes, regions=[module])
        self.outside = Code(self, body)
        self.regions = [Region() for _ in range(partitions + 1)]
        self.special: Operation | None = None
        if partitions:
            self.special = ws.create(self.regions[0], self.regions[1:], [warps] * partitions, FileLoc("k.py", 0, 0))
            self.tasks = [Code(self, region, task) for task, region in enumerate(self.regions)]

    @property
    def default(self) -> Code:
        return self.tasks[0]

    def seen(self, value: Value, task: int) -> Value:
        """What a value is called in a task: partitions are told of what is made outside."""
        outer = self.outside.block
        is_outside = value.owner is outer or (value.op is not None and value.op.parent is outer)
        if task == 0 or not is_outside:
            return value
        assert self.special is not None
        if value not in self.captured:
            self.captured[value] = ws.capture(self.special, value)
        return self.captured[value][task]

    def finished(self) -> Operation:
        """The module, valid and as it reads back from its text."""
        if self.special is not None:
            self.outside.block.append(self.special)
            for task, code in enumerate(self.tasks):
                code.op("ttg.warp_return" if task else "ttg.warp_yield")
        self.outside.op("tt.return")
        check_valid(self.module)
        return ir.read(ir.print_module(self.module))

    def ready(self) -> Kernel:
        return Kernel(self.finished())


class Tensors:
    """Fresh arguments of a small kernel: random x, y and z of nothing yet."""

    def __init__(self, n: int = 3) -> None:
        draw = torch.Generator().manual_seed(0)
        self.x = torch.randn(SIZE, SIZE, generator=draw).half()
        self.y, self.z = (torch.full((SIZE, SIZE), torch.nan, dtype=torch.float16) for _ in range(2))
        self.n = n

    @property
    def arguments(self) -> dict[str, Any]:
        return {"x": self.x, "y": self.y, "z": self.z, "n": self.n}


def launch(kernel: Kernel, schedule: Schedule | None = None, n: int = 3, strict: bool = True) -> tuple[Tensors, Result]:
    """One program; the tensors afterwards."""
    tensors = Tensors(n)
    return tensors, kernel.run(1, tensors.arguments, schedule=schedule, strict=strict)

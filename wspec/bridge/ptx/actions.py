"""What operations of the TTGIR do to other threads, and with which values."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from wspec.ir.core import Operation, Value
from wspec.ir.types import I1, Layout, MemDescType, StringAttr
from wspec.ir.wgmma import DOT
from wspec.ptx.copies import MARKS, Mark
from wspec.ptx.errors import PtxError
from wspec.ptx.events import FENCE, shape_of
from wspec.ptx.inline import read_inline
from wspec.ptx.operands import number_of

MOST_ROWS = 256  # of one bulk copy, in each dimension (CUDA driver API, cuTensorMapEncodeTiled)

LOADS = frozenset(("ttng.async_tma_copy_global_to_local", "ttng.async_tma_gather"))
STORES = frozenset(("ttng.async_tma_copy_local_to_global", "ttng.async_tma_reduce", "ttng.async_tma_scatter"))
ROWS = frozenset(("ttng.async_tma_gather", "ttng.async_tma_scatter"))
ELEMENTS = "ttg.async_copy_global_to_local"
VIEWS = frozenset(("ttg.memdesc_trans", "ttg.memdesc_reinterpret", "ttg.memdesc_reshape"))
"""Of a buffer, which begin where it does."""


@dataclass(frozen=True, slots=True)
class Action:
    """An event of the TTGIR, and the values it depends on."""

    kind: str
    numbers: tuple[int, ...] = ()
    at: Value | None = None
    phase: Value | None = None
    buffer: Value | None = None
    several: bool = False  # once or more often
    tensor: Value | None = None  # the descriptor of a bulk copy


def box_of_copy(type: MemDescType) -> tuple[int, ...] | None:
    """How many elements of a buffer one bulk copy moves, in each dimension; None where that is not known.

    A copy is as wide as what is swizzled together (CUDA driver API, CU_TENSOR_MAP_SWIZZLE_*).
    """
    layout = type.encoding
    if not isinstance(layout, Layout) or layout.name != "ttg.nvmma_shared" or layout.get("fp4Padded"):
        return None
    swizzled, bits = layout.get("swizzlingByteWidth"), layout.get("elementBitWidth")
    if not isinstance(swizzled, int) or not isinstance(bits, int):
        return None
    shape = [min(size, MOST_ROWS) for size in type.shape]
    if swizzled:
        shape[0 if layout.get("transposed") else -1] = 8 * swizzled // bits
    return tuple(shape)


def bytes_of_copy(type: MemDescType) -> int | None:
    """How many bytes of a buffer one bulk copy moves; None where that is not known."""
    box, layout = box_of_copy(type), type.encoding
    bits = layout.get("elementBitWidth") if isinstance(layout, Layout) else None
    return math.prod(box) * bits // 8 if box is not None and isinstance(bits, int) else None


def elements_of_box(type: MemDescType) -> int | None:
    """How much further a bulk copy's innermost coordinate is for each box of a buffer; None where that is not known.

    Boxes lie one behind the other, each as wide as what is swizzled together, where none of the others' sizes is more
    than one copy takes.
    """
    layout = type.encoding
    if bytes_of_copy(type) is None or not isinstance(layout, Layout) or layout.get("transposed"):
        return None
    swizzled, bits = layout.get("swizzlingByteWidth"), layout.get("elementBitWidth")
    if not isinstance(swizzled, int) or not isinstance(bits, int) or not swizzled:
        return None
    return None if max(type.shape[:-1], default=1) > MOST_ROWS else 8 * swizzled // bits


def asked(action: Action) -> list[Value]:
    return [value for value in (action.at, action.phase, action.buffer) if value is not None]


def actions_of(op: Operation) -> Iterator[Action]:
    """What an operation does to others."""
    buffers = [value for value in op.operands if isinstance(value.type, MemDescType)]
    match op.name:
        case "ttng.init_barrier":
            yield Action("init", (op.int_attr("count") or 0,), buffers[0])
        case "ttng.inval_barrier":
            yield Action("inval", (), buffers[0])
        case "ttng.barrier_expect":
            yield Action("expect", (op.int_attr("size") or 0,), buffers[0])
        case "ttng.arrive_barrier":
            yield Action("arrive", (op.int_attr("count") or 1,), buffers[0])
        case "ttng.wait_barrier":
            yield Action("wait", (), buffers[0], op.operands[1])
        case "ttng.async_tma_store_wait":
            yield Action("store wait", (op.int_attr("pendings") or 0,))
        case "ttng.fence_async_shared" | "ttng.fence":
            yield Action(FENCE.kind)
        case name if name == DOT:
            yield Action("product")
            if str(op.attr("isAsync")) != "true":
                yield Action("product wait", (0,))
        case "ttng.warp_group_dot_wait":
            yield Action("product wait", (op.int_attr("pendings") or 0,))
        case name if name == ELEMENTS:
            yield Action("element", buffer=buffers[0], several=True)
        case "ttg.async_commit_group":
            yield Action("element commit")
        case "ttg.async_wait":
            yield Action("element wait", (op.int_attr("num") or 0,))
        case "ttng.async_copy_mbarrier_arrive":
            yield Action("element arrive", (), buffers[0])
        case "tt.elementwise_inline_asm":
            yield from _of_assembly(op)
        case name if name in LOADS:
            yield Action("load", (), buffers[0], None, buffers[1], name in ROWS, op.operands[0])
        case name if name in STORES:
            yield Action("store", (), None, None, buffers[0], name in ROWS, op.operands[0])
            yield Action("commit")


def marks_of(op: Operation) -> tuple[Mark, ...]:
    """What all threads of a task do at once by it."""
    if not op.name.startswith(("ttng.", "ttg.async_", "tt.elementwise_inline_asm")):
        return ()
    return tuple(Mark(one.kind, one.numbers) for one in actions_of(op) if one.kind in MARKS)


def predicate_of(op: Operation) -> Value | None:
    """Under which an operation does something to others. That of a product says whether it adds to what there is."""
    return None if op.name == DOT else next((one for one in op.operands if one.type == I1), None)


def _of_assembly(op: Operation) -> Iterator[Action]:
    text = op.attr("asm_string")
    for one in read_inline(text.plain if isinstance(text, StringAttr) else "").instructions:
        shape = shape_of(one, frozenset())
        if shape is None:
            continue
        numbers = [number_of(number) for number in shape.numbers]
        known = tuple(number for number in numbers if number is not None)
        if shape.at is not None or len(known) < len(numbers) or one.guard:
            raise PtxError(f"'{one}' of inline assembly is not compared")
        yield Action(shape.kind, known)

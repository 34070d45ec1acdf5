"""Operations that change an element's type: widths, integer to float and back, the same bits as another type."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch

from wspec.execute.context import Item, Prepare, function, typed
from wspec.execute.elements import (
    as_unsigned,
    bits_of,
    bytes_of,
    dtype_of,
    element,
    from_raw,
    is_float,
    raw,
    scalar,
    shape_of,
    signed,
    tensor,
    unsigned,
    wrap,
)
from wspec.execute.errors import ExecutionError
from wspec.execute.rounding import (
    RTNE,
    RTZ,
    e5m2_to_bfloat16,
    float_to_signed,
    float_to_unsigned,
    round_to,
    signed_to_float,
    unsigned_to_float,
)
from wspec.ir.core import Operation
from wspec.ir.types import PointerType

_Compute = Callable[[Item], Item]
_ROUNDING = {None: RTNE, 0: RTZ, 1: RTNE}  # tt.fp_to_fp's rounding


def _resize(op: Operation, is_unsigned: bool) -> _Compute:
    """Integers of another width; a true i1 is -1 unless unsigned."""
    before, after, dtype = bits_of(op.operands[0].type), bits_of(op.result.type), dtype_of(op.result.type)
    widens = is_unsigned and before < after

    def compute(value: Item) -> Item:
        if isinstance(value, int):
            return wrap(unsigned(value, before) if is_unsigned else signed(value, before), after)
        if after == 1:
            return value if before == 1 else (value & 1) != 0
        if before == 1:
            return value.to(dtype) if is_unsigned else -value.to(dtype)
        return torch.from_numpy(as_unsigned(value).astype(np.int64)).to(dtype) if widens else value.to(dtype)

    return compute


def _signed_resize(op: Operation) -> _Compute:
    return _resize(op, False)


def _unsigned_resize(op: Operation) -> _Compute:
    return _resize(op, True)


def _from_integer(convert: Callable[[torch.Tensor, torch.dtype], torch.Tensor]) -> Prepare:
    def make(op: Operation) -> _Compute:
        source, dtype = dtype_of(op.operands[0].type), dtype_of(op.result.type)
        return lambda value: convert(tensor(value, source), dtype)

    return typed(make)


def _to_integer(convert: Callable[[torch.Tensor, torch.dtype], torch.Tensor]) -> Prepare:
    def make(op: Operation) -> _Compute:
        dtype, shape = dtype_of(op.result.type), shape_of(op.result.type)

        def compute(value: torch.Tensor) -> Item:
            found = convert(value, dtype)
            return found if shape or value.dim() else scalar(found)

        return compute

    return typed(make)


def _to_float(op: Operation) -> _Compute:
    """extf, truncf and fp_to_fp."""
    rounding = op.int_attr("rounding") if op.name == "tt.fp_to_fp" else None
    if rounding not in _ROUNDING:
        raise ExecutionError(f"a rounding mode that the executor does not know: {rounding}")
    if op.name == "arith.truncf" and op.attr("roundingmode") is not None:
        raise ExecutionError(f"a rounding mode that the executor does not know: {op.attr('roundingmode')}")
    source, dtype = dtype_of(op.operands[0].type), dtype_of(op.result.type)
    if (source, dtype) == (torch.float8_e5m2, torch.bfloat16):
        return e5m2_to_bfloat16
    return lambda value: round_to(value, dtype, _ROUNDING[rounding])


def _bitcast(op: Operation) -> _Compute:
    """The same bits; a pointer to something else is the same address."""
    source, target = op.operands[0].type, op.result.type
    if isinstance(element(source), PointerType) and isinstance(element(target), PointerType):
        return lambda value: value
    if bytes_of(source) != bytes_of(target):
        raise ExecutionError(f"a bitcast of {element(source)} to {element(target)}")
    before, after, whole = dtype_of(source), dtype_of(target), not is_float(target)

    def compute(value: Item) -> Item:
        found = from_raw(raw(tensor(value, before)), after)
        return scalar(found) if whole and not found.dim() else found

    return compute


def _address(op: Operation) -> _Compute:
    """Pointers are their addresses."""
    return lambda value: value


def _add_pointer(op: Operation) -> Callable[[Item, Item], Item]:
    """An offset counts elements."""
    pointer = element(op.result.type)
    if not isinstance(pointer, PointerType):
        raise ExecutionError(f"an offset to {pointer}")
    size = bytes_of(pointer.pointee)

    def compute(address: Item, offset: Item) -> Item:
        if isinstance(offset, torch.Tensor):
            offset = offset.to(torch.int64)
        moved = address + offset * size
        return wrap(moved, 64) if isinstance(moved, int) else moved

    return compute


HANDLERS: dict[str, Prepare] = {
    "arith.extsi": typed(_signed_resize),
    "arith.extui": typed(_unsigned_resize),
    "arith.trunci": typed(_signed_resize),
    "arith.index_cast": typed(_signed_resize),
    "arith.index_castui": typed(_unsigned_resize),
    "arith.sitofp": _from_integer(signed_to_float),
    "arith.uitofp": _from_integer(unsigned_to_float),
    "arith.fptosi": _to_integer(float_to_signed),
    "arith.fptoui": _to_integer(float_to_unsigned),
    "arith.extf": typed(_to_float),
    "arith.truncf": typed(_to_float),
    "tt.fp_to_fp": typed(_to_float),
    "arith.bitcast": typed(_bitcast),
    "tt.bitcast": typed(_bitcast),
    "tt.int_to_ptr": typed(_address),
    "tt.ptr_to_int": typed(_address),
    "tt.addptr": typed(_add_pointer),
    "ttg.convert_layout": function(lambda value: value),
}

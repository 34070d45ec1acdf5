"""Element types: from the IR's to torch's, and integers of a width."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from wspec.execute.errors import ExecutionError
from wspec.ir.types import PointerType, ScalarType, TensorDescType, TensorType, Type

Array = np.ndarray[Any, np.dtype[Any]]

_DTYPES: dict[str, torch.dtype] = {
    "i1": torch.bool,
    "i8": torch.int8,
    "i16": torch.int16,
    "i32": torch.int32,
    "i64": torch.int64,
    "index": torch.int64,
    "bf16": torch.bfloat16,
    "f16": torch.float16,
    "f32": torch.float32,
    "f64": torch.float64,
    "f8E4M3FN": torch.float8_e4m3fn,
    "f8E5M2": torch.float8_e5m2,
}
_INTEGERS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}  # by bytes
_UNSIGNED = {torch.int8: np.uint8, torch.int16: np.uint16, torch.int32: np.uint32, torch.int64: np.uint64}
FP8 = frozenset((torch.float8_e4m3fn, torch.float8_e5m2))


def element(type: Type) -> Type:
    """The type of the elements of a tensor or descriptor; a scalar's own."""
    if isinstance(type, TensorType):
        return type.element
    return type.block.element if isinstance(type, TensorDescType) else type


def dtype_of(type: Type) -> torch.dtype:
    """The torch type of a scalar's or tensor's elements; pointers are int64 addresses. Raises ExecutionError."""
    inner = element(type)
    if isinstance(inner, PointerType):
        return torch.int64
    if isinstance(inner, ScalarType):
        name = inner.name
        found = _DTYPES.get(name[1:] if name.startswith(("si", "ui")) else name)
        if found is not None:
            return found
    raise ExecutionError(f"the executor has no values of type {inner}")


def is_float(type: Type) -> bool:
    inner = element(type)
    return isinstance(inner, ScalarType) and inner.is_float


def bits_of(type: Type) -> int:
    """Width of the elements; pointers have 64 bits."""
    inner = element(type)
    if isinstance(inner, ScalarType):
        return inner.bits
    if isinstance(inner, PointerType):
        return 64
    raise ExecutionError(f"the executor has no values of type {inner}")


def bytes_of(type: Type) -> int:
    """Bytes an element takes in memory; an i1 takes one."""
    return max(1, bits_of(type) // 8)


def shape_of(type: Type) -> tuple[int, ...]:
    return type.shape if isinstance(type, TensorType) else ()


# --------------------------------------------------------------------------------------------------- integers


def wrap(value: int, bits: int) -> int:
    """The integer's low `bits` bits as a signed number; one bit is 0 or 1."""
    if bits == 1:
        return value & 1
    half = 1 << (bits - 1)
    return ((value + half) & ((1 << bits) - 1)) - half


def unsigned(value: int, bits: int) -> int:
    """The same bits as an unsigned number."""
    return value & ((1 << bits) - 1)


def signed(value: int, bits: int) -> int:
    """The number a scalar stands for in signed arithmetic: a true i1 is -1."""
    return -value if bits == 1 else value


def as_unsigned(values: torch.Tensor) -> Array:
    """The same bits as a numpy array of unsigned integers; booleans are 0 and 1."""
    if values.dtype == torch.bool:
        return np.asarray(values.to(torch.int8).numpy()).view(np.uint8)
    return np.asarray(values.numpy()).view(_UNSIGNED[values.dtype])


def from_numpy(values: Array, dtype: torch.dtype) -> torch.Tensor:
    """A tensor of the low bits of an array of integers, or of the values of an array of floats."""
    array = np.ascontiguousarray(values).reshape(np.shape(values))
    if array.dtype.kind == "u":
        array = array.view(array.dtype.str.replace("u", "i"))
    return torch.from_numpy(array).to(dtype)


def raw(values: torch.Tensor) -> torch.Tensor:
    """The same bytes as signed integers: many torch functions know no 8-bit floats."""
    if values.dtype == torch.bool:
        return values.to(torch.int8)
    return values.view(integer_of(values.dtype)) if values.dtype.is_floating_point else values


def integer_of(dtype: torch.dtype) -> torch.dtype:
    """The signed integer type of the same size."""
    return _INTEGERS[dtype.itemsize]


def from_raw(values: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """The inverse of `raw`."""
    if dtype == torch.bool:
        return values != 0
    return values.view(dtype) if dtype.is_floating_point else values


def tensor(item: torch.Tensor | int, dtype: torch.dtype) -> torch.Tensor:
    """A scalar as a tensor without dimensions; tensors as they are."""
    return item if isinstance(item, torch.Tensor) else torch.tensor(item, dtype=dtype)


def any_of(condition: torch.Tensor) -> bool:
    """Is any of the bools true? (numpy's is much faster than torch's.)"""
    return bool(condition.numpy().any())


def all_of(condition: torch.Tensor) -> bool:
    """Are all of the bools true?"""
    return bool(condition.numpy().all())


def scalar(values: torch.Tensor) -> torch.Tensor | int:
    """The only element of a tensor as a scalar value: an int, or a float as a tensor without dimensions."""
    return values.reshape(()) if values.dtype.is_floating_point else int(values.item())

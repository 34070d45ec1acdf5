"""Attributes that are values: numbers and dense tensors, as MLIR writes them."""

from __future__ import annotations

import ast
import re
from typing import Any

import torch

from wspec.execute.elements import bits_of, dtype_of, from_raw, integer_of, is_float, raw, shape_of, wrap
from wspec.execute.errors import ExecutionError
from wspec.execute.rounding import round_to
from wspec.ir.types import Attribute, DenseAttr, FloatAttr, IntegerAttr, Type

_HEX_BYTES = re.compile(r'"0x([0-9a-fA-F]*)"')
_NUMBER = re.compile(r"[-+\w.]+")


def constant(value: Attribute | None) -> torch.Tensor | int:
    """The value of an `arith.constant`'s attribute. Raises ExecutionError for attributes that are none."""
    match value:
        case IntegerAttr():
            return wrap(value.value, bits_of(value.type))
        case FloatAttr():
            return _numbers([value.text], value.type).reshape(())
        case DenseAttr():
            return _dense(value.text, value.type)
    raise ExecutionError(f"a constant that the executor cannot read: {value}")


def _dense(text: str, type: Type) -> torch.Tensor:
    shape = shape_of(type)
    blob = _HEX_BYTES.fullmatch(text.strip())
    if blob is not None:
        return _from_bytes(bytes.fromhex(blob.group(1)), type)
    numbers = _NUMBER.findall(text)
    values = _numbers(numbers, type)
    if "[" not in text and len(numbers) == 1:
        return values.reshape(()).expand(shape)
    return values.reshape(shape)


def _from_bytes(data: bytes, type: Type) -> torch.Tensor:
    """Dense elements as little-endian bytes; one element is a splat."""
    dtype = dtype_of(type)
    values = torch.frombuffer(bytearray(data), dtype=torch.uint8)
    if dtype == torch.bool:  # a bit each
        values = (values.unsqueeze(-1) >> torch.arange(8)).flatten() & 1
        return values.to(torch.bool)[: torch.Size(shape_of(type)).numel()].reshape(shape_of(type))
    found = values.view(dtype)
    return found.reshape(()).expand(shape_of(type)) if found.numel() == 1 else found.reshape(shape_of(type))


def _numbers(texts: list[str], type: Type) -> torch.Tensor:
    """One-dimensional; floats in hexadecimal are the bits of the element."""
    dtype, bits = dtype_of(type), bits_of(type)
    if not is_float(type):
        return torch.tensor([wrap(_integer(text), bits) for text in texts], dtype=dtype)
    hexadecimal = [text.lower().startswith("0x") for text in texts]
    decimal = [0.0 if is_hex else float(text) for text, is_hex in zip(texts, hexadecimal, strict=True)]
    values = round_to(torch.tensor(decimal, dtype=torch.float64), dtype)
    if any(hexadecimal):
        patterns = [wrap(int(text, 16), bits) if h else 0 for text, h in zip(texts, hexadecimal, strict=True)]
        given = torch.tensor(patterns, dtype=integer_of(dtype))
        return from_raw(torch.where(torch.tensor(hexadecimal), given, raw(values)), dtype)
    return values


def _integer(text: str) -> int:
    if text in ("true", "false"):
        return int(text == "true")
    number: Any = ast.literal_eval(text)
    if not isinstance(number, int):
        raise ExecutionError(f"a constant that the executor cannot read: {text}")
    return number

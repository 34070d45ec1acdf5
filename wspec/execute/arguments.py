"""Arguments of a launch: what a caller gives, by position or by name in the source, as the values of the function."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from wspec.execute.descriptor import Descriptor, check, describe
from wspec.execute.elements import bits_of, dtype_of
from wspec.execute.errors import ExecutionError
from wspec.execute.machine import Item
from wspec.execute.memory import GlobalMemory
from wspec.ir.core import Operation, Value
from wspec.ir.loc import value_name
from wspec.ir.types import (
    ArrayAttr,
    DictAttr,
    IntegerAttr,
    PointerType,
    ScalarType,
    TensorDescType,
    Type,
)


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter as the source has it. A descriptor of rank n is followed by n sizes (i32) and n strides (i64)."""

    name: str
    type: Type
    values: tuple[Value, ...]  # arguments of the function
    divisor: int = 1  # that the kernel was compiled to rely on

    def __str__(self) -> str:
        return f"{self.name}: {_shown(self.type)}"


def parameters(function: Operation) -> list[Parameter]:
    """The parameters of a function, in order."""
    arguments = function.regions[0].blocks[0].args if function.regions[0].blocks else []
    attributes = function.attr("arg_attrs")
    divisors = [_divisor(item) for item in attributes.items] if isinstance(attributes, ArrayAttr) else []
    divisors += [1] * (len(arguments) - len(divisors))
    found: list[Parameter] = []
    at = 0
    while at < len(arguments):
        argument = arguments[at]
        count = 1 + _followers(arguments, at)
        name = value_name(argument.location) or f"argument {len(found)}"
        found.append(Parameter(name, argument.type, tuple(arguments[at : at + count]), divisors[at]))
        at += count
    return found


def _divisor(item: object) -> int:
    for name, value in item.items if isinstance(item, DictAttr) else ():
        if name.strip('"') == "tt.divisibility" and isinstance(value, IntegerAttr):
            return value.value
    return 1


def _followers(arguments: Sequence[Value], at: int) -> int:
    """How many arguments after a descriptor are its sizes and strides."""
    type, name = arguments[at].type, value_name(arguments[at].location)
    if not isinstance(type, TensorDescType):
        return 0
    rank = len(type.block.shape)
    expected = [ScalarType("i32")] * rank + [ScalarType("i64")] * rank
    after = arguments[at + 1 : at + 1 + 2 * rank]
    names = [value_name(one.location) for one in after]
    own = [f"{name}.{what}.{axis}" for what in ("shape", "stride") for axis in range(rank)]  # since Triton 3.8
    fits = [one.type for one in after] == expected and names in ([name] * 2 * rank, own)
    return 2 * rank if fits else 0


# -------------------------------------------------------------------------------------------------- binding


def bind(
    function: Operation, given: Mapping[str, Any] | Sequence[Any], memory: GlobalMemory
) -> list[tuple[Value, Item]]:
    """The value of each argument of the function; tensors become accessible. Raises ExecutionError, with the name."""
    found: list[tuple[Value, Item]] = []
    for parameter, item in _matched(function, parameters(function), given):
        try:
            items = _items(parameter, item, memory)
        except ExecutionError as error:
            raise ExecutionError(f"argument {parameter}: {error.message}", function.location) from None
        found += zip(parameter.values, items, strict=True)
    return found


def _matched(
    function: Operation, wanted: list[Parameter], given: Mapping[str, Any] | Sequence[Any]
) -> list[tuple[Parameter, Any]]:
    kernel = function.str_attr("sym_name") or "the kernel"
    note = f"it takes: {', '.join(map(str, wanted)) or 'nothing'}"
    if not isinstance(given, Mapping):
        if len(given) != len(wanted):
            text = f"{kernel} takes {len(wanted)} arguments, {len(given)} were given"
            raise ExecutionError(text, function.location, note=note)
        return list(zip(wanted, given, strict=True))
    names = [parameter.name for parameter in wanted]
    for name in given:
        if name not in names:
            raise ExecutionError(f"{kernel} has no argument {name!r}", function.location, note=note)
    missing = [name for name in names if name not in given]
    if missing:
        raise ExecutionError(f"{kernel} needs the argument {', '.join(missing)}", function.location, note=note)
    return [(parameter, given[parameter.name]) for parameter in wanted]


def _items(parameter: Parameter, item: Any, memory: GlobalMemory) -> tuple[Item, ...]:
    type = parameter.type
    if isinstance(type, TensorDescType):
        desc = _descriptor(parameter, type, item, memory)
        return (desc, *desc.parameters)[: len(parameter.values)]
    if isinstance(type, PointerType):
        return (_pointer(parameter, type, item, memory),)
    if isinstance(type, ScalarType):
        return (_float(type, item) if type.is_float else _integer(parameter, type, item),)
    raise ExecutionError("the executor has no values of this type")


def _descriptor(parameter: Parameter, type: TensorDescType, item: Any, memory: GlobalMemory) -> Descriptor:
    """The block is always the one of the kernel's own type: a specialized kernel may move a part of the plain one's."""
    block, dtype = type.block.shape, dtype_of(type)
    made = _described(parameter, block, item, memory)
    if made.dtype != dtype:
        raise ExecutionError(f"elements of {made.dtype}, expected {dtype}")
    return made


def _described(parameter: Parameter, block: tuple[int, ...], item: Any, memory: GlobalMemory) -> Descriptor:
    if isinstance(item, torch.Tensor):
        return describe(memory, item, block, name=parameter.name)
    if isinstance(item, Descriptor):
        _check_block(item.block, block)
        made = dataclasses.replace(item, block=block)
        check(made)
        return made
    fields = [getattr(item, name, None) for name in ("base", "shape", "strides", "block_shape")]
    base, shape, strides, given = fields
    if not isinstance(base, torch.Tensor) or shape is None or strides is None or given is None:
        raise ExecutionError(f"expected a descriptor or a tensor, got {_kind(item)}")
    _check_block(tuple(given), block)
    padding = str(getattr(item, "padding", "zero"))
    made = describe(memory, base, block, padding, shape=shape, strides=strides, name=parameter.name)
    offset = int(getattr(item, "offset", 0))  # bytes from the tensor to the descriptor's first element
    if offset:
        made = dataclasses.replace(made, address=made.address + offset)
        check(made)
    return made


def _check_block(given: Sequence[int], block: tuple[int, ...]) -> None:
    fits = len(given) == len(block) and all(size % part == 0 for size, part in zip(given, block, strict=True))
    if not fits:
        raise ExecutionError(f"a descriptor of blocks {tuple(given)}; the kernel moves blocks {block}")


def _pointer(parameter: Parameter, type: PointerType, item: Any, memory: GlobalMemory) -> int:
    if not isinstance(item, torch.Tensor):
        raise ExecutionError(f"expected a tensor, got {_kind(item)}")
    dtype = dtype_of(type.pointee)
    both_integers = not dtype.is_floating_point and not item.dtype.is_floating_point
    if item.dtype != dtype and not (both_integers and item.dtype.itemsize == dtype.itemsize):
        raise ExecutionError(f"expected a tensor of {dtype}, got one of {item.dtype}")
    address = memory.register(item, parameter.name)
    if address % parameter.divisor:
        raise ExecutionError(f"the kernel relies on a multiple of {parameter.divisor} bytes; the tensor is not at one")
    return address


def _integer(parameter: Parameter, type: ScalarType, item: Any) -> int:
    if not isinstance(item, int):
        raise ExecutionError(f"expected an integer, got {_kind(item)}")
    bits, value = bits_of(type), int(item)
    low, high = (0, 1) if bits == 1 else (-(1 << (bits - 1)), (1 << bits) - 1)
    if not low <= value <= high:
        raise ExecutionError(f"{value} does not fit")
    if value % parameter.divisor:
        raise ExecutionError(f"the kernel relies on a multiple of {parameter.divisor}, got {value}")
    return value if bits == 1 or value < 1 << (bits - 1) else value - (1 << bits)


def _float(type: ScalarType, item: Any) -> torch.Tensor:
    if isinstance(item, bool) or not isinstance(item, int | float):
        raise ExecutionError(f"expected a number, got {_kind(item)}")
    return torch.tensor(float(item), dtype=torch.float64).to(dtype_of(type))


def _kind(item: Any) -> str:
    if isinstance(item, torch.Tensor):
        return f"a tensor of {item.dtype}"
    return type(item).__name__


def _shown(type: Type) -> str:
    """Types without layouts."""
    if isinstance(type, TensorDescType):
        shape = "x".join(map(str, type.block.shape))
        return f"tensordesc<{shape}x{type.block.element}>"
    return str(type)

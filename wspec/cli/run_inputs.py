"""What `wspec run` launches: the example that a spec names, or random tensors of given sizes."""

from __future__ import annotations

import argparse
import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from wspec.diagnostics import bad_input, unknown
from wspec.execute import Parameter
from wspec.execute.elements import dtype_of
from wspec.ir.types import PointerType, ScalarType, TensorDescType
from wspec.specs.kernel_file import Kernel, load_file
from wspec.specs.signature import Signature, split_items


@dataclass(frozen=True, slots=True)
class Output:
    """A tensor that is compared; without `expected` with what the plain kernel made of it."""

    tensor: Tensor
    expected: Tensor | None = None  # float64
    bound: Tensor | None = None  # of the absolute error of each element


@dataclass(frozen=True, slots=True)
class Trial:
    """One launch; made anew for each run, because runs write into it."""

    grid: tuple[int, ...]
    arguments: Mapping[str, Any]
    outputs: Mapping[str, Output]


_MOST_PROGRAMS = 1 << 20
Maker = Callable[[int], Trial]
"""Inputs from a seed: the same for the same seed."""


# ------------------------------------------------------------------------------------------------- examples


def example_maker(
    signature: Signature, kernel: Kernel, sizes: Mapping[str, Any], outputs: bool = True, instead: str = ""
) -> Maker:
    """The example of the kernel's variant; without `outputs` nobody works out what must come out. Raises WspecError,
    which where there is no example says `instead`."""
    if not signature.example:
        note = f'name a function in its spec, as in example = "examples.attention" (docs/executor.md){instead}'
        raise bad_input(f"there is no example of inputs for {kernel.name}", note)
    function = _find(signature.example, kernel)
    known = [p.name for p in inspect.signature(function).parameters.values() if p.kind == p.KEYWORD_ONLY]
    for name in sizes:
        if name not in known:
            raise unknown("size", name, known, where=f"{signature.example} has ")

    def make(seed: int) -> Trial:
        try:
            made = function(signature.types, signature.values, seed, **sizes)
            asked = made.outputs.items() if outputs else ()
            found = {name: Output(one.tensor, one.expected, one.bound) for name, one in asked}
            return Trial(tuple(made.grid), _left(dict(made.arguments), signature), found)
        except (ValueError, KeyError, RuntimeError, AttributeError) as error:
            raise bad_input(f"{signature.example}: {type(error).__name__}: {error}") from None

    return make


def _find(name: str, kernel: Kernel) -> Callable[..., Any]:
    file, _, function = name.rpartition(".")
    module = load_file(kernel.file.with_name(f"{file}.py")) if file else kernel.module
    found = getattr(module, function, None)
    if not inspect.isfunction(found):
        where = Path(getattr(module, "__file__", None) or file).name
        functions = [key for key, value in vars(module).items() if inspect.isfunction(value)]
        raise unknown("function", function, functions, where=f"{where} has ")
    return found


def _left(arguments: dict[str, Any], signature: Signature) -> dict[str, Any]:
    """Without those that the kernel was compiled for; they must have the value it was compiled for."""
    compiled = {name: 1 for name, text in signature.types.items() if text.endswith(":1")}
    compiled |= {name: value for name, value in signature.values.items() if name in arguments}
    for name, value in compiled.items():
        if name in arguments and arguments.pop(name) != value:
            raise bad_input(f"the example has another {name} than {value}, which the kernel was compiled for")
    return arguments


# --------------------------------------------------------------------------------------------------- random


def random_maker(parameters: Sequence[Parameter], sizes: Mapping[str, Any], grid: tuple[int, ...]) -> Maker:
    """Tensors of normal numbers, of small integers or of zeros (integers that may be addresses) of the sizes given."""
    names = [parameter.name for parameter in parameters]
    for name in sizes:
        if name not in names:
            raise unknown("argument", name, names, where="the kernel has ")
    missing = [p for p in parameters if p.name not in sizes]
    if missing:
        wanted = ", ".join(f"{p.name}={_sample(p)}" for p in parameters)
        raise bad_input(f"--random needs a size or value of {missing[0].name}", f'for example --sizes "{wanted}"')
    values = {p.name: _checked(p, sizes[p.name]) for p in parameters}

    def make(seed: int) -> Trial:
        draw = torch.Generator().manual_seed(seed)
        arguments = {p.name: _argument(p, values[p.name], draw) for p in parameters}
        outputs = {name: Output(item) for name, item in arguments.items() if isinstance(item, Tensor)}
        return Trial(grid, arguments, outputs)

    return make


def _sample(parameter: Parameter) -> str:
    if isinstance(parameter.type, TensorDescType):
        return "x".join(str(2 * size) for size in parameter.type.block.shape)
    if isinstance(parameter.type, PointerType):
        return "1024"
    return "0.125" if isinstance(parameter.type, ScalarType) and parameter.type.is_float else "128"


def _checked(parameter: Parameter, value: Any) -> Any:
    """The shape of a tensor, or a number."""
    if isinstance(parameter.type, TensorDescType | PointerType):
        shape = (value,) if isinstance(value, int) else value
        rank = len(parameter.type.block.shape) if isinstance(parameter.type, TensorDescType) else None
        if not isinstance(shape, tuple) or (rank is not None and len(shape) != rank):
            raise bad_input(f"--sizes: {parameter.name} needs a shape, such as {_sample(parameter)}")
        return shape
    if isinstance(value, tuple):
        raise bad_input(f"--sizes: {parameter.name} needs a number, not a shape")
    return value


def _argument(parameter: Parameter, value: Any, draw: torch.Generator) -> Any:
    type = parameter.type
    if not isinstance(type, TensorDescType | PointerType):
        return value
    dtype = dtype_of(type if isinstance(type, TensorDescType) else type.pointee)
    if dtype.is_floating_point:
        return torch.randn(value, generator=draw).to(dtype)
    if dtype == torch.int8:
        return torch.randint(-8, 8, value, generator=draw).to(dtype)
    return torch.zeros(value, dtype=dtype)


# ---------------------------------------------------------------------------------------------------- flags


def parse_sizes(text: str) -> dict[str, Any]:
    """`n=128, scale=0.5, x=64x128` as numbers and tuples. Raises WspecError."""
    found: dict[str, Any] = {}
    for item in split_items(text):
        name, equals, value = (part.strip() for part in item.partition("="))
        number = _number(value) if equals else None
        if number is None:
            raise bad_input(f"--sizes: {item!r} is not NAME=SIZE", "for example seqlen_q=100, or x=64x128")
        found[name] = number
    return found


def _number(text: str) -> Any:
    parts = text.split("x")
    if all(part.isdecimal() for part in parts):
        return int(text) if len(parts) == 1 else tuple(map(int, parts))
    try:
        value = float(text)
    except ValueError:
        return None
    if not math.isfinite(value):
        return None
    return int(value) if "." not in text and "e" not in text.lower() else value


def parse_grid(args: argparse.Namespace) -> tuple[int, ...]:
    """`--grid 2,1`. Raises WspecError."""
    parts = ("1" if args.grid is None else args.grid).split(",")
    if len(parts) > 3 or not all(part.strip().isdecimal() for part in parts):
        raise bad_input(f"--grid: {args.grid!r} is not one to three sizes", "for example --grid 4,2")
    grid = tuple(int(part) for part in parts)
    if not 0 < math.prod(grid) <= _MOST_PROGRAMS:
        raise bad_input(f"--grid: {args.grid} has {math.prod(grid)} programs; 1 to {_MOST_PROGRAMS} can be run here")
    return grid

"""Arguments that a function has besides those that its user gives, behind them: the launch adds them."""

from __future__ import annotations

from collections.abc import Sequence

from wspec.ir.core import Operation, Value
from wspec.ir.loc import NameLoc
from wspec.ir.types import ArrayAttr, DictAttr, FunctionType, Type, TypeAttr

NOTHING = DictAttr(())


def add_arguments(function: Operation, name: str, types: Sequence[Type], known: DictAttr = NOTHING) -> list[Value]:
    """New last arguments of a function, all of one name; `known`: what the compiler may take for granted of each."""
    added = [function.regions[0].block.add_arg(type, NameLoc(name, function.location)) for type in types]
    old = function.properties["function_type"]
    assert isinstance(old, TypeAttr) and isinstance(old.type, FunctionType)
    function.properties["function_type"] = TypeAttr(FunctionType((*old.type.inputs, *types), old.type.results))
    before = function.properties.get("arg_attrs")
    if isinstance(before, ArrayAttr):
        function.properties["arg_attrs"] = ArrayAttr((*before.items, *[known] * len(types)))
    return added

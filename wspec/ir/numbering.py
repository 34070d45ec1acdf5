"""Numbers of operations, by which plans name them, and the digest that ties a plan to its kernel."""

from __future__ import annotations

import hashlib

from wspec.ir.core import Operation, Value
from wspec.ir.types import IntegerAttr, Type, i32

ID = "wspec.id"


def number(function: Operation) -> None:
    """Give every operation of the function its id, in place, as the attribute `wspec.id`."""
    for index, op in enumerate(function.walk()):
        op.attributes[ID] = i32(index)


def id_of(op: Operation) -> int:
    """The operation's id; -1 for operations a pass has added."""
    value = op.attributes.get(ID)
    return value.value if isinstance(value, IntegerAttr) else -1


def fingerprint(function: Operation) -> str:
    """A digest of the function's operations, operands, types and properties (not of its locations)."""
    digest = hashlib.sha256()
    numbers: dict[Value, int] = {}
    shown: dict[int, str] = {}  # the text of a type, by the object: most values share theirs with others

    def text_of(type: Type) -> str:
        if id(type) not in shown:
            shown[id(type)] = str(type)
        return shown[id(type)]

    for op in function.walk():
        for block in op.blocks:
            numbers.update((arg, len(numbers) + i) for i, arg in enumerate(block.args))
        numbers.update((result, len(numbers) + i) for i, result in enumerate(op.results))
        own = sorted((name, str(value)) for name, value in op.properties.items())
        text = f"{op.name}({len(op.regions)}){[numbers.get(v, -1) for v in op.operands]}{own}"
        types = "|".join(text_of(value.type) for value in (*op.operands, *op.results))
        digest.update(f"{text}{types}\n".encode())
    return digest.hexdigest()[:16]

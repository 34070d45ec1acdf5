"""Programs and cases as JSON and back."""

from __future__ import annotations

import math
from dataclasses import fields, is_dataclass
from typing import Any

from tests.fuzz import program

_CLASSES = {name: found for name, found in vars(program).items() if isinstance(found, type) and is_dataclass(found)}


def encode(value: object) -> Any:
    """What json.dumps takes. Lists stand for tuples; a node is a dict with the name of its class under "is"."""
    if isinstance(value, tuple | list):
        return [encode(one) for one in value]
    if isinstance(value, dict):
        return {name: encode(one) for name, one in value.items()}
    if is_dataclass(value) and not isinstance(value, type):
        return {"is": type(value).__name__, **{f.name: encode(getattr(value, f.name)) for f in fields(value)}}
    if isinstance(value, float) and math.isinf(value):
        return {"is": "infinity", "negative": value < 0}
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise TypeError(f"no JSON for {value!r}")


def decode(data: Any) -> Any:
    """The inverse of `encode` for values of `program.py`. Raises KeyError for nodes that are not there."""
    if isinstance(data, list):
        return tuple(decode(one) for one in data)
    if not isinstance(data, dict):
        return data
    if "is" not in data:
        return {name: decode(one) for name, one in data.items()}
    parts = {name: decode(one) for name, one in data.items() if name != "is"}
    if data["is"] == "infinity":
        return -math.inf if parts["negative"] else math.inf
    return _CLASSES[data["is"]](**parts)

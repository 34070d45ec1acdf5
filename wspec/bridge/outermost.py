"""An Autotuner or Heuristics that stands over a kernel of ours answers what the kernel answers.

`@triton.autotune` over `@wspec.compile` is the usual order, and what the user's name then stands for is an object of
Triton's. So both classes get a `__getattr__`, which Python asks only for what an object does not have: it knows the
names given here, of objects around a kernel of ours, and for every other name raises what would have been raised.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from wspec.bridge.launch import Autotuner, Heuristics, innermost


def answer(kind: type, methods: Mapping[str, Any]) -> None:
    """Let whatever stands around a kernel of class `kind` have these methods too."""

    def missing(self: Any, name: str) -> Any:
        if name in methods and "fn" in self.__dict__ and isinstance(innermost(self), kind):
            return methods[name].__get__(self, type(self))
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}", name=name, obj=self)

    for wrapper in (Autotuner, Heuristics):
        if not hasattr(wrapper, "__getattr__"):
            wrapper.__getattr__ = missing

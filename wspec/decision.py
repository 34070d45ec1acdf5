"""A decision of the compiler: what was decided, or why not."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Generic, TypeVar

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Decision(Generic[T]):
    """What was decided; None and a reason where the answer is no. Without a reason nobody asked."""

    value: T | None = None
    why_not: str = ""

    def __bool__(self) -> bool:
        return self.value is not None


NOT_ASKED: Decision[Any] = Decision()
"""No, and nobody asked."""

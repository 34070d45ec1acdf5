"""What a topic is: kernels, the quantities they give, and how."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from wspec.lab.calibrate.bench import Bench
from wspec.lab.calibrate.ptx import Kernel

Samples = dict[str, dict[int, list[float]]]
"""Quantity -> key of its table -> samples; a quantity that is a single number has the key 0 alone."""


@dataclass(frozen=True, slots=True)
class Quantity:
    """A number, or a table of numbers by an integer."""

    name: str
    unit: str
    what: str
    by: str = ""  # what the keys of the table are

    def key(self, topic: str) -> str:
        return f"{topic}.{self.name}"


@dataclass(frozen=True, slots=True)
class Topic:
    """Kernels and quantities that belong together; `measure` runs in a process of its own."""

    name: str
    what: str  # how it is measured: the source of its numbers
    modules: tuple[tuple[Kernel, ...], ...]  # each assembled by itself
    quantities: tuple[Quantity, ...]
    measure: Callable[[Bench], Samples]

    @property
    def kernels(self) -> dict[str, Kernel]:
        return {kernel.name: kernel for part in self.modules for kernel in part}

"""Run a mutant under many schedules and compare it with the kernel it was made from."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import count, islice, product
from typing import Literal

import torch

from tests.mutants.goldens import Golden, Launch
from tests.mutants.order import what_is_wrong
from tests.mutants.trace import Place, Pointer
from wspec.execute import (
    ExecutionError,
    FirstReady,
    Kernel,
    Limits,
    Parameter,
    Priorities,
    Random,
    Schedule,
)
from wspec.ir.core import Operation

LIMITS = Limits(operations=100_000)  # the longest launches take a tenth
Seen = Literal["agrees", "other result", "fault", "order matters"]
Bits = tuple[torch.Tensor, ...]


@dataclass(frozen=True, slots=True)
class Observation:
    """What the executor saw of a mutant."""

    seen: Seen
    runs: int
    text: str = ""  # of what is wrong: launch, schedule, message

    @property
    def is_in_order(self) -> bool:
        """Nothing that a checker of order should have refused: no fault, and one result whatever the schedule."""
        return self.seen in ("agrees", "other result")

    def __str__(self) -> str:
        return f"{self.seen}: {self.text}" if self.text else f"{self.seen} in {self.runs} runs"


class Runner:
    """One golden, its launches, and what the unchanged kernel makes of them."""

    def __init__(self, golden: Golden) -> None:
        self.launches = golden.launches()
        self._initial = [[output.clone() for output in launch.outputs] for launch in self.launches]
        self._kernel = Kernel(golden.module())

    @cached_property
    def places(self) -> list[list[Place]]:
        """Of each launch."""
        return [list(places(self._kernel.parameters, launch)) for launch in self.launches]

    @cached_property
    def _expected(self) -> list[Bits | None]:
        """None where the unchanged kernel itself goes wrong, as programs that are drawn may."""
        found: list[Bits | None] = []
        for index in range(len(self.launches)):
            try:
                found.append(self._run(self._kernel, index, FirstReady()))
            except ExecutionError:
                found.append(None)
        return found

    def wrong_order(self, module: Operation) -> str:
        """What may go wrong in a launch in some order (`order.py`); empty when nothing can. Raises Unknown."""
        for launch, places in zip(self.launches, self.places, strict=True):
            for place in places:
                if problem := what_is_wrong(module, place):
                    return f"{launch.name}: {problem}"
        return ""

    def observe(self, module: Operation, runs: int) -> Observation:
        """At most so many runs in all; stops at the first fault, or when two runs of a launch differ."""
        try:
            kernel = Kernel(module)
        except ExecutionError as error:
            return Observation("fault", 0, f"not run at all: {error.message}")
        done, other = 0, ""
        for index, share in _shares(len(self.launches), runs):
            first: Bits | None = None
            for schedule in schedules(kernel.adversaries, share):
                where = f"{self.launches[index].name}, {schedule.name}"
                done += 1
                try:
                    found = self._run(kernel, index, schedule)
                except ExecutionError as error:
                    return Observation("fault", done, f"{where}: {error.message}")
                if first is not None and not _same(found, first):
                    return Observation("order matters", done, f"{where}: another result than in the first run")
                expected = self._expected[index]
                if first is None and expected is not None and not _same(found, expected):
                    other = other or f"{where}: another result than the unchanged kernel's"
                first = found
        return Observation("other result" if other else "agrees", done, other)

    def _run(self, kernel: Kernel, index: int, schedule: Schedule) -> Bits:
        """The bits of the outputs of one launch."""
        launch = self.launches[index]
        for output, initial in zip(launch.outputs, self._initial[index], strict=True):
            output.copy_(initial)
        programs = corners(launch.grid)
        kernel.run(
            launch.grid, launch.arguments, schedule=schedule, programs=programs, implied_fences=False, limits=LIMITS
        )
        return outputs_of(launch)


def corners(grid: tuple[int, ...]) -> list[tuple[int, int, int]]:
    """The programs at the ends of every axis of a grid: of many that do the like, those that differ most."""
    x, y, z = ((0, size - 1) if size > 1 else (0,) for size in (*grid, 1, 1)[:3])
    return list(product(x, y, z))


def places(parameters: Sequence[Parameter], launch: Launch) -> Iterator[Place]:
    """Every program of the launch."""
    integers: dict[int, int | Pointer] = {}
    for parameter, given in zip(parameters, launch.arguments, strict=True):
        if isinstance(given, int):
            integers[parameter.values[0].index] = given
        elif isinstance(given, torch.Tensor) and given.dtype == torch.int32:
            integers[parameter.values[0].index] = Pointer(tuple(given.tolist()))
        elif len(parameter.values) > 1:  # a descriptor, its sizes and its strides
            sizes = [int(size) for size in (*given.shape, *given.strides)]
            integers.update((value.index, size) for value, size in zip(parameter.values[1:], sizes, strict=True))
    x, y, z = (*launch.grid, 1, 1)[:3]
    for place in product(range(x), range(y), range(z)):
        yield Place(integers, place, (x, y, z))


def outputs_of(launch: Launch) -> Bits:
    return tuple(output.contiguous().view(torch.uint8).clone() for output in launch.outputs)


def _same(one: Bits, other: Bits) -> bool:
    return all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


def _shares(launches: int, runs: int) -> Iterator[tuple[int, int]]:
    """How many runs each launch gets: half of all for the last and longest, which comes first."""
    rest = max(2, runs // 2 // max(1, launches - 1)) if launches > 1 else 0
    yield launches - 1, max(2, runs - rest * (launches - 1))
    yield from ((index, rest) for index in range(launches - 1))


def schedules(unkind: Collection[Schedule], number: int) -> list[Schedule]:
    """So many different ones: in order, unkind, then drawn at random in two ways."""
    return list(islice(_endless(unkind), number))


def _endless(unkind: Collection[Schedule]) -> Iterator[Schedule]:
    yield FirstReady()
    yield from (one for one in unkind if one != FirstReady())
    for seed in count():
        yield Random(seed)
        yield Priorities(seed)

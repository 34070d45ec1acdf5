"""Kernels whose caller passes memory that overlaps: `python -m tests.fuzz.overlap`.

A launch's tensors are laid over each other, two at a time: at the same place, shifted, and side by side in one
allocation. The plain kernel says what must come out. Where the launch's guard finds that the arguments may share memory
it runs the plain kernel, and there is nothing to compare; where it does not, the specialized kernel must leave the same
bytes behind under every schedule.
"""

from __future__ import annotations

import argparse
import random
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import permutations
from pathlib import Path
from typing import Any

import torch

from tests.fuzz import data
from tests.fuzz.case import Case, Launch
from tests.fuzz.compiling import Compiling
from tests.fuzz.judge import arguments
from tests.fuzz.trial import draw as drawn
from tests.support.goldens import ROOT
from tests.support.verified import specialize
from wspec import bridge
from wspec.bridge.spans import share
from wspec.cli.inputs import each_variant, open_kernel, signature_of
from wspec.cli.parser import make_parser
from wspec.cli.run_inputs import example_maker
from wspec.diagnostics import WspecError
from wspec.execute.errors import ExecutionError
from wspec.execute.launch import Kernel
from wspec.execute.schedule import FirstReady, Priorities, Random, Schedule
from wspec.host_descriptors import compared
from wspec.ir import read
from wspec.lab.persistent_launch import descriptors_of, executed_launch
from wspec.pipeline import Outcome
from wspec.specs.kernel_file import load_kernel

Arguments = Mapping[str, Any]
ALIGN = 128  # of where tensors begin, in bytes: more than any kernel relies on


@dataclass(frozen=True)
class Subject:
    """A kernel that was specialized, and a launch of it."""

    name: str
    plain: Kernel
    outcome: Outcome
    grid: Sequence[int]
    make: Callable[[], Arguments]  # the same each time

    @property
    def pairs(self) -> list[tuple[str, str]]:
        """The arguments that must not share memory, by name."""
        names = {parameter.values[0].index: parameter.name for parameter in self.plain.parameters}
        return [(names[one], names[other]) for one, other in compared(self.outcome.disjoint, self.outcome.promotion)]

    def is_guarded(self) -> bool:
        """Does its launch run the plain kernel, whatever overlaps, since descriptors would not be the same?"""
        assert self.outcome.module is not None
        try:
            descriptors_of(self.outcome.promotion, Kernel(self.outcome.module).parameters, self.grid, self.make())
        except WspecError:
            return True
        return False


@dataclass(frozen=True, slots=True)
class Layout:
    """`other` is laid over memory at so many bytes behind the start of `one`."""

    one: str
    other: str
    offset: int

    def applied(self, given: Arguments) -> Arguments:
        """The arguments with new tensors for the two, in one allocation."""
        one, other = given[self.one], given[self.other]
        room = max(_size(one), self.offset + _size(other))
        memory = torch.zeros(room + ALIGN, dtype=torch.uint8)
        laid = {self.other: (other, self.offset), self.one: (one, 0)}
        made = {name: _over(memory, tensor, at) for name, (tensor, at) in laid.items()}
        return {**given, **made}

    def __str__(self) -> str:
        return f"{self.other} {self.offset} bytes behind {self.one}"


def _size(tensor: torch.Tensor) -> int:
    return tensor.numel() * tensor.element_size()


def _over(memory: torch.Tensor, tensor: torch.Tensor, at: int) -> torch.Tensor:
    made = memory[at : at + _size(tensor)].view(tensor.dtype).view(tensor.shape)
    made.copy_(tensor)
    return made


def layouts(given: Arguments, draw: random.Random, count: int) -> list[Layout]:
    """Some ways of laying two of the tensors over each other, or side by side."""
    names = [name for name, item in given.items() if isinstance(item, torch.Tensor) and item.is_contiguous()]
    found = [
        Layout(one, other, offset)
        for one, other in permutations(names, 2)
        for offset in {0, ALIGN, _size(given[one]) // 2 // ALIGN * ALIGN, -(-_size(given[one]) // ALIGN) * ALIGN}
    ]
    draw.shuffle(found)
    return found[:count]


@dataclass
class Tally:
    """What was seen."""

    counts: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        return ", ".join(f"{count} {what}" for what, count in self.counts.items())


def examine(subject: Subject, seed: int, layouts_each: int, schedules: int, tally: Tally) -> None:
    """Lay arguments over each other, and compare."""
    assert subject.outcome.module is not None
    special, draw = Kernel(subject.outcome.module), random.Random(seed)
    tally.counts["kernels"] += 1
    for layout in layouts(subject.make(), draw, layouts_each):
        try:
            truth = _left(subject, subject.plain, layout, FirstReady())
        except ExecutionError:
            tally.counts["layouts on which the plain kernel fails"] += 1
            continue
        tally.counts["layouts"] += 1
        given = layout.applied(subject.make())
        if any(share(given[one], given[other]) for one, other in subject.pairs):
            tally.counts["run plain"] += 1
            tally.counts["of them wrong if specialized"] += _differs(subject, special, layout, FirstReady(), truth)
            continue
        if share(given[layout.one], given[layout.other]):
            tally.counts["specialized on shared memory"] += 1
        for schedule in (FirstReady(), *_drawn(draw, special, schedules - 1)):
            tally.counts["runs"] += 1
            if _differs(subject, special, layout, schedule, truth):
                tally.wrong.append(f"{subject.name}: {layout}, schedule '{schedule.name}'")
                break


def _drawn(draw: random.Random, kernel: Kernel, count: int) -> Iterator[Schedule]:
    for number in range(count):
        seed = draw.randrange(1 << 20)
        unkind = kernel.adversaries
        yield (Random(seed), Priorities(seed), unkind[seed % len(unkind)])[number % 3]


def _differs(subject: Subject, kernel: Kernel, layout: Layout, schedule: Schedule, truth: Mapping[str, bytes]) -> bool:
    try:
        return _left(subject, kernel, layout, schedule) != truth
    except ExecutionError:
        return True


def _left(subject: Subject, kernel: Kernel, layout: Layout, schedule: Schedule) -> dict[str, bytes]:
    """The bytes of every tensor after a launch."""
    given = layout.applied(subject.make())
    names = {parameter.name for parameter in kernel.parameters}
    plan, promotion = (subject.outcome.plan, subject.outcome.promotion) if kernel is not subject.plain else (None, None)
    given_too = descriptors_of(promotion, kernel.parameters, subject.grid, given)
    grid, hidden = executed_launch(plan, kernel.parameters, subject.grid, given)
    own = {name: item for name, item in given.items() if name in names} | given_too
    own |= {name: torch.from_numpy(numbers) for name, numbers in hidden.items()}
    kernel.run(grid, own, schedule=schedule)
    tensors = {name: item for name, item in given.items() if isinstance(item, torch.Tensor)}
    return {name: item.contiguous().view(torch.uint8).numpy().tobytes() for name, item in tensors.items()}


# ------------------------------------------------------------------------------------------------- subjects


def shipped() -> Iterator[Subject]:
    """Every variant of every kernel that comes with wspec, has an example and is specialized."""
    for path in sorted((ROOT / "kernels").glob("*.toml")):
        for kernel in _kernels_in(path):
            args = make_parser().parse_args(["plan", f"{path.with_suffix('.py')}:{kernel}", "--gate", "off"])
            for variant in each_variant(args):
                yield from of_variant(variant)


def _kernels_in(path: Path) -> list[str]:
    import tomllib

    return list(tomllib.loads(path.read_text()))


def of_variant(args: argparse.Namespace) -> Iterator[Subject]:
    """The kernel of a command line, if it is specialized and has an example."""
    subject = open_kernel(args)
    module = read(subject.front.stages["ttgir"])
    outcome = specialize(module, subject.options)
    if outcome.module is None:
        return
    kernel = load_kernel(args.input)
    try:
        make = example_maker(signature_of(args, kernel), kernel, {}, outputs=False)
        first = make(0)
    except WspecError:
        return
    name = f"{Path(args.input).name} {args.variant}"
    made = Subject(name, Kernel(read(subject.front.stages["ttgir"])), outcome, first.grid, lambda: make(0).arguments)
    if not made.is_guarded():
        yield made


def fuzzed(number: int, folder: Path) -> Subject | None:
    """The kernel of that number of the fuzzer, if it is specialized, with its first launch."""
    compiling = Compiling(drawn(number), folder)
    try:
        outcome = compiling.specialized()
    except bridge.BridgeError:  # libtriton refuses the kernel as it is
        return None
    if outcome.module is None:
        return None
    case, launch = compiling.case, compiling.case.launches[0]
    grid = data.grid(case.program, launch)
    made = Subject(f"kernel {number}", Kernel(compiling.plain()), outcome, grid, lambda: _arguments(case, launch))
    return None if made.is_guarded() else made


def _arguments(case: Case, launch: Launch) -> Arguments:
    return arguments(case, launch, data.tensors(case.program, launch))


# ------------------------------------------------------------------------------------------------- command


def main(given: list[str] | None = None) -> int:
    """1 where a specialized kernel leaves other bytes behind than the plain one."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.overlap", description=__doc__)
    parser.add_argument("--count", type=int, default=200, help="specialized kernels of the fuzzer (default 200)")
    parser.add_argument("--seed", type=int, default=105, help="which (default 105)")
    parser.add_argument("--layouts", type=int, default=6, help="of the arguments of each kernel (default 6)")
    parser.add_argument("--schedules", type=int, default=4, help="of each layout (default 4)")
    parser.add_argument("--no-shipped", action="store_true", help="leave out the kernels that come with wspec")
    args = parser.parse_args(given)
    wrong: list[str] = []
    if not args.no_shipped:
        tally = Tally()
        for at, subject in enumerate(shipped()):
            examine(subject, at, 2 * args.layouts, args.schedules, tally)
        print(f"shipped: {tally}", flush=True)
        wrong += tally.wrong
    tally, number = Tally(), args.seed * 1_000_000
    with tempfile.TemporaryDirectory(prefix="wspec-fuzz-") as folder:
        while tally.counts["kernels"] < args.count:
            number += 1
            found = fuzzed(number, Path(folder))
            if found is not None:
                examine(found, number, args.layouts, args.schedules, tally)
                if tally.counts["kernels"] % 25 == 0:
                    print(f"fuzzed, up to {number}: {tally}", flush=True)
    print(f"fuzzed: {tally}")
    wrong += tally.wrong
    print(*wrong, sep="\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())

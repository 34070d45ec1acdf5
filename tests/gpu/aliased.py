"""A kernel and the plain one it was made of on the same arguments, laid over each other: do they leave the same behind?

Each runs in a process of its own (children.py), for a kernel that faults takes with it all that comes after, and it may
be the plain one: Triton compiles some that run out of bounds now and then. Such a kernel has no numbers that ours could
be compared with, no more than one whose blocks race, so that it leaves other bits behind from run to run.
"""

from __future__ import annotations

import copy
import itertools
import random
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, Literal
from unittest.mock import patch

import torch
import triton
from triton.tools.tensor_descriptor import TensorDescriptor

import wspec
from tests.fuzz import data
from tests.fuzz.compiling import Compiling
from tests.fuzz.judge import arguments
from tests.fuzz.overlap import Arguments, Layout, layouts
from tests.fuzz.trial import draw as drawn
from tests.gpu.children import Answered, Lost
from tests.support.goldens import ROOT
from wspec import bridge
from wspec.bridge.frontend import KernelSource
from wspec.bridge.overlap_guard import Plain
from wspec.cli.inputs import open_kernel, signature_of
from wspec.cli.parser import make_parser
from wspec.cli.run_inputs import example_maker
from wspec.diagnostics import WspecError
from wspec.execute import ExecutionError, Kernel
from wspec.ir import read
from wspec.specs.kernel_file import load_kernel

RUNS = 2  # more of the plain kernel, to see whether it always leaves the same behind
MORE_RUNS = 30  # where the other one leaves something else
FAULT_RUNS = 300  # where the other one faults: one of the fuzzer's faults in one of 50
TOLERANCE = 2e-2
ANSWER_S = 120.0  # for a launch, and compiling before the first beside other work
STEADY, RACES = "steady", "the plain kernel's blocks race"
Bytes = tuple[bytes, ...]


@dataclass(frozen=True)
class Launched:
    """A kernel and one launch of it. `given`: tensors of the CPU and numbers, by name."""

    name: str
    opened: Callable[[], KernelSource]
    options: Mapping[str, Any]  # of wspec
    grid: tuple[int, ...]
    given: Arguments

    @cached_property
    def source(self) -> KernelSource:
        return self.opened()

    @cached_property
    def plain(self) -> Any:
        return self.source.ast.fn

    @cached_property
    def ours(self) -> Any:
        return wspec.compile(self.plain, **{"gate": "off", "remarks": "off", **self.options})

    @cached_property
    def executed(self) -> Kernel:
        """The plain kernel in the executor."""
        return Kernel(read(bridge.ttgir(self.source)))

    def after_executed(self, layout: Layout | None, *, backwards: bool = False) -> Bytes | None:
        """The bytes of every tensor after the plain kernel in the executor, which runs its blocks in turn, or the last
        one first. None where that finds something wrong with it, such as a place that is out of bounds."""
        names = {parameter.name for parameter in self.executed.parameters}
        given = copy.deepcopy(dict(self.given)) if layout is None else layout.applied(self.given)
        try:
            programs = programs_of(self.grid)
            passed = {name: item for name, item in given.items() if name in names}
            self.executed.run(self.grid, passed, programs=programs[::-1] if backwards else programs)
        except ExecutionError:
            return None
        tensors = (one for one in given.values() if isinstance(one, torch.Tensor))
        return tuple(one.contiguous().view(torch.uint8).numpy().tobytes() for one in tensors)

    def after(self, kernel: Any, layout: Layout | None) -> Bytes:
        """The bytes of every tensor after a launch. Raises what the launch raises."""
        given = on_card(self.given if layout is None else layout.applied(self.given))
        names, constants = list(self.source.ast.signature), self.source.ast.constants
        compiled = {names[path[0]]: value for path, value in constants.items() if len(path) == 1}
        asked = {name: self._passed(name, given[name]) for name in names if name in given}
        warps, stages = self.source.options.num_warps, self.source.options.num_stages
        kernel[self.grid](**{**compiled, **asked}, num_warps=warps, num_stages=stages)
        torch.cuda.synchronize()
        tensors = (one for one in given.values() if isinstance(one, torch.Tensor))
        return tuple(one.contiguous().view(torch.uint8).cpu().numpy().tobytes() for one in tensors)

    def difference(self, left: Bytes, right: Bytes, exact: bool) -> str:
        """Which arguments two kernels leave behind with other numbers, and in how many elements; "" of none. Rounding
        counts only if `exact`."""
        named = [(name, one) for name, one in self.given.items() if isinstance(one, torch.Tensor)]
        found = []
        for (name, given), one, other in zip(named, left, right, strict=True):
            if one == other:
                continue
            a, b = (torch.frombuffer(bytearray(data), dtype=given.dtype) for data in (one, other))
            x, y = a.double(), b.double()
            same = (x == y) | (x.isnan() & y.isnan()) if given.is_floating_point() else a == b
            if given.is_floating_point() and not exact:
                same |= torch.isclose(x, y, rtol=TOLERANCE, atol=TOLERANCE, equal_nan=True)
            if not bool(same.all()):
                most = (x - y).abs()[~same].nan_to_num(nan=float("inf"), posinf=float("inf")).max().item()
                found.append(f"{name}: {int((~same).sum())} of {same.numel()} elements, by {most:.3g} at most")
        return "; ".join(found)

    def _passed(self, name: str, given: Any) -> Any:
        """A tensor as the kernel's type says."""
        type = self.source.ast.signature[name]
        if not (isinstance(type, str) and type.startswith("tensordesc")):
            return given
        block = [int(size) for size in type[type.index("[") + 1 : type.index("]")].split(",")]
        return TensorDescriptor.from_tensor(given, block)


def programs_of(grid: Sequence[int]) -> list[tuple[int, int, int]]:
    """In the order in which the executor runs them."""
    x, y, z = (*grid, 1, 1)[:3]
    return [(i, j, k) for k in range(z) for j in range(y) for i in range(x)]


def on_card(given: Arguments) -> dict[str, Any]:
    """The same arguments on the card: tensors that share memory share it there."""
    moved: dict[int, torch.Tensor] = {}
    found: dict[str, Any] = {}
    for name, one in given.items():
        if not isinstance(one, torch.Tensor):
            found[name] = one
            continue
        whole = one.untyped_storage()
        if whole.data_ptr() not in moved:
            moved[whole.data_ptr()] = torch.empty(0, dtype=torch.uint8).set_(whole).cuda()  # type: ignore[call-overload]
        memory, size = moved[whole.data_ptr()], one.element_size()
        flat = memory[: memory.numel() // size * size].view(one.dtype)
        found[name] = flat.as_strided(one.shape, one.stride(), one.storage_offset())
    return found


# ---------------------------------------------------------------------------------------------------- kernels


@dataclass(frozen=True, slots=True)
class Shipped:
    """A variant of a kernel that comes with wspec."""

    file: str
    variant: str

    def launched(self) -> Launched | None:
        """None of a variant without an example."""
        args = make_parser().parse_args(["plan", f"{ROOT}/kernels/{self.file}", "--variant", self.variant])
        kernel = load_kernel(args.input)
        try:
            trial = example_maker(signature_of(args, kernel), kernel, {}, outputs=False)(0)
        except WspecError:
            return None
        name = f"{self.file} {self.variant}"
        return Launched(name, lambda: open_kernel(args).offline.source, {}, trial.grid, trial.arguments)


@dataclass(frozen=True, slots=True)
class Fuzzed:
    """A kernel of the fuzzer, with its first launch; the folder is for its source."""

    number: int
    folder: Path

    def launched(self) -> Launched:
        compiling = Compiling(drawn(self.number), self.folder)
        case, launch = compiling.case, compiling.case.launches[0]
        given = arguments(case, launch, data.tensors(case.program, launch))
        grid = data.grid(case.program, launch)
        return Launched(f"kernel {self.number}", lambda: compiling.source, case.options, grid, given)

    def is_specialized(self) -> bool:
        """As far as the proof."""
        try:
            return Compiling(drawn(self.number), self.folder).specialized().module is not None
        except bridge.BridgeError:  # libtriton refuses the kernel as it is
            return False


# ---------------------------------------------------------------------------------------------------- processes


@dataclass(frozen=True, slots=True)
class Question:
    """What a process is asked. look: is it specialized? plain, ours: what is left behind after so many launches?"""

    kernel: Shipped | Fuzzed
    by: Literal["look", "plain", "ours"]
    layout: Layout | None = None
    launches: int = 1


@dataclass(frozen=True, slots=True)
class Answer:
    """What was left behind, each only once, in the order in which it was seen; whether what ran is specialized: it is
    not where a guard of the launch had the plain kernel run."""

    seen: tuple[Bytes, ...]
    specialized: bool


Ask = Callable[[Question, float], Answered[Answer] | Lost]


def answer(question: Question) -> Answer:
    """In the process that uses the card. Raises what compiling and launching raise."""
    if question.by == "look":
        assert isinstance(question.kernel, Fuzzed)
        return Answer((), question.kernel.is_specialized())
    triton.set_allocator(lambda size, alignment, stream: torch.empty(size, device="cuda", dtype=torch.int8))
    one = _launched(question.kernel)
    assert one is not None
    if question.by == "ours" and question.layout is None:
        one.after(one.ours, None)  # compiles
        compiled = wspec.report().entries
        return Answer((one.after(one.ours, None),), bool(compiled) and compiled[-1].specialized)
    kernel = one.plain if question.by == "plain" else one.ours
    with patch.object(Plain, "start", autospec=True, side_effect=Plain.start) as guarded:
        seen = dict.fromkeys(one.after(kernel, question.layout) for _ in range(question.launches))
    return Answer(tuple(seen), question.by == "ours" and not guarded.called)


@lru_cache(maxsize=1)
def _launched(kernel: Shipped | Fuzzed) -> Launched | None:
    return kernel.launched()


# ---------------------------------------------------------------------------------------------------- comparing


@dataclass
class Compared:
    """A kernel, and who runs it."""

    kernel: Shipped | Fuzzed
    one: Launched
    plain: Ask
    ours: Ask
    exact: bool = True  # do the two give the same bits? Sums over the rows of other warps are in another order
    specialized: bool = True  # is ours, after the proof?

    def examine(self, seed: int, count: int, seen: Counter[str]) -> Iterator[str]:
        """Compare the two on the arguments as they are, and then on so many layouts of them. What is wrong, in a line
        each.

        `seen` counts what became of layouts, and under "compared" the kernel, if it is specialized and both left the
        same behind on a layout or more.
        """
        steady = 0
        for layout in (None, *chosen(self.one, seed, count)):
            became, wrong = self._on(layout)
            if wrong:
                where = "as it is" if layout is None else str(layout)
                yield f"{self.one.name}, seed {seed}, {where}: {wrong}"
            elif became != STEADY or layout is not None:
                seen[became] += 1
                steady += became == STEADY
            if layout is None and (wrong or became != STEADY):
                return
        seen["left alone"] += not self.specialized
        seen["compared"] += self.specialized and steady > 0

    def _on(self, layout: Layout | None) -> tuple[str, str]:
        """(what became of it, what is wrong)."""
        ran = self.plain(Question(self.kernel, "plain", layout, 1 + RUNS), ANSWER_S)
        if isinstance(ran, Lost):
            return f"the plain kernel does not run ({ran.kind})", ""
        if len(ran.value.seen) > 1:
            return RACES, ""
        (expected,) = ran.value.seen
        found = self.ours(Question(self.kernel, "ours", layout), ANSWER_S)
        if isinstance(found, Lost):
            wrong, launches = f"{found.kind}, {found.message}", FAULT_RUNS
        else:
            (left,) = found.value.seen
            if layout is None:
                self.specialized = found.value.specialized
                self.exact = not self.one.difference(left, expected, True)
            wrong, launches = self.one.difference(left, expected, self.exact), MORE_RUNS
        if not wrong:
            return STEADY, ""
        again = self.plain(Question(self.kernel, "plain", layout, launches), ANSWER_S)
        if isinstance(again, Lost):
            return f"the plain kernel does not always run ({again.kind})", ""
        if again.value.seen != (expected,):
            return RACES, ""
        if isinstance(found, Answered) and not (self.specialized and found.value.specialized):
            return "the plain kernel leaves other numbers in another process", ""
        return self._judged(layout, wrong, expected, found)

    def _judged(
        self, layout: Layout | None, wrong: str, expected: Bytes, found: Answered[Answer] | Lost
    ) -> tuple[str, str]:
        """By what the executor makes of the plain kernel: is that wrong, as it stands or as the back end made it?"""
        right = self.one.after_executed(layout)
        if right is None:
            return "the executor finds the plain kernel wrong", ""
        if self.one.after_executed(layout, backwards=True) != right:
            return RACES, ""
        apart = self.one.difference(expected, right, False)
        if isinstance(found, Answered) and apart and not self.one.difference(found.value.seen[0], right, False):
            return "the back end made the plain kernel wrong", ""
        return "wrong", wrong + (f" (plain is not what the executor says: {apart})" if apart else "")


def chosen(one: Launched, seed: int, count: int) -> Sequence[Layout]:
    """Layouts in which no number that says where something is, or how long, lies over something else."""
    every = layouts(one.given, random.Random(seed), 1 << 30)
    numbers = (torch.int32, torch.int64)
    free = (it for it in every if one.given[it.one].dtype not in numbers and one.given[it.other].dtype not in numbers)
    return list(itertools.islice(free, count))


def until_compared(
    kernels: Iterator[Fuzzed], count: int, seed: int, layouts_each: int, plain: Ask, ours: Ask, seen: Counter[str]
) -> list[str]:
    """Take kernels that are specialized until so many were compared. What is wrong."""
    wrong: list[str] = []
    while seen["compared"] < count:
        kernel = next(kernels)
        looked = ours(Question(kernel, "look"), ANSWER_S)
        if isinstance(looked, Answered) and not looked.value.specialized:
            continue  # what could not even be looked at shows when it runs
        wrong += Compared(kernel, kernel.launched(), plain, ours).examine(seed, layouts_each, seen)
        if len(wrong) > count:
            break
    return wrong

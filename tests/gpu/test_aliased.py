"""Arguments laid over each other, on a Hopper GPU: the numbers are the plain kernel's.

Two tensors of a launch are laid over each other at a time: at the same place, shifted, half of one over the other, side
by side. Every shipped variant with an example is launched so, and 200 kernels of the fuzzer, small enough for few
blocks. Where blocks of the plain kernel race for such memory, so that it leaves other bits behind from run to run, it
has no numbers of its own, and none are compared. The launch's guard is what sees to it; tests/fuzz/test_overlap.py does
the same in the executor. What is wrong is told in a line for each launch: the seed, the layout, the arguments that
differ and in how many elements.
"""

from __future__ import annotations

import itertools
import random
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
import triton
from triton.tools.tensor_descriptor import TensorDescriptor

import wspec
from tests.fuzz import data
from tests.fuzz.compiling import Compiling
from tests.fuzz.judge import arguments
from tests.fuzz.overlap import Arguments, Layout, layouts
from tests.fuzz.trial import draw as drawn
from tests.ptx.shipped_ptx import variants
from tests.support.goldens import ROOT
from wspec import bridge
from wspec.bridge.frontend import KernelSource
from wspec.cli.inputs import open_kernel, signature_of
from wspec.cli.parser import make_parser
from wspec.cli.run_inputs import example_maker
from wspec.diagnostics import WspecError
from wspec.execute import ExecutionError, Kernel
from wspec.ir import read
from wspec.specs.kernel_file import load_kernel

pytestmark = pytest.mark.gpu

FUZZED, EACH, FIRST = 40, 5, 105_000_000  # tests, kernels in each, and the number of the first
SHIPPED_LAYOUTS, FUZZED_LAYOUTS = 12, 4
RUNS = 2  # more of the plain kernel, to see whether it always leaves the same behind
TOLERANCE = 2e-2
MORE_RUNS = 30  # where the other one leaves something else
MOST_TOLD = 300  # characters of an error
Bytes = tuple[bytes, ...]


@dataclass(frozen=True)
class Launched:
    """A kernel and one launch of it. `given`: tensors of the CPU and numbers, by name."""

    name: str
    source: KernelSource
    options: Mapping[str, Any]  # of wspec
    grid: tuple[int, ...]
    given: Arguments

    @property
    def plain(self) -> Any:
        return self.source.ast.fn

    def specialized(self) -> Any:
        return wspec.compile(self.plain, **{"gate": "off", "remarks": "off", **self.options})

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


def examine(one: Launched, seed: int, count: int, seen: Counter[str]) -> Iterator[str]:
    """Compare the two kernels on so many layouts of the arguments: bit by bit, if they give the same bits at all. What
    is wrong, in a line each."""
    ours = one.specialized()
    usual, found = one.after(one.plain, None), one.after(ours, None)
    exact = not one.difference(found, usual, True)  # sums over the rows of other warps are in another order
    if not exact and (wrong := one.difference(found, usual, False)):
        if _races(one, None, usual):
            seen["the plain kernel races"] += 1
        else:
            yield f"{one.name}, seed {seed}, as it is: {wrong}"
        return
    module = Kernel(read(bridge.ttgir(one.source)))
    for layout in chosen(one, seed, count):
        if not _runs(one, module, layout):
            seen["not run"] += 1
            continue
        expected, found = one.after(one.plain, layout), one.after(ours, layout)
        wrong = one.difference(found, expected, exact)
        if _races(one, layout, expected, MORE_RUNS if wrong else RUNS):
            seen["the plain kernel races"] += 1
        elif wrong:
            yield f"{one.name}, seed {seed}, {layout}: {wrong}"
        else:
            seen["steady"] += 1


def _races(one: Launched, layout: Layout | None, expected: Bytes, runs: int = MORE_RUNS) -> bool:
    """Does the plain kernel leave something else behind in one of so many runs?"""
    return any(one.after(one.plain, layout) != expected for _ in range(runs))


def chosen(one: Launched, seed: int, count: int) -> Sequence[Layout]:
    """Layouts in which no number that says where something is, or how long, lies over something else."""
    every = layouts(one.given, random.Random(seed), 1 << 30)
    numbers = (torch.int32, torch.int64)
    free = (it for it in every if one.given[it.one].dtype not in numbers and one.given[it.other].dtype not in numbers)
    return list(itertools.islice(free, count))


def _runs(one: Launched, plain: Kernel, layout: Layout) -> bool:
    """Does the executor find nothing wrong with the plain kernel? What is out of bounds would end this process."""
    names = {parameter.name for parameter in plain.parameters}
    given = {name: item for name, item in layout.applied(one.given).items() if name in names}
    try:
        plain.run(one.grid, given)
    except ExecutionError:
        return False
    return True


# ---------------------------------------------------------------------------------------------------- kernels


def shipped(file: str, variant: str) -> Launched | None:
    """None of a variant without an example."""
    args = make_parser().parse_args(["plan", f"{ROOT}/kernels/{file}", "--variant", variant])
    kernel = load_kernel(args.input)
    try:
        trial = example_maker(signature_of(args, kernel), kernel, {}, outputs=False)(0)
    except WspecError:
        return None
    return Launched(f"{file} {variant}", open_kernel(args).offline.source, {}, trial.grid, trial.arguments)


def fuzzed(first: int, folder: Path) -> Iterator[Launched]:
    """The kernels of the fuzzer from that number on that are specialized, each with its first launch."""
    for number in itertools.count(first):
        compiling = Compiling(drawn(number), folder)
        try:
            if compiling.specialized().module is None:
                continue
        except bridge.BridgeError:  # libtriton refuses the kernel as it is
            continue
        case, launch = compiling.case, compiling.case.launches[0]
        given = arguments(case, launch, data.tensors(case.program, launch))
        grid = data.grid(case.program, launch)
        yield Launched(f"kernel {number}", compiling.source, case.options, grid, given)


@pytest.fixture(autouse=True)
def memory_for_descriptors() -> None:
    """Plain kernels that make descriptors of their own ask for it."""
    triton.set_allocator(lambda size, alignment, stream: torch.empty(size, device="cuda", dtype=torch.int8))


@pytest.mark.parametrize("variant", list(variants()), ids=" ".join)
def test_shipped(variant: tuple[str, str]) -> None:
    one, seen = shipped(*variant), Counter[str]()
    if one is None:
        pytest.skip("there is no example of it")
    wrong = list(examine(one, 1, SHIPPED_LAYOUTS, seen))
    assert not wrong, _told(wrong)
    assert seen["steady"] > 0, f"nothing was compared: {dict(seen)}"


@pytest.mark.parametrize("part", range(FUZZED))
def test_fuzzed(part: int, tmp_path: Path) -> None:
    seen, wrong = Counter[str](), list[str]()
    for one in itertools.islice(fuzzed(FIRST + 1000 * part, tmp_path), EACH):
        try:
            wrong += examine(one, part, FUZZED_LAYOUTS, seen)
        except Exception as error:
            wrong.append(f"{one.name}, seed {part}: {type(error).__name__}: {error}"[:MOST_TOLD])
    assert not wrong, _told(wrong)
    assert seen["steady"] > EACH, f"next to nothing was compared: {dict(seen)}"


def _told(wrong: Sequence[str]) -> str:
    """In a line, for those who see only the first one of a message."""
    return f"{len(wrong)} wrong: {' | '.join(wrong)}"

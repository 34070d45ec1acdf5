"""`python -m tests.gpu.refused`: what a GPU makes of modules that the checker refuses.

Draws mutants of kernels (tests/mutants) that the checker does not prove, for a reason that need not hang, compiles them
on all processors, and launches each over and over in a child process that is killed when it takes too long. What it
leaves behind is compared, bit by bit, with what the unchanged kernel does. That a card gives the right bits proves
nothing; that it never does for a kind of finding says that the checker is right about it.
"""

from __future__ import annotations

import argparse
import functools
import json
import multiprocessing
import os
import pickle
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from triton.compiler import make_backend
from triton.runtime.driver import driver
from triton.tools.tensor_descriptor import TensorDescriptor

from tests.fuzz.isolated import Returned, isolated
from tests.gpu.children import Outcome, Tell, each, run_all
from tests.mutants.__main__ import one_thread
from tests.mutants.drawn import described, drawn
from tests.mutants.drawn_subjects import PROGRAM, Subject, subjects
from tests.mutants.goldens import Launch
from tests.support.disjoint import all_apart
from wspec.bridge import cuda, launcher
from wspec.bridge.backend import assemble
from wspec.bridge.frontend import HOPPER, KernelSource, capability
from wspec.bridge.text import captured, reparse
from wspec.bridge.text import verify as verified
from wspec.check import check
from wspec.execute import Kernel, Parameter
from wspec.ir import print_module
from wspec.ir.core import Operation
from wspec.ir.shared_memory import placed
from wspec.ir.types import PointerType, ScalarType, TensorDescType, Type

HANGS = frozenset(
    (
        "deadlock",
        "phase",
        "arrivals",
        "bytes",
        "barrier-setup",
        "registers",
        "warps",
        "named-barrier",
        "too-many-states",
    )
)
"""What the checker says of modules that hang by construction, or do not start."""
SEEDS = range(700_000, 800_000)  # of the mutants; 8 of 100 are refused for another reason
PER_SUBJECT = 1000  # seeds
LEAST = 4  # modules of a subject that is looked at
TIMEOUT_S = 5.0  # for all launches of one module
CHECK_S = 2.0  # for the checker
COMPILE_S = 20.0  # for one module
PREPARING = 0.6  # of the time
TOGETHER = 6  # modules that are given to a child at a time
RUNS = 4  # of the executor, to see that it does not stop there
_NAMES = {"f16": "fp16", "f32": "fp32", "f64": "fp64"}


@dataclass(frozen=True, slots=True)
class Binary:
    """A module, compiled."""

    cubin: bytes
    name: str
    warps: int
    shared: int
    signature: Mapping[str, str]  # the type of each parameter, as a signature of Triton has it
    maps: tuple[Any, ...]  # what Triton notes of each descriptor


@dataclass(frozen=True, slots=True)
class Part:
    """A tensor: a part of a storage, all counted in elements."""

    storage: int
    dtype: torch.dtype
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int


@dataclass(frozen=True, slots=True)
class Box:
    """A descriptor of a tensor."""

    whole: Part
    block: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Frozen:
    """A launch as it can be sent to another process: bytes, and which of them the arguments are."""

    grid: tuple[int, ...]
    storages: tuple[npt.NDArray[np.uint8], ...]
    arguments: tuple[Part | Box | float, ...]
    outputs: tuple[Part, ...]


def frozen(launch: Launch, types: Sequence[Type]) -> Frozen:
    """`types`: of the parameters."""
    places: dict[int, int] = {}
    storages: list[npt.NDArray[np.uint8]] = []

    def part(tensor: Tensor, shape: Sequence[int], strides: Sequence[int]) -> Part:
        whole = tensor.untyped_storage()
        if whole.data_ptr() not in places:
            places[whole.data_ptr()] = len(storages)
            storages.append(torch.empty(0, dtype=torch.uint8).set_(whole).numpy().copy())  # type: ignore[call-overload]
        at = places[whole.data_ptr()]
        return Part(at, tensor.dtype, tuple(map(int, shape)), tuple(map(int, strides)), int(tensor.storage_offset()))

    def argument(given: Any, type: Type) -> Part | Box | float:
        if isinstance(given, Tensor):
            found = part(given, given.shape, given.stride())
        elif isinstance(type, TensorDescType):
            found = part(given.base, given.shape, given.strides)
        else:
            number: float = given
            return number
        return Box(found, tuple(type.block.shape)) if isinstance(type, TensorDescType) else found

    arguments = tuple(argument(given, type) for given, type in zip(launch.arguments, types, strict=True))
    outputs = tuple(part(one, one.shape, one.stride()) for one in launch.outputs)
    return Frozen(tuple(launch.grid), tuple(storages), arguments, outputs)


@dataclass(frozen=True, slots=True)
class Refused:
    """A mutant that the checker does not prove, and a launch of it."""

    name: str  # the seed
    subject: str
    edits: str
    verdict: str  # error or undecided
    codes: tuple[str, ...]
    binary: Binary
    plain: Binary  # the unchanged kernel
    launch: Frozen


@dataclass(frozen=True, slots=True)
class Row:
    """What became of one."""

    name: str
    subject: str
    edits: str
    verdict: str
    codes: tuple[str, ...]
    card: str  # right, wrong, hang, fault (CUDA reports an error), refused (it does not start)
    launches: int
    wrong: int  # of them
    seconds: float
    message: str


def main(words: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(words)
    begin = time.monotonic()
    until = begin + PREPARING * options.within_s
    made = _prepared(options.count, options.seed, options.jobs, until)
    print(f"{len(made)} modules in {time.monotonic() - begin:.0f} s", flush=True)
    if options.keep is not None:
        options.keep.write_bytes(pickle.dumps(made))
    if options.compile_only:
        return 0
    rows: list[Row] = []
    for row in _on_card(made, options.launches, options.beside):
        rows.append(row)
        said = f"{row.verdict} ({', '.join(row.codes)})"
        print(f"{row.name} {row.subject}: {said}: {row.card} {row.wrong}/{row.launches} {row.message}", flush=True)
        if options.json is not None:  # as they come: what ends this early leaves those before
            options.json.write_text(json.dumps([asdict(row) for row in rows], indent=1) + "\n")
        if time.monotonic() - begin > options.within_s:
            print(f"the time is over: {len(made) - len(rows)} modules were not launched", flush=True)
            break
    print(table(rows))
    print(f"in {time.monotonic() - begin:.0f} s", flush=True)
    return 0 if rows else 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.gpu.refused", description=__doc__)
    parser.add_argument("--count", type=int, default=100, help="modules")
    parser.add_argument("--seed", type=int, default=SEEDS.start, help="of the first mutant")
    parser.add_argument("--jobs", type=int, default=max(1, (os.cpu_count() or 2) - 1), help="processes that compile")
    parser.add_argument("--beside", type=int, default=6, help="processes that use the card at a time")
    parser.add_argument("--within-s", type=float, default=110.0, help="seconds in which to end")
    parser.add_argument("--launches", type=int, default=40, help="of each module")
    parser.add_argument("--json", type=Path, help="where what was seen of each module goes")
    parser.add_argument("--keep", type=Path, help="where the compiled modules go")
    parser.add_argument("--compile-only", action="store_true", help="leave the card alone")
    return parser


# ----------------------------------------------------------------------------------------------- modules


def _prepared(count: int, seed: int, jobs: int, until: float) -> list[Refused]:
    """So many, the same for the same seed as long as the time suffices; those there are at `until` (time.monotonic).

    A process takes one subject at a time: it is specialized, and compiled as it is, but once.
    """
    names = sorted(name for name in subjects() if name != PROGRAM)
    each = max(-(-count // len(names)) + 1, LEAST)
    found: list[Refused] = []
    with ProcessPoolExecutor(jobs, multiprocessing.get_context("fork"), one_thread) as pool:
        of = {pool.submit(_of_subject, name, seed + at * PER_SUBJECT, each, until): at for at, name in enumerate(names)}
        parts: dict[int, list[Refused]] = {}
        for done in as_completed(of):
            parts[of[done]] = done.result()
            if sum(map(len, parts.values())) >= count or time.monotonic() > until:
                break
        pool.shutdown(wait=False, cancel_futures=True)
        for at in sorted(parts):
            found += parts[at]
        for process in multiprocessing.active_children():  # those that have not come to the end of a mutant
            process.kill()
    return found[:count]


def _of_subject(name: str, first: int, count: int, until: float) -> list[Refused]:
    """So many mutants of one subject, or those there are at `until`."""
    found: list[Refused] = []
    for seed in range(first, first + PER_SUBJECT):
        if len(found) == count or time.monotonic() > until:
            break
        one = _drawn(seed, name)
        found += [] if one is None else [one]
    return found


def _drawn(seed: int, name: str) -> Refused | None:
    """The mutant of a seed, if the checker refuses it for what need not hang, and it compiles."""
    one, module, placement, edits = drawn(Random(seed), [name])
    try:
        parameters = Kernel(one.module()).parameters
        if not all(_is_known(parameter) for parameter in parameters):
            return None
        report = check(module, limit_s=CHECK_S, disjoint=all_apart(module), placement=placement)
        codes = {finding.code for finding in report.findings}
        if report.ok or codes & HANGS:
            return None
        seen = one.runner.observe(placed(module, placement), RUNS)
        if "deadlock" in seen.text or "more than" in seen.text or "outside of" in seen.text:
            return None
    except Exception:  # a mutant that brings something down is no matter of this
        return None
    plain = _unchanged(one.name, one)
    binary = None if plain is None else _apart(module)
    if binary is None or plain is None:
        return None
    kind = "error" if report.errors else "undecided"
    launch = frozen(one.runner.launches[-1], [parameter.type for parameter in parameters])
    return Refused(f"{seed}", one.name, described(edits), kind, tuple(sorted(codes)), binary, plain, launch)


_plain: dict[str, Binary | None] = {}  # of this process


def _unchanged(name: str, one: Subject) -> Binary | None:
    if name not in _plain:
        _plain[name] = _apart(one.module())
    return _plain[name]


def _is_known(parameter: Parameter) -> bool:
    """Can it be passed? A descriptor is followed by its sizes and strides."""
    return not isinstance(parameter.type, TensorDescType) or len(parameter.values) > 1


def _apart(module: Operation) -> Binary | None:
    """The module compiled in a child process, which an assertion of LLVM's may end; None where it does not compile."""
    made = isolated(lambda: compiled(module), COMPILE_S)
    return made.value if isinstance(made, Returned) else None


def compiled(module: Operation) -> Binary:
    """A module right before LLVM, compiled as it is. Raises BridgeError."""
    warps = module.int_attr("ttg.num-warps") or 4
    source = KernelSource(None, make_backend(HOPPER).parse_options({"num_warps": warps}), HOPPER)
    parsed, metadata = reparse(print_module(module)), dict[str, Any]()
    verified(parsed)
    maps = tuple(dict(one) for one in parsed.get_tensordesc_metadata())
    backend, arch = source.backend, capability(source)
    llir = captured("make_llir failed", lambda: backend.make_llir(parsed, metadata, source.options, arch))
    ptx = captured("make_ptx failed", lambda: backend.make_ptx(llir, metadata, source.options, source.target.arch))
    cubin, _ = assemble(ptx, source)
    signature = {f"a{at}": _written(one.type) for at, one in enumerate(Kernel(module).parameters)}
    return Binary(cubin, metadata["name"], metadata["num_warps"], metadata["shared"], signature, maps)


def _written(type: Type) -> str:
    """As a signature of Triton has it."""
    if isinstance(type, TensorDescType):
        return f"tensordesc<{_written(type.block.element)}[{', '.join(map(str, type.block.shape))}]>"
    if isinstance(type, PointerType):
        return f"*{_written(type.pointee)}" if isinstance(type.pointee, ScalarType) else "*i8"
    return _NAMES.get(str(type), str(type))


# ------------------------------------------------------------------------------------------------ on the card


def _on_card(made: Sequence[Refused], launches: int, beside: int) -> Iterator[Row]:
    """Each in a child, several in one as long as it is well."""
    by_name = {one.name: one for one in made}
    groups = [list(by_name)[at : at + TOGETHER] for at in range(0, len(made), TOGETHER)]
    with tempfile.TemporaryDirectory(prefix="wspec-refused-") as folder:
        body = functools.partial(each, functools.partial(_measure, by_name))
        for seen in run_all(groups, launches, TIMEOUT_S, beside, Path(folder), body):
            one = by_name[seen.name]
            told = one.name, one.subject, one.edits, one.verdict, one.codes
            yield Row(*told, seen.kind, seen.launches, seen.wrong, round(seen.seconds, 2), seen.message)


def _measure(made: Mapping[str, Refused], name: str, launches: int, outcome: Outcome, tell: Tell) -> None:
    """Launch and compare, over and over. Raises what CUDA reports."""
    one = made[name]
    memory = CardMemory(one.launch)
    plain, mutant = Loaded(one.plain), Loaded(one.binary)
    expected = memory.after(lambda: plain.launch(one.launch.grid, memory.arguments))
    again = memory.after(lambda: plain.launch(one.launch.grid, memory.arguments))
    if not _same(expected, again):
        raise RuntimeError("the unchanged kernel does not give the same bits twice")
    tell("")
    outcome.launches = 1
    for count in range(launches):
        found = memory.after(lambda: mutant.launch(one.launch.grid, memory.arguments))
        outcome.launches = count + 1
        outcome.wrong += not _same(found, expected)
    outcome.kind = "wrong" if outcome.wrong else "right"


def _same(one: Sequence[Tensor], other: Sequence[Tensor]) -> bool:
    return all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


class Loaded:
    """A binary on the card."""

    def __init__(self, binary: Binary) -> None:
        device = torch.cuda.current_device()
        utils: Any = driver.active.utils
        self._module, self._function, *_ = utils.load_binary(binary.name, binary.cubin, binary.shared, device)
        call = cuda.launch_call()
        assert call is not None
        self._run = launcher.made(_OneWay(), binary.signature, binary.maps, call).behind
        self._packed = binary.warps, 1, binary.shared

    def launch(self, grid: Sequence[int], arguments: Sequence[Any]) -> None:
        """Does not wait. Raises what the driver says."""
        x, y, z = (*grid, 1, 1)[:3]
        stream = torch.cuda.current_stream().cuda_stream
        self._run(x, y, z, stream, self._function, self._packed, None, None, None, *arguments)


class _OneWay:
    """Stands for Triton's launcher, which is not to be asked."""

    launch_pdl = False

    def __call__(self, *arguments: Any) -> None:
        raise RuntimeError("the launch was not understood")


class CardMemory:
    """The tensors of a launch on a device, in one copy of each storage, however many tensors lie in it."""

    def __init__(self, frozen: Frozen, device: str = "cuda") -> None:
        self._before = [torch.from_numpy(one).to(device) for one in frozen.storages]
        self._now = [one.clone() for one in self._before]
        self.arguments = [self._argument(one) for one in frozen.arguments]
        self._outputs = [self._tensor(one) for one in frozen.outputs]

    def after(self, launch: Callable[[], None]) -> list[Tensor]:
        """The bytes of the outputs after a launch on memory as it was at first."""
        for before, now in zip(self._before, self._now, strict=True):
            now.copy_(before)
        launch()
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        return [output.contiguous().view(torch.uint8).clone() for output in self._outputs]

    def _argument(self, given: Part | Box | float) -> Any:
        if isinstance(given, Box):
            whole = given.whole
            return TensorDescriptor(self._tensor(whole), list(whole.shape), list(whole.strides), list(given.block))
        return self._tensor(given) if isinstance(given, Part) else given

    def _tensor(self, part: Part) -> Tensor:
        memory, size = self._now[part.storage], part.dtype.itemsize
        flat = memory[: memory.numel() // size * size].view(part.dtype)
        return flat.as_strided(part.shape, part.strides, part.offset)


# ---------------------------------------------------------------------------------------------------- output


def table(rows: Sequence[Row]) -> str:
    """What the card did, by what the checker says; Markdown."""
    kinds = ("right", "wrong", "fault", "hang", "refused")
    counts = Counter(((row.verdict, ", ".join(row.codes)), row.card) for row in rows)
    by = sorted({said for said, _ in counts})
    lines = [f"| the checker says | modules | {' | '.join(kinds)} |", f"|---|---:|{'---:|' * len(kinds)}"]
    for said in by:
        found = [counts[said, kind] for kind in kinds]
        lines.append(f"| {said[0]}: {said[1]} | {sum(found)} | {' | '.join(map(str, found))} |")
    total = [sum(counts[said, kind] for said in by) for kind in kinds]
    return "\n".join([*lines, f"| all | {sum(total)} | {' | '.join(map(str, total))} |"])


if __name__ == "__main__":
    sys.exit(main())

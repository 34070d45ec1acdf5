"""Kernels with odd structure on a Hopper GPU: specialized against plain, both against float64.

Each kernel of tests/support/kernels.py runs plain and through `wspec.compile` on the same inputs, with few iterations
and many, on a few blocks and on more than there are SMs. The specialized one must write what the plain one writes and
nothing else, be as accurate, and give the same bits every time. What is to be left alone must give the plain bits.

`python tests/gpu/test_structures.py [WORDS]` runs the cases whose names contain all the words, without pytest; on a
machine without a Hopper GPU it only compiles them and says what became of each.
"""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from pathlib import Path
from typing import Any

if __name__ in ("__main__", "__mp_main__"):
    sys.path.insert(0, str(Path(__file__).parents[2]))

import pytest
import torch
import triton
from torch import Tensor

import wspec
from tests.gpu import structures, structures_more
from tests.gpu.once import folder_of_run, once
from tests.gpu.structures import Launch, Output, Size, Tile
from tests.support import kernels
from wspec.diagnostics import render
from wspec.lab.bench.accuracy import ALLOWED_RATIO, Error
from wspec.lab.bench.precompile import precompile
from wspec.lab.bench.watchdog import Watchdog

pytestmark = pytest.mark.gpu

HANG_SECONDS = 20.0
LAUNCHES = 5
ROUNDING = 1e-6  # of the largest number: what another order of float32 additions may cost
NONSENSE = 2e-2  # a plain kernel this far off, as a norm, was given the wrong reference

FEW = tuple(Size(trips, 2, 3) for trips in (0, 1, 2, 3, 33))
SIZES = (*FEW, Size(2, 20, 21), Size(33, 20, 21))
NOT_ZERO = tuple(size for size in SIZES if size.trips)
TALL = (*FEW, Size(1, 21, 20), Size(9, 21, 20))
TALL_NOT_ZERO = tuple(size for size in TALL if size.trips)
DIAGONAL = tuple(Size(0, rows, 1) for rows in (1, 2, 3, 33, 420))  # as many iterations as there are blocks of rows

VARIANTS: dict[str, dict[str, Any]] = {
    "default": {},
    "no overlap": {"overlap": False},
    "depth 1": {"depth": 1},
    "depth 2": {"depth": 2},
    "one consumer": {"consumers": 1},
    "one block": {"blocks": 1},
    "two blocks": {"blocks": 2},
    # Blocks that walk are set up once, however short the loop.
    "gated": {"gate": "model", "trials": 0, "persistent": False},
    "team": {"coarsening": 3},
    "team of four": {"coarsening": 4},
}
BIG_TILE, SMALL_TILE = tuple(VARIANTS)[:5], ("default", "one block", "two blocks")
NEIGHBOURS = (BIG_TILE, (*SMALL_TILE, "team", "team of four"))

# ---------------------------------------------------------------------------------------------------- cases


@dataclass(frozen=True, slots=True)
class Case:
    """A compiled plain kernel, and the sizes it runs on."""

    kernel: str
    tile: Tile
    constexprs: tuple[tuple[str, Any], ...]
    sizes: tuple[Size, ...]

    def launch(self, size: Size, device: str) -> Launch:
        """The same inputs every time."""
        torch.manual_seed(0)
        module = structures if hasattr(structures, self.kernel) else structures_more
        build: Callable[..., Launch] = getattr(module, self.kernel)
        return build(self.tile, size, device, **dict(self.constexprs))

    def __str__(self) -> str:
        return "-".join([self.kernel, *(f"{name}={value}" for name, value in self.constexprs), str(self.tile)])


@dataclass(frozen=True, slots=True)
class Job:
    """A case under one set of options; `alone` is the code of the reason it is left alone for, if it is."""

    case: Case
    variant: str
    alone: str = ""

    def __str__(self) -> str:
        return f"{self.case}-{self.variant.replace(' ', '_')}"


def jobs(
    kernel: str,
    *tiles: Tile,
    sizes: Sequence[Size] = SIZES,
    variants: Sequence[Sequence[str]] = (BIG_TILE, SMALL_TILE),
    alone: str = "",
    **constexprs: Any,
) -> Iterator[Job]:
    """The first `variants` of the first tile, the second of the second; the default of others, and if left alone."""
    for index, tile in enumerate(tiles):
        case = Case(kernel, tile, tuple(constexprs.items()), tuple(sizes))
        for variant in variants[index] if index < len(variants) and not alone else ("default",):
            yield Job(case, variant, alone)


T64, T128 = Tile(64, 64, 64, 4), Tile(128, 128, 64, 8)
LOW, NARROW, WIDE = Tile(64, 128, 64, 4), Tile(128, 64, 64, 4), Tile(128, 256, 64, 8)
ONE_GROUP, BF16, EXACT = Tile(128, 128, 64, 4), Tile(128, 128, 64, 8, "bf16"), Tile(128, 128, 64, 8, out="fp32")
FP8, LOW_FP8 = Tile(128, 128, 128, 8, "fp8"), Tile(64, 64, 64, 4, "fp8")
GEMMS = (T128, T64, LOW, Tile(64, 256, 64, 4), NARROW, WIDE, ONE_GROUP, Tile(128, 128, 32, 8), Tile(256, 128, 64, 8))

JOBS: tuple[Job, ...] = (
    Job(Case("gemm", T128, (), SIZES), "two blocks", "registers"),
    *jobs("gemm", *GEMMS, Tile(128, 64, 128, 8), BF16, EXACT, FP8, LOW_FP8),
    *jobs("gemm_transposed", T128, T64, BF16, FP8, LOW_FP8),
    *jobs("a_transposed", T128, T64, NARROW, EXACT),
    *jobs("persistent", T128, T64, WIDE, FLATTEN=False),
    *jobs("persistent", T128, T64, WIDE, FLATTEN=True),
    *jobs("bias", T128, T64, WIDE, variants=()),
    *jobs("both_transposed", T128, T64),
    *jobs("store_between_loops", T128, T64, LOW),
    *jobs("constant_trips", T128, T64, sizes=SIZES[-2:], alone="no-loop", TRIPS=0),
    *jobs("constant_trips", T128, T64, sizes=SIZES[-2:], variants=[("default", "depth 1")], TRIPS=1),
    *jobs("constant_trips", T128, T64, sizes=SIZES[-2:], variants=[("default", "depth 1")], TRIPS=2),
    *jobs("constant_trips", T128, T64, sizes=SIZES[-2:], TRIPS=7),
    *jobs("three_dots", Tile(128, 64, 64, 8), T64, Tile(128, 64, 128, 8), NARROW, sizes=TALL),
    *jobs("two_products", T128, T64, NARROW, EXACT),
    *jobs("load_in_branch", T128, T64, NARROW),
    *jobs("skipped_tiles", T128, T64, NARROW),
    *jobs("compute_in_branch", T128, T64, NARROW),
    *jobs("branch_beside", T128, T64, NARROW, EXACT),
    *jobs("dequantized_a", T128, T64, NARROW),
    *jobs("dequantized_b", T128, T64, NARROW),
    *jobs("dequantized_turned", T128, T64, NARROW),
    *jobs("block_scales", FP8, T64, T128, LOW_FP8),
    *jobs("device_descriptors", T128, T64, WIDE, sizes=NOT_ZERO, variants=[("default", "depth 1")]),
    *jobs("row_sums", T128, T64, NARROW, sizes=TALL, variants=[("default", "one consumer")], AXIS=0),
    *jobs("row_sums", T128, T64, NARROW, sizes=TALL, variants=[("default", "one consumer")], AXIS=1),
    *jobs("atomics", T128, T64, variants=[("default", "one consumer")], USED=False),
    *jobs("atomics", T128, T64, alone="unsupported-op", USED=True),
    *jobs("counter", T128, T64, variants=[("default", "one consumer")]),
    *jobs("while_loop", T128, T64),
    *jobs("doubling", T128, T64, alone="unsupported-control-flow"),
    *jobs("early_return", T128, T64),
    *jobs("pointers", T128, T64, variants=[("default", "depth 1")]),
    *jobs("one_pointer", T128, T64, NARROW),
    *jobs("block_barrier", T128, T64),
    *jobs("asked_for", T128),
    *jobs("same_memory", Tile(128, 64, 64, 8), T64, sizes=TALL_NOT_ZERO, alone="memory-alias"),
    *jobs("address_from_tile", T128, T64, alone="not-partitionable"),
    *jobs("load_if_computed", T128, T64, alone="not-partitionable"),
    *jobs("paged", T128, T64, NARROW),
    *jobs("guarded", T128, T64, NARROW),
    *jobs("loop_in_branch", T128, T64, NARROW),
    *jobs("nested_loops", T128, T64, NARROW),
    *jobs("dot_behind", T128, T64, NARROW),
    *jobs("backwards", T128, T64, NARROW),
    *jobs("moving", T128, T64, NARROW),
    *jobs("table_written", T128, T64, alone="memory-alias"),
    *jobs("read_twice", T128, T64, NARROW),
    *jobs("twice_stored", T128, T64, NARROW, EXACT),
    *jobs("reduce_add", T128, T64, NARROW, BF16, EXACT, variants=[("default", "depth 1")]),
    *jobs("inline_asm", T128, T64, NARROW, PURE=True),
    *jobs("inline_asm", T128, T64, alone="unsupported-op", PURE=False),
    *jobs("writes_in_loop", Tile(128, 128, 128, 8), T64, Tile(64, 128, 64, 4)),
    *jobs("attention_masked", T128, T64, NARROW, Tile(128, 128, 128, 8), sizes=TALL, CAUSAL=False),
    *jobs("attention_masked", T128, T64, NARROW, Tile(128, 64, 128, 8, "bf16"), sizes=DIAGONAL, CAUSAL=True),
    *jobs("attention_masked", T128, T64, sizes=TALL_NOT_ZERO, variants=(), CAUSAL=False, cut=15),
    *jobs("attention_masked", T128, T64, sizes=DIAGONAL, variants=(), CAUSAL=True, cut=15),
    Job(Case("short_chain", T128, (("TRIPS", 2),), DIAGONAL), "gated", "short-loop"),
    *jobs("short_chain", T128, T64, sizes=DIAGONAL, variants=[("default", "depth 1")], TRIPS=2),
    *jobs("short_chain", T128, T64, NARROW, sizes=DIAGONAL, TRIPS=7),
    *jobs(
        "attention_two_loops", T128, T64, NARROW, Tile(128, 128, 128, 8, "bf16"), sizes=DIAGONAL, variants=NEIGHBOURS
    ),
    *jobs("attention_offsets", T128, T64, NARROW, sizes=DIAGONAL, variants=NEIGHBOURS),
    *jobs("attention_grouped", T128, T64, LOW, Tile(64, 64, 256, 4), sizes=NOT_ZERO),
    *jobs("attention_persistent", T128, T64, NARROW, Tile(128, 32, 256, 8, "bf16"), sizes=TALL),
    *jobs("attention_weighted", T128, T64, NARROW, sizes=TALL),
)


# -------------------------------------------------------------------------------------------------- running


def options(variant: str) -> dict[str, Any]:
    """For `wspec.compile`: what can be specialized is, whatever it gains, unless the variant says otherwise."""
    return {"gate": "off", "remarks": "off", **VARIANTS[variant]}


@functools.cache
def kernel_of(case: Case, variant: str | None) -> Any:
    """The plain kernel if there is no variant. A back end that dies on a kernel takes only another process along."""
    plain = getattr(kernels, case.kernel)
    if variant is None:
        return plain
    return wspec.compile(plain, isolate=True, **options(variant))


def to_compile(case: Case, variant: str | None) -> tuple[Any, Launch]:
    """For `precompile`: the sizes of a case share one compiled kernel."""
    kernel = getattr(kernels, case.kernel)
    if variant is not None:
        kernel = wspec.compile(kernel, **options(variant))
    return kernel, case.launch(case.sizes[0], "cpu")


def compile_all(chosen: Sequence[Job]) -> None:
    """Into the cache, in as many processes as there are cores; what fails is compiled again, and told, by its test."""
    cases = dict.fromkeys(job.case for job in chosen)
    wanted = [(case, None) for case in cases] + [(job.case, job.variant) for job in chosen]
    try:
        errors = precompile([functools.partial(to_compile, case, variant) for case, variant in wanted])
        for (case, variant), error in zip(wanted, errors, strict=True):
            if error is not None:
                print(f"{case}, {variant or 'plain'}: {error}", file=sys.stderr)
    except BrokenProcessPool:
        print("a kernel ended the process that compiled it; the tests compile one by one", file=sys.stderr)


def shoot(kernel: Any, launch: Launch) -> tuple[Tensor, ...]:
    """The bits of all outputs after one launch."""
    for output in launch.outputs:
        output.reset()
    kernel[launch.grid](*launch.args, **launch.meta)
    torch.cuda.synchronize()
    return tuple(output.bits() for output in launch.outputs)


@dataclass(frozen=True, slots=True)
class Plain:
    """What the plain kernel made of one size."""

    size: Size
    launch: Launch
    expected: tuple[Tensor, ...]
    bits: tuple[Tensor, ...]
    errors: tuple[Error, ...]


@functools.lru_cache(maxsize=1)
def plain_runs(case: Case, watchdog: Watchdog) -> tuple[Plain, ...]:
    """All sizes. Raises AssertionError where the plain kernel itself is wrong."""
    triton.set_allocator(lambda size, align, stream: torch.empty(size, dtype=torch.int8, device="cuda"))
    return tuple(_plain_run(case, size, watchdog) for size in case.sizes)


def _plain_run(case: Case, size: Size, watchdog: Watchdog) -> Plain:
    with watchdog(f"plain {case}, {size}"):
        launch = case.launch(size, "cuda")
        found = launch.expected()
        expected = found if isinstance(found, tuple) else (found,)
        bits = shoot(kernel_of(case, None), launch)
    for output, truth in zip(launch.outputs, expected, strict=True):
        if problem := misplaced(output, truth):
            raise AssertionError(f"the plain kernel, {size}: {problem}")
    errors = tuple(error_of(output, truth) for output, truth in zip(launch.outputs, expected, strict=True))
    if max(error.relative for error in errors) > NONSENSE:
        raise AssertionError(f"the plain kernel, {size}: {errors}")
    return Plain(size, launch, expected, bits, errors)


# ------------------------------------------------------------------------------------------------ comparing


def misplaced(output: Output, expected: Tensor) -> str:
    """What was written where nothing should be, or the other way round."""
    found, wanted = output.tensor.isnan(), expected.isnan()
    missing, extra = int((found & ~wanted).sum()), int((wanted & ~found).sum())
    if missing or extra:
        return f"{missing} of {expected.numel()} elements are NaN or not written, {extra} should be and are not"
    return "" if output.guard_is_whole() else "wrote past the end of an output"


def error_of(output: Output, expected: Tensor) -> Error:
    return Error.of(output.tensor.double().nan_to_num(), expected.double().nan_to_num())


def too_far(ours: Error, plain: Error, expected: Tensor) -> bool:
    peak = float(expected.abs().nan_to_num().max())
    largest, relative = ALLOWED_RATIO * plain.largest + ROUNDING * peak, ALLOWED_RATIO * plain.relative + ROUNDING
    return not (ours.largest <= largest and ours.relative <= relative)


def problems_at(job: Job, plain: Plain, specialized: bool, watchdog: Watchdog) -> Iterator[str]:
    """What is wrong with the kernel under wspec at one size."""
    kernel, launch = kernel_of(job.case, job.variant), plain.launch
    with watchdog(f"{job}, {plain.size}"):
        first = shoot(kernel, launch)
        for output, truth, error in zip(launch.outputs, plain.expected, plain.errors, strict=True):
            ours = error_of(output, truth)
            if problem := misplaced(output, truth):
                yield problem
            elif too_far(ours, error, truth):
                yield f"{ours}, plain {error}"
        if not specialized and not same(first, plain.bits):
            yield "left alone, but not the bits of the plain kernel"
        changed = sum(not same(shoot(kernel, launch), first) for _ in range(LAUNCHES - 1))
        if changed:
            yield f"{changed} of {LAUNCHES - 1} more launches gave other bits than the first"


def same(one: tuple[Tensor, ...], other: tuple[Tensor, ...]) -> bool:
    return all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


def verdict(job: Job, launch: Launch) -> tuple[bool, str]:
    """(was it specialized, what is wrong with that)."""
    report = kernel_of(job.case, job.variant).outcome(*launch.args, **launch.meta)
    found = "" if report.reason is None else report.reason.code
    if found == job.alone:
        return report.specialized, ""
    wanted = f"left alone ({job.alone})" if job.alone else "specialized"
    said = "it was specialized" if report.reason is None else render(report.reason)
    return report.specialized, f"should have been {wanted}: {said}"


def check(job: Job, watchdog: Watchdog) -> list[str]:
    """Everything that is wrong, a line each. Raises AssertionError where the plain kernel is."""
    runs = plain_runs(job.case, watchdog)
    specialized, wrong = verdict(job, runs[0].launch)
    return [
        *([wrong] if wrong else []),
        *(f"{plain.size}: {text}" for plain in runs for text in problems_at(job, plain, specialized, watchdog)),
    ]


def gpu_is_lost() -> bool:
    """After an illegal access nothing can run in this process any more."""
    try:
        torch.cuda.synchronize()
    except RuntimeError:
        return True
    return False


# --------------------------------------------------------------------------------------------------- pytest


@pytest.fixture(scope="session")
def watchdog(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Watchdog:
    """Ends pytest, with a word on the terminal, when a kernel hangs. All that is to run is compiled before, by one of
    the workers, which takes all cores."""
    with request.config.pluginmanager.getplugin("capturemanager").global_and_fixture_disabled():
        terminal = os.dup(2)
    chosen = [item.callspec.params.get("job") for item in request.session.items if hasattr(item, "callspec")]
    wanted = [job for job in chosen if isinstance(job, Job)]
    once(folder_of_run(request.config, tmp_path_factory), lambda: compile_all(wanted))
    return Watchdog(HANG_SECONDS, lambda what: print_to(terminal, f"\nHANG: {what}; no further test can run\n"))


def print_to(descriptor: int, text: str) -> None:
    os.write(descriptor, text.encode())


@pytest.mark.parametrize("job", JOBS, ids=str)
def test_structure(job: Job, watchdog: Watchdog) -> None:
    try:
        problems = check(job, watchdog)
    except RuntimeError as error:
        if gpu_is_lost():
            pytest.exit(f"{job}: {error}; nothing more can run on the GPU", returncode=3)
        raise
    if problems:
        pytest.fail("\n".join([f"{job}:", *problems]), pytrace=False)


# --------------------------------------------------------------------------------------------------- script


def without_case() -> list[str]:
    """Kernels of tests/support/kernels.py that nothing here runs."""
    entry = [name for name, value in vars(kernels).items() if isinstance(value, triton.JITFunction)]
    known = {job.case.kernel for job in JOBS} | {"called"}  # Triton 3.6's own pipeliner refuses the call in its loop
    return [name for name in entry if name not in known and not name.startswith("_")]


def main(words: Sequence[str]) -> int:
    chosen = [job for job in JOBS if all(word in str(job) for word in words)]
    on_hopper = torch.cuda.is_available() and torch.cuda.get_device_capability() == (9, 0)
    print(
        f"{len(chosen)} cases" + ("" if on_hopper else "; there is no Hopper GPU: they are only compiled"), flush=True
    )
    compile_all(chosen)
    watchdog = Watchdog(HANG_SECONDS, lambda what: print(f"HANG: {what}", flush=True))
    failed = 0
    for job in chosen:
        try:
            problems = (
                check(job, watchdog) if on_hopper else [verdict(job, job.case.launch(job.case.sizes[0], "cpu"))[1]]
            )
        except (AssertionError, RuntimeError) as error:
            problems = [f"{type(error).__name__}: {error}"]
        problems = [problem for problem in problems if problem]
        failed += bool(problems)
        state = "FAILED" if problems else f"left alone, {job.alone}" if job.alone else "specialized"
        print("\n    ".join([f"{job!s:70} {state}", *problems]), flush=True)
        if on_hopper and gpu_is_lost():
            print(f"the GPU is lost after {job}")
            return 3
    print(f"{len(chosen) - failed} of {len(chosen)} passed; without a case: {', '.join(without_case()) or 'no kernel'}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""Measuring the plans of `model_plans`: times that take turns, at the clock that they share."""

from __future__ import annotations

import functools
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from wspec.lab.bench.clock_probe import ClockProbe
from wspec.lab.bench.model_changes import distinct, refused, tiles
from wspec.lab.bench.model_plans import Shape
from wspec.lab.bench.precompile import pool, precompile
from wspec.lab.bench.timing import Variant, input_sets, measure
from wspec.lab.bench.watchdog import Watchdog
from wspec.lab.simulate.points import Point

AGREE = 0.03
"""Relative difference that results of two plans may have: ||a - b|| / ||b||; bfloat16 gives about 0.005."""

SETTLED, SETTLED_S = 1800, 1.0
"""Launches after which a kernel that is on trial (`wspec.bridge.trial`) has been looked at three or four times, and
seconds after which no more are made: by either it has been looked at when the card was warm."""

WARM = 2
"""Rounds that do not count: while inputs are made the card rests, and then runs at a higher clock for a while."""


@dataclass(frozen=True, slots=True)
class Budget:
    """How long to measure."""

    rounds: int = 5
    window_ms: float = 6.0
    seconds: float = 480.0


def cpu_launch(shape: Shape, point: Point) -> tuple[Any, Any]:
    """A kernel and a launch of it, for `precompile`."""
    return shape.function(point), shape.on_cpu(point)


def plans(points: Sequence[Point]) -> tuple[list[Point], list[str]]:
    """The points whose kernels differ (`distinct`), and why others are left out. Planned in parallel."""
    with pool() as workers:
        found = list(workers.map(distinct, tiles(points)))
    kept = {point.compiled for some, _ in found for point in some}
    return [one for one in points if one.kind != "specialized" or one.compiled in kept], [
        why for _, some in found for why in some
    ]


def compile_all(chosen: Mapping[Shape, Sequence[Point]]) -> dict[str, str]:
    """Every kernel once, in parallel, into the cache; what failed, by `Point.compiled`."""
    every = {point.compiled: (shape, point) for shape, points in chosen.items() for point in points}
    failures = precompile([functools.partial(cpu_launch, shape, point) for shape, point in every.values()])
    return {key: failure for key, failure in zip(every, failures, strict=True) if failure is not None}


Save = Callable[[Sequence[Point], Sequence[str]], None]


def measure_all(shapes: Sequence[Shape], device: torch.device, budget: Budget, save: Save) -> list[str]:
    """Measures, and saves (points so far, why others are not) after each shape; what was not measured.

    Stops cleanly when time is up.
    """
    started = time.monotonic()
    points, problems = plans([point for shape in shapes for point in shape.points()])
    print(f"planned in {time.monotonic() - started:.0f} s", file=sys.stderr, flush=True)
    chosen = {shape: [one for one in points if one.shape == str(shape)] for shape in shapes}
    failed = compile_all(chosen)
    print(f"compiled in {time.monotonic() - started:.0f} s", file=sys.stderr, flush=True)
    found: list[Point] = []
    functions: dict[str, Any] = {}
    watchdog = Watchdog(60.0, lambda what: print(f"{what} hung", file=sys.stderr, flush=True))
    for shape, some in chosen.items():
        if time.monotonic() - started > budget.seconds:
            problems.append(f"{shape}: time was up")
            continue
        problems += [f"{one.name}: {failed[one.compiled]}" for one in some if one.compiled in failed]
        some = [one for one in some if one.compiled not in failed]
        for one in some:
            if one.compiled not in functions:
                functions[one.compiled] = shape.function(one)
        with watchdog(str(shape)):
            good, bad = _measure(shape, some, functions, device, budget)
        found += good
        problems += bad
        torch.cuda.empty_cache()
        save(found, problems)
        print(f"{shape}: {len(good)} plans, {time.monotonic() - started:.0f} s", file=sys.stderr, flush=True)
    save(found, problems)
    return problems


def _measure(
    shape: Shape, points: Sequence[Point], functions: Mapping[str, Any], device: torch.device, budget: Budget
) -> tuple[list[Point], list[str]]:
    """The plans of one shape, taking turns; those that do not run, or disagree with the first one, are left out."""
    l2_bytes = torch.cuda.get_device_properties(device).L2_cache_size
    sets = [shape.inputs(device, seed) for seed in range(input_sets(shape.bytes, l2_bytes, 4))]
    probe, problems = ClockProbe(device), []
    variants: dict[str, Variant] = {}
    reference: torch.Tensor | None = None
    for point in sorted(points, key=lambda one: one.kind != "plain"):
        try:
            kernel, made = functions[point.compiled], [shape.launch(inputs, point) for inputs in sets]
            if point.kind == "specialized":
                report = kernel.outcome(*made[0][0].args, **made[0][0].meta)
                if why := refused(report):
                    problems.append(f"{point.name}: left alone, {why}")
                    continue
            _settle(kernel, [launch for launch, _ in made], SETTLED if point.kind == "default" else 1)
            for launch, _ in made:
                launch.run(kernel)
            result = made[0][1].float()
        except Exception as error:  # too much shared memory, say; the others want running
            problems.append(f"{point.name}: {type(error).__name__}: {str(error).splitlines()[0][:120]}")
            continue
        if reference is None:
            reference = result
        difference = float((result - reference).norm() / reference.norm())
        if not difference < AGREE:
            problems.append(f"{point.name}: WRONG, {difference:.3g} from the first plan")
            continue
        runs = tuple(functools.partial(launch.run, kernel) for launch, _ in made)
        around = functools.partial(probe.window, point.name)
        variants[point.name] = Variant(point.name, runs, around)
    if not variants:
        return [], problems
    timings = measure(list(variants.values()), rounds=budget.rounds, window_ms=budget.window_ms, warm=WARM)
    clocks = probe.mhz(budget.rounds)
    samples = {name: timing.samples_us for name, timing in timings.items()}
    return at_one_clock([point for point in points if point.name in timings], samples, clocks), problems


def _settle(kernel: Any, launches: Sequence[Any], times: int) -> None:
    """Each launch so many times, or until time is up."""
    began, made = time.monotonic(), 0
    while made < times and time.monotonic() - began < SETTLED_S:
        for launch in list(launches) * min(10, times):
            launch.run(kernel)
        made += min(10, times)
        torch.cuda.synchronize()


def at_one_clock(
    points: Sequence[Point], samples_us: Mapping[str, Sequence[float]], clocks: Mapping[str, Sequence[float]]
) -> list[Point]:
    """The points of a shape, measured: the median of their cycles, at the mean of the clocks of all turns.

    `samples_us` and `clocks`, in MHz, are those of each round, by name. The clock of a turn depends on what ran before
    it: between runs of the same plans times differ by up to 10 %, cycles by less than 1 %.
    """
    if not points:
        return []
    shared = statistics.mean(mhz for point in points for mhz in clocks[point.name])
    found = []
    for point in points:
        times = samples_us[point.name]
        cycles = statistics.median(us * mhz for us, mhz in zip(times, clocks[point.name], strict=True))
        found.append(replace(point, ms=cycles / shared / 1e3, clock_mhz=shared, samples_us=tuple(times)))
    return found

"""Measuring the plans of `model_plans`: times that take turns, and the clock they ran at."""

from __future__ import annotations

import functools
import statistics
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from wspec.bench.clock_probe import ClockProbe
from wspec.bench.model_plans import Shape
from wspec.bench.precompile import precompile
from wspec.bench.timing import Variant, input_sets, measure
from wspec.bench.watchdog import Watchdog
from wspec.simulate.points import Point

AGREE = 0.03
"""Relative difference that results of two plans may have: ||a - b|| / ||b||; bfloat16 gives about 0.005."""


@dataclass(frozen=True, slots=True)
class Budget:
    """How long to measure."""

    rounds: int = 5
    window_ms: float = 6.0
    seconds: float = 480.0


def cpu_launch(shape: Shape, point: Point) -> tuple[Any, Any]:
    """A kernel and a launch of it, for `precompile`."""
    return shape.function(point), shape.on_cpu(point)


def compile_all(shapes: Sequence[Shape]) -> dict[str, str]:
    """Every kernel once, in parallel, into the cache; what failed, by `Point.compiled`."""
    every = {point.compiled: (shape, point) for shape in shapes for point in shape.points()}
    failures = precompile([functools.partial(cpu_launch, shape, point) for shape, point in every.values()])
    return {key: failure for key, failure in zip(every, failures, strict=True) if failure is not None}


def measure_all(shapes: Sequence[Shape], device: torch.device, budget: Budget) -> tuple[list[Point], list[str]]:
    """(measured points, why others are not); stops cleanly when time is up."""
    started = time.monotonic()
    failed = compile_all(shapes)
    print(f"compiled in {time.monotonic() - started:.0f} s", file=sys.stderr, flush=True)
    found: list[Point] = []
    problems: list[str] = []
    watchdog = Watchdog(60.0, lambda what: print(f"{what} hung", file=sys.stderr, flush=True))
    for shape in shapes:
        if time.monotonic() - started > budget.seconds:
            problems.append(f"{shape}: time was up")
            continue
        points = shape.points()
        problems += [f"{one.name}: {failed[one.compiled]}" for one in points if one.compiled in failed]
        with watchdog(str(shape)):
            good, bad = _measure(shape, [one for one in points if one.compiled not in failed], device, budget)
        found += good
        problems += bad
        torch.cuda.empty_cache()
        print(f"{shape}: {len(good)} plans, {time.monotonic() - started:.0f} s", file=sys.stderr, flush=True)
    return found, problems


def _measure(
    shape: Shape, points: Sequence[Point], device: torch.device, budget: Budget
) -> tuple[list[Point], list[str]]:
    """The plans of one shape, taking turns; those that do not run, or disagree with the first one, are left out."""
    l2_bytes = torch.cuda.get_device_properties(device).L2_cache_size
    sets = [shape.inputs(device, seed) for seed in range(input_sets(shape.bytes, l2_bytes, 4))]
    probe, problems = ClockProbe(device), []
    variants: dict[str, Variant] = {}
    reference: torch.Tensor | None = None
    for point in sorted(points, key=lambda one: one.kind):  # "plain" first
        try:
            kernel, made = shape.function(point), [shape.launch(inputs, point) for inputs in sets]
            if point.kind == "specialized":
                report = kernel.outcome(*made[0][0].args, **made[0][0].meta)
                if report.reason is not None:
                    problems.append(f"{point.name}: left alone, {report.reason.code}")
                    continue
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
    timings = measure(list(variants.values()), rounds=budget.rounds, window_ms=budget.window_ms)
    clocks = probe.mhz()
    found = [
        replace(point, ms=statistics.median(timings[point.name].samples_us) / 1e3, clock_mhz=clocks[point.name])
        for point in points
        if point.name in timings
    ]
    return found, problems

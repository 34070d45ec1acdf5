"""Timing several variants of a computation against each other.

A power-limited card gives the same kernel 5 to 8 % more or less from run to run, so a time alone means little. Here
variants take turns: every round times each of them once, in an order of its own, and a ratio is the median of the
ratios within rounds. (The clock of a window depends on the power of those before it, by up to 10 %: in an order that
only rotates each variant would always come behind the same one.) Times come from CUDA events around a window of
launches; the queue never runs dry inside a round.

Windows are short beside the second or so over which the card's power is limited, so all variants share a clock and
`measure` compares cycles. What a variant gives whoever runs it for long depends on the power it draws as well:
`measure_sustained`.
"""

from __future__ import annotations

import contextlib
import functools
import random
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

SUSTAINED_ROUNDS = 3

Run = Callable[[], object]
Window = tuple[torch.cuda.Event, torch.cuda.Event]


@dataclass(frozen=True, slots=True)
class Variant:
    """Something to time: `runs` enqueue one launch each, every one on an input set of its own.

    `around` is entered around a window of launches, not around each launch (a choice of library, say).
    """

    name: str
    runs: tuple[Run, ...]
    around: Callable[[], contextlib.AbstractContextManager[Any]] = contextlib.nullcontext


@dataclass(frozen=True, slots=True)
class Timing:
    """Time of one launch in microseconds, one sample a round."""

    samples_us: tuple[float, ...]

    @property
    def median_us(self) -> float:
        return statistics.median(self.samples_us)

    @property
    def spread(self) -> float:
        """Distance between the quartiles over the median."""
        return _spread(self.samples_us)

    def speedup_over(self, other: Timing) -> float:
        """How many times faster this was than `other`: the median over rounds of the ratio within the round."""
        return statistics.median(self._speedups_over(other))

    def speedup_spread(self, other: Timing) -> float:
        """Distance between the quartiles of the rounds' ratios over their median."""
        return _spread(self._speedups_over(other))

    def _speedups_over(self, other: Timing) -> list[float]:
        pairs = zip(self.samples_us, other.samples_us, strict=True)
        return [theirs / ours for ours, theirs in pairs]


def _spread(samples: Sequence[float]) -> float:
    if len(samples) < 2:
        return 0.0
    low, _, high = statistics.quantiles(samples, n=4)
    return (high - low) / statistics.median(samples)


def input_sets(bytes_per_set: int, l2_bytes: int, most: int = 8) -> int:
    """How many input sets to rotate so that together they are three times the L2 cache; one if a set is so alone."""
    return max(1, min(most, -(-3 * l2_bytes // max(1, bytes_per_set))))


def measure(
    variants: Sequence[Variant], *, rounds: int = 15, window_ms: float = 2.0, graph: bool = False, warm: int = 0
) -> dict[str, Timing]:
    """Time every variant in `rounds` interleaved rounds; name -> Timing.

    window_ms is how long one sample should take; each window runs every input set equally often. `warm` more rounds
    come first and do not count: the card's clock follows its load for about a second. With `graph`, runs are captured
    in CUDA graphs first and replayed, which takes the host out of the measurement. Variants must have run once before
    (compiled, loaded); two variants of one name are an error.
    """
    variants = _ready(variants, graph)
    counts = [_launches(variant, window_ms) for variant in variants]
    turns = [_one_round(variants, counts, order) for order in orders(len(variants), warm + rounds)]
    return _timings(variants, turns[warm:])


def measure_sustained(
    variants: Sequence[Variant], *, seconds: float, rounds: int = SUSTAINED_ROUNDS, graph: bool = False
) -> dict[str, Timing]:
    """As `measure`, but every variant at the clock that its own power leaves it; name -> Timing.

    In a round each variant runs back to back for `seconds` that do not count, then for `seconds` that do: a sample is
    the mean time of a launch in these. Both parts are of a number of launches that a short window says to take as long,
    so they take longer where the clock falls. A launch that takes the host longer than the card is timed at the host's
    pace, with the card idle in between: capture it (`graph`).
    """
    variants = _ready(variants, graph)
    counts = [_launches_of_seconds(variant, seconds) for variant in variants]
    turns = [_one_sustained_round(variants, counts, order) for order in orders(len(variants), rounds)]
    return _timings(variants, turns)


def _ready(variants: Sequence[Variant], graph: bool) -> Sequence[Variant]:
    if len({variant.name for variant in variants}) != len(variants):
        raise ValueError(f"variants share a name: {[variant.name for variant in variants]}")
    return [_captured(variant) for variant in variants] if graph else variants


def _timings(variants: Sequence[Variant], turns: Sequence[Mapping[int, float]]) -> dict[str, Timing]:
    """Of rounds, each index -> microseconds a launch."""
    return {variant.name: Timing(tuple(turn[at] for turn in turns)) for at, variant in enumerate(variants)}


def orders(variants: int, rounds: int) -> list[list[int]]:
    """In which order each round times its variants: shuffled, the same in every run."""
    draw = random.Random(0)
    return [draw.sample(range(variants), variants) for _ in range(rounds)]


def _one_round(variants: Sequence[Variant], counts: Sequence[int], order: Sequence[int]) -> dict[int, float]:
    """Index -> microseconds a launch, of every variant. The first window is run once more, untimed, ahead of all:
    it keeps the card busy while the host enqueues what is timed."""
    _window(variants[order[0]], counts[order[0]])
    return _microseconds({at: _window(variants[at], counts[at]) for at in order}, counts)


def _one_sustained_round(variants: Sequence[Variant], counts: Sequence[int], order: Sequence[int]) -> dict[int, float]:
    """As `_one_round`, with every window run once more, untimed, right ahead of itself."""
    windows: dict[int, Window] = {}
    for at in order:
        _window(variants[at], counts[at])
        windows[at] = _window(variants[at], counts[at])
    return _microseconds(windows, counts)


def _microseconds(windows: Mapping[int, Window], counts: Sequence[int]) -> dict[int, float]:
    torch.cuda.synchronize()
    return {at: start.elapsed_time(stop) * 1e3 / counts[at] for at, (start, stop) in windows.items()}


def _window(variant: Variant, launches: int) -> Window:
    start, stop = _event(), _event()
    sets = len(variant.runs)
    with variant.around():
        start.record()
        for at in range(launches):
            variant.runs[at % sets]()
        stop.record()
    return start, stop


def _event() -> torch.cuda.Event:
    return torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]  # torch


def _launches(variant: Variant, window_ms: float) -> int:
    """Launches that fill the window: a multiple of the number of input sets."""
    sets = len(variant.runs)
    _window(variant, sets)
    start, stop = _window(variant, sets)
    torch.cuda.synchronize()
    once_ms: float = max(start.elapsed_time(stop), 1e-3)
    return sets * max(1, min(500 // sets, int(window_ms / once_ms + 0.5)))


def _launches_of_seconds(variant: Variant, seconds: float) -> int:
    """Launches that fill the seconds, at the pace of a window of 10 ms: a multiple of the number of input sets."""
    sets, launches = len(variant.runs), _launches(variant, 10.0)
    start, stop = _window(variant, launches)
    torch.cuda.synchronize()
    once_ms: float = max(start.elapsed_time(stop), 1e-3) * sets / launches
    return sets * max(1, int(seconds * 1e3 / once_ms + 0.5))


def _captured(variant: Variant) -> Variant:
    return Variant(variant.name, tuple(_graph_replay(run, variant.around) for run in variant.runs))


def _graph_replay(run: Run, around: Callable[[], contextlib.AbstractContextManager[Any]]) -> Run:
    graph = torch.cuda.CUDAGraph()
    with around(), torch.cuda.graph(graph):
        kept = run()
    return functools.partial(_replay, graph, kept)


def _replay(graph: torch.cuda.CUDAGraph, kept: object) -> None:
    """`kept` is the captured call's result: the graph writes into its memory."""
    graph.replay()


def fastest(timings: dict[str, Timing], keep: int) -> list[str]:
    """Names of the `keep` variants with the smallest medians, fastest first."""
    return sorted(timings, key=lambda name: timings[name].median_us)[:keep]

"""`python -m wspec.lab.bench.new_sizes`: what sizes that were never seen cost, the host time of one call, and how long
many different ones in a row take; from which size on these run at the speed of equal ones.

`python -m wspec.lab.bench.launch` prints the same without the last.
"""

from __future__ import annotations

import argparse
import gc
import random
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch

from wspec.kernels import attention, matmul, quantized
from wspec.lab.bench.environment import NoGpu, require_hopper
from wspec.lab.bench.report import Table, console, number

NEW_US = 60.0
"""A size that was never seen may cost the host so much more than a known one."""

LEAST_RATIO = 0.95
"""Different sizes, one after the other, run at so much of the speed of as many equal ones."""

Call = Callable[[], Any]
Wait = Callable[[], None]
FARTHEST = 131072
"""Tokens of the longest sequence."""

_APART = 129  # sizes: tiles are not larger
_COMPILED = 61  # of so many sizes in a row one is called before: the binaries that are chosen there are compiled
_IN_A_ROW = 20  # launches, before the card is waited for: fewer than its queue takes
_RESERVED = 4 << 30  # bytes that torch has of the driver before anything is measured: results are parts of them
_LEAST_SIZE = 64  # of those that are drawn
_OF_EACH = 100  # equal ones in a row, of some that are drawn


@dataclass(frozen=True, slots=True)
class Subject:
    """A function that is called with many sizes."""

    name: str
    of: Callable[[int], Call]  # of a size what is timed, its inputs made; up to `long` and 1,500 more
    short: int  # a size that the card is done with sooner than the host
    long: int  # one that keeps the card busy for longer


@dataclass(frozen=True, slots=True)
class Found:
    """Microseconds of the host for one call, and seconds for many, the card's work included."""

    name: str
    known_us: float  # of a size like the one before
    first_us: float  # of the second size of all: whatever is made once is made for this one
    new_us: float  # of a size never seen that is far from all others, median
    near_us: float  # of one never seen beside another
    again_us: float  # of the same sizes the second time
    equal_us: dict[str, float]  # for one of many equal sizes in a row, short and long
    different_us: dict[str, float]  # for one of as many that differ and were never seen
    second_us: dict[str, float]  # for one of these the second time

    @property
    def more_us(self) -> float:
        """That a size never seen costs the host."""
        return self.new_us - self.known_us

    @property
    def worst_ratio(self) -> float:
        """Speed of different sizes over that of equal ones, the first time or the second."""
        return min(
            self.equal_us[which] / max(self.different_us[which], self.second_us[which]) for which in self.equal_us
        )

    def to_data(self) -> dict[str, Any]:
        """For a file."""
        return {**asdict(self), "more_us": self.more_us, "worst_ratio": self.worst_ratio}


def subjects(device: torch.device | str, dtype: torch.dtype = torch.bfloat16, heads: int = 16) -> list[Subject]:
    """The functions of `kernels`, whose inputs are parts of tensors made once. Others with other `heads`.

    torch has memory for their results afterwards, for asking the driver for more takes longer than a call.
    """
    if torch.device(device).type == "cuda":
        torch.empty(_RESERVED, dtype=torch.uint8, device=device)
    found, columns = [], 128 * heads
    for head_dim in (64, 128):
        for causal in (False, True):
            name = f"attention, D={head_dim}{', causal' if causal else ''}"
            found.append(Subject(name, _attention(device, dtype, head_dim, causal, heads), 300, 6000))
    rows = torch.randn(20000, 1024, device=device).to(dtype)
    weight = torch.randn(columns, 1024, device=device).to(dtype)
    found.append(Subject("matmul", lambda size: _bound(matmul.matmul, rows[:size], weight.T), 300, 16000))
    small = torch.randint(-127, 127, (columns, 1024), device=device).to(torch.int8)
    scale = torch.ones(columns, device=device)
    found.append(
        Subject("int8 weights", lambda m: _bound(quantized.matmul_int8_weights, rows[:m], small, scale), 300, 16000)
    )
    return found


def _attention(
    device: Any, dtype: torch.dtype, head_dim: int, causal: bool, heads: int, most: int = 8000
) -> Callable[[int], Call]:
    q, k, v = (torch.randn(1, heads, most, head_dim, device=device).to(dtype) for _ in range(3))
    return lambda size: _bound(attention.attention, q[:, :, :size], k[:, :, :size], v[:, :, :size], causal=causal)


def _bound(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Call:
    return lambda: function(*args, **kwargs)


def measure(subject: Subject, wait: Wait, count: int = 1000) -> Found:
    """All of it; sizes are `short` and more, and around `long`. `wait`: until the card has done what it was given."""
    short, long = subject.short, subject.long
    subject.of(short)()
    wait()
    first = _each_us([subject.of(short + 1)], wait)[0]
    known = _each_us([subject.of(short)] * 400, wait)
    _each_us([subject.of(short + 2 + size) for size in range(20)], wait)
    near = _each_us([subject.of(short + 50 + size) for size in range(200)], wait)
    some = [subject.of(size) for size in range(short + 300 + _APART, long + 1500, _APART)]
    new = _each_us(some, wait)
    again = _each_us(some, wait)
    equal, different, second = {}, {}, {}
    for name, least in (("short", short + 301), ("long", long - count // 2)):
        equal[name], different[name], second[name] = _in_a_row(subject, least, count, wait)
    return Found(
        subject.name, statistics.median(known), first, statistics.median(new),
        statistics.median(near),
        statistics.median(again), equal, different, second,
    )  # fmt: skip


def _in_a_row(subject: Subject, least: int, count: int, wait: Wait) -> tuple[float, float, float]:
    """Of as many different sizes from `least` on, in any order, the microseconds of one: of equal ones, of different
    ones that were never seen, and of these once more.

    Equal ones are in between, and are as many of each of some; every call has tensors of its own, as the others do. A
    host is not as fast at one time as at another, so they are measured before, between and behind.
    """
    sizes = range(least, least + count + count // _COMPILED + 1)
    some = sizes[::_COMPILED]
    for size in some:
        subject.of(size)()
    differ = [size for at, size in enumerate(sizes) if at % _COMPILED][:count]
    random.Random(least).shuffle(differ)
    same, others = [subject.of(size) for size in some for _ in range(count // len(some))], list(map(subject.of, differ))
    _row_us(same, wait)
    rows = [_row_us(calls, wait) for calls in (same, others, same, others, same)]
    return statistics.median(rows[::2]), rows[1], rows[3]


@dataclass(frozen=True, slots=True)
class Far:
    """Microseconds of the host for a call of a length of up to 131,072, medians."""

    name: str
    known_us: float
    new_us: float
    longest_us: float  # the longest length of all, never seen

    @property
    def more_us(self) -> float:
        """That a length never seen costs the host."""
        return self.new_us - self.known_us


def far(device: torch.device | str, dtype: torch.dtype = torch.bfloat16) -> list[tuple[str, Callable[[int], Call]]]:
    """Attention of four heads, by name: of a length what is timed."""
    found = []
    for head_dim, causal in ((64, True), (128, False), (128, True)):
        made = _attention(device, dtype, head_dim, causal, 4, FARTHEST)
        found.append((f"attention, D={head_dim}{', causal' if causal else ''}", made))
    return found


def measure_far(subject: tuple[str, Callable[[int], Call]], wait: Wait, count: int = 20) -> Far:
    """`count` lengths from 16,384 to the farthest, in an order that neither rises nor falls, each three times."""
    name, of = subject
    ratio = (FARTHEST / 16384) ** (1 / (count - 1))
    lengths = [round(16384 * ratio**at) for at in range(count)]
    mixed = lengths[1::2] + lengths[::2]
    of(16000)()
    new = dict(zip(mixed, _each_us([of(size) for size in mixed], wait), strict=True))
    calls = [of(size) for size in mixed]
    _each_us(calls, wait)
    return Far(name, statistics.median(_each_us(calls, wait)), statistics.median(new.values()), new[lengths[-1]])


def far_table(found: Sequence[Far]) -> Table:
    """Host times of long ones."""
    rows = tuple(
        (one.name, number(one.known_us, 1), number(one.new_us, 1), number(one.more_us, 1), number(one.longest_us, 1))
        for one in found
    )
    columns = ("function", "known us", "new us", "more", "new, longest")
    return Table(f"The same of lengths from 16,384 to {FARTHEST:,}", columns, rows)


def _each_us(calls: Sequence[Call], wait: Wait) -> list[float]:
    """Of each call alone the host's time, while the card keeps up."""
    times = []
    wait()
    with _collected():
        for at, call in enumerate(calls):
            begin = time.perf_counter_ns()
            call()
            times.append((time.perf_counter_ns() - begin) / 1e3)
            if at % _IN_A_ROW == _IN_A_ROW - 1:
                wait()
    wait()
    return times


def _row_us(calls: Iterable[Call], wait: Wait) -> float:
    """Of one of all, until the card has done them."""
    wait()
    with _collected():
        count, begin = 0, time.perf_counter_ns()
        for call in calls:
            call()
            count += 1
        wait()
        return (time.perf_counter_ns() - begin) / count / 1e3


class _collected:
    """No garbage is looked for meanwhile."""

    def __enter__(self) -> None:
        gc.collect()
        gc.disable()

    def __exit__(self, *_: object) -> None:
        gc.enable()


def tables(found: Sequence[Found]) -> tuple[Table, Table]:
    """Host times, and speeds in a row."""
    host = tuple(
        (
            one.name, number(one.known_us, 1), number(one.new_us, 1), number(one.more_us, 1),
            number(one.near_us, 1), number(one.first_us, 1), number(one.again_us, 1),
        )
        for one in found
    )  # fmt: skip
    columns = ("function", "known us", "new us", "more", "beside another", "second of all", "seen once")
    rows = tuple(
        (
            f"{one.name}, {which}", number(one.equal_us[which], 1),
            number(one.equal_us[which] / one.different_us[which], 3),
            number(one.equal_us[which] / one.second_us[which], 3),
        )
        for one in found
        for which in one.equal_us
    )  # fmt: skip
    speeds = ("function, sizes", "equal, us each", "different, first time", "second time")
    return (
        Table(f"Host time of a call of a size never seen (at most {NEW_US:.0f} us more)", columns, host),
        Table(f"Speed of different sizes over that of equal ones (at least {LEAST_RATIO})", speeds, rows),
    )


@dataclass(frozen=True, slots=True)
class Step:
    """Many sizes around one, in a row, the card's work included: microseconds of each."""

    name: str
    size: int
    equal_us: float
    different_us: float  # never seen
    second_us: float  # the same again

    @property
    def ratio(self) -> float:
        """Speed of different sizes over that of equal ones."""
        return self.equal_us / self.different_us


def climb(subject: Subject, wait: Wait, count: int = 300, steps: int = 8) -> list[Step]:
    """From short sizes to long ones, until different ones run as fast as equal ones twice in a row.

    No size is one that `measure` calls first, as long as there are not more than 400 of each.
    """
    found: list[Step] = []
    for at in range(steps):
        middle = round(subject.short * (subject.long / subject.short) ** (at / (steps - 1)))
        found.append(Step(subject.name, middle, *_in_a_row(subject, max(1, middle - count // 2), count, wait)))
        if [one.ratio >= LEAST_RATIO for one in found[-2:]] == [True, True]:
            break
    return found


def mixed(subject: Subject, wait: Wait, count: int = 1000) -> Step:
    """Sizes from 64 on, as many between 1,000 and 2,000 as between 2,000 and 4,000, none called before; of the table
    the one in the middle. Equal ones are those of every fortieth of them."""
    draw, sizes = random.Random(count), dict[int, None]()
    most = subject.long + 1500
    while len(sizes) < count:
        sizes[round(_LEAST_SIZE * (most / _LEAST_SIZE) ** draw.random())] = None
    ordered = sorted(sizes)
    for size in ordered[:: max(1, count // _COMPILED)]:
        subject.of(size)()
    some = ordered[:: max(1, count // 40)]
    equal = [min(_row_us([subject.of(size) for _ in range(_OF_EACH)], wait) for _ in range(3)) for size in some]
    calls = [subject.of(size) for size in sizes]
    different, second = _row_us(calls, wait), _row_us(calls, wait)
    return Step(subject.name, ordered[count // 2], statistics.fmean(equal), different, second)


def steps_table(found: Sequence[Step], title: str) -> Table:
    """Speeds by size."""
    rows = tuple(
        (
            one.name, str(one.size), number(one.equal_us, 1), number(one.different_us, 1), number(one.ratio, 3),
            number(one.equal_us / one.second_us, 3),
        )
        for one in found
    )  # fmt: skip
    columns = ("function", "sizes around", "equal, us each", "different, us each", "speed, first time", "second time")
    return Table(title, columns, rows)


def is_good(found: Found) -> bool:
    """Are both bars met?"""
    return found.more_us <= NEW_US and found.worst_ratio >= LEAST_RATIO


def parser() -> argparse.ArgumentParser:
    """The command line's flags."""
    made = argparse.ArgumentParser(
        prog="python -m wspec.lab.bench.new_sizes", description="Measure what sizes never seen cost."
    )
    made.add_argument("--different", type=int, default=1000, help="sizes one after the other (default %(default)s)")
    made.add_argument("--steps", type=int, default=8, help="sizes around which many follow (default %(default)s)")
    made.add_argument("--only", default="", help="functions whose name has this in it")
    return made


def main(argv: Sequence[str] | None = None) -> int:
    """0 when all bars are met, 1 when not, 2 when nothing could be run."""
    options = parser().parse_args(argv)
    try:
        device = require_hopper()
    except NoGpu as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    wait = torch.cuda.synchronize
    those = [one for one in subjects(device) if options.only in one.name]
    climbed = [step for one in those for step in climb(one, wait, steps=options.steps)]
    found = [measure(one, wait, options.different) for one in those]
    long = [measure_far(one, wait) for one in far(device) if options.only in one[0]]
    others = [one for one in subjects(device, heads=12) if options.only in one.name]
    drawn = steps_table(
        [mixed(one, wait, options.different) for one in others], "Sizes drawn from all, as many short as long ones"
    )
    title = f"From which size on different ones run at {LEAST_RATIO} of the speed of equal ones"
    for table in (*tables(found), far_table(long), drawn, steps_table(climbed, title)):
        table.show(console())
    good = all(map(is_good, found)) and all(one.more_us <= NEW_US for one in long)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())

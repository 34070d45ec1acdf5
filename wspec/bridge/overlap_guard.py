"""The guard at the launch: the specialized kernel runs where certain arguments do not share memory, else the plain one.

A task that loads ahead of another one's store sees what is there before it, which is not what the kernel says if both
go to the same memory. Which arguments that is about is known when the kernel is compiled (`Disjoint`); whether they
overlap is known at the launch, where it takes a comparison of addresses. A kernel reaches through an argument the
elements of its tensor, or what its descriptor covers: that much is taken for granted.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from typing import Any

from wspec.bridge.files import kernel_location
from wspec.bridge.frontend import KernelSource
from wspec.bridge.launch import Run, around, load_plain
from wspec.bridge.recording import recording
from wspec.bridge.slots import BEFORE, rank_of
from wspec.bridge.spans import Reach, share
from wspec.diagnostics import Remark
from wspec.ir.disjoint import Pair

Tell = Callable[[Remark], None]
Place = tuple[int, ...]  # of an argument among a launch's; with the places in it where it is a tuple


def silent(_: Remark) -> None:
    """Tells nobody."""


def guarded(kernel: Any, source: KernelSource, pairs: Sequence[Pair], tell: Tell = silent) -> Any:
    """The kernel, which has the plain one launched instead where two arguments of a pair share memory.

    `tell` is given a remark the first time that happens for a pair of arguments; what it raises, the launch raises.
    """
    if not pairs:
        return kernel
    guard, plain = Guard(places(source.ast.signature), pairs), Plain(source, tell)
    return around(kernel, lambda launch: _with_guard(launch, guard, plain))


def _with_guard(launch: Run, guard: Guard, plain: Plain) -> Run:
    ranges_of, overlap = guard.ranges, guard.overlap

    def run(x: int, y: int, z: int, stream: int, function: Any, packed: Any, *rest: Any) -> None:
        ranges = ranges_of(rest)
        found = overlap(ranges, rest)
        if recording.count and (now := recording.now) is not None:
            now.apart += guard.sizes(ranges)
            now.guard = guard
            now.once |= found is not None or guard.nested
        if found is None:
            launch(x, y, z, stream, function, packed, *rest)
        else:
            plain.launch(found, lambda: guard.remark(found, plain.source), (x, y, z), stream, rest)

    return run


class Guard:
    """Pairs of arguments that must not share memory, as a launch has them: behind its metadata and hooks."""

    def __init__(self, at: Sequence[tuple[str, Place]], pairs: Sequence[Pair]) -> None:
        """`at`: name and place of each argument of the compiled function; `pairs`: of those, by position."""
        used = sorted({one for pair in pairs for one in pair})
        index = {argument: number for number, argument in enumerate(used)}
        self.names = [at[argument][0] for argument in used]
        self.nested = any(len(at[argument][1]) > 1 for argument in used)
        self.places = [at[argument][1] for argument in used]
        self.pairs = [(index[one], index[other]) for one, other in pairs]
        self._looks = [(BEFORE + place[0], Reach().bounds) for place in self.places]

    def remark(self, pair: Pair, source: KernelSource) -> Remark:
        """For a launch that runs the plain kernel since a pair overlaps."""
        one, other = (self.names[at] for at in pair)
        message = f"{one} and {other} share memory in this launch, which runs the plain kernel"
        note = "the specialized kernel loads ahead of stores: give it tensors that do not overlap"
        return Remark("arguments-overlap", message, kernel_location(source), note=note)

    def ranges(self, rest: Sequence[Any]) -> list[tuple[int, int]]:
        """The first address of each argument, and the one behind its last."""
        if not self.nested:
            return [look(rest[at]) for at, look in self._looks]
        values = [_inside(rest[BEFORE + place[0]], place[1:]) for place in self.places]
        return [look(value) for value, (_, look) in zip(values, self._looks, strict=True)]

    def sizes(self, ranges: Sequence[tuple[int, int]]) -> list[tuple[int, int, int, int]]:
        """(one, its bytes, another, its bytes) of each pair, by their positions in the launch."""
        bytes = [end - start for start, end in ranges]
        places = self.places
        return [(places[one][0], bytes[one], places[other][0], bytes[other]) for one, other in self.pairs]

    def pairs_at(self, order: Sequence[int]) -> list[tuple[int, int]]:
        """The pairs, of which `order` says which each argument is."""
        return [(order[self.places[one][0]], order[self.places[other][0]]) for one, other in self.pairs]

    def overlap(self, ranges: Sequence[tuple[int, int]], rest: Sequence[Any]) -> Pair | None:
        """The first pair, as positions in `names`, whose arguments, which lie there, may share memory."""
        for one, other in self.pairs:
            start, end = ranges[one]
            if start < ranges[other][1] and ranges[other][0] < end:
                first, second = (_inside(rest[BEFORE + p[0]], p[1:]) for p in (self.places[one], self.places[other]))
                if share(first, second):
                    return one, other
        return None


def _inside(value: Any, place: Place) -> Any:
    for at in place:
        value = value[at]
    return value


class _FellBack(threading.local):
    """Of a thread."""

    count = 0  # launches of specialized kernels that became the plain one's


fell_back = _FellBack()


class Plain:
    """What Triton makes of the kernel, compiled when it is first needed."""

    def __init__(self, source: KernelSource, tell: Tell) -> None:
        self.source, self.tell = source, tell
        self.told: set[Hashable] = set()
        self.lock = threading.Lock()
        self.kernel: Any = None

    def launch(
        self,
        why: Hashable,
        remark: Callable[[], Remark],
        grid: tuple[int, int, int],
        stream: int,
        rest: Sequence[Any],
    ) -> None:
        """Launch it on the arguments behind the metadata and hooks in `rest`; each reason is told once."""
        self.told_once(why, remark)
        fell_back.count += 1
        self.start(grid, stream, rest)

    def told_once(self, why: Hashable, remark: Callable[[], Remark]) -> None:
        """Say why it is launched."""
        if why not in self.told:
            self.tell(remark())
            self.told.add(why)

    @property
    def is_wrong(self) -> bool:
        """Is it known, since it was loaded, that ptxas has miscompiled it?"""
        return bool(getattr(self.kernel, "is_wrong", False))

    def load(self) -> None:
        """Compile it and load it on the current device, if it is not yet. Raises what Triton raises, as where the
        device has less shared memory than it needs."""
        with self.lock:
            if self.kernel is None:
                kernel = load_plain(self.source)
                _ = kernel.run  # loads it
                self.kernel = kernel

    def start(self, grid: tuple[int, ...], stream: int, rest: Sequence[Any]) -> None:
        """`launch` without a word."""
        self.load()
        kernel, (_, *hooks), arguments = self.kernel, rest[:BEFORE], rest[BEFORE:]
        run = kernel.run
        metadata = kernel.launch_metadata(grid, stream, *arguments)
        run(*grid, stream, kernel.function, kernel.packed_metadata, metadata, *hooks, *arguments)


def places(signature: Mapping[str, Any]) -> list[tuple[str, Place]]:
    """Of each argument of the compiled function its name in the source and where a launch has it.

    A descriptor is followed by its shape and strides, which have its name and place.
    """
    return [found for at, (name, kind) in enumerate(signature.items()) for found in _of(name, kind, (at,))]


def _of(name: str, kind: Any, place: Place) -> Iterator[tuple[str, Place]]:
    if isinstance(kind, tuple | list):
        for at, inner in enumerate(kind):
            yield from _of(f"{name}[{at}]", inner, (*place, at))
    elif kind != "constexpr":
        rank = rank_of(kind) if kind.startswith("tensordesc") else 0
        yield from [(name, place)] * (1 + 2 * rank)


def names_of(pairs: Sequence[Pair], signature: Mapping[str, Any]) -> list[tuple[str, str]]:
    """The pairs by the names of their arguments."""
    at = places(signature)
    return [(at[one][0], at[other][0]) for one, other in pairs]

"""Which configurations of a kernel are worth timing: compile all of them, compare them on one case, keep the best."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from wspec.lab.bench.precompile import Make, precompile
from wspec.lab.bench.session import Record, Session, timing_record
from wspec.lab.bench.timing import Timing, Variant, measure

KindT = TypeVar("KindT", bound=Hashable)
EntryT = TypeVar("EntryT", bound=Hashable)


@dataclass(slots=True)
class Tuner(Generic[KindT, EntryT]):
    """Entries are kernels at configurations; a kind is what, beside the entry, decides the compiled kernel."""

    session: Session
    failed: set[tuple[KindT, EntryT]] = field(default_factory=set)

    def compile_all(self, makes: Mapping[tuple[KindT, EntryT], Make]) -> None:
        """Fill the cache; what does not compile is recorded, and left out from then on."""
        begin = time.monotonic()
        failures = precompile(list(makes.values()), self.session.options.jobs)
        for (kind, entry), failure in zip(makes, failures, strict=True):
            if failure is not None:
                self._did_not_build(kind, entry, failure)
        seconds = self.session.results["compile_seconds"] = time.monotonic() - begin
        print(
            f"compiled {len(makes)} kernels in {seconds:.0f} s, {len(self.failed)} failed", file=sys.stderr, flush=True
        )

    def compare(
        self, kind: KindT, name: str, flops: int, makers: Mapping[EntryT, Callable[[], Variant]]
    ) -> dict[EntryT, Timing]:
        """Time the entries of a kind on the case `name`, briefly; those that do not load are recorded and left out.

        The times also go to the results' "sweeps".
        """
        variants = {entry: self._build(kind, entry, make) for entry, make in makers.items()}
        built = {entry: variant for entry, variant in variants.items() if variant is not None}
        timings = measure(list(built.values()), rounds=5, window_ms=1.0)
        found = {entry: timings[variant.name] for entry, variant in built.items()}
        listed: Record = {str(entry): timing_record(timing, flops) for entry, timing in found.items()}
        self.session.results["sweeps"].append({"name": name, "entries": listed})
        return found

    def _build(self, kind: KindT, entry: EntryT, make: Callable[[], Variant]) -> Variant | None:
        if (kind, entry) in self.failed:
            return None
        try:
            return make()
        except Exception as error:  # too much shared memory, found out at load
            self._did_not_build(kind, entry, error)
            return None

    def _did_not_build(self, kind: KindT, entry: EntryT, failure: object) -> None:
        self.failed.add((kind, entry))
        self.session.results["compiling"].append({"kind": str(kind), "entry": str(entry), "failure": str(failure)})


def fastest_entries(timings: Mapping[EntryT, Timing], keep: int) -> list[EntryT]:
    """The `keep` entries with the smallest medians, fastest first."""
    return sorted(timings, key=lambda entry: timings[entry].median_us)[:keep]

"""What `wspec.lab.bench.calls` shows: a line a case, tables of wall times and of the card, and where we are behind."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from wspec.lab.bench.attention_cases import Case
from wspec.lab.bench.report import Table, geometric_mean, number
from wspec.lab.bench.timing import Timing

OURS = "wspec"
PEERS = ("FA3", "SDPA", "plain")
"""In the order in which ratios stand in a cell."""

MOST_OF_FA3 = 1.08
"""A call may take so many times as long as FlashAttention-3's."""


@dataclass(frozen=True, slots=True)
class Measured:
    """A case: wall times of a call, the card's own (None where the wall time is the card's), both by name; the plain
    kernel's tile; and how far results are from torch's, relative, by name."""

    case: Case
    tile: str
    walls: Mapping[str, Timing]
    cards: Mapping[str, Timing] | None
    far: Mapping[str, float]

    def speedup(self, peer: str, card: bool = False) -> float | None:
        """How many times faster ours is than a peer, of either time; None without the peer."""
        timings = self.walls if not card or self.cards is None else self.cards
        return timings[OURS].speedup_over(timings[peer]) if peer in timings else None

    def is_right(self, tolerance: float) -> bool:
        """Is our result torch's?"""
        return self.far[OURS] <= tolerance

    @property
    def is_good(self) -> bool:
        """Does a call take at most MOST_OF_FA3 times as long as FlashAttention-3's? Yes without it."""
        ratio = self.speedup("FA3")
        return ratio is None or ratio >= 1 / MOST_OF_FA3

    def to_data(self) -> dict[str, Any]:
        """For a file."""
        times = {"wall": self.walls, "card": self.cards or {}}
        return {
            "name": str(self.case), "case": self.case.as_json(), "plain_tile": self.tile, "far": dict(self.far),
            **{kind: {name: {"us": one.median_us, "spread": one.spread} for name, one in timings.items()}
               for kind, timings in times.items()},
            "speedups": {peer: {"wall": self.speedup(peer), "card": self.speedup(peer, card=True)} for peer in PEERS
                         if peer in self.walls},
        }  # fmt: skip


def _cell(one: Measured, card: bool) -> str:
    timings = one.walls if not card or one.cards is None else one.cards
    us = timings[OURS].median_us
    return " ".join([number(us, 1 if us < 1000 else 0), *(number(one.speedup(peer, card), 2) for peer in PEERS)])


def line(one: Measured) -> str:
    """While the run goes on."""
    far = ", ".join(f"{name} {value:.1e}" for name, value in one.far.items() if name in (OURS, "plain"))
    return f"{one.case}: wall {_cell(one, False)}; card {_cell(one, True)}; plain {one.tile}; from torch: {far}"


def tables(found: Sequence[Measured]) -> list[Table]:
    """Wall times and the card's: a row for each kind and length, a column for each batch."""
    batches = sorted({one.case.batch for one in found})
    rows = sorted({(one.case.kind.head_dim, one.case.kind.causal, one.case.seqlen_q) for one in found})
    by_place = {(one.case.kind.head_dim, one.case.kind.causal, one.case.seqlen_q, one.case.batch): one for one in found}
    columns = ("D", "mask", "S", *(f"B={batch}" for batch in batches))

    def table(title: str, card: bool) -> Table:
        made = tuple(
            (str(row[0]), "causal" if row[1] else "full", str(row[2]),
             *(_cell(by_place[(*row, batch)], card) if (*row, batch) in by_place else "-" for batch in batches))
            for row in rows
        )  # fmt: skip
        return Table(title, columns, made)

    how = f"us of attention(), and how many times faster than {', '.join(PEERS)}"
    return [table(f"Wall time of a call in a row of calls: {how}", False), table(f"Time on the card: {how}", True)]


def _summary(ratios: Sequence[float]) -> str:
    ahead = sum(ratio >= 1 for ratio in ratios)
    return f"{geometric_mean(ratios):.3f} ({min(ratios):.3f} to {max(ratios):.3f}), ahead in {ahead}"


def ahead(found: Sequence[Measured], worst: int = 10) -> list[str]:
    """In sentences: geometric means, and the calls that take longest beside FlashAttention-3's."""
    said = []
    for peer in PEERS:
        pairs = [(one.speedup(peer), one.speedup(peer, card=True)) for one in found]
        walls = [wall for wall, _ in pairs if wall is not None]
        cards = [card for _, card in pairs if card is not None]
        if walls:
            said.append(f"over {peer}, {len(walls)} cases: wall {_summary(walls)}; card {_summary(cards)}")
    behind = sorted((one for one in found if not one.is_good), key=lambda one: one.speedup("FA3") or 0.0)
    if any("FA3" in one.walls for one in found):
        said.append(f"{len(behind)} of {len(found)} calls take more than {MOST_OF_FA3} times as long as FA3's")
    said += [f"{one.case}: wall {1 / (one.speedup('FA3') or 1.0):.3f} times FA3's, card "
             f"{1 / (one.speedup('FA3', card=True) or 1.0):.3f} times" for one in behind[:worst]]  # fmt: skip
    return said

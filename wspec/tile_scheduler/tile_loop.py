"""How blocks take the tiles of a launch in a persistent kernel: what the plan decides and the launch reads."""

from __future__ import annotations

from dataclasses import dataclass, replace
from dataclasses import fields as fields_of
from typing import Any

from wspec.decision import NOT_ASKED, Decision
from wspec.tile_scheduler.costs import TileCost, fields, number, whole, wrong
from wspec.tile_scheduler.raster import Raster


@dataclass(frozen=True, slots=True)
class StreamK:
    """The last tiles of a launch may be divided between two blocks each, the second taking up the first one's sums."""

    loop: int  # whose iterations are divided
    fix_up_cycles: float  # that handing a tile's sums on and taking them up costs a block
    sums: int  # of a tile, 32 bits each, that go through the workspace
    apart_cycles: float = 0.0  # that an iteration takes longer beside blocks that are out of step


_DIVIDED = tuple(field.name for field in fields_of(StreamK))


@dataclass(frozen=True, slots=True)
class TileLoop:
    """As many blocks as fit on the GPU walk through the tiles of the grid, by a table that the launch makes.

    `to_data` and `from_data` are inverse.
    """

    cost: TileCost  # of one tile
    coarsening: int = 1  # neighbouring tiles that a block works on at a time
    axis: int = 0  # of the grid, along which they are neighbours
    stream_k: Decision[StreamK] = NOT_ASKED
    raster: Decision[Raster] = NOT_ASKED  # which operand neighbouring blocks are to share

    @property
    def parameters(self) -> tuple[int, ...]:
        """The positions of the function's arguments that decide about its tables, ascending."""
        raster = self.raster.value
        return tuple(sorted({*self.cost.parameters, *(() if raster is None else raster.parameters)}))

    def to_data(self) -> dict[str, Any]:
        """As numbers, texts and lists, for a file."""
        found: dict[str, Any] = {}
        if self.coarsening > 1:
            found |= {"coarsening": self.coarsening, "axis": self.axis}
        if (divided := self.stream_k.value) is not None:
            found["stream_k"] = {name: getattr(divided, name) for name in _DIVIDED}
        elif self.stream_k.why_not:
            found["stream_k"] = {"why_not": self.stream_k.why_not}
        if (raster := self.raster.value) is not None:
            found["raster"] = raster.to_data()
        elif self.raster.why_not:
            found["raster"] = {"why_not": self.raster.why_not}
        return {**found, "cost": self.cost.to_data()}

    @staticmethod
    def from_data(data: Any) -> TileLoop:
        """Read `to_data`'s form. Raises ValueError saying what is wrong with it."""
        none = {"why_not": ""}
        defaults = {"coarsening": 1, "axis": 0, "stream_k": none, "raster": none}
        given = {**defaults, **(data if isinstance(data, dict) else {})}
        top = fields(given, (*defaults, "cost"), "the top level")
        cost = TileCost.from_data(top["cost"])
        coarsening, axis = whole(top["coarsening"], "coarsening"), whole(top["axis"], "axis")
        if coarsening < 1 or axis not in (0, 1, 2):
            raise wrong("coarsening", coarsening) if coarsening < 1 else wrong("axis", axis)
        made = TileLoop(cost, coarsening, axis)
        if (why := _why_not(top["raster"])) is not None:
            made = replace(made, raster=Decision(None, why))
        elif coarsening > 1:
            raise wrong("raster", top["raster"])
        else:
            made = replace(made, raster=Decision(Raster.from_data(top["raster"])))
        rows = top["stream_k"]
        if (why := _why_not(rows)) is not None:
            return replace(made, stream_k=Decision(None, why))
        row = fields({"apart_cycles": 0.0, **rows} if isinstance(rows, dict) else rows, _DIVIDED, "stream_k")
        divided = StreamK(
            whole(row["loop"], "stream_k.loop"),
            number(row["fix_up_cycles"], "stream_k.fix_up_cycles"),
            whole(row["sums"], "stream_k.sums"),
            number(row["apart_cycles"], "stream_k.apart_cycles"),
        )
        if divided.loop not in {loop.loop for loop in cost.loops} or coarsening > 1:
            raise wrong("stream_k.loop", divided.loop)
        if divided.sums < 1:
            raise wrong("stream_k.sums", divided.sums)
        return replace(made, stream_k=Decision(divided))


def _why_not(data: Any) -> str | None:
    """The reason of what is not there; None where it is."""
    if isinstance(data, dict) and set(data) == {"why_not"} and isinstance(data["why_not"], str):
        return data["why_not"]
    return None

"""How many consumer warp groups share the tile, and which loads each of them gets only its rows of."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from wspec.ir.core import Operation, Value
from wspec.ir.numbering import id_of
from wspec.ir.shapes import DOTS, shape_of
from wspec.options import Options
from wspec.passes.data_partition.slicing import Conflict, privatize_leaves, slice_rows, sources
from wspec.plan.coarsening import size_of
from wspec.plan.fill import fill_of
from wspec.plan.layouts import LayoutError, shrink_type
from wspec.plan.partition import Site, decline
from wspec.plan.plan import source_warps
from wspec.target.hopper import WARP_GROUP, WGMMA_ROWS


def choose_replicas(
    function: Operation, loops: list[Operation], sites: list[Site], warps: int, options: Options, most: int = 2
) -> tuple[int, dict[int, int]]:
    """How many warp groups share the tile, `most` where nobody asks for more, and the sliced dimension of each load and
    store that is sliced."""
    if (team := size_of(function)) > 1:
        return _of_team(function, sites, warps, team, options)
    rows = lowest(loops)
    wanted = options.consumers if options.consumers is not None else max(1, min(rows // WGMMA_ROWS, most))
    if wanted > 1:
        outcome = slicing_for(function, sites, wanted)
        if not isinstance(outcome, Conflict):
            return wanted, outcome
        if options.consumers is not None:
            raise decline(
                "not-partitionable", f"{wanted} consumers cannot share the tile: {outcome.why}", outcome.op.location,
                "ask for fewer consumers, or make the tile higher",
            )  # fmt: skip
    if warps > 2 * WARP_GROUP or warps % WARP_GROUP:
        raise decline(
            "not-partitionable", f"a consumer of {warps} warps is not supported", function.location,
            "use num_warps=4 or num_warps=8",
        )  # fmt: skip
    return 1, {}


def lowest(loops: list[Operation]) -> int:
    """Rows of the lowest tile that the loops multiply."""
    return min(shape_of(dot.result.type)[0] for loop in loops for dot in loop.walk() if dot.name in DOTS)


def can_be_narrowed(function: Operation, factor: int) -> bool:
    """Can one of `factor` times as few warps hold what the kernel's warps hold?"""
    return factor == 1 or _layout_problem(function, {}, 1, factor) is None


def _of_team(
    function: Operation, sites: list[Site], warps: int, team: int, options: Options
) -> tuple[int, dict[int, int]]:
    """A warp group for each member, on the whole of its tile."""
    if (site := next((site for site in sites if site.fill.facts.whole), None)) is not None:
        raise decline(
            "not-partitionable", f"a team shares tiles that TMA brings, and this one is filled by {site.fill}",
            site.load.location, "coarsening=1 lets no tiles share what they read",
        )  # fmt: skip
    if warps != WARP_GROUP or options.consumers not in (None, team):
        said = f"it has {warps} warps" if warps != WARP_GROUP else f"consumers={options.consumers} is asked for"
        raise decline(
            "not-partitionable", f"a team needs a warp group for each of its {team} tiles, {said}", function.location,
            "use num_warps=4, and leave consumers to wspec",
        )  # fmt: skip
    return team, {}


def slicing_for(function: Operation, sites: list[Site], replicas: int) -> dict[int, int] | Conflict:
    """The sliced dimension of each load and descriptor store that replicas share by rows, or why they cannot.

    A dimension counts those of the tile that are not 1. What is missing is not sliced: every replica loads all of it,
    one stores all of it.
    """
    if replicas == 3:
        dot = next(op for op in function.walk() if op.name in DOTS)
        return Conflict(dot, "Triton's tiles are powers of two, which three do not divide")
    copy = function.clone({})
    body = copy.regions[0].block
    privatize_leaves(body)
    slicing = slice_rows(body, sources(body), replicas, WGMMA_ROWS)
    if isinstance(slicing, Conflict):
        return slicing
    factor = max(1, source_warps(function) // WARP_GROUP)
    if (problem := _layout_problem(copy, slicing.dims, replicas, factor)) is not None:
        return problem
    wanted = {id_of(site.load) for site in sites}
    found: dict[int, int] = {}
    for op in copy.walk():
        fill = fill_of(op)
        if op.name == "wspec.buffer" or (id_of(op) in wanted and fill is not None):
            dim = slicing.dim(op.result)
            if dim is not None and fill is not None and fill.facts.whole:
                return Conflict(op, f"{fill} brings a tile in one piece, which they would have to divide by rows")
            if dim is not None:
                found[id_of(op)] = _counted(op.result, dim)
        elif op.name == "tt.descriptor_store" and (dim := slicing.dim(op.operands[1])) is not None:
            found[id_of(op)] = _counted(op.operands[1], dim)
    return found


def repeated(loop: Operation, loads: Sequence[Operation], sliced: Collection[int]) -> list[Operation]:
    """What of an iteration all replicas compute, each for itself: on tiles of which each reads the whole."""
    ops = [op for op in loop.walk() if op.name not in DOTS]
    divided = [load.result for load in loads if id_of(load) in sliced]
    own = set(_behind(ops, [*divided, *(op.result for op in loop.walk() if op.name in DOTS)]))
    whole = _behind(ops, [load.result for load in loads if id_of(load) not in sliced])
    return [op for op in whole if op not in own]


def _behind(ops: list[Operation], values: Iterable[Value]) -> list[Operation]:
    """Those of the operations, in program order, that compute on these values."""
    found, known = [], set(values)
    for op in ops:
        if any(value in known for value in op.operands):
            found.append(op)
            known.update(op.results)
    return found


def _counted(tile: Value, dim: int) -> int:
    """The dimension's place among those of the tile that are not 1."""
    return [d for d, size in enumerate(shape_of(tile.type)) if size != 1].index(dim)


def _layout_problem(function: Operation, dims: dict[Value, int], replicas: int, factor: int) -> Conflict | None:
    """Try every layout before the plan is made, so that slicing itself cannot fail."""
    for op in function.walk():
        for value in op.defined:
            try:
                shrink_type(value.type, dims.get(value), replicas, factor)
            except LayoutError as error:
                return Conflict(op, str(error))
    return None

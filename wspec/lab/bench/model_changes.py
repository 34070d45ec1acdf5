"""Which plans of a tile the model is held against: the planner's own, and the same with one decision forced.

The list is one for all shapes and tiles, and has the decisions that `wspec.lab.search` varies. A change that the
planner
cannot follow makes no plan, and one that it would have decided itself makes the kernel of an earlier plan once more:
both are left out before anything is compiled (`distinct`). What is compiled and then left alone, because ptxas spilled
registers, say, is left out when it is measured.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from wspec.lab.simulate.points import Point
from wspec.outcome import Report
from wspec.plan.plan import Plan
from wspec.tune.variations import emitted

Options = Mapping[str, Any]

CHANGES: tuple[Options, ...] = (
    {},
    {"persistent": True},
    {"persistent": False},
    {"overlap": False},
    {"ping_pong": True},
    {"ping_pong": False},
    {"hold_waits": True},
    {"hold_waits": False},
    {"coarsening": 3},
    {"consumers": 1},
    {"blocks": 1},
    {"blocks": 2},
    {"depth": 1},
    {"depth": 2},
    {"depth": 3},
    {"chain": "on"},
    {"chain": "on", "helper_warps": 8},
    {"chain": "off"},
)
"""Options of the compiler; empty: the planner's own plan."""

TRITONS = ("num_warps", "num_stages")
"""Options of a point that are Triton's."""

BY_RULE = (": no such plan, ", ": the kernel of ", ": left alone, ")
"""What says that a plan was left out as the rule has it, and not because something went wrong."""


def compiler_options(point: Point) -> dict[str, Any]:
    """The options of a point that are wspec's, not Triton's."""
    return {name: value for name, value in point.options.items() if name not in TRITONS}


def in_words(change: Options) -> str:
    """`blocks=1`; truth values as 0 and 1."""
    return " ".join(f"{name}={int(value) if isinstance(value, bool) else value}" for name, value in change.items())


def distinct(tile: Sequence[Point]) -> tuple[list[Point], list[str]]:
    """Of specialized points of one tile, in order: (those whose kernels differ, why the others are left out)."""
    from wspec import api, bridge, ir
    from wspec.diagnostics import Declined
    from wspec.ir.numbering import number
    from wspec.model.machine import load_machine
    from wspec.options import Options as Compiler
    from wspec.planner.decide import decide, function_of

    source = offline_point(tile[0]).source
    module, machine = ir.read(bridge.lower(source)[1]), load_machine(api.machine_here())
    number(function_of(module))
    kept: dict[Plan, Point] = {}
    problems = []
    for point in tile:
        try:
            plan = decide(module.clone({}), machine, Compiler(gate="off", **compiler_options(point)))
        except Declined as declined:
            problems.append(f"{point.name}: no such plan, {declined.remark.code}")
            continue
        made = emitted(plan)
        if made in kept:
            problems.append(f"{point.name}: the kernel of {kept[made].name}")
            continue
        kept[made] = point
    return list(kept.values()), problems


def tiles(points: Sequence[Point]) -> list[list[Point]]:
    """The specialized ones in groups of one kernel and tile; where several shapes run them, those of the first."""
    found: dict[str, list[Point]] = {}
    for point in points:
        if point.kind == "specialized":
            tritons = {name: value for name, value in point.options.items() if name in TRITONS}
            key = json.dumps([point.shape, point.kernel, point.signature, point.constexprs, tritons], sort_keys=True)
            found.setdefault(key, []).append(point)
    kernels: dict[tuple[str, ...], list[Point]] = {}
    for tile in found.values():
        kernels.setdefault(tuple(point.compiled for point in tile), tile)
    return list(kernels.values())


def refused(report: Report) -> str:
    """Why the compiler would leave a kernel alone with `gate` on, after a look at the binary; empty if it would not."""
    if report.reason is not None:
        return report.reason.code
    return next((remark.code for remark in report.remarks if remark.severity == "warning"), "")


def offline_point(point: Point) -> Any:
    """The kernel of a point, specialized without a GPU (`wspec.api.Offline`)."""
    from wspec import api
    from wspec.specs.kernel_file import load_kernel

    kernel, is_plain = load_kernel(point.kernel).function, point.kind == "plain"
    options: dict[str, Any] = {**point.options, **({"enabled": False} if is_plain else {"gate": "off"})}
    return api.offline(kernel, point.signature, point.constexprs, **options)

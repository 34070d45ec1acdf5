"""The same by constraint programming: OR-tools' CP-SAT, where it is installed (extra `solver`).

Modulo constraints as in "Constraint programming approaches to modulo scheduling" (Bonfietti, Lombardi, Benini, Milano,
2012): a start is a place in the interval and a stage, and a unit's bookings do not overlap, nor with their own copies
one interval later.
"""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Mapping

from wspec.model.modulo.problem import Problem

AHEAD = 4  # iterations that a tile may be loaded before the loop's first dot needs it


def available() -> bool:
    """Is CP-SAT installed?"""
    return importlib.util.find_spec("ortools") is not None


def solve_exactly(
    problem: Problem,
    origin: int,
    stages: Mapping[int, int],
    limit: int,
    low: float,
    high: float,
    hint: list[float] | None,
    seconds: float,
) -> tuple[list[float] | None, float, float]:
    """(starts, interval, lower bound) of the shortest interval between `low` and `high`; starts None: none was found.

    Whole cycles; times are rounded up. `origin` starts at 0, nodes of `stages` in their interval, others in at most
    `limit` intervals from there, or before it: one, tile loads `AHEAD`. One thread, and the same seed each time.
    """
    from ortools.sat.python import cp_model

    model = cp_model.CpModel()
    top = math.ceil(high)
    interval = model.new_int_var(math.ceil(low), top, "interval")
    starts, at, stage = [], [], []
    for number in range(len(problem.nodes)):
        ahead = AHEAD if "tma" in problem.nodes[number].busy else 1
        first, last = (stages[number],) * 2 if number in stages else (-ahead, limit - 1)
        if number == origin:
            first = last = 0
        stage.append(model.new_int_var(first, last, f"stage{number}"))
        at.append(model.new_int_var(0, 0 if number == origin else top - 1, f"at{number}"))
        starts.append(model.new_int_var(first * top, (last + 1) * top, f"start{number}"))
        for which in range(first, last + 1):
            here = model.new_bool_var(f"in{number}_{which}")
            model.add(stage[number] == which).only_enforce_if(here)
            model.add(stage[number] != which).only_enforce_if(~here)
            model.add(starts[number] == at[number] + which * interval).only_enforce_if(here)
        model.add(at[number] < interval)
    for edge in problem.edges:
        model.add(starts[edge.target] + edge.distance * interval >= starts[edge.source] + math.ceil(edge.delay - 1e-6))
    units = {unit for node in problem.nodes for unit in node.busy}
    for unit in sorted(units):
        booked = []
        total = 0
        for number, node in enumerate(problem.nodes):
            if unit not in node.busy:
                continue
            cycles = math.ceil(node.busy[unit] - 1e-6)
            total += cycles
            booked.append(model.new_fixed_size_interval_var(at[number], cycles, f"{unit}{number}"))
            again = model.new_int_var(0, 2 * top, f"again_{unit}{number}")
            model.add(again == at[number] + interval)
            booked.append(model.new_fixed_size_interval_var(again, cycles, f"{unit}{number}_"))
        model.add_no_overlap(booked)
        model.add(interval >= total)
    if hint is not None:
        for number, start in enumerate(hint):
            model.add_hint(starts[number], round(start))
        model.add_hint(interval, top)
    model.minimize(interval)
    solver = cp_model.CpSolver()
    solver.parameters.max_deterministic_time = seconds  # by work done: the same result on a busy machine
    solver.parameters.max_time_in_seconds = 4 * seconds
    solver.parameters.num_workers = 1
    solver.parameters.random_seed = 1
    status = solver.solve(model)
    if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        return None, high, solver.best_objective_bound if status != cp_model.INFEASIBLE else high
    found = [float(solver.value(start)) for start in starts]
    return found, float(solver.value(interval)), solver.best_objective_bound

"""Modulo scheduling of a consumer's loop: what starts when, in steady state, and what runs an iteration behind.

`problem.py` prices a loop, `bounds.py` says what no schedule can beat, `heuristic.py` and `exact.py` solve, `solve.py`
chooses between them.
"""

from wspec.model.modulo.bounds import recurrence_bound, resource_bound
from wspec.model.modulo.problem import Edge, Node, Problem, in_order, loop_problem
from wspec.model.modulo.solve import Schedule, solve

__all__ = [
    "Edge",
    "Node",
    "Problem",
    "Schedule",
    "in_order",
    "loop_problem",
    "recurrence_bound",
    "resource_bound",
    "solve",
]

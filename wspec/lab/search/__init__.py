"""Compares plans of one kernel by simulating them: candidates, what each is expected to take, and why it lost."""

from wspec.lab.search.choose import preferred
from wspec.lab.search.schedules import SteadyState, schedules
from wspec.lab.search.search import MARGIN, RULE, Candidate, Search, search
from wspec.lab.search.variations import DECISIONS
from wspec.lab.search.writes import written_arguments

__all__ = [
    "DECISIONS",
    "MARGIN",
    "RULE",
    "Candidate",
    "Search",
    "SteadyState",
    "preferred",
    "schedules",
    "search",
    "written_arguments",
]

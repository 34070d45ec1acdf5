"""Compares plans of one kernel by simulating them: candidates, what each is expected to take, and why it lost."""

from wspec.lab.search.search import MARGIN, Candidate, Search, search

__all__ = [
    "MARGIN",
    "Candidate",
    "Search",
    "search",
]

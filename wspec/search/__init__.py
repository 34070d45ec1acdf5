"""Compares plans of one kernel by simulating them: candidates, what each is expected to take, and why it lost."""

from wspec.search.search import Candidate, Search, search

__all__ = ["Candidate", "Search", "search"]

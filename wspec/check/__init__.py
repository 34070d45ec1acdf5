"""Proves that a module with tasks, barriers and asynchronous copies has no deadlock and no race. See docs/checker.md.

Knows nothing of the planner and the passes: everything is derived from the IR.
"""

from wspec.check.checker import check
from wspec.check.findings import CODES, Finding, Report

__all__ = ["CODES", "Finding", "Report", "check"]

"""Names that kernels and launches share."""

from __future__ import annotations

TABLE = "wspec_tiles"
"""The argument of a persistent kernel that takes the table, as wspec/passes/persist.py names it."""

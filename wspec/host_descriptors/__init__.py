"""Descriptors that a launch makes for a kernel that its author wrote with pointers, and what must hold for them."""

from wspec.host_descriptors.descriptors import (
    ALIGNMENT,
    MOST,
    MOST_BEFORE,
    SPAN,
    Bound,
    Ground,
    HostDescriptor,
    Made,
    Promotion,
    compared,
)
from wspec.host_descriptors.ranges import LaunchSlice, Sum, Term
from wspec.host_descriptors.rows import RowsOfLaunch, lie_apart
from wspec.tile_scheduler.scalars import Unknown

__all__ = [
    "ALIGNMENT",
    "MOST",
    "MOST_BEFORE",
    "SPAN",
    "Bound",
    "Ground",
    "HostDescriptor",
    "LaunchSlice",
    "Made",
    "Promotion",
    "RowsOfLaunch",
    "Sum",
    "Term",
    "Unknown",
    "compared",
    "lie_apart",
]

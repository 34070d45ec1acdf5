"""What a module that is to be specialized says of its launch and of the back end it is for."""

from __future__ import annotations

from wspec.ir.core import Operation

NUM_STAGES = "ttg.num-stages"
"""Attribute of the module: num_stages of the launch."""
DEFAULT_STAGES = 3  # Triton's, for a module that does not say


def num_stages(loop: Operation) -> int:
    """Of a loop: its own number of stages, or that of the launch."""
    own = loop.int_attr("tt.num_stages")
    found = [*loop.ancestors()][-1].int_attr(NUM_STAGES) if own is None else own
    return DEFAULT_STAGES if found is None else found


WHOLE_VIEWS = "ttg.whole-views"
"""Attribute of the module: does the back end want a view of a buffer as another type to have the same bytes?"""


def views_are_whole(function: Operation) -> bool:
    """Of a function in a module."""
    return bool([function, *function.ancestors()][-1].int_attr(WHOLE_VIEWS))

"""What a module that is to be specialized says of the stages that Triton's pipeliner would make."""

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

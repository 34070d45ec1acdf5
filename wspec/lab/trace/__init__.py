"""Measuring, on a GPU, what the simulator predicts: when each warp group waits, multiplies, copies and computes."""

from wspec.lab.trace.recording import Recording, Track
from wspec.lab.trace.tracer import Tracer

__all__ = ["Recording", "Tracer", "Track"]

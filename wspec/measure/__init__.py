"""Measuring, on a GPU, what the simulator predicts: when each warp group waits, multiplies, copies and computes."""

from wspec.measure.recording import Recording, Track
from wspec.measure.tracer import Tracer

__all__ = ["Recording", "Tracer", "Track"]

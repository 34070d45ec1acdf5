"""Predicts how long a kernel takes, from its finished module: every task played against the units of an SM."""

from wspec.simulate.errors import SimulationError
from wspec.simulate.launch import Prediction, Simulator
from wspec.simulate.moved import Edits

__all__ = ["Edits", "Prediction", "SimulationError", "Simulator"]

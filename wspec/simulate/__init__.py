"""Predicts how long a kernel takes, from its finished module: every task played against the units of an SM."""

from wspec.simulate.errors import SimulationError
from wspec.simulate.launch import Prediction, Simulator

__all__ = ["Prediction", "SimulationError", "Simulator"]

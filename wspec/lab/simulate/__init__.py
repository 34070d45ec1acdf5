"""Predicts how long a kernel takes, from its finished module: every task played against the units of an SM."""

from wspec.lab.simulate.errors import SimulationError
from wspec.lab.simulate.launch import Prediction, Simulator
from wspec.lab.simulate.ptxas_reordering import Edits

__all__ = ["Edits", "Prediction", "SimulationError", "Simulator"]

"""How many SMs want the same tile at the same time: what one SM gets from L2 depends on it.

L2 sends so many bytes a cycle of data that nobody else wants; a tile that several SMs ask for at about the same time is
read once and sent to all of them, up to what one SM can take (`tma_load.shared_rate` of the machine description). Who
asks for what is read off the coordinates of the first loads of every block that runs at the beginning.
"""

from __future__ import annotations

from collections.abc import Sequence

from wspec.ir.core import Operation
from wspec.plan.machine import Machine
from wspec.simulate.program import Compiler
from wspec.simulate.walk import Arguments, Grid, Walker


class Sharers:
    """Of the loads of one module."""

    def __init__(self, module: Operation, machine: Machine) -> None:
        self.program = Compiler(module, machine, coordinates=True)

    def mean(self, arguments: Arguments, grid: Grid, at_once: int) -> float:
        """By how many blocks a byte that the first `at_once` blocks load is wanted; 1 where nothing is known.

        The harmonic mean, weighted by bytes: bytes that are asked for over bytes that differ.
        """
        ids = _first(grid, at_once)
        walker = Walker(self.program, arguments, grid, brief=True)
        asked = 0.0
        distinct: dict[tuple[Operation, tuple[object, ...]], int] = {}
        for program_id in ids:
            walker.block(program_id)
            for number, (op, size, coordinates) in enumerate(walker.touched):
                asked += size
                key = coordinates if coordinates is not None else (program_id, number)
                distinct[op, key] = size
        return asked / sum(distinct.values()) if distinct else 1.0


def _first(grid: Grid, count: int) -> Sequence[Grid]:
    """The program ids of the first blocks in the order of the grid."""
    x, y, z = grid
    return [(at % x, at // x % y, at // (x * y)) for at in range(min(count, x * y * z))]

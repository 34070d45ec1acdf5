"""What one plan is expected to take on the launches, and where the time goes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

import numpy as np

from wspec.ir.core import Operation
from wspec.lab.search.launches import Launch, arguments_of
from wspec.lab.simulate import Edits, Simulator
from wspec.lab.simulate.power_drawn import drawn
from wspec.model.machine import Machine
from wspec.plan.plan import Plan
from wspec.tile_scheduler.launch import coarse_costs
from wspec.tile_scheduler.table import make_table

SATURATED = 0.8  # of the time; a unit that is busy less does not bound

_KINDS = {
    "tensor": "tensor core",
    "mufu": "exponential",
    "fma": "arithmetic",
    "alu": "arithmetic",
    "issue": "arithmetic",
    "lsu": "shared memory",
    "smem": "shared memory",
    "load": "memory",
    "store": "memory",
}


@dataclass(frozen=True, slots=True)
class Timing:
    """One launch of one plan, predicted."""

    launch: Launch
    microseconds: float
    clock_mhz: float
    tile_cycles: float  # cycles of an SM for a tile, blocks that share it counted together
    utilization: Mapping[str, float]  # unit -> share of the launch
    waits: Mapping[str, float]  # cause -> cycles a tile, mean over the warp groups that do not load
    blocks_per_sm: int
    steps: int  # that the simulator took

    @property
    def busiest(self) -> str:
        """The unit that is busy the longest."""
        return max(self.utilization, key=lambda unit: self.utilization[unit])

    @property
    def bound(self) -> str:
        """What the launch is limited by: a kind of unit, or latency where no unit is busy most of the time."""
        return _KINDS.get(self.busiest, self.busiest) if self.utilization[self.busiest] >= SATURATED else "latency"


def time_plan(
    module: Operation,
    plan: Plan | None,
    machine: Machine,
    launches: tuple[Launch, ...],
    clocks_mhz: Sequence[float] = (),
) -> tuple[Timing, ...]:
    """The launches of a module that is ready for the back end, each at the clock that is given, else at the model's.

    Raises SimulationError for what cannot be played.
    """
    simulator = Simulator(module, machine, edits=Edits.of(plan))
    clocks = clocks_mhz or [0.0] * len(launches)
    return tuple(_time(one, simulator, plan, mhz) for one, mhz in zip(launches, clocks, strict=True))


def _time(launch: Launch, simulator: Simulator, plan: Plan | None, clock_mhz: float) -> Timing:
    arguments, grid = arguments_of(launch, simulator, plan)
    tiles = launch.grid[0] * launch.grid[1] * launch.grid[2]
    if plan is not None and plan.persistent:
        together = min(simulator.blocks_per_sm, -(-grid[0] // simulator.machine.sm_count))
        origins = simulator.origins(arguments, grid, together)
        block = simulator.walker(arguments, grid, origins).block((_longest(launch, plan, grid[0]), 0, 0))
        both = [simulator.play(block, together, sharing=way) for way in simulator.sharings(block, together)]
        played, cycles, steps = both[0], fmean(one.cycles for one in both), sum(one.steps for one in both)
        used: Mapping[str, float] = {unit: fmean(one.utilization[unit] for one in both) for unit in played.utilization}
        draw = drawn([(block, together)], origins, used, cycles, simulator.numbers)
        clock = clock_mhz or simulator.numbers.power.mhz(draw)
    else:
        prediction = simulator.predict(arguments, grid, clock_mhz=clock_mhz)
        together, used = prediction.blocks_per_sm, prediction.utilization
        cycles, clock, steps = prediction.cycles, prediction.clock_mhz, prediction.steps
        middle = (grid[0] // 2, grid[1] // 2, grid[2] // 2)
        played = simulator.play(simulator.block(arguments, grid, middle), together)
    of_block = tiles / (grid[0] * grid[1] * grid[2])
    waits: dict[str, float] = {}
    groups = {track: causes for track, causes in played.waits.items() if not _loads(track, played.waits)}
    for causes in groups.values():
        for cause, waited in causes.items():
            waits[cause] = waits.get(cause, 0.0) + waited / of_block / len(groups)
    return Timing(
        launch, cycles / clock, clock, cycles * simulator.machine.sm_count / tiles, used, waits, together, steps
    )


def _longest(launch: Launch, plan: Plan, blocks: int) -> int:
    """The block whose tiles cost the most: it ends last, and stands for its SM and for the launch."""
    tiles = plan.tile_loop
    assert tiles is not None
    costs = tiles.cost.evaluate(launch.grid, dict.fromkeys(tiles.cost.parameters, launch.length))
    costs = coarse_costs(costs, tiles.coarsening, tiles.axis)
    table = make_table(costs, blocks)
    x, y, z, counts = (table[..., column] for column in range(4))
    there = np.arange(table.shape[0])[:, None] < counts[0]
    return int(np.where(there, costs[z, y, x], 0.0).sum(axis=0).argmax())


def _loads(track: str, waits: Mapping[str, object]) -> bool:
    """Is this the producer? Its region is the last one of a specialized kernel."""
    numbers = {_number(one) for one in waits}
    return len(numbers) > 1 and _number(track) == max(numbers)


def _number(track: str) -> int:
    """Of a task: the kernel's own warps are -1, partitions count from 0."""
    name = track.rpartition(": ")[2]
    digits = "".join(letter for letter in name.partition("partition")[2] if letter.isdigit())
    return int(digits) if digits else -1

"""A whole launch: which blocks run on which SM, how long each takes beside others, and when the last one ends.

Blocks are handed out in the order of the grid, the first axis fastest, each to the slot that becomes free first. Blocks
of one class do the same: those whose program ids agree on the axes that decide conditions and trip counts. A class is
played on one SM, alone and together with as many of its kind as share an SM; between these, and between classes that
were played, times are interpolated.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from wspec.ir.core import Operation
from wspec.lab.simulate.actions import Block, Kind, Walked
from wspec.lab.simulate.costs import LOAD, SCHEDULERS, STORE, TENSOR, UNITS, numbers
from wspec.lab.simulate.dispatch import dispatch
from wspec.lab.simulate.engine import Engine
from wspec.lab.simulate.l2_reuse import (
    ALWAYS,
    NONE_KNOWN,
    UNKNOWN,
    Matrices,
    Origins,
    Sources,
    Traffic,
    arrivals,
    cases,
)
from wspec.lab.simulate.occupancy import blocks_per_sm
from wspec.lab.simulate.power import Draw
from wspec.lab.simulate.power_drawn import drawn, loaded_bytes
from wspec.lab.simulate.program import Compiler
from wspec.lab.simulate.ptxas_reordering import NO_EDITS, Edits
from wspec.lab.simulate.timeline import SmResult
from wspec.lab.simulate.unit_sharing import Limits, Sharing
from wspec.lab.simulate.walk import Arguments, Grid, Walker
from wspec.model.machine import Machine

_CLASSES = 5  # that are played when there are more along one axis
BOTH = (False, True)
"""Ways to share the units: out of step, and in step (`Limits.in_step`)."""
_FAR = 0.1  # of a clock, between the two that a launch is played at, at least: what is nearer differs by chance
_STEEPEST = 0.8  # of the line on which the clock is found: a steeper one would lead anywhere
_BUSY = 0.9  # of the time that the way from L2 is busy for: with more it is taken to be always
_MOMENT, _IN_A_ROW = 0.5, 3  # cycles; blocks of a slot, where they begin one after the other
_AT_ONCE = 2  # that are played when all blocks begin at once: they were given like work


@dataclass(frozen=True, slots=True)
class Prediction:
    """What a launch is expected to take."""

    cycles: float
    clock_mhz: float
    blocks: int
    blocks_per_sm: int
    waves: float  # blocks over those that run at a time
    utilization: Mapping[str, float]  # unit -> share of the launch that it is busy, mean of all SMs
    dot_flop: float  # of all dots, masked elements included
    draw: Draw  # what the clock depends on
    played: int  # blocks that were simulated
    steps: int
    cycles_more: float = 0.0  # for each MHz of clock more: L2 and memory send as much a second at any

    def cycles_at(self, mhz: float) -> float:
        """Of the same launch at another clock, near this one."""
        return self.cycles + self.cycles_more * (mhz - self.clock_mhz)

    @property
    def microseconds(self) -> float:
        return self.cycles / self.clock_mhz

    @property
    def tflops(self) -> float:
        """Of the dots."""
        return self.dot_flop / self.microseconds / 1e6 if self.cycles else 0.0

    @property
    def bound(self) -> str:
        """The busiest unit."""
        return max(self.utilization, key=lambda unit: self.utilization[unit])


class Simulator:
    """Predicts launches of one module. Raises SimulationError for what cannot be played."""

    def __init__(
        self,
        module: Operation,
        machine: Machine,
        registers: int | None = None,
        serialized: bool = False,
        edits: Edits = NO_EDITS,
    ) -> None:
        """`registers` of a thread and whether ptxas `serialized` wgmma, where the binary was looked at.

        `edits`: what the plan does to the PTX.
        """
        self.machine, self.numbers = machine, numbers(machine)
        self.program = Compiler(module, machine, serialized=serialized, edits=edits)
        self.sources = Sources(module, machine)
        self.blocks_per_sm = blocks_per_sm(module, machine, registers)

    def missing(self, arguments: Arguments) -> list[str]:
        """The names of the integers that a launch needs and these arguments do not have."""
        return Walker(self.program, arguments, (1, 1, 1)).missing

    def block(self, arguments: Arguments, grid: Grid, program_id: Grid = (0, 0, 0)) -> Block:
        """The actions of one block."""
        return self.walker(arguments, grid, self.origins(arguments, grid, self.blocks_per_sm)).block(program_id)

    def origins(self, arguments: Arguments, grid: Grid, together: int, matrices: Matrices = NONE_KNOWN) -> Origins:
        """Where tiles come from in a launch of which so many blocks share an SM."""
        return self.sources.of(arguments, grid, self.machine.sm_count * together, matrices)

    @property
    def limits(self) -> Limits:
        """What units can do beside each other."""
        one = self.numbers
        return Limits(
            one.issue_one, one.issue_all, one.beside_one, one.beside_all, one.dots_beside_copies, one.smem_left,
            one.copies_beside_stores,
        )  # fmt: skip

    def walker(self, arguments: Arguments, grid: Grid, origins: Origins, traffic: Traffic = ALWAYS) -> Walker:
        """Of a launch whose tiles come from there, with so much on the ways."""
        return Walker(self.program, arguments, grid, arrivals=arrivals(origins, self.numbers, traffic))

    def play(
        self,
        block: Block,
        together: int = 1,
        record: bool = False,
        extrapolate: bool = True,
        sharing: Sharing | None = None,
        every: float = 0.0,
    ) -> SmResult:
        """So many blocks of a kind on one SM: begun at once, or one `every` so many cycles and others behind it."""
        slots = [(at * every, [block] * (_IN_A_ROW if every else 1)) for at in range(together)]
        return Engine(self.numbers, slots, record, extrapolate, sharing or Sharing(self.limits)).run()

    def sharings(self, block: Block, together: int) -> list[Sharing]:
        """The ways in which warp groups may share the units: out of step or in step, where several multiply."""
        several = together * sum(_multiplying(task) for task in block.tasks) > 1
        return [Sharing(replace(self.limits, in_step=in_step)) for in_step in (BOTH if several else (False,))]

    def predict(
        self,
        arguments: Arguments,
        grid: Grid,
        together: int | None = None,
        clock_mhz: float = 0.0,
        matrices: Matrices = NONE_KNOWN,
    ) -> Prediction:
        """A launch with these integers, by name. `together` blocks share an SM.

        A clock that is not given is the one that the launch comes out to have.
        """
        if clock_mhz:
            return self._predict(arguments, grid, together, clock_mhz, matrices)
        power, guess = self.numbers.power, self.numbers.multiplying_mhz
        first = self._predict(arguments, grid, together, guess, matrices)
        drawn = power.mhz(first.draw)
        other = drawn if abs(drawn - guess) > _FAR * guess else (1 - _FAR) * guess
        second = self._predict(arguments, grid, together, other, matrices)
        # The clock that comes out is taken to lie on a line over the one that is given: where are both the same?
        slope = min(_STEEPEST, (power.mhz(second.draw) - drawn) / (other - guess))
        clock = min((drawn - slope * guess) / (1 - slope), power.light_mhz)
        near = min(first, second, key=lambda one: abs(one.clock_mhz - clock))
        more = (second.cycles - first.cycles) / (other - guess)
        made = replace(near, cycles_more=more)
        return replace(made, cycles=made.cycles_at(clock), clock_mhz=clock)

    def _predict(
        self, arguments: Arguments, grid: Grid, together: int | None, mhz: float, matrices: Matrices
    ) -> Prediction:
        total = grid[0] * grid[1] * grid[2]
        most = min(together or self.blocks_per_sm, max(1, -(-total // self.machine.sm_count)))
        classes = _Classes(self, arguments, grid, most, matrices, mhz)
        if len(classes.keys) > 1 and total <= self.machine.sm_count * most:
            cycles = classes.together()
        else:
            cycles = classes.uniform() if len(classes.keys) == 1 else classes.schedule()
        cycles += self.numbers.launch_gap
        whole = [sum(share[unit] for share in classes.busy()) for unit in range(len(UNITS))]
        capacity = cycles * self.machine.sm_count or 1.0
        waves = total / (self.machine.sm_count * most)
        used = {unit: whole[at] / capacity for at, unit in enumerate(UNITS)}
        flop = whole[TENSOR] and classes.flop()
        steps = sum(one.steps for one in classes.results.values())
        draw = drawn(classes.loads(), classes.origins, used, capacity, self.numbers)
        return Prediction(cycles, mhz, total, most, waves, used, flop, draw, len(classes.results), steps)


class _Classes:
    """The classes of blocks of a launch, and how long each takes."""

    def __init__(
        self, simulator: Simulator, arguments: Arguments, grid: Grid, most: int, matrices: Matrices, mhz: float
    ) -> None:
        self.simulator, self.arguments, self.grid, self.most = simulator, arguments, grid, most
        self.origins = simulator.origins(arguments, grid, most, matrices)
        self.cases = cases(self.origins)
        self.traffic = Traffic(mhz)
        self.walkers = self._walkers(self.traffic)
        self.axes = sorted(simulator.program.axes())
        sizes = [grid[axis] if axis in self.axes else 1 for axis in range(3)]
        self.keys = [(x, y, z) for z in range(sizes[2]) for y in range(sizes[1]) for x in range(sizes[0])]
        self.each = grid[0] * grid[1] * grid[2] / max(1, len(self.keys))  # blocks of a class
        count = len(self.keys)
        wanted = _CLASSES if len(self.axes) == 1 else _CLASSES**2  # a line through few points, or more of them
        if grid[0] * grid[1] * grid[2] <= simulator.machine.sm_count * most:
            wanted = _AT_ONCE
        self.sample = sorted({round(i * (count - 1) / (wanted - 1)) for i in range(wanted)}) if count > wanted else [
            *range(count)
        ]  # fmt: skip
        self.results: dict[tuple[int, int, int, int], SmResult] = {}
        """By (position in keys, blocks together, which sharing, which case)."""
        self.walked: dict[tuple[int, int], Block] = {}  # by (position in keys, which case)
        self._times: dict[tuple[int, int], float] = {}
        self._with_traffic()

    def _walkers(self, traffic: Traffic) -> list[Walker]:
        return [self.simulator.walker(self.arguments, self.grid, origins, traffic) for _, origins in self.cases]

    def _with_traffic(self) -> None:
        """Play blocks as tiles come where memory writes as much as the block in the middle stores, and then with the
        latency that they have where the way from L2 is as busy as there. Where it is busy for most of the time the
        block was played for one that is."""
        self._play_again(replace(self.traffic, written=self._written(self.middle)))
        played = [self.result(self.middle, self.most, case=at) for at in range(len(self.cases))]
        busy, cycles = (
            self._over_cases([one.busy[LOAD] for one in played]),
            self._over_cases([one.cycles for one in played]),
        )
        if 0 < busy <= _BUSY * cycles:
            self._play_again(replace(self.traffic, busy=busy / cycles))

    @cached_property
    def middle(self) -> int:
        """The position of the block in the middle of those that are played."""
        return self.sample[len(self.sample) // 2]

    @cached_property
    def sharings(self) -> list[Sharing]:
        """What they remember serves all classes."""
        return self.simulator.sharings(self.block(self.middle), self.most)

    def _over_cases(self, values: Sequence[float]) -> float:
        """The mean of a value for each case."""
        return sum(weight * value for (weight, _), value in zip(self.cases, values, strict=True))

    def _play_again(self, traffic: Traffic) -> None:
        """With this on the ways, if tiles come otherwise then."""
        before, self.traffic, self.walkers = self.walkers, traffic, self._walkers(traffic)
        if any(now.arrivals != then.arrivals for now, then in zip(self.walkers, before, strict=True)):
            self.results.clear()
            self.walked.clear()

    def _written(self, position: int) -> float:
        """The part that stores have of what the blocks of a class move from and to memory."""
        stored = self.result(position, self.most).busy[STORE] * self.simulator.numbers.store / self.most
        loaded = loaded_bytes(self.block(position))
        read = sum(size * self.origins.get(op, UNKNOWN).memory for op, size in loaded.items())
        return stored / (stored + read) if read else 0.0

    def block(self, position: int, case: int = 0) -> Block:
        if (position, case) not in self.walked:
            self.walked[position, case] = self.walkers[case].block(self.keys[position])
        return self.walked[position, case]

    def result(self, position: int, together: int, which: int = 0, case: int = 0) -> SmResult:
        key = (position, together, which, case)
        if key not in self.results:
            block, sharing = self.block(position, case), self.sharings[which]
            self.results[key] = self.simulator.play(block, together, sharing=sharing)
        return self.results[key]

    def residence(self, position: int, together: int) -> float:
        """The mean of both ways in which warp groups may share the units, out of step and in step, and over where tiles
        may come from."""
        return self._over_ways(lambda which, case: _residence(self.result(position, together, which, case)))

    def _over_ways(self, cycles: Callable[[int, int], float]) -> float:
        """The mean of what it takes by (which sharing, which case)."""
        ways = range(len(self.sharings))
        return self._over_cases([_mean([cycles(i, at) for i in ways]) for at in range(len(self.cases))])

    def _between(self, position: int) -> list[tuple[int, float]]:
        """The classes that were played around this one, and their weights."""
        at = bisect_left(self.sample, position)
        high = self.sample[at]
        if high == position:
            return [(high, 1.0)]
        low = self.sample[at - 1]
        share = (position - low) / (high - low)
        return [(low, 1 - share), (high, share)]

    def cycles(self, position: int, together: int) -> float:
        """How long a block of a class is there when so many share the SM."""
        known = self._times.get((position, together))
        if known is None and 1 < together < self.most:
            fewest, most = self.cycles(position, 1), self.cycles(position, self.most)
            known = fewest + (most - fewest) * (together - 1) / (self.most - 1)
            self._times[position, together] = known
        if known is None:
            parts = ((weight, self.residence(one, together)) for one, weight in self._between(position))
            known = self._times[position, together] = sum(weight * cycles for weight, cycles in parts)
        return known

    @cached_property
    def weights(self) -> dict[int, float]:
        """How many blocks each class that was played stands for."""
        found = dict.fromkeys(self.sample, 0.0)
        for position in range(len(self.keys)):
            for one, weight in self._between(position):
                found[one] += weight * self.each
        return found

    def busy(self) -> list[list[float]]:
        """Cycles of each unit, for all blocks of each class that was played."""
        return [
            [cycles / self.most * weight for cycles in self.result(one, self.most).busy]
            for one, weight in self.weights.items()
        ]

    def flop(self) -> float:
        return sum(weight * _flop(self.block(one)) for one, weight in self.weights.items())

    def loads(self) -> list[tuple[Block, float]]:
        """The blocks that were played, and how many of the launch each stands for."""
        return [(self.block(one), weight) for one, weight in self.weights.items()]

    # ---- which block when

    def together(self) -> float:
        """All blocks begin at once: the one that takes longest."""
        return max(self.cycles(one, self.most) for one in self.sample)

    def uniform(self) -> float:
        """All blocks alike: whole waves, and what is left."""
        total, sms = round(self.each), self.simulator.machine.sm_count
        waves, left = divmod(total, sms * self.most)
        last = self.cycles(0, -(-left // sms)) if left >= sms or not waves else self._alone(left / sms)
        if waves < 2 or self.most == 1:
            return waves * self.cycles(0, self.most) + last
        return self.cycles(0, self.most) + (waves - 1) * self._spread(0) + last

    def _spread(self, position: int) -> float:
        """How long a block is there that is not of the first wave: those of an SM have parted by then, and begin one
        after the other."""
        return self._over_ways(lambda which, case: self._spread_way(position, which, case))

    def _spread_way(self, position: int, which: int, case: int) -> float:
        """The mean of blocks that had as many beside them all the time; where there is none, as in the first wave. No
        unit is busy for longer."""
        block, together = self.block(position, case), _residence(self.result(position, self.most, which, case))
        played = self.simulator.play(block, self.most, sharing=self.sharings[which], every=together / self.most)
        last = dict.fromkeys(range(self.most), 0.0) | {slot: end for slot, _, end in played.blocks}
        full, over = together / self.most * (self.most - 1), min(last.values())
        found = [end - start for _, start, end in played.blocks if start >= full - _MOMENT and end <= over + _MOMENT]
        return max(_mean(found), max(played.busy) / _IN_A_ROW) if found else together

    def _alone(self, part: float) -> float:
        """How long a block is there that has its SM for itself, as those on a part of the SMs do and no others are."""
        if not part:
            return 0.0
        blocks = [walker.block(self.keys[0]) for walker in self._walkers(replace(self.traffic, part=part))]
        return self._over_cases(
            [
                _mean([_residence(self.simulator.play(one, sharing=sharing)) for sharing in self.sharings])
                for one in blocks
            ]
        )

    def schedule(self) -> float:
        """Block by block; each SM does its blocks at the speed of as many as are there."""
        x, y, z = self.grid
        sizes = [self.grid[axis] if axis in self.axes else 1 for axis in range(3)]
        order = [
            ((k % sizes[2]) * sizes[1] + j % sizes[1]) * sizes[0] + i % sizes[0]
            for k in range(z) for j in range(y) for i in range(x)
        ]  # fmt: skip
        return dispatch(order, self.simulator.machine.sm_count, self.most, self.cycles)


def _multiplying(task: Walked) -> int:
    """How many warp groups of a task multiply."""
    return -(-task.warps // SCHEDULERS) if any(action.kind is Kind.DOT for action in task.actions) else 0


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _residence(result: SmResult) -> float:
    """The mean of the blocks that were played."""
    return sum(end - start for _, start, end in result.blocks) / len(result.blocks)


def _flop(block: Block) -> float:
    """Of all dots of a block."""
    total = 0.0
    for task in block.tasks:
        for action in task.actions:
            if action.kind is Kind.DOT:
                total += action.b
    return total

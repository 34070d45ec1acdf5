"""Where tiles come from: how many SMs want the same one at the same time, and whether L2 has it already.

L2 sends so many bytes a cycle of data that nobody else wants; a tile that neighbouring SMs ask for at about the same
time is read once and sent to all of them, up to what one SM can take (`tma_load.shared_rate` of the machine
description), and one that SMs further apart ask for is not, or to a few of them (`tma_load.apart_rate`). What no block
before has loaded comes from memory, and so does, of what was loaded before, as much as has been replaced in L2 since.
All of it is read off the coordinates of the first loads of every block that runs at the beginning, and of those that
run after them.
"""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import networkx as nx

from wspec.ir.core import Operation, Value
from wspec.ir.types import MemDescType, TensorType, Type
from wspec.ir.warp_specialize import NAME as WARP_SPECIALIZE
from wspec.ir.warp_specialize import outer
from wspec.lab.simulate.barrier_steps import coordinates
from wspec.lab.simulate.costs import LINE, Numbers, row_class
from wspec.lab.simulate.dots import arriving
from wspec.lab.simulate.program import STORES, Compiler
from wspec.lab.simulate.tiles import bits, byte_size
from wspec.lab.simulate.walk import OUTER, Arguments, Arrival, Arrivals, Grid, Walker
from wspec.model.fitted import AT_ONCE, FOUND_REST, IN_STEP, LOADED, ON_THE_WAY, STILL_MERGED, STILL_MERGED_WALKING
from wspec.model.machine import Machine


@dataclass(frozen=True, slots=True)
class Matrix:
    """What lies behind a descriptor."""

    pitch: int = LINE  # bytes from row to row
    rows: float = math.inf
    columns: float = math.inf  # elements of a row


Matrices = Mapping[str, Matrix]
"""By the names of descriptors; of those that are not there all rows begin at lines of L2, and no tile ends behind."""
NONE_KNOWN: Matrices = {}
Tiles = dict[Operation, list[object]]
"""Of each load, coordinates."""
ALL = ((0.0, 1.0),)
"""All SMs load from the first tile to the last."""
_LOOPS = ("scf.for", "scf.while")
_ONE_AHEAD = 2  # buffers of a ring
_FEW_BLOCKS = 0.04  # of all
_FEWER = 0.9  # of the SMs that loaded before: a smaller change is none


@dataclass(frozen=True, slots=True)
class Source:
    """Where the tiles of one load come from."""

    sharers: float = 1.0  # blocks of a wave that want a tile; the mean over tiles
    cold: float = 1.0  # the part of the tiles that nobody loaded before, in all waves but the first
    memory: float = 1.0  # the part of all that is loaded that memory has to send
    matrix: Matrix = Matrix()
    neighbours: float = 1.0  # of those that follow each other; the mean over runs
    apart: float = math.inf  # blocks from the beginning of a run to that of the next one that wants the tile; median
    along: bool = True  # does the loop around the load go along the matrix's rows?
    in_step: float = 1.0  # the part of the blocks that load at the same moments, as they wait for the same tiles
    loading: tuple[tuple[float, float], ...] = ALL  # after so many of its loads, the part of the SMs that has more
    first: float = 1.0  # the part of the loads of a tile that nobody loaded before that wait for memory
    clipped: float = 0.0  # the part of the tiles that reach past the end of the matrix in every step
    past: float = 0.0  # the part of such a tile that lies there
    tail: float = 0.0  # of all that is loaded, the part that lies there in last steps alone
    left: float = 1.0  # the part of what neighbours gain that is left where blocks have parted


@dataclass(frozen=True, slots=True)
class Traffic:
    """What else there is on the ways by which tiles come."""

    mhz: float = 0.0  # the clock; 0: the calibration's
    busy: float = 1.0  # the part of the time for which the way from L2 is
    part: float = 1.0  # of the SMs, on which there are blocks
    written: float = 0.0  # the part of memory's time that goes into what is stored


ALWAYS = Traffic()
"""All SMs load all the time, and nobody stores."""
Origins = Mapping[Operation, Source]
"""Of the loads whose coordinates are known."""
UNKNOWN = Source(cold=0.0, memory=0.0)
"""Of the others: L2 has their tiles, and sends them to one SM each."""


@dataclass(frozen=True, slots=True)
class _Touched:
    """What some blocks load."""

    waves: list[Tiles]  # the coordinates of the first tile of each block, of the second ones, and so on
    rounds: dict[Operation, set[int]]  # of the loop that a load is in
    loads: dict[Operation, list[float]]  # how many each block makes


class Sources:
    """Of the loads of one module."""

    def __init__(self, module: Operation, machine: Machine) -> None:
        self.program, self.kept = Compiler(module, machine, coordinates=True), machine.l2_kept_bytes
        self.sms = machine.sm_count
        self.stored = sum(byte_size(op.operands[0].type) for op in module.walk() if op.name in STORES)

    def of(self, arguments: Arguments, grid: Grid, at_once: int, matrices: Matrices = NONE_KNOWN) -> Origins:
        """Where `at_once` blocks run at a time."""
        walker, total = Walker(self.program, arguments, grid, brief=True), grid[0] * grid[1] * grid[2]
        touched = self._touched(walker, _ids(grid, 0, at_once))
        waves, rounds, walk = touched.waves, touched.rounds, len(touched.waves) > 1
        count = total / at_once * len(waves)
        while len(waves) < min(count, OUTER):
            more = self._touched(walker, _ids(grid, len(waves) * at_once, (len(waves) + 1) * at_once))
            waves += more.waves[:1]
        sizes = {op: byte_size(op.operands[-2].type) * max(rounds[op]) for op in waves[0]}
        new = new_tiles(waves, sizes, self.kept, at_once * self.stored)
        in_step = AT_ONCE / groups(waves[0])
        left = self._left(touched.loads, at_once / self.sms, total / self.sms, walk)
        found = {}
        for op, tiles in waves[0].items():
            if None in tiles:
                continue
            sharers = len(tiles) / len(set(tiles))
            part = (1 + (max(1.0, count) - 1) * new[op]) / max(1.0, count) / sharers
            matrix = matrices.get(self._descriptor(op), Matrix())
            ends = ALL if total > at_once else loading(touched.loads[op], self.sms)
            new_part, waiting = new[op], first_of_lines(op)
            cut = past_the_end([tile for wave in waves for tile in wave.get(op, ())], op, matrix, max(rounds[op]))
            found[op] = Source(
                sharers, new_part, part, matrix, *runs(tiles), goes_along(op), in_step, ends, waiting, *cut, left
            )
        return found

    def _left(self, loads: Mapping[Operation, list[float]], together: float, in_all: float, walk: bool) -> float:
        """The part that is left of what neighbours gain, all but where several blocks share an SM and their rings have
        so much on its way that they part: the less, the more steps it makes. So many run together, and in all; those
        that walk part less than those that come one after the other."""
        sizes = {ring(op): max(0, buffers(op) - 1) * byte_size(op.operands[-2].type) for op in loads}
        steps = dict.fromkeys(sizes, 0.0)
        for op, counts in loads.items():
            steps[ring(op)] += statistics.fmean(counts)
        parts = together > 1 and together * sum(sizes.values()) >= ON_THE_WAY
        still = STILL_MERGED_WALKING if walk else STILL_MERGED
        return min(1.0, still + IN_STEP / (in_all * max(steps.values()))) if parts else 1.0

    def _descriptor(self, load: Operation) -> str:
        """The name of the kernel's parameter that a tile is loaded through; empty where it is none."""
        value, block = load.operands[0], self.program.function.regions[0].block
        for around in load.ancestors():
            value = outer(around, value) if around.name == WARP_SPECIALIZE else value
        return self.program.names[value.index] if value.owner is block else ""

    def _touched(self, walker: Walker, ids: Sequence[Grid]) -> _Touched:
        found = _Touched([{}], {}, {})
        for program_id in ids:
            walker.block(program_id)
            seen = Counter[Operation]()
            for op, tile, rounds in walker.touched:
                found.rounds.setdefault(op, set()).add(rounds)
                if seen[op] == len(found.waves):
                    found.waves.append({})
                found.waves[seen[op]].setdefault(op, []).append(tile)
                seen[op] += 1
            for op, count in walker.loads.items():
                found.loads.setdefault(op, []).append(count)
        return found


def goes_along(load: Operation) -> bool:
    """Does the loop that a load is in move it along the rows of its matrix? Outside of loops nothing does."""
    loop = next((one for one in load.ancestors() if one.name in _LOOPS), None)
    todo, known = [coordinates(load)[-1]], set[Value]()
    while loop is not None and todo:
        value = todo.pop()
        if value in known:
            continue
        known.add(value)
        if isinstance(value.owner, Operation):
            if loop in value.owner.ancestors():
                todo += value.owner.operands
        elif value.owner.parent_op is loop:
            return True
    return False


def first_of_lines(load: Operation) -> float:
    """The part of its loads that wait for lines of L2: the others find what the one before has brought.

    Those are loads that go along rows shorter than lines, where the one before is over: rings of two buffers, of which
    one is being read. In deeper rings the rest of a line is asked for while it is on its way.
    """
    tile = load.operands[-2]
    few = 0 < buffers(load) <= _ONE_AHEAD
    rest = max(0.0, 1 - row_bytes(tile.type) / LINE)
    return 1 - FOUND_REST * rest if few and goes_along(load) else 1.0


def ring(load: Operation) -> Value:
    """The buffers of which a tile is loaded into one; where there is one alone, that."""
    tile = load.operands[-2]
    return tile.op.operands[0] if tile.op is not None and tile.op.name == "ttg.memdesc_index" else tile


def buffers(load: Operation) -> int:
    """Of the ring that a tile is loaded into; 0 where it is none."""
    kind = ring(load).type
    return kind.shape[0] if isinstance(kind, MemDescType) and len(kind.shape) > 2 else 0


def past_the_end(tiles: Sequence[object], load: Operation, matrix: Matrix, trips: int) -> tuple[float, float, float]:
    """Of tiles, from the coordinates of their loops' first loads and how often these go round, what `Source` calls
    `clipped`, `past` and `tail`."""
    kind, starts = load.operands[-2].type, [tile[-2:] for tile in tiles if isinstance(tile, tuple) and len(tile) > 1]
    if not isinstance(kind, MemDescType) or len(kind.shape) < 2 or not starts:
        return 0.0, 0.0, 0.0
    axis, size = (1, matrix.columns) if goes_along(load) else (0, matrix.rows)
    step = kind.shape[axis - 2]
    first, last = [_past(start, kind, matrix) for start in starts], []
    for start, past in zip(starts, first, strict=True):
        steps = min(trips, math.ceil((size - start[axis]) / step)) if size < math.inf else 1
        end = tuple(at + (steps - 1) * step * (which == axis) for which, at in enumerate(start))
        last.append((_past(end, kind, matrix) - past) / steps if steps > 1 else 0.0)
    parts = [part for part in first if part]
    return len(parts) / len(first), statistics.fmean(parts) if parts else 0.0, statistics.fmean(last)


def _past(start: Sequence[int], kind: MemDescType, matrix: Matrix) -> float:
    """The part of a tile that lies past the matrix' last row, or in boxes of a line behind its last column."""
    (row, column), (rows, columns) = start, kind.shape[-2:]
    wide = min(columns, 8 * LINE // bits(kind))
    boxes = [column + at >= matrix.columns for at in range(0, columns, wide)]
    inside = min(1.0, max(0.0, (matrix.rows - row) / rows)) * (1 - sum(boxes) / len(boxes))
    return 1 - inside


def new_tiles(
    waves: Sequence[Tiles], sizes: Mapping[Operation, int], kept: float, stored: float = 0.0
) -> dict[Operation, float]:
    """Of each load, the part of a wave's tiles that L2 no longer has, the mean of all waves but the first.

    What was loaded and stored since a tile was wanted last has replaced a part of it (`replaced`). `sizes` are the
    bytes of all that a block loads between two waves, `stored` those that a wave stores, `kept` what L2 has room for.
    Of one wave all tiles are new.
    """
    wanted = [{op: set(tiles) for op, tiles in wave.items()} for wave in waves]
    parts: dict[Operation, list[float]] = {op: [] for op in sizes}
    for at in range(1, len(wanted)):
        known: dict[Operation, set[object]] = {op: set() for op in sizes}
        sought = {op: set(tiles) for op, tiles in wanted[at].items() if op in parts}
        new = dict.fromkeys(sought, 0.0)
        for back, wave in enumerate(reversed(wanted[:at]), 1):
            if not any(sought.values()):
                break
            known = {op: tiles | wave.get(op, set()) for op, tiles in known.items()}
            loaded = sum(sizes[op] * len(tiles) for op, tiles in known.items())
            gone = replaced(loaded / kept, back * stored / kept)
            for op, tiles in sought.items():
                found = tiles & known[op]
                new[op] += gone * len(found)
                tiles -= found
        for op, tiles in sought.items():
            parts[op].append((new[op] + len(tiles)) / len(wanted[at][op]))
    return {op: statistics.fmean(some) if some else 1.0 for op, some in parts.items()}


def replaced(loaded: float, stored: float) -> float:
    """The part of what L2 had that is gone after so much was loaded and stored, both over what it has room for.

    What is loaded is kept in the order of its use. What is stored takes any place in the rest of the room, and each the
    same chance to meet what is looked for: of that a part exp(-stored / rest) is left.
    """
    rest = 1 - loaded
    return 1 - math.exp(-stored / rest) if rest > 0 else float(rest < 0 or stored > 0)


def cases(origins: Origins) -> list[tuple[float, Origins]]:
    """(part of the blocks, where their tiles come from): a tile's loads all come from memory, or all from L2, and all
    of its tiles reach past the end of their matrix, or none.

    A block waits for the later of two tiles, which is later than their means say. Blocks for which the load is new that
    is new least often are taken to be among those of the others, and likewise those whose tiles reach past the end; a
    case of a few blocks is left to the rest.
    """
    cold = _nested([source.cold for source in origins.values()])
    clipped = _nested([source.clipped for source in origins.values()])
    return [
        (
            new * cut,
            {
                op: replace(one, cold=float(one.cold >= at), clipped=float(one.clipped >= end))
                for op, one in origins.items()
            },
        )
        for cut, end in reversed(clipped)
        for new, at in cold
    ]


def _nested(parts: Sequence[float]) -> list[tuple[float, float]]:
    """(Part of the blocks, how large a part of `parts` has to be to hold for them)."""
    steps = list(pairwise(sorted({0.0, 1.0, *parts})))
    kept = [(low, high) for low, high in steps if high - low >= _FEW_BLOCKS] or steps
    whole = sum(high - low for low, high in kept)
    return [((high - low) / whole, high) for low, high in kept]


def groups(tiles: Tiles) -> int:
    """How many groups of blocks there are that share tiles, those of each with others of it."""
    graph = nx.Graph()
    for op, wanted in tiles.items():
        graph.add_edges_from((at, (op, tile)) for at, tile in enumerate(wanted))
    return max(1, int(nx.number_connected_components(graph)))


def loading(loads: Sequence[float], sms: int) -> tuple[tuple[float, float], ...]:
    """(loads, the part of the SMs on which a block has more than that), from how many each block makes; all begin at
    once."""
    left, found = len(loads), [(0.0, min(1.0, len(loads) / sms))]
    for count, blocks in sorted(Counter(loads).items())[:-1]:
        left -= blocks
        part = min(1.0, left / sms)
        if part < _FEWER * found[-1][1]:
            found.append((count, part))
    return tuple(found)


def runs(tiles: Sequence[object]) -> tuple[float, float]:
    """(How many blocks in a row want the same tile, the mean; how far it is from one such run to the next one of its
    tile, the median, infinite where there is none), from what each block wants."""
    last: dict[object, int] = {}
    gaps, count, before = [], 0, object()
    for at, tile in enumerate(tiles):
        if tile != before:
            count += 1
            if tile in last:
                gaps.append(at - last[tile])
            last[tile] = at
        before = tile
    return len(tiles) / max(1, count), statistics.median(gaps) if gaps else math.inf


def arrivals(sources: Origins, numbers: Numbers, traffic: Traffic) -> dict[Operation, Arrivals]:
    """What loads take, given where their tiles come from.

    Blocks that wait for the same loads make them at the same moments, so that those tiles come at the rate of a full
    grid also where SMs load for a part of the time.
    """
    found = {}
    for op, source in sources.items():
        size, row = byte_size(op.operands[-2].type), row_bytes(op.operands[-2].type)
        at_once = traffic.part * (traffic.busy + (1 - traffic.busy) * source.in_step)
        mhz = traffic.mhz or numbers.measured_mhz
        ways = [arrival(size, source, numbers.at(mhz, at_once * share), traffic, row) for _, share in source.loading]
        found[op] = Arrivals([at for at, _ in source.loading], ways)
    return found


def row_bytes(type: Type) -> int:
    """Of a row of a tile; TMA moves boxes of at most a line."""
    return type.shape[-1] * bits(type) // 8 if isinstance(type, MemDescType | TensorType) else LINE


def arrival(size: int, source: Source, numbers: Numbers, traffic: Traffic = ALWAYS, row: int = LINE) -> Arrival:
    """Of a tile of so many bytes. Memory's rate is that of all SMs; what the SMs share it has to send once, and it has
    time for that while nothing is written. What lies past the end of the matrix comes at a rate of its own.

    Latency grows with the part of the time for which the way is busy.
    """
    kind, past = row_class(row, source.matrix.pitch), min(1.0, source.clipped * source.past + source.tail)
    most = numbers.most_rate(kind)
    rate = numbers.load_rate(source.neighbours, source.apart, kind, source.along, source.left)
    way = size * (1 - past) * max(1 / rate, source.memory / ((1 - traffic.written) * numbers.dram))
    way += size * past / numbers.past_rate(row)
    flow = arriving(size, way, numbers, most)
    slower = max(0.0, size / (numbers.dram * source.sharers) - way)
    queued = 1 + LOADED * traffic.busy
    more = queued * (numbers.dram_latency - numbers.tma_latency) + slower
    return Arrival(flow, queued * numbers.tma_latency + source.cold * source.first * max(0.0, more))


def _ids(grid: Grid, start: int, end: int) -> Sequence[Grid]:
    """The program ids of blocks in the order of the grid."""
    x, y, z = grid
    return [(at % x, at // x % y, at // (x * y)) for at in range(start, min(end, x * y * z))]

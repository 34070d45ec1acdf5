"""What an SM gets of TMA loads where fewer SMs load, or several blocks an SM, or rows that straddle lines:
`python -m wspec.lab.bench.loads` (seconds). Bytes a cycle of one SM; tables of docs/results/machine.md.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from wspec.lab.bench.environment import NoGpu, require_hopper
from wspec.lab.bench.report import Table, console
from wspec.lab.calibrate import tma_load, tma_product
from wspec.lab.calibrate.bench import Bench
from wspec.lab.calibrate.driver import Driver
from wspec.lab.calibrate.tiles import KIB, Matrix, Walk
from wspec.lab.calibrate.tma_product import Bed, Case, Tile

SMS = (1, 16, 33, 50, 66, 83, 99, 116, 132)
SIZE = 16 * KIB  # of a tile
MOVED = 1024 * KIB  # bytes of a block, in the shorter of two launches
OWN, OTHERS = 128 * KIB // SIZE, 256 * KIB // SIZE  # tiles that a block goes over
WALKS = {
    "own": Walk(SIZE, OWN, 1, OWN),
    "every eighth block the same": Walk(SIZE, OTHERS, 1, OTHERS, owners=8),
    "eight neighbours the same": Walk(SIZE, OTHERS, 1, OTHERS, sharers=8),
}
PITCHES = ((0, 0), (64, 0), (32, 0), (16, 0), (0, 64), (0, 32), (0, 16), (64, 64), (32, 32), (16, 16))
"""Bytes more than whole lines, of the rows of A and of B."""
TILES = (Tile(64, 64, 64), Tile(64, 128, 64), Tile(64, 256, 64), Tile(128, 64, 64), Tile(128, 128, 64),
         Tile(64, 128, 128), Tile(64, 64, 128))  # fmt: skip
IN_FLIGHT = 200 * KIB  # at most, of an SM
FEW, MANY, REPEATS = 32, 96, 7


def main(argv: Sequence[str] | None = None) -> int:
    """0 all well, 2 nothing to measure on."""
    argparse.ArgumentParser(prog="python -m wspec.lab.bench.loads", description=__doc__).parse_args(argv)
    try:
        require_hopper()
    except NoGpu as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(Driver(), tma_load.TOPIC.modules, Path(folder), quick=True)
        few = by_sms(Matrix(bench))
        bench = Bench(bench.driver, tma_product.TOPIC.modules, Path(folder), quick=True)
        mixed = by_pitches(Bed(bench))
    for table in (few, mixed):
        table.show(console())
    return 0


def by_sms(matrix: Matrix) -> Table:
    """Of tiles of 16 KiB, by how many SMs load."""
    rows = [(name, *(f"{_of_walk(matrix, walk, sms):.0f}" for sms in SMS)) for name, walk in WALKS.items()]
    rows.append(("from memory", *(f"{_from_memory(matrix, sms):.0f}" for sms in SMS)))
    return Table("By the number of SMs", ("bytes a cycle and SM", *map(str, SMS)), tuple(rows))


def _of_walk(matrix: Matrix, walk: Walk, sms: int) -> float:
    tiles = MOVED // SIZE
    pairs = [(_cycles(matrix, walk, sms, tiles), _cycles(matrix, walk, sms, 3 * tiles)) for _ in range(1 + REPEATS)]
    return statistics.median(2 * MOVED / (many - few) for few, many in pairs[1:])  # the first one warms L2


def _from_memory(matrix: Matrix, sms: int) -> float:
    tiles, rates = MOVED // SIZE, []
    for _ in range(REPEATS):
        cycles = []
        for count in (tiles, 2 * tiles):
            size = (count + Walk(SIZE, 1, 1, 1).stages) * sms * SIZE
            cycles.append(_cycles(matrix, Walk(SIZE, tma_load.NO_END, sms, 1, matrix.fresh(size)), sms, count))
        rates.append(MOVED / (cycles[1] - cycles[0]))
    return statistics.median(rates)


def _cycles(matrix: Matrix, walk: Walk, sms: int, tiles: int) -> float:
    """Of a block, the median of all."""
    out = matrix.bench.run("tma_load_rate", matrix.arguments(walk, tiles), 4 * sms, grid=sms).reshape(-1, 4)
    return float(np.median(out[:, 1] - out[:, 0]))


def by_pitches(bed: Bed) -> Table:
    """Of A and of B of a product, in L2: by blocks an SM and pitches, least squares over tiles 64 and 128 deep."""
    rows = []
    for blocks in (1, 2, 3):
        for of_a, of_b in PITCHES:
            found = [_of_case(bed, case) for case in _cases(blocks, of_a, of_b)]
            sizes = np.array([[2 * tile.rows * tile.depth, 2 * tile.columns * tile.depth] for tile, _ in found])
            cycles = np.array([tile.size / rate for tile, rate in found])
            each = np.linalg.lstsq(sizes / cycles[:, None], np.ones(len(found)), rcond=None)[0]
            rows.append((str(blocks), f"{of_a}, {of_b}", *(f"{1 / one:.0f}" for one in each)))
    return Table("By pitches", ("blocks an SM", "A and B, bytes beyond lines", "A", "B"), tuple(rows))


def _cases(blocks: int, of_a: int, of_b: int) -> list[Case]:
    """B stored either way, each tile with up to four steps on their way."""
    found = []
    for tile in TILES:
        stages = min(4, IN_FLIGHT // blocks // tile.size)
        for by_rows, pitch in ((True, 8192), (False, 16384)):
            if stages >= 2:
                found.append(
                    Case(tile, stages, blocks, by_rows, 8192 + of_a, pitch + of_b, 4096 // tile.depth, tiles_n=20)
                )
    return found


def _of_case(bed: Bed, case: Case) -> tuple[Tile, float]:
    """Bytes a cycle of an SM."""
    pairs = [(bed.run(case, FEW).cycles, bed.run(case, MANY).cycles) for _ in range(1 + REPEATS)]
    moved = case.tile.size * (MANY - FEW) * case.blocks
    return case.tile, statistics.median(moved / (many - few) for few, many in pairs[1:])


if __name__ == "__main__":
    sys.exit(main())

"""TMA loads that eight blocks in a row want, where blocks do not begin at the same time: B of products, by where its
rows begin in lines of L2 and what the loop over K does with them.

A step of a product then takes the sum of what its parts take: A, which every eighth block wants, and B. Rates of B are
least squares over tiles, the rows of A at lines.
"""

from __future__ import annotations

import statistics
from dataclasses import replace

import numpy as np

from wspec.lab.calibrate.bench import Bench
from wspec.lab.calibrate.tma_product import FEW, MANY, STAGGER, Bed, Case, Tile, loads
from wspec.lab.calibrate.topic import Quantity, Samples, Topic

WALKS = {
    "along": (64, True, "B^T, 64 deep: the loop goes along its rows"),
    "across": (64, False, "B, 64 deep: the loop goes across its rows"),
    "short": (32, True, "B^T, 32 deep: the loop goes along its rows, of which a box has half a line"),
}
"""Depth of a step, whether B lies as [n, k], and what that is."""
BEYOND = (0, 16, 32, 64)  # bytes more than whole lines, of the rows of B
PITCHES = (8192, 8448, 8704, 9216, 10240, 12288, 14336)  # bytes, a sample each: rates depend on it, in no order
SIZES = ((64, 256), (128, 128), (128, 64), (64, 128), (64, 64))  # rows and columns of tiles
STAGES, STEPS, COLUMNS, REPEATS = 4, 64, 20, 3  # of a ring; along K; of tiles in a row; pairs of launches


def quantities() -> list[Quantity]:
    return [
        Quantity(f"{name}_rate", "bytes/clk/SM", f"{what}; by bytes of a row beyond whole lines", "bytes")
        for name, (_, _, what) in WALKS.items()
    ]


def measure(bench: Bench) -> Samples:
    bed = Bed(bench)
    return {
        f"{name}_rate": {beyond: _of_b(bed, depth, by_rows, beyond) for beyond in BEYOND}
        for name, (depth, by_rows, _) in WALKS.items()
    }


def _of_b(bed: Bed, depth: int, by_rows: bool, beyond: int) -> list[float]:
    tiles = [Tile(rows, columns, depth) for rows, columns in SIZES]
    parts = np.array([[rows / (rows + columns), columns / (rows + columns)] for rows, columns in SIZES])
    found = []
    for pitch in PITCHES:
        base = Case(tiles[0], STAGES, 1, by_rows, pitch, pitch + beyond, STEPS, tiles_n=COLUMNS, stagger=STAGGER)
        rates = np.array([_rate(bed, replace(base, tile=tile)) for tile in tiles])
        found.append(1 / float(np.linalg.lstsq(parts * rates[:, None], np.ones(len(tiles)), rcond=None)[0][1]))
    return found


def _rate(bed: Bed, case: Case) -> float:
    """Bytes a cycle of an SM; the first pair of launches warms L2 and descriptors."""
    pairs = [(bed.run(case, FEW).cycles, bed.run(case, MANY).cycles) for _ in range(1 + REPEATS)]
    return statistics.median(case.tile.size * (MANY - FEW) / (many - few) for few, many in pairs[1:])


TOPIC = Topic(
    "tma_near",
    "B of products in bf16 through descriptors, all in L2, tiles numbered down groups of eight rows of tiles, one "
    f"block an SM, each begun {STAGGER} cycles after the one before; rings of {STAGES}, {FEW} and {MANY} steps; "
    f"{len(PITCHES)} pitches",
    ((loads(),),),
    tuple(quantities()),
    measure,
)

"""The polynomial 1 + c1 f + ... + cn f^n nearest to 2^f on [-1/2, 1/2] in relative error, by Remez's exchange."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Vector = npt.NDArray[np.float64]


def exp2_polynomial(degree: int, steps: int = 20) -> tuple[Vector, float]:
    """c1 to cn, and the largest relative error.

    The error vanishes at 0, where 2^f = 1. Divided by f it is that of polynomials which span a Haar space, so the best
    one has degree + 1 extrema at which error / f changes its sign from one to the next.
    """
    grid = np.linspace(-0.5, 0.5, 100_002)  # 0 is not among them
    powers = np.arange(1, degree + 1)
    at = np.sort(0.5 * np.cos(np.pi * (np.arange(degree + 1) + 0.5) / (degree + 1)))
    at = np.where(np.abs(at) < 1e-9, 1e-3, at)
    for _ in range(steps):
        signs = (-1.0) ** np.arange(degree + 1) * np.sign(at)
        system = np.column_stack((at[:, None] ** powers / np.exp2(at)[:, None], signs))
        found = np.linalg.solve(system, 1 - np.exp2(-at))[:-1]
        error = (grid[:, None] ** powers @ found - np.expm1(grid * np.log(2))) / np.exp2(grid)
        at = grid[_extrema(error, grid, degree + 1)]
    return found, float(np.abs(error).max())


def _extrema(error: Vector, grid: Vector, count: int) -> list[int]:
    """Where |error| is largest between changes of sign of error / f."""
    changes = np.where(np.diff(np.sign(error * grid)))[0] + 1
    found = [int(part[np.argmax(np.abs(error[part]))]) for part in np.split(np.arange(len(grid)), changes)]
    while len(found) > count:
        del found[0 if abs(error[found[0]]) < abs(error[found[-1]]) else -1]
    return found

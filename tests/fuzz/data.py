"""The tensors and scalars of a launch."""

from __future__ import annotations

import numpy as np
import torch

from tests.fuzz import reference
from tests.fuzz.bounded import TORCH, Array
from tests.fuzz.case import Launch
from tests.fuzz.program import Buffer, Program

DTYPES = {**TORCH, "i32": torch.int32, "i8": torch.int8}
UNTOUCHED = -77  # what outputs of integers hold before the launch; those of floats hold NaN


def tensors(program: Program, launch: Launch) -> dict[str, torch.Tensor]:
    """Every tensor before the launch, the same each time."""
    draw = np.random.default_rng(launch.seed)
    return {buffer.name: _tensor(buffer, launch, draw) for buffer in program.buffers}


def _tensor(buffer: Buffer, launch: Launch, draw: np.random.Generator) -> torch.Tensor:
    shape, dtype = shape_of(buffer, launch), DTYPES[buffer.dtype]
    if buffer.output:
        fill = torch.nan if dtype.is_floating_point else UNTOUCHED
        return torch.full(shape, fill, dtype=torch.float32).to(dtype)
    if buffer.below is not None:
        found: Array = np.asarray(draw.integers(0, max(1, buffer.below.value(launch.knobs)), shape), dtype=np.float64)
    elif launch.whole or not dtype.is_floating_point:
        found = np.asarray(draw.integers(-2, 3, shape) * (0.5 if dtype.is_floating_point else 1.0))
    else:
        found = draw.standard_normal(shape) * 0.5
    return torch.from_numpy(found).to(torch.float32).to(dtype)


def shape_of(buffer: Buffer, launch: Launch) -> tuple[int, ...]:
    return tuple(dim.value(launch.knobs) for dim in buffer.dims)


def grid(program: Program, launch: Launch) -> tuple[int, ...]:
    return tuple(extent.value(launch.knobs) for extent in program.grid)


def numbers(tensor: torch.Tensor) -> Array:
    """A tensor in float64."""
    found: Array = tensor.to(torch.float32).to(torch.float64).numpy() if tensor.is_floating_point() else _whole(tensor)
    return found


def _whole(tensor: torch.Tensor) -> Array:
    found: Array = tensor.to(torch.float64).numpy()
    return found


def expected(program: Program, launch: Launch) -> dict[str, reference.Memory]:
    """What every tensor must hold after the launch. Raises reference.Unsure."""
    before = {name: numbers(tensor) for name, tensor in tensors(program, launch).items()}
    return reference.run(program, reference.Launch(grid(program, launch), launch.knobs), before)

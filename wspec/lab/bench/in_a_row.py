"""Kernels that start early and read what the one before them wrote: are results those of launches that wait?"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

Step = Callable[[torch.Tensor, int], torch.Tensor]
"""Enqueues the step of that number on a result of the step before; its own result, of the same shape."""


def same_in_a_row(step: Step, alone: Step, firsts: Sequence[torch.Tensor], steps: int, replays: int = 10) -> bool:
    """Do `steps` steps in a CUDA graph give the bits of `alone` with a wait for the GPU behind each?

    The graph is replayed on every one of `firsts` in turn, which have one shape and should differ, so that what an
    earlier replay left in memory is wrong.
    """
    expected = [_waiting(alone, first, steps) for first in firsts]
    first = firsts[0].clone()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = first
        for number in range(steps):
            result = step(result, number)
    same = True
    for _ in range(replays):
        for values, wanted in zip(firsts, expected, strict=True):
            first.copy_(values)
            graph.replay()
            same &= torch.equal(result, wanted)
    return same


def _waiting(alone: Step, result: torch.Tensor, steps: int) -> torch.Tensor:
    for number in range(steps):
        result = alone(result, number)
        torch.cuda.synchronize()
    return result

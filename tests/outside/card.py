"""What a GPU makes of the cases, each in a child process (tests/gpu/children.py)."""

from __future__ import annotations

import multiprocessing
from multiprocessing.connection import Connection
from pathlib import Path

import torch
import triton
from torch import Tensor

from tests.gpu.children import START_S, Outcome, Tell, each
from tests.outside.cases import CASES
from tests.outside.launch import Launch
from tests.outside.poison import poison
from wspec.lab.bench.environment import NoGpu, require_hopper

TOLERANCE = 0.04  # of the root mean square of a row: several times what rounding to bfloat16 does
POISON_ROWS = 110  # 220 KiB


def in_child(names: list[str], launches: int, log: Path, connection: Connection) -> None:
    """Cases by their names, in a process of `children.run_all`."""
    triton.set_allocator(lambda size, align, stream: torch.empty(size, dtype=torch.int8, device="cuda"))
    each(_case, names, launches, log, connection)


def _case(name: str, launches: int, outcome: Outcome, tell: Tell) -> None:
    measure(CASES[name].make("cuda"), launches, outcome, tell)


def probe() -> str:
    """Why there is no Hopper GPU here, asked in a child; empty when there is one."""
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe()
    process = context.Process(target=_probe, args=(theirs,), daemon=True)
    process.start()
    theirs.close()
    try:
        answer = str(ours.recv()) if ours.poll(START_S) else "CUDA does not answer"
    except EOFError:
        answer = "the process that asked CUDA died"
    process.kill()
    return answer


def _probe(connection: Connection) -> None:
    try:
        require_hopper()
    except NoGpu as error:
        connection.send(str(error))
    else:
        connection.send("")


def measure(launch: Launch, launches: int, outcome: Outcome, tell: Tell) -> None:
    """Launch and compare, over and over, and write what happened into `outcome`. Raises what CUDA reports."""
    expected = launch.expected()
    blocks = torch.cuda.get_device_properties(0).multi_processor_count
    worst = torch.zeros((), device="cuda")
    for count in range(launches):
        poison[(blocks,)](POISON_ROWS, num_warps=4)
        launch.out.fill_(torch.nan)
        torch.cuda.synchronize()
        kernel = launch.run()
        outcome.launches = count + 1
        if count == 0:
            tell(kernel.asm["ttgir"])
        torch.cuda.synchronize()
        distance = rows_apart(launch.out, expected)
        outcome.nan += bool(distance.isnan().any())
        outcome.wrong += bool((distance > TOLERANCE).any())
        worst = torch.maximum(worst, distance.nan_to_num(0.0, torch.inf).max())
    outcome.worst = float(worst) / TOLERANCE
    outcome.kind = "nan" if outcome.nan else "wrong" if outcome.wrong else "right"


def rows_apart(out: Tensor, expected: Tensor) -> Tensor:
    """The largest difference in each row, over the root mean square of the expected row; NaN where `out` has a NaN."""
    scale = expected.square().mean(-1).sqrt()
    return (out.float() - expected).abs().amax(-1) / scale

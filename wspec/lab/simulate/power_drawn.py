"""What blocks draw: the work that a card's power, and so its clock, depends on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from wspec.ir.core import Operation
from wspec.lab.simulate import dots
from wspec.lab.simulate.actions import Block, Flow, Kind, Walked
from wspec.lab.simulate.costs import SCHEDULERS, Numbers
from wspec.lab.simulate.l2_reuse import UNKNOWN, Origins
from wspec.lab.simulate.power import Draw

_INSTRUCTIONS = {Kind.WAIT: 4, Kind.ARRIVE: 2, Kind.EXPECT: 2, Kind.COPY: 4, Kind.MARK: 3, Kind.TASK_SYNC: 1}
"""Of a warp, counted in the SASS of attention and of products with a third task; integers are one each."""
_OF_A_PRODUCT = 4  # for each wgmma: itself and its descriptors, counted likewise


def drawn(
    blocks: Sequence[tuple[Block, float]],
    origins: Origins,
    used: Mapping[str, float],
    cycles: float,
    numbers: Numbers,
) -> Draw:
    """What an SM draws on which these blocks, each so many times, take so many cycles and keep its units busy for these
    shares of them. Memory takes what is stored, too."""
    moved = read = memory = used["store"] * numbers.store
    issue = used["issue"]
    for block, times in blocks:
        issue += times * sum(slots_between(task) for task in block.tasks) / cycles
        for op, size in loaded_bytes(block).items():
            source, each = origins.get(op, UNKNOWN), times * size / cycles
            moved += each
            read += each / (source.sharers if source.apart <= 4 else source.neighbours)
            memory += each * source.memory
    return Draw(used["tensor"], issue, moved, read, memory)


def slots_between(task: Walked) -> float:
    """Issue slots of a task's instructions that the units' times leave out, since they hide behind others: cycles of
    all four schedulers."""
    count = 0.0
    for action in task.actions:
        count += _INSTRUCTIONS.get(action.kind, 0)
        if action.kind is Kind.DOT:
            count += _OF_A_PRODUCT * dots.instructions(action.op, -(-task.warps // SCHEDULERS))
        elif action.kind is Kind.WORK and not any(isinstance(piece, Flow) for piece in action.pieces):
            count += len(action.ops)
    return count * task.warps / SCHEDULERS


def loaded_bytes(block: Block) -> dict[Operation, float]:
    """Bytes that each TMA load of a block loads."""
    found: dict[Operation, float] = {}
    for task in block.tasks:
        for action in task.actions:
            if action.kind is Kind.COPY:
                found[action.op] = found.get(action.op, 0.0) + action.b
    return found

"""Which bytes of shared memory a load or a store may touch whose place is no constant: that of a ring's slot.

The registers that its address is computed from are followed round the loops of its role (behaviour.py), on every way
that the branches may go. A ring's index takes few values, so what comes out is the ring and not all of shared memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from wspec.ptx import flow
from wspec.ptx.behaviour import Behaviour, Environment
from wspec.ptx.evaluation import Evaluation
from wspec.ptx.events import ELSEWHERE, Shape
from wspec.ptx.followed import Followed
from wspec.ptx.operands import Operand
from wspec.ptx.registers import Writers
from wspec.ptx.roles import Role
from wspec.ptx.syntax import Instruction

MOST_STATES = 10_000  # of one part of the registers

Access = tuple[Operand, int]
"""Where an instruction begins in shared memory, and how many bytes each thread touches."""


def reached(
    blocks: Sequence[flow.Block],
    role: Role,
    writers: Writers,
    evaluation: Evaluation,
    accesses: Mapping[Instruction, Access],
) -> dict[Instruction, range]:
    """From the first byte that any thread may touch to the last one, of those accesses for which that is known."""

    def shapes(block: flow.Block) -> Iterable[tuple[Instruction, Shape]]:
        for one in block.instructions:
            if one in accesses:
                yield one, Shape("access", "any", buffer=accesses[one][0], size=accesses[one][1])

    code = Followed(blocks, role, writers, evaluation=evaluation, shapes=shapes)
    begins: dict[Instruction, set[int]] = {}
    unknown: set[Instruction] = set()
    for part in code.parts:
        if not _walk(Behaviour(code, part), begins, unknown):
            return {}
    known = ((one, places) for one, places in begins.items() if one not in unknown)
    return {one: range(min(places), max(places) + accesses[one][1]) for one, places in known}


def _walk(code: Behaviour, begins: dict[Instruction, set[int]], unknown: set[Instruction]) -> bool:
    """All ways of a role, and where its accesses begin on them; False where there are too many."""
    work = [(number, environment, True) for number, environment in code.starts()]
    seen = set[tuple[int, Environment]]()
    while work and len(seen) <= MOST_STATES:
        number, environment, is_first = work.pop()
        for events, ways, _ in code.outcomes(number, environment, is_first):
            for one, event in events:
                if not event.buffers:
                    unknown.add(one)
                elif event.buffers != (ELSEWHERE,):
                    begins.setdefault(one, set()).update(event.buffers)
            for way in ways:
                if way not in seen:
                    seen.add(way)
                    work.append((*way, False))
    return not work

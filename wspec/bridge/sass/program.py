"""A kernel's code as what its instructions do to registers, and where each goes on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from wspec.bridge.sass.machine_code import Code, Flow, effects, flow


@dataclass(frozen=True, slots=True)
class Program:
    """One section of code. Sets of registers are as in machine_code.py; instructions go by their places."""

    reads: Sequence[int]
    writes: Sequence[int]
    turns: Mapping[int, Flow]  # those after which it may be another than the next one's turn
    labels: Mapping[str, int]


def program_of(code: Code) -> Program:
    """That of a section of a disassembly."""
    done = [effects(instruction) for instruction in code.instructions]
    flows = {place: flow(instruction) for place, instruction in enumerate(code.instructions)}
    turns = {place: way for place, way in flows.items() if way.targets or way.calls or way.returns or not way.falls}
    return Program([one.reads for one in done], [one.writes for one in done], turns, code.labels)

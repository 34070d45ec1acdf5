"""A case: a program, how it is compiled, and the launches it is run with."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st

from tests.fuzz.codec import decode, encode
from tests.fuzz.kernels import programs
from tests.fuzz.program import Program

LAUNCHES = 4


@dataclass(frozen=True, slots=True)
class Launch:
    """Values of the program's knobs, and what the numbers of the inputs and the schedules come from."""

    knobs: Mapping[str, int]
    seed: int
    whole: bool  # small whole numbers, with which much of float32 arithmetic is exact; else normal ones


@dataclass(frozen=True, slots=True)
class Case:
    """All it takes to repeat one run of the fuzzer."""

    program: Program
    warps: int
    stages: int
    options: Mapping[str, Any]  # of wspec.Options
    launches: tuple[Launch, ...]
    thorough: bool  # also through Triton's back end, to a cubin

    def to_json(self) -> str:
        data = {
            "program": encode(self.program),
            "warps": self.warps,
            "stages": self.stages,
            "options": dict(self.options),
            "launches": [{"knobs": dict(one.knobs), "seed": one.seed, "whole": one.whole} for one in self.launches],
            "thorough": self.thorough,
        }
        return json.dumps(data)

    @staticmethod
    def from_json(text: str) -> Case:
        data = json.loads(text)
        launches = tuple(Launch(one["knobs"], one["seed"], one["whole"]) for one in data["launches"])
        program = decode(data["program"])
        return Case(program, data["warps"], data["stages"], data["options"], launches, data["thorough"])

    def digest(self) -> str:
        """A short name."""
        return hashlib.sha256(self.to_json().encode()).hexdigest()[:12]


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """A program with options and launches. Loops run as often in one launch as they do not in the next."""
    program = draw(programs())
    warps, stages = draw(st.sampled_from([4, 8, 8])), draw(st.sampled_from([2, 1, 3, 4]))
    asked = draw(options())
    launches = tuple(_launch(draw, program, turn) for turn in range(LAUNCHES))
    return Case(program, warps, stages, asked, launches, draw(st.integers(0, 3)) == 3)


def _launch(draw: st.DrawFn, program: Program, turn: int) -> Launch:
    knobs = {}
    for knob in program.knobs:
        index = turn if knob.name.startswith("trips") else draw(st.integers(0, len(knob.choices) - 1))
        knobs[knob.name] = knob.choices[index % len(knob.choices)]
        if knob.name.startswith("trips") and draw(st.integers(0, 3)) == 3:
            knobs[knob.name] = draw(st.sampled_from(knob.choices))
    return Launch(knobs, draw(st.integers(0, (1 << 16) - 1)), draw(st.sampled_from([True, True, False])))


_CHOICES: dict[str, st.SearchStrategy[Any]] = {
    "consumers": st.sampled_from([1, 2, 1, 2, 3]),
    "depth": st.sampled_from([2, 1, 3, 1, 2, 4]),
    "blocks": st.sampled_from([1, 2, 1]),
    "overlap": st.booleans(),
    "coarsening": st.sampled_from([1, 1, 1, 2, 3, 4]),  # few kernels have neighbours that share
    "staging": st.sampled_from(["subtiles", "subtiles", "own"]),
    "producer_warps": st.sampled_from([1, 2, 4]),
    "promote": st.just(False),
}


@st.composite
def options(draw: st.DrawFn) -> dict[str, Any]:
    """Compiler options: mostly left to wspec, mostly without the gate."""
    asked: dict[str, Any] = {"gate": "model" if draw(st.integers(0, 9)) == 9 else "off"}
    for name, values in _CHOICES.items():
        if draw(st.integers(0, 3)) == 3:
            asked[name] = draw(values)
    return asked

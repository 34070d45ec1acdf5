"""What the generator makes: everything it promises, nothing that means nothing."""

from __future__ import annotations

import functools
import json
from pathlib import Path
from unittest import mock

import pytest
from hypothesis.internal.conjecture import providers
from hypothesis.internal.constants_ast import Constants

from tests.fuzz import data, hand, reference
from tests.fuzz.case import Case
from tests.fuzz.codec import decode, encode
from tests.fuzz.compiling import Compiling
from tests.fuzz.features import ALL, features
from tests.fuzz.judge import arguments
from tests.fuzz.printer import parameters, source
from tests.fuzz.reduction import defined
from tests.fuzz.trial import draw

SAMPLES = 160
COMPILED = 12
RUN = 25


@functools.cache
def sample() -> tuple[Case, ...]:
    return tuple(draw(number) for number in range(SAMPLES))


def test_everything_occurs() -> None:
    found = frozenset().union(*map(features, sample()))
    assert found - ALL == frozenset(), "a feature without a name in ALL"
    assert ALL - found == frozenset(), f"not among {SAMPLES} samples"


def test_numbers_mean_cases() -> None:
    """The same number gives the same case, another one another."""
    assert draw(3) == sample()[3]
    assert len({case.digest() for case in sample()}) == SAMPLES


def test_cases_come_back_from_json() -> None:
    for case in sample():
        assert Case.from_json(case.to_json()) == case
        assert decode(json.loads(json.dumps(encode(case.program)))) == case.program


def test_sources_are_python() -> None:
    for case in sample():
        text = source(case.program)
        compile(text, "kernel.py", "exec")
        assert defined(case.program), text


def test_arguments_fit() -> None:
    for case in sample()[:RUN]:
        launch = case.launches[0]
        given = arguments(case, launch, data.tensors(case.program, launch))
        assert set(given) == set(parameters(case.program))


@pytest.mark.slow
def test_the_reference_understands_all() -> None:
    """And few launches are such that rounding decides; outputs are written, and mostly known."""
    unsure = 0
    for case in sample()[:RUN]:
        for launch in case.launches:
            try:
                found = data.expected(case.program, launch)
            except reference.Unsure:
                unsure += 1
                continue
            outputs = [found[buffer.name] for buffer in case.program.buffers if buffer.output]
            assert outputs
            assert not any(found[buffer.name].written.any() for buffer in case.program.buffers if not buffer.output)
    assert unsure <= RUN // 5


def test_loops_run_often_and_not_at_all() -> None:
    trips = {
        launch.knobs[name] for case in sample() for launch in case.launches for name in launch.knobs if "trips" in name
    }
    assert {0, 1, 2, 5} <= trips


@pytest.mark.parametrize("number", range(COMPILED))
def test_the_front_end_takes_them(number: int, tmp_path: Path) -> None:
    assert "tt.func" in Compiling(sample()[number], tmp_path).ttgir


def test_a_program_by_hand() -> None:
    assert (
        source(hand.product())
        == """\
import triton
import triton.language as tl


@triton.jit
def kernel(a_desc, b_desc, c_desc, k):
    row = tl.program_id(0) * 128
    acc = tl.full([128, 64], 0.0, tl.float32)
    for i in tl.range(0, k, 64):
        acc = tl.dot(a_desc.load([row, i]), b_desc.load([i, 0]), acc)
    c_desc.store([row, 0], acc)
"""
    )


def test_a_number_is_one_kernel_whatever_was_imported() -> None:
    """Processes that compare what a number's kernel does draw it each for itself."""
    pool = Constants(integers=set(range(2000)), floats={0.5, 3.0})
    for number in range(40):
        with mock.patch.object(providers, "_get_local_constants", lambda: pool):
            found = draw(number)
        assert found == draw(number)

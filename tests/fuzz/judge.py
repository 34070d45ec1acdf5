"""One case through everything there is to judge a kernel with."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import torch

from tests.fuzz import data, outputs
from tests.fuzz.bounded import Array
from tests.fuzz.case import Case, Launch
from tests.fuzz.compiling import Compiling
from tests.fuzz.features import features
from tests.fuzz.findings import Finding, Verdict
from tests.fuzz.printer import argument, sizes
from tests.fuzz.program import ProgramError
from tests.fuzz.reference import Memory, Unsure
from wspec import bridge
from wspec.check import check
from wspec.diagnostics import REASONS, WspecError, render
from wspec.execute.errors import ExecutionError
from wspec.execute.launch import Kernel
from wspec.execute.schedule import FirstReady, Priorities, Random, Schedule, adversarial
from wspec.host_descriptors import Promotion
from wspec.ir import print_module, read
from wspec.ir.core import Operation
from wspec.ir.disjoint import Disjoint
from wspec.lab.persistent_launch import descriptors_of, executed_launch
from wspec.pipeline import Outcome
from wspec.plan.fill import Fill
from wspec.plan.plan import Plan

T = TypeVar("T")
MARK = "@stage "
CHECK_SECONDS = 5.0  # for the checker's search


class Wrong(Exception):
    """Ends the way of a case."""

    def __init__(self, stage: str, message: str) -> None:
        super().__init__(message)
        self.finding = Finding(stage, message)


def judge(case: Case, folder: Path) -> Verdict:
    """What becomes of the case. Files go to `folder`. Raises what is wrong with the fuzzer itself."""
    verdict = Verdict(features=features(case))
    try:
        _judge(_Court(Compiling(case, folder), verdict))
    except Wrong as wrong:
        verdict.findings.append(wrong.finding)
    found = verdict.findings
    verdict.findings = [replace(one, message=one.message.replace(f"{folder}/", "")) for one in found]
    return verdict


class _Court:
    """A case with its verdict so far."""

    def __init__(self, compiling: Compiling, verdict: Verdict) -> None:
        self.compiling, self.case, self.verdict = compiling, compiling.case, verdict
        self.plan: Plan | None = None  # of the specialized kernel
        self.promotion: Promotion | None = None

    def blame(self, stage: str, message: str) -> None:
        self.verdict.findings.append(Finding(stage, message))

    @contextmanager
    def timed(self, what: str) -> Iterator[None]:
        print(f"{MARK}{what}", file=sys.stderr, flush=True)  # all there is to tell by if the process dies
        start = time.perf_counter()
        try:
            yield
        finally:
            seconds = time.perf_counter() - start
            self.verdict.seconds[what] = self.verdict.seconds.get(what, 0.0) + seconds


def _judge(court: _Court) -> None:
    expected = [_expected(court, launch) for launch in court.case.launches]
    with court.timed("front end"):
        _attempt("front end", lambda: court.compiling.ttgir)
    with court.timed("compiler"):
        outcome = _attempt("compiler", court.compiling.specialized)
    _judge_outcome(court, outcome)
    court.plan, court.promotion = outcome.plan, outcome.promotion
    court.verdict.promoted = len(outcome.promotion.descriptors) if outcome.promotion is not None else 0
    made = outcome.module
    if made is not None:
        text = print_module(made)
        with court.timed("verifier"):
            _attempt("verifier", lambda: bridge.text.verify(bridge.reparse(text)))
        if court.case.thorough:
            _finish(court, text)
        with court.timed("finishing"):
            final = _attempt("finishing", lambda: bridge.final_ttgir(text, court.compiling.source))
        _check(court, read(final), outcome.disjoint)
    with court.timed("executor"):
        _run(court, made, expected)


def _attempt(stage: str, action: Callable[[], T]) -> T:
    """The value, or the end of the case's way with what was raised."""
    try:
        return action()
    except Exception as error:
        trace, place = error.__traceback__, ""
        while trace is not None:
            place = f"{Path(trace.tb_frame.f_code.co_filename).name}:{trace.tb_lineno}"
            trace = trace.tb_next
        raise Wrong(stage, f"{type(error).__name__} at {place}: {error}") from error


def _expected(court: _Court, launch: Launch) -> dict[str, Memory] | None:
    """What the launch must leave behind; None where rounding might decide."""
    try:
        with court.timed("reference"):
            return data.expected(court.case.program, launch)
    except Unsure:
        return None
    except ProgramError as error:
        raise Wrong("program", str(error)) from error


# -------------------------------------------------------------------------------------------------- compiler


def _judge_outcome(court: _Court, outcome: Outcome) -> None:
    """Specialized as asked for, or left alone with a reason that says something."""
    remark, *further = outcome.remarks
    if any(one.code != "not-promoted" or not one.message for one in further):
        court.blame("reason", f"a second reason: {render(further[0])}")
    court.verdict.code = remark.code
    if remark.code not in REASONS or not remark.message:
        court.blame("reason", f"a remark that says nothing: {remark}")
    if (outcome.module is not None) != (remark.code == "specialized"):
        court.blame("reason", f"not what became of the kernel: {render(remark)}")
    if outcome.module is not None and outcome.plan is not None:
        for problem in _not_as_asked(court.case.options, outcome.plan):
            court.blame("options", problem)


def _not_as_asked(asked: Mapping[str, Any], plan: Plan) -> Iterator[str]:
    found: dict[str, Any] = {
        "consumers": plan.consumer.replicas,
        "blocks": plan.blocks_per_sm,
        "coarsening": plan.coarsening,
        "producer_warps": plan.producer.warps if all(one.fill is not Fill.CP_ASYNC for one in plan.channels) else None,
        "persistent": plan.persistent if asked.get("persistent") is not None else None,
    }
    for name, value in found.items():  # None: nothing is promised
        if value is not None and asked.get(name, value) != value:
            yield f"{name}={asked[name]} was asked for, the plan has {value}"
    depths = {
        channel.depth for channel in plan.channels if channel.reused and not channel.stays and not channel.is_computed
    }
    if "depth" in asked and depths - {asked["depth"]}:
        yield f"depth={asked['depth']} was asked for, the plan has {sorted(depths)}"
    if asked.get("overlap") is False and any(loop.stage1 or loop.in_flight for loop in plan.loops):
        yield "overlap=False was asked for, and a loop overlaps"


def _finish(court: _Court, text: str) -> None:
    """To a cubin. Where the specialized module does not get there, the plain one must not either."""
    try:
        with court.timed("back end"):
            bridge.finish(text, court.compiling.source)
        court.verdict.cubin = True
    except bridge.BridgeError as error:
        with court.timed("back end"):
            _attempt("plain back end", lambda: bridge.finish(court.compiling.ttgir, court.compiling.source))
        court.blame("back end", str(error))


def _check(court: _Court, module: Operation, disjoint: Disjoint) -> None:
    with court.timed("checker"):
        report = _attempt("checker", lambda: check(module, limit_s=CHECK_SECONDS, disjoint=disjoint))
    doubts = sorted({found.code for found in report.undecided})
    court.verdict.checked = "proved" if report.ok else "error" if report.errors else f"undecided: {', '.join(doubts)}"
    for found in report.errors[:1]:
        court.verdict.findings.append(Finding("checker", str(found), found.code))


# -------------------------------------------------------------------------------------------------- executor


def _run(court: _Court, made: Operation | None, expected: list[dict[str, Memory] | None]) -> None:
    """Every launch: the plain module, the specialized one under several schedules, and the reference."""
    plain = _attempt("executor", lambda: Kernel(court.compiling.plain()))
    special = _attempt("run", lambda: Kernel(made)) if made is not None else None
    for index, (launch, truth) in enumerate(zip(court.case.launches, expected, strict=True)):
        left = _execute(court, "executor", plain, launch, FirstReady())
        _compare(court, "plain differs", launch, left, truth)
        if special is None:
            continue
        if _runs_plain(court, special, launch):
            court.verdict.guarded += 1
            continue
        for schedule in schedules(launch.seed, index, special.tasks):
            right = _execute(court, "run", special, launch, schedule)
            where = f"under the schedule '{schedule.name}', "
            _compare(court, "specialized differs", launch, right, truth, where)
            _same(court, launch, left, right, truth, where)
        court.verdict.compared += truth is not None
        court.verdict.unsure += truth is None


def _runs_plain(court: _Court, kernel: Kernel, launch: Launch) -> bool:
    """Does the launch run the plain kernel, since a descriptor in place of pointers would not be the same?"""
    given = arguments(court.case, launch, data.tensors(court.case.program, launch))
    try:
        descriptors_of(court.promotion, kernel.parameters, data.grid(court.case.program, launch), given)
    except WspecError:
        return True
    return False


def schedules(seed: int, index: int, tasks: int) -> tuple[Schedule, ...]:
    """Two for each launch: one that is unkind, and one drawn from the seed."""
    unkind = adversarial(tasks)
    drawn: Schedule = Random(seed) if index % 2 else Priorities(seed)
    return unkind[(seed + index) % len(unkind)], drawn


def _execute(court: _Court, stage: str, kernel: Kernel, launch: Launch, schedule: Schedule) -> dict[str, torch.Tensor]:
    """The tensors after the launch."""
    tensors = data.tensors(court.case.program, launch)
    court.verdict.runs += 1
    try:
        grid, given = data.grid(court.case.program, launch), arguments(court.case, launch, tensors)
        given |= descriptors_of(court.promotion, kernel.parameters, grid, given)
        grid, hidden = executed_launch(court.plan, kernel.parameters, grid, given)
        given |= {name: torch.from_numpy(numbers) for name, numbers in hidden.items()}
        kernel.run(grid, given, schedule=schedule)
    except ExecutionError as error:
        raise Wrong(
            stage, f"{error.message}\n{_launch_text(court, launch)}, schedule '{schedule.name}'\n{error}"
        ) from error
    return tensors


def arguments(case: Case, launch: Launch, tensors: Mapping[str, torch.Tensor]) -> dict[str, Any]:
    """What the kernel is launched with, by name."""
    found: dict[str, Any] = {}
    for buffer in case.program.buffers:
        found[argument(buffer)] = tensors[buffer.name]
        if buffer.access == "device":
            found |= dict(zip(sizes(buffer), data.shape_of(buffer, launch), strict=True))
    return found | {scalar.name: scalar.value(launch.knobs) for scalar in case.program.scalars}


def _launch_text(court: _Court, launch: Launch) -> str:
    return f"grid {data.grid(court.case.program, launch)}, {dict(launch.knobs)}, seed {launch.seed}"


def _compare(
    court: _Court,
    stage: str,
    launch: Launch,
    found: Mapping[str, torch.Tensor],
    truth: Mapping[str, Memory] | None,
    where: str = "",
) -> None:
    """Every tensor against the reference: what is off by more than its error, what was or was not written."""
    before = data.tensors(court.case.program, launch)
    for buffer in court.case.program.buffers if truth is not None else ():
        assert truth is not None
        memory = truth[buffer.name]
        court.verdict.elements += int(memory.written.sum())
        court.verdict.exact += int((memory.written & (memory.error == 0)).sum())
        problem = outputs.difference(data.numbers(found[buffer.name]), data.numbers(before[buffer.name]), memory)
        if problem is not None:
            raise Wrong(stage, f"{buffer.name}: {problem}\n{where}{_launch_text(court, launch)}")


def _same(
    court: _Court,
    launch: Launch,
    left: Mapping[str, torch.Tensor],
    right: Mapping[str, torch.Tensor],
    truth: Mapping[str, Memory] | None,
    where: str,
) -> None:
    """Plain and specialized against each other."""
    for name in left:
        error: Array | None = None if truth is None else truth[name].error
        problem = outputs.disagreement(data.numbers(left[name]), data.numbers(right[name]), error)
        if problem is not None:
            raise Wrong("bits", f"{name}: {problem}\n{where}{_launch_text(court, launch)}")

"""`wspec run`: a kernel on the CPU, plain and specialized, against float64 and against each other."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor

from wspec import ir
from wspec.cli.child import placement
from wspec.cli.inputs import is_ir, open_input, signature_of
from wspec.cli.modules import read_text
from wspec.cli.run_inputs import Maker, Trial, example_maker, parse_grid, parse_sizes, random_maker
from wspec.cli.run_table import Line, Worst, view
from wspec.cli.screen import counted, remark_text, show
from wspec.cli.subject import Front, Subject, source_of
from wspec.diagnostics import WspecError, bad_input
from wspec.execute import (
    ExecutionError,
    FirstReady,
    Kernel,
    Priorities,
    ProgramError,
    Random,
    Replay,
    Result,
    Schedule,
    minimize,
    one_thread,
)
from wspec.ir import warp_specialize as ws
from wspec.ir.shared_memory import placed
from wspec.lab.persistent_launch import descriptors_of, executed_launch
from wspec.specs.kernel_file import load_kernel
from wspec.tile_scheduler import PARTIALS, TABLE

T = TypeVar("T")
PLAIN, SPECIALIZED = "plain", "specialized"


def run(args: argparse.Namespace) -> int:
    """The table; 1 when an output exceeds its bound. Raises WspecError for what a kernel may not do."""
    if args.seeds < 1:
        raise bad_input(f"--seeds: {args.seeds} runs nothing")
    recorded = _read_replay(args.replay) if args.replay is not None else None
    sizes = recorded.sizes if recorded is not None else parse_sizes(args.sizes)
    subject = open_input(args)
    kernels = _kernels(args, subject, recorded)
    session = _Session(args, kernels, _maker(args, subject, kernels, sizes), sizes, subject.front)
    with one_thread():
        return session.replay(recorded) if recorded is not None else session.all()


# ---------------------------------------------------------------------------------------------------- inputs


def _kernels(args: argparse.Namespace, subject: Subject, recorded: _Recording | None) -> dict[str, Kernel]:
    """The modules to run, by name, ready to run. Raises WspecError where there is none."""
    stages, reason = subject.front.stages, subject.front.reason
    given = reason is not None and reason.code == "already-specialized"
    texts = {SPECIALIZED if given else PLAIN: stages["ttgir"]}
    if "specialized" in stages:
        texts[SPECIALIZED] = stages["specialized"]
    elif reason is not None and not given:
        show(f"{subject.title}: left as it was", remark_text(reason), "")
    wanted = recorded.kernel if recorded is not None else PLAIN if args.plain_only else ""
    wanted = SPECIALIZED if args.specialized_only else wanted
    if wanted and wanted not in texts:
        raise bad_input(f"there is no {wanted} kernel of {subject.name} to run", reason.message if reason else "")
    return {name: _ready(text, given) for name, text in texts.items() if name == wanted or not wanted}


def _ready(text: str, final: bool) -> Kernel:
    """`final`: it is the text that Triton lowers; otherwise, if it has tasks, Triton's last passes come first."""
    return _as_input(lambda: Kernel(given_memory(text, final)))


def given_memory(text: str, final: bool) -> ir.Operation:
    """A module with tasks as Triton gives it shared memory: buffers may have the same bytes one after the other.

    Without tasks it is pipelined first, and what it keeps there is not known yet.
    """
    from wspec import bridge

    module = ir.read(text)
    if not any(op.name == ws.NAME for op in module.walk()):
        return module
    try:
        lowered = module if final else ir.read(bridge.final_ttgir(text, source_of(text)))
        return placed(lowered, placement(lowered))
    except bridge.BridgeError:
        return module  # every buffer has bytes of its own


def _as_input(make: Callable[[], T]) -> T:
    """What the executor does not know, or cannot be given, is about the input; what a program does wrong is not."""
    try:
        return make()
    except ProgramError:
        raise
    except ExecutionError as error:
        raise WspecError(replace(error.remark, code="bad-input")) from None


def _maker(args: argparse.Namespace, subject: Subject, kernels: dict[str, Kernel], sizes: dict[str, Any]) -> Maker:
    if args.random:
        promotion = subject.front.promotion
        hidden = (TABLE, PARTIALS, *(one.name for one in (promotion.descriptors if promotion is not None else ())))
        asked = [one for one in next(iter(kernels.values())).parameters if one.name not in hidden]
        return random_maker(asked, sizes, parse_grid(args))
    if args.grid is not None:
        raise bad_input("--grid goes with --random; an example has a grid of its own")
    random = "use --random, with --sizes of every argument and --grid"
    if is_ir(args.input):
        raise bad_input(f"{args.input} has no example of inputs", random)
    kernel = load_kernel(args.input)
    return example_maker(signature_of(args, kernel), kernel, sizes, instead=f", or {random}")


# --------------------------------------------------------------------------------------------------- replays


@dataclass(frozen=True, slots=True)
class _Recording:
    """A failure in a file: which kernel, on which inputs, with which choices."""

    kernel: str
    seed: int
    sizes: dict[str, Any]
    replay: Replay

    def to_json(self) -> str:
        head = {"kernel": self.kernel, "seed": self.seed, "sizes": self.sizes}
        return json.dumps({**head, **json.loads(self.replay.to_json())}) + "\n"


def _read_replay(place: str) -> _Recording:
    text = read_text(place)
    try:
        replay, data = Replay.from_json(text), json.loads(text)
    except ValueError as error:
        raise bad_input(f"{place}: {error}") from None
    kernel, seed, sizes = data.get("kernel"), data.get("seed"), data.get("sizes")
    if kernel not in (PLAIN, SPECIALIZED) or not isinstance(seed, int) or not isinstance(sizes, dict):
        raise bad_input(f"{place}: a replay says which kernel, seed and sizes it is of")
    shapes = {name: tuple(size) if isinstance(size, list) else size for name, size in sizes.items()}
    return _Recording(kernel, seed, shapes, replay)


# --------------------------------------------------------------------------------------------------- running


@dataclass(slots=True)
class _Session:
    """One run of the command."""

    args: argparse.Namespace
    kernels: dict[str, Kernel]
    maker: Maker
    sizes: dict[str, Any]
    front: Front  # what the compiler made of the kernel
    lines: dict[str, Line] = field(default_factory=dict)
    plain: dict[str, Tensor] = field(default_factory=dict)  # what the plain kernel made of the seed's inputs
    compared: int = 0
    difference: float = 0.0  # of specialized from plain outputs, the largest

    def all(self) -> int:
        """Every seed, and the table."""
        first = self.args.first_seed
        seeds = range(first, first + self.args.seeds)
        runs = [(seed, name, kind, schedule) for seed in seeds for name, kernel in self.kernels.items()
                for kind, schedule in self._schedules(name, kernel, seed)]  # fmt: skip
        with counted("runs on the CPU", len(runs)) as bar:
            for at, (seed, name, kind, schedule) in enumerate(runs):
                if name == PLAIN or at == 0 or runs[at - 1][0] != seed:
                    self.plain = {}
                what = f"{name}, {kind}" if kind else name
                bar.update(bar.task_ids[0], description=f"{what}, seed {seed}")
                self._run(name, what, seed, schedule)
                bar.advance(bar.task_ids[0])
        self._report()
        wrong = [text for line in self.lines.values() for text in line.wrong]
        for text in wrong:
            show(f"wrong: {text}")
        return 1 if wrong else 0

    def _schedules(self, name: str, kernel: Kernel, seed: int) -> Iterator[tuple[str, Schedule]]:
        """(what the table calls it, schedule); one task alone has little to choose, a plain kernel nothing."""
        asked = self.args.schedule
        if name == PLAIN or asked == "first":
            yield "" if name == PLAIN else "in order", FirstReady()
            return
        if asked in ("both", "random"):
            yield "random", Random(seed)
            yield "random", Priorities(seed)
        if asked == "adversarial" or (asked == "both" and seed == self.args.first_seed):
            for schedule in kernel.adversaries:
                yield "adversarial", schedule

    def _run(self, name: str, what: str, seed: int, schedule: Schedule) -> None:
        trial = self.maker(seed)
        try:
            result = _launch(self.kernels[name], trial, schedule, self.front)
        except ProgramError as failure:
            self._report()
            raise self._recorded(name, seed, failure) from None
        line = self.lines.setdefault(what, Line(what))
        line.add(result)
        for output, value in trial.outputs.items():
            expected = self.plain.get(output) if value.expected is None else value.expected
            if value.expected is not None or self._is_written(seed, output, value.tensor):
                worst = line.worst.setdefault(output, Worst())
                if expected is not None:
                    worst.add(value, expected.double())
        self._compare(name, trial)

    def _is_written(self, seed: int, output: str, tensor: Tensor) -> bool:
        """With random inputs nobody says what is an output: what is not as it was before, here or in the plain run."""
        before = self.maker(seed).outputs[output].tensor
        return any(not torch.equal(before, after) for after in (tensor, self.plain.get(output, before)))

    def _compare(self, name: str, trial: Trial) -> None:
        """The plain kernel's outputs, with those of the specialized one."""
        if name == PLAIN:
            self.plain = {output: value.tensor.clone() for output, value in trial.outputs.items()}
            return
        if not self.plain:
            return
        self.compared += 1
        for output, value in trial.outputs.items():
            worst = Worst()
            worst.add(value, self.plain[output].double())
            self.difference = max(self.difference, worst.error or 0.0)

    def _recorded(self, name: str, seed: int, failure: ProgramError) -> ExecutionError:
        """The failure with few choices, and the file that repeats it."""

        def attempt(schedule: Schedule) -> object:
            return _launch(self.kernels[name], self.maker(seed), schedule, self.front)

        least = minimize(attempt, failure)
        path = Path(self.args.record)
        try:
            path.write_text(_Recording(name, seed, self.sizes, least.replay).to_json())
        except OSError as error:
            raise bad_input(f"cannot write {path}: {error.strerror}") from None
        note = f"to replay: the same command with --replay {path} ({name} kernel, seed {seed})"
        cause = least.cause
        return ExecutionError(
            cause.message, cause.location, cause.task, f"{cause.note}\nnote: {note}" if cause.note else note
        )

    def _report(self) -> None:
        if not self.lines:
            return
        against = "the plain kernel" if self.args.random and self.plain else "float64"
        show(view(self.lines.values(), against=against), "")
        if self.compared:
            same = "the same bits" if self.difference == 0 else f"off by {self.difference:.3g} at most"
            show(f"specialized against plain: {same}, {self.compared} runs")

    def replay(self, recorded: _Recording) -> int:
        """The failure once more, or a word that it did not come."""
        result = _launch(self.kernels[recorded.kernel], self.maker(recorded.seed), recorded.replay.schedule, self.front)
        show(f"no failure: {result.programs} programs, {result.operations} operations, {result.choices} choices")
        return 0


def _launch(kernel: Kernel, trial: Trial, schedule: Schedule, front: Front) -> Result:
    made = descriptors_of(front.promotion, kernel.parameters, trial.grid, trial.arguments)
    grid, hidden = executed_launch(front.plan, kernel.parameters, trial.grid, trial.arguments)
    arguments = {**trial.arguments, **made, **{name: torch.from_numpy(table) for name, table in hidden.items()}}
    with torch.no_grad():
        return _as_input(lambda: kernel.run(grid, arguments, schedule=schedule))

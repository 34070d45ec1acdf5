"""What every benchmark of many cases shares: flags, a time budget, results saved as they come, hangs survived."""

from __future__ import annotations

import argparse
import contextlib
import math
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, TypeVar

import torch

from wspec.lab.bench import recorded
from wspec.lab.bench.clocks import sampling
from wspec.lab.bench.environment import NoGpu, card_state, current_uuid, environment, require_hopper
from wspec.lab.bench.report import Table, console, write_json, write_markdown
from wspec.lab.bench.timing import SUSTAINED_ROUNDS, Timing, Variant, fastest, measure, measure_sustained
from wspec.lab.bench.watchdog import Watchdog

Record = dict[str, Any]
CaseT = TypeVar("CaseT")

ROUNDS = 15


def add_arguments(parser: argparse.ArgumentParser, name: str) -> None:
    """The flags every benchmark has; results go to `name`.json and `name`.md unless told otherwise."""
    parser.add_argument("--no-timing", action="store_true", help="check results only")
    parser.add_argument("--no-peers", action="store_true", help="leave the libraries out")
    parser.add_argument("--graph", action="store_true", help="time replays of CUDA graphs")
    parser.add_argument(
        "--rounds", type=int, help=f"shuffled rounds (default {ROUNDS}; {SUSTAINED_ROUNDS} with --sustained)"
    )
    parser.add_argument("--window-ms", type=float, default=2.0, help="length of a sample (default %(default)s)")
    parser.add_argument(
        "--sustained",
        type=_seconds,
        metavar="SECONDS",
        help="time what a kernel run for long gives, at the clock its own power leaves it, in place of samples of "
        "--window-ms in which all share a clock: in every round each variant runs alone, SECONDS that do not count, "
        "then SECONDS that do (the power limit acts over about one); a case takes 2 x SECONDS x "
        "rounds x variants, so mind --time-budget and --keep; short kernels want --graph, or the host's pace is what "
        "is timed; configurations are still chosen by short samples",
    )
    parser.add_argument("--repeats", type=int, default=20, help="runs that must agree to the bit (default %(default)s)")
    parser.add_argument("--keep", type=int, default=4, help="configurations kept after the sweep (default %(default)s)")
    parser.add_argument("--jobs", type=int, default=None, help="compiling processes (default: one a core)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--time-budget", type=float, default=480.0, metavar="SECONDS", help="stop cleanly after this")
    parser.add_argument(
        "--hang-timeout",
        type=float,
        default=60.0,
        metavar="SECONDS",
        help="give up on a case; what --sustained takes comes on top (default %(default)s)",
    )
    parser.add_argument("--json", default=f"{name}.json", metavar="FILE")
    parser.add_argument("--markdown", default=f"{name}.md", metavar="FILE")
    add_record(parser, name)


def add_record(parser: argparse.ArgumentParser, name: str) -> None:
    """The flag that keeps the run of the benchmark of that name."""
    parser.add_argument("--record", metavar="FILE", help="append the run to FILE, for `wspec bench --compare`")
    parser.set_defaults(bench=name)


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 < value < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r} is not a positive number of seconds")
    return value


@dataclass(slots=True)
class Session:
    """A benchmark under way; `results` is what there is so far.

    `options` are parsed flags, those of `add_arguments` among them.
    """

    options: argparse.Namespace
    device: torch.device
    results: Record = field(default_factory=dict)
    started: float = field(default_factory=time.monotonic)
    watchdog: Watchdog = field(init=False)

    def __post_init__(self) -> None:
        self.watchdog = Watchdog(self.options.hang_timeout + self._sustained_part, self._on_hang)
        lists = ("cases", "kinds", "sweeps", "not_run", "compiling")
        self.results = {"environment": environment(), "timing": self._timing, **{name: [] for name in lists}}

    @property
    def rounds(self) -> int:
        """Of a contest."""
        if self.options.rounds is not None:
            return int(self.options.rounds)
        return ROUNDS if self.options.sustained is None else SUSTAINED_ROUNDS

    @property
    def _timing(self) -> Record | None:
        """How contests are timed: the length of a sample is "window_ms" or "sustained_seconds", the other is None."""
        options = self.options
        if options.no_timing:
            return None
        window_ms = options.window_ms if options.sustained is None else None
        how = {"window_ms": window_ms, "sustained_seconds": options.sustained, "graph": options.graph}
        return {"rounds": self.rounds, **how}

    @property
    def _sustained_part(self) -> float:
        """Seconds that --sustained adds to a case at most: with three libraries, and parts half as long again as meant
        because the clock fell."""
        variants: int = 2 * self.options.keep + 1 + 3
        seconds: float = self.options.sustained or 0.0
        return 1.5 * 2 * seconds * self.rounds * variants

    def _on_hang(self, what: str) -> None:
        self.results["not_run"].append(f"{what}: hung; nothing after it was run")
        self.save()

    def save(self) -> None:
        self.results["seconds"] = time.monotonic() - self.started
        write_json(self.options.json, self.results)

    @property
    def out_of_time(self) -> bool:
        return bool(time.monotonic() - self.started > self.options.time_budget)


def start(options: argparse.Namespace) -> Session | None:
    """A session on the card at hand; without one says so on stderr and returns None: exit with 2. Raises OSError where
    what is measured could not be recorded."""
    try:
        device = require_hopper()
    except NoGpu as error:
        print(f"error: {error}", file=sys.stderr)
        return None
    if options.record is not None:
        recorded.check_file(options.record)
    return Session(options, device)


def run_cases(
    session: Session, cases: Sequence[CaseT], work: Callable[[CaseT], Record], progress: Callable[[Record], str]
) -> None:
    """`work` on every case until time is up or the card is lost; saves after each.

    A record is {"name", "failure" if work raised, and what work returned}.
    """
    for at, case in enumerate(cases):
        if session.out_of_time or not _card_answers():
            why = "time was up" if session.out_of_time else "the card no longer answers"
            session.results["not_run"] += [f"{left}: {why}" for left in cases[at:]]
            break
        with session.watchdog(str(case)):
            record = {"name": str(case), **_attempt(work, case)}
        session.results["cases"].append(record)
        session.save()
        said = record["failure"] if "failure" in record else progress(record)
        print(f"{case}: {said}", file=sys.stderr, flush=True)


def _attempt(work: Callable[[CaseT], Record], case: CaseT) -> Record:
    try:
        return work(case)
    except Exception as error:  # the other cases still want running
        return {"failure": f"{type(error).__name__}: {error}"}


def _card_answers() -> bool:
    """False after a fault: every later call would fail too."""
    try:
        torch.cuda.synchronize()
    except RuntimeError:
        return False
    return True


def contest(
    session: Session, flops: int, plain: Sequence[Variant], ours: Sequence[Variant], peers: Sequence[Variant]
) -> Record:
    """Time everything, taking turns (long ones with --sustained); the role of each as {"name", "us", "spread",
    "tflops", "ratio", "ratio_spread"}.

    Roles: "plain", the fastest of the plain variants; "specialized", the first of ours; "specialized_best", the
    fastest of ours; and each peer under its name. "ratio" is how many times faster "specialized" is than the role. With
    --record, "clock" is the card's meanwhile, and its power: {"mhz", "watts"}.
    """
    watched = contextlib.nullcontext() if session.options.record is None else sampling(current_uuid())
    with watched as clock:
        timings = _measure(session, [*ours, *plain, *peers])
    default = timings[ours[0].name]
    names = {
        "plain": _fastest_of(timings, plain),
        "specialized": ours[0].name,
        "specialized_best": _fastest_of(timings, ours),
        **{peer.name: peer.name for peer in peers},
    }
    roles = {
        role: {
            "name": name,
            **timing_record(timings[name], flops),
            "ratio": default.speedup_over(timings[name]),
            "ratio_spread": default.speedup_spread(timings[name]),
        }
        for role, name in names.items()
    }
    found = {**roles, "all": {name: timing_record(timing, flops) for name, timing in timings.items()}}
    return found if clock is None else {**found, "clock": asdict(clock)}


def _measure(session: Session, variants: Sequence[Variant]) -> dict[str, Timing]:
    options = session.options
    if options.sustained is None:
        return measure(variants, rounds=session.rounds, window_ms=options.window_ms, graph=options.graph)
    return measure_sustained(variants, seconds=options.sustained, rounds=session.rounds, graph=options.graph)


def _fastest_of(timings: Mapping[str, Timing], variants: Sequence[Variant]) -> str:
    return fastest({variant.name: timings[variant.name] for variant in variants}, 1)[0]


def timing_record(timing: Timing, flops: int) -> Record:
    """A timing as a JSON-ready value: microseconds, spread, TFLOP/s."""
    return {"us": timing.median_us, "spread": timing.spread, "tflops": flops / timing.median_us / 1e6}


def finish(session: Session, tables: Callable[[Record], list[Table]], notes: Callable[[Record], list[str]]) -> int:
    """Save, record and show everything; 0 when every case ran and was right, else 1."""
    session.results["card_after"] = card_state()
    session.save()
    made, said = tables(session.results), [*_sustained_note(session.results), *notes(session.results)]
    screen = console()
    for table in made:
        table.show(screen)
    for note in said:
        screen.print(f"- {note}", markup=False)
    write_markdown(session.options.markdown, made, said)
    if session.options.record is not None:
        recorded.append(session.options.record, recorded.run_of(session.options.bench, session.results))
    return 0 if all(map(_right, session.results["cases"])) and not session.results["not_run"] else 1


def _sustained_note(results: Record) -> list[str]:
    how = results["timing"] or {}
    if how.get("sustained_seconds") is None:
        return []
    seconds, rounds = how["sustained_seconds"], how["rounds"]
    return [f"SUSTAINED timings: each variant alone, {seconds:g} s that do not count and {seconds:g} s that do, in "
            f"{rounds} shuffled rounds"]  # fmt: skip


def _right(record: Record) -> bool:
    return "failure" not in record and bool(record["check"]["accurate"]) and bool(record["check"]["identical"])

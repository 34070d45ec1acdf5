"""`python -m wspec.lab.bench.attention`: is specialized attention right, and is it fast?

For every case, in one run on one card:

* the error of the specialized and of the plain kernel against a float32 reference, and their ratio;
* whether repeated runs of the specialized kernel give the same bits, over output that was poisoned with NaN;
* the time of the plain kernel at its own best configuration, of the specialized kernel at its default, and of the
  libraries, taking turns (see `timing`).

The plain kernel's configurations are compared at one length for every kind (head dimension, mask, dtype); the best
few of them then run at every length, and its time is that of the best of these at the length in question.
"""

from __future__ import annotations

import argparse
import functools
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from wspec.kernels.attention import (
    Config,
    Launch,
    attention_fwd,
    attention_fwd_ws,
    attention_reference,
    default_config,
    plain_configs,
    tiles,
)
from wspec.lab.bench.accuracy import LSE_FLOOR, Error, all_identical, as_accurate
from wspec.lab.bench.attention_cases import (
    DTYPES,
    HEAD_DIMS,
    SEQLENS,
    Case,
    Kind,
    main_case,
    main_cases,
    make_inputs,
    odd_cases,
)
from wspec.lab.bench.attention_report import CHOSEN, notes, progress, tables
from wspec.lab.bench.peers import peers
from wspec.lab.bench.session import (
    Record,
    Session,
    add_arguments,
    contest,
    finish,
    run_cases,
    start,
)
from wspec.lab.bench.timing import Variant, input_sets
from wspec.lab.bench.tuning import Tuner, fastest_entries

SWEEP_SEQLEN = 4096
"""The length at which configurations are compared."""

# ---------------------------------------------------------------------------------------------------- what is run


@dataclass(frozen=True, slots=True)
class Entry:
    """A kernel, "plain" or "specialized", at a configuration."""

    kernel: str
    config: Config

    def __str__(self) -> str:
        return f"{self.kernel} {self.config}"

    @property
    def function(self) -> Any:
        """The jit function."""
        return attention_fwd if self.kernel == "plain" else attention_fwd_ws(self.config.coarsening)


def default_entries(kernel: str, kind: Kind) -> list[Entry]:
    """A kernel at the tiles that `attention` chooses between."""
    return [Entry(kernel, tile) for tile in tiles(kind.head_dim)]


def chosen_entry(case: Case, kernel: str = "specialized") -> Entry:
    """What `attention` launches for the case, or another kernel at its tile."""
    heads = case.batch * case.heads
    tile = default_config(case.kind.head_dim, case.seqlen_q, case.kind.causal, case.seqlen_k, heads)
    return Entry(kernel, tile)


def all_entries(kind: Kind, options: argparse.Namespace) -> list[Entry]:
    """Every entry to compare for a kind: the default ones first, then what the flags ask for."""
    entries = [entry for kernel in ("specialized", "plain") for entry in default_entries(kernel, kind)]
    if options.specialized_grid:
        entries += [Entry("specialized", c) for c in plain_configs(kind.head_dim) if c.num_stages == 2]
    if not options.no_timing:
        entries += [Entry("plain", config) for config in plain_configs(kind.head_dim)]
    return list(dict.fromkeys(entries))


def launch_on_cpu(entry: Entry, kind: Kind) -> tuple[Any, Launch]:
    """A launch for `precompile`: the kernel is specialized on the types of its arguments, not on their sizes."""
    q, k, v, out = (torch.empty(1, 1, 1, kind.head_dim, dtype=DTYPES[kind.dtype]) for _ in range(4))
    launch = Launch.of(q, k, v, out, torch.empty(1, 1, 1), causal=kind.causal, scale=1.0, config=entry.config)
    return entry.function, launch


@dataclass(frozen=True, slots=True)
class Prepared:
    """A launch, and what it writes."""

    launch: Launch
    out: torch.Tensor
    lse: torch.Tensor

    def poison(self) -> None:
        """Make it evident if some element is not written."""
        self.out.fill_(torch.nan)
        self.lse.fill_(torch.nan)


@dataclass(frozen=True, slots=True)
class Problem:
    """The inputs of a case on the card, in one set or several to rotate."""

    case: Case
    inputs: tuple[tuple[torch.Tensor, torch.Tensor, torch.Tensor], ...]

    @staticmethod
    def of(case: Case, device: torch.device, seed: int, sets: int = 1) -> Problem:
        return Problem(case, tuple(make_inputs(case, device, seed + at) for at in range(sets)))

    def prepare(self, config: Config) -> list[Prepared]:
        """A launch for each input set, output poisoned."""
        return [self._prepare(config, *tensors) for tensors in self.inputs]

    def _prepare(self, config: Config, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> Prepared:
        out, lse = torch.empty_like(q), torch.empty(q.shape[:3], dtype=torch.float32, device=q.device)
        scale = self.case.kind.head_dim**-0.5
        launch = Launch.of(q, k, v, out, lse, causal=self.case.kind.causal, scale=scale, config=config)
        made = Prepared(launch, out, lse)
        made.poison()
        return made

    def variant(self, entry: Entry) -> Variant:
        """The entry as something to time, after one launch of it on every input set."""
        runs = tuple(functools.partial(made.launch.run, entry.function) for made in self.prepare(entry.config))
        for run in runs:
            run()
        return Variant(str(entry), runs)

    def peer_variants(self) -> list[Variant]:
        """Every library that takes this case, after one launch of each."""
        found = []
        for peer in peers():
            try:
                runs = tuple(peer.make(*tensors, self.case.kind.causal) for tensors in self.inputs)
                with peer.around():
                    for run in runs:
                        run()
            except (RuntimeError, OSError) as error:
                print(f"{peer.name} does not run {self.case}: {error}", file=sys.stderr)
                continue
            found.append(Variant(peer.name, runs, peer.around))
        return found


# ----------------------------------------------------------------------------------------------------- one case


def check(problem: Problem, repeats: int) -> Record:
    """Errors of both kernels at the default tile against the reference, their ratio, and whether `repeats` runs give
    the same bits."""
    q, k, v = problem.inputs[0]
    out_ref, lse_ref = attention_reference(q, k, v, causal=problem.case.kind.causal)
    errors: dict[str, tuple[Error, Error]] = {}
    identical: dict[str, bool] = {}
    for kernel in ("plain", "specialized"):
        entry = chosen_entry(problem.case, kernel)
        made = problem.prepare(entry.config)[0]
        identical[kernel] = all_identical(functools.partial(_run_poisoned, made, entry), repeats)
        errors[kernel] = Error.of(made.out, out_ref), Error.of(made.lse, lse_ref)
    (out, lse), (plain_out, plain_lse) = errors["specialized"], errors["plain"]
    ratio, lse_ratio = out.ratio_to(plain_out), lse.ratio_to(plain_lse, LSE_FLOOR)
    record: Record = {
        kernel: {"largest": out.largest, "relative": out.relative, "lse": lse.largest}
        for kernel, (out, lse) in errors.items()
    }
    return {
        **record,
        "ratio": ratio,
        "lse_ratio": lse_ratio,
        "accurate": as_accurate(ratio) and as_accurate(lse_ratio),
        "identical": identical["specialized"],
        "plain_identical": identical["plain"],
    }


def _run_poisoned(made: Prepared, entry: Entry) -> tuple[torch.Tensor, torch.Tensor]:
    made.poison()
    made.launch.run(entry.function)
    return made.out, made.lse


def time_case(bench: Bench, case: Case) -> Record:
    """The best plain entries, ours (first what `attention` launches) and the libraries, taking turns."""
    session = bench.session
    l2_bytes = torch.cuda.get_device_properties(session.device).L2_cache_size
    problem = Problem.of(case, session.device, session.options.seed, input_sets(case.bytes, l2_bytes))
    entries = bench.best_entries(case.kind)
    chosen = chosen_entry(case)
    plain = [problem.variant(entry) for entry in entries if entry.kernel == "plain"]
    ours = [replace(problem.variant(chosen), name=f"{CHOSEN}{chosen}")]
    ours += [problem.variant(entry) for entry in entries if entry.kernel == "specialized" and entry != chosen]
    others = [] if session.options.no_peers else problem.peer_variants()
    return contest(session, case.flops, plain, ours, others)


# -------------------------------------------------------------------------------------------------- the whole run


@dataclass(slots=True)
class Bench:
    """A session, its tuner, and the entries worth timing of each kind."""

    session: Session
    tuner: Tuner[Kind, Entry]
    winners: dict[Kind, list[Entry]] = field(default_factory=dict)

    def compile_all(self, kinds: Sequence[Kind]) -> None:
        """Every entry of every kind into the cache, in parallel."""
        keys = [(kind, entry) for kind in kinds for entry in all_entries(kind, self.session.options)]
        self.tuner.compile_all({(kind, entry): functools.partial(launch_on_cpu, entry, kind) for kind, entry in keys})

    def best_entries(self, kind: Kind) -> list[Entry]:
        """The entries worth timing at every length: the best of each kernel's."""
        if kind not in self.winners:
            self.winners[kind] = self._sweep(kind)
            self.session.results["kinds"].append(what_became_of(kind))
        return self.winners[kind]

    def _sweep(self, kind: Kind) -> list[Entry]:
        options = self.session.options
        case = main_case(kind, SWEEP_SEQLEN)
        problem = Problem.of(case, self.session.device, options.seed)
        makers = {entry: functools.partial(problem.variant, entry) for entry in all_entries(kind, options)}
        timings = self.tuner.compare(kind, str(case), case.flops, makers)
        kept: list[Entry] = []
        for kernel in ("specialized", "plain"):
            mine = {entry: timing for entry, timing in timings.items() if entry.kernel == kernel}
            kept += fastest_entries(mine, options.keep)
        return kept

    def timed(self, case: Case) -> Record:
        """The record of a case that is checked and, unless the flags say otherwise, timed."""
        record = self.checked(case)
        return record if self.session.options.no_timing else {**record, "times": time_case(self, case)}

    def checked(self, case: Case) -> Record:
        """The record of a case that is checked."""
        options = self.session.options
        problem = Problem.of(case, self.session.device, options.seed)
        return {"case": case.as_json(), "check": check(problem, options.repeats)}


def what_became_of(kind: Kind) -> Record:
    """Whether the default entry of a kind was specialized, or the reason why not."""
    kernel, launch = launch_on_cpu(chosen_entry(main_case(kind, SWEEP_SEQLEN)), kind)
    report = kernel.outcome(*launch.args, **launch.meta)
    reason = None if report.reason is None else f"{report.reason.code}: {report.reason.message}"
    return {"kind": str(kind), "specialized": report.specialized, "reason": reason}


# ------------------------------------------------------------------------------------------------- command line


def parser() -> argparse.ArgumentParser:
    """The command line's flags."""
    made = argparse.ArgumentParser(prog="python -m wspec.lab.bench.attention", description="Measure attention.")
    made.add_argument("--head-dims", type=int, nargs="+", choices=HEAD_DIMS, default=HEAD_DIMS)
    made.add_argument("--seqlens", type=int, nargs="+", default=SEQLENS)
    made.add_argument("--dtypes", nargs="+", choices=tuple(DTYPES), default=tuple(DTYPES))
    made.add_argument("--masks", nargs="+", choices=("full", "causal"), default=("full", "causal"))
    quick = "bf16, lengths 1024 and 4096, 7 rounds (3 with --sustained), no odd shapes"
    made.add_argument("--quick", action="store_true", help=quick)
    made.add_argument("--no-odd", action="store_true", help="leave the odd shapes out")
    made.add_argument("--no-main", action="store_true", help="the odd shapes alone")
    made.add_argument("--specialized-grid", action="store_true", help="also search tiles for the specialized kernel")
    add_arguments(made, "attention")
    return made


def chosen_cases(options: argparse.Namespace) -> tuple[list[Case], list[Case]]:
    """(main cases, odd cases) the flags ask for."""
    kinds = [
        Kind(head_dim, mask == "causal", dtype)
        for dtype in options.dtypes
        for head_dim in options.head_dims
        for mask in options.masks
    ]
    main = [] if options.no_main else main_cases(kinds, options.seqlens)
    return main, [] if options.no_odd else odd_cases(kinds)


def main(argv: Sequence[str] | None = None) -> int:
    """0 when every case ran and was right, 1 when one did not or was not, 2 when nothing could be run."""
    options = parser().parse_args(argv)
    if options.quick:
        options.dtypes, options.seqlens, options.no_odd = ["bf16"], [1024, 4096], True
    if options.quick and options.sustained is None:
        options.rounds = 7
    session = start(options)
    if session is None:
        return 2
    main_list, odd_list = chosen_cases(options)
    bench = Bench(session, Tuner(session))
    bench.compile_all(list(dict.fromkeys(case.kind for case in [*main_list, *odd_list])))
    run_cases(session, main_list, bench.timed, progress)
    run_cases(session, odd_list, bench.checked, progress)
    return finish(session, tables, notes)


if __name__ == "__main__":
    sys.exit(main())

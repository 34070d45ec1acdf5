"""`python -m wspec.bench.attention`: is specialized attention right, and is it fast?

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
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from wspec.bench.accuracy import Error, all_identical, as_accurate
from wspec.bench.attention_cases import (
    DTYPES,
    HEAD_DIMS,
    SEQLENS,
    Case,
    main_case,
    main_cases,
    make_inputs,
    odd_cases,
)
from wspec.bench.attention_report import notes, tables
from wspec.bench.environment import NoGpu, card_state, environment, require_hopper
from wspec.bench.peers import peers
from wspec.bench.precompile import precompile
from wspec.bench.report import console, write_json, write_markdown
from wspec.bench.timing import Timing, Variant, fastest, input_sets, measure
from wspec.bench.watchdog import Watchdog
from wspec.kernels.attention import (
    Config,
    Launch,
    attention_fwd,
    attention_fwd_ws,
    attention_reference,
    default_config,
    plain_configs,
)

SWEEP_SEQLEN = 4096
"""The length at which configurations are compared."""

Kind = tuple[int, bool, str]
"""Head dimension, causal, dtype."""


# ---------------------------------------------------------------------------------------------------- what is run


@dataclass(frozen=True, slots=True)
class Entry:
    """A kernel at a configuration."""

    kernel: str
    """"plain" or "specialized"."""
    config: Config

    def __str__(self) -> str:
        return f"{self.kernel} {self.config}"


def kernel_named(name: str) -> Any:
    """The jit function an Entry means."""
    return attention_fwd if name == "plain" else attention_fwd_ws()


def launch_on_cpu(entry: Entry, head_dim: int, causal: bool, dtype: str) -> tuple[Any, Launch]:
    """A launch for `precompile`: the kernel is specialized on the types of its arguments, not on their sizes."""
    q, k, v, out = (torch.empty(1, 1, 1, head_dim, dtype=DTYPES[dtype]) for _ in range(4))
    lse = torch.empty(1, 1, 1)
    launch = Launch.of(q, k, v, out, lse, causal=causal, scale=1.0, config=entry.config)
    return kernel_named(entry.kernel), launch


@dataclass(slots=True)
class Problem:
    """The inputs of a case on the card, in as many sets as the L2 cache asks for."""

    case: Case
    inputs: list[tuple[torch.Tensor, torch.Tensor, torch.Tensor]]

    @staticmethod
    def of(case: Case, device: torch.device, seed: int, sets: int = 1) -> Problem:
        return Problem(case, [make_inputs(case, device, seed + at) for at in range(sets)])

    def launches(self, config: Config) -> list[tuple[Launch, torch.Tensor, torch.Tensor]]:
        """(launch, output, log-sum-exp) for each input set, output poisoned with NaN."""
        return [self._launch(config, *tensors) for tensors in self.inputs]

    def _launch(
        self, config: Config, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor
    ) -> tuple[Launch, torch.Tensor, torch.Tensor]:
        out = torch.full_like(q, torch.nan)
        lse = torch.full(q.shape[:3], torch.nan, dtype=torch.float32, device=q.device)
        scale = self.case.head_dim**-0.5
        launch = Launch.of(q, k, v, out, lse, causal=self.case.causal, scale=scale, config=config)
        return launch, out, lse

    def variant(self, entry: Entry) -> Variant:
        """The entry as something to time, after one launch of it on every input set."""
        kernel = kernel_named(entry.kernel)
        launches = [launch for launch, _, _ in self.launches(entry.config)]
        for launch in launches:
            launch.run(kernel)
        return Variant(str(entry), tuple(functools.partial(launch.run, kernel) for launch in launches))

    def peer_variants(self) -> list[Variant]:
        """Every library that takes this case, after one launch of each."""
        found = []
        for peer in peers():
            try:
                runs = tuple(peer.make(*tensors, self.case.causal) for tensors in self.inputs)
                with peer.around():
                    for run in runs:
                        run()
                torch.cuda.synchronize()
            except (RuntimeError, OSError) as error:
                print(f"{peer.name} does not run {self.case}: {error}", file=sys.stderr)
                continue
            found.append(Variant(peer.name, runs, peer.around))
        return found


# ----------------------------------------------------------------------------------------------------- one case


def check(problem: Problem, entry: Entry, plain: Entry, repeats: int) -> dict[str, Any]:
    """Errors of both kernels against the reference, their ratio, and whether `repeats` runs give the same bits."""
    q, k, v = problem.inputs[0]
    out_ref, lse_ref = attention_reference(q, k, v, causal=problem.case.causal)
    record: dict[str, Any] = {}
    errors: dict[str, tuple[Error, Error]] = {}
    for name, which in (("plain", plain), ("specialized", entry)):
        launch, out, lse = problem.launches(which.config)[0]
        launch.run(kernel_named(which.kernel))
        errors[name] = Error.of(out, out_ref), Error.of(lse, lse_ref)
        output, logsumexp = errors[name]
        record[name] = {"largest": output.largest, "relative": output.relative, "lse": logsumexp.largest}
    pairs = zip(errors["specialized"], errors["plain"], strict=True)
    ratios = [ours.ratio_to(theirs) for ours, theirs in pairs]
    record["ratio"] = ratios[0]
    record["lse_ratio"] = ratios[1]
    record["accurate"] = all(map(as_accurate, ratios))
    record["identical"] = _repeatable(problem, entry, repeats)
    return record


def _repeatable(problem: Problem, entry: Entry, repeats: int) -> bool:
    kernel = kernel_named(entry.kernel)
    launch, out, lse = problem.launches(entry.config)[0]

    def run() -> tuple[torch.Tensor, torch.Tensor]:
        out.fill_(torch.nan)
        lse.fill_(torch.nan)
        launch.run(kernel)
        return out, lse

    return all_identical(run, repeats)


def clock(problem: Problem, entries: Sequence[Entry], options: Options) -> dict[str, Any]:
    """Times of the entries and the libraries taking turns, and what the specialized kernel makes of them.

    `plain` is the fastest plain entry; `specialized` the default; `specialized_best` the fastest specialized entry.
    """
    variants = [problem.variant(entry) for entry in entries]
    if not options.no_peers:
        variants += problem.peer_variants()
    timings = measure(variants, rounds=options.rounds, window_ms=options.window_ms, graph=options.graph)
    record: dict[str, Any] = {"all": {name: _timing_json(problem.case, timing) for name, timing in timings.items()}}
    ours = next(entry for entry in entries if entry.kernel == "specialized")
    chosen = {
        "plain": _fastest_of(timings, entries, "plain"),
        "specialized": str(ours),
        "specialized_best": _fastest_of(timings, entries, "specialized"),
    }
    chosen.update({name: name for name in timings if " " not in name})
    for role, name in chosen.items():
        record[role] = {"name": name, **record["all"][name]}
        record[role]["ratio"] = timings[str(ours)].speedup_over(timings[name])
    return record


def _fastest_of(timings: dict[str, Timing], entries: Iterable[Entry], kernel: str) -> str:
    names = {str(entry) for entry in entries if entry.kernel == kernel}
    return fastest({name: timing for name, timing in timings.items() if name in names}, 1)[0]


def _timing_json(case: Case, timing: Timing) -> dict[str, float]:
    tflops = case.flops / timing.median_us / 1e6
    return {"us": timing.median_us, "spread": timing.spread, "tflops": tflops}


# -------------------------------------------------------------------------------------------------- the whole run


@dataclass(slots=True)
class Options:
    """What the command line chose."""

    rounds: int = 15
    window_ms: float = 2.0
    graph: bool = False
    no_peers: bool = False
    repeats: int = 20
    keep: int = 4
    jobs: int | None = None
    seed: int = 0
    time_budget_s: float = 480.0
    hang_timeout_s: float = 60.0
    specialized_grid: bool = False
    no_timing: bool = False


@dataclass(slots=True)
class Run:
    """A benchmark under way; `results` is what there is so far."""

    options: Options
    device: torch.device
    json_path: str
    results: dict[str, Any] = field(default_factory=dict)
    started: float = field(default_factory=time.monotonic)
    sweeps: dict[Kind, list[Entry]] = field(default_factory=dict)
    uncompilable: set[tuple[Kind, Entry]] = field(default_factory=set)
    watchdog: Watchdog = field(init=False)

    def __post_init__(self) -> None:
        self.watchdog = Watchdog(self.options.hang_timeout_s, self._on_hang)
        self.results = {"environment": environment(), "cases": [], "sweeps": [], "not_run": [], "compiling": []}

    def _on_hang(self, what: str) -> None:
        self.results["not_run"].append(f"{what}: hung; nothing after it was run")
        self.save()

    def save(self) -> None:
        self.results["seconds"] = time.monotonic() - self.started
        write_json(self.json_path, self.results)

    @property
    def out_of_time(self) -> bool:
        return time.monotonic() - self.started > self.options.time_budget_s


def kind_of(case: Case) -> Kind:
    """Cases of one kind run the same compiled kernels."""
    return case.head_dim, case.causal, case.dtype


def all_entries(kind: Kind, options: Options) -> list[Entry]:
    """Every configuration to compare for a kind; the specialized kernel's default first."""
    head_dim = kind[0]
    ours = [default_config(head_dim)]
    if options.specialized_grid:
        ours += [config for config in plain_configs(head_dim) if config.num_stages == 2 and config not in ours]
    if options.no_timing:
        return [Entry("specialized", ours[0]), Entry("plain", default_config(head_dim))]
    return [Entry("specialized", config) for config in ours] + [
        Entry("plain", config) for config in plain_configs(head_dim)
    ]


def compile_all(run: Run, kinds: Sequence[Kind]) -> None:
    """Fill the cache for every kind; what does not compile is recorded and left out."""
    work = [(kind, entry) for kind in kinds for entry in all_entries(kind, run.options)]
    begin = time.monotonic()
    failures = precompile([functools.partial(launch_on_cpu, entry, *kind) for kind, entry in work], run.options.jobs)
    for (kind, entry), failure in zip(work, failures, strict=True):
        if failure is not None:
            run.uncompilable.add((kind, entry))
            run.results["compiling"].append({"kind": kind, "entry": str(entry), "failure": failure})
    seconds = time.monotonic() - begin
    run.results["compile_seconds"] = seconds
    print(f"compiled {len(work)} kernels in {seconds:.0f} s, {len(run.uncompilable)} failed", file=sys.stderr)


def what_became_of(kind: Kind) -> dict[str, Any]:
    """Whether the default entry of a kind was specialized, or the reason why not."""
    kernel, launch = launch_on_cpu(Entry("specialized", default_config(kind[0])), *kind)
    report = kernel.outcome(*launch.args, **launch.meta)
    reason = None if report.reason is None else f"{report.reason.code}: {report.reason.message}"
    return {"kind": kind, "specialized": report.specialized, "reason": reason}


def best_entries(run: Run, kind: Kind) -> list[Entry]:
    """The entries worth timing at every length: the specialized default, and the best of each kernel's grid."""
    if kind not in run.sweeps:
        run.sweeps[kind] = _sweep(run, kind)
    return run.sweeps[kind]


def _sweep(run: Run, kind: Kind) -> list[Entry]:
    entries = [entry for entry in all_entries(kind, run.options) if (kind, entry) not in run.uncompilable]
    case = main_case(*kind, SWEEP_SEQLEN)
    problem = Problem.of(case, run.device, run.options.seed)
    variants, runnable = [], []
    for entry in entries:
        try:
            variants.append(problem.variant(entry))
            runnable.append(entry)
        except Exception as error:  # out of shared memory or registers at load
            run.results["compiling"].append({"kind": kind, "entry": str(entry), "failure": str(error)})
    timings = measure(variants, rounds=5, window_ms=1.0)
    listed = {name: _timing_json(case, timing) for name, timing in timings.items()}
    run.results["sweeps"].append({"case": case.as_json(), "entries": listed, **what_became_of(kind)})
    default = Entry("specialized", default_config(kind[0]))
    kept = [default]
    for kernel in ("specialized", "plain"):
        mine = {str(entry): timings[str(entry)] for entry in runnable if entry.kernel == kernel}
        best = fastest(mine, run.options.keep)
        kept += [entry for entry in runnable if str(entry) in best and entry != default]
    return kept


def run_case(run: Run, case: Case, *, timed: bool) -> dict[str, Any]:
    """The record of one case; an exception becomes its `failure`."""
    record: dict[str, Any] = {"case": case.as_json(), "name": str(case)}
    default = default_config(case.head_dim)
    try:
        problem = Problem.of(case, run.device, run.options.seed)
        record["check"] = check(problem, Entry("specialized", default), Entry("plain", default), run.options.repeats)
        if timed:
            l2_bytes = torch.cuda.get_device_properties(run.device).L2_cache_size
            sets = input_sets(case.bytes, l2_bytes)
            problem = problem if sets == 1 else Problem.of(case, run.device, run.options.seed, sets)
            record["times"] = clock(problem, best_entries(run, kind_of(case)), run.options)
    except Exception as error:
        record["failure"] = f"{type(error).__name__}: {error}"
    return record


def run_cases(run: Run, cases: Sequence[Case], *, timed: bool) -> None:
    """Every case until time is up or the card is lost; saves after each."""
    for at, case in enumerate(cases):
        if run.out_of_time or not _card_answers():
            why = "time was up" if run.out_of_time else "the card no longer answers"
            run.results["not_run"] += [f"{left}: {why}" for left in cases[at:]]
            break
        with run.watchdog(str(case)):
            record = run_case(run, case, timed=timed)
        run.results["cases"].append(record)
        run.save()
        print(_progress(record), file=sys.stderr, flush=True)


def _card_answers() -> bool:
    """False after a fault: every later call would fail too."""
    try:
        torch.cuda.synchronize()
    except RuntimeError:
        return False
    return True


def _progress(record: dict[str, Any]) -> str:
    if "failure" in record:
        return f"{record['name']}: {record['failure']}"
    checked = record["check"]
    text = f"{record['name']}: error ratio {checked['ratio']:.3f}, identical {checked['identical']}"
    if "times" in record:
        ours, plain = record["times"]["specialized"], record["times"]["plain"]
        text += f", {ours['tflops']:.0f} TFLOP/s, {plain['ratio']:.3f} x plain"
    return text


# ------------------------------------------------------------------------------------------------- command line


def parser() -> argparse.ArgumentParser:
    """The command line's flags."""
    made = argparse.ArgumentParser(prog="python -m wspec.bench.attention", description="Measure attention.")
    made.add_argument("--head-dims", type=int, nargs="+", choices=HEAD_DIMS, default=HEAD_DIMS)
    made.add_argument("--seqlens", type=int, nargs="+", default=SEQLENS)
    made.add_argument("--dtypes", nargs="+", choices=tuple(DTYPES), default=tuple(DTYPES))
    made.add_argument("--masks", nargs="+", choices=("full", "causal"), default=("full", "causal"))
    made.add_argument("--quick", action="store_true", help="bf16, lengths 1024 and 4096, few rounds, no odd shapes")
    made.add_argument("--no-odd", action="store_true", help="leave the odd shapes out")
    made.add_argument("--no-main", action="store_true", help="the odd shapes alone")
    made.add_argument("--no-timing", action="store_true", help="check results only")
    made.add_argument("--no-peers", action="store_true", help="leave cuDNN and FlashAttention out")
    made.add_argument("--specialized-grid", action="store_true", help="also search tiles for the specialized kernel")
    made.add_argument("--graph", action="store_true", help="time replays of CUDA graphs")
    made.add_argument("--rounds", type=int, default=15, help="interleaved rounds (default %(default)s)")
    made.add_argument("--window-ms", type=float, default=2.0, help="length of a sample (default %(default)s)")
    made.add_argument("--repeats", type=int, default=20, help="runs that must agree to the bit (default %(default)s)")
    made.add_argument("--keep", type=int, default=4, help="configurations kept after the sweep (default %(default)s)")
    made.add_argument("--jobs", type=int, default=None, help="compiling processes (default: one a core)")
    made.add_argument("--seed", type=int, default=0)
    made.add_argument("--time-budget", type=float, default=480.0, metavar="SECONDS", help="stop cleanly after this")
    made.add_argument("--hang-timeout", type=float, default=60.0, metavar="SECONDS", help="give up on a case")
    made.add_argument("--json", default="attention.json", metavar="FILE")
    made.add_argument("--markdown", default="attention.md", metavar="FILE")
    return made


def options_from(arguments: argparse.Namespace) -> Options:
    """The part of the flags that says how to measure."""
    return Options(
        rounds=min(arguments.rounds, 7) if arguments.quick else arguments.rounds,
        window_ms=arguments.window_ms,
        graph=arguments.graph,
        no_peers=arguments.no_peers,
        repeats=arguments.repeats,
        keep=arguments.keep,
        jobs=arguments.jobs,
        seed=arguments.seed,
        time_budget_s=arguments.time_budget,
        hang_timeout_s=arguments.hang_timeout,
        specialized_grid=arguments.specialized_grid,
        no_timing=arguments.no_timing,
    )


def chosen_cases(arguments: argparse.Namespace) -> tuple[list[Case], list[Case]]:
    """(main cases, odd cases) the flags ask for."""
    masks = [mask == "causal" for mask in arguments.masks]
    dtypes = ["bf16"] if arguments.quick else arguments.dtypes
    seqlens = [1024, 4096] if arguments.quick else arguments.seqlens
    main = [] if arguments.no_main else main_cases(arguments.head_dims, seqlens, dtypes, masks)
    odd = [] if arguments.no_odd or arguments.quick else odd_cases(arguments.head_dims, dtypes, masks)
    return main, odd


def main(argv: Sequence[str] | None = None) -> int:
    """0 when every case ran and was right, 1 when one failed or was wrong, 2 when nothing could be run."""
    arguments = parser().parse_args(argv)
    try:
        device = require_hopper()
    except NoGpu as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    run = Run(options_from(arguments), device, arguments.json)
    main_list, odd_list = chosen_cases(arguments)
    compile_all(run, list(dict.fromkeys(kind_of(case) for case in [*main_list, *odd_list])))
    run_cases(run, main_list, timed=not run.options.no_timing)
    run_cases(run, odd_list, timed=False)
    run.results["card_after"] = card_state()
    run.save()
    screen = console()
    for table in tables(run.results):
        table.show(screen)
    said = notes(run.results)
    for note in said:
        screen.print(f"- {note}")
    write_markdown(arguments.markdown, tables(run.results), said)
    return 0 if _all_right(run.results) else 1


def _all_right(results: dict[str, Any]) -> bool:
    def right(record: dict[str, Any]) -> bool:
        return "failure" not in record and bool(record["check"]["accurate"]) and bool(record["check"]["identical"])

    return all(map(right, results["cases"]))


if __name__ == "__main__":
    sys.exit(main())

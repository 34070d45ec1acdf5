"""`python -m wspec.lab.bench.matmul`: the plain and the specialized matrix product, and torch's.

Checked and timed as `wspec.lab.bench.attention` does it: errors against a float32 reference, repeated runs, the plain
kernel at the best of its configurations, everything taking turns.
"""

from __future__ import annotations

import argparse
import functools
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import torch

from wspec.kernels.matmul import (
    VARIANTS,
    Config,
    Launch,
    default_config,
    empty_output,
    matmul_reference,
    plain_configs,
    plain_kernel,
    specialized_kernel,
)
from wspec.kernels.matmul import (
    Variant as KernelVariant,
)
from wspec.lab.bench.accuracy import Error, all_identical, as_accurate
from wspec.lab.bench.report import Table, geometric_mean, number
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

DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}
SIZES = (
    (2048, 2048, 2048), (4096, 4096, 4096), (8192, 8192, 8192), (16384, 2048, 8192), (512, 8192, 4096),
    (4096, 3584, 4096), (2304, 4096, 4096),
)  # fmt: skip
"""The last two are 3.4 and 2.2 waves of tiles of 128 x 256 on the 132 SMs of an H200: what dividing tiles is for."""
ODD_SIZES = ((1, 8, 8), (17, 24, 40), (1000, 1016, 1032), (4095, 136, 72))
SWEEP_SIZE = (4096, 4096, 4096)


@dataclass(frozen=True, slots=True)
class Kind:
    """What decides which compiled kernels run. b_transposed: b lies in memory as [N, K]."""

    variant: KernelVariant
    b_transposed: bool
    dtype: str

    def __str__(self) -> str:
        return f"{self.variant} {'A B^T' if self.b_transposed else 'A B'} {self.dtype}"


@dataclass(frozen=True, slots=True)
class Case:
    """C [m, n] = A [m, k] B [k, n]."""

    kind: Kind
    m: int
    n: int
    k: int

    def __str__(self) -> str:
        return f"{self.kind} {self.m}x{self.n}x{self.k}"

    @property
    def flops(self) -> int:
        return 2 * self.m * self.n * self.k

    @property
    def bytes(self) -> int:
        """Of a, b and c."""
        return 2 * (self.m * self.k + self.k * self.n + self.m * self.n)

    def as_json(self) -> Record:
        return {**asdict(self), "flops": self.flops}


@dataclass(frozen=True, slots=True)
class Entry:
    """A kernel, "plain" or "specialized", at a configuration."""

    kernel: str
    config: Config

    def __str__(self) -> str:
        return f"{self.kernel} {self.config}"

    def function(self, kind: Kind) -> Any:
        """The jit function."""
        return plain_kernel(kind.variant) if self.kernel == "plain" else specialized_kernel(kind.variant)


def make_inputs(case: Case, device: torch.device, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Normally distributed a [m, k] and b [k, n]."""
    generator = torch.Generator(device).manual_seed(seed)
    draw = functools.partial(torch.randn, device=device, dtype=DTYPES[case.kind.dtype], generator=generator)
    b = draw(case.n, case.k).T if case.kind.b_transposed else draw(case.k, case.n)
    return draw(case.m, case.k), b


@dataclass(frozen=True, slots=True)
class Problem:
    """The inputs of a case on the card, in one set or several to rotate."""

    case: Case
    inputs: tuple[tuple[torch.Tensor, torch.Tensor], ...]

    @staticmethod
    def of(case: Case, device: torch.device, seed: int, sets: int = 1) -> Problem:
        return Problem(case, tuple(make_inputs(case, device, seed + at) for at in range(sets)))

    def prepare(self, config: Config) -> list[tuple[Launch, torch.Tensor]]:
        """(launch, output poisoned with NaN) for each input set."""
        made = []
        for a, b in self.inputs:
            out = empty_output(a, b, a.dtype).fill_(torch.nan)
            made.append((Launch.of(a, b, out, variant=self.case.kind.variant, config=config), out))
        return made

    def variant(self, entry: Entry) -> Variant:
        """The entry as something to time, after one launch of it on every input set."""
        kernel = entry.function(self.case.kind)
        runs = tuple(functools.partial(launch.run, kernel) for launch, _ in self.prepare(entry.config))
        for run in runs:
            run()
        return Variant(str(entry), runs)

    def peer_variants(self) -> list[Variant]:
        """torch's product, which is cuBLAS's."""
        runs = tuple(functools.partial(torch.matmul, a, b) for a, b in self.inputs)
        for run in runs:
            run()
        return [Variant("cuBLAS", runs)]


def check(problem: Problem, repeats: int) -> Record:
    """Errors of both kernels at the default tile against the reference, their ratio, and whether `repeats` runs give
    the same bits."""
    case = problem.case
    reference = matmul_reference(*problem.inputs[0])
    errors: dict[str, Error] = {}
    identical: dict[str, bool] = {}
    for name in ("plain", "specialized"):
        entry = Entry(name, default_config(case.m, case.n, case.kind.variant, case.kind.b_transposed))
        launch, out = problem.prepare(entry.config)[0]
        run = functools.partial(_run_poisoned, launch, out, entry.function(case.kind))
        identical[name] = all_identical(run, repeats)
        errors[name] = Error.of(out, reference)
    ratio = errors["specialized"].ratio_to(errors["plain"])
    record: Record = {name: asdict(error) for name, error in errors.items()}
    return {**record, "ratio": ratio, "accurate": as_accurate(ratio), "identical": identical["specialized"]}


def _run_poisoned(launch: Launch, out: torch.Tensor, kernel: Any) -> tuple[torch.Tensor, ...]:
    out.fill_(torch.nan)
    launch.run(kernel)
    return (out.contiguous(),)


def all_entries(case: Case, options: argparse.Namespace) -> list[Entry]:
    """Every entry to compare for a kind of product: the default ones of this size first."""
    default = default_config(case.m, case.n, case.kind.variant, case.kind.b_transposed)
    entries = [Entry("specialized", default), Entry("plain", default)]
    if not options.no_timing:
        entries += [Entry("plain", config) for config in plain_configs()]
    return list(dict.fromkeys(entries))


def launch_on_cpu(entry: Entry, kind: Kind) -> tuple[Any, Launch]:
    """A launch for `precompile`: sizes and strides divisible by 16, as those of every timed case are."""
    a, b = make_inputs(Case(kind, 16, 16, 16), torch.device("cpu"), 0)
    out = empty_output(a, b, a.dtype)
    return entry.function(kind), Launch.of(a, b, out, variant=kind.variant, config=entry.config)


@dataclass(slots=True)
class Bench:
    """A session, its tuner, and the plain entries worth timing of each kind."""

    session: Session
    tuner: Tuner[Kind, Entry]
    winners: dict[Kind, list[Entry]] = field(default_factory=dict)

    def compile_all(self, cases: Sequence[Case]) -> None:
        """Every entry of every kind into the cache, in parallel."""
        keys = dict.fromkeys((case.kind, e) for case in cases for e in all_entries(case, self.session.options))
        self.tuner.compile_all({(kind, entry): functools.partial(launch_on_cpu, entry, kind) for kind, entry in keys})

    def best_plain(self, kind: Kind) -> list[Entry]:
        """The plain entries worth timing at every size."""
        if kind not in self.winners:
            self.winners[kind] = self._sweep(Case(kind, *SWEEP_SIZE))
        return self.winners[kind]

    def _sweep(self, case: Case) -> list[Entry]:
        options = self.session.options
        problem = Problem.of(case, self.session.device, options.seed)
        plain = [entry for entry in all_entries(case, options) if entry.kernel == "plain"]
        makers = {entry: functools.partial(problem.variant, entry) for entry in plain}
        return fastest_entries(self.tuner.compare(case.kind, str(case), case.flops, makers), options.keep)

    def checked(self, case: Case) -> Record:
        """The record of a case that is checked."""
        problem = Problem.of(case, self.session.device, self.session.options.seed)
        return {"case": case.as_json(), "check": check(problem, self.session.options.repeats)}

    def timed(self, case: Case) -> Record:
        """The record of a case that is checked and, unless the flags say otherwise, timed."""
        record, options = self.checked(case), self.session.options
        if options.no_timing:
            return record
        l2_bytes = torch.cuda.get_device_properties(self.session.device).L2_cache_size
        problem = Problem.of(case, self.session.device, options.seed, input_sets(case.bytes, l2_bytes))
        default = default_config(case.m, case.n, case.kind.variant, case.kind.b_transposed)
        entries = dict.fromkeys([Entry("plain", default), *self.best_plain(case.kind)])
        plain = [problem.variant(entry) for entry in entries]
        ours = [problem.variant(Entry("specialized", default))]
        others = [] if options.no_peers else problem.peer_variants()
        return {**record, "times": contest(self.session, case.flops, plain, ours, others)}


# ---------------------------------------------------------------------------------------------- report and flags


def progress(record: Record) -> str:
    """A line about one case."""
    text = f"error ratio {record['check']['ratio']:.3f}"
    if "times" in record:
        text += f", {record['times']['plain']['ratio']:.3f} x plain"
    return text


def tables(results: Record) -> list[Table]:
    """Speed by case; nothing for a run that only checks."""
    rows = tuple(_row(record) for record in results["cases"] if "times" in record)
    columns = ("case", "plain", "its tile", "wspec", "x plain", "cuBLAS", "x cuBLAS", "error ratio", "same bits")
    return [Table("Matrix product, TFLOP/s", columns, rows)] if rows else []


def _row(record: Record) -> tuple[str, ...]:
    times, checked = record["times"], record["check"]
    plain, ours, peer = times["plain"], times["specialized"], times.get("cuBLAS", {})
    return (
        record["name"],
        number(plain["tflops"]),
        plain["name"].removeprefix("plain "),
        number(ours["tflops"]),
        number(plain["ratio"], 3),
        number(peer.get("tflops")),
        number(peer.get("ratio"), 3),
        number(checked["ratio"], 3),
        "yes" if checked["identical"] else "NO",
    )


def notes(results: Record) -> list[str]:
    """What the table comes to, what was wrong and what was left out."""
    timed = [record["times"] for record in results["cases"] if "times" in record]
    said = []
    if timed:
        mean = geometric_mean(times["plain"]["ratio"] for times in timed)
        said.append(f"{mean:.3f} x plain, geometric mean over {len(timed)} cases")
    for record in results["cases"]:
        if "failure" in record:
            said.append(f"failed: {record['name']}: {record['failure']}")
        elif not (record["check"]["accurate"] and record["check"]["identical"]):
            said.append(f"wrong: {record['name']}: {record['check']}")
    said += [f"did not build: {item['kind']} {item['entry']}" for item in results["compiling"]]
    return said + [f"not run: {text}" for text in results["not_run"]]


def _size(text: str) -> tuple[int, int, int]:
    """M, N and K of "MxNxK"; multiples of 8, as rows of 16 bytes are. Raises ArgumentTypeError."""
    parts = text.split("x")
    if len(parts) != 3 or not all(part.isdecimal() and int(part) > 0 and int(part) % 8 == 0 for part in parts):
        raise argparse.ArgumentTypeError(f"{text!r}: expected MxNxK, multiples of 8, for example 4096x4096x4096")
    m, n, k = map(int, parts)
    return m, n, k


def parser() -> argparse.ArgumentParser:
    """The command line's flags."""
    made = argparse.ArgumentParser(prog="python -m wspec.lab.bench.matmul", description="Measure the matrix product.")
    made.add_argument("--variants", nargs="+", choices=VARIANTS, default=VARIANTS)
    made.add_argument("--dtypes", nargs="+", choices=tuple(DTYPES), default=("bf16",))
    made.add_argument("--quick", action="store_true", help="one size, 7 rounds (3 with --sustained), no odd sizes")
    made.add_argument("--sizes", nargs="+", type=_size, metavar="MxNxK", help="these sizes alone, and no odd ones")
    add_arguments(made, "matmul")
    return made


def main(argv: Sequence[str] | None = None) -> int:
    """0 when every case ran and was right, 1 when one did not or was not, 2 when nothing could be run."""
    options = parser().parse_args(argv)
    if options.quick and options.sustained is None:
        options.rounds = 7
    session = start(options)
    if session is None:
        return 2
    kinds = [Kind(v, transposed, d) for d in options.dtypes for v in options.variants for transposed in (False, True)]
    sizes = options.sizes or ((SWEEP_SIZE,) if options.quick else SIZES)
    main_list = [Case(kind, *size) for kind in kinds for size in sizes]
    odd_list = [] if options.quick or options.sizes else [Case(kind, *size) for kind in kinds for size in ODD_SIZES]
    bench = Bench(session, Tuner(session))
    bench.compile_all(main_list)
    run_cases(session, main_list, bench.timed, progress)
    run_cases(session, odd_list, bench.checked, progress)
    return finish(session, tables, notes)


if __name__ == "__main__":
    sys.exit(main())

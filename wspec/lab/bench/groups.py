"""`python -m wspec.lab.bench.groups`: attention with one to four consumer warp groups on an SM, and why.

Each arrangement's registers, shared memory and blocks; its speed, predicted and measured in shuffled rounds beside
FlashAttention-3 (with FA3_ROOT) after a comparison with float32; and how busy units are, predicted and counted (`ncu`).
bf16, 16384 tokens, hidden size 2048. `--predict` needs no GPU; `--load FILE` takes over what an earlier run found.
"""

from __future__ import annotations

import argparse
import functools
import json
import re
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

from wspec import api, bridge
from wspec.kernels.attention import attention_fwd, attention_reference
from wspec.lab.bench.accuracy import Error
from wspec.lab.bench.attention_cases import Case, Kind, main_case, make_inputs
from wspec.lab.bench.counters import Counted, CountersError, count, counted
from wspec.lab.bench.environment import NoGpu, environment, require_hopper
from wspec.lab.bench.groups_cases import FA3, Arrangement, arrangements, function, launch_of, make
from wspec.lab.bench.groups_report import Results, tables
from wspec.lab.bench.peers import peers
from wspec.lab.bench.precompile import precompile
from wspec.lab.bench.report import console, write_json, write_markdown
from wspec.lab.bench.simulator import Predictor
from wspec.lab.bench.timing import Timing, Variant, measure

CHECKED = 2  # heads of the first batch element compared with float32
ALLOWED_ERROR = 0.01  # relative, of a bf16 output against float32
_REGISTER = re.compile(r"\bR(\d+)\b")


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m wspec.lab.bench.groups", description=__doc__.split("\n")[0])
    parser.add_argument("--head-dim", type=int, nargs="*", default=[64, 128], choices=[64, 128])
    parser.add_argument("--seqlen", type=int, nargs="*", default=[4096, 16384])
    parser.add_argument(
        "--counted", type=int, default=4096, metavar="SEQLEN", help="the length whose units are counted"
    )
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--predict", action="store_true", help="no GPU: binaries and predictions alone")
    parser.add_argument(
        "--load", type=Path, nargs="*", default=[], help="results of earlier runs, not to be found again"
    )
    parser.add_argument("--launch", type=Path, help=argparse.SUPPRESS)  # the child of ncu: launch what FILE names
    parser.add_argument("--json", type=Path)
    parser.add_argument("--markdown", type=Path)
    args = parser.parse_args(argv)
    kinds = [Kind(head_dim, causal, "bf16") for head_dim in args.head_dim for causal in (False, True)]
    cases = [main_case(kind, seqlen) for kind in kinds for seqlen in args.seqlen]
    try:
        if args.launch:
            return _launch(json.loads(args.launch.read_text()))
        results = _results(args, cases)
    except NoGpu as error:
        print(f"error: {error}; --predict needs none", file=sys.stderr)
        return 2
    made = tables(cases, results)
    for table in made:
        table.show(console())
    if args.markdown:
        write_markdown(args.markdown, made)
    return 0


def _results(args: argparse.Namespace, cases: Sequence[Case]) -> Results:
    """What was loaded, and what was missing there; saved after every step."""
    results = Results.merged([json.loads(path.read_text()) for path in args.load])

    def save() -> None:
        if args.json:
            write_json(args.json, results.as_json())

    if not args.predict:
        _on_the_gpu(args, cases, results, save)
    predictor = Predictor(api.machine_here(), 0.0)
    for case in cases:
        for one in arrangements(case.kind.head_dim):
            _predict(case, one, predictor, results)
        save()
    return results


# ----------------------------------------------------------------------------------------- without a GPU


def _predict(case: Case, one: Arrangement, predictor: Predictor, results: Results) -> None:
    """The binary of an arrangement, once for all lengths, and the simulator's prediction for this one."""
    binaries = results.binaries.setdefault(str(case.kind), {})
    if str(one) not in binaries:
        binaries[str(one)] = _binary(case, one)
    predicted = results.predicted.setdefault(str(case), {})
    if str(one) not in predicted:
        found = predictor.predict(one.point(case))
        predicted[str(one)] = {"us": found.microseconds, "mhz": found.clock_mhz, **found.utilization}


def _binary(case: Case, one: Arrangement) -> dict[str, Any]:
    point = one.point(case)
    report = api.offline(attention_fwd, point.signature, point.constexprs, **point.options).outcome()
    if report.plan is None or not report.specialized:
        raise SystemExit(f"error: {case.kind}, {one}: not specialized: {report.reason}")
    used = 1 + max(int(number) for number in _REGISTER.findall(bridge.sass_text(report.kernel.asm["cubin"])))
    return {
        "registers": report.plan.consumer.registers, "registers_used": used, "spills": report.resources.spill_bytes,
        "shared_bytes": report.resources.shared_bytes, "blocks": report.plan.blocks_per_sm,
    }  # fmt: skip


# --------------------------------------------------------------------------------------------- on a GPU


def _on_the_gpu(args: argparse.Namespace, cases: Sequence[Case], results: Results, save: Callable[[], None]) -> None:
    """Times, those of the length that is counted first, and counters right behind them; saved after every step."""
    timed = [case for case in cases if str(case) not in results.measured]
    profiled = [case for case in cases if case.seqlen_q == args.counted and str(case) not in results.counters]
    if not timed and not profiled:
        return
    device = require_hopper()
    if timed:
        results.environment = environment()
        _compile(timed)
    for case in sorted(timed, key=lambda case: case.seqlen_q != args.counted):
        if case.seqlen_q != args.counted:
            _count(profiled, results, save)
            profiled = []
        results.measured[str(case)] = _measured(case, device, args.rounds)
        save()
    _count(profiled, results, save)


def _count(cases: Sequence[Case], results: Results, save: Callable[[], None]) -> None:
    """Without ncu, or where it fails, that is said, and the columns stay empty."""
    if cases:
        try:
            results.counters |= _counters(cases, results)
        except CountersError as error:
            print(f"no counters: {error}", file=sys.stderr)
        save()


def _compile(cases: Sequence[Case]) -> None:
    kinds = {case.kind: case for case in cases}
    makes = [functools.partial(make, case, one) for case in kinds.values() for one in arrangements(case.kind.head_dim)]
    for made, failure in zip(makes, precompile(list(makes)), strict=True):
        if failure is not None:
            print(f"{made.args[0]}, {made.args[1]}: {failure[:200]}", file=sys.stderr)


def _measured(case: Case, device: torch.device, rounds: int) -> dict[str, list[float]]:
    """Microseconds of each round, by arrangement; every output has been compared with float32 before."""
    q, k, v = make_inputs(case, device, 0)
    wanted = exact(case, q, k, v)
    variants = []
    for one in arrangements(case.kind.head_dim):
        launch, out, lse = launch_of(case, one, q, k, v)
        launch.run(function(one))
        errors = [Error.of(got[:1, :CHECKED], want).relative for got, want in zip((out, lse), wanted, strict=True)]
        if not max(errors) < ALLOWED_ERROR:
            raise SystemExit(
                f"error: {case}, {one}: WRONG, relative error {errors[0]:.3g}, of log-sum-exp {errors[1]:.3g}"
            )
        variants.append(Variant(str(one), (functools.partial(launch.run, function(one)),)))
    variants += [Variant(FA3, (p.make(q, k, v, case.kind.causal),), p.around) for p in peers() if p.name == "FA3"]
    timings = measure(variants, rounds=rounds)
    for name, one_timing in timings.items():
        print(f"{case}, {name}: {case.flops / one_timing.median_us / 1e6:.1f} TFLOP/s", flush=True)
    return {name: list(timing.samples_us) for name, timing in timings.items()}


def exact(case: Case, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Output and log-sum-exp of CHECKED heads of the first batch element, in float32."""
    few = [tensor[:1, :CHECKED] for tensor in (q, k, v)]
    scale = case.kind.head_dim**-0.5
    out, lse = attention_reference(*few, causal=case.kind.causal, scale=scale, dtype=torch.float32)
    return out, lse


def _counters(cases: Sequence[Case], results: Results) -> dict[str, dict[str, dict[str, float]]]:
    """Case -> arrangement -> quantity -> value, of one launch each: the arrangements with their better turns."""
    jobs = []
    for case in cases:
        times = {name: Timing(tuple(samples)) for name, samples in results.measured[str(case)].items()}
        for one in arrangements(case.kind.head_dim):
            if results.better(case, one) == one:
                jobs.append((case, str(one)))
        jobs += [(case, FA3)] if FA3 in times else []
    with tempfile.TemporaryDirectory(prefix="wspec-") as folder:
        path = Path(folder) / "launches.json"
        path.write_text(json.dumps([[c.kind.head_dim, c.kind.causal, c.seqlen_q, name] for c, name in jobs]))
        kernels = count([sys.executable, "-m", "wspec.lab.bench.groups", "--launch", str(path)])
    found: dict[str, dict[str, dict[str, float]]] = {}
    for (case, name), one_counted in zip(jobs, matched([name for _, name in jobs], kernels), strict=True):
        found.setdefault(str(case), {})[name] = dict(one_counted.values)
    return found


def matched(names: Sequence[str], kernels: Sequence[Counted]) -> list[Counted]:
    """The kernel of each launch. Ours launch one each; FlashAttention-3 may launch small ones beside its main one.

    Raises CountersError where the numbers of kernels do not fit.
    """
    own = [one for one in kernels if attention_fwd.__name__ in one.kernel]
    others = [at for at, one in enumerate(kernels) if attention_fwd.__name__ not in one.kernel]
    wanted = sum(name == FA3 for name in names)
    longest = sorted(others, key=lambda at: kernels[at].values.get("ns", 0.0), reverse=True)[:wanted]
    theirs = [kernels[at] for at in sorted(longest)]
    if len(own) != len(names) - wanted or len(theirs) != wanted:
        raise CountersError(f"{len(names)} launches, but ncu saw {len(own)} of our kernels and {len(others)} others")
    return [theirs.pop(0) if name == FA3 else own.pop(0) for name in names]


def _launch(jobs: Sequence[tuple[int, bool, int, str]]) -> int:
    """Launch each (head dimension, causal, length, name) twice: once to load it, and once `counted()`."""
    device = require_hopper()
    for head_dim, causal, seqlen, name in jobs:
        case = main_case(Kind(head_dim, causal, "bf16"), seqlen)
        q, k, v = make_inputs(case, device, 0)
        run: Callable[[], object]
        if name == FA3:
            run = next(peer for peer in peers() if peer.name == "FA3").make(q, k, v, causal)
        else:
            one = next(one for one in arrangements(head_dim) if str(one) == name)
            run = functools.partial(launch_of(case, one, q, k, v)[0].run, function(one))
        run()
        with counted():
            run()
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""`python -m wspec.lab.bench.exponentials`: attention with a share of its exponentials on the FMA units.

Times every share beside FlashAttention-3 (with FA3_ROOT) in shuffled rounds, after comparing each kernel's output and
log-sum-exp with float32; bf16, 16384 tokens, hidden size 2048, at the tile that `attention` picks. `--predict` only
predicts and needs no GPU.
"""

from __future__ import annotations

import argparse
import functools
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

import wspec
from wspec.kernels.attention import Launch, attention_fwd, attention_reference, default_config
from wspec.lab.bench.accuracy import Error
from wspec.lab.bench.attention_cases import HIDDEN, TOKENS, Case, Kind, main_case, make_inputs
from wspec.lab.bench.environment import environment, require_hopper
from wspec.lab.bench.measured_points import attention_point
from wspec.lab.bench.peers import peers
from wspec.lab.bench.precompile import precompile
from wspec.lab.bench.report import Table, console, write_json, write_markdown
from wspec.lab.bench.simulator import Predictor
from wspec.lab.bench.timing import Variant, measure

SHARES = ("mufu", "1/8", "1/4", "3/8", "1/2")
CHECKED = 2  # heads of the first batch element compared with float32


@functools.cache
def function(share: str) -> Any:
    """The specialized kernel with that share on the FMA units."""
    return wspec.compile(exp2=share, gate="off", chain="off", remarks="off")(attention_fwd)


def launch_of(
    case: Case, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor
) -> tuple[Launch, torch.Tensor, torch.Tensor]:
    """A launch at the tile that `attention` picks, its output and its log-sum-exp."""
    out, lse = torch.full_like(q, torch.nan), torch.full(q.shape[:3], torch.nan, device=q.device)
    config = default_config(case.kind.head_dim, case.seqlen_q, case.kind.causal)
    scale = case.kind.head_dim**-0.5
    return Launch.of(q, k, v, out, lse, causal=case.kind.causal, scale=scale, config=config), out, lse


def _make(case: Case, share: str) -> tuple[Any, Launch]:
    """For `precompile`: the kernel is specialized on the types of its arguments, not on their sizes."""
    q, k, v = (torch.empty(1, 1, 1, case.kind.head_dim, dtype=torch.bfloat16) for _ in range(3))
    config = default_config(case.kind.head_dim, case.seqlen_q, case.kind.causal)
    lse = torch.empty(1, 1, 1)
    return function(share), Launch.of(q, k, v, q, lse, causal=case.kind.causal, scale=1.0, config=config)


def run(case: Case, shares: Sequence[str], device: torch.device, rounds: int) -> list[dict[str, Any]]:
    """A row for each share and for FlashAttention-3: microseconds, ratio to no share, errors."""
    q, k, v = make_inputs(case, device, 0)
    wanted = exact(case, q, k, v)
    variants, errors = [], {}
    for share in shares:
        launch, out, lse = launch_of(case, q, k, v)
        launch.run(function(share))
        found = [Error.of(got[:1, :CHECKED], want).relative for got, want in zip((out, lse), wanted, strict=True)]
        if not found[0] < 0.01:
            raise SystemExit(f"{case} exp2={share}: WRONG, relative error {found[0]:.3g}")
        errors[share] = found
        variants.append(Variant(share, (functools.partial(launch.run, function(share)),)))
    variants += [Variant(p.name, (p.make(q, k, v, case.kind.causal),), p.around) for p in peers() if p.name == "FA3"]
    timings = measure(variants, rounds=rounds)
    first, fa3 = timings[shares[0]], timings.get("FA3")
    rows = []
    for name, one in timings.items():
        ratio_fa3 = one.speedup_over(fa3) if fa3 is not None else None
        error = errors.get(name, [None, None])
        rows.append(
            {"case": str(case), "share": name, "us": one.median_us, "tflops": case.flops / one.median_us / 1e6,
             "gain": one.speedup_over(first), "x_fa3": ratio_fa3, "spread": one.spread, "error": error[0],
             "lse_error": error[1]}
        )  # fmt: skip
        print(rows[-1], flush=True)
    return rows


def exact(case: Case, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Output and log-sum-exp of CHECKED heads of the first batch element, in float32."""
    few = [tensor[:1, :CHECKED] for tensor in (q, k, v)]
    scale = case.kind.head_dim**-0.5
    out, lse = attention_reference(*few, causal=case.kind.causal, scale=scale, dtype=torch.float32)
    return out, lse


def predictions(case: Case, shares: Sequence[str]) -> list[float]:
    """The simulator's microseconds for each share."""
    config = default_config(case.kind.head_dim, case.seqlen_q, case.kind.causal)
    tile = (config.block_m, config.block_n, config.num_warps, config.num_stages)
    key = (case.kind.head_dim, case.kind.causal, case.kind.dtype, case.seqlen_q)
    predictor = Predictor("h200", 0.0)
    made = attention_point(key, "specialized", tile, 1.0)
    return [predictor.predict(made.with_options(exp2=share)).microseconds for share in shares]


def _table(rows: list[dict[str, Any]], shares: Sequence[str]) -> Table:
    """Cases down, shares across: TFLOP/s with none, and what each share multiplies it by."""
    cases = list(dict.fromkeys(row["case"] for row in rows))
    lines = []
    for case in cases:
        own = {row["share"]: row for row in rows if row["case"] == case}
        rate = own[shares[0]]["tflops"]
        gains = [f"{own[share]['gain']:.3f}" for share in shares[1:]]
        over = own[shares[0]]["x_fa3"]
        lines.append((case, f"{rate:.0f}" if rate else "", *gains, f"{over:.3f}" if over else ""))
    title = f"Exponentials on the FMA units: attention, bf16, {TOKENS} tokens, hidden size {HIDDEN}"
    columns = ("case", "TFLOP/s, none", *(f"x with {share}" for share in shares[1:]), "none x FA3")
    return Table(title, columns, tuple(lines))


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m wspec.lab.bench.exponentials", description=__doc__.split("\n")[0])
    parser.add_argument("--head-dim", type=int, nargs="*", default=[64, 128])
    parser.add_argument("--seqlen", type=int, nargs="*", default=[4096, 16384])
    parser.add_argument("--share", nargs="*", default=list(SHARES), help="the first is what the others are compared to")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--predict", action="store_true", help="no GPU: predictions alone")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--markdown", type=Path)
    args = parser.parse_args(argv)
    kinds = [Kind(head_dim, causal, "bf16") for head_dim in args.head_dim for causal in (False, True)]
    cases = [main_case(kind, seqlen) for kind in kinds for seqlen in args.seqlen]
    rows: list[dict[str, Any]] = []
    if args.predict:
        for case in cases:
            us = predictions(case, args.share)
            rows += [
                {"case": str(case), "share": share, "us": one, "tflops": case.flops / one / 1e6, "gain": us[0] / one,
                 "x_fa3": None}
                for share, one in zip(args.share, us, strict=True)
            ]  # fmt: skip
    else:
        device = require_hopper()
        makes = [functools.partial(_make, case, share) for case in cases for share in args.share]
        for made, failure in zip(makes, precompile(list(makes)), strict=True):
            if failure is not None:
                print(f"{made.args}: {failure[:200]}", file=sys.stderr)
        for case in cases:
            rows += run(case, args.share, device, args.rounds)
    table = _table(rows, args.share)
    table.show(console())
    if args.json:
        write_json(args.json, {"environment": {} if args.predict else environment(), "rows": rows})
    if args.markdown:
        write_markdown(args.markdown, [table])
    return 0


if __name__ == "__main__":
    sys.exit(main())

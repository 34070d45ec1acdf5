"""The ladder: what each technique brings, alone and together, predicted and measured.

`python -m wspec.lab.bench.ladder [--head-dim 128] [--seqlen 16384] [--causal] [--json FILE] [--markdown FILE]` measures
attention on a Hopper GPU at one shape, bf16, 16384 tokens; `--predict` only predicts and needs no GPU.
"""

from __future__ import annotations

import argparse
import functools
import json
import statistics
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

import wspec
from wspec import api
from wspec.kernels import attention
from wspec.lab.bench.accuracy import Error
from wspec.lab.bench.attention_cases import HIDDEN, TOKENS
from wspec.lab.bench.measured_points import attention_point
from wspec.lab.bench.peers import peers
from wspec.lab.bench.precompile import precompile
from wspec.lab.bench.report import Table, console
from wspec.lab.bench.simulator import Predictor
from wspec.lab.bench.timing import Timing, Variant, measure
from wspec.lab.simulate.points import Point

TECHNIQUES = {
    "overlap": "QK of the next keys beside the softmax",
    "ping_pong": "groups take turns",
    "persistent": "blocks walk through tiles",
    "elide_barriers": "no barriers that order nothing",
    "hold_waits": "waits for products stay behind what exponentials need",
    "epilogue_overlap": "a tile is finished beside the next one's first QK",
}
"""Option -> what it switches on."""

STEPS: tuple[tuple[str, ...], ...] = (
    (),
    ("overlap",),
    ("persistent",),
    ("overlap", "ping_pong"),
    ("overlap", "persistent"),
    ("elide_barriers",),
    ("overlap", "hold_waits"),
    ("overlap", "ping_pong", "hold_waits"),
    ("overlap", "ping_pong", "persistent"),
    ("overlap", "ping_pong", "persistent", "elide_barriers"),
    ("overlap", "ping_pong", "persistent", "elide_barriers", "hold_waits"),
    ("overlap", "persistent", "epilogue_overlap"),
    ("overlap", "ping_pong", "persistent", "epilogue_overlap"),
)
"""What is on; turns and held waits are of pipelined loops, late ends of loops over tiles: none stands alone."""


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m wspec.lab.bench.ladder", description=__doc__.split("\n")[0])
    parser.add_argument("--head-dim", type=int, default=128, choices=attention.HEAD_DIMS)
    parser.add_argument("--seqlen", type=int, default=16384)
    parser.add_argument("--causal", action="store_true")
    parser.add_argument("--predict", action="store_true", help="no GPU: predictions alone")
    parser.add_argument("--measured", type=Path, metavar="JSON", help="take the times from an earlier run's --json")
    parser.add_argument("--clock", type=float, default=0.0, metavar="MHZ", help="of the prediction")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--markdown", type=Path)
    args = parser.parse_args(argv)
    if not (args.predict or args.measured or torch.cuda.is_available()):
        print("error: measuring needs a GPU; --predict and --measured do not", file=sys.stderr)
        return 2
    timings = _read(args.measured) if args.measured else {} if args.predict else _measured(args)
    if args.json:
        args.json.write_text(json.dumps({name: one.samples_us for name, one in timings.items()}, indent=1) + "\n")
    found = _table(args, timings)
    found.show(console())
    if args.markdown:
        args.markdown.write_text(found.markdown())
    return 0


def _read(path: Path) -> dict[str, Timing]:
    """What `--json` wrote. Raises SystemExit where it did not."""
    try:
        found = json.loads(path.read_text())
        return {name: Timing(tuple(map(float, samples))) for name, samples in found.items()}
    except (OSError, ValueError, TypeError, AttributeError) as error:
        raise SystemExit(f"error: {path}: not the samples of a ladder: {error}") from None


def step_name(step: tuple[str, ...]) -> str:
    return " + ".join(("specialized", *step))


def _options(step: tuple[str, ...]) -> dict[str, Any]:
    return {name: name in step for name in TECHNIQUES}


def kernels(head_dim: int, seqlen: int, causal: bool) -> dict[str, tuple[Any, attention.Config]]:
    """By name: the plain kernel at the tiles of its grid that have two stages, and each step at the default tile."""
    found: dict[str, tuple[Any, attention.Config]] = {}
    for config in attention.plain_configs(head_dim):
        if config.num_stages == 2 and config.block_n in (64, 128):
            found[f"plain {config}"] = (attention.attention_fwd, config)
    own = replace(attention.default_config(head_dim, seqlen, causal), coarsening=1)
    for step in STEPS:
        found[step_name(step)] = (wspec.compile(attention.attention_fwd, gate="off", **_options(step)), own)
    return found


def launch_on_cpu(head_dim: int, seqlen: int, causal: bool, name: str) -> tuple[Any, attention.Launch]:
    """For `precompile`: the kernel is specialized on the types of its arguments, not on their sizes."""
    kernel, config = kernels(head_dim, seqlen, causal)[name]
    q, k, v = (torch.empty(1, 1, 1, head_dim, dtype=torch.bfloat16) for _ in range(3))
    lse = torch.empty(1, 1, 1)
    return kernel, attention.Launch.of(q, k, v, q, lse, causal=causal, scale=1.0, config=config)


def _measured(args: argparse.Namespace) -> dict[str, Timing]:
    heads, batch = HIDDEN // args.head_dim, TOKENS // args.seqlen
    shape = (batch, args.seqlen, heads, args.head_dim)
    q, k, v = (torch.randn(shape, device="cuda", dtype=torch.bfloat16).transpose(1, 2) for _ in range(3))
    found = kernels(args.head_dim, args.seqlen, args.causal)
    make = functools.partial(launch_on_cpu, args.head_dim, args.seqlen, args.causal)
    precompile([functools.partial(make, name) for name in found])
    few = [tensor[:1, :1] for tensor in (q, k, v)]
    wanted = attention.attention_reference(*few, causal=args.causal, scale=args.head_dim**-0.5)[0]
    variants = []
    for name, (kernel, config) in found.items():
        run = functools.partial(attention.attention, q, k, v, causal=args.causal, config=config, kernel=kernel)
        error = Error.of(run()[:1, :1], wanted).relative
        if not error < 0.01:
            raise SystemExit(f"{name}: WRONG, relative error {error:.3g}")
        variants.append(Variant(name, (run,)))
    variants += [
        Variant(peer.name, (peer.make(q, k, v, args.causal),), peer.around) for peer in peers() if peer.name != "FA2"
    ]
    torch.cuda.synchronize()
    return measure(variants, rounds=11)


def point(args: argparse.Namespace, step: tuple[str, ...]) -> Point:
    """The launch of a step, for the predictor; its time is not known."""
    own = attention.default_config(args.head_dim, args.seqlen, args.causal)
    tile = (own.block_m, own.block_n, own.num_warps, own.num_stages)
    made = attention_point((args.head_dim, args.causal, "bf16", args.seqlen), "specialized", tile, 1.0)
    return made.with_options(**_options(step))


def _foretold(args: argparse.Namespace) -> dict[str, float]:
    """Microseconds of each step, at one clock, as they share it where they take turns: the mean of each one's own."""
    predictor = Predictor(api.machine_here(), args.clock)
    found = {step_name(step): predictor.predict(point(args, step)) for step in STEPS}
    shared = statistics.mean(one.clock_mhz for one in found.values())
    return {name: one.cycles / shared for name, one in found.items()}


def _table(args: argparse.Namespace, timings: dict[str, Timing]) -> Table:
    flop = 4 * TOKENS * args.seqlen * HIDDEN / (2 if args.causal else 1)
    plains = {name: one for name, one in timings.items() if name.startswith("plain")}
    best = min(plains, key=lambda name: plains[name].median_us) if plains else ""
    names = [step_name(step) for step in STEPS]
    foretold = _foretold(args)
    rows: list[tuple[str, ...]] = []
    shown = [best, *names, *(name for name in timings if name not in plains and name not in names)]
    for name in (one for one in shown if one):
        us = foretold.get(name)
        predicted = f"{flop / us / 1e6:.0f}" if us else ""
        one = timings.get(name)
        measured = f"{flop / one.median_us / 1e6:.0f}" if one is not None else ""
        over = f"{one.speedup_over(timings[best]):.3f}" if one is not None and best else ""
        first = f"{one.speedup_over(timings[names[0]]):.3f}" if one is not None else ""
        gain = f"{foretold[names[0]] / us:.3f}" if us else ""
        rows.append((name, measured, over, first, predicted, gain, f"{100 * one.spread:.1f}" if one else ""))
    mask = "causal" if args.causal else "full"
    title = f"The ladder: D={args.head_dim}, S={args.seqlen}, {mask}, bf16, TFLOP/s"
    columns = ("what is on", "measured", "x plain", "x the first step", "predicted", "x predicted first", "spread %")
    return Table(title, columns, tuple(rows))


if __name__ == "__main__":
    sys.exit(main())

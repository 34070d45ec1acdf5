"""`python -m wspec.lab.bench.library_attention FILE`: attention of somebody else's file, as it is and under wspec.

FILE defines `attention(q, k, v, causal, scale)`, whose last arguments may be more switches, as Triton's tutorial 06
does; tensors are [B, H, S, D]. It is imported twice, so that each copy tunes its own kernels, and one of them is
launched under `wspec.enable()`. Both take turns with FlashAttention-3 (with FA3_ROOT); the first head's outputs are
compared with float32 before. fp16, 16384 tokens, hidden size 2048.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import importlib.util
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

import wspec
from wspec.kernels.attention import attention_reference
from wspec.lab.bench.accuracy import Error
from wspec.lab.bench.attention_cases import HIDDEN, TOKENS
from wspec.lab.bench.peers import peers
from wspec.lab.bench.report import Table, console
from wspec.lab.bench.timing import Timing, Variant, measure

SWITCHES = 2  # more that are tried, each of them off
WARM_LAUNCHES = 600  # of a size: so many until its trials and their second looks are over
MOST_ERROR = 0.01

Attention = Callable[..., torch.Tensor]


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m wspec.lab.bench.library_attention", description=__doc__)
    parser.add_argument("file", type=Path, metavar="FILE")
    parser.add_argument("--head-dim", type=int, nargs="*", default=[64, 128])
    parser.add_argument("--seqlen", type=int, nargs="*", default=[1024, 2048, 4096, 8192, 16384])
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--markdown", type=Path)
    args = parser.parse_args(argv)
    if not args.file.is_file():
        print(f"error: {args.file}: no such file", file=sys.stderr)
        return 2
    if not torch.cuda.is_available():
        print("error: measuring needs a GPU", file=sys.stderr)
        return 2
    both = attention_of(args.file, "plain_copy"), attention_of(args.file, "wspec_copy")
    found: dict[str, dict[str, Timing]] = {}
    for head_dim in args.head_dim:
        for causal in (False, True):
            for seqlen in args.seqlen:
                name = f"D={head_dim} {'causal' if causal else 'full'} S={seqlen}"
                found[name] = _measured(both, head_dim, causal, seqlen, args.rounds)
                _write(args, found)  # what there is, should the time be over
    table(found).show(console())
    return 0


def attention_of(file: Path, name: str) -> Attention:
    """The function of a copy of its own of the file. Raises SystemExit where it has none."""
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # Triton looks a kernel's globals up there
    spec.loader.exec_module(module)
    function: Attention | None = getattr(module, "attention", None)
    if function is None or not callable(function):
        raise SystemExit(f"error: {file} defines no attention(q, k, v, causal, scale)")
    return function


def called(function: Attention, *args: Any) -> Callable[[], torch.Tensor]:
    """A launch with these arguments, and with as many switches off as it asks for."""
    for count in range(SWITCHES + 1):
        run = functools.partial(function, *args, *[False] * count)
        try:
            run()
        except TypeError:
            if count == SWITCHES:
                raise
            continue
        break
    return run


def _measured(
    both: tuple[Attention, Attention], head_dim: int, causal: bool, seqlen: int, rounds: int
) -> dict[str, Timing]:
    """By name, of one size."""
    batch, heads, scale = max(1, TOKENS // seqlen), HIDDEN // head_dim, head_dim**-0.5
    shape = (batch, heads, seqlen, head_dim)
    q, k, v = (torch.randn(shape, device="cuda", dtype=torch.float16) for _ in range(3))
    few = [tensor[:1, :1] for tensor in (q, k, v)]
    wanted = attention_reference(*few, causal=causal, scale=scale)[0]
    variants = []
    for name, function, around in (("plain", both[0], contextlib.nullcontext), ("wspec", both[1], wspec.enable)):
        with around():
            run = called(function, q, k, v, causal, scale)
            for _ in range(WARM_LAUNCHES):
                out = run()
        if not (error := Error.of(out[:1, :1], wanted).relative) < MOST_ERROR:
            raise SystemExit(f"{name}, {shape}: WRONG, relative error {error:.3g}")
        variants.append(Variant(name, (run,), around))
    variants += [Variant(one.name, (one.make(q, k, v, causal),)) for one in peers() if one.name == "FA3"]
    return measure(variants, rounds=rounds)


def table(found: dict[str, dict[str, Timing]]) -> Table:
    """Speed under wspec over the file's own and over FlashAttention-3's."""
    rows = []
    for name, times in found.items():
        ours, third = times["wspec"], times.get("FA3")
        over = [ours.speedup_over(other) if other else None for other in (times["plain"], third)]
        shown = (f"{one:.3f}" if one else "-" for one in over)
        rows.append((name, f"{times['plain'].median_us:.1f}", f"{ours.median_us:.1f}", *shown))
    return Table("attention of a library", ("case", "plain us", "wspec us", "x plain", "x FA3"), tuple(rows))


def _write(args: argparse.Namespace, found: dict[str, dict[str, Timing]]) -> None:
    if args.json:
        data = {name: {kind: one.samples_us for kind, one in times.items()} for name, times in found.items()}
        args.json.write_text(json.dumps(data, indent=1) + "\n")
    if args.markdown:
        args.markdown.write_text(table(found).markdown())


if __name__ == "__main__":
    raise SystemExit(main())

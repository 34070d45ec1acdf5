"""`wspec demo`: FlashAttention from a plain Triton kernel to a specialized binary, proved and run on the CPU.

Where there is a Hopper GPU it runs there too, and is timed.
"""

from __future__ import annotations

import argparse
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

from wspec.cli.compile_command import verdict, write_stages
from wspec.cli.screen import remark_text, show
from wspec.cli.subject import KernelSubject
from wspec.model.machine import load_machine
from wspec.show.binaries import binaries_view
from wspec.show.tables import plan_view
from wspec.specs.kernel_file import load_kernel
from wspec.specs.signature import Signature
from wspec.specs.variants import spec_path, variant_signature

if TYPE_CHECKING:
    import torch

KERNEL = "wspec.kernels.attention:attention_fwd"
BATCH, SEQLEN = 4, 4096
SEEDS = 2  # of the runs on the CPU


def run(args: argparse.Namespace) -> int:
    """0 when the kernel was specialized without spills, is proved, and is as accurate as it must be wherever it ran."""
    variant = f"d{args.head_dim}{'_causal' if args.causal else ''}"
    kernel = load_kernel(KERNEL)
    signature = variant_signature(spec_path(kernel.file), kernel.name, variant, vars(kernel.module))
    subject, plain = (_subject(kernel.function, signature, enabled) for enabled in (True, False))
    show(f"{kernel.name}, {variant}: plain Triton, no change to its source ({_shown(kernel.file)})", "")
    binary = subject.binary
    show(*(remark_text(remark) for remark in binary.remarks), "")
    if binary.proof:
        show(binary.proof, "")
    if subject.front.plan is not None:
        show(plan_view(subject.front.plan, subject.operations, load_machine(subject.options.machine)), "")
    facts = {"plain": plain.binary.resources, "specialized": binary.resources}
    show(binaries_view(facts), "")
    _show_cubin(subject, args.output)
    if not binary.specialized or facts["specialized"].spill_bytes:
        return verdict(subject, binary.remarks, binary.specialized) or 1
    if args.no_run:
        return 0
    return _on_the_cpu(variant) or _on_the_card(signature, args)


def _subject(function: Any, signature: Signature, enabled: bool) -> KernelSubject:
    from wspec import api

    options = {**signature.options, "enabled": enabled}
    return KernelSubject(api.offline(function, signature.types, signature.values, **options))


def _shown(path: Path) -> str:
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else str(path)


def _show_cubin(subject: KernelSubject, folder: str | None) -> None:
    """Its size, or where it is now."""
    size = len(subject.binary.cubin)
    if folder is None:
        show(f"cubin for sm_90a: {size} bytes; -o FOLDER writes it, with every stage", "")
    else:
        show(f"cubin for sm_90a: {size} bytes, in {folder} ({write_stages(subject, Path(folder))} files)", "")


def _on_the_cpu(variant: str) -> int:
    """What `wspec run` does: plain and specialized against float64, on inputs that end within a tile."""
    from wspec.cli import run_command
    from wspec.cli.parser import make_parser

    show("on the CPU, by wspec's executor: a small problem, tasks in random and adversarial orders")
    code = run_command.run(make_parser().parse_args(["run", KERNEL, "--variant", variant, "--seeds", str(SEEDS)]))
    show("")
    return code


# -------------------------------------------------------------------------------------------- on the card


def _on_the_card(signature: Signature, args: argparse.Namespace) -> int:
    """Accuracy and time where there is a Hopper GPU; a sentence where there is none."""
    from wspec.lab.bench.environment import NoGpu, require_hopper

    try:
        device = require_hopper()
    except NoGpu as error:
        show(f"not run on a GPU: {error}")
        return 0
    return _measure(signature, args, device)


def _measure(signature: Signature, args: argparse.Namespace, device: torch.device) -> int:
    import torch

    from wspec.kernels.attention import attention_fwd, attention_fwd_ws, attention_reference
    from wspec.lab.bench.timing import Variant, measure

    torch.manual_seed(0)
    shape = (BATCH, 2048 // args.head_dim, SEQLEN, args.head_dim)
    q, k, v = (torch.randn(shape, device=device, dtype=torch.bfloat16) for _ in range(3))
    expected, _ = attention_reference(q, k, v, causal=args.causal)
    variants, errors = [], {}
    for name, kernel in (("plain", attention_fwd), ("specialized", attention_fwd_ws())):
        out = torch.full_like(q, math.nan)
        launch = _launch(signature, (q, k, v, out), args.causal)
        launch.run(kernel)
        errors[name] = (out.float() - expected).abs().max().item()
        variants.append(Variant(name, (lambda launch=launch, kernel=kernel: launch.run(kernel),)))  # type: ignore[misc]
    del expected
    timings = measure(variants, rounds=9)
    flops = 4 * BATCH * 2048 * SEQLEN * SEQLEN * (0.5 if args.causal else 1.0)
    show(f"on {torch.cuda.get_device_name(device)}: batch {BATCH}, {shape[1]} heads, {SEQLEN} keys, bf16")
    for name, timing in timings.items():
        rate = flops / timing.median_us / 1e6
        show(f"  {name:<12} {timing.median_us:8.1f} us  {rate:6.0f} TFLOP/s  largest error {errors[name]:.2e}")
    ratio = timings["specialized"].speedup_over(timings["plain"])
    show(f"  {ratio:.2f} x the plain kernel at the same tile; `wspec bench attention` compares with its best tile")
    accurate = errors["specialized"] <= 1.1 * errors["plain"]
    show("  the specialized kernel is as accurate as the plain one" if accurate else "  WRONG: it is less accurate")
    return 0 if accurate else 1


def _launch(signature: Signature, tensors: tuple[torch.Tensor, ...], causal: bool) -> Any:
    """A launch with the tile that was compiled above."""
    import torch

    from wspec.kernels.attention import Config, Launch

    q, k, v, out = tensors
    values, options = signature.values, signature.options
    config = Config(values["BLOCK_M"], values["BLOCK_N"], options["num_warps"], options["num_stages"])
    lse = torch.empty(q.shape[:3], dtype=torch.float32, device=q.device)
    return Launch.of(q, k, v, out, lse, causal=causal, scale=q.shape[-1] ** -0.5, config=config)

"""Operators of fla and Liger, each with what PyTorch computes for the same: fla's own naive forms, or a line here."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

BATCH, LENGTH, HEADS, WIDTH = 2, 333, 4, 64
LONG, WIDE = 1000, 128

Inputs = Mapping[str, Tensor]
Make = Callable[[Inputs], Tensor]


@dataclass(frozen=True, slots=True)
class Operator:
    """`shapes`: inputs by name; what kind one is of says its first letter (`made`). `backward`: gradients are compared
    too, of every floating input."""

    shapes: Mapping[str, tuple[int, ...]]
    theirs: Make
    reference: Make
    backward: bool = True


def made(operator: Operator, device: str) -> dict[str, Tensor]:
    """The inputs, the same in every process. g: logarithms of decays, in 32 bits. b: factors below 1. k: rows of length
    1. t: classes, i: experts. p: positive, adding up to 1 in rows. Others: normal numbers."""
    draw = torch.Generator(device="cpu").manual_seed(0)
    found = {}
    for name, shape in operator.shapes.items():
        value = torch.randn(shape, generator=draw)
        if name[0] == "g":
            tensor = F.logsigmoid(value + 3)
        elif name[0] == "b":
            tensor = value.sigmoid().bfloat16()
        elif name[0] == "k":
            tensor = F.normalize(value, dim=-1).bfloat16()
        elif name[0] == "p":
            tensor = value.softmax(-1)
        elif name[0] in "ti":
            limit = CLASSES if name[0] == "t" else EXPERTS
            tensor = torch.randint(0, limit, shape, generator=draw)
        else:
            tensor = (value * 0.5).bfloat16()
        found[name] = tensor.to(device)
    return found


def results(operator: Operator, run: Make, device: str) -> dict[str, Tensor]:
    """The output, and gradients by the names of inputs, on the processor."""
    inputs = made(operator, device)
    for tensor in inputs.values():
        tensor.requires_grad_(operator.backward and tensor.is_floating_point())
    out = run(inputs)
    found = {"output": out}
    if operator.backward:
        draw = torch.Generator(device="cpu").manual_seed(1)
        out.backward(torch.randn(out.shape, generator=draw).to(out))
        found |= {name: tensor.grad for name, tensor in inputs.items() if tensor.grad is not None}
    return {name: tensor.detach().float().cpu() for name, tensor in found.items()}


def _fla(name: str) -> Any:
    return importlib.import_module(f"fla.ops.{name}")


def _liger(name: str) -> Any:
    return importlib.import_module(f"liger_kernel.ops.{name}")


def _flip(tensor: Tensor) -> Tensor:
    """Heads before positions, or back."""
    return tensor.transpose(1, 2)


CLASSES, EXPERTS, CHOSEN = 5000, 8, 2
_QKV = dict.fromkeys(("q", "k", "v"), (BATCH, LENGTH, HEADS, WIDTH))
_LONG = dict.fromkeys(("q", "k", "v"), (BATCH, LONG, HEADS, WIDE))
_GATE, _GATES = (BATCH, LENGTH, HEADS), (BATCH, LENGTH, HEADS, WIDTH)
_ROWS = (777, 1024)


def _rotated(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    half = x.shape[-1] // 2
    return x * cos + torch.cat([-x[..., half:], x[..., :half]], -1) * sin


def _rope(inputs: Inputs) -> tuple[Tensor, Tensor]:
    angles = torch.arange(LENGTH, device=inputs["q"].device)[:, None] * 10000.0 ** -torch.linspace(
        0, 1, WIDTH // 2, device=inputs["q"].device
    )
    both = torch.cat([angles, angles], -1)[None]
    return both.cos().bfloat16(), both.sin().bfloat16()


def _liger_rope(inputs: Inputs) -> Tensor:
    query, key = _liger("rope").LigerRopeFunction.apply(_flip(inputs["q"]), _flip(inputs["k"]), *_rope(inputs))
    return torch.cat([query, key], -1)


def _plain_rope(inputs: Inputs) -> Tensor:
    cos, sin = (one[:, None] for one in _rope(inputs))
    return torch.cat([_rotated(_flip(inputs[name]).float(), cos, sin) for name in ("q", "k")], -1)


def _experts(inputs: Inputs) -> Tensor:
    """Each token's experts, one after the other, in 32 bits."""
    x, up, down = (inputs[name].float() for name in ("x", "up", "down"))
    out = torch.zeros_like(x)
    for expert in range(EXPERTS):
        gate, value = (x @ up[expert].T).chunk(2, -1)
        weight = (inputs["p"].float() * (inputs["i"] == expert)).sum(-1, keepdim=True)
        out = out + weight * ((F.silu(gate) * value) @ down[expert].T)
    return out


def _liger_experts(inputs: Inputs) -> Tensor:
    function = _liger("fused_moe").LigerFusedMoEFunction
    experts = torch.stack([inputs["i"][:, 0], (inputs["i"][:, 0] + 1 + inputs["i"][:, 1] % (EXPERTS - 1)) % EXPERTS], 1)
    found = function.apply(inputs["x"], inputs["up"], inputs["down"], experts, inputs["p"])
    return found[0] if isinstance(found, tuple) else found


def _two_experts(inputs: Inputs) -> Tensor:
    first, second = inputs["i"][:, 0], inputs["i"][:, 1]
    chosen = torch.stack([first, (first + 1 + second % (EXPERTS - 1)) % EXPERTS], 1)
    return _experts({**inputs, "i": chosen})


OPERATORS: dict[str, Operator] = {
    "fla gla": Operator(
        {**_QKV, "g": _GATES},
        lambda x: _fla("gla").chunk_gla(x["q"], x["k"], x["v"], x["g"])[0],
        lambda x: _fla("gla.naive").naive_recurrent_gla(x["q"], x["k"], x["v"], x["g"])[0],
    ),
    "fla simple_gla": Operator(  # on Hopper fla refuses the gradient under this Triton (its issue 640)
        {**_QKV, "g": _GATE},
        lambda x: _fla("simple_gla").chunk_simple_gla(x["q"], x["k"], x["v"], x["g"])[0],
        lambda x: _fla("simple_gla.naive").naive_parallel_simple_gla(x["q"], x["k"], x["v"], x["g"])[0],
        backward=False,
    ),
    "fla retention": Operator(
        _QKV,
        lambda x: _fla("retention").chunk_retention(x["q"], x["k"], x["v"])[0],
        lambda x: _flip(_fla("retention.naive").naive_retention(_flip(x["q"]), _flip(x["k"]), _flip(x["v"]))),
    ),
    "fla linear_attn": Operator(
        _QKV,
        lambda x: _fla("linear_attn").chunk_linear_attn(x["q"], x["k"], x["v"], normalize=False)[0],
        lambda x: _fla("linear_attn.naive").naive_recurrent_linear_attn(x["q"], x["k"], x["v"])[0],
    ),
    "fla delta_rule": Operator(
        {**_QKV, "b": _GATE},
        lambda x: _fla("delta_rule").chunk_delta_rule(x["q"], x["k"], x["v"], x["b"])[0],
        lambda x: _flip(_fla("delta_rule.naive").delta_rule_recurrence(*(_flip(x[name]) for name in "qkvb"))[0]),
    ),
    "fla gated_delta_rule": Operator(
        {**_QKV, "g": _GATE, "b": _GATE},
        lambda x: _fla("gated_delta_rule").chunk_gated_delta_rule(x["q"], x["k"], x["v"], x["g"], x["b"])[0],
        lambda x: _fla("gated_delta_rule.naive").naive_recurrent_gated_delta_rule(*(x[name] for name in "qkvbg"))[0],
        backward=False,
    ),
    "fla kda": Operator(
        {**_QKV, "g": _GATES, "b": _GATE},
        lambda x: _fla("kda").chunk_kda(x["q"], x["k"], x["v"], x["g"], x["b"])[0],
        lambda x: _fla("kda.naive").naive_recurrent_kda(x["q"], x["k"], x["v"], x["g"], x["b"])[0],
        backward=False,
    ),
    "fla gsa": Operator(
        {**_QKV, "s": _GATES, "g": _GATES},
        lambda x: _fla("gsa").chunk_gsa(x["q"], x["k"], x["v"], x["s"], x["g"])[0],
        lambda x: _fla("gsa.naive").naive_recurrent_gsa(x["q"], x["k"], x["v"], x["s"], x["g"])[0],
    ),
    "fla hgrn": Operator(
        {"x": (BATCH, LENGTH, 512), "g": (BATCH, LENGTH, 512)},
        lambda x: _fla("hgrn").chunk_hgrn(x["x"].float(), x["g"])[0],
        lambda x: _fla("hgrn.naive").naive_recurrent_hgrn(x["x"].float(), x["g"])[0],
    ),
    "fla attn": Operator(
        _LONG,
        lambda x: _fla("attn").parallel_attn(x["q"], x["k"], x["v"]),
        lambda x: _fla("attn.naive").naive_parallel_attn(x["q"].float(), x["k"].float(), x["v"].float())[0],
    ),
    "fla forgetting_attn": Operator(
        {**_LONG, "g": (BATCH, LONG, HEADS)},
        lambda x: _fla("forgetting_attn").parallel_forgetting_attn(x["q"], x["k"], x["v"], x["g"]),
        lambda x: _fla("forgetting_attn.naive").naive_forgetting_attn(x["q"], x["k"], x["v"], x["g"]),
    ),
    "fla stickbreaking_attn": Operator(
        _LONG,
        lambda x: _fla("stickbreaking_attn").parallel_stickbreaking_attn(x["q"], x["k"], x["v"])[0],
        lambda x: _fla("stickbreaking_attn.naive").naive_stickbreaking_attn(x["q"], x["k"], x["v"])[0],
    ),
    "fla based": Operator(
        {"q": (BATCH, LONG, HEADS, 16), "k": (BATCH, LONG, HEADS, 16), "v": (BATCH, LONG, HEADS, WIDE)},
        lambda x: _fla("based").parallel_based(x["q"], x["k"], x["v"]),
        lambda x: _flip(_fla("based.naive").naive_parallel_based(*(_flip(x[name].float()) for name in "qkv"))),
    ),
    "liger rms_norm": Operator(
        {"x": _ROWS, "w": _ROWS[1:]},
        lambda x: _liger("rms_norm").LigerRMSNormFunction.apply(x["x"].clone(), x["w"], 1e-6),
        lambda x: F.rms_norm(x["x"].float(), _ROWS[1:], x["w"].float(), 1e-6),
    ),
    "liger layer_norm": Operator(
        {"x": _ROWS, "w": _ROWS[1:], "v": _ROWS[1:]},
        lambda x: _liger("layer_norm").LigerLayerNormFunction.apply(x["x"].clone(), x["w"], x["v"], 1e-5),
        lambda x: F.layer_norm(x["x"].float(), _ROWS[1:], x["w"].float(), x["v"].float(), 1e-5),
    ),
    "liger swiglu": Operator(
        {"x": _ROWS, "y": _ROWS},
        lambda x: _liger("swiglu").LigerSiLUMulFunction.apply(x["x"].clone(), x["y"].clone()),
        lambda x: F.silu(x["x"].float()) * x["y"].float(),
    ),
    "liger geglu": Operator(
        {"x": _ROWS, "y": _ROWS},
        lambda x: _liger("geglu").LigerGELUMulFunction.apply(x["x"].clone(), x["y"].clone()),
        lambda x: F.gelu(x["x"].float(), approximate="tanh") * x["y"].float(),
    ),
    "liger rope": Operator({"q": _GATES, "k": _GATES}, _liger_rope, _plain_rope),
    "liger softmax": Operator(
        {"x": _ROWS},
        lambda x: _liger("softmax").LigerSoftmaxFunction.apply(x["x"].clone()),
        lambda x: x["x"].float().softmax(-1),
    ),
    "liger cross_entropy": Operator(
        {"x": (777, CLASSES), "t": (777,)},
        lambda x: _first(_liger("cross_entropy").LigerCrossEntropyFunction.apply(x["x"].clone(), x["t"], None)),
        lambda x: F.cross_entropy(x["x"].float(), x["t"]),
    ),
    "liger fused_linear_cross_entropy": Operator(
        {"x": _ROWS, "w": (CLASSES, _ROWS[1]), "t": (777,)},
        lambda x: _first(_liger("fused_linear_cross_entropy").LigerFusedLinearCrossEntropyFunction.apply(
            x["x"].clone(), x["w"], x["t"])),
        lambda x: F.cross_entropy(x["x"].float() @ x["w"].float().T, x["t"]),
    ),
    "liger fused_moe": Operator(
        {"x": (777, 512), "up": (EXPERTS, 1024, 512), "down": (EXPERTS, 512, 512), "i": (777, CHOSEN),
         "p": (777, CHOSEN)},
        _liger_experts,
        _two_experts,
    ),
}  # fmt: skip


def _first(found: Any) -> Tensor:
    tensor: Tensor = found[0] if isinstance(found, tuple) else found
    return tensor

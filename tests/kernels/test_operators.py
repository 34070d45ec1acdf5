"""The functions as operators: one node of one graph, whatever the lengths, with nothing that needs a card."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch._dynamo.testing import CompileCounterWithBackend
from torch._subclasses.fake_tensor import FakeTensorMode

from wspec.kernels import attention as attention_module
from wspec.kernels import matmul as matmul_module
from wspec.kernels import quantized
from wspec.kernels.attention import attention, attention_reference
from wspec.kernels.matmul import matmul
from wspec.kernels.quantized import matmul_int4_weights, matmul_int8_weights


@pytest.fixture
def computed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The operators computed on the CPU, by their references."""

    def attend(q: Any, k: Any, v: Any, causal: bool = False, scale: float | None = None) -> Any:
        out, lse = attention_reference(q, k, v, causal=causal, scale=scale)
        return torch.empty_like(q).copy_(out), lse

    monkeypatch.setattr(attention_module, "_computed", attend)
    product = lambda a, b, dtype=None, _=None: (a.float() @ b.float()).to(dtype or a.dtype)  # noqa: E731
    monkeypatch.setattr(matmul_module, "_computed", product)


def inputs(seqlen: int, heads: int = 2) -> tuple[torch.Tensor, ...]:
    made = [torch.randn(1, seqlen, heads, 64).to(torch.bfloat16).transpose(1, 2) for _ in range(3)]
    return tuple(made)


def model(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    out, lse = attention(q + 0.0, k, v, causal=True, return_lse=True)
    return out * 2 + lse[..., None]


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_one_graph_whatever_the_length(computed: None, backend: str) -> None:
    torch._dynamo.reset()
    counter = CompileCounterWithBackend(backend)
    compiled = torch.compile(model, fullgraph=True, dynamic=True, backend=counter)
    for seqlen in (32, 48, 77, 130):
        q, k, v = inputs(seqlen)
        found = compiled(q, k, v)
        assert torch.equal(found, model_reference(q, k, v))
    assert counter.frame_count == 1
    (graph,) = counter.graphs
    assert sum(node.target in ATTENTION for node in graph.graph.nodes) == 1


ATTENTION = (torch.ops.wspec.attention, torch.ops.wspec.attention.default)


def model_reference(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    out, lse = attention_module._computed(q + 0.0, k, v, True, None)
    return out * 2 + lse[..., None]


def test_products_in_a_graph(computed: None) -> None:
    torch._dynamo.reset()

    def layers(a: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return matmul(torch.relu(a), w.T, out_dtype=torch.float32)

    compiled = torch.compile(layers, fullgraph=True, dynamic=True, backend="aot_eager")
    for rows in (16, 17, 64):
        a, w = torch.randn(rows, 32).half(), torch.randn(8, 32).half()
        assert torch.equal(compiled(a, w), torch.relu(a).float() @ w.T.float())


def test_operators_keep_their_promises(computed: None) -> None:
    """torch's own checks: schema, fake against real, tracing with dynamic shapes."""
    tests = ("test_schema", "test_faketensor", "test_aot_dispatch_dynamic")
    torch.library.opcheck(torch.ops.wspec.attention.default, (*inputs(48), True, None), test_utils=tests)
    a, b = torch.randn(16, 32).half(), torch.randn(32, 24).half()
    torch.library.opcheck(torch.ops.wspec.matmul.default, (a, b, torch.float32), test_utils=tests)


def test_fake_tensors_pass_through() -> None:
    with FakeTensorMode():
        q = torch.empty(2, 8, 100, 128, dtype=torch.float16).transpose(0, 1).contiguous().transpose(0, 1)
        out, lse = attention(q, q, q, return_lse=True)
        assert (out.shape, out.stride(), out.dtype) == (q.shape, q.stride(), q.dtype) and lse.shape == (2, 8, 100)
        a, w8 = torch.empty(16, 256, dtype=torch.bfloat16), torch.empty(128, 256, dtype=torch.int8)
        assert matmul_int8_weights(a, w8, torch.empty(128)).shape == (16, 128)
        w4, scales = torch.empty(128, 128, dtype=torch.int8), torch.empty(2, 128, dtype=torch.bfloat16)
        assert matmul_int4_weights(a, w4, scales).dtype == torch.bfloat16


@pytest.mark.parametrize(
    "call", [lambda q: attention(q, q, q[..., :32]), lambda q: attention(q, q, q, scale=torch.inf)]
)
def test_what_is_wrong_is_said_while_tracing(call: Callable[[torch.Tensor], torch.Tensor]) -> None:
    with FakeTensorMode(), pytest.raises(ValueError, match=r"^(v|scale):"):
        call(torch.empty(1, 2, 16, 64, dtype=torch.bfloat16))


def test_tensors_of_no_card_are_refused_by_the_operator_too() -> None:
    q = inputs(16)[0]
    with pytest.raises(ValueError, match="expected a CUDA tensor"):
        torch.ops.wspec.attention(q, q, q)
    with pytest.raises(ValueError, match="no backward"):
        torch.ops.wspec.attention(q.clone().requires_grad_(), q, q)
    with pytest.raises(ValueError, match="expected a CUDA tensor"):
        torch.ops.wspec.matmul(q[0, 0], q[0, 0].T)
    assert quantized._int8_operator is torch.ops.wspec.matmul_int8_weights

"""Sizes never seen, one after the other on a Hopper GPU: their tables of tiles are there when blocks read them."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
import torch

from wspec.bridge.alike import Alike
from wspec.kernels import attention, matmul, quantized
from wspec.kernels.weights import dequantize_int4, quantize_int4, quantize_int8

pytestmark = pytest.mark.gpu

Call = Callable[[int, bool], torch.Tensor]  # of a size, by the specialized kernel or by the plain one


def _attention(*inputs: torch.Tensor) -> Call:
    def call(size: int, ours: bool) -> torch.Tensor:
        q, k, v = (one[:, :, :size] for one in inputs)
        return attention.attention(q, k, v, causal=True, kernel=None if ours else attention.attention_fwd)

    return call


def subjects() -> dict[str, Call]:
    """Blocks walk through tiles in each of them."""
    torch.manual_seed(0)
    found: dict[str, Call] = {}
    for head_dim in (64, 128):
        q, k, v = (torch.randn(1, 4, 5000, head_dim, device="cuda", dtype=torch.bfloat16) for _ in range(3))

        found[f"attention {head_dim}"] = _attention(q, k, v)
    a = torch.randn(9000, 512, device="cuda", dtype=torch.bfloat16)
    b = torch.randn(512, 2048, device="cuda", dtype=torch.bfloat16)
    found["matmul"] = lambda size, ours: matmul.matmul(
        a[:size], b, kernel=None if ours else matmul.plain_kernel("descriptor")
    )
    return found


@pytest.fixture(scope="module")
def calls() -> dict[str, Call]:
    return subjects()


@pytest.mark.parametrize("name", ["attention 64", "attention 128", "matmul"])
def test_many_in_a_row(calls: dict[str, Call], name: str) -> None:
    """Nobody waits in between, so that a launch could start while its table is being written."""
    call = calls[name]
    call(100, True)
    sizes = [size for low in range(200, 4900, 129) for size in (low, low + 1)]
    torch.cuda.synchronize()
    found = [call(size, True) for size in sizes]
    again = [call(size, True) for size in sizes]
    for size, one, other in zip(sizes, found, again, strict=True):
        assert torch.equal(one, other), size
        torch.testing.assert_close(one, call(size, False), rtol=2e-2, atol=2e-2)


@pytest.mark.parametrize("name", ["attention 64", "attention 128", "matmul"])
def test_in_a_graph_that_writes_its_tables(calls: dict[str, Call], name: str) -> None:
    call = calls[name]
    call(100, True)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    sizes = (1111, 3333, 4949)
    with torch.cuda.graph(graph):
        found = [call(size, True) for size in sizes]
    expected = [call(size, True) for size in sizes]
    for _ in range(50):
        for one in found:
            one.zero_()
        graph.replay()
        assert all(torch.equal(one, other) for one, other in zip(found, expected, strict=True))


def test_tables_that_are_thrown_out(calls: dict[str, Call], monkeypatch: pytest.MonkeyPatch) -> None:
    """While launches still read them."""
    from wspec.bridge import persistent

    monkeypatch.setattr(persistent, "KEPT_BYTES", 200_000)
    call = calls["attention 128"]
    sizes = range(150, 4900, 131)
    for _ in range(3):
        found = [call(size, True) for size in sizes]
    for size, one in zip(sizes, found, strict=True):
        torch.testing.assert_close(one, call(size, False), rtol=2e-2, atol=2e-2)


@pytest.fixture
def alike(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Of each launch that was tried as one of another size, whether it was made so."""
    tried: list[bool] = []
    ours = Alike.launch

    def noted(*given: Any) -> Any:
        found = ours(*given)
        tried.append(found is not None)
        return found

    monkeypatch.setattr(Alike, "launch", noted)
    return tried


def is_close(found: torch.Tensor, expected: torch.Tensor) -> bool:
    """To a fiftieth of the largest number."""
    return bool((found.float() - expected.float()).abs().max() < 2e-2 * expected.float().abs().max())


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("head_dim", [64, 128])
def test_lengths_against_the_reference(alike: list[bool], head_dim: int, causal: bool) -> None:
    """36 pairs of lengths, parts of tensors and whole ones, three times over."""
    draw = random.Random(head_dim + causal)
    torch.manual_seed(0)
    q, k, v = (torch.randn(2, 4, 4000, head_dim, device="cuda", dtype=torch.bfloat16) for _ in range(3))
    for turn in range(36):
        queries, keys = (draw.choice([draw.randrange(1, 4000), draw.randrange(1, 300)]) for _ in range(2))
        keys = queries if turn % 3 else keys
        given = [q[:, :, :queries], k[:, :, :keys], v[:, :, :keys]]
        given = given if turn % 2 else [one.contiguous() for one in given]
        expected, logs = attention.attention_reference(*given, causal=causal)
        for _ in range(3):
            assert is_close(attention.attention(*given, causal=causal), expected), (queries, keys)
        if turn % 5 == 0:
            for _ in range(2):
                out, found = attention.attention(*given, causal=causal, return_lse=True)
                assert is_close(out, expected)
                torch.testing.assert_close(found, logs, rtol=2e-2, atol=2e-2)
    assert sum(alike) >= 20


@pytest.mark.parametrize("bits", [16, 8, 4])
def test_rows_against_torch(alike: list[bool], bits: int) -> None:
    """60 sizes, four times over: whole tiles, divided ones, sums of parts."""
    draw = random.Random(bits)
    torch.manual_seed(0)
    a = torch.randn(9000, 1024, device="cuda", dtype=torch.bfloat16)
    weight = torch.randn(2048, 1024, device="cuda", dtype=torch.bfloat16)
    product: Callable[[torch.Tensor], torch.Tensor]
    if bits == 16:
        meant, product = weight.float(), lambda rows: matmul.matmul(rows, weight.T)
    elif bits == 8:
        packed, scale = quantize_int8(weight)
        meant, product = packed.float() * scale[:, None], lambda r: quantized.matmul_int8_weights(r, packed, scale)
    else:
        low, scales = quantize_int4(weight)
        meant, product = dequantize_int4(low, scales), lambda r: quantized.matmul_int4_weights(r, low, scales)
    for _ in range(60):
        rows = a[: draw.choice([draw.randrange(1, 9000), draw.randrange(1, 300)])]
        expected = rows.float() @ meant.T
        for _ in range(4):
            assert is_close(product(rows), expected), rows.shape
    assert sum(alike) >= 20


def test_new_rows_keep_no_memory() -> None:
    """A launch is remembered without its tensors."""
    a = torch.randn(4000, 1024, device="cuda", dtype=torch.bfloat16)
    weight, scale = quantize_int8(torch.randn(2048, 1024, device="cuda"))
    quantized.matmul_int8_weights(a, weight, scale)
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    for size in range(3700, 3999):
        quantized.matmul_int8_weights(a[:size], weight, scale)
    assert torch.cuda.memory_allocated() - before < 32 << 20

"""Sizes never seen, one after the other on a Hopper GPU: their tables of tiles are there when blocks read them."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from wspec.kernels import attention, matmul

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

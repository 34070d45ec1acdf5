"""`wspec.kernels.quantized` and `persistent` without a GPU: what they refuse, weights, references, tiles, binaries."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import wspec
from wspec.bridge import from_arguments
from wspec.bridge.launch import compile_plain
from wspec.ir.assembly import WAIT
from wspec.kernels import persistent
from wspec.kernels.matmul import Config as Tile
from wspec.kernels.quantized import (
    SMS,
    SUM_BLOCK,
    Config,
    Launch,
    default_config,
    matmul_int4_weights,
    matmul_int8_weights,
    plain_kernel,
    specialized_kernel,
    starts_early,
    sum_parts_kernel,
)
from wspec.kernels.weights import (
    check_int4,
    check_int8,
    dequantize_int4,
    int4_reference,
    int8_reference,
    quantize_int4,
    quantize_int8,
)
from wspec.lab.bench.quantized import KINDS, Case, Entry, entries, launch_on_cpu, make_inputs, make_launch

CPU = torch.device("cpu")
A, Q, S = torch.zeros(4, 256, dtype=torch.bfloat16), torch.zeros(8, 256, dtype=torch.int8), torch.zeros(8)
Q4, S4 = torch.zeros(8, 128, dtype=torch.int8), torch.zeros(2, 8, dtype=torch.bfloat16)


@pytest.mark.parametrize(
    ("a", "weight", "scale", "error", "match"),
    [
        (A.float(), Q, S, TypeError, "a: expected dtype"),
        (A, Q.float(), S, TypeError, "weight: expected dtype"),
        (A, Q, S.double(), TypeError, "scale: expected dtype"),
        (A, Q[:, :128], S, ValueError, "weight: has rows of 128"),
        (A, Q, S[:4], ValueError, "scale: expected 8"),
        (A[:0], Q, S, ValueError, "a: nothing to multiply"),
        (A.clone().requires_grad_(), Q, S, ValueError, "a: requires grad"),
    ],
)
def test_bad_int8_input_names_the_argument(a: Any, weight: Any, scale: Any, error: type[Exception], match: str) -> None:
    with pytest.raises(error, match=f"^{match}"):
        check_int8(a, weight, scale)


@pytest.mark.parametrize(
    ("weight", "scale", "match"),
    [
        (Q, S4, "weight: has rows of 256 bytes"),
        (Q4, S4[:, :4].contiguous(), "scale: expected contiguous"),
        (Q4, S4.T, "scale: expected contiguous"),
    ],
)
def test_bad_int4_input_names_the_argument(weight: Any, scale: Any, match: str) -> None:
    with pytest.raises(ValueError, match=f"^{match}"):
        check_int4(A, weight, scale)


def test_cpu_tensors_are_refused_by_name() -> None:
    with pytest.raises(ValueError, match=r"^a: expected a CUDA tensor"):
        matmul_int8_weights(A, Q, S)
    with pytest.raises(ValueError, match=r"^a: expected a CUDA tensor"):
        matmul_int4_weights(A, Q4, S4)
    with pytest.raises(ValueError, match=r"^a: expected a CUDA tensor"):
        persistent.matmul_persistent(A, A)


def test_quantized_weights_are_close() -> None:
    weight = torch.randn(64, 512, generator=torch.Generator().manual_seed(0))
    q, scale = quantize_int8(weight)
    assert float((q.float() * scale[:, None] - weight).abs().max()) <= float(scale.max()) * 0.51
    packed, scales = quantize_int4(weight)
    assert packed.shape == (64, 256) and scales.shape == (4, 64)
    assert float((dequantize_int4(packed, scales) - weight).abs().max()) <= float(scales.max()) * 1.02


def test_packed_numbers_lie_half_a_row_apart() -> None:
    weight = torch.zeros(1, 256)
    weight[0, 3], weight[0, 128 + 5] = 7.0, -7.0
    packed, scales = quantize_int4(weight)
    assert (int(packed[0, 3]) & 15, int(packed[0, 5]) >> 4 & 15) == (15, 1)
    assert torch.equal(dequantize_int4(packed, scales), weight)


def test_references_are_the_products_of_the_dequantized_weights() -> None:
    draw = torch.Generator().manual_seed(1)
    a = torch.randn(4, 256, generator=draw).to(torch.bfloat16)
    weight = torch.randn(8, 256, generator=draw)
    q, scale = quantize_int8(weight)
    expected = a.double() @ (q.double() * scale.double()[:, None]).T
    assert torch.allclose(int8_reference(a, q, scale, dtype=torch.float64), expected)
    packed, scales = quantize_int4(weight)
    expected = a.double() @ dequantize_int4(packed, scales, torch.float64).T
    assert torch.allclose(int4_reference(a, packed, scales, dtype=torch.float64), expected)


@pytest.mark.parametrize(
    ("bits", "m", "n", "parts", "blocks"),
    [
        (8, 16, 4096, 4, 2),
        (8, 1, 8192, 2, 2),
        (8, 64, 65536, 1, None),  # more than two blocks for each SM
        (8, 128, 4096, 4, None),
        (8, 256, 8192, 1, None),
        (4, 16, 4096, 8, 2),
        (4, 64, 4096, 4, None),
        (4, 128, 4096, 2, None),
        (4, 256, 8192, 1, None),
        (4, 512, 8192, 1, None),
    ],
)
def test_default_tiles_keep_the_card_busy(bits: int, m: int, n: int, parts: int, blocks: int | None) -> None:
    config = default_config(m, n, 8192, bits)
    assert (config.parts, config.blocks) == (parts, blocks) and config.block_m >= min(m, 128)
    assert parts == 1 or -(-n // config.block_n) * -(-m // config.block_m) * parts > SMS * 0.9, "no idle SMs"
    assert f"p{parts}" in str(config)


@pytest.mark.parametrize(("k", "group", "steps"), [(128, 128, 64), (256, 128, 128), (256, 64, 64), (192, 32, 32)])
def test_short_rows_and_groups_are_whole_steps(k: int, group: int, steps: int) -> None:
    packed, scales = quantize_int4(torch.ones(64, k), group)
    launch = Launch.int4(torch.zeros(16, k, dtype=torch.bfloat16), packed, scales)
    assert launch.meta["BLOCK_K"] == steps


@pytest.mark.parametrize(("bits", "m"), [(bits, m) for bits in (8, 4) for m in (16, 64, 128, 256)])
def test_default_tiles_are_specialized(bits: int, m: int) -> None:
    """As was measured to be the fastest, docs/chains.md: with a third task for int4 from 128 rows on."""
    case = Case(bits, m, 4096, 4096)
    config = default_config(m, case.n, case.k * bits // 8, bits)
    launch = make_launch(Case(bits, 16, 256, 4096), make_inputs(Case(bits, 16, 256, 4096), CPU, 0), config)
    report = specialized_kernel(bits, Entry("single", config).blocks(case)).outcome(*launch.args, **launch.meta)
    assert report.plan is not None and report.reason is None and "proved" in report.proof
    assert bool(report.plan.helpers) == (bits == 4 and m >= 128) and report.resources.spill_bytes == 0


@pytest.mark.parametrize(
    ("rows", "n", "said", "blocks"),
    [(64, 8192, None, 1), (16, 4096, None, 1), (16, 4096, 2, 2), (64, 32768, None, None)],
)
def test_the_compiler_is_told_how_many_blocks_an_sm_has(
    rows: int, n: int, said: int | None, blocks: int | None
) -> None:
    a, weight = torch.zeros(rows, 64, dtype=torch.bfloat16), torch.zeros(n, 64, dtype=torch.int8)
    launch = Launch.int8(a, weight, torch.zeros(n), config=Config(rows, blocks=said))
    assert launch.blocks == blocks
    plan = specialized_kernel(8, blocks).plan(*launch.args, **launch.meta)
    assert plan is not None and plan.persistent == (blocks is None)
    assert plan.blocks_per_sm == blocks if blocks else plan.blocks_per_sm > 1


def test_the_sum_starts_early_behind_products_that_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: (9, 0))
    assert starts_early(specialized_kernel(8)) and not starts_early(plain_kernel(8))
    assert not starts_early(specialized_kernel(8, programmatic_launch=False))
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: (8, 0))
    assert not starts_early(specialized_kernel(8)), "an older GPU has no such launches"


@pytest.mark.parametrize("early", [True, False])
def test_a_sum_that_starts_early_waits_before_it_reads(early: bool) -> None:
    arguments = (torch.zeros(2, 4, 8), torch.zeros(4, 8, dtype=torch.bfloat16), 32)
    meta = {"PARTS": 2, "BLOCK": SUM_BLOCK, "EARLY": early, "launch_pdl": early}
    ptx = (
        compile_plain(from_arguments(sum_parts_kernel, arguments, meta)).asm["ptx"].replace(" ;", ";")
    )  # as 3.9 spells it
    assert (WAIT in ptx) == early
    assert not early or ptx.index(WAIT) < ptx.index("ld.global")


@pytest.mark.parametrize("bits", [8, 4])
def test_products_started_by_hand_wait_before_they_read(bits: int) -> None:
    kernel, launch = launch_on_cpu(Entry("by hand", Config(16)), bits)
    assert launch.meta["launch_pdl"]
    ptx = (
        compile_plain(from_arguments(kernel, launch.args, launch.meta)).asm["ptx"].replace(" ;", ";")
    )  # as 3.9 spells it
    assert ptx.index(WAIT) < min(ptx.index("ld.global"), ptx.index("cp.async.bulk.tensor"))


@pytest.mark.parametrize(
    ("kind", "config"), [("single", Config(16, 128, num_warps=8, blocks=2)), ("chain", Config(64))]
)
def test_specialized_products_wait_before_their_tasks_begin(kind: str, config: Config) -> None:
    kernel, launch = launch_on_cpu(Entry(kind, config), 8, config.blocks)
    ptx = kernel.dump("ptx", *launch.args, **launch.meta)
    assert ptx.count(WAIT) == 1 and ptx.index(WAIT) < ptx.index("cp.async.bulk.tensor")


def test_steps_that_do_not_divide_are_refused() -> None:
    with pytest.raises(ValueError, match=r"^weight: 2048 bytes a row"):
        launch_on_cpu(Entry("plain", Config(16, block_k=256)), 4)


def test_the_grid_of_the_benchmark() -> None:
    assert {entry.kind for entry in entries(Case(8, 64, 4096, 4096))} == set(KINDS)


@pytest.mark.parametrize("bits", [8, 4])
def test_chains_are_proved_and_do_not_spill(bits: int) -> None:
    kernel, launch = launch_on_cpu(Entry("chain", Config(64)), bits)
    report = kernel.outcome(*launch.args, **launch.meta)
    assert report.reason is None and "proved" in report.proof
    assert report.resources.spill_bytes == 0 and report.resources.hgmma > 0


@pytest.mark.parametrize(("chain", "helpers"), [("auto", []), ("on", ["store"])])
def test_the_persistent_product_stores_while_it_goes_on(chain: str, helpers: list[str]) -> None:
    a, out = (torch.zeros(256, 256, dtype=torch.bfloat16) for _ in range(2))
    launch = persistent.Launch.of(a, a, out)
    assert launch.grid == (2,)
    kernel = wspec.compile(persistent.matmul_persistent_kernel, check="off", chain=chain)
    report = kernel.outcome(*launch.args, **launch.meta)
    assert report.plan is not None and [task.name for task in report.plan.helpers] == helpers
    assert report.plan.helpers or [kind for *_, kind in report.plan.staging] == ["subtiles"]
    assert report.resources.spill_bytes == 0


@pytest.mark.parametrize(
    ("a", "weight", "match"),
    [(A, A[:, :128], "weight: has rows of 128"), (A[:0], A, "a: is empty"), (A, A.half(), "weight: dtype")],
)
def test_bad_persistent_input_names_the_argument(a: Any, weight: Any, match: str) -> None:
    with pytest.raises((TypeError, ValueError), match=f"^{match}"):
        persistent.check_inputs(a, weight)


def test_plain_kernels() -> None:
    assert plain_kernel(8) is not plain_kernel(4)
    assert persistent.default_config() == Tile(128, 256, 64, 8, 3)

"""What a launch runs when rows that it stores reach into each other, through Triton's own launch path and a driver that
writes it down."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import triton
from triton.tools.tensor_descriptor import TensorDescriptor

import wspec
from tests.bridge.fake_driver import FakeDriver
from tests.bridge.sample_kernels import own_descriptor_gemm, strided_gemm
from wspec import api
from wspec.bridge.recording import recording
from wspec.bridge.row_guard import RowGuard
from wspec.bridge.slots import BEFORE, slots_of
from wspec.diagnostics import Remark, WspecError
from wspec.ir.rows import Apart, Dimension, Number
from wspec.kernels.matmul import matmul_descriptor_kernel
from wspec.lab.bench.pointer_kernels import product

TILES = {"BLOCK_M": 128, "BLOCK_N": 128, "BLOCK_K": 64, "num_warps": 8, "num_stages": 3}
BOX = [64, 128]
PLAIN = 256  # threads of a block; the specialized kernel has more
M, N, K = 256, 512, 128


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch, fresh_cache: Path) -> FakeDriver:
    fake = FakeDriver()
    monkeypatch.setattr(triton.runtime.driver, "_active", fake)
    monkeypatch.setattr(api, "_announced", set())
    return fake


def matrix(rows: int, columns: int, pitch: int, step: int = 1) -> torch.Tensor:
    memory = torch.zeros((rows - 1) * pitch + (columns - 1) * step + 1, dtype=torch.bfloat16)
    return memory.as_strided((rows, columns), (pitch, step))


def runs_plain(driver: FakeDriver, kernel: Any, c: torch.Tensor) -> bool:
    """A product that is written to `c`."""
    m, n = c.shape
    a, b = TensorDescriptor.from_tensor(matrix(m, K, K), [128, 64]), TensorDescriptor.from_tensor(matrix(K, n, n), BOX)
    driver.launches.clear()
    kernel[(triton.cdiv(m, 128), triton.cdiv(n, 128))](a, b, c, m, n, K, *c.stride(), **TILES)
    (done,) = driver.launches
    if done.packed_metadata[0] == PLAIN // 32:
        assert done.arguments[:6] == (a, b, c, m, n, K), "the arguments are the caller's"
        return True
    return False


def test_rows_through_pointers(driver: FakeDriver, capsys: pytest.CaptureFixture[str]) -> None:
    kernel = wspec.compile(strided_gemm, persistent=False, gate="off")
    for pitch in (N, N + 8, 4 * N):
        assert not runs_plain(driver, kernel, matrix(M, N, pitch)), pitch
    assert not runs_plain(driver, kernel, matrix(M, 72, 72)), "columns end before the tile does"
    assert not runs_plain(driver, kernel, matrix(M, N, 128)), "only tiles of different blocks meet, as they do plain"
    assert "rows-overlap" not in capsys.readouterr().err
    for pitch in (120, 64, 0):
        assert runs_plain(driver, kernel, matrix(M, N, pitch)), pitch
    said = capsys.readouterr().err
    assert said.count("[rows-overlap]") == 1, "once"
    assert "rows that are stored through c_ptr, stride_cm apart, reach into each other in this launch" in said
    assert f"{Path(strided_gemm.fn.__code__.co_filename).name}:" in said


def test_rows_of_descriptors_that_a_launch_makes(driver: FakeDriver, capsys: pytest.CaptureFixture[str]) -> None:
    kernel = wspec.compile(product, persistent=False, gate="off")
    a, b = matrix(M, K, K), matrix(K, N, N)
    for pitch, plain in ((N, False), (N + 8, False), (128, False), (120, True), (64, True)):
        c = matrix(M, N, pitch)
        driver.launches.clear()
        kernel[(8,)](a, b, c, M, N, K, *a.stride(), *b.stride(), *c.stride(), **TILES, GROUP=8)
        (done,) = driver.launches
        assert (done.packed_metadata[0] == PLAIN // 32) == plain, pitch
        assert (len(done.arguments) == len(product.arg_names)) == plain, "descriptors are for ours alone"
    assert "rows that are stored through c_ptr_tiles reach into each other" in capsys.readouterr().err


def test_a_transposed_result_is_an_ordinary_one(driver: FakeDriver, capsys: pytest.CaptureFixture[str]) -> None:
    kernel = wspec.compile(strided_gemm, persistent=False, gate="off", promote=False)
    assert not runs_plain(driver, kernel, matrix(M, N, 2, 2 * M))
    assert not runs_plain(driver, kernel, matrix(M, N, 1, M))
    assert not runs_plain(driver, kernel, matrix(72, N, 1, 72))
    assert "rows-overlap" not in capsys.readouterr().err
    assert runs_plain(driver, kernel, matrix(M, N, 1, 120))
    assert runs_plain(driver, kernel, matrix(M, N, 2, 128))
    assert "rows-overlap" in capsys.readouterr().err


def descriptors(pitch: int, dtype: torch.dtype = torch.bfloat16) -> list[TensorDescriptor]:
    a, b = torch.zeros(M, K, dtype=dtype), torch.zeros(K, N, dtype=dtype)
    c = torch.zeros(M * max(pitch, 1) + N, dtype=dtype)
    boxes = [TensorDescriptor.from_tensor(a, [128, 64]), TensorDescriptor.from_tensor(b, [64, 128])]
    return [*boxes, TensorDescriptor(c, [M, N], [pitch, 1], [128, 128])]


@pytest.mark.parametrize("strict", [False, True])
def test_rows_of_a_descriptor(driver: FakeDriver, capsys: pytest.CaptureFixture[str], strict: bool) -> None:
    kernel = wspec.compile(matmul_descriptor_kernel, persistent=False, gate="off", strict=strict)
    for pitch, plain in ((N, False), (N + 8, False), (120, True), (128, False), (8, True)):
        driver.launches.clear()
        if plain and strict:
            with pytest.raises(WspecError, match="rows that are stored through c_desc reach into each other"):
                kernel[(8,)](*descriptors(pitch), M, N, K, **TILES, GROUP_M=8, B_TRANSPOSED=False)
            continue
        kernel[(8,)](*descriptors(pitch), M, N, K, **TILES, GROUP_M=8, B_TRANSPOSED=False)
        (done,) = driver.launches
        assert (done.packed_metadata[0] == PLAIN // 32) == plain, pitch
    assert capsys.readouterr().err.count("[rows-overlap]") == (0 if strict else 1)


def test_one_row_reaches_into_no_other(driver: FakeDriver) -> None:
    """However near the next one would be: of one row people give any pitch, `matmul` 16 bytes."""
    kernel = wspec.compile(matmul_descriptor_kernel, persistent=False, gate="off", strict=True)
    a, b, _ = descriptors(N)
    for rows, plain in ((1, False), (2, True)):
        c = TensorDescriptor(matrix(2, N, N), [rows, N], [8, 1], [128, 128])
        if plain:
            with pytest.raises(WspecError, match="reach into each other"):
                kernel[(4,)](a, b, c, M, N, K, **TILES, GROUP_M=8, B_TRANSPOSED=False)
        else:
            kernel[(4,)](a, b, c, M, N, K, **TILES, GROUP_M=8, B_TRANSPOSED=False)
    assert len(driver.launches) == 1


def test_what_is_recorded(driver: FakeDriver) -> None:
    """A launch of other sizes asks again, by tensors; one that ran the plain kernel says nothing of the next."""
    kernel = wspec.compile(matmul_descriptor_kernel, persistent=False, gate="off", remarks="off")
    for pitch in (N, 120):
        with recording.on() as now:
            kernel[(8,)](*descriptors(pitch), M, N, K, **TILES, GROUP_M=8, B_TRANSPOSED=False)
        assert now.rows.is_of_descriptors and not now.alone and now.once == (pitch < N)
    tensors = torch.zeros(M, K), torch.zeros(K, N), torch.zeros(M, N)
    for pitch, hold in ((N, True), (2 * N, True), (120, False)):
        wholes = [(one, one.shape, one.stride()) for one in (*tensors[:2], matrix(M, N, pitch))]
        assert now.rows.hold([*wholes, M, N, K]) == hold
    pointers = wspec.compile(strided_gemm, persistent=False, gate="off", promote=False)
    with recording.on() as now:
        runs_plain(driver, pointers, matrix(M, N, N))
    assert now.alone and not now.once


def test_conditions_are_kept_with_the_kernel_and_shown(fresh_cache: Path) -> None:
    types = {"a_desc": "tensordesc<bf16[128, 64]>", "b_desc": "tensordesc<bf16[64, 128]>", "c_ptr": "*bf16:16"}
    types |= {name: "i32:1" if name == "stride_cn" else "i32" for name in ("M", "N", "K", "stride_cm", "stride_cn")}
    found = []
    for _ in range(2):  # the second comes from the cache
        options: dict[str, Any] = {"persistent": False, "gate": "off", "promote": False}
        report = wspec.offline(strided_gemm, types, TILES, **options).outcome()
        assert report.specialized
        found.append(report.result.rows)
        said = "a launch runs the plain kernel where rows that are stored through c_ptr, stride_cm apart, reach into"
        assert said in str(report) and f"{Path(strided_gemm.fn.__code__.co_filename).name}:" in str(report)
    assert found[0] and [apart for apart, _ in found[0]] == [apart for apart, _ in found[1]]


def test_rows_of_a_descriptor_that_the_kernel_makes(fresh_cache: Path) -> None:
    types = {"a_desc": "tensordesc<bf16[128, 64]>", "b_desc": "tensordesc<bf16[64, 128]>", "c_ptr": "*bf16:16"}
    types |= dict.fromkeys(("M", "N", "K", "stride_cm"), "i32")
    options: dict[str, Any] = {"persistent": False, "gate": "off"}
    report = wspec.offline(own_descriptor_gemm, types, TILES, **options).outcome()
    assert report.specialized
    slots = slots_of(report.source.ast.signature)
    guard = RowGuard(slots, report.result.rows)
    for n, pitch, broken in ((N, N, -1), (N, 128, -1), (N, 120, 0), (72, 72, -1), (72, 64, 0)):
        a, b, _ = descriptors(N)
        rest = (None,) * BEFORE + (a, b, None, M, n, K, pitch, *(None,) * 3)
        assert guard.broken_in(2, 4, 1, rest) == broken, (n, pitch)


def test_numbers_that_a_launch_has_inside_a_tuple_are_not_known() -> None:
    apart = Apart((Number("argument", 64, (), 1),), Dimension(0, 64), ())
    remark = Remark("rows-overlap", "")
    for kinds, rest, broken in (
        ({"p": "*i8", "n": "i32"}, (None, 5), -1),
        ({"p": "*i8", "n": "i32"}, (None, 0), 0),
        ({"t": ("*i8", "i32")}, ((None, 5),), 0),
        ({"t": ("constexpr", "*i8"), "n": "i32"}, ((1, None), 5), -1),
    ):
        guard = RowGuard(slots_of(kinds), [(apart, remark)])  # type: ignore[arg-type]
        assert guard.broken_in(1, 1, 1, (None,) * BEFORE + rest) == broken  # type: ignore[operator]

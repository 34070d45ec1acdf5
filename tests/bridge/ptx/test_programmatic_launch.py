"""Kernels that start early wait before they touch memory, and only those are launched early."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
import triton

import wspec
from wspec.bridge.launch import LaunchableKernel, lies_evenly
from wspec.bridge.ptx.edits import PtxEdits
from wspec.ir.assembly import WAIT
from wspec.kernels import matmul

HEAD = """
.visible .entry kernel(
	.param .u64 kernel_param_0
)
{
	ld.param.b64 	%rd1, [kernel_param_0];
	@%p1 bra 	$L__BB0_9;
	bra.uni 	$L__BB0_1;
$L__BB0_1:
	ret;
$L__BB0_9:
	mov.b32 	%r1, global_smem;
"""
INIT = "	// begin inline asm\n	@%p2 mbarrier.init.shared::cta.b64 [%r1], 1;\n	// end inline asm\n"
BEGIN = "	st.shared.b32 	[global_smem+8], 0;\n	barrier.sync 	1;\n"
TAIL = "	ld.global.b32 	%r2, [%rd1];\n	ret;\n}\n"


def _started_early(ptx: str) -> str:
    return PtxEdits(programmatic_launch=True).apply(ptx)


def test_the_wait_stands_behind_the_barriers_and_before_the_tasks() -> None:
    made = _started_early(HEAD + INIT + INIT + BEGIN + TAIL)
    both = "	griddepcontrol.wait;\n	griddepcontrol.launch_dependents;\n"
    assert made == HEAD + INIT + INIT + both + BEGIN + TAIL


@pytest.mark.parametrize(
    "ptx",
    [
        HEAD + BEGIN + TAIL,  # no barriers, no tasks
        HEAD + INIT + TAIL,
        HEAD + BEGIN + INIT + TAIL,
        HEAD + INIT + BEGIN + INIT + BEGIN + TAIL,
        HEAD + "	ld.global.b32 	%r2, [%rd1];\n" + INIT + BEGIN + TAIL,
        HEAD + "	@%p3 st.b32 	[%rd1], %r2;\n" + INIT + BEGIN + TAIL,
        HEAD + INIT + "	cp.async.bulk.prefetch.tensor.2d.L2.global [%rd1, {%r1, %r1}];\n" + INIT + BEGIN + TAIL,
        HEAD + INIT + "$L__BB0_7:\n" + INIT + "	@%p5 bra 	$L__BB0_7;\n" + BEGIN + TAIL,
        HEAD + INIT + BEGIN + TAIL + HEAD + INIT + BEGIN + TAIL,
    ],
)
def test_other_kernels_stay_as_they_were(ptx: str) -> None:
    assert _started_early(ptx) == ptx


def test_accesses_to_other_spaces_may_come_first() -> None:
    more = "	st.shared.v2.b32 	[%r1], {%r2, %r3};\n	ld.param.b32 	%r4, [kernel_param_0];\n"
    assert WAIT in _started_early(HEAD + more + INIT + BEGIN + TAIL)


@pytest.mark.parametrize("transposed", [False, True])
def test_a_specialized_product_waits_once(transposed: bool) -> None:
    a = torch.empty(256, 256, dtype=torch.bfloat16)
    config = matmul.Config(128, 128, 64)
    launch = matmul.Launch.of(a, a.T if transposed else a, a, variant="descriptor", config=config)
    kernel = wspec.compile(matmul.plain_kernel("descriptor"), gate="off", programmatic_launch=True, persistent=False)
    ptx = kernel.dump("ptx", *launch.args, **launch.meta)
    assert ptx.count(WAIT) == 1 and ptx.index(WAIT) < ptx.index("barrier.sync 	1;")


@pytest.mark.parametrize("stream_k", [False, True])
def test_tasks_that_walk_through_tiles_wait_behind_their_table(stream_k: bool) -> None:
    """Each reads how many tiles there are and where the first one lies, and touches nothing else before it waits."""
    a = torch.empty(256, 256, dtype=torch.bfloat16)
    launch = matmul.Launch.of(a, a, a, variant="descriptor", config=matmul.Config())
    kernel = wspec.compile(matmul.plain_kernel("descriptor"), gate="off", persistent=True, stream_k=stream_k)
    ptx = kernel.dump("ptx", *launch.args, **launch.meta)
    assert ptx.count(WAIT) == 3 and ptx.index("barrier.sync 	1;") < ptx.index(WAIT)
    for task in ptx.split(WAIT)[:-1]:
        behind = task[task.rindex("setmaxnreg") :]
        assert "cp.async.bulk" not in behind and "st.global" not in behind
        assert 3 <= behind.count("ld.global") <= 7, "the header, the number of tiles, and the first entry"
    assert "ACQBULK" in kernel.dump("sass", *launch.args, **launch.meta), "ptxas knows it"


@pytest.mark.parametrize(("waits", "asked", "early"), [(True, True, True), (True, False, False), (False, True, False)])
def test_only_kernels_that_wait_are_launched_early(
    monkeypatch: pytest.MonkeyPatch, waits: bool, asked: bool, early: bool
) -> None:
    launched: list[bool] = []

    class Launcher:
        launch_pdl = False

        def __call__(self, *_: Any) -> None:
            launched.append(self.launch_pdl)

    def made(self: Any, *_: Any) -> None:
        self.metadata = SimpleNamespace(hash="", global_scratch_size=0)
        self.asm = {"ptx": WAIT if waits else ""}
        self.module, self._run = None, None

    def loaded(self: Any) -> None:
        self.module, self._run = "module", Launcher()

    monkeypatch.setattr(LaunchableKernel.__base__, "__init__", made)
    monkeypatch.setattr(LaunchableKernel.__base__, "_init_handles", loaded)
    fn = SimpleNamespace(wspec_options=SimpleNamespace(programmatic_launch=asked))
    kernel = LaunchableKernel(SimpleNamespace(fn=fn), {})
    kernel._init_handles()
    kernel._run(1, 1, 1)
    kernel._behind(1, 1, 1)
    assert launched == [early, False], "and none that is asked to come behind all others"


@pytest.mark.parametrize(
    ("blocks", "fit", "even"),
    [(1, 3, True), (132, 3, True), (133, 3, False), (256, 3, False), (264, 3, False), (265, 3, True), (256, 2, True),
     (5000, 2, True), (133, 1, True)],
)  # fmt: skip
def test_blocks_that_would_pile_up_on_some_sms_do_not_start_early(
    monkeypatch: pytest.MonkeyPatch, blocks: int, fit: int, even: bool
) -> None:
    assert lies_evenly(blocks, 132, fit) is even
    launched: list[bool] = []

    class Launcher:
        launch_pdl = False

        def __call__(self, *_: Any) -> None:
            launched.append(self.launch_pdl)

    def made(self: Any, *_: Any) -> None:
        self.metadata = SimpleNamespace(hash="", global_scratch_size=0)
        self.asm, self.module, self._run = {"ptx": WAIT}, None, None

    def loaded(self: Any) -> None:
        self.module, self._run = "module", Launcher()

    monkeypatch.setattr(LaunchableKernel.__base__, "__init__", made)
    monkeypatch.setattr(LaunchableKernel.__base__, "_init_handles", loaded)
    utils = SimpleNamespace(get_device_properties=lambda _: {"multiprocessor_count": 132})
    active = SimpleNamespace(utils=utils, get_current_device=lambda: 0)
    monkeypatch.setattr(triton.runtime, "driver", SimpleNamespace(active=active))
    fn = SimpleNamespace(wspec_options=SimpleNamespace(programmatic_launch=True))
    kernel = LaunchableKernel(SimpleNamespace(fn=fn), {}, fit)
    kernel._init_handles()
    kernel.run(blocks, 1, 1)
    assert launched == [even]

"""`wspec.compile` and `wspec.offline`, with a compiler that the tests make up."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import triton
from triton.tools.tensor_descriptor import TensorDescriptor

import wspec
from tests.bridge.sample_kernels import (
    ADD_SIGNATURE,
    GEMM_BLOCKS,
    GEMM_SIGNATURE,
    FakeOutcome,
    FakeSpecialize,
    add,
    add_source,
    gemm,
    wrong,
)
from wspec import api, bridge, ir
from wspec.diagnostics import Declined, Remark, WspecError
from wspec.options import Options
from wspec.plan.plan import Plan, Task

ROOT = Path(__file__).parents[2]


@pytest.fixture
def specialize(monkeypatch: pytest.MonkeyPatch, fresh_cache: Path) -> FakeSpecialize:
    fake = FakeSpecialize()
    monkeypatch.setattr("wspec.pipeline.specialize", fake)
    monkeypatch.setattr(api, "_announced", set())
    return fake


# ------------------------------------------------------------------------------------------------ decorating


def test_with_and_without_options() -> None:
    for kernel in (wspec.compile(add), wspec.compile()(add), wspec.compile(strict=True, consumers=2)(add)):
        assert isinstance(kernel, triton.runtime.JITFunction) and isinstance(kernel, api.Inspectable)
    assert kernel.wspec.options == Options(strict=True, consumers=2)


def test_the_outermost_options_win() -> None:
    twice = wspec.compile(wspec.compile(add, depth=2), depth=3)
    assert twice.wspec.options.depth == 3 and type(twice.plain) is triton.runtime.JITFunction


def test_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WSPEC_DEPTH", "5")
    assert wspec.compile(add).wspec.options.depth == 5


@pytest.mark.parametrize("thing", [add.fn, 3, None.__class__])
def test_what_is_not_a_kernel(thing: object) -> None:
    with pytest.raises(WspecError, match=r"is not a Triton kernel(?s:.*)@triton.jit"):
        wspec.compile(thing)


def test_bad_options_and_plans(tmp_path: Path) -> None:
    with pytest.raises(WspecError, match=r"'machine': .*'z80'; there are: h100, h200"):
        wspec.compile(add, machine="z80")
    with pytest.raises(WspecError, match="unknown option 'dept'"):
        wspec.compile(add, dept=3)
    with pytest.raises(WspecError, match="not valid TOML"):
        wspec.compile(add, plan="tasks = [")
    with pytest.raises(WspecError, match="no-such-file"):
        wspec.compile(add, plan=tmp_path / "no-such-file.toml")


def test_interpreter(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    interpreted = triton.jit(add.fn)
    assert wspec.compile(interpreted) is interpreted
    assert "[interpreter]" in capsys.readouterr().err


# ---------------------------------------------------------------------------------------- asking a kernel


def test_specialized(specialize: FakeSpecialize) -> None:
    a = TensorDescriptor.from_tensor(torch.empty(256, 256, dtype=torch.float16, device="meta"), [128, 64])
    b = TensorDescriptor.from_tensor(torch.empty(256, 256, dtype=torch.float16, device="meta"), [64, 128])
    arguments = (a, b, torch.empty(256, 256, dtype=torch.float16, device="meta"), 256, 256)
    kernel = wspec.compile(gemm)
    report = kernel.outcome(*arguments, **GEMM_BLOCKS, num_warps=8)
    assert report.specialized and report.reason is None and report.plan is None
    assert report.resources.hgmma > 0 and report.resources.spill_bytes == 0 and report.resources.warps == 8
    text = kernel.explain(*arguments, **GEMM_BLOCKS, num_warps=8)
    assert text.startswith("gemm(a_desc: tensordesc<fp16[128, 64]>,") and "BLOCK_M=128" in text.split("\n")[0]
    assert text.split("\n")[0].endswith("num_warps=8, num_stages=3): specialized")
    assert "specialized by a fake [specialized]" in text and "HGMMA" in text
    assert specialize.calls == 1


def test_offline_and_types_as_text_are_the_same_specialization(specialize: FakeSpecialize) -> None:
    first = wspec.offline(gemm, GEMM_SIGNATURE, GEMM_BLOCKS, num_warps=8).outcome()
    second = wspec.compile(gemm).outcome(*GEMM_SIGNATURE.values(), **GEMM_BLOCKS, num_warps=8)
    assert first.kernel.asm["cubin"] == second.kernel.asm["cubin"]


def test_offline_takes_both_kinds_of_options(specialize: FakeSpecialize) -> None:
    asked = wspec.offline(add, ADD_SIGNATURE, num_warps=2, depth=3)
    assert asked.source.options.num_warps == 2 and asked.compiler.options.depth == 3
    again = wspec.offline(wspec.compile(add, depth=4, overlap=False), ADD_SIGNATURE, depth=5)
    assert again.compiler.options == Options(depth=5, overlap=False)
    with pytest.raises(WspecError, match="no parameter 'num_wraps'"):
        wspec.offline(add, ADD_SIGNATURE, num_wraps=2)


def test_left_alone(specialize: FakeSpecialize) -> None:
    specialize.action = "decline"
    asked = wspec.offline(add, ADD_SIGNATURE)
    report = asked.outcome()
    assert not report.specialized and report.reason is not None and report.reason.code == "no-loop"
    assert report.kernel.asm["cubin"] == bridge.load_kernel(add_source(), bridge.Result(False, ()), {}).asm["cubin"]
    assert "left as it was" in asked.explain() and "the kernel has no loop [no-loop]" in asked.explain()
    assert "binary: what Triton makes of the kernel" in asked.explain() and report.resources.hgmma == 0


def test_declined_by_exception(monkeypatch: pytest.MonkeyPatch, fresh_cache: Path) -> None:
    def decline(*args: object, **kwargs: object) -> FakeOutcome:
        raise Declined(Remark("short-loop", "too short"))

    monkeypatch.setattr("wspec.pipeline.specialize", decline)
    report = wspec.offline(add, ADD_SIGNATURE).outcome()
    assert report.reason is not None and report.reason.code == "short-loop"


def test_turned_off(specialize: FakeSpecialize, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WSPEC_ENABLED", "0")
    report = wspec.offline(add, ADD_SIGNATURE).outcome()
    assert report.reason is not None and report.reason.code == "disabled" and specialize.calls == 0


# ----------------------------------------------------------------------------------------------- failures


def test_a_bug_in_wspec_runs_the_plain_kernel(specialize: FakeSpecialize, fresh_cache: Path) -> None:
    specialize.action = "raise"
    report = wspec.offline(add, ADD_SIGNATURE).outcome()
    assert report.reason is not None and report.reason.code == "internal-error"
    assert report.reason.message == "wspec failed on add: RuntimeError: a bug"
    assert report.kernel.asm["cubin"]
    reproducer = next((fresh_cache / "wspec-reproducers").iterdir())
    assert str(reproducer) in report.reason.note
    assert "// RuntimeError: a bug" in reproducer.read_text() and "// Options(" in reproducer.read_text()
    ir.read(reproducer.read_text())
    bridge.reparse(reproducer.read_text())
    specialize.action = "specialize"
    assert wspec.offline(add, ADD_SIGNATURE).outcome().specialized, "a failure must not be cached"


def test_broken_ir_runs_the_plain_kernel(specialize: FakeSpecialize) -> None:
    specialize.action = "break"
    report = wspec.offline(add, ADD_SIGNATURE).outcome()
    assert report.reason is not None and report.reason.code == "compile-error"
    assert "does not compile" in report.reason.message
    assert report.kernel.asm["cubin"]


def test_ptxas_failure_runs_the_plain_kernel(specialize: FakeSpecialize, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*args: object) -> None:
        raise bridge.BridgeError("ptxas failed with exit code 255", "ptxas fatal")

    monkeypatch.setattr("wspec.bridge.backend.assemble", fail)
    report = wspec.offline(add, ADD_SIGNATURE).outcome()
    assert report.reason is not None and "ptxas failed" in report.reason.message


@pytest.mark.parametrize("action", ["specialize", "break"])
def test_the_back_end_in_another_process(specialize: FakeSpecialize, action: str) -> None:
    specialize.action = action
    there = wspec.offline(add, ADD_SIGNATURE, isolate=True).outcome()
    here = wspec.offline(add, ADD_SIGNATURE, cache=False).outcome()
    assert there.specialized == here.specialized == (action == "specialize")
    assert there.kernel.asm["cubin"] == here.kernel.asm["cubin"]
    assert [remark.message for remark in there.remarks] == [remark.message for remark in here.remarks]


def test_a_crash_of_the_back_end_is_a_remark(specialize: FakeSpecialize, monkeypatch: pytest.MonkeyPatch) -> None:
    script = "import os; os.write(2, b'Assertion `x` failed.\\n'); os.abort()"
    monkeypatch.setattr("wspec.bridge.isolate._command", lambda *paths: [sys.executable, "-c", script])
    report = wspec.offline(add, ADD_SIGNATURE, isolate=True).outcome()
    assert report.reason is not None and report.reason.code == "compile-error"
    assert "libtriton died (SIGABRT): Assertion `x` failed." in report.reason.message


def test_too_much_shared_memory_runs_the_plain_kernel(
    specialize: FakeSpecialize, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("wspec.bridge.compile.BLOCK_SHARED_BYTES", 1000)
    report = wspec.offline(gemm, GEMM_SIGNATURE, GEMM_BLOCKS, num_warps=8).outcome()
    assert not report.specialized and report.reason is not None and report.reason.code == "shared-memory"


def test_strict(specialize: FakeSpecialize) -> None:
    specialize.action = "decline"
    kernel = wspec.compile(add, strict=True)
    assert "no-loop" in kernel.explain(*ADD_SIGNATURE.values())  # asking never raises
    with pytest.raises(WspecError, match=r"error: the kernel has no loop \[no-loop\]"):
        kernel.wspec.launch(add_source())


def test_a_wrong_kernel_fails_as_in_triton(specialize: FakeSpecialize) -> None:
    with pytest.raises(triton.compiler.errors.CompilationError, match="reshape"):
        wspec.offline(wrong, {"x_ptr": "*fp32"}, {"BLOCK": 64}).outcome()


# ------------------------------------------------------------------------------------------------ remarks


def test_remarks_are_printed_once(specialize: FakeSpecialize, capsys: pytest.CaptureFixture[str]) -> None:
    for _ in range(2):
        wspec.compile(add).wspec.launch(add_source())
    assert capsys.readouterr().err == "remark: specialized by a fake [specialized]\n"
    wspec.compile(add, remarks="always").wspec.launch(add_source())
    assert capsys.readouterr().err == "remark: specialized by a fake [specialized]\n"
    api._announced.clear()
    wspec.compile(add, remarks="off").wspec.launch(add_source())
    assert capsys.readouterr().err == ""


def test_a_warm_start_is_not_silent(specialize: FakeSpecialize, capsys: pytest.CaptureFixture[str]) -> None:
    specialize.action = "decline"
    wspec.compile(add).wspec.launch(add_source())
    first = capsys.readouterr().err
    api._announced.clear()  # as in a new process
    wspec.compile(add).wspec.launch(add_source())
    assert capsys.readouterr().err == first != ""
    assert specialize.calls == 1


# ------------------------------------------------------------------------------------------------- stages


def test_stages(specialize: FakeSpecialize) -> None:
    asked = wspec.offline(gemm, GEMM_SIGNATURE, GEMM_BLOCKS, num_warps=8)
    assert asked.stages() == ("ttir", "ttgir", "first pass", "specialized", "final", "llir", "ptx", "sass")
    texts = {stage: asked.dump(stage) for stage in asked.stages()}
    assert "tt.dot" in texts["ttir"] and '"ttng.warp_group_dot"' in texts["ttgir"]
    assert "ttng.async_tma_copy_global_to_local" in texts["final"] or "tt.descriptor_load" in texts["final"]
    assert "define " in texts["llir"] and ".target sm_90a" in texts["ptx"] and "HGMMA" in texts["sass"]
    for stage in ("ttir", "ttgir", "first pass", "specialized", "final"):
        bridge.reparse(texts[stage])


def test_an_unknown_stage_lists_those_that_are_there(specialize: FakeSpecialize) -> None:
    specialize.action = "decline"
    with pytest.raises(WspecError, match=r"no stage 'specialized'(?s:.*)ttir, ttgir, final, llir, ptx, sass"):
        wspec.compile(add).dump("specialized", *ADD_SIGNATURE.values())


def test_the_dump_option_writes_every_stage(specialize: FakeSpecialize, tmp_path: Path) -> None:
    wspec.offline(add, ADD_SIGNATURE, dump=str(tmp_path / "dump")).outcome()
    folder = next((tmp_path / "dump").iterdir())
    names = sorted(path.name for path in folder.iterdir())
    stages = ("ttir", "ttgir", "first pass", "specialized", "final", "llir", "ptx", "ptxas-log")
    assert names == [f"{number:02}-{stage}.txt" for number, stage in enumerate(stages)]


# ---------------------------------------------------------------------------------------------- autotune


CONFIGS = [triton.Config({"BLOCK": 64}, num_warps=2), triton.Config({"BLOCK": 256}, num_warps=8)]


def test_asking_an_autotuned_kernel(specialize: FakeSpecialize) -> None:
    kernel = wspec.compile(triton.autotune(CONFIGS, key=[])(add))
    x = torch.empty(1024, device="meta")
    assert "BLOCK=64; num_warps=2" in kernel.explain(x, x, 1024)
    assert "BLOCK=32; num_warps=2" in kernel.explain(x, x, 1024, BLOCK=32)
    kernel.best_config = CONFIGS[1]
    assert "BLOCK=256; num_warps=8" in kernel.explain(x, x, 1024)
    assert wspec.offline(kernel, ADD_SIGNATURE).source.options.num_warps == 8


def test_a_pre_hook_that_sets_blocks_and_zeroes_tensors(specialize: FakeSpecialize) -> None:
    def pre_hook(args: dict[str, object]) -> None:
        args["a_desc"].block_shape = [args["BLOCK_M"], args["BLOCK_K"]]  # type: ignore[attr-defined]
        args["b_desc"].block_shape = [args["BLOCK_K"], args["BLOCK_N"]]  # type: ignore[attr-defined]
        args["c_ptr"].zero_()  # type: ignore[attr-defined]

    config = triton.Config(GEMM_BLOCKS, num_warps=8, pre_hook=pre_hook)
    kernel = wspec.compile(triton.autotune([config], key=[])(gemm))
    x = torch.ones(256, 256, dtype=torch.float16)
    a, b = (TensorDescriptor.from_tensor(x, [1, 64]) for _ in range(2))
    report = kernel.outcome(a, b, x, K=256, N=256)
    assert report.source.ast.signature["a_desc"] == "tensordesc<fp16[128, 64]>"
    assert a.block_shape == [1, 64] and bool((x == 1).all()), "asking must not change the arguments"


def test_heuristics(specialize: FakeSpecialize) -> None:
    kernel = wspec.compile(triton.heuristics({"BLOCK": lambda args: 2 * args["n"]})(add))
    assert "BLOCK=128" in kernel.explain("*fp32", "*fp32", n=64)
    with pytest.raises(WspecError, match="heuristic for 'BLOCK' failed"):
        wspec.compile(triton.heuristics({"BLOCK": lambda args: 2 // args["n"]})(add)).explain("*fp32", "*fp32", "i32")


# -------------------------------------------------------------------------------------------------- plans


def test_a_plan_reaches_the_compiler_and_the_cache_key(monkeypatch: pytest.MonkeyPatch, fresh_cache: Path) -> None:
    tasks = (Task("load", "producer", 1, 24), Task("mma", "consumer", 4, 240, replicas=2))
    plan = Plan("add", "fingerprint", 4, tasks, ())
    seen: list[Plan | None] = []

    def specialize(module: ir.Operation, options: Options, *, plan: Plan | None, **_: Any) -> FakeOutcome:
        seen.append(plan)
        return FakeOutcome(module, plan, (Remark("specialized", "done"),))

    monkeypatch.setattr("wspec.pipeline.specialize", specialize)
    path = fresh_cache.parent / "plan.toml"
    path.write_text(plan.to_text())
    for given in (plan, plan.to_text(), path):
        kernel = wspec.compile(add, plan=given)
        assert kernel.plan(*ADD_SIGNATURE.values()) == plan
    assert seen == [plan], "three times the same plan is one entry of the cache"
    assert wspec.compile(add).plan(*ADD_SIGNATURE.values()) is None
    assert seen == [plan, None]
    assert kernel.cache_key != wspec.compile(add).cache_key


def test_importing_wspec_does_not_import_triton() -> None:
    code = "import sys, wspec, wspec.ir, wspec.options; assert not {'triton', 'torch'} & set(sys.modules), 'heavy'"
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)


def test_only_the_bridge_imports_triton_in_the_compiler() -> None:
    package = Path(wspec.__file__).parent
    files = [*package.glob("*.py"), *package.glob("ir/*.py"), *package.glob("plan/*.py"), *(ROOT / "passes").glob("*")]
    guilty = [str(file) for file in files if file.suffix == ".py" and "import triton" in file.read_text()]
    assert guilty == []


@pytest.mark.parametrize("stacked", [False, True])
def test_an_autotuner_over_a_kernel_of_ours_answers_too(stacked: bool, fresh_cache: Path) -> None:
    kernel: Any = triton.autotune([triton.Config({"BLOCK_K": 64}, num_warps=4)], key=["K"])(wspec.compile(gemm))
    if stacked:
        kernel = triton.heuristics({"BLOCK_M": lambda _: 128})(kernel)
    given = {**GEMM_SIGNATURE, **GEMM_BLOCKS}
    for name in ("BLOCK_K", "BLOCK_M")[: 1 + stacked]:
        del given[name]
    assert kernel.explain(**given).startswith("gemm(a_desc: tensordesc<fp16[128, 64]>")
    assert "warp_group_dot" in kernel.dump("ttgir", **given)
    assert kernel.plan(**given) == kernel.outcome(**given).plan
    with pytest.raises(AttributeError, match="no attribute 'bogus'"):
        _ = kernel.bogus
    plain: Any = triton.autotune([triton.Config({})], key=[])(gemm)
    assert not hasattr(plain, "explain")

"""The cache: its key, what it stores, several processes."""

from __future__ import annotations

import errno
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import triton
from triton.runtime.cache import FileCacheManager

import wspec
from tests.bridge.sample_kernels import ADD_SIGNATURE, add, add_source, gemm_source, twice
from wspec import bridge
from wspec.bridge import cache, digest
from wspec.decision import Decision
from wspec.diagnostics import Remark
from wspec.ir.loc import FileLoc, file_loc
from wspec.options import Options
from wspec.specs.kernel_file import load_kernel
from wspec.tile_scheduler import LoopCost, StreamK, TileCost, TileLoop
from wspec.tile_scheduler.costs import Trips
from wspec.tile_scheduler.scalars import Scalar

ROOT = Path(__file__).parents[2]


def _add(**values: object) -> bridge.KernelSource:
    return bridge.from_signature(add, ADD_SIGNATURE, values)


INGREDIENTS: dict[str, Callable[[], str]] = {
    "option": lambda: cache.key(add_source(), Options(depth=3)),
    "plan": lambda: cache.key(add_source(), Options(), plan="version = 1"),
    "constexpr": lambda: cache.key(_add(BLOCK=256), Options()),
    "num_warps": lambda: cache.key(_add(num_warps=8), Options()),
    "num_stages": lambda: cache.key(_add(num_stages=7), Options()),
    "argument type": lambda: cache.key(bridge.from_signature(add, {**ADD_SIGNATURE, "n": "i64"}, {}), Options()),
    "alignment": lambda: cache.key(bridge.from_signature(add, {**ADD_SIGNATURE, "x_ptr": "*fp32"}, {}), Options()),
    "kernel": lambda: cache.key(gemm_source(), Options()),
    "target": lambda: cache.key(
        bridge.from_signature(add, ADD_SIGNATURE, {}, triton.backends.compiler.GPUTarget("cuda", 80, 32)), Options()
    ),
    "environment": lambda: _key_with_variable("TRITON_X", "1"),
}


def _key_with_variable(name: str, value: str) -> str:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cache, "get_cache_invalidating_env_vars", lambda: {name: value})
        return cache.key(add_source(), Options())


@pytest.mark.parametrize("ingredient", INGREDIENTS)
def test_the_key_changes_with(ingredient: str) -> None:
    plain = cache.key(add_source(), Options())
    assert INGREDIENTS[ingredient]() != plain
    assert cache.key(add_source(), Options()) == plain


def test_the_key_changes_with_versions(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = cache.key(add_source(), Options())
    for name in ("wspec_digest", "triton_key"):
        with monkeypatch.context() as patch:
            patch.setattr(cache, name, lambda: "another")
            assert cache.key(add_source(), Options()) != plain
    monkeypatch.setattr(type(add_source().backend), "hash", lambda self: "another ptxas")
    assert cache.key(add_source(), Options()) != plain


def test_a_kernel_that_became_another_module_is_not_shared(fresh_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Equal TTGIR may be specialized otherwise for other `num_stages`, which the model looks at."""
    monkeypatch.setattr(cache, "_shared", {})
    first, second = cache.sha256("first"), cache.sha256("second")
    cache.store(first, add_source(), cache.Result(False, (), "theirs", module="made"))
    cache.remember("share", first)
    assert cache.load_shared("share", second, add_source(), "ours", "made otherwise") is None
    shared = cache.load_shared("share", second, add_source(), "ours", "made")
    assert shared is not None and shared[0] == cache.Result(False, (), "ours", module="made")
    assert cache.load(second, add_source()) == shared


def test_the_key_changes_with_the_source_of_a_helper() -> None:
    plain = cache.key(add_source(), Options())
    old = twice.src
    try:
        twice._unsafe_update_src(old + "\n    # changed")
        add.hash = None
        assert cache.key(_add(), Options()) != plain
    finally:
        twice._unsafe_update_src(old)
        add.hash = None


def test_options_that_do_not_change_the_kernel_share_an_entry() -> None:
    plain = cache.key(add_source(), Options())
    assert cache.key(add_source(), Options(strict=True, remarks="off", dump="/nowhere", cache=False)) == plain


def test_the_digest_covers_every_source_file_that_compiles(tmp_path: Path) -> None:
    root = Path(wspec.__file__).parent
    names = {str(path.relative_to(root)) for path in digest._source_files(root)}
    assert {
        "bridge/cache.py",
        "check/checker.py",
        "ir/core.py",
        "passes/split.py",
        "pipeline.py",
        "plan/plan.py",
    } <= names
    assert any(name.endswith(".toml") for name in names)
    assert not any(name.startswith(("kernels/", "lab/", "cli/", "execute/")) or "__pycache__" in name for name in names)


def test_store_and_load(fresh_cache: Path) -> None:
    remark = Remark("no-loop", "no loop", FileLoc("a.py", 3, 4), (("step", FileLoc("b.py", 5, 6)),), "note", "warning")
    result = bridge.Result(False, (remark,), plan="version = 1", ptxas_log="log", proof="proved")
    key = cache.key(add_source(), Options())
    assert cache.load(key, add_source()) is None
    cache.store(key, add_source(), result)
    found = cache.load(key, add_source())
    assert found is not None and found[0] == result


@pytest.mark.parametrize("stream_k", [Decision(StreamK(4, 12.5, 64)), Decision(None, "it cannot"), Decision()])
def test_how_blocks_take_tiles_is_kept(fresh_cache: Path, stream_k: Decision[StreamK]) -> None:
    scalars = Scalar("constant", 32, (), 0), Scalar("argument", 32, (), 2), Scalar("constant", 32, (), 64)
    cost = TileCost(1.5, (LoopCost(4, 10.0, (Trips(0, 1, 2),)), LoopCost(6, 3.0, unknown="memory")), scalars)
    key = cache.key(add_source(), Options())
    for tiles in (TileLoop(cost, stream_k=stream_k), TileLoop(cost, 3, 1)):
        cache.store(key, add_source(), bridge.Result(False, (), tile_loop=tiles, blocks_per_sm=2))
        found = cache.load(key, add_source())
        assert found is not None and found[0].tile_loop == tiles and found[0].blocks_per_sm == 2


def _stored(source: bridge.KernelSource, key: str) -> bridge.Group:
    ttir, ttgir = bridge.lower(source)
    finished = bridge.finish(ttgir, source)
    cache.store(key, source, bridge.Result(True, ()), ttir, finished)
    found = cache.load(key, source)
    assert found is not None and found[0].specialized
    return found[1]


def test_a_stored_kernel_is_a_compiled_kernel(fresh_cache: Path) -> None:
    source = gemm_source()
    group = _stored(source, "ab" * 32)
    kernel = bridge.load_kernel(source, bridge.Result(True, ()), group)
    plain = bridge.load_kernel(source, bridge.Result(False, ()), {})
    assert isinstance(kernel, triton.compiler.CompiledKernel)
    assert set(plain.metadata._fields) == set(kernel.metadata._fields)
    assert set(plain.asm) - {"source"} == set(kernel.asm) - {"wspec"}
    assert kernel.hash == "ab" * 32 and kernel.name == "gemm"
    assert kernel.metadata.tensordesc_meta == plain.metadata.tensordesc_meta


@pytest.mark.parametrize("damage", ["cubin gone", "metadata cut short", "result cut short"])
def test_a_damaged_entry_is_a_miss(fresh_cache: Path, damage: str) -> None:
    group = _stored(add_source(), "cd" * 32)
    if damage == "cubin gone":
        Path(group["add.cubin"]).unlink()
    else:
        path = Path(group["add.json" if "metadata" in damage else "add.wspec"])
        path.write_text(path.read_text()[:20])
    assert cache.load("cd" * 32, add_source()) is None
    _stored(add_source(), "cd" * 32)  # and it can be written again


WORKERS = """
import os
from tests.bridge.sample_kernels import FakeSpecialize, add, ADD_SIGNATURE
import wspec.api, wspec.pipeline
from wspec.bridge import cache

def work():
    cache.wspec_digest = lambda: "of one version"  # nobody's edits between two workers count
    fake = FakeSpecialize()
    wspec.pipeline.specialize = fake
    report = wspec.offline(add, ADD_SIGNATURE, {}).outcome()
    said = fake.calls, report.specialized, report.kernel.hash, len(report.kernel.asm["cubin"])
    os.write(1, f"{' '.join(map(str, said))}\\n".encode())  # at once: others write to the same pipe

def at_once(count):
    children = []
    for _ in range(count):
        child = os.fork()
        if child == 0:
            code = 1
            try:
                work()
                code = 0
            finally:
                os._exit(code)
        children.append(child)
    assert not any(os.waitpid(child, 0)[1] for child in children)

at_once(3)
at_once(1)
"""


def test_several_processes_at_once_and_a_warm_one(fresh_cache: Path) -> None:
    """Forks of one that has only imported what they need: they share nothing but the folder."""
    done = subprocess.run([sys.executable, "-c", WORKERS], cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True)
    *outputs, warm = (line.split() for line in done.stdout.splitlines())
    assert len(outputs) == 3
    assert {tuple(output[1:]) for output in outputs} == {tuple(outputs[0][1:])} and outputs[0][1] == "True"
    assert warm == ["0", *outputs[0][1:]], "a warm process must not run the compiler"
    assert not list(fresh_cache.rglob("tmp.pid_*"))
    assert json.loads(next(fresh_cache.rglob("add.wspec")).read_text())["specialized"] is True


PLANNED = """
from tests.bridge.sample_kernels import GEMM_BLOCKS, GEMM_SIGNATURE, gemm
import sys, wspec.api

COMPILERS = {"wspec.pipeline", "wspec.planner", "wspec.check", "wspec.ptx", "wspec.bridge.backend", "networkx"}
report = wspec.offline(gemm, GEMM_SIGNATURE, {**GEMM_BLOCKS, "num_warps": 8}, gate="off").outcome()
assert report.kernel.asm["cubin"]
print(report.specialized, report.plan.to_text().count("[[channels]]"), *sorted(COMPILERS & set(sys.modules)))
"""


def test_a_plan_is_made_once(fresh_cache: Path) -> None:
    """Another process takes the kernel and its plan from the cache, and does not even import the compiler."""
    run = [sys.executable, "-c", PLANNED]
    said = [subprocess.run(run, cwd=ROOT, check=True, capture_output=True, text=True).stdout for _ in range(2)]
    everything = "networkx wspec.bridge.backend wspec.check wspec.pipeline wspec.planner wspec.ptx"
    assert said == [f"True 2 {everything}\n", "True 2\n"]


@pytest.mark.parametrize("damage", [b"", b"{}", b"[]", b'{"remarks": 1}', b"\xff\xfe\x00", b"null"])
@pytest.mark.parametrize("which", ["add.wspec", "__grp__add.wspec", "add.json", "add.cubin", "add.ptx"])
def test_whatever_stands_in_a_file_of_the_cache_it_is_made_again(fresh_cache: Path, which: str, damage: bytes) -> None:
    group = _stored(add_source(), "ef" * 32)
    Path(group["add.cubin"]).with_name(which).write_bytes(damage)
    assert cache.load("ef" * 32, add_source()) is None
    _stored(add_source(), "ef" * 32)


def test_a_copy_of_a_kernel_has_remarks_on_its_own_file(fresh_cache: Path, tmp_path: Path) -> None:
    text = (
        "import triton, triton.language as tl\n@triton.jit\ndef tail(x):\n    tl.store(x, 1.0)\n\n"
        "@triton.jit\ndef copied(x):\n    tail(x)\n"
    )
    places = []
    for name in ("one", "two"):
        file = tmp_path / f"{name}.py"
        file.write_text(text)
        kernel = load_kernel(f"{file}:copied").function
        report = wspec.offline(kernel, {"x": "*fp32:16"}).outcome()
        assert report.reason is not None and report.reason.code == "no-loop"
        place = file_loc(report.reason.location)
        assert place is not None
        places.append((place.file, place.line))
    assert places == [(str(tmp_path / "one.py"), 7), (str(tmp_path / "two.py"), 7)]
    assert len(list(fresh_cache.glob("*/__grp__copied.wspec"))) == 1


def test_a_folder_that_cannot_be_written_to_leaves_the_kernel_alone(
    fresh_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(FileCacheManager, "put", full)
    report = wspec.offline(add, ADD_SIGNATURE).outcome()
    assert report.reason is not None and report.reason.code == "cache-unusable"
    assert "TRITON_CACHE_DIR" in report.reason.message and str(fresh_cache) in report.reason.message

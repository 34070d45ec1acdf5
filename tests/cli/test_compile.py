"""`wspec compile`, `explain` and `demo`: what is done, what is said of it, and the exit codes."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.cli.helpers import ATTENTION, ELEMENTWISE, KERNEL, Said, done, refused, wspec
from tests.support.broken import drop_arrive
from tests.support.goldens import ROOT
from wspec import ir
from wspec.check import explore
from wspec.pipeline import Outcome, specialize

PROVED = "proved: no deadlock and no race, for any trip count (3 tasks, 12 barriers, 8 buffers, "


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("stages")


@pytest.fixture(scope="module")
def compiled(folder: Path) -> Said:
    """The tour's kernel, its stages in `folder`."""
    return wspec("compile", KERNEL, "-o", str(folder))


def test_compile(compiled: Said) -> None:
    assert compiled.code == 0, compiled.err
    assert ": specialized\n" in compiled.out and "[specialized]\n  def attend(" in compiled.out
    assert compiled.fact("bytes spilled") == "0" and int(compiled.fact("HGMMA")) > 0
    assert int(compiled.fact("USETMAXREG").split()[0]) > 0
    assert f"\n\n{PROVED}" in compiled.out
    for part in ("tasks\n", "channels\n", "loops\n", "predicted ", "ptxas 1"):
        assert part in compiled.out


def test_every_stage_in_a_folder(compiled: Said, folder: Path) -> None:
    files = sorted(path.name for path in folder.iterdir())
    stages = [line.split()[0] for line in done("dump", KERNEL, "--list").splitlines()[1:]]
    assert [name.partition("-")[2].partition(".")[0] for name in files if name[0].isdigit()] == stages
    assert (folder / "attend.cubin").read_bytes().startswith(b"\x7fELF")
    assert f"{len(files)} files" in compiled.out


@pytest.mark.parametrize("stage", ["ttgir", "final"])
def test_compile_a_stage(compiled: Said, folder: Path, stage: str) -> None:
    """The binary is the same from any stage on: of the finished ones nothing is specialized again."""
    path = next(folder.glob(f"*-{stage}.ttgir"))
    said = wspec("compile", str(path))
    assert said.code == 0, said.err
    assert ("[already-specialized]" in said.out) == (stage != "ttgir")
    assert PROVED in said.out
    facts = ("registers", "bytes spilled", "HGMMA", "TMA loads", "SYNCS")
    assert [said.fact(fact) for fact in facts] == [compiled.fact(fact) for fact in facts]


def test_standard_input(folder: Path, compiled: Said) -> None:
    text = next(folder.glob("*-ttgir.ttgir")).read_text()
    flag = "--no-runners-up"
    assert done("plan", "-", flag, stdin=text).split("\n", 1)[1] == done("plan", KERNEL, flag).split("\n", 1)[1]


def test_left_alone() -> None:
    said = wspec("compile", f"{ELEMENTWISE}:softmax_kernel")
    assert said.code == 0 and ": left as it was\n" in said.out and "elementwise.py:36:1: remark:" in said.out
    assert said.fact("HGMMA") == "0" and int(said.fact("registers")) > 0


def test_left_alone_under_strict() -> None:
    said = wspec("compile", f"{ELEMENTWISE}:softmax_kernel", "--strict", "1")
    assert said.code == 1 and said.err == "error: softmax_kernel is left alone, and strict=1 [no-loop]\n"


def test_descriptors_alone() -> None:
    """Asked for, a kernel that is not specialized has them."""
    kernel = f"{ROOT}/kernels/matmul.py:matmul_pointer_kernel"
    options = (kernel, "--specialize", "0", "--promote", "1", "--strict", "1")
    for command in ("compile", "explain"):
        said = wspec(command, *options)
        assert said.code == 0 and ": not specialized, with descriptors for its pointers\n" in said.out, said
    assert "a_ptr_tiles: tiles that the kernel finds through a_ptr are boxes" in said.out
    assert int(wspec("compile", *options).fact("TMA loads")) > 0
    assert ": left as it was\n" in done("explain", kernel, "--specialize", "0", "--promote", "0")


def test_a_module_that_is_left_alone_has_no_binary() -> None:
    text = done("dump", f"{ELEMENTWISE}:add_kernel", "--stage", "ttgir")
    out = done("compile", "-", stdin=text)
    assert "left as it was" in out and "no binary:" in out
    assert "add_kernel is left alone and has no stage 'ptx'" in refused("dump", "-", "--stage", "ptx", stdin=text)


def test_turned_off() -> None:
    out = done("compile", f"{ELEMENTWISE}:add_kernel", "--enabled", "0")
    assert "[disabled]" in out and "registers" in out


# --------------------------------------------------------------------------------------------- the checker


def test_a_module_that_the_checker_refuses(folder: Path, compiled: Said) -> None:
    module = ir.read(next(folder.glob("*-specialized.ttgir")).read_text())
    drop_arrive(module)
    text = ir.print_module(module)
    said = wspec("compile", "-", stdin=text)
    assert said.code == 1 and ": left as it was\n" in said.out
    assert "(deadlock) [check-failed]" in said.out and "\nchecker: 1 error, " in said.out
    assert said.out.endswith("\nno binary of what the checker refuses; --check off makes one all the same\n")
    out = done("compile", "-", "--check", "off", stdin=text)
    assert "\nnot checked (check=off)\n" in out and "HGMMA" in out


def test_a_kernel_that_the_checker_refuses(monkeypatch: pytest.MonkeyPatch, fresh_cache: Path) -> None:
    """The binary is the plain kernel's."""

    def wrong(module: ir.Operation, *rest: Any, **more: Any) -> Outcome:
        made = specialize(module, *rest, **more)
        assert made.module is not None
        drop_arrive(made.module)
        return made

    monkeypatch.setattr("wspec.pipeline.specialize", wrong)
    said = wspec("compile", KERNEL)
    assert said.code == 1 and ": left as it was\n" in said.out and "[check-failed]" in said.out
    assert "\nchecker: 1 error, " in said.out and said.fact("USETMAXREG") == "0"
    said = wspec("explain", KERNEL)
    assert said.code == 1 and "check-failed: the checker found an error in the specialized kernel" in said.out
    assert "wspec-reproducers" in said.out and "what was done" not in said.out
    assert wspec("check", KERNEL).code == 1
    (reproducer,) = (fresh_cache / "wspec-reproducers").iterdir()
    said = wspec("check", str(reproducer))
    assert said.code == 1 and "(deadlock) [check-failed]" in said.out


def test_undecided(monkeypatch: pytest.MonkeyPatch, fresh_cache: Path) -> None:
    monkeypatch.setattr(explore, "MAX_STATES", 1)
    out = done("compile", KERNEL)
    assert ": left as it was\n" in out and "[check-undecided]" in out and "check=errors runs" in out
    out = done("compile", KERNEL, "--check", "errors")
    assert ": specialized\n" in out and "warning: the specialized attend is not proved: gave up" in out
    assert "\nchecker: not proved, 1 undecided (" in out


# ------------------------------------------------------------------------------------------------ explain


def test_explain() -> None:
    out = done("explain", KERNEL)
    assert "q (tour_kernel.py:13): one buffer of 32 KiB, filled anew for every tile" in out
    assert "k (tour_kernel.py:18): a ring of 2 buffers of 32 KiB" in out
    assert "the loop at tour_kernel.py:17: v = descriptor_load, acc = warp_group_dot run an iteration late" in out
    assert "the store at tour_kernel.py:28 goes through a buffer of its own" in out
    assert "walk through the tiles of the grid" in out and "one stage more takes 64 KiB" in out
    assert "what you can change" in out and "--overlap 0" in out and "--persistent 0" in out
    assert f"\n{PROVED}" in out
    rows = next(
        line for line in out.splitlines() if "the plain kernel where rows that are stored through o_desc" in line
    )
    assert rows.endswith("tour_kernel.py:28)")


def test_explain_a_block_for_every_tile() -> None:
    out = done("explain", KERNEL, "--persistent", "0")
    assert "q (tour_kernel.py:13): one buffer of 32 KiB, filled once" in out
    assert "the store at tour_kernel.py:28 goes through the buffer of q" in out
    assert "walk through" not in out and "--persistent" not in out


MATMUL = (ROOT / "kernels/matmul.py").read_text(encoding="utf-8")
LOADED = f"matmul.py:{1 + MATMUL[: MATMUL.index('a = tl.load(a_ptrs')].count(chr(10))}"


@pytest.mark.parametrize(
    ("command", "code", "place"),
    [
        ([f"{ELEMENTWISE}:layer_norm_kernel"], "no-dot-loop", "elementwise.py:53"),
        ([f"{ROOT}/kernels/matmul.py:matmul_pointer_kernel", "--promote", "0"], "gate-slower", LOADED),
    ],
)
def test_explain_why_not(command: list[str], code: str, place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is compiled to say it: what Triton makes of a large kernel may take a minute."""

    def compiles(*_: object) -> None:
        raise AssertionError("the plain kernel was compiled")

    monkeypatch.setattr("wspec.bridge.persistent.load_plain", compiles)
    monkeypatch.setattr("wspec.bridge.compile.finish", compiles)
    out = done("explain", *command)
    assert f"[{code}]" in out and f"{place}:" in out and "what to change" in out


# --------------------------------------------------------------------------------------- the whole program


def program(*arguments: str) -> subprocess.CompletedProcess[str]:
    """The command as a person runs it."""
    command = [sys.executable, "-m", "wspec.cli", *arguments]
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": ""}
    return subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=environment, check=False, timeout=120)


def test_demo(monkeypatch: pytest.MonkeyPatch) -> None:
    """In this process, for what it compiles others have compiled; README's commands are run as programs."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    ended = wspec("demo")
    assert ended.code == 0, ended.err
    assert ended.err == ""
    rows = {line[:28].strip(): line[28:].split() for line in ended.out.splitlines()}
    assert rows["bytes spilled"][-1] == "0"
    plain, specialized = (int(rows["USETMAXREG"][at]) for at in (0, 1))
    assert plain == 0 and specialized > 0
    assert "2 consumer warp groups" in ended.out and "k            2" in ended.out
    assert "walk through" in ended.out
    assert f"\n\n{PROVED}" in ended.out
    assert re.search(r"\ncubin for sm_90a: \d{5,} bytes; -o FOLDER writes it", ended.out)
    for what in ("plain  ", "specialized, random", "specialized, adversarial"):
        runs, output, _, _, _, share = rows_of(ended.out, what)[:6]
        assert int(runs) >= 2 and output == "o_desc" and 0 < float(share) <= 1
    assert "\nspecialized against plain: the same bits, " in ended.out and "wrong" not in ended.out
    assert "\nnot run on a GPU: no CUDA GPU is visible" in ended.out


def rows_of(text: str, name: str) -> list[str]:
    """The cells of the first row of a table that begins with `name`."""
    return next(line for line in text.splitlines() if line.startswith(name))[len(name) :].split()


def test_a_reader_that_stops() -> None:
    command = f"{sys.executable} -m wspec.cli dump {ATTENTION} --stage ttgir | head -1; exit ${{PIPESTATUS[0]}}"
    ended = subprocess.run(["bash", "-c", command], capture_output=True, text=True, cwd=ROOT, check=False, timeout=60)
    assert ended.returncode == 0 and ended.stderr == "" and len(ended.stdout.splitlines()) == 1


def test_an_error_of_the_whole_program() -> None:
    ended = program("compile", "kernels/attention.py:attention")
    assert ended.returncode == 2 and ended.stdout == ""
    assert ended.stderr.startswith("error: kernels/attention.py has no kernel 'attention'")
    assert "Traceback" not in ended.stderr

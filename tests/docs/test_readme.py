"""What README shows can be pasted: the program, the commands about it, the picture and what draws it."""

from __future__ import annotations

import importlib.util
import os
import shlex
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
import torch
from triton.tools.tensor_descriptor import TensorDescriptor

import wspec
from tests.support.goldens import ROOT, assert_golden
from wspec.cli import main
from wspec.options import table

TEXT = (ROOT / "README.md").read_text()
DRAWS = "wspec graph kernels/attention.py:attention_fwd --variant d128 --tasks -o docs/tasks.svg"


def block(opening: str, holds: str) -> str:
    """The block of code with these words in it."""
    blocks = TEXT.split(opening + "\n")[1:]
    return next(text for text in (one.split("```")[0] for one in blocks) if holds in text)


@pytest.fixture
def program(tmp_path: Path) -> Path:
    path = tmp_path / "attend.py"
    path.write_text(block("```python", "@wspec.compile"))
    return path


def imported(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT)}


def test_its_kernel_is_specialized_for_the_launch_shown(program: Path) -> None:
    x = TensorDescriptor.from_tensor(torch.empty(16384, 128, device="meta", dtype=torch.bfloat16), [128, 128])
    found = imported(program).attend.outcome(x, x, x, x, 16384, 0.1, M=128, N=128, D=128, num_warps=8)
    assert found.specialized and found.proof.startswith("proved")


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_its_program_comes_as_far_as_the_driver(program: Path) -> None:
    """Everything of a launch is right but for the card."""
    module = imported(program)
    q, k, v = (torch.zeros(256, 128, dtype=torch.bfloat16) for _ in range(3))
    with pytest.raises(RuntimeError, match="0 active drivers"):
        module.launch(q, k, v)


@pytest.mark.gpu
def test_its_program_runs(program: Path) -> None:
    done = subprocess.run([sys.executable, program], env=environment(), capture_output=True, text=True)
    assert done.returncode == 0 and "1 of 1 compiled kernels specialized" in done.stdout, done.stderr


def test_its_commands_run(program: Path) -> None:
    """As a shell runs them."""
    commands = block("```", "wspec explain attend.py:attend")
    wspec_is = f'set -e; wspec() {{ {shlex.quote(sys.executable)} -m wspec.cli "$@"; }}\n'
    shell = ["bash", "-c", wspec_is + commands]
    done = subprocess.run(shell, cwd=program.parent, env=environment(), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    for said in (": specialized", "what you can change", "proved: no deadlock", "the same bits", "one program: "):
        assert said in done.stdout


def test_its_picture(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, update: bool) -> None:
    assert DRAWS in TEXT and "](docs/tasks.svg)" in TEXT
    monkeypatch.chdir(ROOT)
    assert main([*shlex.split(DRAWS)[1:-1], str(tmp_path / "tasks.svg")]) == 0
    assert_golden(ROOT / "docs" / "tasks.svg", (tmp_path / "tasks.svg").read_text(), update)


def test_what_it_names_is_there() -> None:
    """Of the package, of what answers about a kernel, and options."""
    from wspec.api import Inspectable
    from wspec.outcome import Report

    for name in ("compile", "enable", "offline", "report", "WspecError"):
        assert f"wspec.{name}" in TEXT and name in wspec.__all__
    for name in ("explain", "outcome", "plan", "dump"):
        assert f"`kernel.{name}(" in TEXT and hasattr(Inspectable, name)
    for name in ("specialized", "reason", "remarks", "plan", "proof", "resources", "choice"):
        assert f"`.{name}`" in TEXT and hasattr(Report, name)
    assert {"depth", "strict", "remarks", "cache", "gate", "tune"} <= set(table())

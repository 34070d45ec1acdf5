"""`wspec run-with` on programs that know nothing of wspec."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.helpers import Said, wspec
from tests.support.goldens import ROOT

PROGRAM = """
import sys
import torch, triton
from tests.bridge.fake_driver import FakeDriver
from tests.bridge.sample_kernels import add

triton.runtime.driver._active = FakeDriver()
x = torch.empty(1024)
compiled = add[(8,)](x, x, 1024)
print(__name__, sys.argv[1:], type(compiled).__name__)
"""


def run_with(folder: Path, program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    (folder / "program.py").write_text(program)
    env = {**os.environ, "PYTHONPATH": str(ROOT), "TRITON_CACHE_DIR": str(folder / "cache")}
    command = [sys.executable, "-m", "wspec.cli", "run-with", *arguments]
    return subprocess.run(command, env=env, cwd=folder, capture_output=True, text=True)


def run_here(folder: Path, monkeypatch: pytest.MonkeyPatch, program: str, *arguments: str) -> Said:
    """The same in this process, which has imported what takes longest; what the command changes of it is undone."""
    (folder / "program.py").write_text(program)
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setattr(sys, "argv", [*sys.argv])
    monkeypatch.setenv("WSPEC", "")
    return wspec("run-with", *arguments)


def test_a_program_and_what_became_of_its_kernels(tmp_path: Path) -> None:
    ran = run_with(tmp_path, PROGRAM, "program.py", "--epochs", "3")
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout == "__main__ ['--epochs', '3'] LaunchableKernel\n"
    assert "0 of 1 compiled kernels specialized" in ran.stderr and "no-loop" in ran.stderr


def test_as_a_module(tmp_path: Path) -> None:
    ran = run_with(tmp_path, "import os; print(__name__, os.environ['WSPEC'])", "--quiet", "-m", "program")
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "__main__ 1\n", "")


@pytest.mark.parametrize(
    ("program", "code", "said"),
    [
        ("raise SystemExit(3)", 3, ""),
        ("raise SystemExit('no data')", 1, "no data"),
        ("1 / 0", 1, "ZeroDivisionError"),
    ],
)
def test_how_it_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: str, code: int, said: str) -> None:
    ran = run_here(tmp_path, monkeypatch, program, "program.py")
    assert ran.code == code and said in ran.err


@pytest.mark.parametrize("arguments", [["nothing.py"], ["-m", "nothing"]])
def test_no_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str]) -> None:
    ran = run_here(tmp_path, monkeypatch, "", *arguments)
    assert ran.code == 2 and ran.err.startswith("error: there is no") and "nothing" in ran.err

"""`wspec run-with` on programs that know nothing of wspec."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

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
def test_how_it_ends(tmp_path: Path, program: str, code: int, said: str) -> None:
    ran = run_with(tmp_path, program, "program.py")
    assert ran.returncode == code and said in ran.stderr


@pytest.mark.parametrize("arguments", [["nothing.py"], ["-m", "nothing"]])
def test_no_program(tmp_path: Path, arguments: list[str]) -> None:
    ran = run_with(tmp_path, "", *arguments)
    assert ran.returncode == 2 and ran.stderr.startswith("error: there is no") and "nothing" in ran.stderr

"""What `pip install .` installs."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

import wspec

ROOT = Path(__file__).parents[2]
IGNORED = shutil.ignore_patterns("__pycache__", "*.egg-info", "build")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    """A wheel built from a copy, since building leaves files behind."""
    copy = tmp_path_factory.mktemp("wheel") / "wspec"
    copy.mkdir()
    for folder in ("wspec", "passes", "kernels"):
        shutil.copytree(ROOT / folder, copy / folder, symlinks=True, ignore=IGNORED)
    for file in ("pyproject.toml", "LICENSE", "README.md"):
        if (ROOT / file).exists():
            shutil.copy(ROOT / file, copy / file)
    command = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "--quiet", "-w", ".", "."]
    subprocess.run(command, cwd=copy, check=True)
    return zipfile.ZipFile(next(copy.glob("*.whl")))


def test_only_wspec_is_installed(wheel: zipfile.ZipFile) -> None:
    tops = {name.split("/")[0] for name in wheel.namelist()}
    assert tops == {"wspec", "wspec.pth", f"wspec-{wspec.__version__}.dist-info"}


def test_wspec_in_the_environment_switches_it_on(wheel: zipfile.ZipFile, tmp_path: Path) -> None:
    """By wspec.pth, in a program that does not import wspec; and nothing is imported where it is not set."""
    wheel.extractall(tmp_path)
    program = (
        f"import site, sys; site.addsitedir({str(tmp_path)!r}); print('wspec' in sys.modules); import torch, triton;"
        "print(triton.runtime.jit.JITFunction.run.__module__)"
    )
    for value, expected in ((None, ["False", "triton.runtime.jit"]), ("1", ["True", "wspec.bridge.everywhere"])):
        env = {name: text for name, text in os.environ.items() if name not in ("WSPEC", "PYTHONPATH")}
        env |= {} if value is None else {"WSPEC": value, "PYTHONPATH": str(tmp_path)}
        ran = subprocess.run([sys.executable, "-c", program], env=env, capture_output=True, text=True, check=True)
        assert ran.stdout.split() == expected, ran.stderr


def test_every_module_and_data_file_is_in_it(wheel: zipfile.ZipFile) -> None:
    names = set(wheel.namelist())
    for folder, target in (("wspec", "wspec"), ("passes", "wspec/passes"), ("kernels", "wspec/kernels")):
        for path in (ROOT / folder).rglob("*"):
            if path.suffix in (".py", ".json", ".toml") and "__pycache__" not in path.parts:
                assert f"{target}/{path.relative_to(ROOT / folder)}" in names
    assert {"wspec/py.typed", "wspec/passes/split.py", "wspec/kernels/attention.py", "wspec/model/h200.toml"} <= names


def test_the_command_is_declared(wheel: zipfile.ZipFile) -> None:
    entry = next(name for name in wheel.namelist() if name.endswith("entry_points.txt"))
    assert "wspec = wspec.cli:main" in wheel.read(entry).decode()


def test_dependencies_are_documented_and_pinned() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    text, pins = (ROOT / "docs" / "dependencies.md").read_text(), (ROOT / "constraints.txt").read_text()
    for line in [
        *project["dependencies"],
        *(item for extra in project["optional-dependencies"].values() for item in extra),
    ]:
        name = line.split(">")[0]
        assert name in text, f"docs/dependencies.md does not say why {name} is needed"
        assert f"\n{name}==" in pins, f"constraints.txt does not pin {name}"

"""The plain kernels compute the right numbers, by Triton's interpreter on the CPU."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

SCRIPT = Path(__file__).with_name("interpreted.py")


@pytest.fixture(scope="module")
def results() -> Any:
    path = os.pathsep.join(filter(None, sys.path))
    environment = {**os.environ, "TRITON_INTERPRET": "1", "PYTHONWARNINGS": "ignore", "PYTHONPATH": path}
    done = subprocess.run([sys.executable, str(SCRIPT)], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    return json.loads(done.stdout)


def test_attention(results: Any) -> None:
    for name, found in results["attention"].items():
        assert found["error"] < 1e-3, name
        assert found["lse_error"] < 1e-5, name


def test_rows_that_see_no_key_are_zero(results: Any) -> None:
    for name, found in results["attention"].items():
        assert found["hidden_exact"], name
    assert results["attention"]["causal, more queries than keys"]["hidden_rows"] == 2 * 90


def test_matmul(results: Any) -> None:
    for name, found in results["matmul"].items():
        assert found["error"] < 1e-3, name


def test_rowwise(results: Any) -> None:
    for name, found in results["rowwise"].items():
        assert found < 1e-6, name

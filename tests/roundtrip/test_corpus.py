"""Round trips of real kernels, where somebody has harvested them.

CORPUS_ROOT names a folder with `out/KERNEL_SET/KERNEL.ttgir` and `.ttir` files; without it there is nothing to do.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.roundtrip.check import assert_round_trips
from wspec import bridge


def _files() -> list[Path]:
    root = os.environ.get("CORPUS_ROOT")
    return sorted(path for path in Path(root, "out").glob("*/*") if path.suffix in (".ttgir", ".ttir")) if root else []


@pytest.mark.parametrize("path", [pytest.param(path, id=f"{path.parent.name}/{path.name}") for path in _files()])
def test_corpus(path: Path) -> None:
    try:
        module = bridge.reparse(path.read_text())
    except bridge.BridgeError as error:
        pytest.skip(f"libtriton cannot read it: {error.message}")
    assert_round_trips(bridge.generic_text(module))

"""What tests of promotion share."""

from __future__ import annotations

import pytest

from wspec.passes.pointer_promotion import tiles


@pytest.fixture
def wherever(monkeypatch: pytest.MonkeyPatch) -> None:
    """What cards fault on is promoted too: the executor judges whether it would be the same."""
    monkeypatch.setattr(tiles, "FAULTS_OUTSIDE", False)

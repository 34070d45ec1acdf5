"""What is written down of one Triton, that of `constraints.txt`, is compared under that one alone."""

from __future__ import annotations

import pytest

from wspec.bridge.versions import INSTALLED

PINNED = "3.6"
under_pinned = pytest.mark.skipif(
    INSTALLED.release != PINNED, reason=f"written down under Triton {PINNED}: another front end makes other modules"
)

"""Parameters of a test of which CI runs some."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest


def one_of(every: int, parameters: Iterable[Any]) -> list[Any]:
    """All of them, each but every so many-th marked slow: `pytest --slow` runs them too."""
    found = []
    for at, one in enumerate(parameters):
        if at % every:
            known = isinstance(one, type(pytest.param()))
            values, marks, name = (one.values, one.marks, one.id) if known else ((one,), (), None)
            found.append(pytest.param(*values, marks=(*marks, pytest.mark.slow), id=name))
        else:
            found.append(one)
    return found

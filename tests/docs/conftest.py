"""The option of these tests: `--update` writes the excerpts of documents anew."""

from __future__ import annotations

import contextlib

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    with contextlib.suppress(ValueError):  # another conftest has it
        parser.addoption("--update", action="store_true", default=False, help="write expected outputs anew")


@pytest.fixture
def update(request: pytest.FixtureRequest) -> bool:
    """Whether to rewrite the documents. Unknown to a run of the whole suite, where it is False."""
    return bool(request.config.getoption("--update", default=False))

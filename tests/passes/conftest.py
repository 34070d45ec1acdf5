"""Options of these tests: `--update` writes the expected outputs anew, `--slow` runs what is marked slow as well."""

from __future__ import annotations

import contextlib

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    for name, text in (
        ("--update", "write the expected outputs of golden tests anew; read the diff"),
        ("--slow", "also run the tests that are marked slow"),
    ):
        with contextlib.suppress(ValueError):  # another conftest has it
            parser.addoption(name, action="store_true", default=False, help=text)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("--slow", default=False):
        return
    for item in items:
        if "/passes/" in item.nodeid and item.get_closest_marker("slow") is not None:
            item.add_marker(pytest.mark.skip(reason="slow; pytest tests/passes --slow runs it"))


@pytest.fixture
def update(request: pytest.FixtureRequest) -> bool:
    """Whether to rewrite expected outputs. Unknown to a run of the whole suite, where it is False."""
    return bool(request.config.getoption("--update", default=False))

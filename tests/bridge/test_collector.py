"""The garbage collector while a kernel is compiled: off, but for a full collection that is due anyway."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from wspec.bridge.collector import collect_if_due, collector_paused


@pytest.fixture
def full_collections(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """Grows by one for each. What is due is played: `gc.get_count` says that the oldest generation is full."""
    seen: list[int] = []

    def note(phase: str, info: dict[str, int]) -> None:
        if phase == "start" and info["generation"] == 2:
            seen.append(2)

    monkeypatch.setattr(gc, "get_threshold", lambda: (700, 10, 10))
    monkeypatch.setattr(gc, "get_count", lambda: (0, 0, 11))
    gc.callbacks.append(note)
    yield seen
    gc.callbacks.remove(note)


def test_what_is_due_is_collected_in_the_pause(full_collections: list[int]) -> None:
    with collector_paused():
        full_collections.clear()
        collect_if_due()
        assert full_collections == [2] and not gc.isenabled()
    assert gc.isenabled()


def test_nothing_is_collected_that_is_not_due(full_collections: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    with collector_paused():
        full_collections.clear()
        monkeypatch.setattr(gc, "get_count", lambda: (0, 0, 10))
        collect_if_due()
        monkeypatch.setattr(gc, "get_threshold", lambda: (2000, 10, 0))  # of a Python that has no such limit
        collect_if_due()
        assert full_collections == []


def test_a_program_that_collects_nothing_goes_on_so(full_collections: list[int]) -> None:
    gc.disable()
    try:
        with collector_paused():
            full_collections.clear()
            collect_if_due()
            assert full_collections == []
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_outside_of_a_pause_it_comes_by_itself(full_collections: list[int]) -> None:
    full_collections.clear()
    collect_if_due()
    assert full_collections == []

"""Memory that tables share."""

from __future__ import annotations

import torch

from wspec.bridge.table_memory import FIRST_BYTES, MOST_BYTES, Chunks


def test_a_long_row_has_memory_of_its_own() -> None:
    """And what is half full goes on being filled."""
    made: list[int] = []

    def allocate(_: tuple[int, int], size: int) -> torch.Tensor:
        made.append(size)
        return torch.empty(size // 4, dtype=torch.int32)

    found: Chunks[str] = Chunks()
    place, much = (0, 7), MOST_BYTES + 1
    for key, size in (("one", 1024), ("row", much), ("two", 1024), ("other row", much)):
        found.take(key, place, size, allocate)
    assert made == [FIRST_BYTES, much + 127, much + 127] and found.bytes == sum(made)
    assert list(found.more_than(much + 127)) == ["one", "two", "row"]

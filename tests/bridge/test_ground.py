"""Where descriptors that reach far before their tensor begin."""

from __future__ import annotations

import mmap

import pytest

from wspec.bridge.ground import ALONE, MOST, SIZE, TRIES, Grounds, registered
from wspec.host_descriptors import Ground

AT = 0x7F00_0000_0000  # of a tensor


class Pages:
    """Stands for the driver: notes what it maps, and refuses the first ones."""

    def __init__(self, refused: int = 0) -> None:
        self.refused, self.made = refused, dict[int, int]()

    def __call__(self, at: int, size: int) -> bool:
        self.refused -= 1
        if self.refused < 0:
            self.made[at] = size
        return self.refused < 0

    def holds(self, address: int) -> bool:
        return any(at <= address and address + 16 <= at + size for at, size in self.made.items())


@pytest.mark.parametrize("step", [208, 256, 4096, 100_000, SIZE // 2, SIZE, 3 << 25, 1 << 38])
@pytest.mark.parametrize("address", [AT, AT + 16, AT + 123456 * 16])
def test_it_begins_in_memory(step: int, address: int) -> None:
    pages = Pages()
    found = Grounds(pages).steps(address, Ground(0, step, 5000))
    assert found is not None and 0 <= found <= 5000
    assert pages.holds(address - found * step)


def test_short_steps_share_pages() -> None:
    pages = Pages()
    grounds = Grounds(pages)
    for step in (256, 512, 8192):
        for address in range(AT, AT + (80 << 30), 7 << 30):  # all over a card
            found = grounds.steps(address, Ground(0, step, 1 << 30))
            assert found is not None and pages.holds(address - found * step)
    assert len(pages.made) <= 6 and set(pages.made.values()) == {SIZE}


def test_long_steps_have_their_own() -> None:
    pages = Pages()
    grounds = Grounds(pages)
    for address in (AT, AT + (5 << 20), AT):
        found = grounds.steps(address, Ground(0, 100 << 20, 1000))
        assert found is not None and pages.holds(address - found * (100 << 20))
    assert list(pages.made.values()) == [ALONE, ALONE]


@pytest.mark.parametrize("refused", [1, TRIES - 1])
def test_where_others_lie_another_place_is_tried(refused: int) -> None:
    pages = Pages(refused)
    found = Grounds(pages).steps(AT, Ground(0, 256, 1 << 28))
    assert found is not None and pages.holds(AT - found * 256)


def test_there_may_be_none() -> None:
    assert Grounds(Pages(1 << 20)).steps(AT, Ground(0, 256, 1 << 28)) is None
    assert Grounds(Pages()).steps(1 << 30, Ground(0, 1 << 31, 4)) in (0, None)  # nothing below the first address
    grounds = Grounds(Pages())
    found = [grounds.steps(AT + (at << 20), Ground(0, 1 << 30, 2)) for at in range(MOST + 2)]
    assert None not in found[:MOST] and found[MOST:] == [None, None]


def test_without_a_card_there_is_none() -> None:
    """Nothing is left mapped, and nothing that is mapped is mapped over."""
    with mmap.mmap(-1, 1 << 20):
        assert not registered(AT - (1 << 40), SIZE) or _has_card()


def _has_card() -> bool:
    import torch

    return torch.cuda.is_available()

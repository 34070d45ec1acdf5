"""Where descriptors that reach far before their tensor begin."""

from __future__ import annotations

import pytest

from tests.bridge.fake_card import Card
from wspec.bridge.ground import MOST, PAGE, RANGE, TRIES, OfCard
from wspec.host_descriptors import Ground

AT = 0x7F00_0000_0000  # of a tensor


@pytest.mark.parametrize("step", [208, 256, 4096, 100_000, PAGE // 2, PAGE, 3 << 25, 1 << 34])
@pytest.mark.parametrize("address", [AT, AT + 16, AT + 123456 * 16])
def test_it_begins_in_memory(step: int, address: int) -> None:
    card = Card()
    found = card.grounds.steps(address, Ground(0, step, 1 << 24))
    assert found is not None and 0 <= found <= 1 << 24
    assert card.holds(address - found * step)


def test_tensors_share_a_range() -> None:
    card = Card()
    for step in (256, 512, 8192, 1 << 20):
        for address in range(AT, AT + (40 << 30), (3 << 30) + 4096):  # all over a card
            found = card.grounds.steps(address, Ground(0, step, 1 << 30))
            assert found is not None and card.holds(address - found * step)
    assert len(card.ranges) <= 2 and len(card.pages) <= 4


def test_long_steps_have_pages_of_their_own() -> None:
    card = Card()
    for address in (AT, AT + (5 << 20), AT):
        found = card.grounds.steps(address, Ground(0, 100 << 20, 1000))
        assert found is not None and card.holds(address - found * (100 << 20))
    assert len(card.ranges) == 1 and len(card.pages) == 2


def test_what_is_made_alike_can_begin_too() -> None:
    """As many steps before other tensors of the card, on either side; not before those that lie far away."""
    card = Card()
    found = card.grounds.steps(AT, Ground(0, 256, 1 << 28))
    assert found is not None
    for away in (0, 4096, 3 << 30, -(3 << 30), RANGE // 2 - PAGE, PAGE - RANGE // 2):
        there = AT + away - found * 256
        assert card.grounds.is_there(there) and card.holds(there)
    assert not card.grounds.is_there(AT + RANGE - found * 256) and not card.grounds.is_there(AT - RANGE - found * 256)


def test_a_place_between_two_pages() -> None:
    card = Card()
    first = card.grounds.steps(AT, Ground(0, 256, 1 << 28))
    assert first is not None
    (begin,) = card.ranges
    address = begin + PAGE - 16 + 7 * (4 << 20)
    assert card.grounds.steps(address, Ground(0, 4 << 20, 1 << 20)) == 7
    assert {begin, begin + PAGE} <= card.pages


@pytest.mark.parametrize("card", [Card(refused=1), Card(refused=TRIES - 1), Card(elsewhere=-(1 << 30))])
def test_where_others_lie_another_place_is_taken(card: Card) -> None:
    found = card.grounds.steps(AT, Ground(0, 256, 1 << 28))
    assert found is not None and card.holds(AT - found * 256)


@pytest.mark.parametrize("card", [Card(refused=1 << 20), Card(elsewhere=1 << 40), Card(elsewhere=-(1 << 40))])
def test_there_may_be_none(card: Card) -> None:
    """Nothing stays reserved for nothing."""
    assert card.grounds.steps(AT, Ground(0, 256, 1 << 28)) is None
    assert card.ranges == [] and card.pages == set()


def test_ranges_are_few() -> None:
    card = Card()
    found = [card.grounds.steps(AT + at * 2 * RANGE, Ground(0, 256, 1 << 16)) for at in range(MOST + 2)]
    assert None not in found[:MOST] and found[MOST:] == [None, None]


def test_without_cuda_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ctypes.CDLL", _missing)
    card = OfCard(0)
    assert card.reserve(AT, RANGE) is None and not card.map(AT)
    card.release(AT, RANGE)


def _missing(name: str) -> object:
    raise OSError(name)

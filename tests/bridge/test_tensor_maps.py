"""Tensor maps that are written: as the driver encodes them, or not at all."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable
from typing import Any

import pytest

from tests.support.host_card import Card
from tests.support.written_maps import Written
from wspec.bridge import cuda, direct, tensor_maps
from wspec.bridge.tensor_maps import TensorMaps, legal_strides

ADDRESS = 0x7F0000001230
BOX = (1, 64, 32, 8, 2)
Encode = Callable[..., int]
compiled = pytest.mark.skipif(direct.library() is None, reason="needs a C compiler and Python's headers")


@pytest.fixture
def maps(monkeypatch: pytest.MonkeyPatch) -> Callable[..., TensorMaps]:
    monkeypatch.setattr(tensor_maps, "_known", {})

    def made(rank: int, size: int, encode: Encode | None = None) -> TensorMaps:
        monkeypatch.setattr(cuda, "encode_call", lambda: encode or Card().encode)
        return TensorMaps(9, size, BOX[:rank], 3)

    return made


def form(draw: random.Random, rank: int, size: int) -> tuple[list[int], list[int]]:
    """A tensor's shape and strides, some of which are long, or of a dimension of length 1."""
    unit = 16 // size
    shape = [draw.choice([1, 2, draw.randint(1, 300), draw.getrandbits(draw.randint(1, 31)) or 1]) for _ in range(rank)]
    strides = [unit * max(1, draw.getrandbits(draw.randint(1, 32))) for _ in range(rank - 1)]
    return shape, [*(draw.choice([0, 7]) if n == 1 else s for n, s in zip(shape, strides, strict=False)), 1]


@compiled
@pytest.mark.parametrize("size", [1, 2, 4, 8])
@pytest.mark.parametrize("rank", [1, 2, 3, 4, 5])
def test_written_as_the_driver_does(maps: Callable[..., TensorMaps], rank: int, size: int) -> None:
    made, draw = maps(rank, size), random.Random(rank)
    layout = made.at(ADDRESS)
    assert layout is not None
    written = Written(layout)
    for _ in range(100):
        shape, strides = form(draw, rank, size)
        legal = legal_strides(shape, strides, size)
        assert legal is not None
        there = made.encode(ADDRESS, *shape, *legal)
        assert there is not None
        assert written.of(ADDRESS, shape, strides) == there + struct.pack(f"<{rank}q{rank}i", *legal, *shape)


@compiled
@pytest.mark.parametrize(
    ("shape", "strides"),
    [
        ((4, 4, 0), (64, 16, 1)),
        ((0, 4, 4), (64, 16, 1)),
        ((4, 4, 8), (64, 16, 2)),
        ((4, 4, 8), (64, 9, 1)),
        ((4, 4, 8), (0, 16, 1)),
        ((4, 4, 8), (-64, 16, 1)),
        ((4, 4, 8), (8 << 32, 16, 1)),
        ((4, 1 << 31, 8), (64, 16, 1)),
    ],
)
def test_what_no_map_is_written_of(
    maps: Callable[..., TensorMaps], shape: tuple[int, ...], strides: tuple[int, ...]
) -> None:
    layout = maps(3, 2).at(ADDRESS)
    assert layout is not None
    written = Written(layout)
    assert written.of(ADDRESS, (4, 4, 8), (64, 16, 1)) is not None
    assert written.of(ADDRESS, shape, strides) is None
    assert written.of(ADDRESS + 8, (4, 4, 8), (64, 16, 1)) is None, "an address no map has"
    assert written.of(ADDRESS, shape[1:], strides[1:]) is None, "another rank"


def _changed(change: Callable[[bytearray, Any, Any], int]) -> Encode:
    """A driver whose maps are changed, by sizes and strides in its order."""

    def encode(memory: Any, kind: Any, rank: Any, address: Any, sizes: Any, strides: Any, *more: Any) -> int:
        status = Card().encode(memory, kind, rank, address, sizes, strides, *more)
        there = (tensor_maps.ctypes.c_char * cuda.MAP_BYTES).from_address(memory.value)
        content = bytearray(there.raw)
        refused = change(content, sizes[: rank.value], sizes[rank.value : 2 * rank.value - 1])
        there.raw = bytes(content)
        return status or refused

    return encode


def _says_if_long(content: bytearray, sizes: Any, _: Any) -> int:
    content[100] = sizes[1] > 1000
    return 0


def _says_of_both(content: bytearray, sizes: Any, strides: Any) -> int:
    content[101] = sizes[0] % 8 == 0 and sizes[1] % 8 == 0 and strides[0] % 128 == 0
    return 0


def _counts(content: bytearray, sizes: Any, _: Any) -> int:
    content[102] = sum(sizes) & 255
    return 0


@pytest.mark.parametrize("change", [_says_if_long, _says_of_both, _counts, lambda *_: 1])
def test_maps_that_are_not_so_simple_are_not_written(maps: Callable[..., TensorMaps], change: Any) -> None:
    """What is no bit of one number, what two numbers decide together, and a driver that refuses."""
    assert maps(3, 2, _changed(change)).at(ADDRESS) is None


def test_what_is_known_of_other_types_is_compared_too(maps: Callable[..., TensorMaps]) -> None:
    assert maps(3, 2).at(ADDRESS) is not None
    assert maps(3, 2, _changed(_says_of_both)).at(ADDRESS) is None

"""A launch by one call of C: what it makes of arguments, and what it leaves to others."""

from __future__ import annotations

import ctypes
import logging
import random
import struct
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from wspec.bridge import cuda, direct
from wspec.bridge.again import Ready
from wspec.bridge.launcher import Block
from wspec.bridge.recording import Recorded

pytestmark = pytest.mark.skipif(direct.library() is None, reason="needs a C compiler and Python's headers")
HEAD = 64
FORMS = "bBhHiIqQfd"


class Driver:
    """Keeps the block of the last launch, and answers with a status."""

    def __init__(self, size: int, status: int = 0) -> None:
        self.size, self.status, self.found = size, status, b""
        self.call = ctypes.CFUNCTYPE(ctypes.c_int, *[ctypes.c_void_p] * 4)(self._launch)
        self.address = ctypes.cast(self.call, ctypes.c_void_p).value

    def _launch(self, config: int, function: int | None, parameters: int, extra: None) -> int:
        assert config % 128 == 0 and function == 99
        assert (ctypes.c_uint64 * 1).from_address(parameters)[0] == config + HEAD
        self.found = ctypes.string_at(config, self.size)
        return self.status


def made(driver: Driver, parts: tuple[Any, ...], arguments: int, pairs: tuple[Any, ...] = ()) -> Any:
    contents = bytes(range(HEAD)) + bytes(driver.size - HEAD)
    given = driver.address, 99, contents, 56, arguments, (HEAD,), parts, pairs, torch.Tensor, driver.call
    return direct.library().Direct(*given)


def part(kind: str, argument: int, offset: int, reaches: bool = False) -> tuple[Any, ...]:
    return ord(kind), reaches, argument, offset, 0, 0, b"", ()


@pytest.mark.parametrize("form", FORMS)
def test_numbers_are_written_as_struct_does(form: str) -> None:
    driver, draw = Driver(HEAD + 24), random.Random(form)
    launch = made(driver, (part(form, 0, HEAD + 8),), 1)
    edges = [
        sign * (1 << bits) + more for bits in (7, 8, 15, 16, 31, 32, 63, 64) for sign in (1, -1) for more in (-1, 0)
    ]
    drawn = [draw.uniform(-1e6, 1e6), 1e300, -0.0, float("inf"), 3] if form in "fd" else [0, 1, -1, *edges]
    for number in [*drawn, None, "7", 1.5, True]:
        try:
            expected = struct.pack(f"<{form}", number)
        except (struct.error, OverflowError):
            expected = None
        driver.found = b""
        status = launch(1, 2, 3, False, (number,), ())
        assert status == (-1 if expected is None else 0), number
        if expected is not None:
            assert driver.found[HEAD + 8 : HEAD + 8 + len(expected)] == expected, number
            assert driver.found[HEAD + 8 + len(expected) :] == bytes(16 - len(expected))


def test_how_it_is_launched() -> None:
    driver = Driver(HEAD + 16)
    launch = made(driver, (part("p", 0, HEAD),), 1)
    tensor = torch.zeros(4)
    for early in (False, True):
        assert launch(5, 6, 7, early, (tensor,), ()) == 0
        head = bytearray(range(HEAD))
        head[:12], head[56] = struct.pack("<3I", 5, 6, 7), early
        assert driver.found == head + struct.pack("<QQ", tensor.data_ptr(), 0)
    assert launch(5, 6, 7, True, (), (77,)) == 0, "what nobody gives stands behind what is given"
    assert driver.found[HEAD:] == struct.pack("<QQ", 77, 0)
    assert launch(5, 6, 7, True, (None,), ()) == 0 and driver.found[HEAD:] == bytes(16)
    driver.status = 700
    assert launch(5, 6, 7, True, (tensor,), ()) == 700, "the driver's word"
    driver.status = 201
    assert launch(5, 6, 7, True, (tensor,), ()) == -1, "a thread that has not used the card yet"


class Other(torch.Tensor):
    pass


@pytest.mark.parametrize(
    "given",
    [(1 << 32, 1, 1, True, (0,), ()), (-1, 1, 1, True, (0,), ()), (1, 1, 1, True, (0, 0), ()), (1, 1, 1, True, (), ())]
    + [(1, 1, 1, True, (one,), ()) for one in (-1, 1 << 64, 1.5, "a", torch.zeros(2).as_subclass(Other), True)],
)
def test_what_is_out_of_the_ordinary(given: tuple[Any, ...]) -> None:
    driver = Driver(HEAD + 16)
    launch = made(driver, (part("p", 0, HEAD),), 1)
    assert launch(*given) == -1 and driver.found == b""


@pytest.mark.parametrize("given", [(1, 1, 1, True, (0,)), (1, 1, 1, True, [0], ()), (1, 1, 1, True, (0,), None)])
def test_what_is_no_launch(given: tuple[Any, ...]) -> None:
    with pytest.raises(TypeError):
        made(Driver(HEAD + 16), (part("p", 0, HEAD),), 1)(*given)


def test_what_must_be_apart() -> None:
    """Addresses of which one reaches into the other, but not of pairs that nobody asked about."""
    memory = torch.zeros(64)
    driver = Driver(HEAD + 32)
    parts = tuple(part("p", at, HEAD + 8 * at, at < 2) for at in range(3))
    launch = made(driver, parts, 3, ((0, 1),))
    low, high, both = memory[:32], memory[32:], memory[31:]
    assert launch(1, 1, 1, False, (low, high, both), ()) == 0
    assert launch(1, 1, 1, False, (high, low, both), ()) == 0
    assert launch(1, 1, 1, False, (low, both, high), ()) == -1
    assert launch(1, 1, 1, False, (both, low, high), ()) == -1
    assert launch(1, 1, 1, False, (low, low[:0], high), ()) == 0, "nothing is shared with nothing"
    assert launch(1, 1, 1, False, (memory[::2], high, low), ()) == -1, "how far that reaches is not looked at"
    assert launch(1, 1, 1, False, (low.data_ptr(), high, low), ()) == 0, "a number is the launch's own memory"


@pytest.mark.parametrize(
    "change",
    [
        {"parts": (part("p", 1, HEAD),)},
        {"parts": (part("p", 0, HEAD + 9),)},
        {"parts": (part("t", 0, HEAD),)},
        {"parts": (part("p", 0, HEAD),), "pairs": ((0, 0),)},
        {"parts": (part("p", 0, HEAD, True),), "pairs": ((0, 1),)},
    ],
)
def test_what_no_launch_is_made_of(change: dict[str, Any]) -> None:
    with pytest.raises((ValueError, TypeError)):
        made(Driver(HEAD + 16), arguments=1, **change)


def test_what_cannot_be_compiled_is_said(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("CC", str(tmp_path / "none"))
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(logging.getLogger("wspec"), "propagate", True)
    assert direct.library.__wrapped__() is None
    assert "launches of new sizes take longer" in caplog.text and str(tmp_path / "none") in caplog.text


# ---------------------------------------------------------------------------------------------- made again


def test_addresses_are_written_again() -> None:
    """Where they stand, and what is made of them; all bits of an address count, and less may be added than nothing."""
    driver = Driver(HEAD + 32)
    contents = bytes(range(HEAD)) + bytes(32)
    writes = (0, 0, HEAD), (1, -4096, HEAD + 8), (0, 1 << 40, HEAD + 24)
    again = direct.library().Again(driver.address, 99, contents, 2, (HEAD,), writes, (), driver.call)
    for one, other in ((4096, 8192), (1 << 63, (1 << 64) - 16)):
        assert again(one, other) == 0
        expected = struct.pack("<4Q", one, other - 4096, 0, one + (1 << 40))
        assert driver.found == bytes(range(HEAD)) + expected
    driver.status = 7
    assert again(0, 4096) == 7
    driver.status = cuda.NO_CONTEXT
    assert again(0, 4096) == -1


@pytest.mark.parametrize(
    ("one", "other", "apart"), [(0, 256, True), (1, 256, False), (0, 255, False), (320, 256, True), (319, 256, False)]
)
def test_memory_that_must_not_be_shared_when_made_again(one: int, other: int, apart: bool) -> None:
    driver = Driver(HEAD + 32)
    again = direct.library().Again(
        driver.address, 99, bytes(HEAD + 32), 2, (HEAD,), (), ((0, 256, 1, 64),), driver.call
    )
    assert again(one, other) == (0 if apart else -1) and bool(driver.found) is apart


def test_what_is_no_address() -> None:
    driver = Driver(HEAD + 8)
    again = direct.library().Again(driver.address, 99, bytes(HEAD + 8), 1, (HEAD,), (), (), driver.call)
    assert [again(one) for one in (-1, 1 << 64, None, "7", 1.5)] == [-1] * 5 and not driver.found
    for wrong in ((), (1, 2)):
        with pytest.raises(TypeError, match="addresses"):
            again(*wrong)


@pytest.mark.parametrize(("descriptors", "is_there"), [(20, True), (60, False)])
def test_a_launch_of_many_descriptors(descriptors: int, is_there: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Fuzzed kernels have twenty, whose places are 256 bytes apart. Where C has no room, Python makes it again."""
    offsets = [256 * (1 + at) for at in range(descriptors)]
    block, calls = Block(offsets[-1] + 256, offsets), list[tuple[int, ...]]()

    def call(config: int, function: int, parameters: int, extra: None) -> int:
        places = (ctypes.c_uint64 * descriptors).from_address(parameters)
        calls.append(tuple(ctypes.c_uint64.from_address(place).value for place in places))
        return 0

    called = ctypes.CFUNCTYPE(ctypes.c_int, *[ctypes.c_void_p] * 4)(call)
    monkeypatch.setattr(cuda, "launch_call", lambda: called)
    writes = [(at, 0, place) for at, place in enumerate(offsets)]
    contents = bytes(block.contents())
    assert (direct.again(block, contents, 7, descriptors, writes, []) is not None) is is_there
    recorded = Recorded(block, bytearray(contents), 7, offsets)
    ready = Ready.of(SimpleNamespace(pre_run_hooks=[]), recorded, descriptors)
    for first in (4096, 8192):
        given = tuple(range(first, first + 16 * descriptors, 16))
        assert ready(*given) and calls[-1] == given


@pytest.mark.parametrize(
    "wrong",
    [
        {"contents": bytes(9000)},
        {"offsets": (HEAD + 8,)},
        {"writes": ((0, 0, HEAD + 1),)},
        {"writes": ((1, 0, HEAD),)},
        {"writes": ((-1, 0, HEAD),)},
        {"pairs": ((0, 1, 1, 1),)},
        {"addresses": 300},
    ],
)
def test_what_no_launch_has(wrong: dict[str, Any]) -> None:
    """Nothing is written or read outside of the block."""
    given = {"contents": bytes(HEAD + 8), "addresses": 1, "offsets": (HEAD,), "writes": (), "pairs": (), **wrong}
    driver = Driver(HEAD + 8)
    order = (given[name] for name in ("contents", "addresses", "offsets", "writes", "pairs"))
    with pytest.raises(ValueError, match="no launch"):
        direct.library().Again(driver.address, 99, *order, driver.call)

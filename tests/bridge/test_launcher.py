"""The last step of a launch, with a driver's call that reads the memory it is given."""

from __future__ import annotations

import ctypes
import gc
import struct
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from triton import knobs
from triton.tools.tensor_descriptor import TensorDescriptor

from wspec.bridge import cuda, direct, launcher, persistent, ready
from wspec.bridge.launch import WspecFunction
from wspec.bridge.overlap_guard import Guard
from wspec.bridge.recording import recording

SIGNATURE = {
    "x": "*fp32", "d": "tensordesc<fp16[64, 32]>", "n": "i32", "B": "constexpr", "k": "i64", "s": "fp32", "b": "u1",
    "h": "fp16", "e": "tensordesc<fp16[64, 32]>", "t": "*i32",
}  # fmt: skip
SIZES = [8, 128, 4, 4, 8, 8, 4, 8, 4, 1, 2, 128, 4, 4, 8, 8, 8, 8, 8]
"""Of what the kernel takes: x, d with two sizes and two strides, n, k, s, b, h, e, t, and two kinds of scratch."""


@dataclass
class Driver:
    """What the driver was called with, and what it answers."""

    calls: list[tuple[cuda.Config, int, list[bytes]]]
    status: int = 0

    def launch(self, config: int, function: int, parameters: int, extra: None) -> int:
        found = cuda.Config.from_buffer_copy(ctypes.string_at(config, ctypes.sizeof(cuda.Config)))
        at = (ctypes.c_uint64 * len(SIZES)).from_address(parameters)
        given = [ctypes.string_at(address, size) for address, size in zip(at, SIZES, strict=True)]
        assert not any(address % min(size, 64) for address, size in zip(at, SIZES, strict=True)), "aligned"
        if not self.status:
            self.calls.append((found, function, given))
        return self.status


@pytest.fixture(params=["C", "no compiler"])
def driver(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Driver:
    """With what makes launches again in C, and without. Maps are the address and the sizes; tensors of the CPU pass for
    those of a card."""
    encode = lambda d, _: [_map(d.base.data_ptr(), d.shape), *d.shape, *d.strides]  # noqa: E731
    monkeypatch.setattr(launcher, "_encode", encode)
    monkeypatch.setattr(launcher, "_map_bytes", lambda encoded: encoded)
    monkeypatch.setattr(launcher, "address_of", lambda a: a if isinstance(a, int) else a.data_ptr())
    made = Driver([])
    call = ctypes.CFUNCTYPE(ctypes.c_int, *[ctypes.c_void_p] * 4)(made.launch)
    monkeypatch.setattr(cuda, "launch_call", lambda: call)
    if request.param == "no compiler":
        monkeypatch.setattr(direct, "library", lambda: None)
    elif direct.library() is None:
        pytest.skip("needs a C compiler and Python's headers")
    return made


def _map(address: int, shape: Any) -> bytes:
    return struct.pack("<Q2q104x", address, *shape)


@dataclass
class Theirs:
    """Triton's launcher."""

    launch_pdl: bool
    calls: list[tuple[Any, ...]]
    global_scratch_size: int = 0
    global_scratch_align: int = 128

    def __call__(self, *args: Any) -> None:
        self.calls.append(args)


def descriptor(rows: int, columns: int = 64) -> Any:
    return TensorDescriptor.from_tensor(torch.zeros(rows, columns, dtype=torch.float16), [64, 32])


def arguments(x: torch.Tensor, d: Any, e: Any, n: int = 5) -> tuple[Any, ...]:
    return x, d, n, 128, 1 << 40, 0.5, True, 0.25, e, 4096


def made(driver: Driver, pdl: bool = False) -> tuple[Callable[..., None], Theirs]:
    theirs = Theirs(pdl, [])
    found = launcher.made(theirs, SIGNATURE, [{}, {}], driver.launch)
    return found.early if pdl else found.behind, theirs


BEFORE = 7, 0xF00, (12, 1, 4096), None, knobs.runtime.launch_enter_hook, knobs.runtime.launch_exit_hook


@pytest.mark.parametrize("pdl", [False, True])
def test_what_the_driver_is_given(driver: Driver, pdl: bool) -> None:
    run, theirs = made(driver, pdl)
    x, d, e = torch.zeros(8), descriptor(96), descriptor(128, 32)
    for n in (5, 6):
        run(3, 2, 1, *BEFORE, *arguments(x, d, e, n))
        config, function, given = driver.calls[-1]
        assert (config.grid_x, config.grid_y, config.grid_z) == (3, 2, 1)
        assert (config.block_x, config.block_y, config.block_z, config.shared_bytes) == (384, 1, 1, 4096)
        assert (config.stream, function, config.attribute_count) == (7, 0xF00, int(pdl))
        expected = struct.pack(
            "<Q128s2i2qiqfbe128s2i2qQQQ", x.data_ptr(), _map(d.base.data_ptr(), (96, 64)), 96, 64, 64, 1, n, 1 << 40,
            0.5, 1, 0.25, _map(e.base.data_ptr(), (128, 32)), 128, 32, 32, 1, 4096, 0, 0,
        )  # fmt: skip
        assert b"".join(given) == expected
    assert ctypes.sizeof(cuda.Attribute) == 72 and ctypes.sizeof(cuda.Config) == 56 and not theirs.calls


def test_a_descriptor_of_another_place_or_shape(driver: Driver) -> None:
    run, _ = made(driver)
    x, one, other = torch.zeros(8), descriptor(96), descriptor(64)
    for d in (one, other, descriptor(96), one, descriptor(64)):
        run(1, 1, 1, *BEFORE, *arguments(x, d, one))
        given = driver.calls[-1][2]
        assert given[1] == _map(d.base.data_ptr(), d.shape) and struct.unpack("<i", given[2])[0] == d.shape[0]
    listed = TensorDescriptor(one.base, [96, 64], [64, 1], [64, 32])
    run(1, 1, 1, *BEFORE, *arguments(x, listed, one))
    listed.shape[0] = 80  # the caller's own list
    run(1, 1, 1, *BEFORE, *arguments(x, listed, one))
    assert driver.calls[-1][2][1] == _map(one.base.data_ptr(), (80, 64))


def test_what_is_out_of_the_ordinary_goes_tritons_way(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    run, theirs = made(driver)
    x, d = torch.zeros(8), descriptor(96)
    good = arguments(x, d, d)
    for change in ({0: "no tensor"}, {2: 1 << 40}, {2: "5"}, {1: x}):
        wrong = tuple(change.get(at, value) for at, value in enumerate(good))
        run(1, 1, 1, *BEFORE, *wrong)
        assert theirs.calls.pop() == (1, 1, 1, *BEFORE, *wrong)
    run(0, 1, 1, *BEFORE, *good)
    assert theirs.calls.pop()[:3] == (0, 1, 1)
    seen: list[Any] = []
    hooked = (*BEFORE[:4], seen.append, BEFORE[5])
    run(1, 1, 1, *hooked, *good)
    assert theirs.calls.pop()[:9] == (1, 1, 1, *hooked)
    driver.status = cuda.NO_CONTEXT
    run(1, 1, 1, *BEFORE, *good)
    assert theirs.calls.pop() == (1, 1, 1, *BEFORE, *good)
    driver.status = 700
    monkeypatch.setattr(cuda, "error", lambda status: RuntimeError(f"status {status}"))
    with pytest.raises(RuntimeError, match="status 700"):
        run(1, 1, 1, *BEFORE, *good)
    assert not theirs.calls and not driver.calls


def test_a_map_that_is_laid_out_otherwise(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its address is not simply written over."""
    other = lambda d, _: [struct.pack("<QQ112x", d.base.data_ptr(), d.base.data_ptr() >> 8), *d.shape, *d.strides]  # noqa: E731
    monkeypatch.setattr(launcher, "_encode", other)
    run, theirs = made(driver)
    run(1, 1, 1, *BEFORE, *arguments(torch.zeros(8), descriptor(96), descriptor(96)))
    monkeypatch.setattr(launcher, "_encode", None)
    run(1, 1, 1, *BEFORE, *arguments(torch.zeros(8), descriptor(96), descriptor(96)))
    assert len(theirs.calls) == 2 and not driver.calls, "it is not looked at again"


@pytest.mark.parametrize("kind", ["nvTmaDesc", "bf16", ("i32", "i32")])
def test_types_that_only_triton_knows(driver: Driver, kind: Any) -> None:
    with pytest.raises(launcher.NotKnown):
        launcher.made(Theirs(False, []), {"x": kind}, None, driver.launch)
    with pytest.raises(launcher.NotKnown):
        launcher.made(Theirs(False, []), SIGNATURE, None, driver.launch)


# ------------------------------------------------------------------------------------------------ made again


class Kernel(WspecFunction):
    """Under wspec.compile, launched through the launcher, with a guard over x and d."""

    def __init__(self, run: Callable[..., None], guard: Guard | None = None) -> None:
        self.run, self.guard, self.pre_run_hooks = run, guard, []  # type: ignore[var-annotated]

    def __getitem__(self, grid: tuple[int, int, int]) -> Any:
        def launch(*args: Any) -> None:
            if self.guard is not None and (now := recording.now) is not None:
                now.apart += self.guard.sizes(self.guard.ranges((None, None, None, *args)))
            self.run(*grid, *BEFORE, *args)

        return launch


def test_a_launch_made_again_elsewhere(driver: Driver) -> None:
    run, _ = made(driver)
    x, d, e = torch.zeros(8), descriptor(96), descriptor(64)
    again = ready.launch(Kernel(run), (3, 2, 1), arguments(x, d, e), {})
    assert again is not None
    y, f, g = torch.zeros(8), descriptor(96), descriptor(64)
    assert again(y.data_ptr(), f.base.data_ptr(), g.base.data_ptr(), 8192)
    run(3, 2, 1, *BEFORE, *arguments(y, f, g)[:-1], 8192)
    first, second, third = (b"".join(given) for _, _, given in driver.calls)
    assert second == third and second != first
    assert bytes(driver.calls[0][0])[:40] == bytes(driver.calls[1][0])[:40]


@pytest.mark.parametrize("early", [False, True])
def test_made_again_a_launch_starts_as_those_like_it(driver: Driver, early: bool) -> None:
    """The first one stood behind the writing of its table."""
    starts = launcher.made(Theirs(False, []), SIGNATURE, [{}, {}], driver.launch)
    run = persistent._once(starts.behind, lambda blocks: early and blocks == 3)
    again = ready.launch(Kernel(run), (3, 1, 1), arguments(torch.zeros(8), descriptor(96), descriptor(64)), {})
    assert again is not None and again(0, 0, 0, 0)
    starts.behind(3, 1, 1, *BEFORE, *arguments(torch.zeros(8), descriptor(96), descriptor(64)))
    assert [config.attribute_count for config, _, _ in driver.calls] == [0, int(early), 0]


def test_tritons_launcher_is_told_at_each_launch(driver: Driver) -> None:
    theirs = Theirs(False, [])
    starts = launcher.starts(theirs, SimpleNamespace(metadata=None))
    for run, early in ((starts.early, True), (starts.behind, False), (starts.early, True)):
        run(1, 1, 1)
        assert theirs.launch_pdl is early
    assert len(theirs.calls) == 3


def test_launches_that_are_not_made_again(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    run, theirs = made(driver)
    x, d, e = torch.zeros(8), descriptor(96), descriptor(64)
    guard = Guard([("x", (0,)), ("d", (1,))], [(0, 1)])
    kernel = Kernel(run, guard)
    again = ready.launch(kernel, (1, 1, 1), arguments(x, d, e), {})
    assert again is not None
    place, count = d.base.data_ptr(), len(driver.calls)
    assert again(x.data_ptr(), place, place, 0) and len(driver.calls) == count + 1
    for apart, at in ((True, place - 32), (False, place - 31), (False, place + 12287), (True, place + 12288)):
        assert again(at, place, place, 0) is apart
    kernel.pre_run_hooks.append(print)
    assert not again(x.data_ptr(), place, place, 0)
    kernel.pre_run_hooks.clear()
    monkeypatch.setattr(knobs.runtime.launch_enter_hook, "calls", [print])
    assert not again(x.data_ptr(), place, place, 0)
    monkeypatch.setattr(knobs.runtime.launch_enter_hook, "calls", [])
    driver.status = cuda.NO_CONTEXT
    assert not again(x.data_ptr(), place, place, 0)
    driver.status = 0
    assert ready.launch(kernel, (1, 1, 1), arguments("none", d, e), {}) is None and len(theirs.calls) == 1  # type: ignore[arg-type]


def test_a_launch_that_relied_on_what_was_given_back(driver: Driver) -> None:
    """A table of tiles goes when its kernel keeps too many: the launch has to be made with another one."""
    run, _ = made(driver)
    kept = [Kernel(run)]  # stands for a table

    def launch(*args: Any) -> None:
        recording.rely(*kept)
        with recording.aside():
            run(*args[:3], *BEFORE, *args[-10:])  # the kernel that writes it is no part of the launch
        run(*args)

    given = arguments(torch.zeros(8), descriptor(96), descriptor(64))
    again = ready.launch(Kernel(launch), (1, 1, 1), given, {})
    assert again is not None and again(0, 0, 0, 0) and len(driver.calls) == 3
    kept.clear()
    gc.collect()
    assert not again(0, 0, 0, 0) and len(driver.calls) == 3


def test_a_launch_takes_memory_for_itself(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    """As Triton does, for all blocks, from its allocator at each launch; from torch's where it was told of none."""
    theirs, asked, kept = Theirs(False, [], global_scratch_size=64), list[tuple[int, int, int]](), list[Any]()

    def allocate(*given: Any) -> Any:
        asked.append(given)
        kept.append(torch.zeros(64))
        return kept[-1]

    told = ContextVar[Any]("told", default=launcher._allocation._NULL_ALLOCATOR)
    monkeypatch.setattr(launcher._allocation, "_allocator", told)
    monkeypatch.setattr(launcher, "torch_memory", allocate)
    run = launcher.made(theirs, SIGNATURE, [{}, {}], driver.launch).behind
    x, d, e = torch.zeros(8), descriptor(96), descriptor(64)
    addresses = x.data_ptr(), d.base.data_ptr(), e.base.data_ptr(), 4096
    again = ready.launch(Kernel(run), (3, 2, 1), arguments(x, d, e), {})
    assert again is not None and again(*addresses)
    told.set(allocate)
    assert again(*addresses)
    assert asked == [(6 * 64, 128, BEFORE[0])] * 3
    assert [given[-2:] for _, _, given in driver.calls] == [
        [struct.pack("<Q", one.data_ptr()), bytes(8)] for one in kept
    ]
    told.set(lambda *_: None)
    assert not again(*addresses) and not theirs.calls
    run(3, 2, 1, *BEFORE, *arguments(x, d, e))
    assert len(theirs.calls) == 1 and len(driver.calls) == 3


def test_launches_made_again_take_turns(driver: Driver) -> None:
    """None finds what another one wrote."""
    run, _ = made(driver)
    x, d, e = torch.zeros(8), descriptor(96), descriptor(64)
    each = [ready.launch(Kernel(run), (grid, 1, 1), arguments(x, d, e, grid), {}) for grid in (1, 2)]
    addresses = x.data_ptr(), d.base.data_ptr(), e.base.data_ptr(), 4096
    for grid in (1, 2, 2, 1, 2):
        again = each[grid - 1]
        assert again is not None and again(*addresses)
        config, _, given = driver.calls[-1]
        first = driver.calls[grid - 1][2]
        assert config.grid_x == grid and given == first


def test_the_oldest_go() -> None:
    known: dict[int, int] = {}
    for number in range(40):
        launcher.keep(known, number, number, 32)
        assert number in known and len(known) <= 32
    assert list(known) == list(range(8, 40))


@pytest.mark.parametrize("before", [6, 14])
def test_a_map_ends_its_object(before: int) -> None:
    """Behind the two words of a Python object and what aligns the map to 64 or 128 bytes; here it is of addresses."""
    names = [f"s{at:02}" for at in range(before + 16)]
    kind = type("Encoded", (), {"__slots__": names})
    kept: list[Any] = []
    while True:
        kept.append(one := kind())
        for name in names:
            setattr(one, name, name)
        if id(one) % launcher.MAP_ALIGNMENT == 0:
            break
    assert launcher._map_bytes(one) == struct.pack("<16Q", *(id(name) for name in names[before:]))


@pytest.mark.parametrize("words", [5, 16, 23, 40])
def test_an_object_of_another_size_is_not_read(words: int) -> None:
    kind = type("Encoded", (), {"__slots__": [f"s{at}" for at in range(words)]})
    with pytest.raises(launcher.Unlike):
        launcher._map_bytes(kind())

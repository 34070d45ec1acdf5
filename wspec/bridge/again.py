"""A launch that is made again: what the driver was given is kept, and addresses are written into it."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import itertools
import threading
from collections.abc import Callable, Iterator, Sequence
from ctypes import memmove
from typing import Any

import torch
from triton import knobs
from triton.knobs import HookChain

from wspec.bridge import cuda
from wspec.bridge.direct import again
from wspec.bridge.launcher import Block, Scratch
from wspec.bridge.recording import Recorded

Begins = tuple[Callable[[int], bool] | None, ...]  # of each descriptor that a launch makes (`Derived.begins`)
Writes = list[tuple[int, int, int]]  # which address, what is added to it, and where in the block it stands
Pairs = list[tuple[int, int, int, int]]  # addresses between which memory must not be shared, and bytes behind each

_ASK = """
def launch(self, {addresses}):
    if {cannot}:
        return False
    chain, behind = runtime.launch_enter_hook, runtime.launch_exit_hook
    if (chain.calls if type(chain) is HookChain else chain is not None) or (
        behind.calls if type(behind) is HookChain else behind is not None
    ):
        return False
    if self.kernel.pre_run_hooks:
        return False
    relied = self.relied
    if relied is not None:
        held = relied()  # until the launch is made
        if held is None or capturing():
            return False  # it was given back; or a graph would have to keep it, too
    elif self.kept and capturing():
        return False
    memory = {memory}
    if memory is None:
        return False
    status = self.start({given})
    if status == 0:
        return True
    if status == -1:
        return False
    raise error(status)
"""


@functools.cache
def _kind(addresses: int, begins: Begins, of: tuple[int, ...], has_scratch: bool) -> type[Ready]:
    """What makes launches again that have so many addresses; descriptors begin behind those `of` that."""
    names = [f"a{at}" for at in range(addresses)]
    asked = {at: ask for at, ask in enumerate(begins) if ask is not None}
    source = _ASK.format(
        addresses=", ".join(names),
        memory="self.scratch.memory()" if has_scratch else "()",
        given=", ".join([*names, *(["memory.data_ptr()"] if has_scratch else [])]),
        cannot=" or ".join(f"not begins{at}(a{of[at]} + self.offsets[{at}])" for at in asked) or "False",
    )
    space: dict[str, Any] = {
        "runtime": knobs.runtime, "HookChain": HookChain, "capturing": is_capturing, "error": cuda.error,
        **{f"begins{at}": ask for at, ask in asked.items()},
    }  # fmt: skip
    exec(compile(source, "<wspec launch>", "exec"), space)
    made: type[Ready] = type("Ready", (Ready,), {"__slots__": (), "__call__": space["launch"]})
    return made


def order_of(places: Sequence[int]) -> list[int]:
    """The position of each argument among those that have an address."""
    return list(itertools.accumulate([place >= 0 for place in places], initial=0))


class Ready:
    """Called with an address for each of the arguments that have one, in their order.

    What it asks then is written for their number (`_kind`).
    """

    __slots__ = ("kept", "kernel", "offsets", "relied", "scratch", "start")

    def __init__(
        self,
        kernel: Any,
        start: Callable[..., int],
        relied: Callable[[], Any] | None = None,
        kept: Sequence[Any] = (),
        offsets: tuple[int, ...] = (),
        scratch: Scratch | None = None,
    ) -> None:
        """`start` launches, and gives the driver's status or -1; `relied` gives None once what the launch takes for
        granted is no longer kept; `offsets`: from addresses to the descriptors that the launch makes."""
        self.kernel, self.start, self.relied, self.kept = kernel, start, relied, kept
        self.offsets, self.scratch = offsets, scratch

    @staticmethod
    def of(kernel: Any, recorded: Recorded, count: int) -> Ready:
        """Of a launch that was made, with so many arguments that its user knows of."""
        order, derived = order_of(recorded.places), recorded.derived or ()
        places = [place for place in recorded.places[:count] if place >= 0]
        of = tuple([order[one.argument] for one in derived])
        writes: Writes = [(at, 0, place) for at, place in enumerate(places)]
        writes += [(at, one.offset, recorded.places[one.place]) for at, one in zip(of, derived, strict=True)]
        pairs: Pairs = [(order[one], size, order[other], reach) for one, size, other, reach in recorded.apart]
        scratch: Scratch | None = recorded.scratch
        if scratch is not None:
            writes.append((len(places), 0, scratch.place))
        given = recorded.block, bytes(recorded.contents), recorded.function
        start = again(*given, len(places) + bool(scratch), writes, pairs) or _Slowly(*given, writes, pairs)
        kind = _kind(len(places), tuple([one.begins for one in derived]), of, scratch is not None)
        offsets = tuple([one.offset for one in derived])
        return kind(kernel, start, _all_of(recorded.relied), recorded.kept, offsets, scratch)

    def __call__(self, *addresses: int) -> bool:
        """Launch. False where an ordinary launch has to be made: because of hooks, of arguments that overlap, or of a
        descriptor that cannot begin where it would."""
        raise NotImplementedError


class _Slowly:
    """`direct.again` where there is no compiler of C, one launch at a time."""

    def __init__(self, of: Block, contents: bytes, function: int, writes: Writes, pairs: Pairs) -> None:
        self.of = of  # which says how launches start, and so has to stay
        self.block, self.contents, self.function, self.pairs = Block(of.size, of.offsets), contents, function, pairs
        self.slots = [(self.block.slot(place), at, add) for at, add, place in writes]
        self.call, self.lock = cuda.launch_call(), threading.Lock()

    def __call__(self, *addresses: int) -> int:
        """The driver's status, or -1."""
        for one, reach, other, reached in self.pairs:
            if addresses[one] < addresses[other] + reached and addresses[other] < addresses[one] + reach:
                return -1
        if self.call is None:
            return -1
        with self.lock:
            memmove(self.block.address, self.contents, len(self.contents))
            for slot, at, add in self.slots:
                slot.value = addresses[at] + add
            status = self.call(self.block.address, self.function, self.block.parameters, None)
        return -1 if status == cuda.NO_CONTEXT else status


def _all_of(relied: Sequence[Callable[[], Any]]) -> Callable[[], Any] | None:
    """One for several, which gives None where one of them does."""
    if len(relied) < 2:
        return relied[0] if relied else None

    def held() -> Any:
        found = [one() for one in relied]
        return None if None in found else found

    return held


def is_capturing() -> bool:
    """A graph keeps memory of its own."""
    return has_card() and torch.cuda.is_current_stream_capturing()


@contextlib.contextmanager
def asking() -> Iterator[None]:
    """What of other streams the card is asked here does not end the graph that this thread captures."""
    cuda, mode = _driver(), ctypes.c_int(_RELAXED)
    cuda.cuThreadExchangeStreamCaptureMode(ctypes.byref(mode))
    try:
        yield
    finally:
        cuda.cuThreadExchangeStreamCaptureMode(ctypes.byref(mode))


_RELAXED = 2  # CU_STREAM_CAPTURE_MODE_RELAXED


@functools.cache
def _driver() -> ctypes.CDLL:
    return ctypes.CDLL("libcuda.so.1")


@functools.cache
def has_card() -> bool:
    return torch.cuda.is_available()

"""A launch that is made again: what the driver was given is kept, and addresses are written into it."""

from __future__ import annotations

import functools
import itertools
import threading
from collections.abc import Callable, Sequence
from ctypes import memmove
from typing import Any

import torch
from triton import knobs
from triton.knobs import HookChain

from wspec.bridge import cuda
from wspec.bridge.launcher import Block
from wspec.bridge.recording import Recorded

Pairs = tuple[tuple[int, int], ...]  # of addresses between which memory must not be shared
Begins = tuple[Callable[[int], bool] | None, ...]  # of each descriptor that a launch makes (`Derived.begins`)


class _Block:
    """Memory for the arguments of a kernel's launches that are made again, one at a time."""

    def __init__(self, of: Block, places: Sequence[int], derived: Sequence[tuple[int, int]] = ()) -> None:
        """places: of the addresses that a launch made again is given; derived: of each descriptor that launches make,
        which of these it begins behind, and its place."""
        self.of = of  # which says how launches start
        self.block = block = Block(of.size, of.offsets)
        self.address, self.parameters, self.size = block.address, block.parameters, block.size
        self.places, self.derived = places, derived
        self.lock = threading.Lock()
        self.last: Ready | None = None  # whose launch stands there
        self._kinds: dict[tuple[Pairs, Begins], type[Ready]] = {}

    def kind(self, pairs: Pairs, begins: Begins) -> type[Ready]:
        """What makes launches again in which these must be apart, and descriptors can begin."""
        found = self._kinds.get((pairs, begins))
        if found is None:
            found = self._kinds[pairs, begins] = self._written(pairs, begins)
        return found

    def _written(self, pairs: Pairs, begins: Begins) -> type[Ready]:
        count = len(self.places)
        names = [f"a{at}" for at in range(count)]
        meet = [f"a{one} < a{other} + n{other} and a{other} < a{one} + n{one}" for one, other in pairs]
        write = [(at, place, f"a{at}") for at, place in enumerate(self.places)]
        for number, (address, place) in enumerate(self.derived, count):
            write.append((number, place, f"a{address} + o{number}"))
        asked = {number: ask for number, ask in enumerate(begins, count) if ask is not None}
        cannot = [f"not begins{number}({write[number][2]})" for number in asked]
        used = sorted({at for pair in pairs for at in pair})
        source = _CALL.format(
            addresses=", ".join(names),
            sizes="".join(f"n{at}, " for at in used) + "= self.reach" if used else "pass",
            offsets="".join(f"o{at}, " for at, _, _ in write[count:]) + "= self.offsets" if self.derived else "pass",
            other=" or ".join([*meet, *cannot]) or "False",
            write="; ".join(f"slot{at}.value = {value}" for at, _, value in write) or "pass",
        )
        space: dict[str, Any] = {
            "runtime": knobs.runtime, "HookChain": HookChain, "capturing": is_capturing, "memory": self,
            "lock": self.lock, "memmove": memmove, "address": self.address, "size": self.size,
            "parameters": self.parameters, "call": cuda.launch_call(), "NO_CONTEXT": cuda.NO_CONTEXT,
            "error": cuda.error, **{f"slot{at}": self.block.slot(place) for at, place, _ in write},
            **{f"begins{number}": ask for number, ask in asked.items()},
        }  # fmt: skip
        exec(compile(source, "<wspec launch>", "exec"), space)
        members = {"__slots__": (), "__call__": space["launch"], "pairs": pairs, "used": tuple(used)}
        made: type[Ready] = type("Ready", (Ready,), members)
        return made


_CALL = """
def launch(self, {addresses}):
    {sizes}
    {offsets}
    if {other}:
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
    with lock:
        if memory.last is not self:
            memory.last = None  # until it is
            memmove(address, self.contents, size)
            memory.last = self
        {write}
        status = call(address, self.function, parameters, None)
    if status == 0:
        return True
    if status == NO_CONTEXT:
        return False
    raise error(status)
"""


def block_of(recorded: Recorded, count: int) -> _Block:
    """Where launches like that one are made again, which had so many arguments that its user knows of."""
    block = recorded.block
    if block.again is None:
        order = order_of(recorded.places)
        derived = [(order[one.argument], recorded.places[one.place]) for one in recorded.derived or ()]
        block.again = _Block(block, [place for place in recorded.places[:count] if place >= 0], derived)
    found: _Block = block.again
    return found


def order_of(places: Sequence[int]) -> list[int]:
    """The position of each argument among those that have an address."""
    return list(itertools.accumulate([place >= 0 for place in places], initial=0))


class Ready:
    """Called with an address for each of the arguments that have one, in their order.

    What it does then is written for each block of memory and the arguments that must be apart (`_Block.kind`).
    """

    __slots__ = ("contents", "function", "kept", "kernel", "memory", "offsets", "reach", "relied")
    pairs: Pairs = ()
    used: tuple[int, ...] = ()  # the addresses that are in pairs

    def __init__(
        self,
        kernel: Any,
        memory: _Block,
        function: int,
        contents: bytes | bytearray,
        reach: tuple[int, ...],
        relied: Callable[[], Any] | None = None,
        kept: Sequence[Any] = (),
        offsets: tuple[int, ...] = (),
    ) -> None:
        """`reach`: bytes behind each of the addresses that are `used`; `relied` gives None once what the launch takes
        for granted is no longer kept; `offsets`: from addresses to the descriptors that the launch makes."""
        self.kernel, self.memory, self.function, self.contents = kernel, memory, function, contents
        self.reach, self.relied, self.kept, self.offsets = reach, relied, kept, offsets

    @staticmethod
    def of(kernel: Any, recorded: Recorded, count: int) -> Ready:
        """Of a launch that was made, with so many arguments that its user knows of."""
        order = order_of(recorded.places)
        sizes = {order[at]: size for one in recorded.apart for at, size in (one[:2], one[2:])}
        memory = block_of(recorded, count)
        derived = recorded.derived or ()
        pairs = tuple([(order[one], order[other]) for one, _, other, _ in recorded.apart])
        kind = memory.kind(pairs, tuple([one.begins for one in derived]))
        reach = tuple([sizes[at] for at in kind.used])
        relied = _all_of(recorded.relied)
        contents, offsets = bytes(recorded.contents), tuple([one.offset for one in derived])
        return kind(kernel, memory, recorded.function, contents, reach, relied, recorded.kept, offsets)

    def __call__(self, *addresses: int) -> bool:
        """Launch. False where an ordinary launch has to be made: because of hooks, of arguments that overlap, or of a
        descriptor that cannot begin where it would."""
        raise NotImplementedError


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


@functools.cache
def has_card() -> bool:
    return torch.cuda.is_available()

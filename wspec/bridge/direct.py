"""Launches by one call of C (direct.c), which is told once what stands where: those of a binary, of any size, and one
that is made again.

C is compiled once for a machine, by the compiler that Triton needs there for its own launchers, and lies in Triton's
cache. Where that fails, and for arguments that C does not know, launches go the ordinary way.
"""

from __future__ import annotations

import ctypes
import functools
import logging
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

from wspec.bridge import cuda
from wspec.bridge.launcher import EARLY, Block, Slot
from wspec.bridge.tensor_maps import Layout
from wspec.bridge.versions.internals import internal

Direct = Callable[..., int]
"""Launches on a grid of three sizes, early or not, with the arguments that a launch's user gives, `Whole` tensors in
place of descriptors, and those that nobody gives. The driver's status, or -1 of what is out of the ordinary."""

Whole = tuple[torch.Tensor, tuple[int, ...], tuple[int, ...]]
"""A tensor's memory with the shape and strides that a descriptor of the whole has, which who launches has at hand."""

_NUMBERS = "bBhHiIqQfd"
_log = logging.getLogger("wspec")


def direct(
    block: Block,
    contents: bytes,
    given: Sequence[Any],
    behind: int,
    pairs: Sequence[tuple[int, int]],
    function: int,
) -> Direct | None:
    """For launches of a function whose user gives arguments like these, with so many constants behind them; None where
    there is no such thing. Raises Unlike where these say nothing of others.

    contents: of the block, for one of them; pairs: of addresses, by their turn, between which no memory is shared.
    """
    made, call = library(), cuda.launch_call()
    if made is None or call is None:
        return None
    layout, count = block.layout, len(given)
    slots: dict[int, tuple[int, Slot]] = {at: (offset, slot) for at, offset, slot in layout.slots}
    turns = [at for at, place in enumerate(layout.places()) if place >= 0 and at < count]  # with an address
    reaching = {turns[one] for pair in pairs for one in pair}
    parts: list[tuple[int, tuple[Any, ...]]] = []
    for form, at, _ in layout.scalars:
        is_address = layout.places()[at] >= 0
        if not is_address and form not in _NUMBERS:
            return None
        # Constants stand between what is given and what is hidden, and have no place in the block.
        where = at if at < count else at - behind
        kind = ord("p") if is_address else ord(form)
        parts.append((at, (kind, at in reaching, where, layout.first[at, 0], 0, 0, b"", ())))
    for at, (offset, slot) in slots.items():
        maps = slot.layout_of(*given[at]) if at < count else None
        if maps is None:
            return None
        parts.append((at, described(maps, at, offset, reaches=at in reaching)))
    where_of = {at: number for number, (at, _) in enumerate(parts)}
    asked = tuple([(where_of[turns[one]], where_of[turns[other]]) for one, other in pairs])
    pointer: Any = call  # ctypes', which mypy takes for any function
    try:
        found: Direct = made.Direct(
            ctypes.cast(pointer, ctypes.c_void_p).value, function, contents, EARLY, len(layout.kinds) - behind,
            tuple(block.offsets), tuple([one for _, one in parts]), asked, torch.Tensor, (block, call),
        )  # fmt: skip
    except ValueError:  # more than C has room for
        return None
    return found


def again(
    block: Block,
    contents: bytes,
    function: int,
    addresses: int,
    writes: Sequence[tuple[int, int, int]],
    pairs: Sequence[tuple[int, int, int, int]],
) -> Callable[..., int] | None:
    """Launches as once from the block, which held that then, with so many other addresses: the driver's status, or -1
    where arguments overlap; None where there is no such thing, as for more arguments than C has room for.

    writes: (which address, what is added, where in the block); pairs: (address, bytes behind it, another, its bytes).
    """
    made, call = library(), cuda.launch_call()
    if made is None or call is None:
        return None
    pointer: Any = call  # ctypes', which mypy takes for any function
    try:
        found: Callable[..., int] = made.Again(
            ctypes.cast(pointer, ctypes.c_void_p).value, function, contents, addresses, tuple(block.offsets),
            tuple(writes), tuple(pairs), (block, call),
        )  # fmt: skip
    except ValueError:  # as above
        return None
    return found


def described(maps: Layout, argument: int, offset: int, *, reaches: bool) -> tuple[Any, ...]:
    """An argument with a descriptor: its map at an offset of the block, with strides and sizes behind it."""
    fields = tuple([(one.source, one.low, one.bits, one.place // 64, one.place % 64) for one in maps.fields])
    constant = maps.constant.to_bytes(cuda.MAP_BYTES, "little")
    return ord("t"), reaches, argument, offset, maps.rank, maps.size, constant, fields


@functools.cache
def library() -> Any:
    """direct.c, loaded; None where it cannot be compiled, which is said."""
    source = Path(__file__).with_suffix(".c").read_text(encoding="utf-8")
    build = internal("triton.runtime.build", "compile_module_from_src")
    try:
        return build(source, "wspec_direct")
    except (OSError, RuntimeError, ImportError, subprocess.SubprocessError) as error:  # no compiler, headers or cache
        _log.warning("launches of new sizes take longer, since direct.c could not be compiled: %s", error)
        return None

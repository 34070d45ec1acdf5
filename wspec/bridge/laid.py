"""Laying out a launch of other sizes: one function without branches, written for a binary once it was launched.

What the driver was given for the first launch stays but for the grid, numbers, addresses and tensor maps. These go
where the launcher writes them, maps too where it is known what stands where in them (`tensor_maps.py`), all at once.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Any

import torch

from wspec.bridge import launcher
from wspec.bridge.launcher import Block, Slot
from wspec.bridge.tensor_maps import Unlike

Lay = Callable[..., tuple[bytes, tuple[int, ...], tuple[int, ...]]]
"""What a block holds for a launch on a grid of three sizes, which starts early or not, of the arguments that a launch's
user gives, whole tensors of the card in place of their descriptors, and of those that nobody gives. Beside that the
addresses of the former that have one, which are yet to be written, and how many bytes some of them reach. Raises
Unlike, or struct.error."""


def laid(block: Block, contents: bytes, given: Sequence[Any], constants: Sequence[Any], used: Sequence[int]) -> Lay:
    """For launches whose user gives arguments like these, and has these constants behind them.

    contents: of the block, for one of them; used: of which of the addresses it is told how far they reach.
    """
    layout, count = block.layout, len(given)
    slots: dict[int, tuple[int, Slot]] = {at: (offset, slot) for at, offset, slot in layout.slots}
    names = [f"a{at}" for at in range(len(layout.kinds))]
    hidden = names[count + len(constants) :]
    addressed = [at for at, place in enumerate(layout.places()) if place >= 0 and at < count]
    space: dict[str, Any] = {
        "Tensor": torch.Tensor, "address": launcher.address_of, "reach": _reach, "Unlike": Unlike,
        **dict(zip(names[count:], constants, strict=False)),
    }  # fmt: skip
    lines = [f"p{at} = {_ADDRESS.format(at)}" for at in addressed]
    if slots:
        lines.append(f"if ({' | '.join(f'p{at}' for at in slots)}) & 15: raise Unlike")
    for number, (at, (_, slot)) in enumerate(slots.items()):
        before = [other for other in list(slots)[:number] if slot.is_like(slots[other][1])]
        same = "".join(f"m{other} if f{at} == f{other} else " for other in before[:1])
        space[f"written{at}"] = space[f"written{before[0]}"] if before else slot.writer(given[at])
        lines.append(f"f{at} = a{at}.shape, a{at}.stride()")
        lines.append(f"m{at} = {same}written{at}(f{at}, a{at})")
    form, there = f"<3I{launcher.EARLY - 12}sI4x{''.join(form for form, *_ in layout.scalars)}", struct.calcsize
    parts = ["x", "y", "z", repr(contents[12 : launcher.EARLY]), "early"]
    parts += [f"p{at}" if at in addressed else f"a{at}" for _, at, _ in layout.scalars]
    for at, (offset, slot) in sorted(slots.items(), key=lambda one: one[1][0]):
        parts += [repr(contents[there(form) : offset + 8]), f"m{at}[0]"]
        form += f"{offset + 8 - there(form)}s{slot.layout.size - 8}s"
    parts.append(repr(contents[there(form) :]))
    space["pack"] = struct.Struct(f"{form}{block.size - there(form)}s").pack
    reaches = [f"m{at}[1]" if at in slots else _REACH.format(at) for at in addressed]
    found = "".join(f"p{at}, " for at in addressed), "".join(f"{reaches[at]}, " for at in used)
    head = ", ".join(["x, y, z, early", *names[:count], *hidden])
    made_of = f"return pack({', '.join(parts)}), ({found[0]}), ({found[1]})\n"
    source = "\n    ".join([f"def lay({head}):", *lines, made_of])
    exec(compile(source, "<wspec lay>", "exec"), space)
    made: Lay = space["lay"]
    return made


_ADDRESS = "a{0}.data_ptr() if type(a{0}) is Tensor else address(a{0})"
_REACH = "a{0}.nbytes if type(a{0}) is Tensor and a{0}.is_contiguous() else reach(a{0})"


def _reach(argument: Any) -> int:
    """Bytes that an argument reaches from its address; 0 of a number, for it is the launch's own."""
    if type(argument) is int:
        return 0
    if type(argument) is not torch.Tensor or not argument.is_contiguous():
        raise Unlike
    return argument.nbytes

"""Where a launch has the numbers that a compiled function is given."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from wspec.tile_scheduler import NEAR

BEFORE = 3  # launch metadata, and the hooks before and after: what a launch passes before the kernel's own arguments
Slot = tuple[int, str, int]  # position among the launch's arguments; "value", "shape" or "stride"; which dimension


def rank_of(kind: str) -> int:
    """How many dimensions a descriptor has, by its type in a signature: `tensordesc<bf16[128, 64]>`."""
    return kind.count(",", kind.index("[")) + 1


def slots_of(signature: Mapping[str, Any]) -> list[Slot | None]:
    """Where the value of each argument of the compiled function comes from; None for what has no whole number."""
    found: list[Slot | None] = []
    for position, kind in enumerate(signature.values()):
        if kind == "constexpr":
            continue
        if isinstance(kind, tuple | list):
            found += [None] * _leaves(kind)
        elif isinstance(kind, str) and kind.startswith("tensordesc"):
            found.append(None)
            found += [(position, part, axis) for part in ("shape", "stride") for axis in range(rank_of(kind))]
        elif isinstance(kind, str) and kind[0] in "iu":
            found.append((position, "value", 0))
        else:
            found.append(None)
    return found


def _leaves(kind: Any) -> int:
    """How many arguments of the compiled function a tuple stands for."""
    if isinstance(kind, tuple | list):
        return sum(map(_leaves, kind))
    if isinstance(kind, str) and kind.startswith("tensordesc"):
        return 1 + 2 * rank_of(kind)
    return int(kind != "constexpr")


def reader(
    slots: Sequence[Slot | None],
    before: int = 0,
    *,
    nearly: bool = False,
    on_grid: bool = False,
    wholes: bool = False,
) -> Callable[..., tuple[int, ...]]:
    """What gives the numbers at slots, of a launch's arguments from position `before` on.

    nearly: what is `near` them. on_grid: it is given the grid's sizes first, and its result begins with these. wholes:
    a `direct.Whole` stands for each descriptor.
    """
    shape, strides = ("[1]", "[2]") if wholes else (".shape", ".strides")
    parts = ["x, y, z,"] if on_grid else []
    for slot in slots:
        assert slot is not None, "costs depend on whole numbers only"
        position, kind, axis = slot
        inside = {"value": "", "shape": f"{shape}[{axis}]", "stride": f"{strides}[{axis}]"}[kind]
        number = f"args[{before + position}]{inside}"
        number = number if wholes and kind != "value" else f"int({number})"  # torch's own are whole
        parts.append(f"{NEAR.format('n', f'(n := {number})') if nearly else number},")
    text = f"lambda {'x, y, z, ' if on_grid else ''}args: ({' '.join(parts)})"
    found: Callable[..., tuple[int, ...]] = eval(text)
    return found

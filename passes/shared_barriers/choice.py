"""Which rings fill and are handed back together, so that one pair of barriers does for them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from wspec.decision import NOT_ASKED, Decision
from wspec.ir.core import Operation
from wspec.ir.numbering import id_of
from wspec.ir.shapes import DOTS
from wspec.options import Options
from wspec.plan.buffers import readers_of
from wspec.plan.fill import Fill
from wspec.plan.plan import Channel

Loads = Sequence[Sequence[Operation]]
"""Of each channel, the loads that fill it."""


def share_barriers(channels: Sequence[Channel], loads: Loads, options: Options) -> tuple[Channel, ...]:
    """The channels, those that can use another one's barriers with its name; all as they are where that is not wanted.

    A turn of the producer is a wait, an arrival that says how many bytes come, and a copy; a consumer waits for a tile
    and hands it back. With one barrier that is done once for all tiles of a product (docs/results/products.md).
    """
    if options.shared_barriers is False:
        return tuple(channels)
    made = list(channels)
    for group in filled_together(channels, loads):
        owner = min((at for at in group if not channels[at].apart), key=lambda at: channels[at].loads, default=None)
        for at in group:
            if owner is not None and at != owner:
                made[at] = replace(channels[at], barriers=channels[owner].name)
    return tuple(made)


def filled_together(channels: Sequence[Channel], loads: Loads) -> list[list[int]]:
    """Channels that fill together, several each, by their positions."""
    groups: list[list[int]] = []
    for at in range(len(channels)):
        group = next((one for one in groups if all(_together(other, at, channels, loads) for other in one)), None)
        if group is None:
            groups.append([at])
        else:
            group.append(at)
    return [group for group in groups if len(group) > 1]


def shares_barriers(channels: Sequence[Channel], options: Options) -> Decision[bool]:
    """Do any; why not, where that was asked for."""
    if any(channel.barriers for channel in channels):
        return Decision(True)
    if options.shared_barriers:
        return Decision(None, "no two tiles of an iteration are read by the same products alone")
    return NOT_ASKED


def _together(first: int, second: int, channels: Sequence[Channel], loads: Loads) -> bool:
    """Are both rings of one depth, filled by copies that follow each other, for the same products?"""
    a, b = channels[first], channels[second]
    alike = (a.depth, a.readers) == (b.depth, b.readers) and len(loads[first]) == len(loads[second])
    if not alike or not all(one.fill is Fill.TMA and one.streams and not one.private for one in (a, b)):
        return False
    every = {load for some in loads for load in some}
    return all(_one_place(one, other, every) for one, other in zip(loads[first], loads[second], strict=True))


def _one_place(one: Operation, other: Operation, every: set[Operation]) -> bool:
    """Does no other load stand between these two, and do the same products of their block, and only they, read both?"""
    block = one.parent
    if block is None or other.parent is not block:
        return False
    order = [op for op in block.ops if op in every]
    readers = readers_of(block, one)
    if abs(order.index(one) - order.index(other)) != 1 or not readers or readers != readers_of(block, other):
        return False
    return all(op.name in DOTS for op in block.ops if id_of(op) in readers)

"""Stores in halves: which tiles can be stored half at their end and half beside the next tile's first products.

A store that runs on takes a buffer of the tile's size for as long as the next tile lasts, though it is at work for a
few thousand cycles of it. In halves, one behind the other, it takes a buffer of half that size, and what this saves
makes the rings deeper. The second half waits in registers (16 bits an element, where the sums took 32) until the next
tile's first products run; passes/store_staging/delay_last_subtile.py puts it there.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import takewhile

from wspec.ir.core import Operation
from wspec.ir.ops import is_pure
from wspec.ir.shapes import DOTS
from wspec.ir.types import Layout, LayoutField, TensorDescType, TensorType
from wspec.model.operations import bits
from wspec.plan.partition import hot_loops
from wspec.plan.stores import unconverted
from wspec.target.hopper import TMA_ROW_BYTES, WARP_ROWS

OTHER_REGISTERS = 48  # of a thread that multiplies and stores, beside its sums and what it has left to store


def hindrance(function: Operation, store: Operation, warps: int, registers: int) -> str:
    """Why a store in a loop over tiles cannot be made in halves; empty where it can.

    warps: of all that share the tile; registers: that a thread of theirs may use. For a kernel before it is divided.
    """
    body = store.parent
    loops = hot_loops(function)
    if body is None or len(loops) != 1 or loops[0].parent is not body:
        return "the loop over tiles holds more than one loop that multiplies"
    if any(op.name in DOTS and not op.is_inside(loops[0]) for op in function.walk()):
        return "the kernel multiplies outside of its loop"
    tiles = body.parent_op
    if tiles is None or tiles.parent is not function.regions[0].block:
        return "the loop over tiles stands in another one, or in a branch"
    if any(loop.is_set("unsignedCmp") for loop in (tiles, loops[0])):
        return "a loop counts without a sign"
    if not all(is_pure(op) for op in body.behind(store)[:-1]):
        return "more happens behind the store than computing"
    desc, tile = store.operands[0], unconverted(store.operands[1]).type
    if desc.owner is not function.regions[0].block or any(
        desc in op.operands for op in function.walk() if op is not store
    ):
        return "the descriptor is not one that this store alone uses"
    if (
        not isinstance(desc.type, TensorDescType)
        or not isinstance(tile, TensorType)
        or not _is_one_product(tile, warps)
    ):
        return "a warp's part of the tile is not that of one product"
    columns = tile.shape[1]
    if bits(tile) != 16 or desc.type.block.shape[-1] != columns or columns * 2 % (2 * TMA_ROW_BYTES):
        return "the tile has no halves of 16 bits an element and whole boxes"
    if columns // 2 + columns // 8 + OTHER_REGISTERS > registers:
        return f"its sums and the half that is left take more than {registers} registers a thread"
    return ""


def _is_one_product(tile: TensorType, warps: int) -> bool:
    """Does each warp hold 16 rows of all columns, as one instruction leaves them?"""
    layout = tile.encoding
    if not isinstance(layout, Layout) or layout.name != "ttg.nvidia_mma" or len(tile.shape) != 2:
        return False
    rows, columns = tile.shape
    whole = layout.ints("warpsPerCTA") == (warps, 1) and rows == WARP_ROWS * warps
    return whole and layout.ints("instrShape")[:2] == (WARP_ROWS, columns)


def halving_types(tile: TensorType) -> tuple[TensorType, TensorType, TensorType]:
    """Of a tile [rows, columns] that is one product's: [rows, 2, columns / 2], [rows, columns / 2, 2] and a half.

    Their layouts leave every element in the thread that has it.
    """
    rows, columns = tile.shape
    half = columns // 2
    assert isinstance(tile.encoding, Layout)
    warps = tile.encoding.ints("warpsPerCTA")[0]
    doubled = list(takewhile(lambda size: size < half, (8 << at for at in range(16))))
    register = [(0, 1), (8, 0), *((0, column) for column in doubled)]
    lane = [(0, 2), (0, 4), (1, 0), (2, 0), (4, 0)]
    warp = [(16 << at, 0) for at in range(warps.bit_length() - 1)]
    second = len(register)  # the number of the register bit that says which half

    def laid_out(shape: tuple[int, ...], order: tuple[int, ...]) -> TensorType:
        """`order`: where row, half and column are among the dimensions; -1 for none."""

        def basis(row: int, column: int, which: int = 0) -> tuple[int, ...]:
            found = {order[0]: row, order[1]: which, order[2]: column}
            return tuple(found[dim] for dim in range(len(shape)))

        registers = [basis(*each) for each in register]
        if order[1] >= 0:
            registers.insert(second, basis(0, 0, 1))
        fields: tuple[tuple[str, LayoutField], ...] = (
            ("register", tuple(registers)),
            ("lane", tuple(basis(*each) for each in lane)),
            ("warp", tuple(basis(*each) for each in warp)),
            ("block", ()),
        )
        return replace(tile, shape=shape, encoding=Layout("ttg.linear", fields))

    return (
        laid_out((rows, 2, half), (0, 1, 2)),
        laid_out((rows, half, 2), (0, 2, 1)),
        laid_out((rows, half), (0, -1, 1)),
    )

"""Reductions, scans and maps with a region that combines elements; histograms.

In which order a card combines, nobody says. Here a reduction combines the two halves of an axis until one element is
left, and a scan doubles the distance over which it has combined: the same order for every slice along other axes.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from wspec.execute.context import Context, Item, Prepare, Run
from wspec.execute.elements import any_of, dtype_of, scalar, shape_of
from wspec.execute.errors import ExecutionError
from wspec.execute.regions import Body, Tensors, body_of
from wspec.ir.core import Operation


def handlers(prepare: Prepare) -> dict[str, Prepare]:
    """The handlers; `prepare` makes the operations in the regions ready."""
    return {
        "tt.reduce": lambda op: _reduce(op, body_of(op, prepare)),
        "tt.scan": lambda op: _scan(op, body_of(op, prepare)),
        "tt.map_elementwise": lambda op: _map(op, body_of(op, prepare)),
        "tt.histogram": _histogram,
    }


# Combiners for which the order does not matter, and what torch has for them.
_SHORT: dict[str, Callable[[torch.Tensor, int], torch.Tensor]] = {
    "arith.maxnumf": torch.amax,
    "arith.maximumf": torch.amax,
    "arith.minnumf": torch.amin,
    "arith.minimumf": torch.amin,
    "arith.maxsi": torch.amax,
    "arith.minsi": torch.amin,
    "arith.addi": lambda values, axis: values.sum(axis, dtype=values.dtype),
}


def _short(op: Operation) -> Callable[[torch.Tensor, int], torch.Tensor] | None:
    """torch's function for a region of one operation on the two arguments."""
    block = op.regions[0].block
    if len(block.ops) != 2 or len(block.args) != 2 or str(block.args[0].type) == "i1":
        return None
    only = block.ops[0]
    plain = set(only.operands) == set(block.args) and block.terminator.operands == only.results
    return _SHORT.get(only.name) if plain else None


def _reduce(op: Operation, body: Body) -> Run:
    axis, shapes, short = op.int_attr("axis") or 0, [shape_of(value.type) for value in op.results], _short(op)

    def run(operands: tuple[Item, ...], context: Context) -> tuple[Item, ...]:
        if short is not None:
            found = short(operands[0], axis)
            # Where NaN and the sign of zero may matter, the region decides.
            if not found.dtype.is_floating_point or not any_of((found == 0) | (found != found)):
                return (found if shapes[0] else scalar(found),)
        left: Tensors = operands
        while (length := left[0].shape[axis]) > 1:
            rest = tuple(values.narrow(axis, length - 1, 1) for values in left) if length % 2 else ()
            even = tuple(values.narrow(axis, 0, length - 1) for values in left) if length % 2 else left
            halves = [values.chunk(2, axis) for values in even]
            first = tuple([half for half, _ in halves])
            left = _full(body((*first, *[half for _, half in halves]), context), first)
            left = _joined(left, rest, axis) if rest else left
        results = [values.squeeze(axis) for values in left]
        return tuple([values if shape else scalar(values) for values, shape in zip(results, shapes, strict=True)])

    return run


def _scan(op: Operation, body: Body) -> Run:
    axis, reverse = op.int_attr("axis") or 0, bool(op.int_attr("reverse"))

    def run(operands: tuple[Item, ...], context: Context) -> tuple[Item, ...]:
        done: Tensors = tuple(values.flip(axis) for values in operands) if reverse else operands
        length, distance = done[0].shape[axis], 1
        while distance < length:
            early = tuple(values.narrow(axis, 0, length - distance) for values in done)
            late = tuple(values.narrow(axis, distance, length - distance) for values in done)
            start = tuple(values.narrow(axis, 0, distance) for values in done)
            done = _joined(start, _full(body((*early, *late), context), late), axis)
            distance *= 2
        return tuple(values.flip(axis) for values in done) if reverse else done

    return run


def _full(values: Tensors, like: Tensors) -> Tensors:
    """A region whose result does not depend on its arguments gives fewer dimensions."""
    if all(value.shape == other.shape for value, other in zip(values, like, strict=True)):
        return values
    return tuple(value.expand(other.shape) for value, other in zip(values, like, strict=True))


def _joined(first: Tensors, second: Tensors, axis: int) -> Tensors:
    return tuple(torch.cat(pair, axis) for pair in zip(first, second, strict=True))


def _map(op: Operation, body: Body) -> Run:
    """With `pack` n, one run of the region takes n elements of each operand, here n that follow each other."""
    pack = op.int_attr("pack") or 1
    shapes = [shape_of(value.type) for value in op.results]

    def run(operands: tuple[Item, ...], context: Context) -> tuple[Item, ...]:
        args = [part for values in operands for part in values.reshape(-1, pack).unbind(1)]
        parts = body(tuple(args), context)
        full = [part.expand(args[0].shape) for part in parts]
        groups = [full[start : start + pack] for start in range(0, len(full), pack)]
        return tuple(torch.stack(group, 1).reshape(shape) for group, shape in zip(groups, shapes, strict=True))

    return run


def _histogram(op: Operation) -> Run:
    """Counts of 0 .. bins-1. What a card makes of other values is not said, so they are an error."""
    bins, dtype = shape_of(op.result.type)[0], dtype_of(op.result.type)

    def run(operands: tuple[Item, ...], context: Context) -> tuple[Item, ...]:
        values = operands[0] if len(operands) == 1 else operands[0][operands[1]]
        outside = values[(values < 0) | (values >= bins)]
        if outside.numel():
            raise ExecutionError(f"a histogram of {bins} bins counts a {int(outside[0])}")
        return (torch.bincount(values.reshape(-1).long(), minlength=bins).to(dtype),)

    return run

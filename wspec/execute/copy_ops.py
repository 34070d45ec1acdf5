"""Operations that copy beside the tasks: TMA in both directions, cp.async, and the fence between both worlds."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch

from wspec.execute.asynchrony import Arrival, Copy, Store
from wspec.execute.barrier_ops import barrier_of, predicate
from wspec.execute.code import Decode, Decoder, Step, flow, point
from wspec.execute.descriptor import Descriptor, gather_rows, read_tile, reduce_tile, scatter_rows, write_tile
from wspec.execute.elements import dtype_of
from wspec.execute.errors import ExecutionError
from wspec.execute.machine import Item, Steps, Task, Wait
from wspec.execute.races import learn
from wspec.execute.shared import View
from wspec.execute.shared_ops import (
    check_fenced,
    check_free,
    check_ordered,
    check_overtaken,
    check_readable,
    forget_written,
    memdesc,
)
from wspec.ir.core import Operation
from wspec.ir.types import DenseArrayAttr

# -------------------------------------------------------------------------------------------- TMA, inwards


def _begin(task: Task, op: Operation, at: int, view: View) -> None:
    """What must hold before TMA fills a buffer."""
    check_free(task, op, at, view)
    check_ordered(task, op, at, view, writes=True, copies=True)
    check_overtaken(task, op, at, view)
    task.fence(view)  # Triton's proxy fence insertion: between a task's own accesses and its own copies


def decode_tma_load(op: Operation, decoder: Decoder) -> Step:
    """A block of global memory into a buffer; its bytes count at the barrier when they are there."""
    slots = decoder.slots
    desc, *coordinates = slots.all(op.operands[:-3])
    at = len(op.operands) - 2
    barrier, buffer = slots.all(op.operands[at - 1 : at + 1])
    wanted = predicate(op, decoder, at + 1)

    def copy(task: Task) -> None:
        if wanted(task):
            frame = task.frame
            view: View = frame[buffer]
            counter = barrier_of(task, op, at - 1, frame[barrier])
            source, place = _descriptor(task, op, frame[desc], view), [frame[slot] for slot in coordinates]
            _begin(task, op, at, view)
            memory = task.context.memory
            task.issue(Copy(task, op, view, lambda: read_tile(memory, source, place), counter))

    return point(copy)


def decode_tma_gather(op: Operation, decoder: Decoder) -> Step:
    """Rows of a matrix into a buffer."""
    desc, rows, column, barrier, buffer = decoder.slots.all(op.operands[:5])
    wanted = predicate(op, decoder, 5)

    def copy(task: Task) -> None:
        if wanted(task):
            frame = task.frame
            view: View = frame[buffer]
            counter = barrier_of(task, op, 3, frame[barrier])
            source, which, first = _of_rows(task, op, frame[desc], view), task.tensor(rows, op), frame[column]
            width = view.data.shape[-1]
            _begin(task, op, 4, view)
            memory = task.context.memory
            task.issue(Copy(task, op, view, lambda: gather_rows(memory, source, which, first, width), counter))

    return point(copy)


def _descriptor(task: Task, op: Operation, desc: Item, view: View) -> Descriptor:
    """The descriptor, whose block must be what the buffer holds."""
    if not isinstance(desc, Descriptor):
        raise task.error(f"{op.name}: the first operand is no descriptor", op)
    if torch.Size(desc.block).numel() != view.data.numel() or desc.dtype != view.data.dtype:
        held = f"{tuple(view.data.shape)} {view.data.dtype}"
        raise task.error(f"{op.name}: a block of {desc.block} {desc.dtype}, but the buffer holds {held}", op)
    return desc


def _of_rows(task: Task, op: Operation, desc: Item, view: View) -> Descriptor:
    """The descriptor of a matrix whose rows the buffer holds."""
    if not isinstance(desc, Descriptor):
        raise task.error(f"{op.name}: the first operand is no descriptor", op)
    if desc.dtype != view.data.dtype:
        raise task.error(f"{op.name}: rows of {desc.dtype}, but the buffer holds {view.data.dtype}", op)
    return desc


# ------------------------------------------------------------------------------------------- TMA, outwards

Write = Callable[[torch.Tensor], None]
"""Takes a tile to global memory."""


def _store(op: Operation, decoder: Decoder, prepare: Callable[[Task], Write]) -> Step:
    """A buffer, the last operand, to global memory. Each store is a group of its own."""
    at = len(op.operands) - 1
    buffer = decoder.slots.of(op.operands[at])

    def store(task: Task) -> None:
        view: View = task.frame[buffer]
        check_readable(task, op, at, view)
        check_ordered(task, op, at, view, writes=False)
        write = prepare(task)
        if not check_fenced(task, op, at, view):
            write = _of_poison(write)
        made = Store(task, op, view, write)
        task.stores.append(made)
        task.issue(made)

    return point(store)


def _of_poison(write: Write) -> Write:
    return lambda tile: write(torch.full_like(tile, float("nan")) if tile.is_floating_point() else tile)


def _store_tile(op: Operation, decoder: Decoder, write: Callable[..., None]) -> Step:
    """`write` gets global memory, the descriptor, the coordinates and the tile."""
    desc, *coordinates, buffer = decoder.slots.all(op.operands)

    def prepare(task: Task) -> Write:
        frame, memory = task.frame, task.context.memory
        target, place = _descriptor(task, op, frame[desc], frame[buffer]), [frame[slot] for slot in coordinates]
        return lambda tile: write(memory, target, place, tile)

    return _store(op, decoder, prepare)


def decode_tma_store(op: Operation, decoder: Decoder) -> Step:
    return _store_tile(op, decoder, write_tile)


def decode_tma_reduce(op: Operation, decoder: Decoder) -> Step:
    kind = op.int_attr("kind")
    if kind is None:
        raise ExecutionError(f"{op.name} without a kind", op.location)
    return _store_tile(op, decoder, partial(reduce_tile, kind=kind))


def decode_tma_scatter(op: Operation, decoder: Decoder) -> Step:
    desc, rows, column, buffer = decoder.slots.all(op.operands)

    def prepare(task: Task) -> Write:
        frame, memory = task.frame, task.context.memory
        target, which, first = _of_rows(task, op, frame[desc], frame[buffer]), task.tensor(rows, op), frame[column]
        return lambda tile: scatter_rows(memory, target, which, first, tile)

    return _store(op, decoder, prepare)


def decode_store_wait(op: Operation, decoder: Decoder) -> Step:
    """All stores of the task but the last `pendings` have read their buffers."""
    pendings = op.int_attr("pendings") or 0

    def wait(task: Task) -> Steps:
        covered = task.stores[: max(0, len(task.stores) - pendings)]
        yield Wait(op, lambda: all(store.done for store in covered), lambda: f"{len(covered)} TMA stores")
        for store in covered:
            store.release()
            learn(task.known, store.known)
        del task.stores[: len(covered)]

    return flow(wait)


def decode_fence(op: Operation, decoder: Decoder) -> Step:
    """What the task wrote and read so far comes before what TMA and the tensor cores do from now on."""

    def fence(task: Task) -> None:
        task.fence()

    return point(fence)


# ------------------------------------------------------------------------------------------------ cp.async


def decode_async_copy(op: Operation, decoder: Decoder) -> Step:
    """cp.async: elements at addresses into a buffer; complete with the group they are committed in."""
    sizes = op.attr("operandSegmentSizes")
    given = sizes.values if isinstance(sizes, DenseArrayAttr) else (1,) * len(op.operands)
    slots = iter(decoder.slots.all(op.operands))
    pointers, buffer = next(slots), next(slots)
    mask = next(slots) if len(given) > 2 and given[2] else None
    other = next(slots) if len(given) > 3 and given[3] else None
    token, dtype = decoder.slots.of(op.results[0]), dtype_of(memdesc(op, 1).element)

    def copy(task: Task) -> None:
        view: View = task.frame[buffer]
        check_free(task, op, 1, view)
        check_ordered(task, op, 1, view, writes=True, copies=True)
        addresses = task.tensor(pointers, op)
        chosen = None if mask is None else task.tensor(mask, op)
        default = None if other is None else task.tensor(other, op)
        memory = task.context.memory
        made = Copy(task, op, view, lambda: memory.load(addresses, dtype, chosen, default))
        forget_written(task, view)
        task.copies.append(made)
        task.issue(made)
        task.frame[token] = None

    return point(copy)


def decode_commit(op: Operation, decoder: Decoder) -> Step:
    token = decoder.slots.of(op.results[0])

    def commit(task: Task) -> None:
        task.groups.append(task.copies)
        task.copies = []
        task.frame[token] = None

    return point(commit)


def decode_async_wait(op: Operation, decoder: Decoder) -> Step:
    """All groups of the task but the last `num` have landed."""
    keep, token = op.int_attr("num") or 0, decoder.slots.of(op.results[0])

    def wait(task: Task) -> Steps:
        number = max(0, len(task.groups) - keep)
        covered = [copy for group in task.groups[:number] for copy in group]
        yield Wait(op, lambda: all(copy.done for copy in covered), lambda: f"{len(covered)} cp.async copies")
        for copy in covered:
            learn(task.known, copy.known)
        del task.groups[:number]
        task.frame[token] = None

    return flow(wait)


def decode_copy_arrive(op: Operation, decoder: Decoder) -> Step:
    """Every thread arrives when its cp.async copies so far have landed. Without noIncrement the phase is told of it."""
    slot, counted_in = decoder.slots.of(op.operands[0]), op.attr("noIncrement") is not None

    def arrive(task: Task) -> None:
        barrier = barrier_of(task, op, 0, task.frame[slot])
        if not counted_in:
            barrier.add(task.threads)
        before = [copy for group in (*task.groups, task.copies) for copy in group if not copy.done]
        task.issue(Arrival(task, op, barrier, before))

    return point(arrive)


DECODERS: dict[str, Decode] = {
    "ttng.async_tma_copy_global_to_local": decode_tma_load,
    "ttng.async_tma_gather": decode_tma_gather,
    "ttng.async_tma_copy_local_to_global": decode_tma_store,
    "ttng.async_tma_reduce": decode_tma_reduce,
    "ttng.async_tma_scatter": decode_tma_scatter,
    "ttng.async_tma_store_wait": decode_store_wait,
    "ttng.fence_async_shared": decode_fence,
    "ttg.async_copy_global_to_local": decode_async_copy,
    "ttg.async_commit_group": decode_commit,
    "ttg.async_wait": decode_async_wait,
    "ttng.async_copy_mbarrier_arrive": decode_copy_arrive,
}

"""Operations on shared memory: allocations, views, loads and stores."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from wspec.diagnostics import place_text
from wspec.execute.code import Decode, Decoder, Step, plain, point
from wspec.execute.elements import dtype_of
from wspec.execute.errors import ExecutionError
from wspec.execute.machine import Task
from wspec.execute.races import Party
from wspec.execute.shared import EMPTY, FREED, Buffer, View, describe, poison_of
from wspec.ir.core import Operation
from wspec.ir.types import DenseArrayAttr, MemDescType

OFFSET = "allocation.offset"
"""Where in a block's shared memory Triton has put what an operation needs, in bytes; not there before it has."""


# ----------------------------------------------------------------------------------- what others may not do


def check_free(task: Task, op: Operation, operand: int, view: View) -> None:
    """A fault if somebody may still fill or read what is about to be overwritten."""
    found = view.busy()
    if found is not None:
        doing, other = found
        buffer = describe(op.operands[operand], view)
        task.fault(f"{op.name} overwrites {buffer} while {doing}", op, note=_issued(other))


def check_readable(task: Task, op: Operation, operand: int, view: View) -> None:
    """A fault if it holds poison."""
    if view.poison_state():
        why, other = view.why_poison()
        note = _issued(other) if other is not None else ""
        task.fault(f"{op.name} reads {describe(op.operands[operand], view)}, which {why}", op, note=note)


def check_fenced(task: Task, op: Operation, operand: int, view: View) -> bool:
    """A fault if the tensor cores or TMA are to read what was written by ordinary stores with no fence since.

    Whoever wrote it must fence it, before anything tells the reader to go on. False where there is no fence: the reader
    may get what was there before.
    """
    for writer in task.machine.everyone:
        for written, store in writer.written.items():
            if written.overlaps(view):
                task.fault(
                    f"{op.name} reads {describe(op.operands[operand], view)}, which {writer.title} wrote with "
                    f"{store.name} and did not fence (ttng.fence_async_shared)",
                    op,
                    note=_issued(store),
                )
                return False
    return True


def check_overtaken(task: Task, op: Operation, operand: int, view: View) -> None:
    """A fault if TMA is to fill what *another* task read or wrote by ordinary instructions with no fence since.

    Barriers alone do not order the two: copies overtook such reads on an H200 (docs/results). Within one task
    Triton's proxy fence insertion puts the fence.
    """
    for other in task.machine.everyone:
        if other is task:
            continue
        for accesses, verb in ((other.read, "read"), (other.written, "wrote")):
            for seen, access in accesses.items():
                if seen.overlaps(view):
                    task.fault(
                        f"{op.name} fills {describe(op.operands[operand], view)}, which {other.title} {verb} with "
                        f"{access.name} and did not fence (ttng.fence_async_shared): the copy may overtake it",
                        op,
                        note=_issued(access),
                    )


def check_ordered(task: Task, op: Operation, operand: int, view: View, writes: bool, copies: bool = False) -> None:
    """A fault if another task touched it, one of the two writes, and nothing orders them: whatever this run did.

    `copies`: it is written by a copy that is about to be issued.
    """
    races = task.machine.shared_races
    if races is None:
        return
    now = task.party(op)
    by = Party(-task.number, task.issued + 1, task.known, task, op) if copies else None
    before = races.note(view, now, writes, by)
    if before is not None:
        what = f"{before.op.name} of {before.task.title} touched"
        text = f"{op.name} {'writes' if writes else 'reads'} {describe(op.operands[operand], view)}"
        task.fault(f"{text}, which {what}, and nothing orders the two", op, note=_issued(before.op))


def use_scratch(task: Task, op: Operation) -> None:
    """An operation exchanges values through the place that Triton gave it. A fault if somebody still uses that.

    How much it takes is not said: the first bytes count.
    """
    offset = op.int_attr(OFFSET)
    if offset is None:
        return
    buffer = Buffer.allocate(op, (1, SCRATCH_BYTES), torch.uint8)
    buffer.base_bytes, buffer.group = offset, task.machine.placed
    view = buffer.whole()
    found = view.busy()
    if found is not None:
        task.fault(f"{op.name} exchanges values at byte {offset} of shared memory while {found[0]}", op)
    view.claim()


SCRATCH_BYTES = 16  # that any exchange takes


def _issued(op: Operation) -> str:
    where = place_text(op.location)
    return f"the {op.name} is at {where}" if where else f"it is a {op.name}"


def put(task: Task, op: Operation, view: View, tensor: torch.Tensor) -> None:
    """Write all of a view by ordinary stores."""
    try:
        view.put(tensor)
    except ExecutionError as error:
        raise task.error(f"{op.name}: {error.message}", op) from None
    forget_written(task, view)
    task.written[view] = op


def forget_written(task: Task, view: View) -> None:
    """What was written there before is overwritten: nobody will see it, and nobody need fence it."""
    for other in task.machine.everyone:
        for before in [before for before in other.written if view.overlaps(before)]:
            store = other.written.pop(before)
            other.written |= dict.fromkeys(before.without(view), store)


def poisoned(view: View) -> torch.Tensor:
    """A tensor of poison in the view's shape."""
    return torch.full(view.data.shape, poison_of(view.data.dtype), dtype=view.data.dtype)


# ---------------------------------------------------------------------------------------------- allocations


def memdesc(op: Operation, at: int | None = None) -> MemDescType:
    """The type of the operand `at`, or of the result. Raises ExecutionError when it is no buffer."""
    type = op.results[0].type if at is None else op.operands[at].type
    if not isinstance(type, MemDescType):
        raise ExecutionError(f"{op.name}: expected a buffer, got {type}", op.location)
    return type


def decode_local_alloc(op: Operation, decoder: Decoder) -> Step:
    """The same place every time it is executed, as on the card: what was there must not be needed any more."""
    type = memdesc(op)
    if "tensor_memory" in str(type.memory_space):
        raise ExecutionError("there is no tensor memory on Hopper", op.location)
    dtype, result = dtype_of(type.element), decoder.slots.of(op.results[0])
    source = decoder.slots.of(op.operands[0]) if op.operands else None
    offset = op.int_attr(OFFSET)

    def allocate(task: Task) -> None:
        view = task.machine.allocated.get(op)
        if view is None:
            buffer = Buffer.allocate(op, type.shape, dtype)
            if offset is not None:
                task.machine.place(buffer, offset)
            view = task.machine.allocated[op] = buffer.whole()
        else:
            reallocate(task, view)
        if source is not None:
            check_free(task, op, 0, view)
            check_ordered(task, op, 0, view, writes=True)
            put(task, op, view, task.tensor(source, op))
        task.frame[result] = view

    def reallocate(task: Task, view: View) -> None:
        found = view.busy()
        if found is not None:
            task.fault(f"{op.name} runs again while {found[0]}", op, note=_issued(found[1]))
        if view.buffer.barriers:
            raise task.error("an allocation runs again while barriers in it are in use", op)
        view.buffer.forget(EMPTY)

    return point(allocate)


def decode_local_dealloc(op: Operation, decoder: Decoder) -> Step:
    slot = decoder.slots.of(op.operands[0])

    def free(task: Task) -> None:
        view: View = task.frame[slot]
        check_free(task, op, 0, view)
        for buffer in view.buffer.group:
            if buffer.whole().overlaps(view):
                buffer.forget(FREED)
        task.fence(view)

    return point(free)


# -------------------------------------------------------------------------------------- loads and stores


def decode_local_load(op: Operation, decoder: Decoder) -> Step:
    slot, result = decoder.slots.of(op.operands[0]), decoder.slots.of(op.results[0])

    def load(task: Task) -> None:
        view: View = task.frame[slot]
        check_readable(task, op, 0, view)
        check_ordered(task, op, 0, view, writes=False)
        task.read[view] = op
        task.frame[result] = view.data.clone()

    return point(load)


def decode_local_store(op: Operation, decoder: Decoder) -> Step:
    source, slot = decoder.slots.all(op.operands)

    def store(task: Task) -> None:
        view: View = task.frame[slot]
        check_free(task, op, 1, view)
        check_ordered(task, op, 1, view, writes=True)
        put(task, op, view, task.tensor(source, op))

    return point(store)


# --------------------------------------------------------------------------------------------------- views

Cut = Callable[[View, Sequence[int]], View]


def _view(op: Operation, decoder: Decoder, which: tuple[object, ...], cut: Cut) -> Step:
    """A view of the first operand, made once for each `which` and values of the other operands, which are integers."""
    first, *others = decoder.slots.all(op.operands)
    result = decoder.slots.of(op.results[0])

    def look(task: Task) -> None:
        frame = task.frame
        view: View = frame[first]
        operands = [frame[other] for other in others]
        key = (op.name, *which, *operands)
        found = view.children.get(key)
        if found is None:
            found = view.children[key] = cut(view, operands)
        frame[result] = found

    return plain(look)


def decode_memdesc_index(op: Operation, decoder: Decoder) -> Step:
    def cut(view: View, operands: Sequence[int]) -> View:
        index = operands[0]
        if not 0 <= index < view.data.shape[0]:
            raise ExecutionError(f"buffer {index} of a ring of {view.data.shape[0]}", op.location)
        return view.part(view.data[index], f"[{index}]")

    return _view(op, decoder, (), cut)


def decode_memdesc_subslice(op: Operation, decoder: Decoder) -> Step:
    offsets = op.attr("offsets")
    if not isinstance(offsets, DenseArrayAttr):
        raise ExecutionError(f"{op.name} without offsets", op.location)
    shape = memdesc(op).shape
    ranges = tuple((at, at + size) for at, size in zip(offsets.values, shape, strict=True))
    path = "[" + ", ".join(f"{first}:{last}" for first, last in ranges) + "]"

    def cut(view: View, operands: Sequence[int]) -> View:
        if any(last > size for (_, last), size in zip(ranges, view.data.shape, strict=True)):
            raise ExecutionError(f"{path} is not inside of a buffer of {tuple(view.data.shape)}", op.location)
        return view.part(view.data[tuple(slice(*part) for part in ranges)], path)

    return _view(op, decoder, ranges, cut)


def decode_memdesc_trans(op: Operation, decoder: Decoder) -> Step:
    order = op.attr("order")
    if not isinstance(order, DenseArrayAttr):
        raise ExecutionError(f"{op.name} without an order", op.location)
    return _view(op, decoder, order.values, lambda view, operands: view.part(view.data.permute(order.values)))


def decode_memdesc_reshape(op: Operation, decoder: Decoder) -> Step:
    shape = memdesc(op).shape

    def cut(view: View, operands: Sequence[int]) -> View:
        try:
            return view.part(view.data.view(shape))
        except RuntimeError:
            text = f"a reshape of a buffer that is not contiguous, {tuple(view.data.shape)} to {shape}"
            raise ExecutionError(f"{text}, is not supported", op.location) from None

    return _view(op, decoder, shape, cut)


def decode_memdesc_reinterpret(op: Operation, decoder: Decoder) -> Step:
    """The bytes of a whole buffer or ring as another type; what was in them cannot be read through it."""
    type = memdesc(op)
    shape, dtype = type.shape, dtype_of(type.element)

    def cut(view: View, operands: Sequence[int]) -> View:
        size = torch.Size(shape).numel() * dtype.itemsize
        if size > view.last - view.first or not view.is_dense:
            text = f"{size} bytes cannot be had of a view of {tuple(view.data.shape)}"
            raise ExecutionError(f"ttg.memdesc_reinterpret: {text}", op.location)
        return view.under_type(op, shape, dtype)

    return _view(op, decoder, (shape, dtype), cut)


DECODERS: dict[str, Decode] = {
    "ttg.local_alloc": decode_local_alloc,
    "ttg.local_dealloc": decode_local_dealloc,
    "ttg.local_load": decode_local_load,
    "ttg.local_store": decode_local_store,
    "ttg.memdesc_index": decode_memdesc_index,
    "ttg.memdesc_subslice": decode_memdesc_subslice,
    "ttg.memdesc_trans": decode_memdesc_trans,
    "ttg.memdesc_reshape": decode_memdesc_reshape,
    "ttg.memdesc_reinterpret": decode_memdesc_reinterpret,
}

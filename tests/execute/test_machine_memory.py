"""Shared memory: what is not there, what is read too early, what is overwritten too early, and what lacks a fence."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
import torch

from tests.execute.small import SIZE, Code, Small, launch
from wspec.diagnostics import place_text
from wspec.execute import ExecutionError, Kernel, ProgramError, Unfair
from wspec.execute.shared import EMPTY, LOST, WRITTEN, Buffer, View, poison_of
from wspec.ir.core import Operation

Write = Callable[[Small, Code], None]


def alone(write: Write) -> Kernel:
    """A kernel of one task."""
    kernel = Small()
    write(kernel, kernel.outside)
    return kernel.ready()


# -------------------------------------------------------------------------------------------------- poison

FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float8_e4m3fn, torch.float8_e5m2)


def allocated(*shape: int, dtype: torch.dtype = torch.float16) -> View:
    return Buffer.allocate(Operation.create("ttg.local_alloc"), shape, dtype).whole()


@pytest.mark.parametrize("dtype", FLOATS)
def test_poison_of_floats_is_nan(dtype: torch.dtype) -> None:
    view = allocated(4, 4, dtype=dtype)
    assert bool(view.data.float().isnan().all()) and view.poison_state() == EMPTY


@pytest.mark.parametrize(("dtype", "value"), [(torch.int8, -86), (torch.int32, -1431655766), (torch.bool, True)])
def test_poison_of_integers(dtype: torch.dtype, value: int) -> None:
    assert torch.full((2,), poison_of(dtype), dtype=dtype)[0] == value


def empty(kernel: Small, code: Code) -> None:
    code.write(kernel.y, code.load(code.buffer("b")))


def half_written(kernel: Small, code: Code) -> None:
    whole, other = code.buffer("b"), code.buffer("other", code.tile_of(kernel.x))
    half = code.load(code.part(other, (0, 0), (8, SIZE)))
    code.store(half, code.part(whole, (8, 0), (8, SIZE)))
    code.write(kernel.y, code.load(whole))


def freed(kernel: Small, code: Code) -> None:
    buffer = code.buffer("b", code.tile_of(kernel.x))
    code.free(buffer)
    code.write(kernel.y, code.load(buffer))


def not_landed(kernel: Small, code: Code) -> None:
    barrier, buffer = code.barrier("full"), code.buffer("b")
    code.fetch(kernel.x, barrier, buffer)
    code.write(kernel.y, code.load(buffer))
    code.wait(barrier, 0)


def stored_too_early(kernel: Small, code: Code) -> None:
    barrier, buffer = code.barrier("full"), code.buffer("b")
    code.fetch(kernel.x, barrier, buffer)
    code.put(kernel.y, buffer)
    code.wait(barrier, 0)
    code.put_wait()


def multiplied_too_early(kernel: Small, code: Code) -> None:
    barrier, buffer = code.barrier("full"), code.buffer("b")
    code.fetch(kernel.x, barrier, buffer)
    made = code.dot(buffer, buffer, code.zeros())
    code.wait(barrier, 0)
    code.write(kernel.y, code.narrow(*code.dot_wait(made)))


FLYING = "is being filled by a copy that need not be there yet"


@pytest.mark.parametrize(
    ("write", "message"),
    [
        (empty, r"ttg.local_load reads b \(16x16 float16 of the buffer at k.py:1\), which has never been written"),
        (half_written, "ttg.local_load reads b .* which in part has never been written"),
        (freed, "ttg.local_load reads b .* which was freed"),
        (not_landed, f"ttg.local_load reads b .* which {FLYING}"),
        (stored_too_early, f"ttng.async_tma_copy_local_to_global reads b .* which {FLYING}"),
        (multiplied_too_early, f"ttng.warp_group_dot reads b .* which {FLYING}"),
    ],
)
def test_what_is_not_there_cannot_be_read(write: Write, message: str) -> None:
    kernel = alone(write)
    with pytest.raises(ProgramError, match=message):
        launch(kernel)
    tensors, result = launch(kernel, Unfair(0, effects="reversed"), strict=False)  # who reads beside reads first
    assert bool(tensors.y.isnan().any()), "without checks the reader gets poison"
    assert re.search(message, str(result.faults[0]))


def test_the_error_names_the_copy() -> None:
    kernel = Small()
    not_landed(kernel, kernel.outside)
    copy = next(op for op in kernel.module.walk() if op.name == "ttng.async_tma_copy_global_to_local")
    load = next(op for op in kernel.module.walk() if op.name == "ttg.local_load")
    with pytest.raises(ProgramError) as caught:
        launch(kernel.ready())
    text = str(caught.value)
    assert text.startswith(f"{place_text(load.location)}:1: error: ttg.local_load reads b (16x16 float16")
    assert f"note: the ttng.async_tma_copy_global_to_local is at {place_text(copy.location)}" in text


# --------------------------------------------------------------------------------------- overwritten too early


def copied_over_a_dot(kernel: Small, code: Code) -> None:
    barrier, buffer = code.barrier("full"), code.buffer("b", code.tile_of(kernel.x))
    made = code.dot(buffer, buffer, code.zeros())
    code.fetch(kernel.x, barrier, buffer)
    code.wait(barrier, 0)
    code.write(kernel.y, code.narrow(*code.dot_wait(made)))


def stored_over_a_dot(kernel: Small, code: Code) -> None:
    source = code.tile_of(kernel.x)
    buffer = code.buffer("b", source)
    made = code.dot(buffer, buffer, code.zeros())
    code.store(source, code.part(buffer, (0, 0), (SIZE, SIZE)))
    code.write(kernel.y, code.narrow(*code.dot_wait(made)))


def stored_over_a_store(kernel: Small, code: Code) -> None:
    source = code.tile_of(kernel.x)
    buffer = code.buffer("b", source)
    code.fence()
    code.put(kernel.y, buffer)
    code.store(source, buffer)
    code.put_wait()


def copied_twice(kernel: Small, code: Code) -> None:
    one, two, buffer = code.barrier("one"), code.barrier("two"), code.buffer("b")
    code.fetch(kernel.x, one, buffer)
    code.fetch(kernel.x, two, buffer)
    code.wait(one, 0)
    code.wait(two, 0)


def stored_under_a_copy(kernel: Small, code: Code) -> None:
    barrier, buffer = code.barrier("full"), code.buffer("b")
    code.fetch(kernel.x, barrier, buffer)
    code.store(code.tile_of(kernel.x), buffer)
    code.wait(barrier, 0)


def freed_under_a_copy(kernel: Small, code: Code) -> None:
    barrier, buffer = code.barrier("full"), code.buffer("b")
    code.fetch(kernel.x, barrier, buffer)
    code.free(buffer)
    code.wait(barrier, 0)


def allocated_again_under_a_dot(kernel: Small, code: Code) -> None:
    """The same allocation in a loop is the same place."""
    source, acc = code.tile_of(kernel.x), code.zeros()
    body, _ = code.loop(2)
    buffer = body.buffer("b", source)
    body.dot(buffer, buffer, acc)
    body.end()


def written_through_another_type(kernel: Small, code: Code) -> None:
    ring = code.ring("ring", 2)
    source = code.tile_of(kernel.x)
    code.store(source, code.slot(ring, 0))
    made = code.dot(code.slot(ring, 0), code.slot(ring, 0), code.zeros())
    code.store(source, code.as_type(ring, SIZE, SIZE))
    code.write(kernel.y, code.narrow(*code.dot_wait(made)))


DOT, COPY, STORE = (
    "an asynchronous dot may still be reading it",
    "a copy may still be filling it",
    "a TMA store may still be reading it",
)


@pytest.mark.parametrize(
    ("write", "message"),
    [
        (copied_over_a_dot, f"ttng.async_tma_copy_global_to_local overwrites b .* while {DOT}"),
        (stored_over_a_dot, f"ttg.local_store overwrites part.* while {DOT}"),
        (stored_over_a_store, f"ttg.local_store overwrites b .* while {STORE}"),
        (copied_twice, f"ttng.async_tma_copy_global_to_local overwrites b .* while {COPY}"),
        (stored_under_a_copy, f"ttg.local_store overwrites b .* while {COPY}"),
        (freed_under_a_copy, f"ttg.local_dealloc overwrites b .* while {COPY}"),
        (allocated_again_under_a_dot, f"ttg.local_alloc runs again while {DOT}"),
        (written_through_another_type, f"ttg.local_store overwrites other .* while {DOT}"),
    ],
)
def test_what_is_in_use_cannot_be_overwritten(write: Write, message: str) -> None:
    kernel = alone(write)
    for schedule in kernel.adversaries:  # also where the dot or the copy has happened long ago: nobody waited for it
        if COPY in message and schedule.name.endswith(("effects early", "late")):
            continue
        with pytest.raises(ProgramError, match=message):
            launch(kernel, schedule)


def test_other_parts_of_the_ring_are_free() -> None:
    kernel = Small()
    code = kernel.outside
    ring, barrier = code.ring("ring", 3), code.barrier("full")
    source = code.tile_of(kernel.x)
    code.store(source, code.slot(ring, 0))
    made = code.dot(code.slot(ring, 0), code.turned(code.slot(ring, 0)), code.zeros())
    code.fetch(kernel.x, barrier, code.slot(ring, 1))
    code.store(source, code.slot(ring, 2))
    code.wait(barrier, 0)
    code.write(kernel.z, code.load(code.slot(ring, 1)))
    code.write(kernel.y, code.narrow(*code.dot_wait(made)))
    tensors, _ = launch(kernel.ready())
    assert torch.equal(tensors.z, tensors.x)
    exact = tensors.x.double() @ tensors.x.double().T
    assert torch.equal(tensors.y, exact.float().half())


# ---------------------------------------------------------------------------------------------------- views


def test_views_are_the_same_memory() -> None:
    kernel = Small()
    code = kernel.outside
    buffer = code.buffer("b", code.tile_of(kernel.x))
    upper, lower = (code.part(buffer, (at, 0), (8, SIZE)) for at in (0, 8))
    turned = code.load(code.turned(buffer))
    first, second = code.load(upper), code.load(lower)
    code.store(second, upper)
    code.store(first, lower)
    code.write(kernel.y, code.load(buffer))
    code.write(kernel.z, turned)
    tensors, _ = launch(kernel.ready())
    assert torch.equal(tensors.y, tensors.x.roll(8, 0)) and torch.equal(tensors.z, tensors.x.T)


def test_overlap_is_exact_within_a_type() -> None:
    whole = allocated(2, 8, 8)
    zero, one = (whole.part(whole.data[at]) for at in range(2))
    left, right = (one.part(one.data[:, at : at + 4]) for at in (0, 4))
    assert whole.overlaps(zero) and not zero.overlaps(one) and one.overlaps(left)
    assert not left.overlaps(right), "columns of a tile are interleaved, but share no element"
    assert left.overlaps(one.part(one.data[2:4]))
    assert not allocated(2).overlaps(allocated(2))


def test_another_type_holds_nothing_of_the_first() -> None:
    ring = allocated(3, 8, 16)
    ring.put(torch.ones(3, 8, 16))
    other = ring.under_type(Operation.create("ttg.memdesc_reinterpret"), (16, 16), torch.float16)
    assert other.poison_state() == LOST
    other.put(torch.zeros(16, 16))
    states = [ring.part(ring.data[at]).poison_state() for at in range(3)]
    assert states == [LOST, LOST, WRITTEN], "two buffers' worth of bytes were written"
    ring.part(ring.data[2]).put(torch.ones(8, 16))
    assert other.poison_state() == WRITTEN, "the third buffer is not in it"
    ring.part(ring.data[1]).put(torch.ones(8, 16))
    assert other.poison_state() == LOST


def test_a_ring_has_only_so_many_buffers() -> None:
    kernel = Small()
    kernel.outside.slot(kernel.outside.ring("ring", 2), 2)
    with pytest.raises(ProgramError, match="buffer 2 of a ring of 2"):
        launch(kernel.ready())


def test_other_types_need_the_bytes() -> None:
    kernel = Small()
    kernel.outside.as_type(kernel.outside.ring("ring", 2), 4 * SIZE, SIZE)
    with pytest.raises(ExecutionError, match="2048 bytes cannot be had"):
        launch(kernel.ready())


# --------------------------------------------------------------------------------------------------- fences


def store_without_fence(kernel: Small, code: Code) -> None:
    buffer = code.buffer("b", code.tile_of(kernel.x))
    code.put(kernel.y, buffer)
    code.put_wait()


def store_with_fence(kernel: Small, code: Code) -> None:
    buffer = code.buffer("b", code.tile_of(kernel.x))
    code.fence()
    code.put(kernel.y, buffer)
    code.put_wait()


def test_a_tma_store_needs_a_fence() -> None:
    tensors, _ = launch(alone(store_with_fence))
    assert torch.equal(tensors.x, tensors.y)
    kernel = alone(store_without_fence)
    message = "ttng.async_tma_copy_local_to_global reads b .* wrote with ttg.local_alloc and did not fence"
    with pytest.raises(ProgramError, match=message):
        launch(kernel)
    tensors, result = launch(kernel, strict=False)
    assert bool(tensors.y.isnan().all()) and len(result.faults) == 1


def test_triton_fences_dots_of_what_registers_were_copied_to() -> None:
    kernel = alone(lambda kernel, code: multiplied(kernel, code))
    tensors, _ = launch(kernel)
    assert torch.equal(tensors.y, (tensors.x.double() @ tensors.x.double()).float().half())
    with pytest.raises(ProgramError, match=r"ttng.warp_group_dot reads b .* did not fence"):
        kernel.run(1, tensors.arguments, implied_fences=False)


def multiplied(kernel: Small, code: Code) -> None:
    buffer = code.buffer("b")
    code.store(code.tile_of(kernel.x), buffer)
    code.write(kernel.y, code.narrow(code.dot(buffer, buffer, code.zeros(), is_async=False)))


def read_then_refilled(fence: bool) -> Kernel:
    """The default region reads a buffer into registers, then the other task's copy fills it."""
    kernel = Small(partitions=1)
    buffer = kernel.outside.buffer("b", kernel.outside.tile_of(kernel.x))
    full, empty = kernel.outside.barrier("full"), kernel.outside.barrier("empty")
    kernel.outside.fence()
    kernel.default.write(kernel.y, kernel.default.load(buffer))
    if fence:
        kernel.default.fence()
    kernel.default.arrive(empty)
    kernel.default.wait(full, 0)
    kernel.tasks[1].wait(empty, 0)
    kernel.tasks[1].fetch(kernel.x, full, buffer)
    return kernel.ready()


def test_a_copy_may_overtake_reads_into_registers() -> None:
    launch(read_then_refilled(fence=True))
    with pytest.raises(ProgramError, match=r"fills b .* which default read with ttg.local_load and did not fence"):
        launch(read_then_refilled(fence=False))


def test_what_is_written_over_in_parts_is_gone() -> None:
    """Rows of 32 numbers: a tile, and another one at the same place whose halves are written one after the other."""
    op = Operation.create("ttg.local_alloc")
    old = Buffer.allocate(op, (8, 32), torch.float16).whole()
    new = old.under_type(op, (8, 32), torch.float16)
    upper, lower = (new.part(new.data[at : at + 4]) for at in (0, 4))
    (left,) = old.without(upper)
    assert (left.first, left.last) == (lower.first, lower.last)
    assert left.without(lower) == [] and left.without(upper) == [left]
    column = new.part(new.data[:, :8])
    assert old.without(column) == [old], "it has gaps"

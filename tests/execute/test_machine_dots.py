"""Products on the tensor cores: their results, their order, and the waits for them."""

from __future__ import annotations

import pytest
import torch

from tests.execute.small import Code, Small, Tensors, launch
from wspec.execute import ProgramError, Random
from wspec.ir.core import Value


def product(tensors: Tensors, times: int = 1) -> torch.Tensor:
    """x x, `times` added up in f32."""
    exact, total = tensors.x.double() @ tensors.x.double(), torch.zeros(tensors.x.shape)
    for _ in range(times):
        total = (total.double() + exact).float()
    return total.half()


def factor(kernel: Small, code: Code) -> Value:
    """x in shared memory."""
    barrier, buffer = code.barrier("full"), code.buffer("b")
    code.fetch(kernel.x, barrier, buffer)
    code.wait(barrier, 0)
    return buffer


def test_a_synchronous_dot_has_its_result() -> None:
    kernel = Small()
    code = kernel.outside
    buffer = factor(kernel, code)
    code.write(kernel.y, code.narrow(code.dot(buffer, buffer, code.zeros(), is_async=False)))
    tensors, _ = launch(kernel.ready())
    assert torch.equal(tensors.y, product(tensors))


def test_an_asynchronous_dot_has_its_result_after_the_wait() -> None:
    kernel = Small()
    code = kernel.outside
    buffer = factor(kernel, code)
    [result] = code.dot_wait(code.dot(buffer, buffer, code.zeros()))
    code.write(kernel.y, code.narrow(result))
    ready = kernel.ready()
    for schedule in ready.adversaries:
        tensors, _ = launch(ready, schedule)
        assert torch.equal(tensors.y, product(tensors))


@pytest.mark.parametrize("waits_for_another", [False, True])
def test_a_result_cannot_be_read_before_its_wait(waits_for_another: bool) -> None:
    kernel = Small()
    code = kernel.outside
    buffer = factor(kernel, code)
    if waits_for_another:
        first = code.dot(buffer, buffer, code.zeros())
        result = code.dot(buffer, buffer, code.zeros())
        code.dot_wait(first, pendings=1)
    else:
        result = code.dot(buffer, buffer, code.zeros())
    code.write(kernel.y, code.narrow(result))
    code.dot_wait(result)
    ready = kernel.ready()
    with pytest.raises(
        ProgramError, match=r"arith.truncf reads the result of an asynchronous dot that no wait has cov"
    ):
        launch(ready)
    tensors, _ = launch(ready, strict=False)
    assert bool(tensors.y.isnan().all())


def test_a_result_is_that_of_the_wait() -> None:
    """The dot's own result stays unreadable: a compiler may have read its registers before the wait."""
    kernel = Small()
    code = kernel.outside
    buffer = factor(kernel, code)
    result = code.dot(buffer, buffer, code.zeros())
    code.dot_wait(result)
    code.write(kernel.y, code.narrow(result))
    with pytest.raises(ProgramError, match="that no wait has covered"):
        launch(kernel.ready())


def test_waits_leave_the_last_ones_running() -> None:
    kernel = Small()
    code = kernel.outside
    buffer = factor(kernel, code)
    first, second = (code.dot(buffer, buffer, code.zeros()) for _ in range(2))
    one, running = code.dot_wait(first, second, pendings=1)
    code.write(kernel.y, code.narrow(one))
    [two] = code.dot_wait(running)
    code.write(kernel.z, code.narrow(two))
    ready = kernel.ready()
    for schedule in (*ready.adversaries, Random(0)):
        tensors, _ = launch(ready, schedule)
        assert torch.equal(tensors.y, product(tensors)) and torch.equal(tensors.z, tensors.y)


def test_dots_add_up_in_flight() -> None:
    """An accumulator may be handed to the next dot while it is still being computed: dots run in order."""
    kernel = Small()
    code = kernel.outside
    buffer = factor(kernel, code)
    total = code.zeros()
    for _ in range(3):
        total = code.dot(buffer, buffer, total)
        [total] = code.dot_wait(total, pendings=1)
    [total] = code.dot_wait(total)
    code.write(kernel.y, code.narrow(total))
    ready = kernel.ready()
    for schedule in (*ready.adversaries, Random(0), Random(1)):
        tensors, _ = launch(ready, schedule)
        assert torch.equal(tensors.y, product(tensors, 3)), schedule.name


def test_a_synchronous_dot_ends_those_before_it() -> None:
    kernel = Small()
    code = kernel.outside
    buffer = factor(kernel, code)
    first = code.dot(buffer, buffer, code.zeros())
    second = code.dot(buffer, buffer, first, is_async=False)
    code.write(kernel.y, code.narrow(second))
    tensors, _ = launch(kernel.ready())
    assert torch.equal(tensors.y, product(tensors, 2))


def test_a_dot_reads_when_the_schedule_says() -> None:
    """Between issue and wait: without checks, another task's store comes before or behind it."""
    kernel = Small(partitions=1)
    buffer = kernel.outside.buffer("b", kernel.outside.tile_of(kernel.x))
    kernel.outside.fence()
    issued, code, other = kernel.outside.barrier("issued"), kernel.default, kernel.tasks[1]
    result = code.dot(buffer, buffer, code.zeros())
    code.arrive(issued)
    [done] = code.dot_wait(result)
    code.write(kernel.y, code.narrow(done))
    other.wait(issued, 0)
    other.store(other.narrow(other.zeros()), buffer)
    ready = kernel.ready()
    seen = set()
    for schedule in (*ready.adversaries, *map(Random, range(20))):
        tensors, after = launch(ready, schedule, strict=False)
        value = "product" if torch.equal(tensors.y, product(tensors)) else "zero" if not tensors.y.any() else "else"
        seen.add((value, bool(after.faults)))
    assert seen == {("product", False), ("product", True), ("zero", True)}, "a store while it may read is a fault"


def test_dots_without_a_wait() -> None:
    kernel = Small()
    buffer = factor(kernel, kernel.outside)
    kernel.outside.dot(buffer, buffer, kernel.outside.zeros())
    with pytest.raises(ProgramError, match="the task ends while an asynchronous dot is under way"):
        launch(kernel.ready())


def test_stores_without_a_wait() -> None:
    kernel = Small()
    kernel.outside.put(kernel.y, factor(kernel, kernel.outside))
    with pytest.raises(ProgramError, match="the task ends while a TMA store is under way"):
        launch(kernel.ready())


def test_the_last_stores_may_go_on() -> None:
    kernel = Small()
    code = kernel.outside
    first, second = (code.buffer(name, code.tile_of(kernel.x)) for name in ("first", "second"))
    code.fence()
    code.put(kernel.y, first)
    code.put(kernel.z, second)
    code.put_wait(pendings=1)
    code.store(code.narrow(code.zeros()), first)
    code.put_wait()
    code.store(code.narrow(code.zeros()), second)
    tensors, _ = launch(kernel.ready())
    assert torch.equal(tensors.y, tensors.x) and torch.equal(tensors.z, tensors.x)

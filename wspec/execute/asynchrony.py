"""What goes on beside the tasks: copies by TMA and by cp.async, dots on the tensor cores, stores by TMA.

An effect is issued by a task and happens at a later moment that the schedule chooses. What it may touch between the two
is marked in shared memory: a copy's destination holds poison until it lands, and what a dot or a store reads must stay
as it is until the task has *waited* for it, even if the schedule let it read early.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from wspec.execute.barrier import Barrier
from wspec.execute.dots import dot
from wspec.execute.effects import Effect, Issuer
from wspec.execute.errors import ExecutionError
from wspec.execute.shared import View, fill_poison
from wspec.ir.core import Operation


class Copy(Effect):
    """Bytes on their way into shared memory. With a barrier: they are counted there when they have landed."""

    __slots__ = ("barrier", "fetch", "size", "view")
    what = "a copy"

    def __init__(
        self, task: Issuer, op: Operation, view: View, fetch: Callable[[], torch.Tensor], barrier: Barrier | None = None
    ) -> None:
        super().__init__(task, op)
        self.view, self.fetch, self.barrier = view, fetch, barrier
        self.size = view.data.numel() * view.data.element_size()
        view.await_copy()
        view.buffer.filling.append((view, self))

    def happen(self) -> None:
        self.done = True
        self.view.put(self.fetch())
        self.view.buffer.filling.remove((self.view, self))
        if self.barrier is not None:
            self.barrier.learn(self.known)
            self.barrier.complete(self.size)


class Arrival(Effect):
    """Threads arrive at a barrier once the cp.async copies before have landed (cp.async.mbarrier.arrive)."""

    __slots__ = ("after", "barrier", "count")
    what = "an arrival after copies"

    def __init__(self, task: Issuer, op: Operation, barrier: Barrier, after: list[Copy]) -> None:
        super().__init__(task, op)
        self.barrier, self.after, self.count = barrier, after, task.threads

    def can_happen(self) -> bool:
        return all(copy.done for copy in self.after)

    def happen(self) -> None:
        self.done = True
        for one in (self, *self.after):
            self.barrier.learn(one.known)
        self.barrier.arrive(self.count)


class Reader(Effect):
    """Reads shared memory at some moment between its issue and the wait for it, which releases the buffers."""

    __slots__ = ("views",)

    def __init__(self, task: Issuer, op: Operation, views: list[View]) -> None:
        super().__init__(task, op)
        self.views = views
        for view in views:
            view.buffer.readers.append((view, self))

    def release(self) -> None:
        """The task knows that it has read."""
        for view in self.views:
            view.buffer.readers.remove((view, self))
        self.views = []


class Store(Reader):
    """A tile on its way from shared to global memory."""

    __slots__ = ("write",)
    what = "a TMA store"

    def __init__(self, task: Issuer, op: Operation, view: View, write: Callable[[torch.Tensor], None]) -> None:
        super().__init__(task, op, [view])
        self.write = write

    def happen(self) -> None:
        self.done = True
        self.write(self.views[0].data.clone())


Factor = torch.Tensor | View


class Dot(Reader):
    """A product on the tensor cores. It is also the value that its result has until a wait covers it: unreadable."""

    __slots__ = ("a", "acc", "b", "dtype", "result")
    what = "an asynchronous dot"

    def __init__(
        self, task: Issuer, op: Operation, a: Factor, b: Factor, acc: torch.Tensor | Dot, dtype: torch.dtype
    ) -> None:
        super().__init__(task, op, [factor for factor in (a, b) if isinstance(factor, View)])
        self.a, self.b, self.acc, self.dtype = a, b, acc, dtype
        self.result: torch.Tensor | None = None

    def can_happen(self) -> bool:
        """A task's dots run one after the other."""
        return next(other for other in self.task.dots if not other.done) is self

    def happen(self) -> None:
        self.done = True
        self.result = dot(
            _tensor(self.a),
            _tensor(self.b),
            _finished(self.acc),
            input_precision=self.op.int_attr("inputPrecision") or 0,
            dtype=self.dtype,
        )
        self.a = self.b = self.acc = self.result  # let go of what is not needed any more

    def poison(self) -> torch.Tensor:
        """What a reader gets that did not wait."""
        result = torch.empty(self.shape, dtype=self.dtype)
        fill_poison(result)
        return result

    @property
    def shape(self) -> tuple[int, ...]:
        type = self.op.results[0].type
        found: tuple[int, ...] = getattr(type, "shape", ())
        return found


def _tensor(factor: Factor) -> torch.Tensor:
    return factor.data if isinstance(factor, View) else factor


def _finished(acc: torch.Tensor | Dot) -> torch.Tensor:
    if not isinstance(acc, Dot):
        return acc
    if acc.result is None:
        raise ExecutionError("the accumulator is the result of a dot that cannot have run yet")
    return acc.result

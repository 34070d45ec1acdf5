"""Products on the tensor cores, and the waits for them."""

from __future__ import annotations

import torch

from wspec.execute.asynchrony import Dot, Factor
from wspec.execute.code import Decode, Decoder, Step, flow, point
from wspec.execute.elements import dtype_of
from wspec.execute.errors import ExecutionError
from wspec.execute.limits import WARP_GROUP
from wspec.execute.machine import Item, Steps, Task, Wait
from wspec.execute.shared import View
from wspec.execute.shared_ops import check_fenced, check_ordered, check_readable, poisoned
from wspec.ir.core import Operation, Value, uses
from wspec.ir.types import MemDescType, TensorType
from wspec.ir.warp_specialize import NAME as WARP_SPECIALIZE

_VIEWS = frozenset(
    f"ttg.memdesc_{name}" for name in ("index", "subslice", "trans", "reshape", "reinterpret", "subview")
)


def decode_dot(op: Operation, decoder: Decoder) -> Step:
    """ttng.warp_group_dot: asynchronous, or issued and waited for at once."""
    a, b, acc = decoder.slots.all(op.operands[:3])
    use = decoder.slots.of(op.operands[3]) if len(op.operands) > 3 else None
    type = op.results[0].type
    if not isinstance(type, TensorType):
        raise ExecutionError(f"{op.name}: expected a tensor, got {type}", op.location)
    dtype, result, shape = dtype_of(type), decoder.slots.of(op.results[0]), type.shape
    fences = Fences(op)
    is_async = bool(op.int_attr("isAsync"))

    def issue(task: Task) -> None:
        if task.warps % WARP_GROUP:
            raise task.error(f"{op.name} on {task.warps} warps; it takes whole groups of {WARP_GROUP}", op)
        if task.written and fences.are_implied(task):
            for slot in (a, b):
                if isinstance(task.frame[slot], View):
                    task.fence(task.frame[slot])
        factors = [_factor(task, op, at, task.tensor(slot, op)) for at, slot in enumerate((a, b))]
        start: Item = task.frame[acc]
        if use is not None and not task.frame[use]:
            start = torch.zeros(shape, dtype=dtype)
        made = Dot(task, op, factors[0], factors[1], start, dtype)
        task.dots.append(made)
        task.issue(made)
        task.frame[result] = made
        if not is_async:
            for dot in task.dots:
                if not dot.done:
                    task.machine.happen(dot)
            _release(task, len(task.dots))
            task.frame[result] = made.result

    return point(issue)


def _factor(task: Task, op: Operation, at: int, item: Item) -> Factor:
    """A factor; one in shared memory must be there, and fenced. Without either, what is read is poison."""
    if not isinstance(item, View):
        tensor: torch.Tensor = item
        return tensor
    check_readable(task, op, at, item)
    check_ordered(task, op, at, item, writes=False)
    return item if check_fenced(task, op, at, item) else poisoned(item)


def _release(task: Task, number: int) -> None:
    for dot in task.dots[:number]:
        dot.release()
    del task.dots[:number]


def decode_dot_wait(op: Operation, decoder: Decoder) -> Step:
    """All dots of the task but the last `pendings` are complete; what is returned of those can be read."""
    pendings = op.int_attr("pendings") or 0
    operands, results = decoder.slots.all(op.operands), decoder.slots.all(op.results)

    def wait(task: Task) -> Steps:
        covered = task.dots[: max(0, len(task.dots) - pendings)]
        yield Wait(op, lambda: all(dot.done for dot in covered), lambda: f"{len(covered)} dots")
        _release(task, len(covered))
        frame = task.frame
        items = [frame[slot] for slot in operands]
        for slot, item in zip(results, items, strict=False):
            frame[slot] = item.result if type(item) is Dot and item not in task.dots else item

    return flow(wait)


class Fences:
    """Where Triton's fence insertion will put a fence before a dot.

    It does so for factors that registers are copied to: by an allocation with a source, or by a local_store to the
    allocation or to a view of it, seen through views, loops and the captures of partitions. The pass runs after wspec
    and after Triton's own pipeliner (triton/backends/nvidia/compiler.py), so TTGIR before it has no such fences.
    """

    def __init__(self, op: Operation) -> None:
        self.op = op
        self._found: bool | None = None

    def are_implied(self, task: Task) -> bool:
        if not task.machine.rules.implied_fences:
            return False
        if self._found is None:
            function = next(op for op in self.op.ancestors() if op.name == "tt.func")
            users = uses(function)
            seen: set[Value] = set()
            self._found = any(_copied_from_registers(value, users, seen) for value in self.op.operands[:2])
        return self._found


Users = dict[Value, list[tuple[Operation, int]]]


def _copied_from_registers(value: Value, users: Users, seen: set[Value]) -> bool:
    if value in seen or not isinstance(value.type, MemDescType):
        return False
    seen.add(value)
    if value.op is None:
        return any(_copied_from_registers(source, users, seen) for source in _sources(value))
    if value.op.name == "ttg.local_alloc":
        return bool(value.op.operands) or any(_stores(user, users) for user, _ in users.get(value, ()))
    return any(_copied_from_registers(operand, users, seen) for operand in value.op.operands)


def _stores(user: Operation, users: Users) -> bool:
    """Is it a local_store, or the only user of a view of a view ... one?"""
    while user.name in _VIEWS and len(users.get(user.results[0], ())) == 1:
        user = users[user.results[0]][0][0]
    return user.name == "ttg.local_store"


def _sources(argument: Value) -> list[Value]:
    """What a block argument may stand for."""
    block = argument.owner
    parent = None if isinstance(block, Operation) else block.parent_op
    if parent is None or isinstance(block, Operation):
        return []
    if parent.name == "scf.for":
        return [parent.operands[argument.index + 2], block.terminator.operands[argument.index - 1]]
    outer = parent.parent_op
    if parent.name == f"{WARP_SPECIALIZE}.partitions" and outer is not None:
        return [outer.operands[argument.index]]
    return []


DECODERS: dict[str, Decode] = {
    "ttng.warp_group_dot": decode_dot,
    "ttng.warp_group_dot_wait": decode_dot_wait,
}

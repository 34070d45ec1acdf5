"""Operations on barriers: mbarriers in shared memory, and named barriers in inline assembly."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from wspec.execute.barrier import Barrier, NamedBarrier
from wspec.execute.code import Decode, Decoder, Step, flow, point
from wspec.execute.errors import ExecutionError
from wspec.execute.machine import Steps, Task, Wait
from wspec.execute.races import learn
from wspec.execute.shared import View, name_of
from wspec.ir.core import Operation
from wspec.ir.types import DenseArrayAttr, ScalarType, TensorType, unescaped
from wspec.ptx.errors import PtxError
from wspec.ptx.inline import read_inline
from wspec.ptx.operands import Number, Operand, Register
from wspec.ptx.syntax import Instruction

Predicate = Callable[[Task], bool]
T = TypeVar("T")


def predicate(op: Operation, decoder: Decoder, at: int) -> Predicate:
    """Whether to do it: the operand at that place, or always where there is none."""
    if at >= len(op.operands) or op.operands[at].type != ScalarType("i1"):
        return lambda task: True
    slot = decoder.slots.of(op.operands[at])
    return lambda task: bool(task.frame[slot])


def barrier_of(task: Task, op: Operation, at: int, view: View) -> Barrier:
    """The barrier in the view. Raises ExecutionError where none was initialized."""
    found = view.buffer.barriers.get(view.barrier_key)
    if found is None:
        raise task.error(f"{op.name}: there is no initialized barrier in {barrier_name(op, at, view)}", op)
    return found


def barrier_name(op: Operation, at: int, view: View) -> str:
    return f"{name_of(op.operands[at]) or name_of(view.buffer.op.results[0]) or 'a barrier'}{view.path}"


def counted(task: Task, op: Operation, at: int, view: View, act: Callable[[], T]) -> T:
    """Do something to a barrier; what it refuses is said of it by name."""
    try:
        return act()
    except ExecutionError as error:
        raise task.error(f"{op.name} at {barrier_name(op, at, view)}: {error.message}", op) from None


# ----------------------------------------------------------------------------------------------- mbarriers


def decode_init_barrier(op: Operation, decoder: Decoder) -> Step:
    slot, count = decoder.slots.of(op.operands[0]), op.int_attr("count")
    if count is None:
        raise ExecutionError(f"{op.name} without a count", op.location)

    def init(task: Task) -> None:
        view: View = task.frame[slot]
        if view.data.numel() != 1:
            raise task.error(f"{op.name}: a barrier is one i64, not {tuple(view.data.shape)}", op)
        if view.barrier_key in view.buffer.barriers:
            raise task.error(f"{barrier_name(op, 0, view)} is initialized while it is in use", op)
        if (found := view.busy()) is not None:
            raise task.error(f"{barrier_name(op, 0, view)} is initialized while {found[0]}", op)
        view.claim()
        view.buffer.barriers[view.barrier_key] = counted(task, op, 0, view, lambda: Barrier(count))

    return point(init)


def decode_inval_barrier(op: Operation, decoder: Decoder) -> Step:
    slot = decoder.slots.of(op.operands[0])

    def inval(task: Task) -> None:
        view: View = task.frame[slot]
        barrier = barrier_of(task, op, 0, view)
        if barrier.waiting or barrier.bytes:
            raise task.error(f"{barrier_name(op, 0, view)} is invalidated while it is in use; it is {barrier}", op)
        del view.buffer.barriers[view.barrier_key]

    return point(inval)


def _arrival(op: Operation, decoder: Decoder, act: Callable[[Barrier], None]) -> Step:
    """Act on the barrier where the predicate holds; those who wait there learn what the task knows."""
    slot, wanted = decoder.slots.of(op.operands[0]), predicate(op, decoder, 1)

    def arrive(task: Task) -> None:
        if wanted(task):
            view: View = task.frame[slot]
            barrier = barrier_of(task, op, 0, view)
            barrier.learn(task.tell())
            counted(task, op, 0, view, lambda: act(barrier))

    return point(arrive)


def decode_arrive_barrier(op: Operation, decoder: Decoder) -> Step:
    count = op.int_attr("count") or 1
    return _arrival(op, decoder, lambda barrier: barrier.arrive(count))


def decode_barrier_expect(op: Operation, decoder: Decoder) -> Step:
    """The phase also waits for bytes; the one who says so arrives."""
    size = op.int_attr("size") or 0

    def expect(barrier: Barrier) -> None:
        barrier.expect(size)
        barrier.arrive()

    return _arrival(op, decoder, expect)


def decode_wait_barrier(op: Operation, decoder: Decoder) -> Step:
    slot, parity = decoder.slots.all(op.operands[:2])
    sizes = op.attr("operandSegmentSizes")
    has_predicate = len(op.operands) > 2 if not isinstance(sizes, DenseArrayAttr) else sizes.values[2] == 1
    wanted = predicate(op, decoder, 2) if has_predicate else (lambda task: True)

    def wait(task: Task) -> Steps:
        if not wanted(task):
            return
        view: View = task.frame[slot]
        phase: int = task.frame[parity] & 1  # Triton's own specialization has a 1 as -1, an i1 that was extended
        barrier = barrier_of(task, op, 0, view)

        def describe() -> str:
            return f"phase {phase} of {barrier_name(op, 0, view)}, which is {barrier}"

        barrier.waiting += 1
        yield Wait(op, lambda: barrier.phase != phase, describe)
        barrier.waiting -= 1
        learn(task.known, barrier.ready)

    return flow(wait)


# -------------------------------------------------------------------------------------------- named barriers

ASSEMBLY = "tt.elementwise_inline_asm"
_SYNCS = ("bar.sync", "barrier.sync", "bar.cta.sync", "barrier.cta.sync")
_ARRIVES = ("bar.arrive", "barrier.arrive", "bar.cta.arrive", "barrier.cta.arrive")
MAX_NAMED = 16


@dataclass(frozen=True, slots=True)
class _Meeting:
    """One `bar` instruction: at which barrier, of how many threads; texts that are numbers or operands."""

    waits: bool
    number: str
    threads: str


def is_barrier_assembly(op: Operation) -> bool:
    """Does it use named barriers? What cannot be read is no such assembly; running it says so."""
    return op.name == ASSEMBLY and any(one.name in ("bar", "barrier") for one in _read(op))


def _read(op: Operation) -> list[Instruction]:
    try:
        return read_inline(unescaped(op.str_attr("asm_string") or "")).instructions
    except PtxError:
        return []


def decode_barrier_assembly(op: Operation, decoder: Decoder) -> Step:
    """`bar.sync ID, N` and `bar.arrive ID, N`; the instruction may also set its result with `mov`. No others."""
    meetings, value = _parse(op)
    operands, results = decoder.slots.all(op.operands), decoder.slots.all(op.results)

    def number(task: Task, text: str) -> int:
        if not text.startswith("$"):
            return int(text, 0)
        at = int(text[1:]) - len(op.results)
        if not 0 <= at < len(operands) or not isinstance(task.frame[operands[at]], int):
            raise task.error(f"the operand {text} of the assembly is no integer", op)
        return int(task.frame[operands[at]])

    def meet(task: Task) -> Steps:
        for meeting in meetings:
            which = number(task, meeting.number)
            expected = number(task, meeting.threads) if meeting.threads else task.threads
            if not 0 <= which < MAX_NAMED:
                raise task.error(f"there is no named barrier {which}; they are 0 to {MAX_NAMED - 1}", op)
            if which < task.machine.first_named:
                raise task.error(
                    f"named barrier {which} is Triton's; free are those from {task.machine.first_named}", op
                )
            yield None
            barrier = task.machine.named.setdefault(which, NamedBarrier(which))
            learn(barrier.gathered, task.tell())
            ticket = barrier.arrive(task.threads, expected)
            if meeting.waits:
                yield Wait(op, partial(barrier.has_opened, ticket), partial(str, barrier))
                learn(task.known, barrier.ready)
        for slot in results:
            task.frame[slot] = number(task, value)

    return flow(meet)


def _parse(op: Operation) -> tuple[list[_Meeting], str]:
    """The meetings in order, and the text of the result. Raises ExecutionError for what else the assembly does."""
    if any(isinstance(value.type, TensorType) for value in (*op.operands, *op.results)):
        raise ExecutionError("a named barrier in assembly on tensors is not supported", op.location)
    meetings, result = [], "0"
    for one in _read(op):
        texts = [_text(operand) for operand in one.operands]
        opcode = one.opcode.removesuffix(".aligned")
        if one.guard or "" in texts:
            raise ExecutionError(f"the instruction {str(one)!r} is not supported", op.location)
        if opcode in _SYNCS or opcode in _ARRIVES:
            meetings.append(_Meeting(opcode in _SYNCS, texts[0], texts[1] if len(texts) > 1 else ""))
        elif opcode in ("mov.b32", "mov.u32", "mov.s32") and texts[0] == "$0":
            result = texts[1]
        elif one.name in ("bar", "barrier"):
            raise ExecutionError(f"the instruction {str(one)!r} is not supported", op.location)
        else:
            raise ExecutionError(f"assembly beside a named barrier is not supported: {str(one)!r}", op.location)
    return meetings, result


def _text(operand: Operand) -> str:
    """An integer or `$n`; "" for anything else."""
    if isinstance(operand, Number):
        return "" if operand.value is None else str(operand.value)
    known = isinstance(operand, Register) and operand.name.startswith("$") and not operand.negated
    return operand.name if known and isinstance(operand, Register) else ""


DECODERS: dict[str, Decode] = {
    "ttng.init_barrier": decode_init_barrier,
    "ttng.inval_barrier": decode_inval_barrier,
    "ttng.arrive_barrier": decode_arrive_barrier,
    "ttng.barrier_expect": decode_barrier_expect,
    "ttng.wait_barrier": decode_wait_barrier,
}

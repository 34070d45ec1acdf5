"""Launches: a module on tensors of the CPU, one program of the grid after the other."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from wspec.execute import barrier_ops, control, copy_ops, dot_ops, shared_ops
from wspec.execute.arguments import Parameter, bind, parameters
from wspec.execute.asynchrony import Dot
from wspec.execute.code import NOTHING, Decoder, Function, Step, plain
from wspec.execute.context import Context
from wspec.execute.errors import ExecutionError
from wspec.execute.evaluate import handles, prepare
from wspec.execute.limits import check_limits, first_named
from wspec.execute.machine import Item, Limits, Machine, Rules, Task
from wspec.execute.memory import GlobalMemory
from wspec.execute.races import Races, SharedRaces
from wspec.execute.replay import ProgramError, Replay
from wspec.execute.schedule import FirstReady, Program, Schedule, adversarial
from wspec.ir import warp_specialize as ws
from wspec.ir.core import Operation, Value, functions
from wspec.ir.ops import info
from wspec.ir.types import TensorType

MACHINE = {
    **control.DECODERS,
    **shared_ops.DECODERS,
    **barrier_ops.DECODERS,
    **copy_ops.DECODERS,
    **dot_ops.DECODERS,
}
"""Operations that are more than a function of their operands and of global memory."""

COPIES = frozenset(
    name for name in MACHINE if (row := info(name)) is not None and row.asynchronous and "shared" in row.writes
)
"""Operations whose effect others wait for: the ones that a schedule may delay on purpose."""

Grid = int | Sequence[int]


def is_known(name: str) -> bool:
    """Can the executor run operations of that name?"""
    return name in MACHINE or handles(name)


@dataclass(frozen=True, slots=True)
class Result:
    """What a launch did besides changing its tensors."""

    programs: int
    operations: int  # executed by all tasks of all programs
    choices: int  # made by the schedule
    seconds: float
    schedule: str
    faults: tuple[ExecutionError, ...] = ()  # without `strict`: what would have been errors
    printed: tuple[str, ...] = ()
    replays: tuple[Replay, ...] = field(default=(), repr=False)  # of every program


class Kernel:
    """A module made ready to run. The module must not change afterwards."""

    def __init__(self, module: Operation) -> None:
        self.module = module
        self.function = _entry(module)
        if (module.int_attr("ttg.num-ctas") or 1) > 1:
            raise ExecutionError("clusters of several blocks are not supported", self.function.location)
        check_limits(module)
        self._first_named = first_named(module)
        self._functions: dict[str, Function] = {}
        self._sites = {op: site for site, op in enumerate(op for op in module.walk() if op.name in COPIES)}
        warps = module.int_attr("ttg.num-warps") or 4
        self.main = self._function(self.function.str_attr("sym_name") or "", self.function)
        self.main.warps = warps

    @property
    def parameters(self) -> list[Parameter]:
        """What a launch must be given."""
        return parameters(self.function)

    @property
    def tasks(self) -> int:
        """How many run at the same time, at most."""
        found = [op for op in self.module.walk() if op.name == ws.NAME]
        holders = [op.regions[1].blocks[0].ops[0] for op in found if op.regions[1].blocks]
        return max((1 + len(holder.regions) for holder in holders), default=1)

    @property
    def adversaries(self) -> tuple[Schedule, ...]:
        """Unkind schedules for it."""
        return adversarial(self.tasks, len(self._sites))

    def run(
        self,
        grid: Grid,
        arguments: Mapping[str, Any] | Sequence[Any],
        *,
        schedule: Schedule | None = None,
        limits: Limits | None = None,
        strict: bool = True,
        implied_fences: bool = True,
        programs: Sequence[Program] | None = None,
        memory: GlobalMemory | None = None,
    ) -> Result:
        """See `run`."""
        schedule, rules = schedule or FirstReady(), Rules(strict, implied_fences, limits or Limits())
        sizes = _grid(grid)
        context = Context(memory or GlobalMemory(), grid=sizes)
        bound = bind(self.function, arguments, context.memory)
        start = time.perf_counter()
        with one_thread():
            machines = [
                self._run_program(replace(context, program=program), bound, schedule, rules)
                for program in (_programs(sizes) if programs is None else programs)
            ]
        return Result(
            programs=len(machines),
            operations=sum(machine.operations for machine in machines),
            choices=sum(len(machine.choices) for machine in machines),
            seconds=time.perf_counter() - start,
            schedule=schedule.name,
            faults=tuple(fault for machine in machines for fault in machine.faults),
            printed=tuple(context.printed),
            replays=tuple(Replay(m.context.program, tuple(m.choices), schedule.name) for m in machines),
        )

    def _run_program(
        self, context: Context, bound: list[tuple[Value, Item]], schedule: Schedule, rules: Rules
    ) -> Machine:
        machine = Machine(context, rules, schedule.chooser(context.program), self._sites)
        machine.first_named = self._first_named
        machine.races = context.memory.races = Races() if self.tasks > 1 else None
        machine.shared_races = SharedRaces() if self.tasks > 1 else None
        frame = self.main.slots.frame()
        for value, item in bound:
            frame[self.main.slots.of(value)] = item
        task = Task(machine, 0, "", self.main.warps, frame)
        task.steps = control.run_function(self.main, task)
        try:
            machine.run(task)
        except ExecutionError as error:
            made = Replay(context.program, tuple(machine.choices), schedule.name)
            raise ProgramError(error, made) from error.__cause__
        # What the program held goes now; its results are in global memory.
        machine.allocated.clear()
        machine.everyone.clear()
        return machine

    def _function(self, name: str, asker: Operation) -> Function:
        found = self._functions.get(name)
        if found is not None:
            return found
        op = next((op for op in functions(self.module) if op.str_attr("sym_name") == name), None)
        if op is None:
            raise ExecutionError(f"the module has no function {name!r}", asker.location)
        found = self._functions[name] = Function(op)
        decoder = Decoder(MACHINE, _decode_value, self._function)
        control.decode_function(found, decoder)
        return found


def run(
    module: Operation,
    grid: Grid,
    arguments: Mapping[str, Any] | Sequence[Any],
    *,
    schedule: Schedule | None = None,
    limits: Limits | None = None,
    strict: bool = True,
    implied_fences: bool = True,
    programs: Sequence[Program] | None = None,
    memory: GlobalMemory | None = None,
) -> Result:
    """Run plain or specialized TTGIR, changing the output tensors in place, as a launch does.

    grid: one to three sizes. arguments, by position or by name in the source: tensors of the CPU for pointers, tensors
    or descriptors for descriptors, ints and floats; constexprs and arguments compiled in are left out. programs: those
    to run, instead of all. memory: the one that `Descriptor` arguments were made in. With `strict` off, readers of what
    is not there get poison, and the faults are in the result. implied_fences: Triton's fence insertion has not run yet.

    Without a schedule tasks run in order, and effects as late as they can. Raises ProgramError for what a kernel may
    not do, and ExecutionError for what the executor does not know and for arguments that do not fit.
    """
    return Kernel(module).run(
        grid,
        arguments,
        schedule=schedule,
        limits=limits,
        strict=strict,
        implied_fences=implied_fences,
        programs=programs,
        memory=memory,
    )


def _decode_value(op: Operation, decoder: Decoder) -> Step:
    """An operation on values alone, or one on global memory."""
    if barrier_ops.is_barrier_assembly(op):
        return barrier_ops.decode_barrier_assembly(op, decoder)
    run_op = prepare(op)
    operands, results = decoder.slots.all(op.operands), decoder.slots.all(op.results)
    if op.name == "arith.constant":
        decoder.slots.initial[results[0]] = run_op((), Context(GlobalMemory()))[0]
        return NOTHING
    tensors = [slot for slot, value in zip(operands, op.operands, strict=True) if isinstance(value.type, TensorType)]

    row = info(op.name)
    scratch = op.int_attr(shared_ops.OFFSET) is not None
    touches = op.name == barrier_ops.ASSEMBLY or (row is not None and "global" in row.reads | row.writes)

    def compute(task: Task) -> None:
        frame = task.frame
        if touches:
            task.touches(op)
        if scratch:
            shared_ops.use_scratch(task, op)
        for slot in tensors:
            if type(frame[slot]) is Dot:
                items = tuple([task.tensor(operand, op) for operand in operands])
                break
        else:
            items = tuple([frame[slot] for slot in operands])
        found = run_op(items, task.context)
        for slot, item in zip(results, found, strict=True):
            frame[slot] = item

    return plain(compute)


@contextlib.contextmanager
def one_thread() -> Iterator[None]:
    """torch without threads of its own: handing out products of 64 x 64 tiles takes longer than they do."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def _entry(module: Operation) -> Operation:
    """The kernel: the only function, or the only public one."""
    found = functions(module)
    if len(found) > 1:
        found = [op for op in found if op.str_attr("sym_visibility") != "private"]
    if len(found) != 1:
        raise ExecutionError(f"the module has {len(found)} kernels; one is expected", module.location)
    return found[0]


def _grid(grid: Grid) -> Program:
    sizes = (grid,) if isinstance(grid, int) else tuple(grid)
    if not 1 <= len(sizes) <= 3 or any(not isinstance(size, int) or size < 0 for size in sizes):
        raise ExecutionError(f"a grid is one to three sizes, not {grid}")
    x, y, z = (*sizes, 1, 1)[:3]
    return x, y, z


def _programs(grid: Program) -> Iterator[Program]:
    """In the order of the card: the first axis fastest."""
    return ((x, y, z) for z in range(grid[2]) for y in range(grid[1]) for x in range(grid[0]))

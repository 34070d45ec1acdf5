"""Control flow: loops, branches, calls, and `ttg.warp_specialize`, which starts the other tasks."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from wspec.execute.code import FLOW, NOTHING, Code, Decode, Decoder, Function, Step, flow, plain, run, run_plain
from wspec.execute.elements import bits_of, unsigned, wrap
from wspec.execute.errors import ExecutionError
from wspec.execute.machine import Item, Steps, Task, Wait
from wspec.execute.races import learn
from wspec.ir import warp_specialize as ws
from wspec.ir.core import Block, Operation, Region, Value
from wspec.ir.types import DenseArrayAttr, OpaqueAttr


def move(frame: list[Item], sources: tuple[int, ...], targets: tuple[int, ...]) -> None:
    """All at once: a source may be a target."""
    for slot, item in zip(targets, [frame[source] for source in sources], strict=True):
        frame[slot] = item


# ----------------------------------------------------------------------------------------------- loops


def decode_for(op: Operation, decoder: Decoder) -> Step:
    """scf.for: bounds are signed unless it says otherwise."""
    bounds = decoder.slots.all(op.operands[:3])
    inits, results = decoder.slots.all(op.operands[3:]), decoder.slots.all(op.results)
    body = decoder.only_block(op.regions[0], op)
    counter, carried = body.args[0], body.args[1:]
    bits = bits_of(op.operands[0].type) if op.is_set("unsignedCmp") else 0

    def positions(task: Task) -> Iterable[int]:
        lower, upper, step = (task.frame[slot] for slot in bounds)
        if bits:
            lower, upper, step = (unsigned(value, bits) for value in (lower, upper, step))
        if step <= 0:
            raise ExecutionError(f"the step of a loop is {step}; it must be positive", op.location)
        return (wrap(at, bits) for at in range(lower, upper, step)) if bits else range(lower, upper, step)

    def run_plainly(task: Task) -> None:
        frame = task.frame
        move(frame, inits, carried)
        for position in positions(task):
            frame[counter] = position
            run_plain(body, task)
            move(frame, body.results, carried)
        move(frame, carried, results)

    def run_flowing(task: Task) -> Steps:
        frame = task.frame
        move(frame, inits, carried)
        for position in positions(task):
            frame[counter] = position
            yield from run(body, task)
            move(frame, body.results, carried)
        move(frame, carried, results)

    return plain(run_plainly) if body.is_plain else flow(run_flowing)


def decode_while(op: Operation, decoder: Decoder) -> Step:
    """scf.while: the condition's region hands its values to the body, the body's go back to it."""
    inits, results = decoder.slots.all(op.operands), decoder.slots.all(op.results)
    before, after = (decoder.only_block(region, op) for region in op.regions)

    def run_flowing(task: Task) -> Steps:
        frame = task.frame
        move(frame, inits, before.args)
        while True:
            task.machine.spend(1)  # an empty loop must end some time too
            yield from run(before, task)
            condition, *handed = before.results
            if not frame[condition]:
                return move(frame, tuple(handed), results)
            move(frame, tuple(handed), after.args)
            yield from run(after, task)
            move(frame, after.results, before.args)

    return flow(run_flowing)


# -------------------------------------------------------------------------------------------- branches


def decode_if(op: Operation, decoder: Decoder) -> Step:
    """scf.if: without an else there is nothing to hand out."""
    codes = [decoder.only_block(region, op) if region.blocks else Code() for region in op.regions]
    codes += [Code()] * (2 - len(codes))
    return _choice(op, decoder, decoder.slots.of(op.operands[0]), codes, lambda condition: 0 if condition else 1)


def decode_index_switch(op: Operation, decoder: Decoder) -> Step:
    """scf.index_switch: the first region is the default, the others are the cases."""
    cases = op.attr("cases")
    if not isinstance(cases, DenseArrayAttr):
        raise ExecutionError("scf.index_switch without its cases", op.location)
    codes = [decoder.only_block(region, op) for region in op.regions]
    which = {value: at for at, value in enumerate(cases.values, start=1)}
    return _choice(op, decoder, decoder.slots.of(op.operands[0]), codes, lambda value: which.get(value, 0))


def _choice(op: Operation, decoder: Decoder, slot: int, codes: list[Code], which: Callable[[Item], int]) -> Step:
    results = decoder.slots.all(op.results)

    def run_plainly(task: Task) -> None:
        code = codes[which(task.frame[slot])]
        run_plain(code, task)
        move(task.frame, code.results, results)

    def run_flowing(task: Task) -> Steps:
        code = codes[which(task.frame[slot])]
        yield from run(code, task)
        move(task.frame, code.results, results)

    return plain(run_plainly) if all(code.is_plain for code in codes) else flow(run_flowing)


def decode_execute_region(op: Operation, decoder: Decoder) -> Step:
    """scf.execute_region: a region of any number of blocks."""
    return _graph(op.regions[0], decoder, decoder.slots.all(op.results))


# ---------------------------------------------------------------------------------- blocks and functions


def _graph(region: Region, decoder: Decoder, results: tuple[int, ...]) -> Step:
    """Blocks that branch to each other; what the last one hands out goes to `results`."""
    codes = [decoder.block(block) for block in region.blocks]
    where = {block: at for at, block in enumerate(region.blocks)}
    jumps = [_jump(code, codes, where, decoder) for code in codes]

    def run_flowing(task: Task) -> Steps:
        at = 0
        while True:
            task.machine.spend(1)
            yield from run(codes[at], task)
            following = jumps[at](task.frame)
            if following is None:
                return move(task.frame, codes[at].results, results)
            at = following

    def run_plainly(task: Task) -> None:
        run_plain(codes[0], task)
        move(task.frame, codes[0].results, results)

    return plain(run_plainly) if len(codes) == 1 and codes[0].is_plain else flow(run_flowing)


def _jump(
    code: Code, codes: list[Code], where: dict[Block, int], decoder: Decoder
) -> Callable[[list[Item]], int | None]:
    """What a terminator does: set the arguments of the block it names and say which it is; None: leave the region."""
    op = code.terminator
    assert op is not None
    targets = [where[block] for block in op.successors]
    operands = decoder.slots.all(op.operands)
    if op.name == "cf.br":
        return lambda frame: _enter(frame, operands, codes, targets[0])
    if op.name == "cf.cond_br":
        middle = 1 + len(codes[targets[0]].args)
        parts = (operands[1:middle], operands[middle:])

        def choose(frame: list[Item]) -> int:
            taken = 0 if frame[operands[0]] else 1
            return _enter(frame, parts[taken], codes, targets[taken])

        return choose
    if targets:
        raise ExecutionError(f"{op.name} is not supported", op.location)
    return lambda frame: None


def _enter(frame: list[Item], operands: tuple[int, ...], codes: list[Code], target: int) -> int:
    move(frame, operands, codes[target].args)
    return target


def decode_function(function: Function, decoder: Decoder) -> None:
    """Fill in a function that was declared."""
    op, slots = function.op, decoder.slots
    region = op.regions[0]
    if not region.blocks:
        raise ExecutionError("the function has no body", op.location)
    exits = [block.terminator for block in region.blocks if not block.terminator.successors]
    function.slots = slots
    function.args = slots.all(region.blocks[0].args)
    returned = exits[0].operands if exits else []
    function.results = tuple(slots.of(Value(value.type, op, at)) for at, value in enumerate(returned))
    function.body = _graph(region, decoder, function.results)


def run_function(function: Function, task: Task) -> Steps:
    """The body in the task's frame, whose arguments are set."""
    assert function.body is not None
    yield from _steps(function.body, task)


def decode_call(op: Operation, decoder: Decoder) -> Step:
    """tt.call: the function in a frame of its own, in the same task."""
    callee = op.attr("callee")
    if not isinstance(callee, OpaqueAttr):
        raise ExecutionError("tt.call without a function's name", op.location)
    function = decoder.function(callee.text.removeprefix("@").strip('"'), op)
    operands, results = decoder.slots.all(op.operands), decoder.slots.all(op.results)

    def call(task: Task) -> Steps:
        caller = task.frame
        frame = function.slots.frame()
        for slot, operand in zip(function.args, operands, strict=True):
            frame[slot] = caller[operand]
        task.machine.spend(1)
        task.frame = frame
        try:
            yield from run_function(function, task)
        finally:
            task.frame = caller
        for slot, result in zip(results, function.results, strict=True):
            caller[slot] = frame[result]

    return flow(call)


# ----------------------------------------------------------------------------------------------- tasks


def decode_warp_specialize(op: Operation, decoder: Decoder) -> Step:
    """The default region goes on in the task that comes here; each partition is a task of its own; then all join."""
    slots = decoder.slots
    captured, results = slots.all(op.operands), slots.all(op.results)
    default = _graph(op.regions[0], decoder, results)
    holder = op.regions[1].block.ops[0] if op.regions[1].blocks else None
    regions = holder.regions if holder is not None else []
    partitions = [(_graph(region, decoder, ()), slots.all(region.blocks[0].args)) for region in regions]
    warps = op.attr("partitionNumWarps")
    counts = warps.values if isinstance(warps, DenseArrayAttr) else ()
    if len(counts) != len(partitions):
        raise ExecutionError(f"{ws.NAME}: {len(partitions)} partitions, warps of {len(counts)}", op.location)

    def specialize(task: Task) -> Steps:
        machine = task.machine
        started = []
        for index, ((body, args), count) in enumerate(zip(partitions, counts, strict=True), start=1):
            frame = slots.frame()
            for slot, outer in zip(args, captured, strict=True):
                frame[slot] = task.frame[outer]
            part = Task(machine, index, f"partition {index}", count, frame)
            part.steps = _steps(body, part)
            started.append(part)
            part.known = task.tell()
            machine.start(part)
        name, task.name = task.name, "default"
        yield None
        yield from _steps(default, task)

        def joined() -> bool:
            return not any(part in machine.tasks for part in started)

        yield Wait(op, joined, lambda: "the other tasks to end")
        for part in started:
            learn(task.known, part.known)
        task.name = name

    return flow(specialize)


def _steps(body: Step, task: Task) -> Steps:
    """Any kind of step as a generator."""
    if body.kind == FLOW:
        yield from body.act(task)
    else:
        body.act(task)


def decode_nothing(op: Operation, decoder: Decoder) -> Step:
    """Barriers between the threads of one task, which here go on together."""
    for result in op.results:
        decoder.slots.of(result)  # a token: None
    return NOTHING


DECODERS: dict[str, Decode] = {
    "scf.for": decode_for,
    "scf.while": decode_while,
    "scf.if": decode_if,
    "scf.index_switch": decode_index_switch,
    "scf.execute_region": decode_execute_region,
    "tt.call": decode_call,
    ws.NAME: decode_warp_specialize,
    "gpu.barrier": decode_nothing,
    "ttg.barrier": decode_nothing,
    "ttg.local_barrier": decode_nothing,
}

"""What occurs in a case, by name: so that a test can say that everything does, and a report how often."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields, replace

from tests.fuzz.case import Case
from tests.fuzz.program import (
    Assign,
    Bin,
    Cast,
    Dot,
    Expr,
    For,
    If,
    Lit,
    Node,
    Program,
    Programs,
    PtrLoad,
    PtrStore,
    Reduce,
    Stmt,
    TileLoad,
    TileStore,
    Trans,
    Un,
    Var,
    walk,
)

TYPES = {"fp16": "fp16", "bf16": "bf16", "fp8e4nv": "fp8", "fp8e5": "fp8", "i8": "int8", "fp32": "tf32"}
ALL = frozenset(
    {
        "host descriptor load", "device descriptor load", "pointer load", "masked pointer load", "three dimensions",
        "one dot in a loop", "two dots in a loop", "three dots in a loop", "chained dots", "independent dots",
        "transposed A", "transposed B", "dequantized operand", "computed operand", "dot outside of loops",
        *(f"{name} dot" for name in TYPES.values()),
        "elementwise", "mask", "exponential", "division",
        *(f"{op} along {axis}" for op in ("sum", "max") for axis in ("rows", "columns")), "sum of all",
        "carried accumulator", "carried maximum", "carried scalar", "carried offset", "offset from memory",
        "condition from memory", "condition from data", "store over an input",
        "if in a loop", "if outside of loops", "else", "no else", "dot in a branch", "loop in a branch",
        "nested loops", "persistent loop", "several loops", "runtime bound", "constant bound", "runtime step",
        "backwards", "values after a loop", "store in a loop", "descriptor store", "pointer store",
        "masked pointer store", "unrolled", "early return", "4 warps", "8 warps",
        *(f"{n} stages" for n in (1, 2, 3, 4)),
    }
)  # fmt: skip


def features(case: Case) -> frozenset[str]:
    """The names in ALL that hold of the case."""
    found = {f"{case.warps} warps", f"{case.stages} stages", *_whole(case.program)}
    found |= set(_visit(case.program, case.program.body, _Around()))
    return frozenset(found)


@dataclass(frozen=True, slots=True)
class _Around:
    """What stands around a node."""

    loops: int = 0
    branch: bool = False
    assigned: frozenset[str] = frozenset()  # variables that had a value before the innermost loop


def _whole(program: Program) -> Iterator[str]:
    """Features of the program as a whole."""
    for buffer in program.buffers:
        if not buffer.output:
            yield {"host": "host descriptor load", "device": "device descriptor load"}.get(
                buffer.access, "pointer load"
            )
        if len(buffer.box) == 3:
            yield "three dimensions"
    if any(isinstance(node, Programs) for node in walk(tuple(n.step for n in walk(program) if isinstance(n, For)))):
        yield "persistent loop"
    yield from _overwritten(program)
    for body in _bodies(program):
        if sum(isinstance(statement, For) for statement in body) > 1:
            yield "several loops"


def _overwritten(program: Program) -> Iterator[str]:
    """Is an input stored to?"""
    stored = {node.buffer for node in walk(program) if isinstance(node, TileStore | PtrStore)}
    if any(not program.buffer(name).output for name in stored):
        yield "store over an input"


def _bodies(program: Program) -> Iterator[tuple[Stmt, ...]]:
    yield program.body
    for node in walk(program):
        if isinstance(node, For):
            yield node.body
        elif isinstance(node, If):
            yield node.then
            yield node.orelse


def _visit(program: Program, part: object, around: _Around) -> Iterator[str]:
    """Features of every node, told what is around it."""
    if isinstance(part, tuple):
        for one in part:
            yield from _visit(program, one, around)
            if isinstance(one, Assign):
                around = replace(around, assigned=around.assigned | {one.name})
            if isinstance(one, For) and _used_after(one, part):
                yield "values after a loop"
        return
    if not isinstance(part, Expr | Stmt):
        return
    yield from _statement(part, around) if isinstance(part, Stmt) else _expression(program, part, around)
    inner = around
    if isinstance(part, For):
        inner = replace(around, loops=around.loops + 1)
    elif isinstance(part, If):
        inner = replace(around, branch=True)
    for field in fields(part):
        yield from _visit(program, getattr(part, field.name), inner)


def _used_after(loop: For, body: tuple[Stmt, ...]) -> bool:
    """Is a variable that the loop assigns read behind it?"""
    changed = {node.name for node in walk(loop.body) if isinstance(node, Assign)}
    return any(isinstance(n, Var) and n.name in changed for n in walk(body[body.index(loop) + 1 :]))


# ------------------------------------------------------------------------------------------------ statements


def _statement(node: Stmt, around: _Around) -> Iterator[str]:
    match node:
        case For():
            yield from _loop(node, around)
        case If(condition, then, orelse, returns):
            if returns:
                yield "early return"
            yield "if in a loop" if around.loops else "if outside of loops"
            yield from _condition(condition)
            yield "else" if orelse else "no else"
            for inner in walk((*then, *orelse)):
                if isinstance(inner, Dot | For):
                    yield "dot in a branch" if isinstance(inner, Dot) else "loop in a branch"
        case TileStore():
            yield "descriptor store"
        case PtrStore(_, _, _, mask):
            yield "pointer store" if mask is None else "masked pointer store"
    if isinstance(node, TileStore | PtrStore) and around.loops:
        yield "store in a loop"


def _condition(condition: Expr) -> Iterator[str]:
    parts = list(walk(condition))
    if any(isinstance(part, PtrLoad) for part in parts):
        yield "condition from memory"
    if any(isinstance(part, Var) and part.of.dtype == "fp32" for part in parts):
        yield "condition from data"


def _loop(loop: For, around: _Around) -> Iterator[str]:
    if around.loops:
        yield "nested loops"
    yield "constant bound" if isinstance(loop.low, Lit) and isinstance(loop.high, Lit) else "runtime bound"
    if not isinstance(loop.step, Lit):
        yield "runtime step"
    elif loop.step.value < 0:
        yield "backwards"
    if ("loop_unroll_factor", 2) in loop.hints:
        yield "unrolled"
    dots = [node for node in walk(loop.body) if isinstance(node, Dot)]
    if 1 <= len(dots) <= 3:
        yield f"{('one', 'two', 'three')[len(dots) - 1]} dot{'s' * (len(dots) > 1)} in a loop"
    yield from _chains(loop)
    for node in walk(loop.body):
        if isinstance(node, Assign) and node.name in around.assigned:
            yield from _carried(node)


def _chains(loop: For) -> Iterator[str]:
    """Do the results of dots reach the operands of others?"""
    from_dots: set[str] = set()
    dots = 0
    for node in walk(loop.body):
        if isinstance(node, Assign):
            inner = list(walk(node.value))
            dots += sum(isinstance(part, Dot) for part in inner)
            operands = [part for dot in inner if isinstance(dot, Dot) for part in walk((dot.a, dot.b))]
            if any(isinstance(part, Var) and part.name in from_dots for part in operands):
                yield "chained dots"
            elif dots > 1 and operands:
                yield "independent dots"
            if any(isinstance(p, Dot) or (isinstance(p, Var) and p.name in from_dots) for p in inner):
                from_dots.add(node.name)


def _carried(node: Assign) -> Iterator[str]:
    shape, dtype = node.value.type.shape, node.value.type.dtype
    inside = list(walk(node.value))
    if not any(isinstance(part, Var) and part.name == node.name for part in inside):
        return
    if not shape:
        yield "carried offset" if dtype == "i32" else "carried scalar"
    elif len(shape) == 2 and any(isinstance(part, Dot) for part in inside):
        yield "carried accumulator"
    elif isinstance(node.value, Bin) and node.value.op == "max":
        yield "carried maximum"


# ----------------------------------------------------------------------------------------------- expressions


def _expression(program: Program, node: Node, around: _Around) -> Iterator[str]:
    match node:
        case Dot(a, b):
            yield f"{TYPES[a.type.dtype]} dot"
            yield from _operands(a, b)
            if not around.loops:
                yield "dot outside of loops"
        case Reduce(op, x, axis):
            if len(x.type.shape) == 2:
                yield f"{op} along {('columns', 'rows')[axis]}"
            elif op == "sum":
                yield "sum of all"
        case PtrLoad(name, _, dtype, mask):
            if mask is not None:
                yield "masked pointer load"
            if dtype == "i32" and program.buffer(name).below is not None:
                yield "offset from memory"
        case Un(op, x) if x.type.shape:
            yield "exponential" if op == "exp2" else "elementwise"
        case Bin(op, _, _) if len(node.type.shape) == 2 and node.type.dtype == "fp32":
            yield "division" if op == "/" else "elementwise"
        case _:
            if type(node).__name__ == "Where":
                yield "mask"


def _operands(a: Expr, b: Expr) -> Iterator[str]:
    if isinstance(a, Trans):
        yield "transposed A"
    if isinstance(b, Trans):
        yield "transposed B"
    for part in (a, b):
        inside = list(walk(part))
        if not isinstance(part, Var | TileLoad | PtrLoad | Trans):
            yield "computed operand"
        if any(isinstance(p, Cast) and p.x.type.dtype == "i8" for p in inside):
            yield "dequantized operand"

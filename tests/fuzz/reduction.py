"""Making a failing case smaller by cutting its program, where hypothesis can only draw another one.

A cut drops a statement, puts a branch in place of its conditional, an operand in place of its operation, one launch in
place of all. It stays if what is left still shows the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import fields, replace

from tests.fuzz.case import Case
from tests.fuzz.program import (
    Assign,
    Expr,
    Extent,
    For,
    If,
    Program,
    PtrLoad,
    PtrStore,
    Stmt,
    TileLoad,
    TileStore,
    Var,
    walk,
)

Body = tuple[Stmt, ...]


def reduced(case: Case, shows: Callable[[Case], bool]) -> Case:
    """The smallest case found by one cut after the other. `shows` may give up by saying no to everything."""
    tried = {case.digest()}
    again = True
    while again:
        again = False
        for candidate in cuts(case):
            if candidate.digest() not in tried and defined(candidate.program):
                tried.add(candidate.digest())
                if shows(candidate):
                    case, again = candidate, True
                    break
    return case


def cuts(case: Case) -> Iterator[Case]:
    """The case with one thing less, the largest cuts first."""
    for launch in case.launches if len(case.launches) > 1 else ():
        yield replace(case, launches=(launch,))
    for body in _bodies(case.program.body):
        yield pruned(replace(case, program=replace(case.program, body=body)))
    for name in case.options:
        rest = {other: value for other, value in case.options.items() if other != name}
        yield replace(case, options=rest) if name != "gate" else case
    if case.thorough:
        yield replace(case, thorough=False)


def _bodies(body: Body) -> Iterator[Body]:
    """The statements with one less, or with something less in one of them; the last first, as nothing needs it."""
    for half in (body[: len(body) // 2], body[len(body) // 2 :]):
        if len(body) >= 4:
            yield half
    for at in reversed(range(len(body))):
        yield (*body[:at], *body[at + 1 :])
    for at in reversed(range(len(body))):
        for smaller in _statements(body[at]):
            yield (*body[:at], *smaller, *body[at + 1 :])


def _statements(statement: Stmt) -> Iterator[Body]:
    """What may stand for a statement."""
    if isinstance(statement, If):
        yield statement.then
        yield statement.orelse
    if isinstance(statement, For) and statement.hints:
        yield (replace(statement, hints=()),)
    for field in fields(statement):
        value = getattr(statement, field.name)
        if field.name in ("body", "then", "orelse"):
            smaller: Iterator[object] = _bodies(value)
        elif isinstance(value, Expr):
            smaller = _expressions(value)
        else:
            continue
        for one in smaller:
            yield (replace(statement, **{field.name: one}),)


def _expressions(value: Expr) -> Iterator[Expr]:
    """A part of the same type in place of the whole, then in place of parts; no mask in place of one."""
    for part in walk(value):
        if part is not value and isinstance(part, Expr) and part.type == value.type:
            yield part
    for field in fields(value):
        part = getattr(value, field.name)
        if isinstance(part, Expr):
            if field.name in ("mask", "acc"):
                yield replace(value, **{field.name: None})
            for smaller in _expressions(part):
                yield replace(value, **{field.name: smaller})


def defined(program: Program) -> bool:
    """Has every variable a value wherever it is read?"""
    return _defined(program.body, {scalar.name for scalar in program.scalars}) is not None


def _defined(body: Body, known: set[str]) -> set[str] | None:
    """The variables with a value after the statements; None if one is missing."""
    known = set(known)
    for statement in body:
        here = [getattr(statement, f.name) for f in fields(statement) if f.name not in ("body", "then", "orelse")]
        if any(isinstance(n, Var) and n.name not in known for part in here for n in walk(part)):
            return None
        if isinstance(statement, Assign):
            known.add(statement.name)
        elif isinstance(statement, For):
            if _defined(statement.body, known | {statement.name}) is None:
                return None
        elif isinstance(statement, If):
            branches = [_defined(part, known) for part in (statement.then, statement.orelse)]
            if branches[0] is None or branches[1] is None:
                return None
            known |= branches[0] & branches[1]
    return known


def pruned(case: Case) -> Case:
    """Without the arguments and knobs that nothing uses."""
    program = case.program
    names = {node.name for node in walk(program) if isinstance(node, Var)}
    touched = {n.buffer for n in walk(program) if isinstance(n, TileLoad | TileStore | PtrLoad | PtrStore)}
    buffers = tuple(buffer for buffer in program.buffers if buffer.name in touched)
    scalars = tuple(scalar for scalar in program.scalars if scalar.name in names)
    extents: list[Extent | None] = [*program.grid, *(scalar.extent for scalar in scalars)]
    extents += [extent for buffer in buffers for extent in (*buffer.dims, buffer.below)]
    needed = {name for extent in extents if extent is not None for name, _ in extent.terms}
    knobs = tuple(knob for knob in program.knobs if knob.name in needed)
    launches = tuple(
        replace(launch, knobs={name: value for name, value in launch.knobs.items() if name in needed})
        for launch in case.launches
    )
    return replace(case, program=replace(program, knobs=knobs, scalars=scalars, buffers=buffers), launches=launches)

"""Whether the end of a tile can wait for the next tile's first product, and whether that pays.

Blocks that walk through tiles come to the end of one, normalise and store it, while their tensor core is idle; then
they wait for the first product of the next one with nothing to do. passes/epilogue_overlap/overlap_epilogue.py puts
the one beside the
other. What it moves must be straight-line code behind the last loop, and what that reads must be carried to the next
tile.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from wspec.decision import Decision
from wspec.ir.core import Block, Operation, Value
from wspec.ir.numbering import id_of
from wspec.ir.ops import is_pure
from wspec.ir.shapes import DOTS, element_of
from wspec.ir.types import PointerType, ScalarType, Type
from wspec.model.machine import Machine
from wspec.model.operations import bits, loop_work
from wspec.options import Options
from wspec.plan.graph import loops_around
from wspec.plan.partition import hot_loops
from wspec.plan.plan import Plan
from wspec.plan.stores import OWN


@dataclass(frozen=True, slots=True)
class Epilogue:
    """The end of a tile: its effects and what they are computed by."""

    ops: list[Operation]  # all of it, in the body's order
    effects: list[Operation]
    pure: list[Operation]  # what only computes, in the body's order; some of it stands before the loops
    taken: list[Value]  # what the body defines and the end takes over as it is, in order of first use


def epilogue(body: Block) -> Epilogue:
    """The end of a tile whose loop has this body: what stands behind the last loop or branch and has an effect."""
    ops = body.ops[:-1]
    behind = max((at for at, op in enumerate(ops) if op.name.startswith("scf.")), default=-1) + 1
    effects = [op for op in ops[behind:] if not op.results]
    needed: set[Operation] = set()
    taken: dict[Value, None] = {}
    work = [value for op in reversed(effects) for value in reversed(_outer_operands(op))]
    while work:
        value = work.pop()
        op = value.op
        if value.owner is body or (op is not None and op.parent is body and not _can_repeat(op)):
            taken.setdefault(value)
        elif op is not None and op.parent is body and op not in needed:
            needed.add(op)
            work += reversed(_outer_operands(op))
    pure = [op for op in ops if op in needed]
    return Epilogue([op for op in ops if op in needed or op in effects], effects, pure, list(taken))


def first_to_multiply(body: Block) -> Operation | None:
    """The first operation of a body that multiplies, itself or in its regions."""
    return next((op for op in body.ops if any(inner.name in DOTS for inner in op.walk())), None)


def choose_epilogue_overlap(function: Operation, plan: Plan, machine: Machine, options: Options) -> Plan:
    """The plan of a kernel whose blocks walk through tiles, with the end of a tile put off where that can be and pays.

    Where the options ask for it, it need not pay. The plan says why it is not done.
    """
    if options.epilogue_overlap is False:
        return plan
    loops = hot_loops(function)
    found = hindrance(loops, plan)
    why = found[0] if found is not None else "" if options.epilogue_overlap else _why_not(loops, plan, machine)
    return replace(plan, epilogue_overlap=Decision(None if why else True, why))


def hindrance(loops: Iterable[Operation], plan: Plan) -> tuple[str, Operation] | None:
    """What keeps the end of a tile from waiting for the next one: (why, where), or None. `loops`: those that multiply.

    For a kernel that `persist` has wrapped, before it is divided.
    """
    first = next(iter(loops))
    body = first.parent
    if body is None or body.parent_op is None or body.parent_op.name != "scf.for":
        return "its first loop that multiplies does not stand in the loop over tiles", first
    late = next((set(one.stage1) for one in plan.loops if one.loop == id_of(first)), set[int]())
    early = [op for op in first.regions[0].block.ops if op.name in DOTS and id_of(op) not in late]
    if first_to_multiply(body) is not first or not late or not early:
        return "the first product of a tile is not issued ahead of its loop", first
    if loops_around(body.parent_op):
        return "the loop over tiles stands in another loop", body.parent_op
    own = {store for store, _, kind in plan.staging if kind == OWN}
    return _in_the_way(body, own)


def _why_not(loops: list[Operation], plan: Plan, machine: Machine) -> str:
    """Why there is nothing to gain; empty when there is.

    Where the tensor core is the bound, the other groups' products run beside the end of a tile, and a product that is
    issued early waits for theirs: measured at head dimension 128, 0 to 2 % slower (docs/results).
    """
    work = loop_work(loops[0], machine)
    if plan.coarsening > 1:
        return "a team's groups are busy beside each other"
    if work.mma >= work.compute:
        return "the tensor core is the bound, and busy with other groups' products at the end of a tile"
    return ""


def _can_repeat(op: Operation) -> bool:
    """May the operation run a tile later, beside a product in flight?

    Loops and branches may not: a product is waited for before them. What the back end takes from a library of functions
    may become a branch there, before which ptxas waits too (note C7517, seen for log2).
    """
    straight = not any(_may_branch(inner) for inner in op.walk())
    return is_pure(op) and not op.name.startswith("scf.") and straight


def _may_branch(op: Operation) -> bool:
    """Does it take a function of a library, or a division of more than 32 bits, which is one too?"""
    wide = any(bits(value.type) > 32 for value in op.results) and op.name.startswith(_DIVISIONS)
    return wide or (op.name.startswith(_FUNCTIONS) and op.name not in _INSTRUCTIONS)


_FUNCTIONS = ("math.", "tt.extern_elementwise", "tt.precise_", "arith.remf")
_DIVISIONS = ("arith.div", "arith.rem", "arith.ceildiv", "arith.floordiv")
_INSTRUCTIONS = frozenset({"math.exp2", "math.absf", "math.absi", "math.fma", "math.floor", "math.ceil"})


def _outer_operands(op: Operation) -> list[Value]:
    """What an operation and its regions take from around it."""
    own = {value for inner in op.walk() for value in inner.defined}
    return [value for inner in op.walk() for value in inner.operands if value not in own]


def _in_registers(type: Type) -> bool:
    return isinstance(element_of(type), ScalarType | PointerType)


def _can_be_carried(value: Value) -> bool:
    """A number that is computed, or a single one that is loaded."""
    element = element_of(value.type)
    computed = value.op is None or value.op.name.startswith("scf.") or is_pure(value.op)
    return isinstance(element, ScalarType) and (computed or element is value.type)


def _in_the_way(body: Block, own: set[int]) -> tuple[str, Operation] | None:
    """What the end of a tile does that cannot be put off. `own`: stores through a buffer of their own."""
    end = epilogue(body)
    if not end.effects:
        return "nothing is stored behind the loops", body.terminator
    for op in end.effects:
        if op.name == "tt.descriptor_store" and id_of(op) not in own:
            return "the tile is not stored through a buffer of its own", op
        if op.name not in ("tt.store", "tt.descriptor_store"):
            return f"the end of the tile does more than to compute and to store: {op.name}", op
    for op in end.pure:
        if op.name in DOTS or not all(_in_registers(value.type) for value in op.results):
            return f"the end of the tile does more than to compute and to store: {op.name}", op
    for value in end.taken:
        if not _can_be_carried(value):
            return "the end of the tile reads what cannot be carried to the next one", value.op or end.effects[0]
    return None

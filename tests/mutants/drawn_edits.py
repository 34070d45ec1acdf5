"""Random edits of any module, whatever it is: what nobody thought of as a kind of mistake.

The operators of `mutate.py` each break one thing that a specialized kernel is known to have. Edits here know nothing:
they drop, copy and move operations, within blocks and across regions, exchange operands, and change numbers. What comes
out need not be valid IR; whoever draws looks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random

from wspec.ir.builder import Builder
from wspec.ir.core import Block, Operation, Value, replace_uses
from wspec.ir.ops import is_terminator
from wspec.ir.types import I1, Attribute, DenseArrayAttr, IntegerAttr, StringAttr, TensorType, i32
from wspec.ir.verify import PARTITIONS

Draw = Callable[[Random, Operation], str]
"""Changes the module and says what it did; "" when there was nothing to do."""

_OUTER = frozenset(("builtin.module", "tt.func", PARTITIONS))
_NUMBERS = ("count", "size", "pendings", "num", "deviceId", "packed_element")
_ARRAYS = ("partitionNumWarps", "requestedRegisters", "offsets", "order")
_FLAGS = ("isAsync", "isVolatile", "pure")


def edited(random: Random, module: Operation, places: int) -> list[str]:
    """Make so many edits of a module, and say what they were; fewer where one finds nothing to do."""
    kinds = list(EDITS)
    found = []
    for _ in range(places):
        (kind,) = random.choices(kinds, [EDITS[one] for one in kinds])
        said = kind(random, module)
        if said:
            found.append(said)
    return found


# -------------------------------------------------------------------------------------------------- whom


def _operation(random: Random, module: Operation, wanted: Callable[[Operation], bool]) -> Operation | None:
    """One that is wanted. What synchronizes, touches shared memory or decides is drawn more often than the rest."""
    ops = [op for op in module.walk() if op.name not in _OUTER and not is_terminator(op) and wanted(op)]
    if not ops:
        return None
    (found,) = random.choices(ops, [_weight(op) for op in ops])
    return found


def _weight(op: Operation) -> float:
    if op.name.startswith(("ttng.", "ttg.local_", "ttg.memdesc_", "ttg.async_", "ttg.warp_specialize", "scf.")):
        return 6
    scalar = bool(op.results) and not isinstance(op.results[0].type, TensorType)
    return 2 if scalar and op.name.startswith("arith.") else 6 if op.name.endswith("inline_asm") else 1


def _any(op: Operation) -> bool:
    return True


def _values(op: Operation) -> list[Value]:
    """Those that may be used where the operation stands."""
    found: list[Value] = []
    at: Operation | None = op
    while at is not None and at.parent is not None:
        block = at.parent
        found += block.args
        found += (value for other in block.ops[: block.ops.index(at)] for value in other.results)
        at = block.parent_op
        if at is None or at.name in _OUTER:
            break
    return found


def _others(op: Operation, value: Value) -> list[Value]:
    return [one for one in _values(op) if one.type == value.type and one is not value]


def _said(word: str, op: Operation, more: str = "") -> str:
    return f"{word} {op.name}{f' {more}' if more else ''}"


# ------------------------------------------------------------------------------------------- operations


def _drop(random: Random, module: Operation) -> str:
    """With a value of the same type in the place of each result."""
    op = _operation(random, module, _any)
    if op is None:
        return ""
    for result in op.results:
        instead = [one for one in op.operands if one.type == result.type] or _others(op, result)
        if not instead:
            return ""
        replace_uses(module, {result: random.choice(instead)})
    op.erase()
    return _said("drop", op)


def _double(random: Random, module: Operation) -> str:
    """A second time, right behind or anywhere later in the block."""
    op = _operation(random, module, lambda one: one.name != "ttg.warp_specialize")
    if op is None or op.parent is None:
        return ""
    block = op.parent
    at = block.ops.index(op) + 1
    to = random.choice((at, random.randrange(at, len(block.ops))))
    block.insert(to, op.clone({}))
    return _said("double", op, f"{to - at} later")


def _exchange(random: Random, module: Operation) -> str:
    """Two neighbours."""
    op = _operation(random, module, _any)
    if op is None or op.parent is None:
        return ""
    ops = op.parent.ops
    at = ops.index(op)
    if at + 1 >= len(ops) or is_terminator(ops[at + 1]):
        return ""
    ops[at], ops[at + 1] = ops[at + 1], ops[at]
    return _said("exchange", op, f"and {ops[at].name}")


def _move(random: Random, module: Operation) -> str:
    """To anywhere in its block."""
    op = _operation(random, module, _any)
    if op is None or op.parent is None:
        return ""
    return _moved(op, op.parent, random.randrange(len(op.parent.ops)), "within its block")


def _cross(random: Random, module: Operation) -> str:
    """Out of a loop, a branch or a task, or into one."""
    op = _operation(random, module, lambda one: not one.regions)
    if op is None or op.parent is None:
        return ""
    around = op.parent.parent_op
    ways: list[tuple[Block, int, str]] = []
    if around is not None and around.name not in _OUTER and around.parent is not None:
        at = around.parent.ops.index(around)
        ways += [(around.parent, at, f"before {around.name}"), (around.parent, at + 1, f"behind {around.name}")]
    for other in op.parent.ops:
        for region in other.regions:
            for block in region.blocks[:1]:
                ways += [(block, 0, f"to the start of {other.name}")]
                ways += [(block, max(len(block.ops) - 1, 0), f"to the end of {other.name}")]
    if not ways:
        return ""
    block, at, where = random.choice(ways)
    return _moved(op, block, at, where)


def _moved(op: Operation, block: Block, at: int, where: str) -> str:
    before = op.parent is block and at > block.ops.index(op)
    op.erase()
    block.insert(min(at - before, max(len(block.ops) - 1, 0)), op)
    return _said("move", op, where)


def _fence(random: Random, module: Operation) -> str:
    """A fence more, anywhere."""
    op = _operation(random, module, _any)
    if op is None or op.parent is None:
        return ""
    block = op.parent
    build = Builder(block, block.ops.index(op), op.location)
    build.create("ttng.fence_async_shared", [], [], {"bCluster": IntegerAttr(0, I1)})
    return _said("fence before", op)


# --------------------------------------------------------------------------------------------- operands


def _operand(random: Random, module: Operation) -> str:
    """Another value of its type."""
    op = _operation(random, module, lambda one: bool(one.operands))
    if op is None:
        return ""
    at = random.randrange(len(op.operands))
    others = _others(op, op.operands[at])
    if not others:
        return ""
    op.operands[at] = random.choice(others)
    return _said("another operand", op, str(at))


def _swap_operands(random: Random, module: Operation) -> str:
    """Two of one type in one operation, or the same of two operations of a name."""
    op = _operation(random, module, lambda one: bool(one.operands))
    if op is None:
        return ""
    at = random.randrange(len(op.operands))
    type = op.operands[at].type
    here = [(op, other) for other, value in enumerate(op.operands) if other != at and value.type == type]
    there = [(other, at) for other in module.walk() if other.name == op.name and other is not op
             and len(other.operands) > at and other.operands[at].type == type]  # fmt: skip
    if not here and not there:
        return ""
    other, place = random.choice(here or there) if not there or random.random() < 0.5 else random.choice(there)
    op.operands[at], other.operands[place] = other.operands[place], op.operands[at]
    return _said("swap operand", op, f"{at} with {place} of {'itself' if other is op else 'another'}")


# ---------------------------------------------------------------------------------------------- numbers


def _constant(random: Random, module: Operation) -> str:
    """A constant that is used: one more, one less, the other bit, zero, twice as many. For one use or all."""
    op = _operation(random, module, lambda one: _number(one) is not None)
    if op is None or op.parent is None:
        return ""
    attribute = _number(op)
    assert attribute is not None
    value = _other_number(random, attribute.value, attribute.type == I1)
    changed = {"value": IntegerAttr(value, attribute.type)}
    users = [(user, at) for user in module.walk() for at, one in enumerate(user.operands) if one is op.result]
    if not users:
        return ""
    if random.random() < 0.5:
        op.properties.update(changed)
        return _said("constant", op, f"{attribute.value} to {value}")
    build = Builder(op.parent, op.parent.ops.index(op), op.location)
    made = build.create("arith.constant", [], [op.result.type], changed)
    user, at = random.choice(users)
    user.operands[at] = made.result
    return _said("constant", op, f"{attribute.value} to {value} for a {user.name}")


def _number(op: Operation) -> IntegerAttr | None:
    found = op.attr("value") if op.name == "arith.constant" else None
    return found if isinstance(found, IntegerAttr) else None


def _other_number(random: Random, value: int, bit: bool) -> int:
    if bit:
        return int(not value)
    return random.choice([one for one in (value + 1, max(value - 1, 0), value ^ 1, 0, 2 * value) if one != value])


def _attribute(random: Random, module: Operation) -> str:
    """A count, a size, how many may be pending, the predicate of a comparison, warps, registers, offsets, a flag."""
    op = _operation(random, module, lambda one: bool(_changeable(one)))
    if op is None:
        return ""
    name, old = random.choice(_changeable(op))
    new: Attribute
    if isinstance(old, DenseArrayAttr):
        at = random.randrange(len(old.values))
        step = 8 if name == "requestedRegisters" else 1
        value = old.values[at] * 2 if random.random() < 0.3 else old.values[at] + random.choice((-step, step))
        new = DenseArrayAttr(old.element, (*old.values[:at], value, *old.values[at + 1 :]))
    else:
        assert isinstance(old, IntegerAttr)
        value = random.randrange(10) if name == "predicate" else _other_number(random, old.value, old.type == I1)
        new = IntegerAttr(value, old.type)
    (op.properties if name in op.properties else op.attributes)[name] = new
    return _said("change", op, f"{name} {old} to {new}")


def _changeable(op: Operation) -> list[tuple[str, Attribute | None]]:
    names = (*_NUMBERS, *_ARRAYS, *_FLAGS, *(("predicate",) if op.name == "arith.cmpi" else ()))
    if op.name == "tt.load":
        names = ("isVolatile",)
    found = ((name, op.attr(name)) for name in names)
    return [(name, one) for name, one in found if isinstance(one, IntegerAttr) or getattr(one, "values", ())]


def _assembly(random: Random, module: Operation) -> str:
    """Other numbers in inline assembly."""
    op = _operation(random, module, lambda one: one.str_attr("asm_string") is not None)
    if op is None:
        return ""
    text = op.str_attr("asm_string") or ""
    digits = [at for at, one in enumerate(text) if one.isdigit() and text[max(at - 1, 0)] in " ,"]
    if not digits:
        return ""
    at = random.choice(digits)
    text = f"{text[:at]}{(int(text[at]) + random.choice((1, 9))) % 10}{text[at + 1 :]}"
    op.properties["asm_string"] = StringAttr(text)
    return _said("assembly", op, text)


def _arrival(random: Random, module: Operation) -> str:
    """An arrival more, at any barrier in sight."""
    op = _operation(random, module, lambda one: one.name in ("ttng.arrive_barrier", "ttng.wait_barrier"))
    place = _operation(random, module, _any)
    if op is None or place is None or place.parent is None:
        return ""
    barriers = [value for value in _values(place) if value.type == op.operands[0].type]
    if not barriers:
        return ""
    build = Builder(place.parent, place.parent.ops.index(place), place.location)
    build.create("ttng.arrive_barrier", [random.choice(barriers)], [], {"count": i32(1)})
    return _said("arrive before", place)


EDITS: dict[Draw, float] = {
    _drop: 3, _double: 2, _exchange: 2, _move: 3, _cross: 3, _fence: 0.5, _operand: 3, _swap_operands: 2,
    _constant: 3, _attribute: 3, _assembly: 0.5, _arrival: 0.5,
}  # fmt: skip
"""How often each is drawn."""


def described(said: Sequence[str]) -> str:
    """Edits in a line."""
    return "; ".join(said)

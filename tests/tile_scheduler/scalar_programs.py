"""Random functions whose loops have bounds made of scalar arithmetic, and an interpreter that takes them one tile at a
time, with Python's integers and the executor's operations."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from hypothesis import strategies as st

from tests.execute.one_op import context
from tests.support.programs import function as parsed
from wspec.execute.evaluate import evaluate
from wspec.ir.builder import PREDICATES, Builder
from wspec.ir.core import Block, Operation, Region, Value
from wspec.ir.numbering import id_of, number
from wspec.ir.types import I1, I32, I64, IntegerAttr, Type, UnitAttr, i32
from wspec.tile_scheduler.integers import BINARY, LIMIT

ARGUMENTS = "%a: i32; %b: i32; %c: i64; %d: i1"
WIDTHS = {0: 32, 1: 32, 2: 64, 3: 1}  # argument -> bits
_CASTS = [
    *((narrow, name, wide) for narrow, wide in ((I1, I32), (I1, I64), (I32, I64)) for name in ("extsi", "extui")),
    *((I64, "trunci", narrow) for narrow in (I1, I32)),
]
_EDGES = {
    bits: [0, 1, 2, 3, 7, 64, 127, -1, -2, -128, 2 ** (bits - 1) - 1, -(2 ** (bits - 1)), 1 - 2 ** (bits - 1)]
    for bits in (32, 64)
}


def numbers(bits: int) -> st.SearchStrategy[int]:
    """Integers of a width, often at an edge."""
    if bits == 1:
        return st.integers(0, 1)
    half = 1 << (bits - 1)
    return st.sampled_from(_EDGES[bits]) | st.integers(-200, 200) | st.integers(-half, half - 1)


@dataclass
class _Writer:
    """Draws a function, statement by statement."""

    draw: st.DrawFn
    values: list[Value] = field(default_factory=list)

    def pick(self, *types: Type) -> Value:
        return self.draw(st.sampled_from([value for value in self.values if value.type in types]))

    def scalar(self, builder: Builder) -> None:
        """One more value."""
        kind = self.draw(st.sampled_from(["constant", "program_id", "binary", "binary", "compare", "select", "cast"]))
        match kind:
            case "constant":
                type = self.draw(st.sampled_from([I32, I64]))
                self.values.append(builder.constant(self.draw(numbers(type.bits)), type))
            case "program_id":
                name = self.draw(st.sampled_from(["tt.get_program_id", "tt.get_num_programs"]))
                self.values.append(builder.create(name, [], [I32], {"axis": i32(self.draw(st.integers(0, 2)))}).result)
            case "binary":
                a = self.pick(I1, I32, I64)
                name = self.draw(st.sampled_from(sorted(BINARY)))
                self.values.append(builder.binary(f"arith.{name}", a, self.pick(a.type)))
            case "compare":
                a = self.pick(I1, I32, I64)
                self.values.append(builder.compare(self.draw(st.sampled_from(PREDICATES)), a, self.pick(a.type)))
            case "select":
                a = self.pick(I1, I32, I64)
                self.values.append(builder.select(self.pick(I1), a, self.pick(a.type)))
            case "cast":
                a = self.pick(I1, I32, I64)
                name, type = self.draw(st.sampled_from([cast for cast in _CASTS if cast[0] == a.type]))[1:]
                self.values.append(builder.create(f"arith.{name}", [a], [type]).result)

    def statements(self, block: Block, depth: int, loops: int) -> None:
        """Scalars, then up to `loops` loops and branches, which may hold others."""
        builder = Builder(block)
        for _ in range(self.draw(st.integers(0, 6 if depth else 12))):
            self.scalar(builder)
        for _ in range(self.draw(st.integers(0, loops)) if depth < 3 else 0):
            if self.draw(st.booleans()):
                self.loop(builder, depth)
            else:
                self.branch(builder, depth)

    def loop(self, builder: Builder, depth: int) -> None:
        lower = self.pick(I32, I64)
        bounds = [lower, self.pick(lower.type), self.pick(lower.type)]
        properties = {"unsignedCmp": UnitAttr()} if self.draw(st.booleans()) else None
        body = Block()
        body.add_arg(lower.type)
        self.inside(body, depth)
        body.append(Operation.create("scf.yield"))
        builder.create("scf.for", bounds, [], properties, regions=[_region(body)])

    def branch(self, builder: Builder, depth: int) -> None:
        condition, type = self.pick(I1), self.draw(st.sampled_from([I1, I32, I64]))
        blocks = [Block(), Block()]
        for block in blocks:
            before = list(self.values)
            self.statements(block, depth + 1, 1)
            block.append(Operation.create("scf.yield", [self.pick(type)]))
            self.values = before
        made = builder.create("scf.if", [condition], [type], regions=[_region(block) for block in blocks])
        self.values.append(made.result)

    def inside(self, block: Block, depth: int) -> None:
        before = list(self.values)
        self.statements(block, depth + 1, 2)
        self.values = before


def _region(block: Block) -> Region:
    region = Region()
    region.add_block(block)
    return region


@st.composite
def functions(draw: st.DrawFn) -> Operation:
    """A numbered function; no bound depends on a loop's counter."""
    function = parsed("", ARGUMENTS)
    body = function.regions[0].block
    end = body.ops.pop()
    constant = Builder(body).constant(1, I64)
    writer = _Writer(draw, [*body.args, constant, body.ops[0].result])
    writer.statements(body, 0, 3)
    writer.loop(Builder(body), 0)
    body.append(end)
    number(function)
    return function


def loops_of(function: Operation) -> list[int]:
    return [id_of(op) for op in function.walk() if op.name == "scf.for"]


def interpreted(
    function: Operation, grid: tuple[int, int, int], program: tuple[int, int, int], values: Mapping[int, int]
) -> dict[int, int]:
    """How many iterations each loop has in one tile."""
    body, found = function.regions[0].block, dict[int, int]()
    known = {arg: values[arg.index] for arg in body.args}
    _run(body, 1, known, found, grid, program)
    return {loop: min(count, LIMIT) for loop, count in found.items()}


def _run(
    block: Block,
    times: int,
    known: dict[Value, int],
    found: dict[int, int],
    grid: tuple[int, int, int],
    program: tuple[int, int, int],
) -> None:
    for op in block.ops:
        if op.name == "scf.for":
            found[id_of(op)] = times * _trips(op, *(known[value] for value in op.operands))
            _run(op.regions[0].block, found[id_of(op)], known, found, grid, program)
        elif op.name == "scf.if":
            condition = known[op.operands[0]]
            for region, taken in zip(op.regions, (condition, 1 - condition), strict=True):
                _run(region.block, times * taken, known, found, grid, program)
            known[op.result] = known[op.regions[1 - condition].block.terminator.operands[0]]
        elif op.name in ("tt.get_program_id", "tt.get_num_programs"):
            sizes = program if op.name == "tt.get_program_id" else grid
            known[op.result] = sizes[op.int_attr("axis") or 0]
        elif op.name == "arith.constant" and isinstance(number := op.attr("value"), IntegerAttr):
            known[op.result] = number.value
        elif op.results and op.name != "arith.constant":
            (result,) = evaluate(op, tuple(known[value] for value in op.operands), context())
            assert isinstance(result, int)
            known[op.result] = result


def _trips(loop: Operation, lower: int, upper: int, step: int) -> int:
    if loop.attr("unsignedCmp") is not None:
        whole = 1 << (64 if loop.operands[0].type == I64 else 32)
        lower, upper, step = lower % whole, upper % whole, step % whole
    return max(0, -((lower - upper) // step)) if step > 0 else 0

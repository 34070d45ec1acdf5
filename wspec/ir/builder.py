"""Build operations at an insertion point."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from wspec.ir.core import Block, Operation, Region, Value
from wspec.ir.loc import UNKNOWN, Location
from wspec.ir.shapes import element_of
from wspec.ir.types import (
    I1,
    I32,
    I64,
    Attribute,
    DenseArrayAttr,
    DenseAttr,
    FloatAttr,
    IntegerAttr,
    OpaqueAttr,
    ScalarType,
    StringAttr,
    TensorType,
    Type,
    i32,
)

PREDICATES = ("eq", "ne", "slt", "sle", "sgt", "sge", "ult", "ule", "ugt", "uge")
_HAS_OVERFLOW = {"arith.addi", "arith.subi", "arith.muli", "arith.shli"}
_OVERFLOW: dict[str, Attribute] = {"overflowFlags": OpaqueAttr("#arith.overflow<none>")}


class Builder:
    """Appends to `block`, or inserts before position `at` and moves on."""

    def __init__(self, block: Block, at: int | None = None, location: Location = UNKNOWN) -> None:
        self.block, self.at, self.location = block, at, location

    @staticmethod
    def before(op: Operation, location: Location | None = None) -> Builder:
        """In front of an operation, with its place in the source or another one."""
        assert op.parent is not None
        return Builder(op.parent, op.parent.ops.index(op), op.location if location is None else location)

    @staticmethod
    def behind(op: Operation, location: Location | None = None) -> Builder:
        build = Builder.before(op, location)
        build.at = build.at + 1 if build.at is not None else None
        return build

    def add(self, op: Operation) -> Operation:
        """Insert a finished operation."""
        if self.at is None:
            return self.block.append(op)
        self.block.insert(self.at, op)
        self.at += 1
        return op

    def create(
        self,
        name: str,
        operands: Sequence[Value] = (),
        result_types: Sequence[Type] = (),
        properties: Mapping[str, Attribute] | None = None,
        attributes: Mapping[str, Attribute] | None = None,
        regions: Sequence[Region] = (),
    ) -> Operation:
        """Create and insert."""
        return self.add(Operation.create(name, operands, result_types, properties, attributes, regions, self.location))

    def constant(self, value: int, type: Type = I32) -> Value:
        """An integer constant, or a tensor of it."""
        known = DenseAttr(str(value), type) if isinstance(type, TensorType) else IntegerAttr(value, type)
        return self.create("arith.constant", [], [type], {"value": known}).result

    def zero(self, type: Type) -> Value:
        """Zero, of a number's type or in every element of a tensor's. Raises TypeError for other types."""
        element = element_of(type)
        if not isinstance(element, ScalarType):
            raise TypeError(f"a value of type {type} is no number")
        digits = "0.000000e+00" if element.is_float else ("false" if element.name == "i1" else "0")
        if isinstance(type, TensorType):
            return self.create("arith.constant", [], [type], {"value": DenseAttr(digits, type)}).result
        value = FloatAttr(digits, element) if element.is_float else IntegerAttr(0, element)
        return self.create("arith.constant", [], [type], {"value": value}).result

    def assembly(self, text: str, operand: Value, result: Type = I32, constraints: str = "=r,r") -> Value:
        """Inline assembly with an effect, for each element of the operand: `$0` is the result, `$1` the operand."""
        flags: dict[str, Attribute] = {
            "asm_string": StringAttr(text),
            "constraints": StringAttr(constraints),
            "packed_element": IntegerAttr(1, I32),
            "pure": IntegerAttr(0, I1),
        }
        return self.create("tt.elementwise_inline_asm", [operand], [result], flags).result

    def branch(self, condition: Value, yes: Side, no: Side) -> list[Value]:
        """An `scf.if` whose sides are filled by what returns the values that they yield; its results."""
        regions = [Region(), Region()]
        yielded: Sequence[Value] = ()
        for region, fill in zip(regions, (yes, no), strict=True):
            side = Builder(region.add_block(), location=self.location)
            yielded = fill(side)
            side.create("scf.yield", yielded)
        return self.create("scf.if", [condition], [value.type for value in yielded], regions=regions).results

    def fence(self) -> None:
        """What threads have done in shared memory comes before what the copy engine and the tensor core do there."""
        self.create("ttng.fence_async_shared", [], [], {"bCluster": IntegerAttr(0, I1)})

    def binary(self, name: str, lhs: Value, rhs: Value) -> Value:
        """`name` of two values of one type, e.g. `arith.addi`."""
        return self.create(name, [lhs, rhs], [lhs.type], _OVERFLOW if name in _HAS_OVERFLOW else None).result

    def offset(self, pointer: Value, by: Value) -> Value:
        """The pointer `by` elements on; tensors of both too."""
        return self.create("tt.addptr", [pointer, by], [pointer.type]).result

    def load(self, pointer: Value, type: Type, cache: int = 1) -> Value:
        """What lies at a pointer, or a tensor of them; `cache` as in tt.load: 3 is in L2 only."""
        properties: dict[str, Attribute] = {
            "boundaryCheck": DenseArrayAttr(I32, ()),
            "cache": i32(cache),
            "evict": i32(1),
            "isVolatile": IntegerAttr(0, I1),
            "operandSegmentSizes": DenseArrayAttr(I32, (1, 0, 0)),
        }
        return self.create("tt.load", [pointer], [type], properties).result

    def compare(self, predicate: str, lhs: Value, rhs: Value) -> Value:
        """Signed or unsigned integer comparison; predicates as in arith.cmpi."""
        code = IntegerAttr(PREDICATES.index(predicate), I64)
        return self.create("arith.cmpi", [lhs, rhs], [I1], {"predicate": code}).result

    def select(self, condition: Value, yes: Value, no: Value) -> Value:
        return self.create("arith.select", [condition, yes, no], [yes.type]).result


Side = Callable[[Builder], Sequence[Value]]
"""What fills a side of a branch."""

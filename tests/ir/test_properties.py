"""Generated types, attributes, locations and modules come back as they were; damaged text gives only ReadError."""

from __future__ import annotations

import functools
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.roundtrip.cases import cases
from tests.roundtrip.stages import text_of
from wspec.ir import Block, Builder, Operation, ReadError, Region, Value, print_module, read
from wspec.ir.loc import UNKNOWN, CallSiteLoc, FileLoc, FusedLoc, Location, NameLoc, OpaqueLoc
from wspec.ir.types import (
    I32,
    SMEM,
    ArrayAttr,
    Attribute,
    DenseArrayAttr,
    DenseAttr,
    DictAttr,
    FloatAttr,
    FunctionType,
    IntegerAttr,
    Layout,
    MemDescType,
    OpaqueAttr,
    OpaqueType,
    PointerType,
    ScalarType,
    StringAttr,
    TensorDescType,
    TensorType,
    Type,
    TypeAttr,
    UnitAttr,
)
from wspec.ir.verify import verify

words = st.from_regex(r"[a-z_][a-z0-9_]{0,6}", fullmatch=True)
strings = st.text(st.characters(blacklist_categories=("Cs", "Cc")), max_size=8).map(
    lambda text: text.replace("\\", "\\\\").replace('"', "\\22")
)
attribute_names = words | strings.map(lambda text: f'"{text}"')
sizes = st.lists(st.integers(1, 256), min_size=0, max_size=4).map(tuple)
scalars = st.sampled_from(["i1", "i8", "ui8", "i32", "i64", "index", "bf16", "f16", "f32", "f64", "f8E5M2"]).map(
    ScalarType
)
field_values = st.recursive(
    st.integers(-64, 64) | st.booleans() | words.filter(lambda w: w not in ("true", "false")),
    lambda inner: st.lists(inner, max_size=3).map(tuple),
    max_leaves=4,
)
plain_layouts = st.builds(
    lambda name, fields, tail: Layout(f"ttg.{name}", tuple(fields.items()), tail),
    st.sampled_from(["blocked", "nvidia_mma", "linear", "nvmma_shared", "shared_linear", "unheard_of"]),
    st.dictionaries(words, field_values, max_size=3),
    st.sampled_from(["", ", alignment = 16"]),
)
layouts = st.recursive(
    plain_layouts,
    lambda inner: st.builds(
        lambda name, dim, parent: Layout(f"ttg.{name}", (("dim", dim), ("parent", parent))),
        st.sampled_from(["slice", "dot_op"]), st.integers(0, 3), inner,
    ),
    max_leaves=3,
)  # fmt: skip
opaque_types = st.sampled_from(["!ttg.async.token", "vector<4xf32>", '!odd.t<a -> [b], "<(">', "tensor<?x4xf32>"]).map(
    OpaqueType
)
elements = scalars | st.builds(PointerType, scalars, st.none() | st.integers(0, 7))
tensors = st.builds(TensorType, sizes, elements, st.none() | layouts)
types: st.SearchStrategy[Type] = st.recursive(
    scalars
    | opaque_types
    | tensors
    | st.builds(MemDescType, sizes, scalars, layouts, st.just(SMEM), st.booleans(), st.none() | sizes.filter(bool))
    | st.builds(TensorDescType, tensors),
    lambda inner: (
        st.builds(PointerType, inner, st.none() | st.integers(0, 7))
        | st.builds(FunctionType, st.lists(inner, max_size=2).map(tuple), st.lists(inner, max_size=2).map(tuple))
    ),
    max_leaves=3,
)
float_texts = st.sampled_from(["1.000000e+00", "-1.4e-45", "0x7FC00000", "0xFF800000", "0.1"])
numbers = st.integers(-(2**63), 2**63 - 1)
int_types = st.sampled_from(["i8", "i32", "i64", "index", "ui16"]).map(ScalarType)
attributes: st.SearchStrategy[Attribute] = st.recursive(
    st.builds(IntegerAttr, numbers, int_types)
    | st.builds(IntegerAttr, st.integers(0, 1), st.just(ScalarType("i1")))
    | st.builds(FloatAttr, float_texts, st.sampled_from(["f16", "f32", "bf16", "f64"]).map(ScalarType))
    | st.builds(StringAttr, strings)
    | st.builds(TypeAttr, types)
    | st.builds(DenseArrayAttr, int_types, st.lists(st.integers(-9, 9), max_size=3).map(tuple))
    | st.builds(DenseAttr, st.sampled_from(["0xFF800000", "[1, 2]", '"0x00"', ""]), tensors)
    | st.sampled_from(["@f", "#arith.overflow<none>", "affine_map<(d0) -> (d0)>", "#odd<\"}>\">"]).map(OpaqueAttr)
    | st.just(UnitAttr())
    | layouts,
    lambda inner: st.builds(ArrayAttr, st.lists(inner, max_size=3).map(tuple))
    | st.builds(DictAttr, st.dictionaries(attribute_names, inner, max_size=3).map(lambda d: tuple(d.items()))),
    max_leaves=6,
)  # fmt: skip
locations: st.SearchStrategy[Location] = st.recursive(
    st.just(UNKNOWN)
    | st.builds(FileLoc, strings, st.integers(0, 10**9), st.integers(0, 999))
    | st.builds(lambda text: OpaqueLoc(f'"{text}":1:2 to 3:4'), strings),
    lambda inner: (
        st.builds(NameLoc, strings, st.none() | inner)
        | st.builds(CallSiteLoc, inner, inner)
        | st.builds(FusedLoc, st.lists(inner, max_size=3).map(tuple), st.sampled_from(["", '"meta"', "unit"]))
    ),
    max_leaves=5,
)


def _module() -> tuple[Operation, Block]:
    region = Region()
    return Operation.create("builtin.module", regions=[region]), region.add_block()


def _again(module: Operation) -> Operation:
    """The only operation of the module, after printing and reading; the print must be stable too."""
    text = print_module(module)
    back = read(text)
    assert print_module(back) == text
    return back.regions[0].block.ops[0]


@given(types)
def test_types_come_back(type: Type) -> None:
    module, block = _module()
    Builder(block).create("t.op", [], [type, I32, type], {"type": TypeAttr(type)})
    op = _again(module)
    assert [value.type for value in op.results] == [type, I32, type]
    assert op.properties == {"type": TypeAttr(type)}


@given(st.dictionaries(words, attributes, max_size=3), st.dictionaries(words, attributes, max_size=3))
def test_attributes_come_back(properties: dict[str, Attribute], discardable: dict[str, Attribute]) -> None:
    module, block = _module()
    Builder(block).create("t.op", [], [], properties, discardable)
    op = _again(module)
    assert (op.properties, op.attributes) == (properties, discardable)
    assert list(op.properties) == list(properties)


@given(locations, locations)
def test_locations_come_back(first: Location, second: Location) -> None:
    module, block = _module()
    builder = Builder(block, location=first)
    region = Region()
    region.add_block().add_arg(I32, second)
    builder.create("t.op", regions=[region])
    op = _again(module)
    assert op.location == first
    assert op.regions[0].block.args[0].location == second


@st.composite
def modules(draw: st.DrawFn) -> Operation:
    """Modules of nested regions, with operands from everywhere, before and after."""
    module, block = _module()
    blocks, values, ops = [block], [], []
    for _ in range(draw(st.integers(1, 12))):
        where = draw(st.sampled_from(blocks))
        regions = [Region() for _ in range(draw(st.integers(0, 2)))]
        op = Builder(where).create("t.op", [], [I32] * draw(st.integers(0, 3)), regions=regions)
        ops.append(op)
        values += op.results
        for region in regions:
            for _ in range(draw(st.integers(0, 2))):
                inner = region.add_block()
                values += [inner.add_arg(I32) for _ in range(draw(st.integers(0, 2)))]
                blocks.append(inner)
    for op in ops:
        visible = [value for value in values if value.owner is not op and _encloses(value, op)]
        if visible:
            op.operands = draw(st.lists(st.sampled_from(visible), max_size=3))
        targets = op.parent.parent.blocks[1:] if op.parent is not None and op.parent.parent is not None else []
        if targets:  # control never goes back to an entry block
            op.successors = draw(st.lists(st.sampled_from(targets), max_size=2))
    return module


def _encloses(value: Value, op: Operation) -> bool:
    """Is the value's region one of those around the operation?"""
    block = value.owner.parent if isinstance(value.owner, Operation) else value.owner
    around = op.parent
    while around is not None and block is not None:
        if around.parent is block.parent:
            return True
        around = around.parent_op.parent if around.parent_op is not None else None
    return False


@given(modules())
def test_modules_come_back(module: Operation) -> None:
    text = print_module(module)
    assert print_module(read(text)) == text
    assert [op.name for op in read(text).walk()] == [op.name for op in module.walk()]


@given(modules())
def test_clones_print_alike(module: Operation) -> None:
    assert print_module(module.clone({})) == print_module(module)


# -------------------------------------------------------------------------------------------- damage


@functools.cache
def _real_text() -> str:
    case = next(case for case in cases() if case.name == "gemm_small")
    return text_of(case, "final")


def _damaged(seed: int) -> str:
    """Real text with a few characters or pieces removed, doubled, swapped or replaced."""
    rng = random.Random(seed)
    text = _real_text()
    for _ in range(rng.randint(1, 3)):
        start = rng.randrange(len(text))
        end = min(len(text), start + rng.choice((1, 1, 2, 5, 40)))
        other = rng.randrange(len(text) - 8)
        piece = rng.choice(("", text[start:end] * 2, text[other : other + 8], rng.choice('<>(){}[]"%#!^:,=-\\0é\n')))
        text = text[:start] + piece + text[end:]
    return text[: rng.randrange(len(text))] if rng.random() < 0.2 else text


@pytest.mark.parametrize("seed", range(0, 400, 20))
def test_damaged_text_is_refused_or_read_but_nothing_else_happens(seed: int) -> None:
    for number in range(seed, seed + 20):
        text = _damaged(number)
        try:
            module = read(text)
        except ReadError as error:
            assert 1 <= error.line <= text.count("\n") + 1 and error.column >= 1
            assert error.message and "\n" not in error.message
        else:
            printed = print_module(module)
            assert print_module(read(printed)) == printed
            assert all("\n" not in problem.message for problem in verify(module))


@settings(max_examples=300)
@given(st.text(st.sampled_from('"%#!^@<>(){}[]:,=->0123xif. \n\tloctensor\\'), max_size=40), st.booleans())
def test_any_text_at_all(text: str, inside: bool) -> None:
    try:
        read(f'"a"() {{x = {text}}} : () -> ()' if inside else text)
    except ReadError as error:
        assert error.line >= 1

"""Reading generic text: what is structured, what is kept as text, where values and aliases come from."""

from __future__ import annotations

import pytest

from wspec.ir import Operation, ReadError, print_module, read
from wspec.ir.loc import UNKNOWN, CallSiteLoc, FileLoc, FusedLoc, NameLoc, OpaqueLoc, file_loc, value_name
from wspec.ir.types import (
    F32,
    I1,
    I32,
    I64,
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

BLOCKED_TEXT = "#ttg.blocked<{sizePerThread = [1, 4], threadsPerWarp = [8, 4], warpsPerCTA = [4, 1], order = [1, 0]}>"
BLOCKED = Layout(
    "ttg.blocked",
    (("sizePerThread", (1, 4)), ("threadsPerWarp", (8, 4)), ("warpsPerCTA", (4, 1)), ("order", (1, 0))),
)
ROW = Layout("ttg.slice", (("dim", 1), ("parent", BLOCKED)))
F16 = ScalarType("f16")


def read_op(text: str, before: str = "") -> Operation:
    """The last operation of a module."""
    return read(before + "\n" + text).regions[0].block.ops[-1]


def read_type(text: str, before: str = "") -> Type:
    return read_op(f'%0 = "t.op"() : () -> {text}', before).result.type


def read_attr(text: str, before: str = "") -> Attribute:
    return read_op(f'"t.op"() <{{value = {text}}}> : () -> ()', before).properties["value"]


# ------------------------------------------------------------------------------------------------ types


@pytest.mark.parametrize(
    "text, expected",
    [
        ("i32", I32),
        ("ui8", ScalarType("ui8")),
        ("bf16", ScalarType("bf16")),
        ("f8E4M3FN", ScalarType("f8E4M3FN")),
        ("index", ScalarType("index")),
        ("!tt.ptr<f16>", PointerType(F16)),
        ("!tt.ptr<!tt.ptr<f16>, 3>", PointerType(PointerType(F16), 3)),
        ("tensor<f32>", TensorType((), F32)),
        ("tensor<128x64x!tt.ptr<f16>>", TensorType((128, 64), PointerType(F16))),
        (f"tensor<32xi1, #ttg.slice<{{dim = 1, parent = {BLOCKED_TEXT}}}>>", TensorType((32,), I1, ROW)),
        ("!tt.tensordesc<tensor<128x64xf16>>", TensorDescType(TensorType((128, 64), F16))),
        ("!tt.tensordesc<128x64xf16>", TensorDescType(TensorType((128, 64), F16))),
        ("() -> ()", FunctionType((), ())),
        ("(i32, f32) -> (i32, i64)", FunctionType((I32, F32), (I32, I64))),
    ],
)
def test_types(text: str, expected: Type) -> None:
    if isinstance(expected, FunctionType):
        assert read_attr(text) == TypeAttr(expected)
    else:
        assert read_type(text) == expected


def test_memdesc() -> None:
    shared = "#ttg.nvmma_shared<{swizzlingByteWidth = 128, transposed = false, elementBitWidth = 16}>"
    found = read_type(f"!ttg.memdesc<128x64xf16, {shared}, #smem, mutable, 3x128x64>", "#smem = #ttg.shared_memory")
    assert isinstance(found, MemDescType)
    assert (found.shape, found.mutable, found.alloc_shape) == ((128, 64), True, (3, 128, 64))
    assert isinstance(found.encoding, Layout) and found.encoding.get("transposed") is False
    assert found.memory_space == OpaqueAttr("#ttg.shared_memory")
    assert str(found) == f"!ttg.memdesc<128x64xf16, {shared}, #ttg.shared_memory, mutable, 3x128x64>"


@pytest.mark.parametrize(
    "text",
    [
        "!ttg.async.token",
        "!llvm.struct<(i32, ptr<1>, array<2 x f32>)>",
        "vector<4xf32>",
        "tensor<?x4xf32>",
        "tensor<*xf32>",
        "memref<4x?xf32, strided<[?, 1], offset: ?>>",
        "none",
        "tuple<i32, tuple<>>",
        '!odd.type<"<{(" -> [{}]>',
        "!ttg.memdesc<2xf32, future>",
    ],
)
def test_types_that_are_kept_as_text(text: str) -> None:
    assert read_type(text) == OpaqueType(text)


# ------------------------------------------------------------------------------------------- attributes


@pytest.mark.parametrize(
    "text, expected",
    [
        ("true", IntegerAttr(1, I1)),
        ("-7 : i32", IntegerAttr(-7, I32)),
        ("7", IntegerAttr(7, I64)),
        ("0x10 : i32", IntegerAttr(16, I32)),
        ("-9223372036854775808 : i64", IntegerAttr(-(2**63), I64)),
        ("1.000000e+00 : f32", FloatAttr("1.000000e+00", F32)),
        ("-1.4e-45 : f32", FloatAttr("-1.4e-45", F32)),
        ("0x7FC00000 : f32", FloatAttr("0x7FC00000", F32)),
        ("0xFF800000 : f32", FloatAttr("0xFF800000", F32)),
        ("2.5", FloatAttr("2.5", ScalarType("f64"))),
        ('"a \\22quoted\\22 // \\0A {-#"', StringAttr("a \\22quoted\\22 // \\0A {-#")),
        ("[]", ArrayAttr(())),
        ("[1 : i32, [unit]]", ArrayAttr((IntegerAttr(1, I32), ArrayAttr((UnitAttr(),))))),
        ("{}", DictAttr(())),
        ('{a, "b c" = 1 : i32}', DictAttr((("a", UnitAttr()), ('"b c"', IntegerAttr(1, I32))))),
        ("array<i32>", DenseArrayAttr(I32, ())),
        ("array<i32: 1, -2>", DenseArrayAttr(I32, (1, -2))),
        ("array<i1: true, false>", DenseArrayAttr(I1, (1, 0))),
        ("dense<0xFF800000> : tensor<4xf32>", DenseAttr("0xFF800000", TensorType((4,), F32))),
        ("dense<[[1, 2], [3, 4]]> : tensor<2x2xi32>", DenseAttr("[[1, 2], [3, 4]]", TensorType((2, 2), I32))),
        ('dense<"0x00FF"> : tensor<2xi8>', DenseAttr('"0x00FF"', TensorType((2,), ScalarType("i8")))),
        ("i32", TypeAttr(I32)),
        ("!tt.ptr<f32>", TypeAttr(PointerType(F32))),
    ],
)
def test_attributes(text: str, expected: Attribute) -> None:
    found = read_attr(text)
    assert found == expected
    assert read_attr(str(found)) == expected


@pytest.mark.parametrize(
    "text",
    [
        "@f",
        '@m::@"odd name"',
        "#arith.overflow<none>",
        "#ub.poison",
        '#dlti.dl_spec<i32 = dense<32> : vector<2xi64>, "dlti.endianness" = "little">',
        "affine_map<(d0, d1) -> (d0 + d1)>",
        "array<f32: 1.000000e+00, 0x7F800000>",
        "dense_resource<weights> : tensor<4xf32>",
        "distinct[0]<unit>",
        '"text" : !odd.string',
        '#odd.attr<a -> b, "->>", [1 : i32]> : i32',
        "#ttg.padded_shared<[16:+4] {order = [1, 0], shape = [32, 16]}>",
        'loc("a.py":1:2)',
    ],
)
def test_attributes_that_are_kept_as_text(text: str) -> None:
    assert read_attr(text) == OpaqueAttr(text)


@pytest.mark.parametrize(
    "text",
    [
        "#ttg.nvidia_mma<{versionMajor = 3, versionMinor = 0, warpsPerCTA = [4, 1], instrShape = [16, 64, 16]}>",
        f"#ttg.dot_op<{{opIdx = 0, parent = {BLOCKED_TEXT}, kWidth = 2}}>",
        "#ttg.linear<{register = [[0, 1], [8, 0]], lane = [], warp = [[16, 0]], block = []}>",
        "#ttg.swizzled_shared<{vec = 1, perPhase = 1, maxPhase = 1, order = [0]}>",
        "#ttg.shared_linear<{offset = [[0, 1], [1, 0]], block = []}, alignment = 16>",
    ],
)
def test_layouts(text: str) -> None:
    found = read_attr(text)
    assert isinstance(found, Layout)
    assert str(found) == text


def test_quoted_attribute_names_are_found_without_their_quotes() -> None:
    op = read_op('"t.op"() {"ttg.num-warps" = 4 : i32, plain} : () -> ()')
    assert op.int_attr("ttg.num-warps") == op.int_attr('"ttg.num-warps"') == 4
    assert op.attr("plain") == UnitAttr() and op.attr("absent") is None


# ---------------------------------------------------------------------------------------------- aliases


def test_aliases_may_follow_their_uses_and_use_each_other() -> None:
    text = '%0 = "t.op"() : () -> !t\n#row = #ttg.slice<{dim = 1, parent = #base}>\n'
    text += f"!t = tensor<32xi1, #row>\n#base = {BLOCKED_TEXT}"
    assert read(text).regions[0].block.ops[0].result.type == TensorType((32,), I1, ROW)


def test_aliases_inside_opaque_text_are_written_out() -> None:
    before = f'#base = {BLOCKED_TEXT}\n!t = tensor<2xi32>\n#loc = loc("a.py":1:2)\n'
    assert read_attr('#odd<#base, !t, "#base", #other.x, #loc>', before) == OpaqueAttr(
        f'#odd<{BLOCKED_TEXT}, tensor<2xi32>, "#base", #other.x, loc("a.py":1:2)>'
    )
    assert read_type("!odd.type<!t>", before) == OpaqueType("!odd.type<tensor<2xi32>>")


def test_equal_texts_give_the_same_object() -> None:
    module = read('%0 = "t.op"() : () -> tensor<4xf32>\n%1 = "t.op"(%0) : (tensor<4xf32>) -> tensor<4xf32>')
    first, second = module.regions[0].block.ops
    assert first.result.type is second.result.type


# -------------------------------------------------------------------------------------------- locations


def test_locations() -> None:
    text = """
"a"() : () -> () loc(#loc3)
"b"() : () -> () loc(callsite(#loc2 at "c.py":3:4))
"c"() : () -> () loc(fused<"pass">["x", unknown, #loc])
"d"() : () -> () loc("a.py":1:2 to 5:6)
"e"() : () -> () loc(#dialect.loc<#loc>)
"f"() : () -> ()
"g"() : () -> () loc(unknown)
#loc = loc("a.py":1:2)
#loc2 = loc("x \\"y\\""(#loc))
#loc3 = loc(callsite(#loc2 at #loc))
"""
    found = [op.location for op in read(text).regions[0].block.ops]
    place = FileLoc("a.py", 1, 2)
    named = NameLoc('x \\"y\\"', place)
    assert found == [
        CallSiteLoc(named, place),
        CallSiteLoc(named, FileLoc("c.py", 3, 4)),
        FusedLoc((NameLoc("x", None), UNKNOWN, place), '"pass"'),
        OpaqueLoc('"a.py":1:2 to 5:6'),
        OpaqueLoc('#dialect.loc<loc("a.py":1:2)>'),
        UNKNOWN,
        UNKNOWN,
    ]
    assert (file_loc(found[1]), value_name(found[0])) == (FileLoc("c.py", 3, 4), 'x \\"y\\"')
    assert print_module(read(print_module(read(text)))) == print_module(read(text))


def test_places_in_the_text_stand_in_for_locations() -> None:
    module = read(
        '// a comment\n"a"() : () -> ()\n  %0 = "b"() : () -> i32 loc(unknown)\n "c"() : () -> ()', file="x.mlir"
    )
    found = [op.location for op in module.regions[0].block.ops]
    assert found == [FileLoc("x.mlir", 2, 1), UNKNOWN, FileLoc("x.mlir", 4, 2)]


# ------------------------------------------------------------------------------------ operations, regions


def test_results_operands_and_forward_references() -> None:
    text = """
"f.func"() ({
^entry(%a: i32):
  "cf.br"()[^later] : () -> ()
^use:
  "t.use"(%p#1, %p, %two) : (f32, i32, i64) -> ()
^later:
  %p:2, %two = "t.make"(%a) : (i32) -> (i32, f32, i64)
  "cf.br"()[^use] : () -> ()
}) : () -> ()
"""
    function = read(text).regions[0].block.ops[0]
    entry, use, later = function.regions[0].blocks
    make = later.ops[0]
    assert use.ops[0].operands == [make.results[1], make.results[0], make.results[2]]
    assert entry.ops[0].successors == [later] and later.ops[1].successors == [use]
    assert make.operands == entry.args and make.results[2].index == 2


def test_names_may_be_used_again_in_sibling_regions_and_isolated_operations() -> None:
    text = """
"tt.func"() ({
^bb0(%x: i32):
  "scf.if"(%x) ({
    %0 = "t.a"(%x) : (i32) -> i32
  }, {
    %0 = "t.b"(%x) : (i32) -> f32
    "t.c"(%0) : (f32) -> ()
  }) : (i32) -> ()
  "ttg.warp_specialize.partitions"() ({
  ^bb0(%x: f32):
    "t.d"(%x) : (f32) -> ()
  }) : () -> ()
  %0 = "t.e"(%x) : (i32) -> i64
}) : () -> ()
"""
    module = read(text)
    inner = next(op for op in module.walk() if op.name == "t.d")
    assert inner.operands[0].type == F32
    assert print_module(read(print_module(module))) == print_module(module)


def test_empty_regions_differ_from_empty_blocks() -> None:
    op = read_op('"t.op"() ({\n}, {\n^bb0:\n}) {a} : () -> ()')
    assert [len(region.blocks) for region in op.regions] == [0, 1]
    assert print_module(op, locations=False) == '"t.op"() ({\n}, {\n^bb0:\n}) {a} : () -> ()\n'


def test_one_module_is_not_wrapped_and_resources_travel() -> None:
    text = '"builtin.module"() ({\n}) : () -> ()\n\n{-#\n  dialect_resources: {\n    builtin: { w: "0x08" }\n  }\n#-}\n'
    module = read(text)
    assert module.name == "builtin.module" and module.regions[0].blocks == []
    assert print_module(module, locations=False) == text


# ----------------------------------------------------------------------------------------------- errors


@pytest.mark.parametrize(
    "text, line, column, message",
    [
        ("", 1, 1, "expected an operation, found the end of the text"),
        ("module {\n}", 1, 1, "expected an operation in generic form (a quoted name), found 'module'"),
        ("\n  func.func @f()", 2, 3, "expected an operation in generic form (a quoted name), found 'func.func'"),
        ("%0 = tt.load %1", 1, 6, "expected an operation, found 'tt.load'"),
        ('"a"(%0) : () -> ()', 1, 5, "a has 1 operands but 0 operand types"),
        ('"a"(%0) : (i32) -> ()', 1, 5, "use of undefined value %0"),
        ('"a"(7) : (i32) -> ()', 1, 5, "expected an operand such as '%0', found '7'"),
        ('%0 = "a"() : () -> i32\n%0 = "a"() : () -> i32', 2, 1, "redefinition of value %0"),
        ('%0 = "a"() : () -> i32\n"b"(%0) : (f32) -> ()', 2, 5, "operand 0 (%0) has type i32 but is used as f32"),
        ('%0 = "a"() : () -> i32\n"b"(%0#1) : (i32) -> ()', 2, 5, "value %0 has 1 results; there is no #1"),
        ('%0:2 = "a"() : () -> i32', 1, 1, "a has 1 result types but names 2 results"),
        ('"a"() : () -> ()\n"b"() -> ()', 2, 7, "expected ':', found '-'"),
        ('"a"() <{x = }> : () -> ()', 1, 13, "expected an attribute, found '}'"),
        ('"a"() <{x = 1, x = 2}> : () -> ()', 1, 16, "attribute x is given twice"),
        ('"a"() <{x = #y}> : () -> ()', 1, 13, "undefined attribute alias #y"),
        ('"a"() : () -> !y', 1, 15, "undefined type alias !y"),
        ('"a"() : () -> tensor<4xf32, #y>', 1, 29, "undefined attribute alias #y"),
        ('"a"() : () -> !tt.ptr<tensor<4xf32, #y>>', 1, 37, "undefined attribute alias #y"),
        ('"a"() : () -> tensor<4x>', 1, 24, "expected a type, found '>'"),
        ('"a"() : () -> tensor<4xf32', 1, 27, "expected '>', found the end of the text"),
        ('"a"() : () -> vector<4xf32', 1, 21, "'<' is never closed"),
        ('"a"() : () -> vector<(4>', 1, 24, "unbalanced '>'"),
        ('"a"() : () -> () loc(#l)', 1, 22, "undefined location alias #l"),
        ('"a"() : () -> () loc("x":1)', 1, 27, "expected ':', found ')'"),
        ('"a"() <{x = "abc}> : () -> ()', 1, 13, "expected a string closed on its line, found '\"abc'"),
        ("#a = #b\n#b = #a", 1, 5, "alias #a is defined by itself"),
        ("#a = i32\n#a = i64", 1, 1, "alias #a is defined twice"),
        ('"a"() ({\n"b"() : () -> ()', 2, 17, "expected '}' at the end of a region, found the end of the text"),
        ('"a"() ({\n^x:\n^x:\n}) : () -> ()', 3, 1, "redefinition of block ^x"),
        ('"a"() ({\n"b"()[^x] : () -> ()\n}) : () -> ()', 2, 7, "block ^x is used but not defined"),
        ('"a"() {x = ' + "1" * 2000 + " : i32} : () -> ()", 1, 2018, "integer is too long"),
    ],
)
def test_errors_say_where_and_what(text: str, line: int, column: int, message: str) -> None:
    with pytest.raises(ReadError) as caught:
        read(text)
    assert (caught.value.line, caught.value.column, caught.value.message) == (line, column, message)
    assert str(caught.value) == f"{line}:{column}: {message}"


@pytest.mark.parametrize("text", ['"a"() {x = ' + "[" * 5000, '"a"() ({' * 2000, "tensor<" * 3000, "#a = " * 10])
def test_hopeless_text(text: str) -> None:
    with pytest.raises(ReadError):
        read(text)


def test_a_name_that_is_none() -> None:
    with pytest.raises(ReadError, match="is no operation's name"):
        read('%0 = "t.o}p"() : () -> i32')

"""Which dimensions of which values replicas share, and where that ends."""

from __future__ import annotations

import pytest

from tests.support.programs import function, op_at, program, value_at
from wspec.ir.core import Operation
from wspec.ir.loc import value_name
from wspec.ir.shapes import DOTS, shape_of, unit_dim_pairs
from wspec.passes.data_partition.slicing import Conflict, Slicing, group, privatize_leaves, slice_rows


def loop(body: str, result: str, after: str = "") -> Operation:
    """A function with a loop that starts with zero and yields `result`, an accumulator."""
    return function(f"""
    %sum = "scf.for"(%c0, %n, %c64, %zero) ({{
    ^bb1(%i: i32 loc("i"), %acc: !acc loc("acc")):
      %x = "tt.descriptor_load"(%a, %c0, %i) @LOAD : (!desc, i32, i32) -> !tile loc("x")
      %x_s = "ttg.local_alloc"(%x) : (!tile) -> !buffer loc("x_s")
      %y = "tt.descriptor_load"(%b, %i, %c0) @LOAD : (!desc64, i32, i32) -> !tile64 loc("y")
      %y_s = "ttg.local_alloc"(%y) : (!tile64) -> !buffer64 loc("y_s")
      %dot = "ttng.warp_group_dot"(%x_s, %y_s, %acc) @DOT : (!buffer, !buffer64, !acc) -> !acc loc("dot")
      {body}
      "scf.yield"({result}) : (!acc) -> ()
    }}) : (i32, i32, i32, !acc) -> !acc loc("sum")
    {after}
""")


DOT_AND_LOAD = """
      %x = "tt.descriptor_load"(%a, %c0, %c0) @LOAD : (!desc, i32, i32) -> !tile loc("x")
      %x_s = "ttg.local_alloc"(%x) : (!tile) -> !buffer loc("x_s")
      %y = "tt.descriptor_load"(%b, %c0, %c0) @LOAD : (!desc64, i32, i32) -> !tile64 loc("y")
      %y_s = "ttg.local_alloc"(%y) : (!tile64) -> !buffer64 loc("y_s")
      %dot = "ttng.warp_group_dot"(%x_s, %y_s, %zero) @DOT : (!buffer, !buffer64, !acc) -> !acc loc("dot")
      %z = "tt.descriptor_load"(%other, %c0, %c0) @LOAD : (!desc, i32, i32) -> !tile loc("z")
"""


def sliced(root: Operation, replicas: int = 2, rows: int = 64) -> dict[str, int] | Conflict:
    """Name -> sliced dimension, of the values that have names."""
    body = root.regions[0].block
    privatize_leaves(body)
    dots = [op for op in root.walk() if op.name in DOTS]
    found = slice_rows(body, dots, replicas, rows)
    if isinstance(found, Conflict):
        return found
    assert isinstance(found, Slicing)
    names = {value: value_name(value.location if value.op is None else value.op.location) for value in found.dims}
    return {name: found.dims[value] for value, name in names.items() if name is not None}


def conflict(root: Operation, replicas: int = 2) -> tuple[str, str]:
    """(name or kind of the operation, why)."""
    found = sliced(root, replicas)
    assert isinstance(found, Conflict), found
    return value_name(found.op.location) or found.op.name, found.why


# ----------------------------------------------------------------------------------------------- what goes along


def test_rows_of_a_product_are_rows_of_its_left_operand() -> None:
    found = sliced(loop("", "%dot"))
    assert found == {"zero": 0, "sum": 0, "acc": 0, "x": 0, "x_s": 0, "dot": 0, "a": 0}


def test_a_descriptor_that_is_sliced_for_another_reason() -> None:
    """Its tiles have nothing to do with the dot; or their rows are what the dot sums over, and cannot be sliced."""
    root = function(DOT_AND_LOAD, "%a: !desc; %b: !desc64; %other: !desc; %n: i32")
    body = root.regions[0].block
    dots = [op for op in root.walk() if op.name in DOTS]
    left, right, load = (op for op in root.walk() if op.name == "tt.descriptor_load")
    for sliced, dim in (([], None), ([(load.operands[0], 0)], 0)):
        found = slice_rows(body, dots, 2, 64, sliced)
        assert isinstance(found, Slicing) and found.dim(load.result) == dim and found.dim(left.result) == 0
    assert isinstance(slice_rows(body, dots, 2, 64, [(right.operands[0], 0)]), Conflict)


def test_a_dot_that_feeds_a_dot_shares_its_rows() -> None:
    names = ("q_desc", "q", "s", "e", "half", "p", "o", "out", "o_desc")
    found = sliced(program("chain"), rows=32)
    assert isinstance(found, dict)
    assert {name: found.get(name) for name in names} == dict.fromkeys(names, 0)
    assert not {"k", "k_s", "k_t", "v", "v_s"} & set(found)


def test_row_statistics_are_sliced_and_broadcast_back() -> None:
    found = sliced(
        loop(
            """
      %top = "tt.reduce"(%dot) <{axis = 1 : i32}> ({
      ^bb2(%l: f32, %r: f32):
        %m = "arith.maxnumf"(%l, %r) @FAST : (f32, f32) -> f32
        "tt.reduce.return"(%m) : (f32) -> ()
      }) : (!acc) -> !row loc("top")
      %wide = "tt.expand_dims"(%top) <{axis = 1 : i32}> : (!row) -> !thin loc("wide")
      %all = "tt.broadcast"(%wide) : (!thin) -> !acc loc("all")
      %less = "arith.subf"(%dot, %all) @FAST : (!acc, !acc) -> !acc loc("less")
""",
            "%less",
        )
    )
    assert isinstance(found, dict)
    assert {name: found[name] for name in ("top", "wide", "all", "less")} == dict.fromkeys(
        ("top", "wide", "all", "less"), 0
    )


def test_a_transposed_left_operand_is_sliced_in_its_second_dimension() -> None:
    root = function(
        """
    %x = "tt.descriptor_load"(%a, %c0, %c0) @LOAD : (!wide_desc, i32, i32) -> !wide loc("x")
    %x_s = "ttg.local_alloc"(%x) : (!wide) -> !wide_buffer loc("x_s")
    %x_t = "ttg.memdesc_trans"(%x_s) <{order = array<i32: 1, 0>}> : (!wide_buffer) -> !wide_turned loc("x_t")
    %y = "tt.descriptor_load"(%b, %c0, %c0) @LOAD : (!desc64, i32, i32) -> !tile64 loc("y")
    %y_s = "ttg.local_alloc"(%y) : (!tile64) -> !buffer64 loc("y_s")
    %dot = "ttng.warp_group_dot"(%x_t, %y_s, %zero) @DOT : (!wide_turned, !buffer64, !acc) -> !acc loc("dot")
""",
        "%a: !wide_desc; %b: !desc64; %n: i32",
    )
    found = sliced(root)
    assert isinstance(found, dict)
    assert (found["x_t"], found["x_s"], found["x"], found["a"]) == (0, 1, 1, 1)


def test_dimensions_of_size_one_do_not_count() -> None:
    """A descriptor with more dimensions than the tile that is loaded through it."""
    root = function(
        """
    %x = "tt.descriptor_load"(%a, %c0, %c0, %c0) @LOAD : (!deep_desc, i32, i32, i32) -> !tile loc("x")
    %x_s = "ttg.local_alloc"(%x) : (!tile) -> !buffer loc("x_s")
    %y = "tt.descriptor_load"(%b, %c0, %c0) @LOAD : (!desc64, i32, i32) -> !tile64 loc("y")
    %y_s = "ttg.local_alloc"(%y) : (!tile64) -> !buffer64 loc("y_s")
    %dot = "ttng.warp_group_dot"(%x_s, %y_s, %zero) @DOT : (!buffer, !buffer64, !acc) -> !acc loc("dot")
""",
        "%a: !deep_desc; %b: !desc64; %n: i32",
    )
    found = sliced(root)
    assert isinstance(found, dict)
    assert (found["x"], found["a"]) == (0, 1)


def test_uses_of_one_constant_do_not_hang_together() -> None:
    """The zeros an accumulator starts with are sliced, the same zeros beside a column are not."""
    root = loop(
        """
      %low = "arith.maxnumf"(%dot, %zero) @FAST : (!acc, !acc) -> !acc loc("low")
""",
        "%low",
    )
    before = sum(op.name == "arith.constant" for op in root.walk())
    privatize_leaves(root.regions[0].block)
    assert sum(op.name == "arith.constant" for op in root.walk()) == before + 2
    assert isinstance(sliced(root), dict)


# ---------------------------------------------------------------------------------------------------- conflicts


def test_too_few_rows() -> None:
    assert conflict(loop("", "%dot"), 4) == ("dot", "a tile of 128 rows does not give 4 replicas 64 rows each")
    assert conflict(loop("", "%dot"), 3)[0] == "dot"


def test_rows_that_are_reduced_over() -> None:
    root = loop(
        "",
        "%dot",
        """
    %column = "tt.reduce"(%sum) <{axis = 0 : i32}> ({
    ^bb2(%l: f32, %r: f32):
      %m = "arith.addf"(%l, %r) @FAST : (f32, f32) -> f32
      "tt.reduce.return"(%m) : (f32) -> ()
    }) : (!acc) -> !column loc("column")
""",
    )
    name, why = conflict(root)
    assert name == "column" and why.endswith("is reduced over")


def test_rows_that_become_an_inner_dimension() -> None:
    """A second dot sums over the rows of the first one's result."""
    root = loop(
        "",
        "%dot",
        """
    %zero64 = "arith.constant"() <{value = dense<0.000000e+00> : !acc64}> : () -> !acc64
    %half = "arith.truncf"(%sum) : (!acc) -> tensor<128x64xf16, #mma> loc("half")
    %flat = "tt.trans"(%half) <{order = array<i32: 1, 0>}> : (tensor<128x64xf16, #mma>) -> !wide loc("flat")
    %l = "ttg.local_alloc"(%flat) : (!wide) -> !wide_buffer loc("l")
    %z = "tt.descriptor_load"(%a, %c0, %c0) @LOAD : (!desc, i32, i32) -> !tile loc("z")
    %r = "ttg.local_alloc"(%z) : (!tile) -> !buffer loc("r")
    %inner = "ttng.warp_group_dot"(%l, %r, %zero64) @DOT : (!wide_buffer, !buffer, !acc64) -> !acc64 loc("inner")
""",
    )
    found = sliced(root, rows=32)
    assert isinstance(found, Conflict)
    assert value_name(found.op.location) == "inner" and found.why.endswith("is the inner dimension of a dot")


@pytest.mark.parametrize(
    ("operation", "why"),
    [
        (
            '%odd = "tt.reshape"(%sum) : (!acc) -> tensor<64x128xf32, #blocked> loc("odd")',
            "goes through tt.reshape",
        ),
        (
            '%odd = "tt.gather"(%sum, %index) <{axis = 0 : i32}> : (!acc, tensor<128x64xi32, #mma>) -> !acc loc("odd")',
            "goes through tt.gather",
        ),
        ('%odd = "strange.op"(%sum) : (!acc) -> !acc loc("odd")', "goes through strange.op"),
    ],
)
def test_operations_that_do_not_keep_a_slice_a_slice(operation: str, why: str) -> None:
    index = (
        '%index = "arith.constant"() <{value = dense<0> : tensor<128x64xi32, #mma>}> : () -> tensor<128x64xi32, #mma>'
    )
    name, found = conflict(loop("", "%dot", f"{index}\n    {operation}"))
    assert name == "odd" and found.endswith(why)


def test_a_constant_that_is_not_one_value_repeated() -> None:
    rows = ", ".join(f"{i}.0" for i in range(128))
    root = loop(
        "",
        "%dot",
        f"""
    %each = "arith.constant"() <{{value = dense<[{rows}]> : !row}}> : () -> !row loc("each")
    %wide = "tt.expand_dims"(%each) <{{axis = 1 : i32}}> : (!row) -> !thin loc("wide")
    %all = "tt.broadcast"(%wide) : (!thin) -> !acc loc("all")
    %more = "arith.addf"(%sum, %all) @FAST : (!acc, !acc) -> !acc loc("more")
""",
    )
    assert conflict(root)[0] == "each"


SQUARE = """
    %none = "arith.constant"() <{value = dense<0.000000e+00> : !square}> : () -> !square loc("none")
    %x = "tt.descriptor_load"(%a, %c0, %c0) @LOAD : (!desc, i32, i32) -> !tile loc("x")
    %x_s = "ttg.local_alloc"(%x) : (!tile) -> !buffer loc("x_s")
    %y = "tt.descriptor_load"(@OTHER, %c0, %c0) @LOAD : (!desc, i32, i32) -> !tile loc("y")
    %y_s = "ttg.local_alloc"(%y) : (!tile) -> !buffer loc("y_s")
    %y_t = "ttg.memdesc_trans"(%y_s) <{order = array<i32: 1, 0>}> : (!buffer) -> !turned loc("y_t")
    %dot = "ttng.warp_group_dot"(%x_s, %y_t, %none) @DOT : (!buffer, !turned, !square) -> !square loc("dot")
"""
TWO = "%a: !desc; %b: !desc; %n: i32"


def test_a_product_of_two_matrices_with_as_many_rows() -> None:
    found = sliced(function(SQUARE.replace("@OTHER", "%b"), TWO))
    assert isinstance(found, dict)
    assert (found["dot"], found["x"], found.get("y")) == (0, 0, None)


def test_both_dimensions_of_one_value() -> None:
    """A product added to its own transpose."""
    turned = """
    %flat = "tt.trans"(%dot) <{order = array<i32: 1, 0>}> : (!square) -> !square_blocked loc("flat")
    %back = "ttg.convert_layout"(%flat) : (!square_blocked) -> !square loc("back")
    %both = "arith.addf"(%dot, %back) @FAST : (!square, !square) -> !square loc("both")
"""
    _, why = conflict(function(SQUARE.replace("@OTHER", "%b") + turned, TWO))
    assert why == "both dimensions of one value would have to be sliced"


def test_one_descriptor_has_one_box() -> None:
    """What is loaded sliced and what is loaded whole cannot come through one descriptor."""
    _, why = conflict(function(SQUARE.replace("@OTHER", "%a"), TWO))
    assert why == "both dimensions of one value would have to be sliced"


# ------------------------------------------------------------------------------------------------------- pieces


@pytest.mark.parametrize(
    ("a", "b", "pairs"),
    [
        ((128, 64), (128, 64), [(0, 0), (1, 1)]),
        ((1, 1, 128, 64), (128, 64), [(2, 0), (3, 1)]),
        ((128, 64), (1, 128, 1, 64), [(0, 1), (1, 3)]),
        ((64, 128), (128, 64), None),
        ((8192,), (128, 64), None),
        ((1, 1), (), []),
    ],
)
def test_unit_dim_pairs(a: tuple[int, ...], b: tuple[int, ...], pairs: list[tuple[int, int]] | None) -> None:
    assert unit_dim_pairs(a, b) == pairs


def test_groups_are_the_same_whichever_way_they_are_joined() -> None:
    root = loop("", "%dot")
    groups = group(root.regions[0].block.walk())
    dot, x, y = (value_at(root, name) for name in ("dot", "x", "y"))
    assert groups.find((dot, 0)) == groups.find((x, 0))
    assert groups.find((dot, 1)) == groups.find((y, 1))
    assert groups.find((dot, 0)) != groups.find((dot, 1))
    reason = groups.reason((x, 1))
    assert reason is not None and reason[0] is op_at(root, "dot")
    assert groups.reason((dot, 0)) is None


def test_shapes() -> None:
    root = loop("", "%dot")
    assert shape_of(value_at(root, "a").type) == shape_of(value_at(root, "x_s").type) == (128, 64)
    assert shape_of(value_at(root, "n").type) == ()

"""Layouts on fewer warps: the slice is covered once, by all the warps that are left, the same way everywhere."""

from __future__ import annotations

import itertools

import pytest

from tests.support.programs import TYPES
from wspec import bridge
from wspec.ir import print_module, read
from wspec.ir.core import Operation
from wspec.ir.types import Layout, MemDescType, TensorDescType, TensorType
from wspec.plan.layouts import LayoutError, shrink_layout, shrink_type

BLOCKED = "#ttg.blocked<{sizePerThread = [1, 8], threadsPerWarp = [4, 8], warpsPerCTA = [8, 1], order = [1, 0]}>"
SPREAD = "#ttg.blocked<{sizePerThread = [1, 8], threadsPerWarp = [4, 8], warpsPerCTA = [2, 4], order = [1, 0]}>"
MMA = "#ttg.nvidia_mma<{versionMajor = 3, versionMinor = 0, warpsPerCTA = [8, 1], instrShape = [16, 64, 16]}>"
MMA_16 = "#ttg.nvidia_mma<{versionMajor = 3, versionMinor = 0, warpsPerCTA = [8, 2], instrShape = [16, 64, 16]}>"
MMA_WIDE = "#ttg.nvidia_mma<{versionMajor = 3, versionMinor = 0, warpsPerCTA = [4, 2], instrShape = [16, 32, 16]}>"
LINEAR = (
    "#ttg.linear<{register = [[0, 1], [0, 2], [0, 4], [32, 0]], lane = [[0, 8], [0, 16], [0, 32], [1, 0], [2, 0]], "
    "warp = [[4, 0], [8, 0], [16, 0]], block = []}>"
)
ROWS_ON_WARPS = (
    "#ttg.linear<{register = [[0, 1], [0, 2], [0, 4], [4, 0]], lane = [[0, 8], [0, 16], [0, 32], [1, 0], [2, 0]], "
    "warp = [[8, 0], [16, 0], [32, 0]], block = []}>"
)


def tensor(shape: tuple[int, ...], layout: str) -> TensorType:
    """A tensor type from the text of its layout."""
    module = read(f"{TYPES}\n{_constant('x'.join(map(str, shape)), layout, 8)}")
    type = next(op for op in module.walk() if op.name == "arith.constant").result.type
    assert isinstance(type, TensorType)
    return type


def _constant(shape: str, layout: str, warps: int) -> str:
    type = f"tensor<{shape}xf32, {layout}>"
    return f"""
"builtin.module"() ({{
  "tt.func"() <{{function_type = () -> (), sym_name = "f", sym_visibility = "public"}}> ({{
    %0 = "arith.constant"() <{{value = dense<0.000000e+00> : {type}}}> : () -> {type}
    "tt.return"() : () -> ()
  }}) {{noinline = false}} : () -> ()
}}) {{"ttg.num-ctas" = 1 : i32, "ttg.num-warps" = {warps} : i32, "ttg.threads-per-warp" = 32 : i32}} : () -> ()
"""


def assert_triton_takes(type: TensorType, warps: int) -> None:
    """libtriton holds a type against the number of warps, and a linear layout against the shape."""
    text = _constant("x".join(map(str, type.shape)), str(type.encoding), warps)
    bridge.text.verify(bridge.reparse(text))


CASES = [
    ("blocked", (128, 64), BLOCKED, 8),
    ("spread", (128, 128), SPREAD, 8),
    ("mma", (128, 64), MMA, 8),
    ("mma_16_warps", (128, 128), MMA_16, 16),
    ("linear", (64, 64), LINEAR, 8),
    ("rows_on_warps", (64, 64), ROWS_ON_WARPS, 8),
    ("operand", (128, 64), f"#ttg.dot_op<{{opIdx = 0, parent = {MMA}, kWidth = 2}}>", 8),
    ("rows", (128,), f"#ttg.slice<{{dim = 1, parent = {MMA}}}>", 8),
    ("rows_of_blocked", (128,), f"#ttg.slice<{{dim = 1, parent = {BLOCKED}}}>", 8),
    ("rows_of_linear", (64,), f"#ttg.slice<{{dim = 1, parent = {LINEAR}}}>", 8),
]


@pytest.mark.parametrize(("shape", "layout", "warps"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
@pytest.mark.parametrize("sliced", [True, False])
def test_what_is_left_is_a_layout_of_four_warps(shape: tuple[int, ...], layout: str, warps: int, sliced: bool) -> None:
    before = tensor(shape, layout)
    assert_triton_takes(before, warps)
    after = shrink_type(before, 0 if sliced else None, 2, warps // 4)
    assert isinstance(after, TensorType)
    assert after.shape == ((shape[0] // 2, *shape[1:]) if sliced else shape)
    assert after.element == before.element
    assert_triton_takes(after, 4)


COLUMNS = [("columns", (64,), f"#ttg.slice<{{dim = 0, parent = {MMA}}}>"), ("narrow", (64, 128), BLOCKED)]


@pytest.mark.parametrize(("shape", "layout"), [case[1:] for case in COLUMNS], ids=[case[0] for case in COLUMNS])
def test_the_dimension_that_is_sliced_may_be_hidden_or_last(shape: tuple[int, ...], layout: str) -> None:
    whole = shrink_type(tensor(shape, layout), None, 2, 2)
    assert isinstance(whole, TensorType) and whole.shape == shape
    assert_triton_takes(whole, 4)


def test_a_tile_on_warps_of_its_own_number_changes_its_shape_only() -> None:
    before = tensor((128, 64), MMA)
    after = shrink_type(before, 0, 2, 1)
    assert isinstance(after, TensorType) and after.encoding == before.encoding


@pytest.mark.parametrize(("layout", "warps"), [(MMA, 8), (MMA_16, 16), (MMA_WIDE, 8)])
def test_a_warp_group_keeps_64_rows_that_follow_each_other(layout: str, warps: int) -> None:
    after = shrink_type(tensor((128, 128), layout), 0, 2, warps // 4)
    assert isinstance(after, TensorType) and isinstance(after.encoding, Layout)
    assert after.encoding.ints("warpsPerCTA") == (4, 1)


def test_a_layout_and_the_layouts_made_of_it_stay_one_family() -> None:
    """What was the layout of rows of a tile before is so after; conversions that were free stay free."""
    for layout in (MMA, BLOCKED, LINEAR):
        parent = shrink_layout(_layout(layout), 0, 128, 2, 2)
        rows = shrink_layout(_layout(f"#ttg.slice<{{dim = 1, parent = {layout}}}>"), 0, 128, 2, 2)
        assert isinstance(rows, Layout) and rows.parent == parent
    operand = shrink_layout(_layout(f"#ttg.dot_op<{{opIdx = 0, parent = {MMA}, kWidth = 2}}>"), 0, 128, 2, 2)
    assert isinstance(operand, Layout) and operand.parent == shrink_layout(_layout(MMA), 0, 128, 2, 2)


def _layout(text: str) -> Layout:
    encoding = tensor((128, 64), text).encoding
    assert isinstance(encoding, Layout)
    return encoding


@pytest.mark.parametrize("sliced", [True, False])
@pytest.mark.parametrize("layout", [LINEAR, ROWS_ON_WARPS])
def test_a_linear_layout_covers_the_slice_once(layout: str, sliced: bool) -> None:
    shape = (64, 64)
    after = shrink_layout(_layout(layout), 0 if sliced else None, shape[0], 2, 2)
    assert isinstance(after, Layout)
    held = list(_elements(after))
    rows = shape[0] // 2 if sliced else shape[0]
    assert sorted(held) == list(itertools.product(range(rows), range(shape[1])))
    assert len(_bases(after, "warp")) == 2 and len(_bases(after, "lane")) == 5


def _bases(layout: Layout, name: str) -> list[tuple[int, int]]:
    value = layout.get(name)
    assert isinstance(value, tuple)
    return [(int(str(basis[0])), int(str(basis[1]))) for basis in value if isinstance(basis, tuple)]


def _elements(layout: Layout) -> list[tuple[int, int]]:
    """The element each (register, lane, warp) holds: the exclusive or of the bases of its bits."""
    bases = [basis for name in ("register", "lane", "warp") for basis in _bases(layout, name)]
    found = []
    for bits in itertools.product((0, 1), repeat=len(bases)):
        row = column = 0
        for bit, basis in zip(bits, bases, strict=True):
            row, column = row ^ bit * basis[0], column ^ bit * basis[1]
        found.append((row, column))
    return found


# -------------------------------------------------------------------------------------- shared memory, descriptors


def memory(kind: str) -> TensorDescType | MemDescType:
    text = print_module(_holder(kind))
    (value,) = next(op for op in read(text).walk() if op.name == "tt.func").regions[0].block.args
    assert isinstance(value.type, TensorDescType | MemDescType)
    return value.type


def _holder(kind: str) -> Operation:
    return read(f"""{TYPES}
"builtin.module"() ({{
  "tt.func"() <{{function_type = ({kind}) -> (), sym_name = "f", sym_visibility = "public"}}> ({{
  ^bb0(%x: {kind}):
    "tt.return"() : () -> ()
  }}) {{noinline = false}} : () -> ()
}}) : () -> ()
""")


def test_buffers_and_boxes_are_cut() -> None:
    buffer = shrink_type(memory("!buffer"), 0, 2, 2)
    assert isinstance(buffer, MemDescType) and buffer.shape == (64, 64)
    box = shrink_type(memory("!desc"), 0, 2, 1)
    assert isinstance(box, TensorDescType) and box.block.shape == (64, 64)
    assert shrink_type(memory("!desc"), None, 2, 2) == memory("!desc"), "what is not sliced stays whole"
    deep = shrink_type(memory("!deep_desc"), 1, 2, 1)
    assert isinstance(deep, TensorDescType) and deep.block.shape == (1, 64, 64)


@pytest.mark.parametrize("kind", ["!wide_desc", "!wide_buffer"])
def test_a_slice_keeps_whole_swizzle_atoms(kind: str) -> None:
    """128 bytes are swizzled together: 64 columns of 2 bytes may be cut off, 32 may not."""
    assert shrink_type(memory(kind), 1, 2, 2) is not None
    with pytest.raises(LayoutError, match="narrower than the swizzle"):
        shrink_type(memory(kind), 1, 4, 2)


@pytest.mark.parametrize(
    ("layout", "factor", "match"),
    [
        (f"#ttg.slice<{{dim = 0, parent = {BLOCKED}}}>", 16, "cannot take warps"),
        (
            "#ttg.amd_mfma<{version = 3, warpsPerCTA = [8, 1], instrShape = [32, 32, 8], isTransposed = true}>",
            2,
            "mfma",
        ),
        ("#other.layout<{a = 1}>", 2, "unknown layout"),
        (LINEAR.replace("[[0, 8], ", "[[64, 0], "), 2, "cannot slice"),
    ],
)
def test_what_cannot_be_done_is_said(layout: str, factor: int, match: str) -> None:
    type = tensor((128,) if "slice" in layout else (128, 64), layout)
    with pytest.raises(LayoutError, match=match):
        shrink_type(type, 0, 2, factor)


def test_scalars_stay() -> None:
    element = tensor((128, 64), MMA).element
    assert shrink_type(element, None, 2, 2) == element

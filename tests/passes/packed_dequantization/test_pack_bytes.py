"""Tiles of floats that are bits of a byte: found by what operations make of all bytes, and the same numbers packed."""

from __future__ import annotations

import pytest
import torch

from wspec.execute import Kernel, one_thread
from wspec.execute.asm import parse
from wspec.ir import read
from wspec.ir.core import Operation
from wspec.passes.packed_dequantization.choice import Field, find_packed
from wspec.passes.packed_dequantization.pack_bytes import assembly, rewrite

BLOCKED = "#ttg.blocked<{sizePerThread = [1, 8], threadsPerWarp = [2, 16], warpsPerCTA = [1, 1], order = [1, 0]}>"
MMA = "#ttg.nvidia_mma<{versionMajor = 3, versionMinor = 0, warpsPerCTA = [1, 1], instrShape = [16, 16, 16]}>"
PAIRS = f"#ttg.dot_op<{{opIdx = 0, parent = {MMA}, kWidth = 2}}>"
SHAPE = (2, 128)
CACHE = "boundaryCheck = array<i32>, cache = 1 : i32, evict = 1 : i32"
LOAD = f"<{{{CACHE}, isVolatile = false, operandSegmentSizes = array<i32: 1, 0, 0>}}>"
STORE = f"<{{{CACHE}}}>"
TARGET = (
    '{"ttg.num-ctas" = 1 : i32, "ttg.num-warps" = 1 : i32, ttg.target = "cuda:90", "ttg.threads-per-warp" = 32 : i32}'
)


def module(steps: list[tuple[str, str]], layout: str = BLOCKED, float_type: str = "bf16") -> Operation:
    """A kernel that loads all bytes, does the steps (operation, constant or "") and stores what comes of them."""

    def tile(element: str) -> str:
        return f"tensor<{SHAPE[0]}x{SHAPE[1]}x{element}, {layout}>"

    kind, lines, value = "i8", [], "%q"
    for at, (name, constant) in enumerate(steps):
        before, kind = kind, float_type if name in ("arith.sitofp", "arith.uitofp") else kind
        flags = " <{fastmath = #arith.fastmath<none>}>" if name in ("arith.addf", "arith.subf", "arith.mulf") else ""
        flags = " <{overflowFlags = #arith.overflow<none>}>" if name == "arith.shli" else flags
        operands, types = value, tile(before)
        if constant:
            number = f"<{{value = dense<{constant}> : {tile(kind)}}}>"
            lines.append(f'%c{at} = "arith.constant"() {number} : () -> {tile(kind)}')
            operands, types = f"{value}, %c{at}", f"{tile(before)}, {tile(before)}"
        lines.append(f'%v{at} = "{name}"({operands}){flags} : ({types}) -> {tile(kind)}')
        value = f"%v{at}"
    line = f"tensor<{SHAPE[0]}x{SHAPE[1]}x"
    body = "\n    ".join(lines)
    return read(f"""
"builtin.module"() ({{
  "tt.func"() <{{function_type = (!tt.ptr<i8>, !tt.ptr<{kind}>) -> (), sym_name = "f", sym_visibility = "public"}}> ({{
  ^bb0(%x: !tt.ptr<i8>, %y: !tt.ptr<{kind}>):
    %i = "tt.make_range"() <{{end = 256 : i32, start = 0 : i32}}> : () -> tensor<256xi32>
    %j = "tt.reshape"(%i) : (tensor<256xi32>) -> {tile("i32")}
    %xs = "tt.splat"(%x) : (!tt.ptr<i8>) -> {line}!tt.ptr<i8>, {layout}>
    %ys = "tt.splat"(%y) : (!tt.ptr<{kind}>) -> {line}!tt.ptr<{kind}>, {layout}>
    %from = "tt.addptr"(%xs, %j) : ({line}!tt.ptr<i8>, {layout}>, {tile("i32")}) -> {line}!tt.ptr<i8>, {layout}>
    %to = "tt.addptr"(%ys, %j) : ({line}!tt.ptr<{kind}>, {layout}>, {tile("i32")}) -> {line}!tt.ptr<{kind}>, {layout}>
    %q = "tt.load"(%from) {LOAD} : ({line}!tt.ptr<i8>, {layout}>) -> {tile("i8")}
    {body}
    "tt.store"(%to, {value}) {STORE} : ({line}!tt.ptr<{kind}>, {layout}>, {tile(kind)}) -> ()
    "tt.return"() : () -> ()
  }}) {{noinline = false}} : () -> ()
}}) {TARGET} : () -> ()
""")


def outcome(made: Operation, float_type: str = "bf16") -> torch.Tensor:
    """What the kernel stores for the bytes 0 to 255."""
    given = torch.arange(256, dtype=torch.uint8).view(torch.int8)
    stored = torch.full((256,), torch.nan, dtype=torch.bfloat16 if float_type == "bf16" else torch.float16)
    with one_thread():
        Kernel(made).run((1,), [given, stored])
    return stored


LOW = [("arith.andi", "15"), ("arith.sitofp", ""), ("arith.subf", "8.000000e+00")]
HIGH = [("arith.shrsi", "4"), *LOW]
SIGNED = [("arith.shli", "4"), ("arith.shrsi", "4"), ("arith.sitofp", "")]


@pytest.mark.parametrize(
    ("steps", "layout", "float_type", "field"),
    [
        (LOW, BLOCKED, "bf16", Field("bf16", 0, 4, 0, -8)),
        (HIGH, BLOCKED, "bf16", Field("bf16", 4, 4, 0, -8)),
        (HIGH, PAIRS, "f16", Field("f16", 4, 4, 0, -8)),
        (SIGNED, BLOCKED, "bf16", Field("bf16", 0, 4, 8, -8)),
        ([("arith.shrsi", "4"), ("arith.sitofp", "")], BLOCKED, "bf16", Field("bf16", 4, 4, 8, -8)),
        ([("arith.shrui", "4"), ("arith.uitofp", "")], BLOCKED, "bf16", Field("bf16", 4, 4, 0, 0)),
        ([("arith.andi", "127"), ("arith.sitofp", "")], BLOCKED, "bf16", Field("bf16", 0, 7, 0, 0)),
        ([("arith.sitofp", "")], PAIRS, "bf16", Field("bf16", 0, 8, 128, -128)),
        ([("arith.sitofp", "")], BLOCKED, "f16", Field("f16", 0, 8, 128, -128)),
        ([("arith.uitofp", "")], BLOCKED, "f16", Field("f16", 0, 8, 0, 0)),
        ([("arith.andi", "3"), ("arith.uitofp", ""), ("arith.addf", "2.000000e+00")], BLOCKED, "bf16",
         Field("bf16", 0, 2, 0, 2)),
    ],
)  # fmt: skip
def test_bits_of_a_byte_are_the_same_numbers(
    steps: list[tuple[str, str]], layout: str, float_type: str, field: Field
) -> None:
    before, made = (module(steps, layout, float_type) for _ in range(2))
    (packed,) = find_packed(made.walk(), 1)
    assert packed.field == field
    rewrite(packed)
    names = [op.name for op in made.walk()]
    assert "tt.elementwise_inline_asm" in names and not {name for name, _ in steps} & set(names)
    assert torch.equal(outcome(made, float_type), outcome(before, float_type))


@pytest.mark.parametrize(
    "steps",
    [
        [("arith.sitofp", "")],  # in whole rows Triton does as well
        [("arith.uitofp", "")],  # a bit too many for a bfloat16
        [("arith.andi", "10"), ("arith.sitofp", "")],  # bits that are no neighbours
        [("arith.shli", "1"), ("arith.sitofp", "")],  # every other number
        [("arith.xori", "5"), ("arith.sitofp", "")],
    ],
)
def test_what_is_no_field_is_left_alone(steps: list[tuple[str, str]]) -> None:
    assert not find_packed(module(steps).walk(), 1)


@pytest.mark.parametrize("constant", ["5.000000e-01", "2.560000e+02"])
def test_what_is_rounded_is_computed_as_before(constant: str) -> None:
    """Half a number, or one that would leave the integers a bfloat16 has: only what comes before is packed."""
    before, made = (module([*LOW[:2], ("arith.addf", constant)]) for _ in range(2))
    (packed,) = find_packed(made.walk(), 1)
    assert packed.field == Field("bf16", 0, 4, 0, 0)
    rewrite(packed)
    assert torch.equal(outcome(made), outcome(before))


def test_a_step_that_others_read_stays() -> None:
    made = module([*LOW, ("arith.mulf", "3.000000e+00")])
    conversion = next(op for op in made.walk() if op.name == "arith.sitofp")
    product = next(op for op in made.walk() if op.name == "arith.mulf")
    product.operands[1] = conversion.result
    (packed,) = find_packed(made.walk(), 1)
    assert packed.field == Field("bf16", 0, 4, 0, 0)
    rewrite(packed)
    assert [op.name for op in made.walk() if op.name in ("arith.subf", "arith.mulf")] == ["arith.subf", "arith.mulf"]


def test_threads_must_hold_whole_registers() -> None:
    assert find_packed(module(LOW).walk(), 2) and not find_packed(module(LOW).walk(), 4)


def test_the_model_counts_the_instructions() -> None:
    for field in (Field("bf16", 0, 4, 0, -8), Field("bf16", 4, 4, 0, 0), Field("bf16", 0, 8, 128, -128)):
        found = [one for one in parse(assembly(field)) if one.opcode[0] not in ("mov", "cvt")]
        assert len(found) == field.instructions

"""exp2_on_fma: compute a share of the exponentials of a loop by a polynomial, beside the exponential unit.

    %p = math.exp2 %x    =>    %p = elementwise_inline_asm %x     // share 1/4; of 8 elements of a thread,
                                                                  //   6: ex2.approx.ftz.f32
                                                                  //   2: the polynomial

The exponential unit takes few elements a cycle: where exponentials bound a loop, the plan may move some of them to the
FMA pipes. Inline assembly keeps the tensor and its layout whole.

The polynomial. x = n + f with n the nearest integer: adding 1.5 * 2^23 + 126 leaves n + 126 in the low bits of a float,
taking it off again leaves n, both exact. 2^(f + 1) is a polynomial of degree 5 with p(0) = 2, the minimax one for the
relative error on [-1/2, 1/2] (tests/support/minimax.py fits it). Its product with the float whose exponent field is
n + 126, that is 2^(n - 1), or 0 for n = -126, is 2^x. x is first held within [-126, 128]. So

    relative error                     at most 2^-22 for -125.5 < x < 128, none where x is a whole number
    x < -125.5, x = -inf               0            (the exponential unit: 0 from -126 on)
    x >= 128, x = inf                  inf
    x = NaN                            NaN

The method is Cody and Waite's; FlashAttention-4 (arXiv 2603.05451) uses it beside the exponential unit.

Runs after slice_tile, when types are those of one replica, and before pipeline_loops: what that copies out of the loop
then computes the same bits.
"""

from __future__ import annotations

import struct

from wspec.ir import warp_specialize as ws
from wspec.ir.core import Operation, replace_uses
from wspec.ir.numbering import ID, id_of
from wspec.ir.types import I1, Attribute, IntegerAttr, StringAttr, i32
from wspec.plan.exponentials import GROUP, divisible
from wspec.plan.plan import Plan

COEFFICIENTS = (
    float.fromhex("0x1.5bba14p-9"),
    float.fromhex("0x1.3cea88p-6"),
    float.fromhex("0x1.c6b752p-4"),
    float.fromhex("0x1.ebf9bcp-2"),
    float.fromhex("0x1.62e42ap+0"),
    2.0,
)
"""Of 2^(f + 1), that of the highest power first."""
_LOWEST, _HIGHEST = -126.0, 128.0
_SHIFT = 1.5 * 2.0**23 - _LOWEST
_ON_UNIT = "ex2.approx.ftz.f32 {result}, {x};"


def exp2_on_fma(module: Operation, plan: Plan) -> Operation:
    """Let the FMA units compute the share of the exponentials that the plan gives each loop."""
    op = ws.find(module)
    assert op is not None
    moved = {schedule.loop: round(schedule.exp2_on_fma * GROUP) for schedule in plan.loops}
    for block in ws.task_blocks(op)[: plan.consumer.replicas]:
        for loop in [inner for top in block.ops for inner in top.walk() if inner.name == "scf.for"]:
            if count := moved.get(id_of(loop), 0):
                for one in [inner for top in loop.regions[0].block.ops for inner in top.walk()]:
                    if divisible(one, plan.consumer.warps):
                        _divide(one, count)
    return module


def _divide(op: Operation, moved: int) -> None:
    """`moved` of each GROUP elements of a thread by the polynomial, the others as before."""
    flags: dict[str, Attribute] = {
        "asm_string": StringAttr(assembly(moved)),
        "constraints": StringAttr(",".join(["=f"] * GROUP + ["f"] * GROUP)),
        "packed_element": i32(GROUP),
        "pure": IntegerAttr(1, I1),
    }
    keep = {ID: op.attributes[ID]} if ID in op.attributes else {}
    made = Operation.create(
        "tt.elementwise_inline_asm", [op.operands[0]], [op.result.type], flags, keep, location=op.location
    )
    block = op.parent
    assert block is not None
    block.insert(block.ops.index(op), made)
    for user in block.ops:
        replace_uses(user, {op.result: made.result})
    op.erase()


def assembly(moved: int) -> str:
    """PTX for GROUP elements $8..$15 to $0..$7, the last `moved` of them on the FMA units."""
    names = ("x", "t", "n", "f", "p", "s")
    lines = [f".reg .f32 {', '.join(f'{name}{at}' for at in range(moved) for name in names)};"] if moved else []
    for at in range(GROUP):
        place = {"result": f"${at}", "x": f"${GROUP + at}"}
        lines += [_ON_UNIT.format(**place)] if at < GROUP - moved else _polynomial(at - GROUP + moved, **place)
    return "{ " + " ".join(lines) + " }"


def _polynomial(at: int, result: str, x: str) -> list[str]:
    """INSTRUCTIONS instructions; `at` tells registers of different elements apart."""
    held, t, n, f, p, s = (f"{name}{at}" for name in "xtnfps")
    first, second, *others = COEFFICIENTS
    return [
        f"max.NaN.f32 {held}, {x}, {_bits(_LOWEST)};",
        f"min.NaN.f32 {held}, {held}, {_bits(_HIGHEST)};",
        f"add.rn.f32 {t}, {held}, {_bits(_SHIFT)};",
        f"sub.rn.f32 {n}, {t}, {_bits(_SHIFT)};",
        f"sub.rn.f32 {f}, {held}, {n};",
        f"fma.rn.f32 {p}, {f}, {_bits(first)}, {_bits(second)};",
        *(f"fma.rn.f32 {p}, {p}, {f}, {_bits(value)};" for value in others),
        f"shl.b32 {s}, {t}, 23;",
        f"mul.rn.f32 {result}, {p}, {s};",
    ]


def _bits(value: float) -> str:
    """A float32 as PTX writes it exactly."""
    return f"0f{struct.pack('>f', value).hex().upper()}"

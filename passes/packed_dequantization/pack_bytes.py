"""pack_bytes: compute tiles of floats that are bits of a byte on several bytes at a time.

    %n = arith.andi %q, dense<15>
    %f = arith.sitofp %n : i8 to bf16     =>    %t = elementwise_inline_asm %q     // and, 2 prmt, 2 sub.bf16x2
    %t = arith.subf %f, dense<8.0>                                                 //   for four elements

`passes/packed_dequantization/choice.py` says which tiles those are and why the numbers are the same to the bit.
Inline assembly keeps the tensor and its layout whole; a thread's registers are taken in their own order.

Runs when types are those of one replica and a helper has its layout, and before pipeline_loops, which copies what it
moves.
"""

from __future__ import annotations

from wspec.ir import warp_specialize as ws
from wspec.ir.core import Operation, replace_uses
from wspec.ir.numbering import ID, id_of
from wspec.ir.types import I1, Attribute, IntegerAttr, StringAttr, i32
from wspec.passes.packed_dequantization.choice import FORMATS, Field, Packed, find_packed
from wspec.plan.plan import Plan

_SIGNED = (
    "{ .reg .b32 n, a, k; cvt.u32.u16 n, $1; prmt.b32 n, n, 0x43434343, 0x4140; and.b32 a, n, 0xff7fff7f; "
    "and.b32 k, n, 0xff80ff80; sub.bf16x2 $0, a, k; }"
)  # 128 plus the lower seven bits, less 128 or, where the eighth is set, 256
_LOWER, _UPPER = 0x4140, 0x4342  # bytes 0 and 1, or 2 and 3, each below a byte of the second operand


def pack_bytes(module: Operation, plan: Plan) -> Operation:
    """Let the tiles that the plan names be computed several bytes at a time, in every task that computes them."""
    op = ws.need(module)
    chosen = set(plan.packed)
    for (task, _), block in zip(plan.regions(), ws.task_blocks(op), strict=True):
        ops = list(block.walk()) if chosen else []
        for packed in find_packed(ops, task.warps):
            if id_of(packed.result) in chosen:
                rewrite(packed)
    return module


def rewrite(packed: Packed) -> None:
    """Compute the tile that way, in place."""
    op = packed.result
    flags: dict[str, Attribute] = {
        "asm_string": StringAttr(assembly(packed.field)),
        "constraints": StringAttr("=r,h" if packed.field.pack == 2 else "=r,=r,r"),
        "packed_element": i32(packed.field.pack),
        "pure": IntegerAttr(1, I1),
    }
    keep = {ID: op.attributes[ID]} if ID in op.attributes else {}
    made = Operation.create(
        "tt.elementwise_inline_asm", [packed.source], [op.result.type], flags, keep, location=op.location
    )
    block = op.parent
    assert block is not None
    block.insert(block.ops.index(op), made)
    replace_uses(block, {op.result: made.result})
    for one in reversed(packed.ops):
        if not any(one.result in user.operands for user in block.walk()):
            one.erase()


def assembly(field: Field) -> str:
    """PTX for the bytes in the last operand, two floats in each of the others."""
    if field.is_signed_byte:
        return _SIGNED
    magic = FORMATS[field.format].magic * 0x01010101
    mask, flip = ((1 << field.width) - 1) * 0x01010101, field.flip * 0x01010101
    lines = [".reg .b32 n, a, b, k;", f"mov.b32 k, {field.subtracted:#010x};"]
    lines.append(f"shr.b32 n, $2, {field.shift};" if field.shift else "mov.b32 n, $2;")
    if field.width < 8:
        lines.append(f"and.b32 n, n, {mask:#010x};")
    if flip:
        lines.append(f"xor.b32 n, n, {flip:#010x};")
    for name, selector, result in (("a", _LOWER, "$0"), ("b", _UPPER, "$1")):
        lines.append(f"prmt.b32 {name}, n, {magic:#010x}, {selector:#06x};")
        lines.append(f"sub.{field.format}x2 {result}, {name}, k;")
    return "{ " + " ".join(lines) + " }"

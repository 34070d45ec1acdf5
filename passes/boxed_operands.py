"""A left operand that comes through a box of more dimensions is read where TMA puts it, in shared memory.

    %q = descriptor_load : 128x1x64                 %q = descriptor_load : 128x1x64
    %r = reshape(convert_layout(%q)) : 128x64   =>  %s = local_alloc(%q)
    warp_group_dot %r, ...                          %r = memdesc_reshape(%s) : 128x64
                                                    warp_group_dot %r, ...

Triton reads a right operand so, and a left one of two dimensions; this one it keeps in registers. They are missed,
above all where Q stays there while keys go by, and ptxas gives them to P (wspec/bridge/sass/clobbered.py). Runs before
a plan is made.
"""

from __future__ import annotations

from wspec.ir.builder import Builder
from wspec.ir.core import Operation, functions
from wspec.ir.prune import prune
from wspec.ir.types import Layout, MemDescType, TensorDescType, TensorType

_SAME_ELEMENTS = frozenset({"ttg.convert_layout", "tt.reshape"})


def share_boxed_operands(module: Operation) -> None:
    """Do so in place."""
    changed = False
    for dot in [op for op in module.walk() if op.name == "ttng.warp_group_dot"]:
        load = _box(dot)
        if load is not None:
            _share(dot, load)
            changed = True
    for function in functions(module) if changed else ():
        prune(function.regions[0].block)


def _box(dot: Operation) -> Operation | None:
    """The load whose rows, as they are in the box, are the left operand's; None where there is none."""
    left = dot.operands[0]
    if not isinstance(left.type, TensorType) or not isinstance(dot.operands[1].type, MemDescType):
        return None
    op = left.op
    while op is not None and op.name in _SAME_ELEMENTS:
        op = op.operands[0].op
    if op is None or op.name != "tt.descriptor_load":
        return None
    loaded, described = op.result.type, op.operands[0].type
    assert isinstance(loaded, TensorType) and isinstance(described, TensorDescType)
    encoding = described.block.encoding
    rows_stay = loaded.shape == described.block.shape and loaded.shape[-1:] == left.type.shape[-1:]
    if len(loaded.shape) == 2 or not rows_stay or not isinstance(encoding, Layout) or encoding.get("transposed"):
        return None
    return op


def _share(dot: Operation, load: Operation) -> None:
    left, right, described = dot.operands[0].type, dot.operands[1].type, load.operands[0].type
    assert isinstance(left, TensorType)
    assert isinstance(right, MemDescType) and isinstance(described, TensorDescType)
    box = described.block
    assert isinstance(box.encoding, Layout)
    flat = Layout(box.encoding.name, tuple(one for one in box.encoding.fields if one[0] != "rank"), box.encoding.tail)
    build = Builder.behind(load)
    kept = MemDescType(box.shape, box.element, box.encoding, right.memory_space)
    buffer = build.create("ttg.local_alloc", [load.result], [kept]).result
    rows = MemDescType(left.shape, left.element, flat, right.memory_space)
    dot.operands[0] = build.create("ttg.memdesc_reshape", [buffer], [rows]).result

"""What tasks decide by numbers that they load, where the loop of one begins an iteration later."""

from __future__ import annotations

from typing import Any

import pytest
import triton
import triton.language as tl

from tests.support.compiling import Case, plain_module, source
from wspec import bridge
from wspec.check import value_names
from wspec.check.checker import check
from wspec.ir import print_module, read
from wspec.ir import warp_specialize as ws
from wspec.ir.core import Operation
from wspec.ir.disjoint import Disjoint
from wspec.ir.types import I64, IntegerAttr
from wspec.options import Options
from wspec.pipeline import specialize


@triton.jit
def marked(marks_ptr, x_desc, y_desc, w_desc, out_desc, k, ROUNDED: tl.constexpr, BOUND: tl.constexpr):
    row = tl.program_id(0) * 128
    acc = tl.full([128, 128], 0.0, tl.float32)
    top = tl.full([128], 0.0, tl.float32)
    end = k
    if BOUND:
        end = tl.minimum(row + 128, k)
    for i in tl.range(0, end, 32):
        if ROUNDED:
            mark = tl.load(marks_ptr + i // 32)
        else:
            mark = tl.load(marks_ptr + i)
        if mark > 0:
            s = tl.dot(x_desc.load([row, 0]), y_desc.load([i, 0]).T)
            top = tl.maximum(top, tl.max(s, 1))
        else:
            top = top * 0.5
        t = tl.dot(x_desc.load([row, 64]), y_desc.load([i, 64]).T)
        acc = acc + tl.dot((t * 0.0625).to(tl.bfloat16), w_desc.load([0, 0])) * 0.5
    out_desc.store([row, 0], (acc + top[:, None]).to(tl.bfloat16))


def made(*, rounded: bool, bound: bool, **options: Any) -> tuple[Operation, Operation, Disjoint]:
    """What is made of it, and what Triton's own passes leave of that."""
    boxes = {"x_desc": (128, 64), "y_desc": (32, 64), "w_desc": (32, 128), "out_desc": (128, 128)}
    types = {name: f"tensordesc<bf16[{rows},{columns}]>" for name, (rows, columns) in boxes.items()}
    constexprs = {"ROUNDED": rounded, "BOUND": bound, "num_warps": 8}
    case = Case("marked", marked, {"marks_ptr": "*i32:16"} | types | {"k": "i32:16"}, constexprs)
    found = specialize(plain_module(case), Options(gate="off", **options))
    assert found.module is not None and found.plan is not None
    assert any(loop.stage1 for loop in found.plan.loops), "no product of an iteration is done in the next one"
    final = read(bridge.final_ttgir(print_module(found.module), source(case)))
    return found.module, final, found.disjoint


@pytest.mark.parametrize("depth", [1, 2, pytest.param(3, marks=pytest.mark.slow)])
@pytest.mark.parametrize("persistent", [True, False])
@pytest.mark.parametrize(("rounded", "bound"), [(True, True), (True, False), (False, False)])
def test_a_peeled_iteration_asks_what_the_others_ask(rounded: bool, bound: bool, persistent: bool, depth: int) -> None:
    *modules, disjoint = made(rounded=rounded, bound=bound, persistent=persistent, depth=depth)
    for module in modules:
        report = check(module, disjoint=disjoint)
        assert report.ok, str(report)


def test_tasks_that_ask_for_other_marks_are_told_apart() -> None:
    """In one a mark of zero counts."""
    module, _, disjoint = made(rounded=False, bound=False, persistent=False)
    producer = ws.task_blocks(ws.need(module))[-1]
    asked = [op for op in producer.walk() if op.name == "arith.cmpi" and _is_loaded(op)]
    assert len(asked) == 1 and asked[0].int_attr("predicate") == 4
    asked[0].properties["predicate"] = IntegerAttr(5, I64)
    report = check(module, disjoint=disjoint)
    assert any(one.code == "deadlock" for one in report.findings)


def _is_loaded(op: Operation) -> bool:
    return op.operands[0].op is not None and op.operands[0].op.name == "tt.load"


@pytest.mark.parametrize(
    ("kind", "numbers", "exact"),
    [
        ("arith.divsi", (96, 32), True),
        ("arith.divsi", (96, 0), False),  # undefined
        ("arith.divui", (-96, 32), False),  # large, unsigned
        ("arith.andi", (1 << 20, 1 << 20), False),  # too wide for some types
        ("arith.extsi", (1,), False),  # -1 of a truth value
    ],
)
def test_only_what_has_one_result_is_computed(kind: str, numbers: tuple[int, ...], exact: bool) -> None:
    assert value_names._is_exact(kind, numbers) is exact

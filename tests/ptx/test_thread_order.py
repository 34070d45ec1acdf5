"""Orders among the threads of a task, through small texts; registers of the tasks, through a shipped kernel."""

from __future__ import annotations

import functools

import pytest

from tests.ptx.shipped_ptx import Pair, pair
from wspec import ir
from wspec.bridge.ptx.side_by_side import show_order
from wspec.bridge.shared_memory import placement
from wspec.ptx.errors import PtxError
from wspec.ptx.flow import blocks_of
from wspec.ptx.parser import read
from wspec.ptx.registers import Writers
from wspec.ptx.roles import Role
from wspec.ptx.validation.thread_order import show_thread_order

PLACE = """
	mov.u32 	%r1, %tid.x;
	shl.b32 	%r2, %r1, 2;
	add.s32 	%r3, %r2, global_smem;
	xor.b32 	%r4, %r2, 128;
	add.s32 	%r5, %r4, global_smem;
	and.b32 	%r6, %r20, 64;
	add.s32 	%r7, %r6, global_smem;
"""
WRITE, READ_OWN, READ_OTHERS = "st.shared.b32 [%r3], %r9;", "ld.shared.b32 %r8, [%r3];", "ld.shared.b32 %r8, [%r5];"
READ_SLOT, MEET = "ld.shared.b32 %r8, [%r7];", "bar.sync 2, 64;"
ARRIVE = "@%p1 mbarrier.arrive.shared::cta.b64 _, [%r3+4096];"
PRODUCT = "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%f1, %f2, %f3, %f4}, %rd1, %rd2, 1, 1, 1, 0, 0;"
FENCE, COMMIT = "wgmma.fence.sync.aligned;", "wgmma.commit_group.sync.aligned;"


def show(*lines: str, strict: bool = False) -> None:
    """Of a text that two warps execute."""
    head = ".visible .entry kernel()\n.reqntid 64\n{\n	.reg .pred %p<9>;\n	.reg .b32 %r<99>;\n"
    text = f".version 8.7\n.target sm_90a\n.address_size 64\n.extern .shared .align 16 .b8 global_smem[];\n{head}"
    entry = read(text + PLACE + "\n".join(lines) + "\n	ret;\n}\n").entry()
    blocks = blocks_of(entry)
    role = Role((0, 1), frozenset(range(len(blocks))), (0, 0), None)
    show_thread_order(blocks, [role], Writers(entry), strict)


RIGHT = [
    (WRITE, READ_OWN),
    (WRITE, MEET, READ_OTHERS),
    (READ_OTHERS, MEET, WRITE),
    (WRITE, MEET, ARRIVE),
    ("cp.async.bulk.wait_group.read 0;", MEET, WRITE),
    ("mbarrier.init.shared::cta.b64 [%r3], 1;", MEET, ARRIVE),
    (FENCE, PRODUCT, PRODUCT, COMMIT, FENCE, PRODUCT, COMMIT),
    (WRITE, READ_SLOT),
]
WRONG = [
    ((WRITE, READ_OTHERS), "wrote"),
    ((READ_OTHERS, WRITE), "read"),
    ((WRITE, ARRIVE), "wrote"),
    ((READ_SLOT, ARRIVE), "read"),
    (("cp.async.bulk.wait_group.read 0;", WRITE), "waited for copies"),
    (("cp.async.wait_group 0;", READ_OWN), "copied"),
    (("mbarrier.init.shared::cta.b64 [%r3], 1;", ARRIVE), "initialized"),
    (("bar.sync 2, 32;", WRITE, "bar.sync 2, 32;", READ_OTHERS), "wrote"),
    ((PRODUCT, COMMIT), "wgmma.fence"),
    ((FENCE, PRODUCT, COMMIT, PRODUCT), "wgmma.fence"),
]


@pytest.mark.parametrize("lines", RIGHT)
def test_what_is_ordered(lines: tuple[str, ...]) -> None:
    show(*lines)


@pytest.mark.parametrize(("lines", "why"), WRONG)
def test_what_is_not(lines: tuple[str, ...], why: str) -> None:
    with pytest.raises(PtxError, match=why):
        show(*lines)


def test_what_is_not_known_is_the_same_if_asked_for() -> None:
    with pytest.raises(PtxError, match="wrote"):
        show(WRITE, READ_SLOT, strict=True)


# --------------------------------------------------------------------------------------------- registers


@functools.cache
def small() -> Pair:
    found = pair("matmul.py:matmul_descriptor_kernel", "fp16")
    assert found is not None
    return found


def beside(text: str) -> None:
    """A text of that kernel beside its TTGIR."""
    module = ir.read(small().final)
    function = next(op for op in module.walk() if op.name == "tt.func")
    show_order(function, read(text).entry(), placement(module))


def places(word: str) -> list[int]:
    return [at for at, line in enumerate(small().emitted.split("\n")) if line.strip().startswith(word)]


def test_the_tasks_have_their_registers() -> None:
    beside(small().emitted)
    assert len(places("setmaxnreg")) > 4


@pytest.mark.parametrize(("before", "after"), [("u32 \t24;", "u32 \t48;"), ("u32 \t240;", "u32 \t232;"),
                                               ("u32 \t120;", "u32 \t121;"), ("u32 \t256;", "u32 \t512;")])  # fmt: skip
def test_others_are_refused(before: str, after: str) -> None:
    lines = small().emitted.split("\n")
    assert any(before in lines[at] for at in places("setmaxnreg"))
    for at in places("setmaxnreg"):
        lines[at] = lines[at].replace(before, after)
    with pytest.raises(PtxError):
        beside("\n".join(lines))


def test_those_of_a_task_must_be_given() -> None:
    lines = small().emitted.split("\n")
    for at in places("setmaxnreg.inc"):
        if "240" in lines[at]:
            lines[at] = ""
    with pytest.raises(PtxError, match="registers"):
        beside("\n".join(lines))

"""Orders among the threads of a task, through small texts; registers of the tasks, through a shipped kernel."""

from __future__ import annotations

import functools
from collections.abc import Collection

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
	shl.b32 	%r11, %r1, 3;
	add.s32 	%r12, %r11, global_smem;
"""
WRITE, READ_OWN, READ_OTHERS = "st.shared.b32 [%r3], %r9;", "ld.shared.b32 %r8, [%r3];", "ld.shared.b32 %r8, [%r5];"
READ_SLOT, MEET = "ld.shared.b32 %r8, [%r7];", "bar.sync 2, 64;"
ARRIVE = "@%p1 mbarrier.arrive.shared::cta.b64 _, [%r3+4096];"
PRODUCT = "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%f1, %f2, %f3, %f4}, %rd1, %rd2, 1, 1, 1, 0, 0;"
ELECT = "setp.lt.u32 %p2, %r1, 32; elect.sync %r10|%p3, -1; and.pred %p4, %p2, %p3;"
MAKE, EXPECT = "mbarrier.init.shared::cta.b64 [%r3], 1;", "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r3], 64;"
FIRST, SECOND, NOT_FIRST = (
    f"setp.{what} %p5, %r1, {number};" for what, number in (("eq.u32", 0), ("eq.u32", 1), ("ne.u32", 0))
)
FENCE, COMMIT = "wgmma.fence.sync.aligned;", "wgmma.commit_group.sync.aligned;"


def show(*lines: str, buffers: Collection[range] | None = None) -> None:
    """Of a text that two warps execute."""
    head = ".visible .entry kernel()\n.reqntid 64\n{\n	.reg .pred %p<9>;\n	.reg .b32 %r<99>;\n"
    text = f".version 8.7\n.target sm_90a\n.address_size 64\n.extern .shared .align 16 .b8 global_smem[];\n{head}"
    entry = read(text + PLACE + "\n".join(lines) + "\n	ret;\n}\n").entry()
    blocks = blocks_of(entry)
    role = Role((0, 1), frozenset(range(len(blocks))), (0, 0), None)
    show_thread_order(blocks, [role], Writers(entry), buffers)


RIGHT = [
    (WRITE, READ_OWN),
    (WRITE, MEET, READ_OTHERS),
    (READ_OTHERS, MEET, WRITE),
    (WRITE, MEET, ARRIVE),
    ("cp.async.bulk.wait_group.read 0;", MEET, WRITE),
    ("mbarrier.init.shared::cta.b64 [%r3], 1;", MEET, ARRIVE),
    (ELECT, FIRST, f"@%p4 {MAKE}", f"@%p5 {EXPECT}"),
    (ELECT, NOT_FIRST, f"@%p4 {MAKE}", f"@!%p5 {EXPECT}"),
    (ELECT, SECOND, f"@%p4 {MAKE}", MEET, f"@%p5 {EXPECT}"),
    (FENCE, PRODUCT, PRODUCT, COMMIT, FENCE, PRODUCT, COMMIT),
]
WRONG = [
    ((WRITE, READ_OTHERS), "wrote"),
    ((READ_OTHERS, WRITE), "read"),
    ((WRITE, ARRIVE), "wrote"),
    ((READ_SLOT, ARRIVE), "read"),
    (("cp.async.bulk.wait_group.read 0;", WRITE), "waited for copies"),
    (("cp.async.wait_group 0;", READ_OWN), "copied"),
    (("mbarrier.init.shared::cta.b64 [%r3], 1;", ARRIVE), "initialized"),
    ((ELECT, SECOND, f"@%p4 {MAKE}", f"@%p5 {EXPECT}"), "initialized"),
    ((ELECT, FIRST, f"@%p3 {MAKE}", f"@%p5 {EXPECT}"), "initialized"),
    ((ELECT, f"@%p4 {MAKE}", f"@%p1 {EXPECT}"), "initialized"),
    ((ELECT, f"@%p1 {MAKE}", f"@%p4 {EXPECT}"), "initialized"),
    ((ELECT, FIRST, SECOND.replace("%p5", "%p6"), f"@%p5 {MAKE}", f"@%p6 {MAKE}", f"@%p6 {EXPECT}"), "initialized"),
    (("bar.sync 2, 32;", WRITE, "bar.sync 2, 32;", READ_OTHERS), "wrote"),
    ((PRODUCT, COMMIT), "wgmma.fence"),
    ((FENCE, PRODUCT, COMMIT, PRODUCT), "wgmma.fence"),
    ((WRITE, READ_SLOT), "wrote"),
]


@pytest.mark.parametrize("lines", RIGHT)
def test_what_is_ordered(lines: tuple[str, ...]) -> None:
    show(*lines)


@pytest.mark.parametrize(("lines", "why"), WRONG)
def test_what_is_not(lines: tuple[str, ...], why: str) -> None:
    with pytest.raises(PtxError, match=why):
        show(*lines)


RING = """
	mov.b32 	%r30, 0;
	mov.b32 	%r31, 0;
$L__again:
	shl.b32 	%r32, %r30, 8;
	add.s32 	%r33, %r3, %r32;
	shl.b32 	%r34, %r31, 8;
	add.s32 	%r35, %r5, %r34;
	BODY
	add.s32 	%r36, %r30, 1;
	setp.eq.b32 	%p6, %r36, 3;
	selp.b32 	%r30, 0, %r36, %p6;
	add.s32 	%r37, %r31, 1;
	setp.eq.b32 	%p7, %r37, 2;
	selp.b32 	%r31, 0, %r37, %p7;
	@%p8 bra 	$L__again;
"""
LOAD_SLOT, LOAD_OTHER_RING = "ld.shared.b32 %r8, [%r35];", "ld.shared.b32 %r8, [%r35+768];"
STORE_SLOT = "st.shared.b32 [%r33], %r9;"


@pytest.mark.parametrize(
    "body",
    [
        (LOAD_OTHER_RING, STORE_SLOT),  # three slots of 256 bytes, and two behind them
        (STORE_SLOT, LOAD_OTHER_RING),
        (LOAD_OTHER_RING, "st.shared.b32 [%r3+1280], %r9;"),  # behind both
        (LOAD_SLOT, MEET, STORE_SLOT, MEET),
    ],
)
def test_rings_are_told_apart(body: tuple[str, ...]) -> None:
    show(RING.replace("BODY", "\n".join(body)))


@pytest.mark.parametrize(
    "body",
    [
        (LOAD_SLOT, STORE_SLOT),
        (LOAD_SLOT, MEET, STORE_SLOT),  # and round the loop
        (LOAD_OTHER_RING.replace("768", "764"), STORE_SLOT),
        (STORE_SLOT.replace("%r33", "%r33+4"), LOAD_OTHER_RING),
        (LOAD_OTHER_RING, "st.shared.b32 [%r3+1276], %r9;"),
        (LOAD_OTHER_RING, "st.shared.b32 [%r7], %r9;"),  # anywhere
    ],
)
def test_slots_of_one_ring_are_not(body: tuple[str, ...]) -> None:
    with pytest.raises(PtxError, match=r"wrote|read"):
        show(RING.replace("BODY", "\n".join(body)))


WRITE_TWO = "st.shared.v2.b32 [%r12], {%r9, %r10};"
READ_FIRST, READ_SECOND = "ld.shared.b32 %r8, [%r12];", "ld.shared.b32 %r8, [%r12+4];"


def test_scratch_is_what_has_been_read_again() -> None:
    show(WRITE_TWO, READ_FIRST, READ_SECOND, FENCE, PRODUCT)


@pytest.mark.parametrize("lines", [(WRITE, FENCE, PRODUCT), (READ_OWN, WRITE, FENCE, PRODUCT),
                                   (WRITE_TWO, READ_FIRST, FENCE, PRODUCT),
                                   (WRITE, READ_OWN, WRITE, FENCE, PRODUCT)])  # fmt: skip
def test_what_has_not_been_read_since_may_be_asked_for(lines: tuple[str, ...]) -> None:
    with pytest.raises(PtxError, match="wrote"):
        show(*lines)


def test_what_lies_in_no_buffer_is_asked_for_by_nobody() -> None:
    show(WRITE, FENCE, PRODUCT, buffers=[range(1024, 2048)])
    with pytest.raises(PtxError, match="wrote"):
        show(WRITE, FENCE, PRODUCT, buffers=[range(252, 2048)])  # the last thread's


DESCRIBE = "mov.b32 %r40, global_smem; add.s32 %r41, %r40, PLACE; bfe.u32 %r42, %r41, 4, 14; cvt.u64.u32 %rd3, %r42;"
FROM_PLACE = PRODUCT.replace("%rd1, %rd2", "{%r50, %r51, %r52, %r53}, %rd2")


def described(place: int) -> tuple[str, ...]:
    """A product whose second factor begins there."""
    return (DESCRIBE.replace("PLACE", str(place)), "or.b64 %rd2, %rd3, 4611686293305294848;", FENCE, FROM_PLACE)


def test_a_product_asks_for_what_it_reads() -> None:
    """What was written to another buffer may be on its way still."""
    buffers = [range(256), range(1024, 2048)]
    show(WRITE, *described(1024), buffers=buffers)
    show(WRITE, *described(1536), buffers=buffers)
    for wrong in (described(0), described(128), described(4096)):  # the last one: in no buffer that is known
        with pytest.raises(PtxError, match="wrote"):
            show(WRITE, *wrong, buffers=buffers)
    with pytest.raises(PtxError, match="wrote"):
        show(WRITE, *described(1024), buffers=[range(2048)])
    with pytest.raises(PtxError, match="wrote"):
        show(WRITE, *described(1024), buffers=[*buffers, range(192, 1088)])  # memory that is given out twice


@pytest.mark.parametrize(("first", "second", "shown"), [(1024, 1024, True), (0, 1024, False), (1024, 0, False)])
def test_a_product_reads_both_of_its_factors(first: int, second: int, shown: bool) -> None:
    *makes, fence, product = described(second)
    other = described(first)[:-2]
    renamed = [line.replace("%rd2", "%rd1").replace("%rd3", "%rd4") for line in other]
    lines = (WRITE, *renamed, *makes, fence, product.replace("{%r50, %r51, %r52, %r53}", "%rd1"))
    if shown:
        show(*lines, buffers=[range(256), range(1024, 2048)])
    else:
        with pytest.raises(PtxError, match="wrote"):
            show(*lines, buffers=[range(256), range(1024, 2048)])


def test_a_product_of_a_rings_slots_asks_for_the_ring() -> None:
    """It goes through three slots, each a buffer here, from 256 on; one of them is written to."""
    moved = ("shl.b32 %r43, %r30, 4;", "add.s32 %r44, %r42, %r43;", "cvt.u64.u32 %rd5, %r44;")
    body = (DESCRIBE.replace("PLACE", "256"), *moved, "or.b64 %rd2, %rd5, 4611686293305294848;", FENCE, FROM_PLACE)
    slots = [range(at, at + 256) for at in (256, 512, 768)]
    for place, shown in ((1024, True), (256, False), (512, False), (768, False)):
        lines = ("MEET", f"st.shared.b32 [%r3+{place}], %r9;", *body, "COMMIT")
        text = RING.replace("BODY", "\n".join(lines)).replace("MEET", MEET).replace("COMMIT", COMMIT)
        buffers = [*slots, range(1024, 1280)]
        if shown:
            show(text, buffers=buffers)
        else:
            with pytest.raises(PtxError, match="wrote"):
                show(text, buffers=buffers)


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

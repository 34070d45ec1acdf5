"""Barriers that order nothing are taken out of the PTX, all others stay."""

from __future__ import annotations

import pytest

from tests.support.ptx_start import start
from wspec.bridge.ptx.edits import PtxEdits
from wspec.ptx.validation.validate import validate

HEAD = """
.visible .entry kernel()
{
$L__func_begin0:
	ld.param.b64 	%rd1, [kernel_param_0];
	barrier.sync 	1;
"""
TAIL = """
	ret;
}
"""
SYNC = "	bar.sync 	0, 128;\n"
DONE = (
    "	// begin inline asm\n	// wait for regs: %r1\n	wgmma.wait_group.sync.aligned 0;\n	// end inline asm\n"
)
ARRIVE = "	@%p1 mbarrier.arrive.shared::cta.b64 _, [%r2];\n"
WAIT = """	{
	.reg .pred complete;
	waitLoop:
	mbarrier.try_wait.parity.shared.b64 complete, [%r1], %r2;
	@!complete bra.uni waitLoop;
	}
"""
STORE = "	st.shared.b32 	[%r1], %r2;\n"
ADD = "	add.s32 	%r3, %r4, 8;\n"


WIDE = start(8, 384)
"""The first eight warps are a task, which goes on."""
ALL = SYNC.replace("128", "256")


def taken_out(body: str, head: str = HEAD) -> list[bool]:
    """Of each barrier of the warp group in the body: was it taken out? What was may be."""
    whole = head + body + TAIL
    made = PtxEdits(elide_barriers=True).apply(whole)
    count = made.count("// a barrier of the task's threads stood here")
    before, after = whole.split("\n"), made.split("\n")
    assert len(before) == len(after)
    found = [old != new for old, new in zip(before, after, strict=True) if "bar.sync" in old]
    assert sum(found) == count and all(
        old == new or "bar.sync" in old for old, new in zip(before, after, strict=True)
    ), "nothing else changes"
    if head == WIDE:
        assert validate(whole, made).refusal == ""
    return found


def test_an_arrival_right_behind_the_product_needs_no_barrier() -> None:
    assert taken_out(DONE + ADD + SYNC + ARRIVE) == [True]
    assert taken_out(DONE + SYNC + ARRIVE + "$L__tmp7:\n	.loc	1 2 3\n" + ADD + SYNC + ARRIVE) == [True, True]


def test_a_wait_needs_no_barrier() -> None:
    assert taken_out(ADD + SYNC + ADD + WAIT) == [True]


@pytest.mark.parametrize(
    "between",
    [
        WAIT,  # what is handed back may be what was waited for here: no product has read it
        "	@%p1 cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes "
        "[%r1], [%rd1, {%r2}], [%r3];\n",
        "	bar.arrive 9, 256;\n",
    ],
)
def test_an_arrival_further_behind_keeps_its_barrier(between: str) -> None:
    assert taken_out(DONE + between + SYNC + ARRIVE) == [False]


def test_an_arrival_without_a_product_keeps_its_barrier() -> None:
    assert taken_out(WAIT + SYNC + ARRIVE) == [False]


@pytest.mark.parametrize(
    "access",
    [
        "	st.shared.v2.b32 	[%r1], {%r2, %r3};\n",
        "	ld.shared.b32 	%r1, [%r2];\n",
        "	ld.b32 	%r1, [%rd2];\n",
        "	stmatrix.sync.aligned.m8n8.x4.shared.b16 [%r1], {%r2, %r3, %r4, %r5};\n",
        "	cp.async.bulk.wait_group.read 	0;\n",
        "	fence.proxy.async.shared::cta;\n",
        "	@%p1 atom.shared.add.u32 	%r1, [%r2], 1;\n",
        "	call.uni (retval0), something, (param0);\n",
        "	an.instruction.of.tomorrow 	%r1;\n",
    ],
)
def test_shared_memory_that_threads_touched_keeps_the_barrier(access: str) -> None:
    assert taken_out(access + DONE + SYNC + ARRIVE) == [False]
    assert taken_out(access + SYNC + WAIT) == [False]
    assert taken_out(access + SYNC + DONE + SYNC + ARRIVE) == [False, True], "the first one has ordered it"


def test_another_way_round_a_loop_counts() -> None:
    loop = (
        "$L__BB0_1:\n" + DONE + SYNC + ARRIVE + "{0}	setp.lt.s32 	%p2, %r1, %r2;\n	@%p2 bra 	$L__BB0_1;\n"
    )
    assert taken_out(loop.format("")) == [True]
    assert taken_out(loop.format("	st.shared.b32 	[%r1], %r2;\n")) == [False]
    assert taken_out(loop.format("	st.shared.b32 	[%r1], %r2;\n" + SYNC)) == [True, False]


def test_a_way_through_a_table_of_branches_counts() -> None:
    ways = "	$L_brx_0: .branchtargets\n		$L__BB0_1,\n		$L__BB0_2;\n	brx.idx 	%r1, $L_brx_0;\n"
    first = "$L__BB0_1:\n	st.shared.b32 	[%r1], %r2;\n	bra.uni 	$L__BB0_3;\n"
    second = "$L__BB0_2:\n	bra.uni 	$L__BB0_3;\n"
    last = "$L__BB0_3:\n" + DONE + SYNC + ARRIVE
    assert taken_out(ways + first + second + last) == [False]
    assert taken_out(ways + first.replace("st.shared", "st.global") + second + last) == [True]


def test_barriers_of_more_than_a_warp_group_stay() -> None:
    turn = "	bar.sync 	8, 256;\n"
    assert taken_out(DONE + turn + ARRIVE) == [False]
    assert taken_out(ADD + turn + WAIT) == [False]
    assert taken_out(turn + ARRIVE + turn + ARRIVE) == [False, False]


def test_several_groups_need_no_barrier_before_a_wait() -> None:
    assert taken_out(DONE + ALL + ARRIVE + ADD + ALL + WAIT, WIDE) == [False, True]
    assert taken_out(STORE + ALL + ARRIVE + ADD + ALL + ARRIVE, WIDE) == [False, True]
    loop = "$L__BB0_1:\n" + ALL + WAIT + DONE + ALL + ARRIVE + "	@%p2 bra 	$L__BB0_1;\n"
    assert taken_out(loop, WIDE) == [True, False]
    assert taken_out(loop.replace(ARRIVE, ARRIVE + STORE), WIDE) == [False, False]


@pytest.mark.parametrize("between", ["", STORE, SYNC, STORE + SYNC, "	bar.sync 	8, 512;\n" + STORE])
def test_products_of_several_groups_keep_the_barrier_behind_them(between: str) -> None:
    """Eight warps go the same way: four of them may be done, and the others still read the tile."""
    assert taken_out(DONE + between + ALL + ARRIVE, WIDE)[-1] is False


def test_a_barrier_of_one_group_orders_nothing_between_several() -> None:
    assert taken_out(STORE + SYNC + ALL + WAIT, WIDE) == [False, False]
    assert taken_out(STORE + "	bar.sync 	8, 512;\n" + ALL + WAIT, WIDE) == [False, True]


INIT = "	// begin inline asm\n	@%p25 mbarrier.init.shared::cta.b64 [%r268], 1;\n	// end inline asm\n"
OTHER = "	@%p26 mbarrier.init.shared::cta.b64 [%r268], 1;\n"
INVAL = "	@%p25 mbarrier.inval.shared::cta.b64 [%r268];\n"


def test_a_barrier_behind_a_barrier_and_arrivals_goes() -> None:
    assert taken_out(STORE + SYNC + ARRIVE + ADD + SYNC + ARRIVE) == [False, True]
    assert taken_out(STORE + SYNC + ARRIVE + SYNC + ARRIVE + SYNC + ARRIVE) == [False, True, True]


@pytest.mark.parametrize("between", [STORE, WAIT, "	bar.arrive 9, 256;\n", SYNC.replace("0,", "2,")])
def test_a_barrier_behind_anything_else_stays(between: str) -> None:
    assert taken_out(STORE + SYNC + ARRIVE + between + SYNC + ARRIVE)[-1] is False


def test_mbarriers_are_set_up_without_barriers_between() -> None:
    assert taken_out(SYNC + INIT + SYNC + INIT + ADD + SYNC + INIT + SYNC + WAIT) == [False, True, True, False]
    assert taken_out(STORE + INIT + SYNC + INIT + SYNC + INIT) == [False, True], "the store is before the first"
    assert taken_out(SYNC + INIT + STORE + SYNC + INIT) == [False, False]
    assert taken_out(SYNC + INIT + SYNC + STORE) == [False, False]
    other = "	bar.sync 	2, 128;\n"
    assert taken_out(SYNC + INIT + other + INIT) == [False, False]


def test_the_kernel_begins_with_everything_touched() -> None:
    whole = HEAD.replace("	barrier.sync 	1;\n", "") + DONE + SYNC + ARRIVE + TAIL
    assert PtxEdits(elide_barriers=True).apply(whole) == whole


@pytest.mark.parametrize("made", [INIT, INVAL])
def test_one_thread_makes_barriers_without_waiting_for_the_others(made: str) -> None:
    several = SYNC + made + ADD + SYNC + ADD + made + SYNC + made + SYNC + STORE
    assert taken_out(several) == [False, True, True, False], "one stays in front, and one behind the last"


@pytest.mark.parametrize(
    "body",
    [
        SYNC + INIT + SYNC + OTHER,  # two threads
        SYNC + INIT + STORE + SYNC + INIT,
        SYNC + STORE + SYNC + INIT,
        SYNC + INIT + WAIT + SYNC + INIT,
        "	@%p1 bra 	$L__BB0_7;\n" + SYNC + INIT + "$L__BB0_7:\n" + SYNC + INIT,  # others may come from elsewhere
    ],
)
def test_what_others_did_comes_before_a_barrier_is_made(body: str) -> None:
    assert taken_out(body) == [False, False]

"""Edited PTX is accepted where the edits may be made, and refused where they may not."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.ptx.judge import judged
from tests.ptx.shipped_ptx import Pair, pair, variants
from tests.support.ptx_start import start
from wspec.bridge.versions import INSTALLED
from wspec.ptx.flow import blocks_of
from wspec.ptx.parser import read
from wspec.ptx.roles import roles_of
from wspec.ptx.validation.validate import Validation, validate

SHIPPED = [
    ("attention.py:attention_fwd", "d64_causal"),
    ("gathered.py:gathered_matmul_kernel", "bf16"),
    ("persistent.py:matmul_persistent_kernel", "square"),
    ("quantized.py:int8_weights_kernel", "m256"),
]
LATE = {("quantized.py:int8_weights_kernel", "m256")}
"""Its tiles take longer to arrive than to multiply: nothing says that it is to start early all the same."""


def shipped(kernel: str, variant: str) -> Pair:
    found = pair(kernel, variant)
    assert found is not None
    return found


def test_the_variants_are_those_of_the_kernels() -> None:
    assert set(SHIPPED) <= set(variants())


@pytest.mark.parametrize(("kernel", "variant"), SHIPPED)
def test_what_we_ship_is_accepted(kernel: str, variant: str) -> None:
    one = shipped(kernel, variant)
    said = validate(one.emitted, one.edited, one.constant)
    assert said.refusal == "" and ("early start" in said.summary) is ((kernel, variant) not in LATE)
    assert "barriers gone" in said.summary or not INSTALLED.gathers_before_waits, "some have none to lose"


@pytest.mark.parametrize(("kernel", "variant"), SHIPPED)
def test_a_sample_of_mutants_is_refused(kernel: str, variant: str) -> None:
    found = list(judged(shipped(kernel, variant), step=23))
    counts = Counter(one.verdict for one in found)
    assert [one for one in found if one.verdict == "unexplained"] == []
    assert counts["refused"] > 0.9 * len(found) > 20


def test_the_warps_of_attention() -> None:
    """Four multiply, one loads, one hands on tiles, and two have nothing to do."""
    entry = read(shipped(*SHIPPED[0]).edited).entry()
    roles = roles_of(entry, blocks_of(entry))
    assert [role.warps for role in roles] == [(0, 1, 2, 3), (4, 5), (6,), (7,)]


def test_the_table_of_tiles_must_be_known() -> None:
    one = shipped("attention.py:attention_fwd", "d64_causal")
    said = validate(one.emitted, one.edited, None)
    assert "ld.global" in said.refusal and "has not waited" in said.refusal


# ------------------------------------------------------------------------------------------- rules, one by one

TAIL = "	ret;\n}\n"
SYNC = "	bar.sync 	0, 128;\n"
ARRIVE = "	@%p2 mbarrier.arrive.shared::cta.b64 _, [%r9];\n"
WAIT = """	{
	.reg .pred complete;
	waitLoop:
	mbarrier.try_wait.parity.shared.b64 complete, [%r8], %r7;
	@!complete bra.uni waitLoop;
	}
"""
MMA = "	wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%r20, %r21}, %rd2, %rd3, 1, 1, 1, 0, 0;\n"
PRODUCT = MMA + "	wgmma.commit_group.sync.aligned;\n"
DONE = "	wgmma.wait_group.sync.aligned 0;\n"
STORE = "	st.shared.b32 	[%r5], %r6;\n"
LOAD = "	ld.shared.b32 	%r6, [%r5];\n"
PUT = "	st.global.b32 	[%rd1], %r6;\n"
GET = "	ld.global.b32 	%r6, [%rd1];\n"
COPY = (
    "	@%p2 cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%r1], "
    "[%rd1, {%r2, %r3}], [%r4];\n"
)
INIT = "	@%p3 mbarrier.init.shared::cta.b64 [%r4], 1;\n"
OTHERS_INIT = "	@%p4 mbarrier.init.shared::cta.b64 [%r4], 1;\n"
GONE = "<gone>"


def whole(body: str, other: str = "") -> str:
    return start(4, 256, other) + body + TAIL


def said(body: str, other: str = "") -> Validation:
    """Of a body whose marked barriers are gone."""
    return validate(whole(body.replace(GONE, SYNC), other), whole(body.replace(GONE, ""), other))


@pytest.mark.parametrize(
    "body",
    [
        GONE + WAIT,  # nothing has been done
        WAIT + PRODUCT + DONE + GONE + ARRIVE,
        WAIT + PRODUCT + WAIT + PRODUCT + DONE.replace("0", "1") + GONE + ARRIVE,  # the second guards what runs
        STORE + SYNC + ARRIVE + GONE + ARRIVE,
        LOAD + GONE + LOAD,
        STORE + GONE + SYNC + ARRIVE,
        GET + GONE + WAIT + LOAD,
        PUT + GONE + PUT,  # in no order among themselves
        INIT + GONE + INIT + SYNC + WAIT,
    ],
)
def test_barriers_that_may_go(body: str) -> None:
    assert said(body).refusal == ""


@pytest.mark.parametrize(
    "body",
    [
        WAIT + GONE + ARRIVE,  # the others may still wait
        WAIT + PRODUCT + GONE + ARRIVE + DONE,
        PRODUCT + WAIT + DONE + GONE + ARRIVE,  # issued by all, but the wait comes behind
        WAIT + GONE + COPY,
        STORE + GONE + LOAD,
        STORE + GONE + MMA,
        LOAD + GONE + STORE,
        STORE + GONE + WAIT + ARRIVE,
        STORE + PRODUCT + DONE + GONE + ARRIVE,
        PUT + GONE + GET,
        PUT + GONE + ARRIVE,
        "	fence.proxy.async.shared::cta;\n" + GONE + COPY,
        "	cp.async.bulk.wait_group.read 	0;\n" + GONE + STORE,
        "	an.instruction.of.tomorrow 	%r1;\n" + GONE + LOAD,
        INIT + GONE + OTHERS_INIT + SYNC,
        INIT + GONE + WAIT,
        INIT + "	setp.eq.b32 	%p3, %r1, 0;\n" + GONE + INIT + SYNC,
        "$L__BB0_2:\n" + GONE + ARRIVE + STORE + "	@%p5 bra 	$L__BB0_2;\n",  # round the loop
    ],
)
def test_barriers_that_may_not_go(body: str) -> None:
    assert "a barrier is gone that" in said(body).refusal


def test_a_barrier_that_others_come_to_may_not_go() -> None:
    refusal = said(GONE + WAIT, other=SYNC).refusal
    assert "not shown that it is of one task alone" in refusal
    assert said(GONE + WAIT, other=SYNC.replace("0,", "2,")).refusal == ""


def test_a_product_is_of_one_warp_group() -> None:
    """Eight warps go the same way: four of them may be done, and the others still wait."""
    body = WAIT + PRODUCT + DONE + GONE + ARRIVE
    texts = [whole(body.replace(GONE, there)) for there in ("	bar.sync 	0, 256;\n", "")]
    wide = [text.replace("%r2, 4;", "%r2, 8;").replace(".reqntid 256", ".reqntid 384") for text in texts]
    assert "a barrier is gone that" in validate(*wide).refusal


ROW = "	max.f32 	%f1, %f2, %f3;\n"
PUT_OFF = """	{
	.reg .pred %known;
	setp.ne.b32 %known, %f1, 0x7fc0dead;
	and.pred %known, %known, %p2;
	@%known mbarrier.arrive.shared::cta.b64 _, [%r9];
	}
"""


def put_off(between: str, again: str = PUT_OFF) -> str:
    """Why an arrival may not come behind what stands between; "" where it may."""
    front = WAIT + PRODUCT + DONE
    return validate(whole(front + ARRIVE + between), whole(front + between + again)).refusal


def test_an_arrival_may_be_put_off_past_arithmetic() -> None:
    assert put_off(ROW) == ""


@pytest.mark.parametrize(
    ("between", "again"),
    [
        (ROW + WAIT, PUT_OFF),
        (ROW + SYNC, PUT_OFF),
        (ROW + LOAD, PUT_OFF),
        (ROW + DONE, PUT_OFF),
        (ROW + "	add.s32 	%r9, %r9, 8;\n", PUT_OFF),  # another barrier
        (ROW + "	setp.eq.b32 	%p2, %r1, 1;\n", PUT_OFF),  # another thread
        ("	add.s32 	%f1, %r1, 1;\n", PUT_OFF),  # may be that number
        (ROW + "	mov.b32 	%f1, %r1;\n", PUT_OFF),
        (ROW, PUT_OFF.replace("0x7fc0dead", "0x7fffffff")),  # the NaN that they give
        (ROW, PUT_OFF.replace("0x7fc0dead", "0x3f800000")),
        (ROW, PUT_OFF.replace("and.pred", "or.pred")),
        (ROW, PUT_OFF.replace("%known, %p2", "%known, %p3")),
        (ROW, PUT_OFF.replace("[%r9]", "[%r8]")),
        (ROW, PUT_OFF.replace("	@%known", "	@!%known")),
        (ROW, ""),
    ],
)
def test_arrivals_that_may_not_be_put_off(between: str, again: str) -> None:
    assert put_off(between, again) != ""


TWO_ROWS = ROW + "	max.f32 	%f4, %f5, %f6;\n"
TIED = """	{
	.reg .pred %known;
	setp.ne.b32 %known, %f4, 0x7fc0dead;
	selp.b32 %f1, %f1, %f4, %known;
	}
"""


def tied(rows: str = TWO_ROWS, tie: str = TIED) -> Validation:
    """A value that waits for another one."""
    return validate(whole(rows + STORE), whole(rows + tie + STORE))


def test_a_value_may_wait_for_another_one() -> None:
    assert tied() == Validation("PTX: 1 row beside others, shown to be equivalent")
    third = TIED.replace("	}\n", "	selp.b32 %f7, %f7, %f4, %known;\n	}\n")
    assert tied(tie=third).summary.startswith("PTX: 2 rows beside others")


@pytest.mark.parametrize(
    ("rows", "tie"),
    [
        (TWO_ROWS.replace("max.f32 	%f4, %f5, %f6", "mov.b32 	%f4, %r1"), TIED),  # may be that number
        (ROW, TIED),
        (TWO_ROWS, TIED.replace("0x7fc0dead", "0x7fffffff")),  # the NaN that they give
        (TWO_ROWS, TIED.replace("0x7fc0dead", "0")),
        (TWO_ROWS, TIED.replace("setp.ne", "setp.eq")),
        (TWO_ROWS, TIED.replace("%f1, %f1, %f4", "%f1, %f4, %f1")),
        (TWO_ROWS, TIED.replace("%f1, %f1, %f4", "%f1, %f2, %f4")),
        (TWO_ROWS, TIED.replace("	selp", "	@%known selp").replace("%f4, %known;", "%f4, %p2;")),
        (TWO_ROWS, TIED.replace("	setp", "	@%p2 setp")),
        (TWO_ROWS, TIED.replace("setp.ne.b32 %known", "and.pred %known, %p2, %p2;\n	setp.ne.b32 %p2")),
        (TWO_ROWS + "$L__BB0_2:\n", TIED),  # where others come to, who may bring another value
    ],
)
def test_values_that_may_change(rows: str, tie: str) -> None:
    jump = "	@%p2 bra 	$L__BB0_2;\n" if "BB0_2" in rows else ""
    assert tied(jump + rows, tie).refusal


EARLY = "	griddepcontrol.wait;\n	griddepcontrol.launch_dependents;\n"


@pytest.mark.parametrize(
    ("body", "other", "fine"),
    [
        (EARLY + GET, "", True),
        (GET + EARLY, "", False),
        (COPY + EARLY, "", False),
        (EARLY + GET, GET, False),  # the other task has not waited
        (EARLY + GET, EARLY + GET, True),
        ("	@%p5 bra 	$L__BB0_3;\n" + EARLY + "$L__BB0_3:\n" + GET, "", False),  # one way only
        (EARLY.replace("	griddepcontrol.wait", "	@%p5 griddepcontrol.wait") + GET, "", False),
        (LOAD + "	ld.param.b64 	%rd2, [kernel_param_0];\n" + EARLY + GET, "", True),
    ],
)
def test_early_starts(body: str, other: str, fine: bool) -> None:
    after = whole(body, other)
    before = "".join(line for line in after.splitlines(keepends=True) if "griddepcontrol" not in line)
    assert (validate(before, after).refusal == "") == fine


def test_others_wait_for_who_has_waited() -> None:
    """A wait in front of the barrier of all threads counts for all."""
    texts = [whole("", GET).replace("kernel_param_0];\n", f"kernel_param_0];\n{there}") for there in ("", EARLY)]
    assert validate(*texts).refusal == ""


@pytest.mark.parametrize(
    "change",
    [
        ("bar.sync 	0, 128", "bar.sync 	0, 64"),
        ("mbarrier.arrive", "mbarrier.arrive.noComplete"),
        ("[%r8], %r7", "[%r8], %r6"),
        ("@!complete", "@complete"),
        (".reqntid 256", ".reqntid 128"),
        ("%r2, 4", "%r2, 5"),
    ],
)
def test_any_other_change_is_refused(change: tuple[str, str]) -> None:
    before = whole(SYNC + WAIT + ARRIVE)
    assert validate(before, before.replace(*change)).refusal != ""


def test_names_of_inner_blocks_do_not_matter_but_who_uses_them_does() -> None:
    two = whole(WAIT + WAIT.replace("%r8", "%r18"))
    assert validate(two, two.replace("	{\n", "	{\n\n")).refusal == ""
    mixed = two.replace("	}\n	{\n	.reg .pred complete;\n", "", 1)
    assert validate(two, mixed).refusal != ""

"""PTX in all its forms is read as what it is, and what is no PTX is refused."""

from __future__ import annotations

import pytest

from wspec.ptx.effects import reads, space, writes
from wspec.ptx.errors import PtxError
from wspec.ptx.flow import blocks_of
from wspec.ptx.operands import Address, Number, Register, Several, Symbol
from wspec.ptx.parser import read, read_body

FILE = """
.version 8.7
.target sm_90a
.address_size 64
.extern .shared .align 16 .b8 global_smem[];
.global .align 4 .b8 table[4] = {1, 2, 3, 4};
.visible .entry kernel(
	.param .align 64 .b8 kernel_param_0[128],
	.param .u64 .ptr .global .align 1 kernel_param_1
)
.reqntid 256
.maxnreg 80
{
	.reg .pred 	%p<3>;
	.reg .b32 	%r<9>;
	.loc	1 58 22                         // file.py:58:22
$L__func_begin0:
	ld.param.b64 	%rd1, [kernel_param_1]; /* bar.sync 0; */
	.loc	1 60 9, function_name $L__info0, inlined_at 1 58 22
	@!%p1 bra 	$L__BB0_2;
	$L_brx_0: .branchtargets
		$L__BB0_1,
		$L__BB0_2;
	brx.idx 	%r1, $L_brx_0;
$L__BB0_1:
{
	.reg .pred complete;
	waitLoop:
	mbarrier.try_wait.parity.shared.b64 complete, [%r3+8], %r4;
	@!complete bra.uni waitLoop;
}
{
	.reg .pred complete;
	waitLoop:
	mbarrier.try_wait.parity.shared.b64 complete, [%r3], %r4;
	@!complete bra.uni waitLoop;
}
$L__BB0_2:
	.pragma "nounroll";
	ret;
}
	.file	1 "/a//b.py"
	.section	.debug_str
	{
$L__info0:
.b8 107
	}
"""


def test_a_file() -> None:
    module = read(FILE)
    entry = module.entry()
    assert entry.name == "kernel" and entry.types["%r<9>"] == "b32"
    assert [one.name for one in module.directives] == [".version", ".target", ".address_size", ".extern", ".global",
                                                       ".file"]  # fmt: skip
    assert [one.opcode for one in entry.instructions] == [
        "ld.param.b64", "bra", "brx.idx", "mbarrier.try_wait.parity.shared.b64", "bra.uni",
        "mbarrier.try_wait.parity.shared.b64", "bra.uni", "ret",
    ]  # fmt: skip
    load, branch = entry.instructions[:2]
    assert (load.loc, branch.loc) == ("1 58 22", "1 60 9, function_name $L__info0, inlined_at 1 58 22")
    assert (branch.guard, branch.unless) == ("%p1", True) and FILE[
        branch.start : branch.end
    ] == "@!%p1 bra 	$L__BB0_2;"
    assert [one.text for one in module.comments] == ["// file.py:58:22", "/* bar.sync 0; */"]
    assert ".pragma" in [one.name for one in entry.directives]


def test_blocks_in_braces_have_registers_and_labels_of_their_own() -> None:
    entry = read(FILE).entry()
    waits = [one for one in entry.instructions if one.name == "mbarrier"]
    assert [one.operands[0] for one in waits] == [Register("complete#1"), Register("complete#2")]
    assert waits[0].operands[1] == Address(Register("%r3"), 8)
    blocks = blocks_of(entry)
    assert [(block.labels, block.follow) for block in blocks] == [
        ([], [4, 1]),  # and the label of the debugger begins no block
        ([], [2, 4]),
        (["$L__BB0_1", "waitLoop#1"], [2, 3]),
        (["waitLoop#2"], [3, 4]),
        (["$L__BB0_2"], []),
    ]
    assert blocks[2].spins and not blocks[4].spins


def test_operands() -> None:
    text = (
        "@p cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%r1], [%rd1, {%r2, %r3}], "
        "[$1+ -4]; setp.lt.and.f32 a|b, %f1, 0f3F800000, !%p4; "
        "mov.b64 {%r1, _}, %rd2; ld.global.b32 { %r9 }, [ x + 0 ];"
        "add.s32 %r1, %r2, -0x10;"
    )
    copy, compare, move, load, add = read_body(text).instructions
    assert copy.guard == "p"
    assert copy.operands == (
        Address(Register("%r1")),
        Address(Register("%rd1"), 0, (Several((Register("%r2"), Register("%r3"))),)),
        Address(Register("$1"), -4),
    )
    first, _, one, flag = compare.operands
    assert isinstance(first, Several) and flag == Register("%p4", True)
    assert isinstance(one, Number) and one.value is None
    assert writes(move) == ("%r1",) and reads(move) == ("%rd2",)
    assert space(load) == "global" and load.operands[1] == Address(Symbol("x"))
    assert isinstance(add.operands[2], Number) and add.operands[2].value == -16


@pytest.mark.parametrize(
    ("code", "written", "read"),
    [
        ("st.shared.b32 [%r1], %r2;", (), ("%r1", "%r2")),
        ("@%p1 mov.b32 %r1, %r2;", ("%r1",), ("%r2", "%p1")),
        ("mbarrier.arrive.shared.b64 _, [%r1];", (), ("%r1",)),
        ("mbarrier.init.shared.b64 [%r1], 1;", (), ("%r1",)),
        ("wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%f1, %f2}, %rd1, %rd2, 1, 1, 1, 0, 0;", ("%f1", "%f2"),
         ("%f1", "%f2", "%rd1", "%rd2")),
        ("wgmma.wait_group.sync.aligned 0;", (), ()),
        ("elect.sync %r1|%p1, -1;", ("%r1", "%p1"), ()),
    ],
)  # fmt: skip
def test_registers(code: str, written: tuple[str, ...], read: tuple[str, ...]) -> None:
    one = read_body(code).instructions[0]
    assert (writes(one), reads(one)) == (written, read)


@pytest.mark.parametrize(
    "text",
    [
        "bar.sync 0",  # without its semicolon
        "{ bar.sync 0; ",
        "bar.sync 0; }",
        "{ .reg .pred p; bar.sync 0 }",
        "mov.b32 %r1, (;",
        'mov.b32 "a;',
        "BAR.SYNC 0;",
        "x: x: ret;",
        "? ;",
    ],
)
def test_what_is_no_ptx_is_refused(text: str) -> None:
    with pytest.raises(PtxError):
        for one in read_body(text).instructions:
            _ = one.operands


def test_a_branch_to_nowhere_is_refused() -> None:
    with pytest.raises(PtxError, match="where does bra away; go"):
        blocks_of(read_body("bra away; { away: ret; } ret;"))

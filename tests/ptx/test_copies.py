"""Where copies go to and come from: boxes of bulk copies and elements, in shipped kernels and in small texts."""

from __future__ import annotations

import functools
import itertools
import re

import pytest

from tests.ptx.shipped_ptx import pair
from wspec import ir
from wspec.bridge.ptx import tiles
from wspec.bridge.ptx.draws import Draws, divides
from wspec.bridge.ptx.elements import element_at
from wspec.bridge.ptx.shown import shown
from wspec.bridge.ptx.side_by_side import show_order
from wspec.bridge.ptx.tiles import NotFollowed, Tiles
from wspec.bridge.shared_memory import placement
from wspec.ir.types import SMEM, Layout, MemDescType, ScalarType
from wspec.ptx.arithmetic import computed
from wspec.ptx.copies import Copies
from wspec.ptx.drawn_launch import Launch
from wspec.ptx.errors import PtxError
from wspec.ptx.evaluation import Evaluation
from wspec.ptx.flow import blocks_of
from wspec.ptx.forms import Form, Forms, may_be_a_sum
from wspec.ptx.parser import read
from wspec.ptx.registers import Writers
from wspec.ptx.roles import Role

MATMUL = ("matmul.py:matmul_descriptor_kernel", "fp16")
GATHERED = ("gathered.py:gathered_matmul_kernel", "bf16")
LOAD, STORE, ELEMENTS = "cp.async.bulk.tensor.2d.shared::", "cp.async.bulk.tensor.2d.global", "cp.async.cg"


@functools.cache
def text_of(kernel: tuple[str, str]) -> tuple[str, str]:
    found = pair(*kernel)
    assert found is not None
    return found.final, found.emitted


def beside(kernel: tuple[str, str], text: str) -> str:
    """A text beside the kernel's TTGIR; why its copies were not all compared."""
    module = ir.read(text_of(kernel)[0])
    function = next(op for op in module.walk() if op.name == "tt.func")
    return show_order(function, read(text).entry(), placement(module))


def boxes(lines: list[str]) -> tuple[int, int]:
    """Two copies, one after the other, to one mbarrier."""
    found = [at for at, line in enumerate(lines) if LOAD in line]
    at, other = next((a, b) for a, b in itertools.pairwise(found)
                     if lines[a].rpartition("[")[2] == lines[b].rpartition("[")[2])  # fmt: skip
    return at, other


def coordinates(line: str) -> str:
    found = re.search(r"\{[^}]*\}", line)
    assert found is not None
    return found[0]


@pytest.mark.parametrize("kernel", [MATMUL, GATHERED])
def test_as_it_is(kernel: tuple[str, str]) -> None:
    assert beside(kernel, text_of(kernel)[1]) == ""


def test_what_cannot_be_compared_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the TTGIR cannot be followed there is nothing to compare with, and the proof says so."""

    def lost(*_: object) -> None:
        raise NotFollowed("where a tile is in global memory is not known")

    monkeypatch.setattr(Tiles, "copies", lost)
    final, emitted = text_of(MATMUL)
    assert beside(MATMUL, emitted) == "where a tile is in global memory is not known"
    said = shown(final, emitted, emitted, None)
    assert said.summary == "PTX: synchronizes as the TTGIR does; where copies begin is not compared"
    assert not said.refusal


def test_boxes_that_take_each_others_tiles() -> None:
    lines = text_of(MATMUL)[1].split("\n")
    at, other = boxes(lines)
    mine, others = coordinates(lines[at]), coordinates(lines[other])
    assert mine != others
    lines[at], lines[other] = lines[at].replace(mine, others), lines[other].replace(others, mine)
    with pytest.raises(PtxError, match=r"the TTGIR (says|does not say)"):
        beside(MATMUL, "\n".join(lines))


def test_a_box_whose_coordinates_are_in_another_order() -> None:
    lines = text_of(MATMUL)[1].split("\n")
    at, _ = boxes(lines)
    first, second = coordinates(lines[at])[1:-1].split(", ")
    lines[at] = lines[at].replace(coordinates(lines[at]), f"{{{second}, {first}}}")
    with pytest.raises(PtxError, match=r"the TTGIR (says|does not say)"):
        beside(MATMUL, "\n".join(lines))


@pytest.mark.parametrize("opcode", [LOAD, STORE])
def test_another_tensor(opcode: str) -> None:
    lines = text_of(MATMUL)[1].split("\n")
    maps = sorted(set(re.findall(r"\[(%rd\d+), \{", text_of(MATMUL)[1])))
    at = next(at for at, line in enumerate(lines) if opcode in line)
    own = next(name for name in maps if f"[{name}," in lines[at])
    lines[at] = lines[at].replace(own, next(name for name in maps if name != own))
    with pytest.raises(PtxError, match=r"the TTGIR (says|does not say)"):
        beside(MATMUL, "\n".join(lines))


@pytest.mark.parametrize("opcode", [LOAD, STORE])
def test_a_tensor_that_is_not_known(opcode: str) -> None:
    """The TTGIR says which it is, so that the PTX must."""
    lines = text_of(MATMUL)[1].split("\n")
    at = next(at for at, line in enumerate(lines) if opcode in line)
    (own,) = re.findall(r"\[(%rd\d+), \{", lines[at])
    for change in (f"add.s64 {own}, {own}, 128;", f"mov.u64 {own}, %clock64;"):
        with pytest.raises(PtxError):
            beside(MATMUL, "\n".join([*lines[:at], change, *lines[at:]]))
    made = next(line for line in lines if f"cvta.param.u64 \t{own}," in line)
    with pytest.raises(PtxError, match=r"the TTGIR (says|does not say)"):
        beside(MATMUL, text_of(MATMUL)[1].replace(made, f"mov.b64 {own}, %clock64;"))


def test_elements_that_go_elsewhere() -> None:
    lines = text_of(GATHERED)[1].split("\n")
    at, other = [at for at, line in enumerate(lines) if ELEMENTS in line][:2]
    place, others = (re.findall(r"\[ (%r\d+)", lines[number])[0] for number in (at, other))
    right = lines[other]
    lines[other] = right.replace(f"[ {others} ", f"[ {place} ")  # twice there, and never here
    with pytest.raises(PtxError, match="nothing like it"):
        beside(GATHERED, "\n".join(lines))
    lines[other] = right.replace(f"[ {others} + 0", f"[ {others} + 262144")
    with pytest.raises(PtxError, match=r"the TTGIR (says|does not say)"):
        beside(GATHERED, "\n".join(lines))


def last_coordinate(line: str) -> str:
    """The register of the outermost."""
    return re.findall(r"%r\d+", coordinates(line))[-1]


@pytest.mark.parametrize("opcode", [LOAD, STORE])
@pytest.mark.parametrize("change", ["add.s32 {0}, {0}, 1;", "mov.b32 {0}, 0;", "mov.u32 {0}, %ctaid.y;"])
def test_all_boxes_of_a_tile_elsewhere(opcode: str, change: str) -> None:
    lines = text_of(MATMUL)[1].split("\n")
    at = next(at for at, line in enumerate(lines) if opcode in line)
    lines[at] = change.format(last_coordinate(lines[at])) + lines[at]
    with pytest.raises(PtxError, match="something else of global memory"):
        beside(MATMUL, "\n".join(lines))


def test_a_register_that_nobody_has_written() -> None:
    text = text_of(MATMUL)[1]
    line = next(line for line in text.split("\n") if STORE in line)
    text = text.replace(line, line.replace(last_coordinate(line), "%r9999"))
    with pytest.raises(PtxError, match="cannot be followed"):
        beside(MATMUL, text)


def test_a_tile_less() -> None:
    """A loop that goes by two steps at once: what synchronizes is allowed as it is."""
    text = text_of(MATMUL)[1]
    line = next(line for line in text.split("\n") if LOAD in line)
    shared = {name for one in text.split("\n") if LOAD in one for name in re.findall(r"%r\d+", coordinates(one))}
    steps = [name for name in shared if f"add.s32 \t{name}, {name}, 64;" in text]
    assert steps and line
    for name in steps:
        text = text.replace(f"add.s32 \t{name}, {name}, 64;", f"add.s32 \t{name}, {name}, 128;")
    with pytest.raises(PtxError, match=r"global memory|more tiles"):
        beside(MATMUL, text)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (r"\[ (%rd\d+) \+ 0 \]", r"[ \g<1> + 2 ]"),
        (r"\[ (%rd\d+) \+ 0 \]", r"[ \g<1> + 65536 ]"),
        (r"0x10, %r\d+;", "0x10, 0x10;"),  # never filled with zeros
        (r"0x10, %r\d+;", "0x10, 0x0;"),  # always
    ],
)
def test_elements_that_come_from_elsewhere(old: str, new: str) -> None:
    lines = text_of(GATHERED)[1].split("\n")
    at = next(at for at, line in enumerate(lines) if ELEMENTS in line)
    lines[at], count = re.subn(old, new, lines[at])
    assert count == 1
    with pytest.raises(PtxError, match="something else of global memory"):
        beside(GATHERED, "\n".join(lines))


def buffer(shape: tuple[int, ...], name: str, **fields: int | bool | tuple[int, ...]) -> MemDescType:
    return MemDescType(shape, ScalarType("bf16"), Layout(name, tuple(fields.items())), SMEM)


def test_where_elements_lie() -> None:
    """Each once; the first row as it is, and the second with its chunks of 16 bytes exchanged."""
    tile = buffer((64, 128), "ttg.nvmma_shared", swizzlingByteWidth=128, transposed=False, elementBitWidth=16)
    assert [element_at(tile, 2 * at) for at in (0, 1, 63)] == [(0, 0), (0, 1), (0, 63)]
    assert element_at(tile, 128) == (1, 8) and element_at(tile, 64 * 128) == (0, 64)
    assert len({element_at(tile, 2 * at) for at in range(64 * 128)}) == 64 * 128
    turned = buffer((128, 64), "ttg.nvmma_shared", swizzlingByteWidth=128, transposed=True, elementBitWidth=16)
    assert element_at(turned, 128) == (8, 1)
    rows = buffer((32, 64), "ttg.swizzled_shared", vec=8, perPhase=2, maxPhase=4, order=(1, 0))
    assert [element_at(rows, 128 * row) for row in (0, 1, 2)] == [(0, 0), (1, 0), (2, 8)]
    assert len({element_at(rows, 2 * at) for at in range(32 * 64)}) == 32 * 64
    assert element_at(rows, 1) is None
    assert element_at(buffer((64,), "ttg.swizzled_shared"), 0) is None


# ------------------------------------------------------------------------------------------- launches that are drawn


def test_where_the_ttgir_has_no_meaning_nothing_counts_as_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its execution takes too long in each launch: that is said."""
    monkeypatch.setattr(tiles, "MOST_STEPS", 0)
    final, emitted = text_of(MATMUL)
    assert "no launch was found that comes to it" in beside(MATMUL, emitted)
    assert shown(final, emitted, emitted, None).summary.endswith("; where copies begin is not compared")


def test_how_often_a_loop_waits() -> None:
    """Loops over tiles, of the consumers as well, that copy nothing, go two steps at once."""
    text = text_of(GATHERED)[1]
    steps = set(re.findall(r"add\.s32 \t(%r\d+), \1, 64;", text))
    assert len(steps) > 1
    for name in steps:
        with pytest.raises(PtxError):
            beside(GATHERED, text.replace(f"add.s32 \t{name}, {name}, 64;", f"add.s32 \t{name}, {name}, 128;"))


def test_a_leader_that_is_chosen_among_other_lanes() -> None:
    text = text_of(MATMUL)[1]
    found = re.findall(r"elect\.sync \t?[^,]*, -1;", text)
    assert found
    for one in dict.fromkeys(found):
        with pytest.raises(PtxError):
            beside(MATMUL, text.replace(one, one.replace("-1;", "-2;")))


def test_what_one_branch_alone_does() -> None:
    """A task waits for products where it goes on with sums that others have begun, and else it does not: without the
    wait either branch is like the other one."""
    text, wait = text_of(MATMUL)[1], "wgmma.wait_group.sync.aligned 0;"
    acquired = [found.start() for found in re.finditer(r"ld\.acquire\.gpu", text)]
    assert len(acquired) > 1
    for at in acquired[:2]:
        before, _, behind = text[:at].rpartition(wait)
        with pytest.raises(PtxError):
            beside(MATMUL, before + behind + text[at:])


NESTED = """.version 8.7
.target sm_90a
.address_size 64
.visible .entry kernel(.param .u32 kernel_param_0)
.reqntid 32
{
	.reg .pred %p<9>;
	.reg .b32 %r<99>;
	.reg .b64 %rd<9>;
	mov.b32 	%r1, 0;
	mov.b32 	%r2, 0;
$L__BB0_1:
	mov.b32 	%r3, 0;
$L__BB0_2:
	add.s32 	%r4, %r2, %r3;
	cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%r1], [%rd1, {%r4, %r2}], [%r1];
	add.s32 	%r3, %r3, 1;
	setp.lt.s32 	%p1, %r3, 90;
	@%p1 bra 	$L__BB0_2;
	add.s32 	%r2, %r2, 1000;
	setp.lt.s32 	%p2, %r2, 9000;
	@%p2 bra 	$L__BB0_1;
	ret;
}
"""


def copies_of(text: str, warps: int = 1) -> Copies:
    """All of its threads are one task."""
    entry = read(text).entry()
    blocks = blocks_of(entry)
    role = Role(tuple(range(warps)), frozenset(range(len(blocks))), (0, 0), None)
    return Copies(blocks, role, Writers(entry))


LAUNCH = Launch(1, (5,), {}, (0, 0, 0), (1, 1, 1))


def test_an_outer_loop_goes_round() -> None:
    """However many copies its first round has; a loop that has gone round in another launch need not again."""
    copies = copies_of(NESTED)
    taken = copies.in_launch(LAUNCH, lambda: False, {})
    (inner,), (outer,) = ([first for first, loop in copies.loops.items() if len(loop) == size] for size in (1, 3))
    assert {copy.by[0].source[1] for copy in taken.copies} == {0, 1000, 2000}
    assert [number for _, loop, number in taken.rounds if loop == outer] == [1, 2, 3]
    assert not taken.ends and not taken.chosen
    few = copies.in_launch(LAUNCH, lambda: False, {inner: 3, outer: 3})
    assert len(few.copies) == 32


def test_a_launch_goes_to_the_end_where_that_is_asked_for() -> None:
    copies = copies_of(NESTED.replace("%r3, 90;", "%r3, 10;"))
    known = dict.fromkeys(copies.loops, 3)
    assert len(copies.in_launch(LAUNCH, lambda: False, known).copies) == 32
    taken = copies.in_launch(LAUNCH, lambda: False, known, to_end=True)
    assert taken.ends and len(taken.copies) == 90 and taken.enough == 32
    assert copies_of(NESTED).in_launch(LAUNCH, lambda: False, {}, to_end=True).enough == 181


def test_a_launch_in_which_nothing_is_new_is_over() -> None:
    """The outer loop is far away; where the end is asked for it may come yet."""
    copies = copies_of(NESTED.replace("%r3, 90;", "%r3, 9000;"))
    assert copies.in_launch(LAUNCH, lambda: False, {}).blocks < 120
    assert copies.in_launch(LAUNCH, lambda: False, {}, to_end=True).blocks == 400


EXCHANGED = """.version 8.7
.target sm_90a
.address_size 64
.visible .entry kernel(.param .u32 kernel_param_0)
.reqntid 32
{
	.reg .pred %p<9>;
	.reg .b32 %r<99>;
	.reg .b64 %rd<9>;
	mov.u32 	%r1, %tid.x;
	shl.b32 	%r2, %r1, 2;
	mov.b32 	%r3, 0;
$L__BB0_1:
	st.shared.b32 	[%r2], %r1;
	xor.b32 	%r4, %r2, 124;
	ld.shared.b32 	%r5, [%r4];
	cvt.u64.u32 	%rd1, %r5;
	cp.async.cg.shared.global [ %r2 + 0 ], [ %rd1 + 0 ], 0x10, 0x10;
	add.s32 	%r3, %r3, 1;
	setp.lt.s32 	%p1, %r3, 99;
	@%p1 bra 	$L__BB0_1;
	ret;
}
"""


def test_each_thread_is_looked_at_where_threads_exchange_addresses() -> None:
    """What one of them copies says nothing of another's then."""
    taken = copies_of(EXCHANGED).in_launch(LAUNCH, lambda: False, {})
    pairs = {(one.place, one.source[0]) for copy in taken.copies for one in copy.by}
    assert pairs == {(4 * lane, 31 - lane) for lane in range(32)}


def test_threads_exchange_bytes_and_words() -> None:
    """A mask whose layout is changed lies in bytes."""
    bytes = EXCHANGED.replace("shl.b32 \t%r2, %r1, 2;", "mov.b32 \t%r2, %r1;").replace("%r2, 124;", "%r2, 31;")
    bytes = bytes.replace("st.shared.b32", "st.shared.b8").replace("ld.shared.b32", "ld.shared.b8")
    pairs = [
        {(one.place, one.source[0]) for copy in copies_of(text).in_launch(LAUNCH, lambda: False, {}).copies
         for one in copy.by}
        for text in (bytes, EXCHANGED.replace("ld.shared.b32", "ld.shared.b8"))
    ]  # fmt: skip
    assert pairs == [{(lane, 31 - lane) for lane in range(32)}, {(4 * lane, 31 - lane) for lane in range(32)}]


def test_each_bit_of_a_lane_is_looked_at() -> None:
    """Otherwise two bits may change places: the first lane has neither, and the last one both."""
    alone = EXCHANGED.replace("ld.shared.b32 \t%r5, [%r4];", "mov.b32 \t%r5, %r4;")
    taken = copies_of(alone).in_launch(LAUNCH, lambda: False, {})
    assert {one.place for copy in taken.copies for one in copy.by} == {4 * lane for lane in (0, 1, 2, 4, 8, 31)}
    four = copies_of(alone, warps=4).in_launch(LAUNCH, lambda: False, {})
    lanes = {(one.place or 0) // 4 % 32 for copy in four.copies for one in copy.by}
    assert lanes == {0, 1, 2, 4, 8, 31} and len(four.copies[0].by) == 12


def test_an_instruction_copies_for_one_operation_once() -> None:
    """A loop that copies the same elements in each round: those of the first one again."""
    text = text_of(GATHERED)[1]
    sources = {re.findall(r"\[ (%rd\d+)", line)[0] for line in text.split("\n") if ELEMENTS in line}
    made = {re.findall(rf"add\.s64 \t{name}, %rd\d+, (%rd\d+);", text)[0] for name in sources}
    assert made
    for name in made:
        text = re.sub(rf"mul\.wide\.s32 \t{name}, %r\d+, 2;", f"mov.b64 \t{name}, 0;", text)
    with pytest.raises(PtxError):
        beside(GATHERED, text)


DIVIDES = """"builtin.module"() ({
  "tt.func"() <{function_type = (i32) -> (), sym_name = "kernel", sym_visibility = "public"}> ({
  ^bb0(%arg0: i32):
    %0 = "arith.constant"() <{value = 384 : i32}> : () -> i32
    %1 = "arith.divsi"(%arg0, %0) : (i32, i32) -> i32
    "tt.return"() : () -> ()
  }) : () -> ()
}) : () -> ()
"""


def test_numbers_beside_multiples_of_what_is_divided_by() -> None:
    """A magic number that is too small by one makes a wrong quotient at multiples of the divisor alone."""
    module = ir.read(DIVIDES)
    draws = Draws(next(op for op in module.walk() if op.name == "tt.func"))
    assert draws.fewest > 2
    assert divides(next(op for op in module.walk() if op.name == "tt.func"))
    other = ir.read(DIVIDES.replace("384", "256"))
    assert not divides(next(op for op in other.walk() if op.name == "tt.func"))
    launches = [draws.launch(number) for number in range(2, draws.fewest)]
    loaded = {launch.memory(1 << 40 | 4 * at, 4) for launch in launches for at in range(100)}
    blocks = {launch.block[0] for launch in launches}
    assert {one % 384 for one in loaded if 300 < one < 4096} >= {383, 0, 1}
    assert any(one > 1 << 16 and one % 384 == 0 for one in loaded) and (1 << 32) - 1 in loaded
    assert any(one >= 384 for one in blocks)

    def quotient(number: int, magic: int) -> int | None:
        high = computed("mul.hi.s32", (number, magic))
        return None if high is None else computed("shr.s32", (high, 6))

    small = [one for one in loaded if one < 1 << 31]
    assert all(quotient(one, 715827883) == one // 384 for one in small)
    assert any(quotient(one, 715827882) != one // 384 for one in small)


def test_what_is_narrower_than_a_register_fills_it() -> None:
    """PTX ISA, "cvt": the result is extended to the register, with its sign if it has one."""
    assert computed("cvt.s8.s32", (255,)) == 0xFFFF and computed("cvt.u8.s32", (255,)) == 255
    assert computed("cvt.s8.s32", (127,)) == 127 and computed("cvt.s16.s32", (0xFFFF,)) == 0xFFFF
    assert computed("shr.u16", (computed("cvt.s8.s32", (0xFFFFFFFF,)) or 0, 13)) == 7


# --------------------------------------------------------------------------------------------------- forms

HEAD = """.version 8.7
.target sm_90a
.address_size 64
.visible .entry kernel(.param .u32 kernel_param_0)
.reqntid 64
{
	.reg .pred %p<9>;
	.reg .b32 %r<99>;
	mov.u32 	%r1, %tid.x;
	ld.param.b32 	%r2, [kernel_param_0];
	shl.b32 	%r3, %r2, 7;
	mov.b32 	%r9, 0;
$L__BB0_1:
"""
TAIL = """
	st.shared.b32 	[%r90], %r91;
	add.s32 	%r9, %r9, 64;
	setp.lt.s32 	%p1, %r9, %r2;
	@%p1 bra 	$L__BB0_1;
	ret;
}
"""


INNER, AGAIN = "$L__BB0_2:", "@%p2 bra 	$L__BB0_2;"
SKIP, HERE, OUT = "@%p3 bra 	$L__BB0_3;", "$L__BB0_3:", "@%p4 bra 	$L__BB0_1;"


def forms(*lines: str) -> tuple[Form, Form]:
    """Of %r90 and %r91, in a loop."""
    entry = read(HEAD + "\n".join(lines) + TAIL).entry()
    blocks, writers = blocks_of(entry), Writers(entry)
    store = next(one for one in entry.instructions if one.opcode == "st.shared.b32")
    found = Forms(blocks, writers, Evaluation(range(64), writers))
    address, value = store.operands
    return found.of(address.base, store), found.of(value, store)  # type: ignore[union-attr]


EITHER = ("setp.lt.s32 %p2, %r2, 5;", "@%p2 bra $L__BB0_2;", "add.s32 %r91, %r4, 64;", "bra $L__BB0_3;",
          "$L__BB0_2:", "add.s32 %r91, %r4, 64;", "$L__BB0_3:")  # fmt: skip
INSIDE = ("$L__BB0_2:", "add.s32 %r8, %r8, 1;", "setp.lt.s32 %p2, %r8, 5;", "@%p2 bra $L__BB0_2;")


@pytest.mark.parametrize(
    ("lines", "by"),
    [
        (("add.s32 %r90, %r9, 0;", "add.s32 %r91, %r9, 64;"), 64),
        (("mov.b32 %r90, %r3;", "or.b32 %r91, %r3, 64;"), 64),  # below what is shifted
        (("shl.b32 %r90, %r9, 1;", "add.s32 %r4, %r9, 5;", "mul.lo.s32 %r91, %r4, 2;"), 10),
        (("sub.s32 %r90, %r3, %r9;", "mad.lo.s32 %r91, %r9, -1, %r3;"), 0),
        (("mov.b32 %r90, 7;", "mov.b32 %r91, 5;"), 2**32 - 2),
        (("ld.shared.b32 %r4, [%r1];", *EITHER, "mov.b32 %r90, %r4;"), 64),  # whichever way it came
        (("add.s32 %r91, %r9, 64;", *INSIDE, "mov.b32 %r90, %r9;"), 64),  # a loop inside leaves %r9 as it is
        (("add.s32 %r4, %r9, 64;", INNER, "mov.b32 %r90, %r9;", "mov.b32 %r91, %r4;", AGAIN), 64),
        (
            (
                "add.s32 %r4, %r9, 64;",
                SKIP,
                "add.s32 %r5, %r9, 1;",
                HERE,
                "mov.b32 %r90, %r9;",
                "mov.b32 %r91, %r4;",
                OUT,
            ),
            64,
        ),
    ],
)
def test_how_much_more_one_is(lines: tuple[str, ...], by: int) -> None:
    one, other = forms(*lines)
    assert one.terms == other.terms
    assert isinstance(one.number, int) and isinstance(other.number, int)
    assert (other.number - one.number) % 2**32 == by


@pytest.mark.parametrize(
    "lines",
    [
        ("mov.b32 %r90, %r2;", "or.b32 %r91, %r2, 64;"),  # the bit may be there
        ("mov.b32 %r90, %r9;", "add.s32 %r9, %r9, 64;", "mov.b32 %r91, %r9;", "ld.shared.b32 %r9, [%r1];",
         "mov.b32 %r90, %r9;"),
        ("add.s32 %r4, %r9, 64;", INNER, "mov.b32 %r90, %r9;", "mov.b32 %r91, %r4;", "add.s32 %r9, %r9, 1;", AGAIN),
        ("add.s32 %r4, %r9, 64;", SKIP, "add.s32 %r9, %r9, 1;", HERE, "mov.b32 %r90, %r9;", "mov.b32 %r91, %r4;", OUT),
        ("mov.b32 %r90, %r2;", "mov.b32 %r91, %r9;"),
        ("mov.b32 %r90, %r9;", "and.b32 %r91, %r9, 64;"),
        (*EITHER, "ld.shared.b32 %r4, [%r1];", "mov.b32 %r90, %r4;"),  # of what was there before
        ("add.s32 %r91, %r9, 64;", *INSIDE[:1], "add.s32 %r9, %r9, 1;", *INSIDE[1:], "mov.b32 %r90, %r9;"),
    ],
)  # fmt: skip
def test_what_is_not_known(lines: tuple[str, ...]) -> None:
    one, other = forms(*lines)
    assert one.terms != other.terms


def test_what_may_be_a_sum_is_said_to_be() -> None:
    one, other = forms("mov.b32 %r90, %r3;", "or.b32 %r91, %r2, 64;")
    assert not may_be_a_sum(one) and may_be_a_sum(other)


def test_a_register_that_several_write_is_what_was_moved_there() -> None:
    """%r8 is 64 now and then, but %r7 is made of what it was before."""
    one, other = forms("mov.b32 %r8, 0;", "mov.b32 %r7, %r8;", "mov.b32 %r8, 64;", "or.b32 %r91, %r7, 64;",
                       "mov.b32 %r90, 0;")  # fmt: skip
    assert one == Form(frozenset(), 0) and other == Form(frozenset(), 64)


def test_each_thread_has_its_own() -> None:
    one, other = forms("mov.b32 %r90, %r3;", "add.s32 %r91, %r3, %r1;")
    assert one.terms == other.terms and other.number == tuple(range(64))

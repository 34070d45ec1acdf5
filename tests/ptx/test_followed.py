"""What a role's threads do, followed through small texts."""

from __future__ import annotations

import pytest

from wspec.ptx.arithmetic import computed
from wspec.ptx.behaviour import Behaviour
from wspec.ptx.errors import PtxError
from wspec.ptx.events import Event
from wspec.ptx.flow import blocks_of
from wspec.ptx.followed import Followed
from wspec.ptx.parser import read
from wspec.ptx.registers import Writers
from wspec.ptx.roles import Role

WAIT = """{{
	.reg .pred complete;
	waitLoop:
	mbarrier.try_wait.parity.shared.b64 complete, [{0}], {1};
	@!complete bra.uni waitLoop;
}}
"""
RING = (
    """
	mov.b32 	%r10, 0;
	mov.b32 	%r11, %r10;
	mov.b32 	%r20, %r10;
	mov.b32 	%r21, %r10;
$L__again:
	shl.b32 	%r12, %r10, 3;
	add.s32 	%r13, %r12, global_smem;
"""
    + WAIT.format("%r13+64", "%r11")
    + """
	add.s32 	%r14, %r10, 1;
	setp.eq.b32 	%p1, %r14, 3;
	selp.b32 	%r10, 0, %r14, %p1;
	selp.b32 	%r15, 1, 0, %p1;
	xor.b32 	%r11, %r11, %r15;
	xor.b32 	%r20, %r20, 1;
	mov.b32 	%r22, global_smem;
"""
    + WAIT.format("%r22", "%r20")
    + """
	add.s32 	%r21, %r21, 1;
	setp.lt.s32 	%p2, %r21, %r30;
	@%p2 bra 	$L__again;
"""
)
ONE = """
	mov.u32 	%r1, %tid.x;
	setp.eq.b32 	%p1, %r1, 7;
	mov.b32 	%r2, global_smem;
"""


def followed(body: str) -> Followed:
    """A text that two warps execute."""
    head = ".visible .entry kernel()\n.reqntid 64\n{\n	.reg .pred %p<9>;\n	.reg .b32 %r<99>;\n"
    entry = read(f"{head}{body}	ret;\n}}\n").entry()
    blocks = blocks_of(entry)
    role = Role((0, 1), frozenset(range(len(blocks))), (0, 0), None)
    return Followed(blocks, role, Writers(entry), frozenset((0,)))


def events(code: Followed, part: frozenset[str]) -> list[Event]:
    """All events, each once, in the order in which they are found."""
    behaviour = Behaviour(code, part)
    found: dict[Event, None] = {}
    work = [(*start, True) for start in behaviour.starts()]
    seen = set()
    while work:
        number, held, begins = work.pop()
        for happened, ways, _ in behaviour.outcomes(number, held, begins):
            found.update(dict.fromkeys(event for _, event in happened))
            work += [(*way, False) for way in ways if way not in seen]
            seen.update(ways)
    return list(found)


def test_a_ring_and_a_phase_are_two_parts() -> None:
    code = followed(RING)
    assert sorted(len(part) for part in code.parts) == [1, 7]


def test_all_places_and_phases_of_a_ring() -> None:
    code = followed(RING)
    found = {(one.at, one.phase) for one in events(code, code.all)}
    assert found == {(64 + 8 * index, phase) for index in range(3) for phase in range(2)} | {(0, 0), (0, 1)}


@pytest.mark.parametrize(("guard", "threads"), [("@%p1 ", 1), ("@!%p1 ", 63), ("", 64)])
def test_who_arrives_is_counted(guard: str, threads: int) -> None:
    code = followed(f"{ONE}	{guard}mbarrier.arrive.shared.b64 _, [%r2+8];\n")
    assert events(code, code.all) == [Event("arrive", (threads,), 8)]


@pytest.mark.parametrize(
    "what",
    [
        "@!%p1 mbarrier.arrive.expect_tx.shared.b64 _, [%r2], 64;",  # by many
        "@%p1 cp.async.bulk.commit_group; @%p1 wgmma.wait_group.sync.aligned 0;",  # by one
        "mbarrier.try_wait.parity.shared.b64 %p3, [%r2], 0;",  # once
        "mbarrier.arrive.shared.b64 _, [%r77];",  # somewhere
        "@%p7 mbarrier.arrive.shared.b64 _, [%r2];",  # by somebody
    ],
)
def test_what_is_not_known_is_refused(what: str) -> None:
    with pytest.raises(PtxError):
        code = followed(f"{ONE}	{what}\n")
        events(code, code.all)


@pytest.mark.parametrize(
    ("opcode", "values", "result"),
    [
        ("add.s32", (0xFFFFFFFF, 2), 1),
        ("sub.u32", (1, 2), 0xFFFFFFFF),
        ("shr.s32", (0x80000000, 31), 0xFFFFFFFF),
        ("setp.lt.s32", (0xFFFFFFFF, 0), 1),
        ("setp.lt.u32", (0xFFFFFFFF, 0), 0),
        ("cvt.s64.s32", (0xFFFFFFFF,), 0xFFFFFFFFFFFFFFFF),
        ("rem.s32", (0xFFFFFFFB, 3), 0xFFFFFFFE),
        ("selp.b32", (5, 6, 0), 6),
        ("bfe.u32", (0xABCD, 4, 8), 0xBC),
        ("bfe.s32", (0xABCD, 4, 8), 0xFFFFFFBC),
        ("bfe.s32", (8, 3, 1), 0xFFFFFFFF),
        ("bfe.s32", (8, 30, 4), None),
        ("mad.lo.s32", (3, 4, 5), 17),
        ("and.pred", (1, 0), 0),
        ("mul.wide.s32", (3, 0xFFFFFFFC), 0xFFFFFFFFFFFFFFF4),
        ("mul.hi.u32", (0x80000000, 6), 3),
        ("mul.hi.s32", (0x80000000, 6), 0xFFFFFFFD),
        ("mad.wide.u32", (0xFFFFFFFF, 2, 3), 0x200000001),
        ("mul24.lo.s32", (3, 4), None),
        ("add.f32", (1, 2), None),
    ],
)
def test_arithmetic(opcode: str, values: tuple[int, ...], result: int | None) -> None:
    assert computed(opcode, values) == result

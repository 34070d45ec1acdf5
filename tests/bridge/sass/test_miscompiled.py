"""Registers that are read without having been assigned: excerpts, random programs, real kernels, what follows."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import wspec as package
from tests.bridge.sample_kernels import gemm_source
from tests.cli.helpers import KERNEL, wspec
from tests.support import kernels as odd
from tests.support.cases import GEMM, TILE
from wspec import api, bridge
from wspec.bridge.sass import miscompiled
from wspec.bridge.sass.miscompiled import sass_line, wrong_in
from wspec.ir.loc import FileLoc

# Two loops of one tile after another, each over a descriptor of the same buffer. ptxas made one of the two descriptors,
# in the first loop, which is skipped when it has no iteration.
MERGED = """
        /*0000*/                   LDC R1, c[0x0][0x28] ;
        /*0010*/                   ULDC UR4, c[0x0][0x210] ;
        /*0020*/                   ULDC UR8, c[0x0][0x214] ;
        /*0030*/                   UMOV UR5, URZ ;
.L_x_3:
        /*0040*/                   ULEA UR48, UR5, UR4, 0xf ;
        /*0050*/                   UISETP.GE.AND UP0, UPT, UR8, 0x1, UPT ;
        /*0060*/                   UMOV UR49, 0x40000040 ;
        /*0070*/                   UMOV UR50, UR4 ;
        /*0080*/                   UMOV UR51, 0x40000040 ;
        /*0090*/                   PLOP3.LUT P0, PT, PT, PT, UP0, 0x80, 0x0 ;
        /*00a0*/              @!P0 BRA `(.L_x_1) ;
        /*00b0*/                   UIADD3 UR32, UP0, UR48, 0x2, URZ ;
        /*00c0*/                   UIADD3.64 UR34, UR50, 0x2, URZ ;
        /*00d0*/                   UIADD3.X UR33, URZ, 0x40000040, URZ, UP0, !UPT ;
.L_x_0:
        /*00e0*/                   HGMMA.64x8x16.F32.BF16 R24, gdesc[UR48], RZ, !UPT ;
        /*00f0*/                   HGMMA.64x8x16.F32.BF16 R24, gdesc[UR32], R24, gsb0 ;
        /*0100*/                   UIADD3 UR8, UR8, -0x1, URZ ;
        /*0110*/                   ISETP.GT.AND P0, PT, R1, UR8, PT ;
        /*0120*/               @P0 BRA `(.L_x_0) ;
.L_x_1:
        /*0130*/                   UMOV UR16, UR32 ;
        /*0140*/                   UMOV UR17, UR33 ;
        /*0150*/                   UMOV UR18, UR50 ;
        /*0160*/                   UMOV UR19, UR51 ;
.L_x_2:
        /*0170*/                   HGMMA.64x8x16.F32.BF16 R24, gdesc[UR48], RZ, !UPT ;
        /*0180*/                   HGMMA.64x8x16.F32.BF16 R24, gdesc[UR16], R24, gsb0 ;
        /*0190*/                   UIADD3 UR5, UR5, 0x1, URZ ;
        /*01a0*/                   ISETP.GT.AND P0, PT, R1, UR5, PT ;
        /*01b0*/               @P0 BRA `(.L_x_2) ;
        /*01c0*/               @P0 BRA `(.L_x_3) ;
        /*01d0*/                   EXIT ;
"""


def found(text: str) -> list[tuple[int, tuple[str, ...]]]:
    return [(item.instruction.address, item.registers) for item in wrong_in(text)]


def numbered(text: str) -> str:
    """A program of instructions and labels, with addresses."""
    lines = [line.strip() for line in text.strip().split("\n")]
    code = (
        line if line.endswith(":") else f"        /*{16 * place:04x}*/  {line} ;" for place, line in enumerate(lines)
    )
    return "\n".join(code) + "\n"


def registers(text: str) -> list[str]:
    return [name for item in wrong_in(numbered(text)) for name in item.registers]


# ------------------------------------------------------------------------------------------------- excerpts


def test_a_descriptor_that_only_the_first_loop_makes() -> None:
    assert found(MERGED) == [(0x130, ("UR32",)), (0x140, ("UR33",))]
    expected = "SASS: the instruction at 0x130 (UMOV UR16, UR32) reads UR32, which some way there does not assign"
    assert sass_line(wrong_in(MERGED)) == expected


def test_the_same_with_the_descriptor_before_the_branch() -> None:
    lines = MERGED.split("\n")
    branch = next(place for place, line in enumerate(lines) if "@!P0 BRA" in line)
    lines.insert(branch + 3, lines.pop(branch))  # UIADD3 UR32, UIADD3.64, UIADD3.X come first
    assert found("\n".join(lines)) == [] and sass_line([]) == "SASS: every register is assigned before it is read"


def test_every_instruction_of_the_way_counts() -> None:
    """Without any one of what assigns a register that is read later, there is something to say."""
    right = MERGED.replace("@!P0 BRA `(.L_x_1)", "NOP")
    assert found(right) == []
    lines = right.split("\n")
    for place, line in enumerate(lines):
        if re.search(r"\b(LDC|ULDC|ULEA|UISETP|UMOV|PLOP3|UIADD3\.X|UIADD3\.64)\b", line) and "NOP" not in line:
            rest = "\n".join([*lines[:place], *lines[place + 1 :]])
            assert bool(found(rest)) == ("PLOP3" not in line), line


def test_a_call_adds_what_the_function_assigns_on_every_way() -> None:
    program = """
        UMOV UR4, URZ
        ISETP.GT.AND P0, PT, RZ, UR4, PT
        CALL.REL.NOINC `($f)
        UMOV UR9, UR6
        UMOV UR9, UR7
        UMOV UR8, URZ
        CALL.REL.NOINC `($f)
        UMOV UR9, UR8
        EXIT
        $f:
        UMOV UR6, UR4
        @P0 BRA `(.L_x_0)
        UMOV UR7, UR8
        .L_x_0:
        RET.REL.NODEC R20 `(kernel)
    """
    assert registers(program) == ["UR7", "UR8", "R20", "R21"]
    elsewhere = program.replace("CALL.REL.NOINC `($f)", "CALL.ABS.NOINC R2")
    assert registers(elsewhere) == ["R2"], "nothing is known of what comes behind"


def test_a_table_of_targets() -> None:
    program = """
        CS2R R4, SRZ
        BRX R4 -0x20 (*"BRANCH_TARGETS .L_x_0,.L_x_1"*)
        .L_x_0:
        UMOV UR4, URZ
        .L_x_1:
        UMOV UR5, UR4
        EXIT
        UMOV UR6, UR7
    """
    assert registers(program) == ["UR4"], "and what nothing leads to is not looked at"
    assert registers(program.replace(',.L_x_1"', '"')) == []


def test_an_instruction_under_a_predicate_counts() -> None:
    assert registers("ISETP.GT.AND P0, PT, RZ, 0x1, PT\n@P0 UMOV UR4, URZ\n@P0 UMOV UR5, UR4\nEXIT") == []
    assert registers("@P0 UMOV UR4, URZ\nEXIT") == ["P0"]


# ------------------------------------------------------------------------------------------- random programs


@dataclass(frozen=True)
class Block:
    """Instructions, each reads or writes a uniform register, and how it ends."""

    body: tuple[tuple[str, int], ...]
    end: str  # fall, jump, branch, table, exit, call
    targets: tuple[int, ...]


@st.composite
def programs(draw: st.DrawFn) -> tuple[list[Block], int]:
    """(blocks, how many belong to the kernel; those behind are one function)."""
    size, inner = draw(st.integers(1, 6)), draw(st.integers(0, 3))
    blocks = []
    for place in range(size + inner):
        low, high = (0, size) if place < size else (size, size + inner)
        ends = ["jump", "branch", "table", "exit", *(["fall"] if place + 1 < high else [])]
        ends += ["call"] if place + 1 < size and inner else []
        end = draw(st.sampled_from(ends))
        targets = draw(st.lists(st.integers(low, high - 1), min_size=1, max_size=3))
        if end == "branch" and place + 1 == high:
            end = "jump"
        body = draw(st.lists(st.tuples(st.sampled_from(["read", "write"]), st.integers(0, 3)), max_size=3))
        blocks.append(Block(tuple(body), end, tuple(targets)))
    return blocks, size


def text_of(blocks: list[Block], size: int) -> str:
    lines = ["CS2R R20, SRZ", "ISETP.GT.AND P0, PT, RZ, 0x1, PT"]
    for place, block in enumerate(blocks):
        lines.append(f".L_x_{place}:")
        lines += [f"UMOV UR60, UR{r}" if what == "read" else f"UMOV UR{r}, URZ" for what, r in block.body]
        labels = [f".L_x_{target}" for target in block.targets]
        lines += {
            "fall": [],
            "jump": [f"BRA `({labels[0]})"],
            "branch": [f"@P0 BRA `({labels[0]})"],
            "table": [f'BRX R20 -0x20 (*"BRANCH_TARGETS {",".join(labels)}"*)'],
            "exit": ["EXIT"] if place < size else ["RET.REL.NODEC R20 `(kernel)"],
            "call": [f"CALL.REL.NOINC `(.L_x_{size})"],
        }[block.end]
    return numbered("\n".join(lines))


def unassigned_by_hand(blocks: list[Block], size: int) -> set[str]:
    """All ways that come to no block twice under the same caller: more rounds only assign more."""
    wrong: set[str] = set()

    def walk(place: int, caller: int | None, has: frozenset[int], seen: frozenset[tuple[int, int | None]]) -> None:
        if (place, caller) in seen:
            return
        block = blocks[place]
        for what, register in block.body:
            if what == "write":
                has |= {register}
            elif register not in has:
                wrong.add(f"UR{register}")
        for next_place, next_caller in ways(place, caller):
            inside = seen if block.end != "call" else frozenset((p, c) for p, c in seen if c is None)
            walk(next_place, next_caller, has, inside | {(place, caller)})

    def ways(place: int, caller: int | None) -> Iterator[tuple[int, int | None]]:
        block = blocks[place]
        match block.end:
            case "fall":
                yield place + 1, caller
            case "call":
                yield size, place
            case "jump":
                yield block.targets[0], caller
            case "branch":
                yield from ((block.targets[0], caller), (place + 1, caller))
            case "table":
                yield from ((target, caller) for target in block.targets)
            case "exit" if caller is not None:
                yield caller + 1, None

    walk(0, None, frozenset(), frozenset())
    return wrong


@settings(deadline=None, max_examples=400)
@given(programs())
def test_the_same_as_walking_all_ways(program: tuple[list[Block], int]) -> None:
    blocks, size = program
    told = [name for item in wrong_in(text_of(blocks, size)) for name in item.registers]
    assert len(told) == len(set(told))
    assert set(told) == unassigned_by_hand(blocks, size)


# ---------------------------------------------------------------------------------------------- real kernels


def test_kernels_of_triton() -> None:
    kernel = bridge.load_kernel(gemm_source(), bridge.Result(False, ()), {})
    text = bridge.stage_text(kernel, "sass")
    assert wrong_in(text) == []
    first = re.search(r"^.*\*/ +S2R R.*\n", text, re.MULTILINE)
    assert first is not None and wrong_in(text.replace(first[0], "", 1)), "one instruction less"


@pytest.fixture
def broken(monkeypatch: pytest.MonkeyPatch, fresh_cache: Path) -> None:
    """From now on ptxas makes that mistake."""
    line = f'	//## File "{odd.__file__}", line 20\n'
    place = MERGED.index("        /*0130*/")
    monkeypatch.setattr(miscompiled, "sass", lambda *_, **__: MERGED[:place] + line + MERGED[place:])
    monkeypatch.setattr(miscompiled, "is_surely_right", lambda _: False)
    monkeypatch.setattr(api, "_announced", set())


def asked() -> api.Report:
    return package.offline(odd.gemm, GEMM, TILE, num_warps=8, gate="off").outcome()


def test_a_miscompiled_kernel_does_not_run(broken: None, fresh_cache: Path) -> None:
    report = asked()
    reason = report.reason
    assert not report.specialized and reason is not None
    assert (reason.code, reason.severity) == ("miscompiled", "error")
    expected = (
        r"ptxas \d+\.\S+ miscompiled the specialized gemm: the instruction at 0x130 \(UMOV UR16, UR32\) reads UR32, .*"
    )
    assert re.fullmatch(expected, reason.message)
    assert reason.location == FileLoc(odd.__file__, 20, 0)
    assert not any(remark.code == "specialized" for remark in report.remarks)
    written = {str(one): one for one in (fresh_cache / "wspec-reproducers").iterdir()}  # of other plans too
    said, _, named = (reason.note or "").partition(" with ")
    assert said == "the plain kernel runs instead; please report this"
    reproducer = written[named]
    assert "// 0x140 (UMOV UR17, UR33) reads UR33" in reproducer.read_text()
    assert "USETMAXREG" not in bridge.stage_text(report.kernel, "sass")
    assert asked().remarks == report.remarks, "it is stored"


def test_a_binary_that_cannot_be_read(monkeypatch: pytest.MonkeyPatch, fresh_cache: Path) -> None:
    def fails(*_: object, **__: object) -> str:
        raise OSError("no nvdisasm")

    with monkeypatch.context() as without:
        without.setattr(miscompiled, "sass", fails)
        assert asked().specialized, "nvdisasm is not needed"
        without.setattr(miscompiled, "decoded", lambda _: None)
        without.setattr("wspec.bridge.obtaining.may_reuse", lambda _: False)
        without.setattr("wspec.bridge.compile.may_reuse", lambda _: False)
        report = asked()
        assert not report.specialized and report.reason is not None
        assert report.reason.code == "internal-error" and "OSError: no nvdisasm" in report.reason.message
    assert asked().specialized, "that is not stored"


def test_the_command_line(fresh_cache: Path) -> None:
    said = wspec("compile", KERNEL)
    assert said.code == 0 and "\nSASS: every register is assigned before it is read\n\n" in said.out


def test_the_command_line_says_so(broken: None) -> None:
    said = wspec("compile", KERNEL)
    assert said.code == 1 and "[miscompiled]" in said.out and ": left as it was\n" in said.out
    assert "SASS" not in said.out and said.fact("USETMAXREG") == "0"

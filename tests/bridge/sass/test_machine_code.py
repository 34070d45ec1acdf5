"""Reading a disassembly: lines, ways on, registers with their widths."""

from __future__ import annotations

import pytest

from wspec.bridge.sass.machine_code import Flow, Instruction, effects, flow, names, read_sass

TEXT = """
	.section	.text.kernel,"ax",@progbits
        .other          kernel,@"STO_CUDA_ENTRY STV_DEFAULT"
kernel:
.text.kernel:
	//## File "/home/me/kernel.py", line 12
        /*0000*/                   LDC R1, c[0x0][0x28] ;
.L_x_0:
        /*0010*/              @!P0 BRA `(.L_x_0) ;
	//## File "/home/me/kernel.py", line 14
        /*0020*/                   BRX R12 -0x2a0       (*"BRANCH_TARGETS .L_x_0,.L_x_1"*);
.L_x_1:
	.section	.text.helper,"ax",@progbits
        /*0000*/                   NOP ;
"""


def test_lines() -> None:
    kernel, helper = read_sass(TEXT)
    assert (kernel.name, kernel.kernel, helper.name, helper.kernel) == ("kernel", True, "helper", False)
    assert kernel.labels == {"kernel": 0, ".text.kernel": 0, ".L_x_0": 1, ".L_x_1": 3}
    load, branch, jump = kernel.instructions
    assert load == Instruction(0, "", "LDC", "R1, c[0x0][0x28]", "/home/me/kernel.py", 12)
    assert str(branch) == "@!P0 BRA `(.L_x_0)" and (jump.address, jump.line) == (0x20, 14)
    assert [instruction.line for instruction in helper.instructions] == [0]


def parsed(text: str) -> Instruction:
    (code,) = read_sass(f"        /*0000*/  {text} ;")
    (instruction,) = code.instructions
    return instruction


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("BRA `(.L_x_1)", Flow(falls=False, targets=(".L_x_1",))),
        ("@P0 BRA `(.L_x_1)", Flow(targets=(".L_x_1",))),
        ("@UP0 BRA `(.L_x_1)", Flow(targets=(".L_x_1",))),
        ("BRA.U UP0, `(.L_x_1)", Flow(targets=(".L_x_1",))),
        ("BRA !P0, `(.L_x_1)", Flow(targets=(".L_x_1",))),
        ("BRA.DIV UR4, `(.L_x_1)", Flow(targets=(".L_x_1",))),
        ('BRX R12 -0x2a0 (*"BRANCH_TARGETS .L_x_2,.L_x_96"*)', Flow(falls=False, targets=(".L_x_2", ".L_x_96"))),
        ("BRX R12 -0x2a0", Flow(falls=False)),
        ("CALL.REL.NOINC `($kernel$helper)", Flow(calls="$kernel$helper")),
        ("CALL.ABS.NOINC R4", Flow(calls="?")),
        ("RET.REL.NODEC R20 `(kernel)", Flow(falls=False, returns=True)),
        ("@P0 RET.REL.NODEC R20 `(kernel)", Flow(returns=True)),
        ("EXIT", Flow(falls=False)),
        ("@!P1 EXIT", Flow()),
        ("BSSY B0, `(.L_x_1)", Flow()),
        ("BSYNC B0", Flow()),
        ("WARPSYNC.COLLECTIVE R15, `(.L_x_1)", Flow()),
        ("UMOV UR4, URZ", Flow()),
    ],
)
def test_ways_on(text: str, expected: Flow) -> None:
    assert flow(parsed(text)) == expected


@pytest.mark.parametrize(
    ("text", "reads", "writes"),
    [
        ("UMOV UR16, UR32", "UR32", "UR16"),
        ("UIADD3 UR32, UP0, UR48, 0x2, URZ", "UR48", "UR32 UP0"),
        ("UIADD3.X UR33, UR10, 0x40000040, URZ, UP0, !UPT", "UR10 UP0", "UR33"),
        ("UIADD3.64 UR18, UR34, 0x2, URZ", "UR34 UR35", "UR18 UR19"),
        ("@!UP2 UIADD3 UR10, -UR5, 0x100000, URZ", "UR5 UP2", "UR10"),
        ("ULDC.64 UR52, c[0x0][0x198]", "", "UR52 UR53"),
        ("LDC R12, c[0x2][R11]", "R11", "R12"),
        ("R2UR UR5, R2", "R2", "UR5"),
        ("IADD3 R4, P0, P1, R2, R3, RZ", "R2 R3", "R4 P0 P1"),
        ("IMAD.WIDE.U32 R2, R4, 0x8, R6", "R4 R6 R7", "R2 R3"),
        ("CS2R R148, SRZ", "", "R148 R149"),
        ("ISETP.GE.AND P0, PT, R4, R5, P1", "R4 R5 P1", "P0"),
        ("PLOP3.LUT P0, PT, PT, PT, UP0, 0x80, 0x0", "UP0", "P0"),
        ("VOTEU.ALL UP0, P3", "P3", "UP0"),
        ("ELECT P6, UR62, PT", "", "UR62 P6"),
        ("USETMAXREG.TRY_ALLOC.CTAPOOL UP0, 0xf0", "", "UP0"),
        ("LDG.E.128 R4, desc[UR6][R12.64+0xc]", "R12 R13 UR6 UR7", "R4 R5 R6 R7"),
        ("STG.E.64 desc[UR4][R2.64], R8", "R2 R3 R8 R9 UR4 UR5", ""),
        ("STS.128 [R0+UR6+0x4000], R4", "R0 R4 R5 R6 R7 UR6", ""),
        ("STL [R1+0x10], R16", "R1", ""),
        ("LDSM.16.M88.4 R8, [R4+UR5]", "R4 UR5", "R8 R9 R10 R11"),
        ("STSM.16.M88.4 [R31], R36", "R31 R36 R37 R38 R39", ""),
        ("ATOMG.E.ADD.STRONG.GPU PT, R2, desc[UR4][R6.64], R5", "R5 R6 R7 UR4 UR5", "R2"),
        ("SYNCS.PHASECHK.TRANS64.TRYWAIT P0, [UR9+0x30220], R11", "R11 UR9", "P0"),
        ("SYNCS.EXCH.64 URZ, [UR5], UR6", "UR5 UR6 UR7", ""),
        ("SYNCS.ARRIVE.TRANS64.A1T0 RZ, [UR9+0x30230], RZ", "UR9", ""),
        ("UTMALDG.2D [UR20], [UR12]", "UR12 UR13 UR20 UR21 UR22 UR23", ""),
        ("UTMASTG.2D [UR8], [UR4]", "UR4 UR5 UR8 UR9 UR10", ""),
        ("HGMMA.64x8x16.F32.BF16 R24, gdesc[UR32], RZ, !UPT", "UR32 UR33 UR34 UR35", "R24 R25 R26 R27"),
        ("HGMMA.64x8x16.F16 R24, gdesc[UR4], R24, gsb0", "R24 R25 UR4 UR5 UR6 UR7", "R24 R25"),
        ("HGMMA.64x8x16.F32 R24, gdesc[UR4], R24, UP1", "UR4 UR5 UR6 UR7 UP1", "R24 R25 R26 R27"),
        (
            "HGMMA.64x8x16.F32.BF16 R88, R24, gdesc[UR12].tnspB, R88, gsb0",
            "R24 R25 R26 R27 R88 R89 R90 R91 UR14 UR15",  # A has no descriptor
            "R88 R89 R90 R91",
        ),
        ("HMMA.16816.F32.BF16 R8, R40, R36.reuse, R8", "R8 R9 R10 R11 R36 R37 R40 R41 R42 R43", "R8 R9 R10 R11"),
        ("PRMT R16, R23.reuse, 0x7632, R16", "R23", "R16"),  # only one half of it is kept
        ("FSEL R5, R7, R5, P4", "R7 P4", "R5"),
        ("BAR.SYNC R4, 0x80", "R4", ""),
        ("WARPSYNC.COLLECTIVE R15, `(.L_x_9)", "R15", ""),
        ("RET.REL.NODEC R20 `(R4)", "R20 R21", ""),
        ("FMUL R2, |R3|, -R4.H0_H0", "R3 R4", "R2"),
        ("S2R R0, SR_TID.X", "", "R0"),
    ],
)
def test_registers(text: str, reads: str, writes: str) -> None:
    found = effects(parsed(text))
    assert (" ".join(names(found.reads)), " ".join(names(found.writes))) == (reads, writes)


def test_what_may_be_any_predicate() -> None:
    assert "P0 P1 P2 P3 P4 P5 P6" in " ".join(names(effects(parsed("R2P PR, R16, 0x7f")).writes))

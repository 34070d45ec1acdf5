"""Left operands in registers that a loop needs again: found where machine code overwrites them, nothing elsewhere."""

from __future__ import annotations

import triton

from tests.outside.breakers import BREAKERS
from wspec.bridge.frontend import HOPPER, from_arguments
from wspec.bridge.sass.clobbered import _of_code, clobbered
from wspec.bridge.sass.kept_operands import innermost, products_of
from wspec.bridge.sass.machine_code import read_sass
from wspec.bridge.sass.miscompiled import of_plain
from wspec.bridge.sass.resources import ptxas_version
from wspec.bridge.without_request import WithoutRequest
from wspec.ir.loc import FileLoc

WGMMA = (
    "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%r20,%r21,%r22,%r23}, {%r10,%r11,%r12,%r13}, %rd1, 1, 1, 1, 0;"
)
PTX = f""".version 8.7
.target sm_90a
.address_size 64
.visible .entry k()
{{
	.reg .b32 %r<40>;
	.reg .b64 %rd<4>;
	.reg .pred %p<3>;
	BEFORE
$L1:
	{WGMMA}
	INSIDE
	add.s32 %r30, %r30, 1;
	setp.lt.s32 %p1, %r30, 9;
	@%p1 bra $L1;
	ret;
}}
"""
LOAD = "ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r10, %r11, %r12, %r13}, [%r31];"
SASS = """\
.text.k:
        /*0000*/  LDSM.16.M88.4 R8, [R3] ;
.L_x_0:
        /*0010*/  HGMMA.64x8x16.F32 R24, R8, gdesc[UR4], R24, gsb0 ;
        /*0020*/  WARPGROUP.DEPBAR.LE gsb0, 0x0 ;
%s
        /*0090*/  @P0 BRA `(.L_x_0) ;
        /*00a0*/  EXIT ;
"""


def ptx(before: str, inside: str) -> str:
    return PTX.replace("BEFORE", before).replace("INSIDE", inside)


def found(text: str, *between: str) -> list[str]:
    lines = "\n".join(f"        /*{0x30 + 16 * at:04x}*/  {line} ;" for at, line in enumerate(between))
    (code,) = read_sass(SASS % lines)
    return [one.register for one in _of_code(code, products_of(text))]


def test_an_operand_that_is_overwritten() -> None:
    kept = ptx(LOAD, "")
    assert found(kept) == []
    assert found(kept, "F2FP.F16.F32.PACK_AB R9, R25, R24") == ["R9"], "computed from the product"
    assert found(kept, "LDSM.16.M88.4 R8, [R3]") == ["R8"]
    assert found(kept, "@P1 FADD R11, R24, R25") == ["R11"]


def test_an_operand_that_stays() -> None:
    kept = ptx(LOAD, "")
    assert found(kept, "FADD R12, R24, R25") == [], "another register"
    assert found(kept, "MOV R20, R9", "FADD R9, R24, R25", "MOV R9, R20") == [], "put aside and brought back"
    assert found(kept, "FADD R9, R24, R25", "LDL R9, [R1]") == [], "brought back from where the thread spills"
    assert found(kept, "FADD R9, R24, R25", "HADD2 R9, R3, R4") == [], "computed from what stays"


def test_an_operand_that_ptx_changes() -> None:
    assert found(ptx("", LOAD), "LDSM.16.M88.4 R8, [R3]") == []


COPIES = "".join(f"mov.b32 %r{number}, %r{number + 10};\n" for number in range(10, 14))
LOAD_ELSEWHERE = LOAD.replace("%r10, %r11, %r12, %r13", "%r20, %r21, %r22, %r23")


def test_an_operand_that_is_copied_from_what_stays() -> None:
    """As Triton 3.8 writes it: the loop begins with copies."""
    turned = WGMMA.replace("{%r20,%r21,%r22,%r23}, ", "{%r24,%r25,%r26,%r27}, ")
    kept = ptx(LOAD_ELSEWHERE, COPIES).replace(WGMMA, turned)
    assert found(kept) == []
    assert found(kept, "F2FP.F16.F32.PACK_AB R9, R25, R24") == ["R9"]
    changes = ptx("", LOAD_ELSEWHERE + "\n" + COPIES).replace(WGMMA, turned)
    assert found(changes, "F2FP.F16.F32.PACK_AB R9, R25, R24") == []


def test_products_that_do_not_match() -> None:
    """Nothing is said where the machine code's products are not those of the PTX."""
    more = (ptx(LOAD, "")).replace("m64n8k16", "m64n16k16")
    assert found(more, "F2FP.F16.F32.PACK_AB R9, R25, R24") == []
    assert found(ptx(LOAD, WGMMA), "F2FP.F16.F32.PACK_AB R9, R25, R24") == []


def test_loops() -> None:
    """Two loops, one in the other, and one that is entered at two places, which is none."""
    around = innermost({0: [1], 1: [2], 2: [2, 3], 3: [1, 4], 4: [5, 6], 5: [6], 6: [5, 7], 7: []}, 0)
    assert around == {1: frozenset({1, 2, 3}), 2: frozenset({2}), 3: frozenset({1, 2, 3})}


def test_what_ptxas_makes_of_a_kernel() -> None:
    """Packed sequences through boxes of three dimensions: Triton leaves Q in registers, P is in registers too.

    ptxas 13.4 (Triton 3.9) copies Q for each product, and is right.
    """
    breaker = BREAKERS["varlen"]
    options = {**breaker.constants, "num_warps": breaker.warps, "num_stages": breaker.stages}
    ast = from_arguments(breaker.kernel, breaker.arguments("cpu"), options).ast
    plain = triton.compile(
        WithoutRequest(ast.fn, ast.signature, ast.constants, ast.attrs),
        target=HOPPER,
        options={"num_warps": breaker.warps, "num_stages": breaker.stages},
    )
    text, cubin = plain.asm["ptx"], plain.asm["cubin"]
    assert any(stays for _, stays in products_of(text))
    wrong = clobbered(products_of(text), cubin)
    remark = of_plain("varlen", FileLoc("breakers.py", 1, 0), text, cubin)
    if not ptxas_version().startswith("12."):
        assert wrong == [] and remark is None
        return
    assert wrong
    assert remark is not None and remark.code == "miscompiled" and str(wrong[0]) in remark.message

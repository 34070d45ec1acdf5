"""Calls in machine code: functions for divisions of 64 bits, as they are, and with something changed in them."""

from __future__ import annotations

import struct
import subprocess

import pytest
from triton import knobs

from wspec.bridge.sass.beside_ptx import Compared, Expected, compare, keeps_order
from wspec.bridge.sass.calls import CALL, RET
from wspec.bridge.sass.cubin import INSTRUCTION_BYTES, KernelCode, kernel_code
from wspec.bridge.sass.decode import jump_target
from wspec.bridge.sass.skeleton import skeleton
from wspec.ptx.parser import read
from wspec.ptx.validation.validate import Validation

PTX = """
.version 8.0
.target sm_90a
.address_size 64
.visible .entry k(.param .u64 p) {
  .reg .b32 %t, %low; .reg .b64 %p, %a, %b, %c, %d; .reg .pred %is_low;
  ld.param.u64 %p, [p];
  mov.u32 %t, %tid.x;
  setp.lt.u32 %is_low, %t, 128;
  ld.global.b64 %a, [%p]; ld.global.b64 %b, [%p+8]; ld.global.b64 %d, [%p+16];
  rem.s64 %c, %a, %b;
  st.global.b64 [%p], %c;
  @%is_low bra LOW;
  bar.sync 2, 256;
  rem.s64 %c, %c, %d;
  bra.uni END;
LOW:
  bar.arrive 2, 256;
  div.s64 %c, %c, %d;
END:
  bar.sync 3, 128;
  st.global.b64 [%p+24], %c;
  ret; }
"""
MOV_NUMBER = 0x802
BARRIER = 0x0080000000007B1D, 0x000FEC0000010000  # BAR.SYNC.DEFER_BLOCKING 0x2
EXIT = 0x000000000000794D, 0x000FEA0003800000
NO_OPERATION = 0x0000000000007918, 0x000FC00000000000


@pytest.fixture(scope="module", params=["-O3", "-O1"])
def cubin(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> bytes:
    folder = tmp_path_factory.mktemp("calls")
    (folder / "k.ptx").write_text(PTX)
    command = [knobs.nvidia.ptxas.path, "-arch=sm_90a", request.param, str(folder / "k.ptx"), "-o", str(folder / "k")]
    subprocess.run(command, check=True)
    return (folder / "k").read_bytes()


def expected(ptx: str) -> Expected:
    done = Expected.of(read(ptx))
    assert done is not None
    return done


def code_of(cubin: bytes) -> tuple[KernelCode, list[tuple[int, int]], int]:
    """(the code, its instructions, the place where functions begin)."""
    kernel = kernel_code(cubin)
    assert kernel is not None
    words = list(struct.iter_unpack("<QQ", kernel.code))
    calls = places(words, CALL)
    return kernel, words, min(jump_target(place * INSTRUCTION_BYTES, *words[place]) for place in calls) // 16


def changed(cubin: bytes, place: int, word: tuple[int, int]) -> bytes:
    at = cubin.index(code_of(cubin)[0].code) + INSTRUCTION_BYTES * place
    return cubin[:at] + struct.pack("<QQ", *word) + cubin[at + INSTRUCTION_BYTES :]


def places(words: list[tuple[int, int]], opcode: int, first: int = 0, end: int | None = None) -> list[int]:
    return [place for place in range(first, end or len(words)) if words[place][0] & 0xFFF == opcode]


def test_calls_are_followed(cubin: bytes) -> None:
    _, words, first = code_of(cubin)
    assert len(places(words, CALL, 0, first)) >= 2
    code = skeleton(cubin)
    assert code is not None and compare(expected(PTX), code) == Compared()
    assert keeps_order(Validation("PTX"), expected(PTX), cubin).summary == "PTX; SASS: the same order"


def test_another_order_is_seen_behind_a_call(cubin: bytes) -> None:
    other = PTX.replace("bar.sync 3, 128", "bar.sync 4, 128")
    code = skeleton(cubin)
    assert code is not None and "bar.sync 3, 128" in compare(expected(other), code).difference


def test_a_function_that_synchronizes_or_ends_is_not_followed(cubin: bytes) -> None:
    _, _, first = code_of(cubin)
    for word in (BARRIER, EXIT):
        assert skeleton(changed(cubin, first, word)) is None
    assert skeleton(changed(cubin, first, NO_OPERATION)) is not None, "which instruction it is does not matter"


def test_a_return_to_another_place_is_not_followed(cubin: bytes) -> None:
    _, words, first = code_of(cubin)
    call = places(words, CALL, 0, first)[0]
    back = (call + 1) * INSTRUCTION_BYTES
    (link,) = [place for place in places(words, MOV_NUMBER, 0, call) if words[place][0] >> 32 == back]
    low, high = words[link]
    assert skeleton(changed(cubin, link, (low + (INSTRUCTION_BYTES << 32), high))) is None
    assert skeleton(changed(cubin, link, NO_OPERATION)) is None
    guarded = low & ~0xF000 | 0x1000  # only if P1 holds
    assert skeleton(changed(cubin, link, (guarded, high))) is None
    register = low >> 16 & 0xFF
    overwritten = low & 0xFFFFFFFF | 0x10 << 32, high
    assert overwritten[0] >> 16 & 0xFF == register
    ends = places(words, RET, first)
    assert skeleton(changed(cubin, ends[0] - 1, overwritten)) is None, "the function itself changes it"


def test_a_return_counted_from_elsewhere_is_not_followed(cubin: bytes) -> None:
    _, words, first = code_of(cubin)
    place = places(words, RET, first)[0]
    low, high = words[place]
    assert skeleton(changed(cubin, place, (low ^ 4 << 16, high))) is None


def test_a_call_of_what_is_no_function_is_not_followed(cubin: bytes) -> None:
    _, words, first = code_of(cubin)
    place = places(words, CALL, 0, first)[0]
    low, high = words[place]
    assert skeleton(changed(cubin, place, (low + (4 << 16), high))) is None

"""What is read from the binary itself is what is read from nvdisasm's text; what is not known is not guessed."""

from __future__ import annotations

import random
import re
import subprocess
from pathlib import Path

import pytest
from triton import knobs

from tests.bridge.sample_kernels import gemm_source
from tests.support import kernels as odd
from tests.support.cases import GEMM, TILE
from wspec import bridge, offline
from wspec.bridge.sass.counts import counts_of
from wspec.bridge.sass.cubin import kernel_code
from wspec.bridge.sass.decode import decoded
from wspec.bridge.sass.encodings import TABLE
from wspec.bridge.sass.machine_code import UPDATES, Effects, effects, names, read_sass, registers
from wspec.bridge.sass.miscompiled import is_surely_right, wrong_in
from wspec.bridge.sass.program import Program, program_of
from wspec.bridge.sass.resources import _disassembled_counts, sass
from wspec.lab.bench.compile_time import offline_of

NOP = 0x000FC00000000000_0000000000007918.to_bytes(16, "little")
ULDC = 0x7AB9.to_bytes(2, "little")
UNKNOWN = 0x000FC00000000000_0000000000007FFF.to_bytes(16, "little")


def cubin_of(report: object) -> bytes:
    return bytes(report.kernel.asm["cubin"])  # type: ignore[attr-defined]


@pytest.fixture(scope="module")
def binaries() -> dict[str, bytes]:
    return {
        "a product": cubin_of(offline(odd.gemm, GEMM, TILE, num_warps=8, gate="off").outcome()),
        "attention": cubin_of(offline_of("kernels/attention.py:attention_fwd@d64_causal").outcome()),
        "of plain Triton": bytes(bridge.load_kernel(gemm_source(), bridge.Result(False, ()), {}).asm["cubin"]),
        "gathered": cubin_of(offline_of("kernels/gathered.py:gathered_matmul_kernel@small").outcome()),
        "weights of 4 bits": cubin_of(offline_of("kernels/quantized.py:int4_weights_kernel@m16").outcome()),
    }


# -------------------------------------------------------------------------------------------------- real kernels


def same_as_nvdisasm(cubin: bytes) -> None:
    """Every instruction's registers, every jump and its targets."""
    (code,) = (one for one in read_sass(sass(cubin)) if one.kernel)
    theirs, ours = program_of(code), decoded(cubin)
    assert ours is not None, "an instruction is not known"
    assert len(ours.reads) == len(theirs.reads)
    for place, instruction in enumerate(code.instructions):
        told = [" ".join(names(one[place])) for one in (ours.reads, ours.writes, theirs.reads, theirs.writes)]
        assert told[:2] == told[2:], str(instruction)
    assert _turns(ours) == _turns(theirs)


def _turns(program: Program) -> dict[int, tuple[bool, set[int]]]:
    """Where each jump leads; nvdisasm may name a target twice."""
    return {place: (way.falls, {program.labels[to] for to in way.targets}) for place, way in program.turns.items()}


def test_kernels(binaries: dict[str, bytes]) -> None:
    for cubin in binaries.values():
        same_as_nvdisasm(cubin)
        assert is_surely_right(cubin) and wrong_in(sass(cubin)) == []


def test_counts(binaries: dict[str, bytes]) -> None:
    """As nvdisasm's text says; every kind is in one of them."""
    found = [counts_of(cubin) for cubin in binaries.values()]
    assert found == [_disassembled_counts(cubin) for cubin in binaries.values()]
    for name in ("hgmma", "usetmaxreg", "bar", "syncs", "tma_loads", "tma_stores"):
        assert any(getattr(one, name) for one in found), name


@pytest.mark.slow
def test_one_instruction_less(binaries: dict[str, bytes]) -> None:
    """Wherever nvdisasm's text lets us see that a register is not assigned, the binary does."""
    removed = 0
    for cubin in binaries.values():
        kernel = kernel_code(cubin)
        assert kernel is not None
        start = cubin.index(kernel.code)
        for place in random.Random(7).sample(range(len(kernel.code) // 16), 8):
            at = start + 16 * place
            without = cubin[:at] + NOP + cubin[at + 16 :]
            wrong = bool(wrong_in(sass(without)))
            assert is_surely_right(without) != wrong, hex(16 * place)
            removed += wrong
        every = range(start, start + len(kernel.code), 16)
        first = next(at for at in every if cubin[at : at + 2] == ULDC)
        assert not is_surely_right(cubin[:first] + NOP + cubin[first + 16 :]), "what loads the first argument"
    assert removed


def test_what_is_not_known_is_left_to_nvdisasm(binaries: dict[str, bytes]) -> None:
    cubin = binaries["a product"]
    kernel = kernel_code(cubin)
    assert kernel is not None
    at = cubin.index(kernel.code)
    assert decoded(cubin[:at] + UNKNOWN + cubin[at + 16 :]) is None
    jump, targets = next(iter(kernel.jumps.items()))
    record = b"\x04\x34" + (12 + 4 * len(targets)).to_bytes(2, "little") + jump.to_bytes(4, "little")
    assert cubin.count(record) == 1
    no_table = cubin.replace(record, b"\x04\x7f" + record[2:])
    assert decoded(no_table) is None, "an indirect jump without its table"
    assert counts_of(no_table) is None and counts_of(b"") is None
    assert not is_surely_right(cubin[:300]) and not is_surely_right(b"")


def test_several_functions_are_left_to_nvdisasm(tmp_path: Path) -> None:
    called = """
.version 8.0
.target sm_90a
.address_size 64
.func (.reg .b32 r) f(.reg .b32 a) { mul.lo.s32 r, a, a; ret; }
.visible .entry k(.param .u64 p) {
  .reg .b32 %a; .reg .b64 %p;
  ld.param.u64 %p, [p]; ld.global.b32 %a, [%p];
  call.uni (%a), f, (%a);
  st.global.b32 [%p], %a; ret; }
"""
    (tmp_path / "k.ptx").write_text(called)
    command = [knobs.nvidia.ptxas.path, "-arch=sm_90a", "-O0", str(tmp_path / "k.ptx"), "-o", str(tmp_path / "k.cubin")]
    subprocess.run(command, check=True)
    cubin = (tmp_path / "k.cubin").read_bytes()
    assert kernel_code(cubin) is not None and decoded(cubin) is None


# -------------------------------------------------------------------------------------------------- the table

FIELD = re.compile(r"([A-Z]+)(\d+)(?:x(\w+))?(?:\+(\d+))?")
WIDTH = {"R": 8, "UR": 6, "P": 3, "UP": 3}
SCHEDULING = (0x000FE2, 0x000FE4, 0x000E62, 0x0003E2, 0x001FE2)  # from bit 104 on; what nvdisasm takes depends on it
FREE = ((1 << 105) - 1) ^ 0xFFF


def expected(line: str, word: int) -> Effects:
    """What a line says of an instruction, read anew."""
    name, _, guard, written, read, *_ = line.split()

    def all_of(fields: str) -> int:
        found = 0
        for kind, bit, count, behind in FIELD.findall(fields):
            number, size = word >> int(bit) & ((1 << WIDTH[kind]) - 1), (word >> 53 & 31) * 4 + 4
            if number != (1 << WIDTH[kind]) - 1:
                found |= registers(kind, number + int(behind or 0), size if count == "N" else int(count or 1))
        return found

    writes, reads = all_of(written), all_of(read)
    reads = reads & ~writes if name in UPDATES else reads
    return Effects(reads | all_of(guard), writes)


def disassembled(words: list[int], folder: Path) -> dict[int, str]:
    """Place -> nvdisasm's line, of those that it takes for instructions."""
    places = list(range(len(words)))
    while True:
        (folder / "code").write_bytes(b"".join(words[place].to_bytes(16, "little") for place in places))
        command = [knobs.nvidia.nvdisasm.path, "-b", "SM90a", "-ndf", str(folder / "code")]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        bad = {int(address, 16) // 16 for address in re.findall(r"at address 0x(\w+)", done.stderr)}
        if not bad:
            assert done.returncode == 0, done.stderr
            lines = re.findall(r"^\s*/\*(\w+)\*/.*$", done.stdout, re.MULTILINE)
            texts = re.findall(r"^\s*/\*\w+\*/.*$", done.stdout, re.MULTILINE)
            return {places[int(address, 16) // 16]: text for address, text in zip(lines, texts, strict=True)}
        places = [place for at, place in enumerate(places) if at not in bad]


def test_every_line_of_the_table(tmp_path: Path) -> None:
    """Whatever the bits are that a line does not look at, nvdisasm names the same registers."""
    draw = random.Random(11)
    words, meant = [], []
    for line in TABLE.strip().split("\n"):
        opcode, (mask, *values) = int(line.split()[1], 16), [int(one, 16) << 12 for one in line.split()[5:]]
        for value in values:
            assert value & ~mask == 0
            for _ in range(60):
                free = FREE & ~mask
                some = draw.getrandbits(105) & draw.getrandbits(105) if draw.random() < 0.5 else draw.getrandbits(105)
                words.append(draw.choice(SCHEDULING) << 104 & ~FREE & ~0xFFF | value | some & free | opcode)
                meant.append((line, value))
    seen = set()
    for place, text in disassembled(words, tmp_path).items():
        (code,) = read_sass(text)
        assert effects(code.instructions[0]) == expected(meant[place][0], words[place]), (meant[place][0], text)
        seen.add(meant[place])
    missing = set(meant) - seen
    assert not missing, sorted(missing)[:5]

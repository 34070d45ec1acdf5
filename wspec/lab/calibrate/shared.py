"""Shared memory: loads, stores and matrix moves of 16 bytes a lane, without bank conflicts."""

from __future__ import annotations

from dataclasses import dataclass

from wspec.lab.calibrate.bench import Bench
from wspec.lab.calibrate.ptx import WARP, Kernel, timed_loop
from wspec.lab.calibrate.statistics import slopes
from wspec.lab.calibrate.topic import Quantity, Samples, Topic

SHORT, LONG = 16, 48  # operations of a loop
LANE = 16  # bytes
STEP = 128  # between the accesses of a loop: all different, or the assembler merges them
BYTES = 1 << 15  # what a block touches, twice
WARPS = (1, 4, 8, 16)
QUAD = "{{%c{0}, %c{1}, %c{2}, %c{3}}}"
ADDRESS = "mad.lo.u32 %u, %thread, 16, %smem;"
OWN = f"{ADDRESS}\nst.shared.v4.b32 [%u], {{%u, %u, %u, %u}};\nmov.b32 %c0, %u;"
"""Each lane's slot holds its own address."""
MATRIX = f"""{ADDRESS}
mad.lo.u32 %t, %lane, 16, %smem;
mad.lo.u32 %r1, %lane, 4, %smem;
st.shared.b32 [%r1], %t;
bar.sync 0;
mov.b32 %c0, %t;"""
"""Word w of the first matrix is the address of row w: a lane of ldmatrix gets its own row's address back."""


@dataclass(frozen=True, slots=True)
class Access:
    """`text` with {q}: four registers, {at}: an address. A latency's text starts from %c0 and ends in it."""

    name: str
    what: str
    text: str
    sass: tuple[str, ...]
    setup: str = OWN
    rate: bool = False


LD = "ld.volatile.shared.v4.b32 {q}, [{at}];"
ST = "st.volatile.shared.v4.b32 [{at}], {q};"
LDM = "ldmatrix.sync.aligned.m8n8.x4.shared.b16 {q}, [{at}];"
STM = "stmatrix.sync.aligned.m8n8.x4.shared.b16 [{at}], {q};"
ACCESSES = (
    Access("load_latency", "ld.shared.v4, until its value is an address", LD, ("LDS.128",)),
    Access("store_load_latency", "st.shared.v4, then ld.shared.v4 of the same", f"{ST} {LD}", ("STS.128", "LDS.128")),
    Access("ldmatrix_latency", "ldmatrix.x4, until its value is an address", LDM, ("LDSM",), MATRIX),
    Access("stmatrix_ldmatrix_latency", "stmatrix.x4, then ldmatrix.x4 of the same", f"{STM} {LDM}",
           ("STSM", "LDSM"), MATRIX),
    Access("load_rate", "ld.shared.v4", LD, ("LDS.128",), rate=True),
    Access("store_rate", "st.shared.v4", ST, ("STS.128",), rate=True),
    Access("ldmatrix_rate", "ldmatrix.x4", LDM, ("LDSM",), rate=True),
    Access("stmatrix_rate", "stmatrix.x4", STM, ("STSM",), rate=True),
)  # fmt: skip


def _quad(at: int) -> str:
    first = 4 * (at % 8)
    return QUAD.format(first, first + 1, first + 2, first + 3)


def _body(access: Access, count: int) -> str:
    if not access.rate:
        return "\n".join(access.text.format(q=_quad(0), at="%c0") for _ in range(count))
    lines = [f"xor.b32 %u, %u, {BYTES};"]  # another address each time round: nothing can leave the loop
    for at in range(count):
        lines.append(access.text.format(q=_quad(at), at=f"%u+{at * STEP}"))
        if access.text.startswith("ld"):  # the assembler drops loads, volatile or not, whose values nobody uses
            lines.append(f"lop3.b32 %r1, %c{4 * (at % 8)}, %c{4 * (at % 8) + 1}, %r1, 0x96;")
            lines.append(f"lop3.b32 %r2, %c{4 * (at % 8) + 2}, %c{4 * (at % 8) + 3}, %r2, 0x96;")
    return "\n".join(lines)


def kernels(access: Access) -> tuple[Kernel, ...]:
    found = []
    for count in (SHORT, LONG):
        threads = 512 if access.rate else WARP
        setup = f"{ADDRESS}\nmov.b32 %r1, 0;\nmov.b32 %r2, 0;" if access.rate else access.setup
        found.append(
            timed_loop(
                f"{access.name}_{count}", _body(access, count), threads=threads, setup=setup, shared=2 * BYTES,
                alive=("%c0", "%r1", "%r2") if access.rate else ("%c0",), sass=dict.fromkeys(access.sass, count),
            )
        )  # fmt: skip
    return tuple(found)


def quantities() -> tuple[Quantity, ...]:
    found = []
    for access in ACCESSES:
        unit, by = ("bytes/clk/SM", "warps") if access.rate else ("cycles", "")
        what = f"{access.what}, all lanes at consecutive 16 bytes" if access.rate else access.what
        found.append(Quantity(access.name, unit, what, by))
    return tuple(found)


def measure(bench: Bench) -> Samples:
    found: Samples = {}
    for access in ACCESSES:
        if not access.rate:
            found[access.name] = {0: _cost(bench, access.name, 1)}
            continue
        found[access.name] = {
            warps: [WARP * LANE * warps / cost for cost in _cost(bench, access.name, warps)] for warps in WARPS
        }
    return found


def _cost(bench: Bench, name: str, warps: int) -> list[float]:
    short, long = (bench.per_iteration(f"{name}_{count}", warps) for count in (SHORT, LONG))
    return slopes(short, long, LONG - SHORT)


TOPIC = Topic(
    "shared",
    "one warp's dependent chain (latency), and independent accesses of many warps (rate)",
    (tuple(kernel for access in ACCESSES for kernel in kernels(access)),),
    quantities(),
    measure,
)

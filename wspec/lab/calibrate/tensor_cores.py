"""wgmma: the interval between instructions of one accumulator, the latency of one, and for how long issuing holds
a warp group, by N.

Operands lie in shared memory in 128-byte swizzled tiles with 128 bytes of K to a row, as Triton lays them out; one
instruction takes 32 of these bytes. Four instructions make one such tile.
"""

from __future__ import annotations

from dataclasses import dataclass

from wspec.lab.calibrate.bench import Bench
from wspec.lab.calibrate.ptx import (
    GROUP,
    IDS,
    INPUT_ROW,
    LOAD_TIMED_PARAMS,
    REGISTERS,
    TIMED_PARAMS,
    Kernel,
    entry,
    keep,
    loop,
    store_times,
    timed_loop,
)  # fmt: skip
from wspec.lab.calibrate.statistics import slopes
from wspec.lab.calibrate.topic import Quantity, Samples, Topic

WIDTHS = (8, 16, 32, 64, 96, 128, 192, 256)
A_BYTES = 64 * 128  # warp groups share it
B_BYTES = 256 * 128
SHARED = A_BYTES + B_BYTES
SWIZZLE_128B = 1 << 62  # of a matrix descriptor
FEW, MANY = 4, 16  # instructions between two waits


@dataclass(frozen=True, slots=True)
class Kind:
    """Types of operands and where they lie."""

    name: str
    what: str
    types: str  # of D, A, B
    depth: int  # K of one instruction
    from_registers: bool = False
    along_n: bool = False  # B lies with N contiguous, as V does in attention
    integer: bool = False

    @property
    def widths(self) -> tuple[int, ...]:
        return tuple(n for n in WIDTHS if n % 64 == 0) if self.along_n else WIDTHS


KINDS = (
    Kind("bf16_ss", "bf16, A and B in shared memory", "f32.bf16.bf16", 16),
    Kind("bf16_rs", "bf16, A in registers", "f32.bf16.bf16", 16, from_registers=True),
    Kind("bf16_rs_mn", "bf16, A in registers, B with N contiguous", "f32.bf16.bf16", 16, True, along_n=True),
    Kind("e4m3_ss", "fp8, A and B in shared memory", "f32.e4m3.e4m3", 32),
    Kind("e4m3_rs", "fp8, A in registers", "f32.e4m3.e4m3", 32, from_registers=True),
    Kind("s8_ss", "int8, A and B in shared memory", "s32.s8.s8", 32, integer=True),
)
PAIRS = (KINDS[0:2], KINDS[2:4], KINDS[4:6])
"""One module each, so that they can be assembled side by side."""
UNITS = ((1, 1), (3, 1), (1, FEW), (1, MANY))
"""(how often a loop issues and waits, instructions each time)."""
HELD = 8  # instructions whose issue is timed: a product of attention at D = 128
HELD_KINDS, HELD_WIDTHS = KINDS[0:2], (64, 128, 256)


def descriptors(kind: Kind) -> str:
    """%rd0...3: descriptors of A for four steps along K, %rd4...7: of B."""
    # 16-byte units: address; leading offset (N contiguous: between tiles of 64 columns); stride between 8 rows
    b_step = 16 * 128 if kind.along_n else 32
    leading = 64 * 128 if kind.along_n else 16
    high = SWIZZLE_128B | (1024 >> 4) << 32
    return f"""shr.u32 %t, %smem, 4;
cvt.u64.u32 %rd0, %t;
or.b64 %rd0, %rd0, {high | 1 << 16};
add.u32 %u, %smem, {A_BYTES};
shr.u32 %u, %u, 4;
cvt.u64.u32 %rd4, %u;
or.b64 %rd4, %rd4, {high | (leading >> 4) << 16};
""" + "\n".join(f"add.u64 %rd{i}, %rd0, {2 * i};\nadd.u64 %rd{i + 4}, %rd4, {b_step // 16 * i};" for i in (1, 2, 3))


def accumulators(n: int) -> str:
    """Declared and zero."""
    return "\n".join(f"mov.b32 %d{i}, 0;" for i in range(n // 2))


def wgmma(kind: Kind, n: int, step: int) -> str:
    """One instruction, onto the accumulators %d; A from %c0...3 or %rd0...3, B from %rd4...7."""
    into = ", ".join(f"%d{i}" for i in range(n // 2))
    a = "{%c0, %c1, %c2, %c3}" if kind.from_registers else f"%rd{step % 4}"
    scales = "" if kind.integer else ", 1, 1"
    if kind.depth == 16:
        scales += ("" if kind.from_registers else ", 0") + (", 1" if kind.along_n else ", 0")
    shape = f"m64n{n}k{kind.depth}.{kind.types}"
    return f"wgmma.mma_async.sync.aligned.{shape} {{{into}}}, {a}, %rd{4 + step % 4}, 1{scales};"


def batch(kind: Kind, n: int, count: int) -> str:
    """Issue `count` instructions, and wait for the last."""
    lines = ["wgmma.fence.sync.aligned;", *(wgmma(kind, n, step) for step in range(count))]
    return "\n".join([*lines, "wgmma.commit_group.sync.aligned;", "wgmma.wait_group.sync.aligned 0;"])


FILL = f"""shl.b32 %t, %thread, 2;
add.u32 %t, %t, %smem;
mov.u32 %u, %ntid.x;
shl.b32 %u, %u, 2;
add.u32 %r30, %smem, {SHARED};
{loop("FILL")}
mul.lo.u32 %flag, %t, 0x9e3779b9;
shr.u32 %par, %flag, 15;
xor.b32 %flag, %flag, %par;
mul.lo.u32 %flag, %flag, 0x85ebca6b;
and.b32 %flag, %flag, 0x807f807f;
or.b32 %flag, %flag, 0x3f003f00;
st.shared.b32 [%t], %flag;
add.u32 %t, %t, %u;
setp.lt.u32 %p1, %t, %r30;
@%p1 bra FILL;
fence.proxy.async.shared::cta;
bar.sync 0;"""
"""Shared memory gets bf16 numbers of either sign between 0.5 and 1.996."""


def name_of(kind: Kind, n: int, times: int, count: int) -> str:
    return f"{kind.name}_n{n}_{times}x{count}"


def kernels(kind: Kind, n: int) -> list[Kernel]:
    found = []
    for times, count in UNITS:
        body = "\n".join(batch(kind, n, count) for _ in range(times))
        setup = f"{FILL}\n{descriptors(kind)}\n{accumulators(n)}"
        opcode = "IGMMA" if kind.integer else ("HGMMA" if kind.depth == 16 else "QGMMA")
        found.append(
            timed_loop(
                name_of(kind, n, times, count), body, threads=2 * GROUP, setup=setup, shared=SHARED,
                declare=f".reg .b32 %d<{n // 2}>;", alive=("%d0", f"%d{n // 2 - 1}"), sass={opcode: times * count},
            )
        )  # fmt: skip
    return found


def held_kernel(kind: Kind, n: int) -> Kernel:
    """What is stored as the end is the start and the sum of the times from before the first of HELD instructions to
    after the last one's issue; the wait for them is not in it."""
    issued = "\n".join(["wgmma.fence.sync.aligned;", *(wgmma(kind, n, step) for step in range(HELD))])
    body = f"""{REGISTERS}
.reg .b32 %d<{n // 2}>;
.reg .b64 %before, %after;
{LOAD_TIMED_PARAMS}
{IDS}
mad.wide.u32 %rd0, %thread, 4, %in;
{chr(10).join(f"ld.global.b32 %c{i}, [%rd0+{INPUT_ROW * (i + 1)}];" for i in range(4))}
{FILL}
{descriptors(kind)}
{accumulators(n)}
bar.sync 0;
mov.u64 %start, %clock64;
mov.u64 %end, %start;
mov.u32 %r31, %reps;
{loop("LOOP")}
mov.u64 %before, %clock64;
{issued}
wgmma.commit_group.sync.aligned;
mov.u64 %after, %clock64;
wgmma.wait_group.sync.aligned 0;
sub.u64 %after, %after, %before;
add.u64 %end, %end, %after;
sub.u32 %r31, %r31, 1;
setp.ne.u32 %p14, %r31, 0;
@%p14 bra LOOP;
{keep(("%d0", f"%d{n // 2 - 1}"))}
{store_times()}
ret;"""
    text = entry(held_name(kind, n), TIMED_PARAMS, body, threads=GROUP)
    return Kernel(held_name(kind, n), text, GROUP, SHARED, {"HGMMA": HELD, "CS2R": 2})


def held_name(kind: Kind, n: int) -> str:
    return f"{kind.name}_n{n}_held"


def quantities() -> tuple[Quantity, ...]:
    found = []
    for kind in KINDS:
        shape = f"m64nNk{kind.depth}, {kind.what}"
        found += [
            Quantity(f"{kind.name}_issue", "cycles", f"{shape}: between instructions of one warp group", "N"),
            Quantity(
                f"{kind.name}_issue_2", "cycles", f"{shape}: between instructions on the SM, two warp groups", "N"
            ),
            Quantity(f"{kind.name}_latency", "cycles", f"{shape}: one alone, fence, commit and wait included", "N"),
            Quantity(f"{kind.name}_latency_2", "cycles", f"{shape}: the same, two warp groups at once", "N"),
            Quantity(f"{kind.name}_batch_2", "cycles", f"{shape}: {FEW} and a wait, two warp groups at once", "N"),
        ]
        if kind in HELD_KINDS:
            what = f"{shape}: from before the first of {HELD} to after the last one's issue"
            found.append(Quantity(f"{kind.name}_held", "cycles", what, "N"))
    return tuple(found)


def measure(bench: Bench) -> Samples:
    found: Samples = {quantity.name: {} for quantity in quantities()}
    bench.fill(0x3F003F00)
    for kind in KINDS:
        for n in kind.widths:
            one, three, few, many = (name_of(kind, n, *unit) for unit in UNITS)
            reps = 128
            for groups, suffix in ((1, "latency"), (2, "latency_2")):
                short, long = (bench.per_iteration(name, 4 * groups, reps) for name in (one, three))
                found[f"{kind.name}_{suffix}"][n] = slopes(short, long, 2)
            found[f"{kind.name}_batch_2"][n] = bench.per_iteration(few, 8, reps)
            for groups, suffix in ((1, "issue"), (2, "issue_2")):
                short, long = (bench.per_iteration(name, 4 * groups, reps) for name in (few, many))
                found[f"{kind.name}_{suffix}"][n] = slopes(short, long, (MANY - FEW) * groups)
        for n in HELD_WIDTHS if kind in HELD_KINDS else ():
            held = bench.per_iteration(held_name(kind, n), 4, reps)
            found[f"{kind.name}_held"][n] = held
    return found


TOPIC = Topic(
    "wgmma",
    f"batches of {FEW} and {MANY} wgmma on one accumulator (interval), batches of one (latency)",
    (
        *(tuple(kernel for kind in pair for n in kind.widths for kernel in kernels(kind, n)) for pair in PAIRS),
        tuple(held_kernel(kind, n) for kind in HELD_KINDS for n in HELD_WIDTHS),
    ),
    quantities(),
    measure,
)

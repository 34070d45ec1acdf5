"""What tensor cores, copies and arithmetic do to each other on one SM, and to the clock of the card.

A block has two warp groups of wgmma, one of a softmax's arithmetic and a warp that copies tiles from L2 into a ring;
what is not wanted returns at once. The multiplying groups may pause between their batches.
"""

from __future__ import annotations

import statistics
from dataclasses import dataclass

from wspec.calibrate.arithmetic import OPS, body
from wspec.calibrate.bench import Bench, u32
from wspec.calibrate.ptx import GROUP, IDS, REGISTERS, Kernel, entry, loop
from wspec.calibrate.tensor_cores import A_BYTES, B_BYTES, FILL, KINDS, Kind, accumulators, batch, descriptors
from wspec.calibrate.topic import Quantity, Samples, Topic

FLAG, OPERANDS = 512, 1024  # offsets in shared memory
TILES = OPERANDS + A_BYTES + B_BYTES
TILE, STAGES, OWN = 16 * 1024, 8, 8  # bytes; tiles in flight; tiles that a block copies over and over
SHARED = TILES + STAGES * TILE
THREADS = 3 * GROUP + 32
COUNT = 16  # instructions of a batch
PAIRS = 32  # of elements of a softmax, for each turn of an arithmetic warp
WORDS = 6  # a block stores: clock64 twice, globaltimer twice, arithmetic turns, tiles
KINDS_BY_NAME = {kind.name: kind for kind in KINDS}
SHAPES = (("bf16_ss", 64), ("bf16_ss", 128), ("bf16_ss", 192), ("bf16_rs", 128))
POWER_SHAPE = ("bf16_ss", 128)
PAUSES = {100: 0, 75: 900, 50: 2200, 25: 6300}  # about the share of the tensor core that is left -> cycles
PARAMS = """.param .u64 p_out, .param .u64 p_in, .param .u32 p_reps, .param .u32 p_pause, .param .u32 p_mix,
.param .u32 p_copies, .param .u64 p_source, .param .u32 p_stride"""
COPY = "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes"


@dataclass(frozen=True, slots=True)
class Beside:
    """What runs beside the wgmma."""

    name: str
    what: str
    mix: int = 0
    copies: int = 0
    stride: int = 0  # bytes between the tiles of two blocks


BESIDES = (
    Beside("alone", "nothing beside it"),
    Beside("same", "beside copies of the same tiles in all SMs", copies=1),
    Beside("own", "beside copies of tiles of an SM's own", copies=1, stride=OWN * TILE),
    Beside("arithmetic", "beside a warp group of softmax arithmetic", mix=1),
)
LOADS = (*BESIDES[:1], BESIDES[3], BESIDES[2], Beside("all", "beside arithmetic and own copies", 1, 1, OWN * TILE))


def name_of(kind: str, n: int) -> str:
    return f"mixed_{kind}_n{n}"


def kernel(kind: Kind, n: int) -> Kernel:
    """All roles; see the module's docstring."""
    pair = next(op for op in OPS if op.name == "softmax_pair")
    extra = ("%u", "%flag", "%par", "%r1", "%r2")
    text = f"""{REGISTERS}
.reg .b32 %d<{n // 2}>;
.reg .b32 %pause, %mix, %copies, %stride, %turns, %slot, %tile, %i, %base;
.reg .b64 %source, %g0, %g1;
ld.param.u64 %out, [p_out];
ld.param.u64 %in, [p_in];
ld.param.u32 %reps, [p_reps];
ld.param.u32 %pause, [p_pause];
ld.param.u32 %mix, [p_mix];
ld.param.u32 %copies, [p_copies];
ld.param.u64 %source, [p_source];
ld.param.u32 %stride, [p_stride];
{IDS}
add.u32 %base, %smem, {OPERANDS};
mov.u32 %t, %ctaid.x;
mad.wide.u32 %out, %t, {8 * WORDS}, %out;
mad.wide.u32 %source, %t, %stride, %source;
mad.wide.u32 %rd8, %thread, 4, %in;
{chr(10).join(f"ld.global.b32 %c{i}, [%rd8+{2048 * i}];" for i in range(8))}
ld.global.b32 %a, [%in];
ld.global.b32 %b, [%in+4];
setp.ne.u32 %p0, %thread, 0;
@%p0 bra READY;
mov.u32 %t, 0;
st.volatile.shared.b32 [%smem+{FLAG}], %t;
{chr(10).join(f"mbarrier.init.shared::cta.b64 [%smem+{8 * i}], 1;" for i in range(STAGES))}
fence.proxy.async.shared::cta;
READY:
{FILL.replace("%smem", "%base").replace(f"add.u32 %r30, %base, {A_BYTES + B_BYTES};", f"add.u32 %r30, %base, {A_BYTES + B_BYTES};")}
mov.u32 %turns, 0;
setp.eq.u32 %p0, %warp, 12;
@%p0 bra COPIES;
setp.ge.u32 %p0, %warp, 8;
@%p0 bra ARITHMETIC;
{descriptors(kind).replace("%smem", "%base")}
{accumulators(n)}
mov.u64 %start, %clock64;
mov.u64 %g0, %globaltimer;
mov.u32 %r31, %reps;
{loop("WORK")}
{batch(kind, n, COUNT)}
setp.eq.u32 %p1, %pause, 0;
@%p1 bra GO;
mov.u64 %rd10, %clock64;
cvt.u64.u32 %rd11, %pause;
add.u64 %rd10, %rd10, %rd11;
{loop("REST")}
mov.u64 %rd11, %clock64;
setp.lt.u64 %p1, %rd11, %rd10;
@%p1 bra REST;
GO:
sub.u32 %r31, %r31, 1;
setp.ne.u32 %p1, %r31, 0;
@%p1 bra WORK;
mov.u64 %end, %clock64;
mov.u64 %g1, %globaltimer;
bar.sync 1, 256;
setp.eq.u32 %p2, %reps, 0xffffffff;
@%p2 st.global.b32 [%out], %d0;
setp.ne.u32 %p3, %thread, 0;
@%p3 ret;
mov.u32 %t, 1;
st.volatile.shared.b32 [%smem+{FLAG}], %t;
st.global.v2.b64 [%out], {{%start, %end}};
st.global.v2.b64 [%out+16], {{%g0, %g1}};
ret;
ARITHMETIC:
setp.eq.u32 %p0, %mix, 0;
@%p0 bra COUNTED;
{chr(10).join(f"mov.b32 {register}, %a;" for register in extra)}
{loop("TURN")}
{body(pair, PAIRS, 8)}
add.u32 %turns, %turns, 1;
ld.volatile.shared.b32 %t, [%smem+{FLAG}];
setp.eq.u32 %p1, %t, 0;
@%p1 bra TURN;
{chr(10).join(f"xor.b32 %c0, %c0, {register};" for register in (*(f"%c{i}" for i in range(1, 8)), *extra))}
setp.eq.u32 %p2, %reps, 0xffffffff;
@%p2 st.global.b32 [%out], %c0;
COUNTED:
setp.ne.u32 %p3, %thread, 256;
cvt.u64.u32 %rd1, %turns;
@!%p3 st.global.b64 [%out+32], %rd1;
ret;
COPIES:
setp.eq.u32 %p0, %copies, 0;
@%p0 bra COPIED;
setp.ne.u32 %p5, %lane, 0;
mov.u32 %slot, 0;
mov.u32 %par, 0;
mov.u32 %i, 0;
{loop("NEXT")}
mad.lo.u32 %u, %slot, 8, %smem;
setp.lt.u32 %p1, %turns, {STAGES};
@%p1 bra ISSUE;
{{ .reg .pred %done;
WAIT: mbarrier.try_wait.parity.shared.b64 %done, [%u], %par;
@!%done bra.uni WAIT; }}
ISSUE:
mad.lo.u32 %tile, %slot, {TILE}, %smem;
add.u32 %tile, %tile, {TILES};
and.b32 %t, %turns, {OWN - 1};
mad.wide.u32 %rd2, %t, {TILE}, %source;
@!%p5 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%u], {TILE};
@!%p5 {COPY} [%tile], [%rd2], {TILE}, [%u];
add.u32 %turns, %turns, 1;
add.u32 %slot, %slot, 1;
setp.eq.u32 %p2, %slot, {STAGES};
@%p2 mov.u32 %slot, 0;
setp.gt.u32 %p3, %turns, {STAGES};
and.pred %p2, %p2, %p3;
@%p2 xor.b32 %par, %par, 1;
ld.volatile.shared.b32 %t, [%smem+{FLAG}];
setp.eq.u32 %p1, %t, 0;
@%p1 bra NEXT;
mov.u32 %i, 0;
{loop("DRAIN")}
mad.lo.u32 %u, %slot, 8, %smem;
{{ .reg .pred %done;
WAIT: mbarrier.try_wait.parity.shared.b64 %done, [%u], %par;
@!%done bra.uni WAIT; }}
add.u32 %slot, %slot, 1;
setp.eq.u32 %p2, %slot, {STAGES};
@%p2 mov.u32 %slot, 0;
@%p2 xor.b32 %par, %par, 1;
add.u32 %i, %i, 1;
setp.lt.u32 %p1, %i, {STAGES};
@%p1 bra DRAIN;
COPIED:
cvt.u64.u32 %rd1, %turns;
setp.ne.u32 %p5, %lane, 0;
@!%p5 st.global.b64 [%out+40], %rd1;
ret;"""
    name = name_of(kind.name, n)
    sass = {"HGMMA": COUNT, "MUFU.EX2": 2 * PAIRS, "UBLKCP": 1, "CS2R": 3}
    return Kernel(name, entry(name, PARAMS, text, threads=THREADS), THREADS, SHARED, sass)


KERNELS = tuple(kernel(KINDS_BY_NAME[kind], n) for kind, n in SHAPES)


def quantities() -> tuple[Quantity, ...]:
    found = []
    for kind in sorted({kind for kind, _ in SHAPES}):
        for beside in BESIDES:
            what = f"{kind} m64nNk16, two warp groups, between instructions, {beside.what}"
            found.append(Quantity(f"{kind}_{beside.name}", "cycles", what, "N"))
            if beside.copies:
                what = f"copies of 16 KiB {'' if beside.stride else 'that all SMs share '}beside {kind} m64nNk16"
                found.append(Quantity(f"{beside.name}_beside_{kind}", "bytes/clk/SM", what, "N"))
            if beside.mix:
                what = f"pairs of a softmax by one warp group beside {kind} m64nNk16"
                found.append(Quantity(f"{beside.name}_beside_{kind}", "lanes/clk/SM", what, "N"))
    for load in LOADS:
        what = f"every SM with m64n128k16 on random data, {load.what}; by about the tensor core's share, %"
        found.append(Quantity(f"mhz_{load.name}", "MHz", what, "share"))
        found.append(Quantity(f"share_{load.name}", "%", "the tensor core's share then", "share"))
        found.append(Quantity(f"pairs_{load.name}", "lanes/clk/SM", "pairs of a softmax then", "share"))
        found.append(Quantity(f"bytes_{load.name}", "bytes/clk/SM", "bytes copied then", "share"))
    return tuple(found)


def measure(bench: Bench) -> Samples:
    source = bench.driver.allocate(bench.sm_count * OWN * TILE)
    bench.driver.fill(source, 0x3F103F90, bench.sm_count * OWN * TILE // 4)
    bench.fill(0x3F003F00)
    found: Samples = {quantity.name: {} for quantity in quantities()}
    for kind, n in SHAPES:
        for beside in BESIDES:
            samples = [_run(bench, kind, n, source, beside, 0, 400) for _ in range(1 + bench.repeats // 3)][1:]
            found[f"{kind}_{beside.name}"][n] = [one.interval for one in samples]
            if beside.copies:
                found[f"{beside.name}_beside_{kind}"][n] = [one.bytes for one in samples]
            if beside.mix:
                found[f"{beside.name}_beside_{kind}"][n] = [one.pairs for one in samples]
    for load in LOADS:
        for share, pause in PAUSES.items():
            cycles = 150_000_000 if not bench.quick else 15_000_000
            kind, n = POWER_SHAPE
            batches = int(cycles / (COUNT * n + pause))
            _run(bench, kind, n, source, load, pause, batches // 2)
            one = _run(bench, kind, n, source, load, pause, batches)
            found[f"mhz_{load.name}"][share] = [one.mhz]
            found[f"share_{load.name}"][share] = [100 * n / 2 / one.interval]
            found[f"pairs_{load.name}"][share] = [one.pairs]
            found[f"bytes_{load.name}"][share] = [one.bytes]
    return found


@dataclass(frozen=True, slots=True)
class _Run:
    """Medians over SMs."""

    interval: float  # cycles for each wgmma of the SM
    mhz: float
    pairs: float  # lanes a cycle
    bytes: float  # a cycle


def _run(bench: Bench, kind: str, n: int, source: int, beside: Beside, pause: int, reps: int) -> _Run:
    """One launch on every SM."""
    arguments = (
        bench.out, bench.input, u32(reps), u32(pause), u32(beside.mix), u32(beside.copies), source, u32(beside.stride),
    )  # fmt: skip
    out = bench.run(name_of(kind, n), arguments, WORDS * bench.sm_count, grid=bench.sm_count).reshape(-1, WORDS)
    cycles = [float(row[1] - row[0]) for row in out]
    return _Run(
        statistics.median(one / (2 * COUNT * reps) for one in cycles),
        statistics.median(one / float(row[3] - row[2]) * 1000 for one, row in zip(cycles, out, strict=True)),
        statistics.median(float(row[4]) * PAIRS * GROUP / one for one, row in zip(cycles, out, strict=True)),
        statistics.median(float(row[5]) * TILE / one for one, row in zip(cycles, out, strict=True)),
    )


TOPIC = Topic(
    "mixed",
    "two warp groups of wgmma in batches of 16, a warp group of softmax arithmetic and a warp that copies, on every SM",
    tuple((one,) for one in KERNELS),
    quantities(),
    measure,
)

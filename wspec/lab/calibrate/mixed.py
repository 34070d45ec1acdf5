"""What tensor cores, copies and arithmetic do to each other on one SM.

A block has two warp groups of wgmma, up to two of arithmetic and a warp that copies tiles into a ring; what is not
wanted returns at once. The multiplying groups may pause between their batches, each SM at a time of its own. Operands
and tiles are normally distributed bf16 numbers: what the tensor core's power depends on.
"""

from __future__ import annotations

import statistics
from dataclasses import dataclass

import numpy as np

from wspec.lab.calibrate.arithmetic import OPS, Op, body
from wspec.lab.calibrate.bench import Bench, u32
from wspec.lab.calibrate.ptx import GROUP, IDS, REGISTERS, Kernel, entry, loop
from wspec.lab.calibrate.tensor_cores import A_BYTES, B_BYTES, KINDS, Kind, accumulators, batch, descriptors
from wspec.lab.calibrate.topic import Quantity, Samples, Topic

FLAG, OPERANDS = 512, 1024  # offsets in shared memory
TILES = OPERANDS + A_BYTES + B_BYTES
TILE, STAGES, OWN = 16 * 1024, 8, 8  # bytes; tiles in flight; tiles that a block copies over and over from L2
SHARED = TILES + STAGES * TILE
COPIER = 4 * GROUP  # the first thread of the warp that copies
THREADS = COPIER + 32
COUNT = 16  # instructions of a batch
STEPS = 32  # operations of a turn of an arithmetic warp
WORDS = 6  # a block stores: clock64 twice, globaltimer twice, arithmetic turns, tiles
KINDS_BY_NAME = {kind.name: kind for kind in KINDS}
BESIDE = tuple(op for op in OPS if op.name in ("ffma", "fadd", "fmnmx", "ex2", "cvt_bf16x2", "lop3", "softmax_pair"))
SHAPES = (("bf16_ss", 64), ("bf16_ss", 128), ("bf16_rs", 128))
PARAMS = """.param .u64 p_out, .param .u64 p_in, .param .u32 p_reps, .param .u32 p_pause, .param .u32 p_mix,
.param .u32 p_copies, .param .u64 p_source, .param .u32 p_stride, .param .u32 p_tiles"""
COPY = "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes"


@dataclass(frozen=True, slots=True)
class Beside:
    """What runs beside the wgmma."""

    name: str
    what: str
    groups: int = 0  # of arithmetic
    copies: int = 0
    stride: int = 0  # bytes between the tiles of two blocks
    tiles: int = OWN  # that a block copies over and over; a power of two


ALONE = Beside("alone", "nothing beside it")
SAME = Beside("same", "beside copies of the same tiles in all SMs", copies=1)
OWN_COPIES = Beside("own", "beside copies of tiles of an SM's own", copies=1, stride=OWN * TILE)
COPIES = (ALONE, SAME, OWN_COPIES)


def name_of(kind: str, n: int, op: str) -> str:
    return f"mixed_{kind}_n{n}_{op}"


_FILL = f"""mad.lo.u32 %t, %thread, 4, %base;
mov.u32 %u, %ntid.x;
shl.b32 %u, %u, 2;
add.u32 %r30, %base, {A_BYTES + B_BYTES};
mad.wide.u32 %rd9, %thread, 4, %source;
cvt.u64.u32 %rd7, %u;
{loop("FILL")}
ld.global.b32 %flag, [%rd9];
st.shared.b32 [%t], %flag;
add.u64 %rd9, %rd9, %rd7;
add.u32 %t, %t, %u;
setp.lt.u32 %p1, %t, %r30;
@%p1 bra FILL;
fence.proxy.async.shared::cta;
bar.sync 0;"""


def kernel(kind: Kind, n: int, op: Op) -> Kernel:
    """All roles; see the module's docstring."""
    text = "\n".join((start(n), multiplying(kind, n), _computing(op), copying()))
    name = name_of(kind.name, n, op.name)
    sass = {"HGMMA": COUNT, "UBLKCP": 1, "CS2R": 3, **dict.fromkeys(op.sass, STEPS)}
    return Kernel(name, entry(name, PARAMS, text, threads=THREADS), THREADS, SHARED, sass)


def start(n: int) -> str:
    """What all threads do first, up to the parting of the roles."""
    return f"""{REGISTERS}
.reg .b32 %d<{n // 2}>;
.reg .b32 %pause, %mix, %copies, %stride, %last, %turns, %slot, %tile, %i, %base;
.reg .b64 %source, %g0, %g1;
ld.param.u64 %out, [p_out];
ld.param.u64 %in, [p_in];
ld.param.u32 %reps, [p_reps];
ld.param.u32 %pause, [p_pause];
ld.param.u32 %mix, [p_mix];
ld.param.u32 %copies, [p_copies];
ld.param.u64 %source, [p_source];
ld.param.u32 %stride, [p_stride];
ld.param.u32 %last, [p_tiles];
sub.u32 %last, %last, 1;
{IDS}
add.u32 %base, %smem, {OPERANDS};
mov.u32 %t, %ctaid.x;
mad.wide.u32 %out, %t, {8 * WORDS}, %out;
mad.wide.u32 %source, %t, %stride, %source;
mad.wide.u32 %rd8, %thread, 4, %in;
{chr(10).join(f"ld.global.b32 %c{i}, [%rd8+{4096 * i}];" for i in range(8))}
ld.global.b32 %a, [%in];
ld.global.b32 %b, [%in+4];
setp.ne.u32 %p0, %thread, 0;
@%p0 bra READY;
mov.u32 %t, 0;
st.volatile.shared.b32 [%smem+{FLAG}], %t;
{chr(10).join(f"mbarrier.init.shared::cta.b64 [%smem+{8 * i}], 1;" for i in range(STAGES))}
fence.proxy.async.shared::cta;
READY:
{_FILL}
mov.u32 %turns, 0;
shr.u32 %t, %thread, 7;
setp.eq.u32 %p0, %t, 4;
@%p0 bra COPIES;
setp.ge.u32 %p0, %t, 2;
@%p0 bra ARITHMETIC;"""


def multiplying(kind: Kind, n: int) -> str:
    """Two warp groups that multiply, with pauses, and say in the end that they are done."""
    return f"""{descriptors(kind).replace("%smem", "%base")}
{accumulators(n)}
mov.u32 %t, %ctaid.x;
mov.u32 %u, %nctaid.x;
mul.lo.u32 %t, %t, %pause;
div.u32 %t, %t, %u;
mov.u64 %start, %clock64;
mov.u64 %g0, %globaltimer;
mov.u32 %r31, %reps;
{_rest("FIRST", "%t")}
{loop("WORK")}
{batch(kind, n, COUNT)}
setp.eq.u32 %p1, %pause, 0;
@%p1 bra GO;
{_rest("REST", "%pause")}
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
ret;"""


def _rest(label: str, cycles: str) -> str:
    return f"""mov.u64 %rd10, %clock64;
cvt.u64.u32 %rd11, {cycles};
add.u64 %rd10, %rd10, %rd11;
{loop(label)}
mov.u64 %rd11, %clock64;
setp.ge.u64 %p1, %rd11, %rd10;
@!%p1 nanosleep.u32 100;
@!%p1 bra {label};"""


def _computing(op: Op) -> str:
    """Warp groups that do arithmetic until the products are done, and count their turns."""
    extra = ("%u", "%flag", "%par", "%r1", "%r2")
    kept = (*(f"%c{i}" for i in range(1, 8)), *extra)
    return f"""ARITHMETIC:
sub.u32 %t, %t, 2;
setp.ge.u32 %p0, %t, %mix;
@%p0 bra COUNTED;
{chr(10).join(f"mov.b32 {register}, %a;" for register in extra)}
{loop("TURN")}
{body(op, STEPS, 8)}
add.u32 %turns, %turns, 1;
ld.volatile.shared.b32 %t, [%smem+{FLAG}];
setp.eq.u32 %p1, %t, 0;
@%p1 bra TURN;
{chr(10).join(f"xor.b32 %c0, %c0, {register};" for register in kept)}
{turns_stored("%c0")}"""


def turns_stored(kept: str) -> str:
    """The end of a warp group that counted its turns; `kept` is a register that what it did is needed for."""
    return f"""setp.eq.u32 %p2, %reps, 0xffffffff;
@%p2 st.global.b32 [%out], {kept};
COUNTED:
setp.ne.u32 %p3, %thread, {2 * GROUP};
cvt.u64.u32 %rd1, %turns;
@!%p3 st.global.b64 [%out+32], %rd1;
ret;"""


def copying(tile: int = TILE) -> str:
    """A warp that has tiles of so many bytes copied into a ring until the products are done, and waits for the last.

    Its few instructions queue with those of warps that load and store, a thousand cycles for each tile: beside these
    only large tiles come as fast as they can.
    """
    stages = STAGES * TILE // tile
    return f"""COPIES:
setp.eq.u32 %p0, %copies, 0;
@%p0 bra COPIED;
setp.ne.u32 %p5, %lane, 0;
mov.u32 %slot, 0;
mov.u32 %par, 0;
{loop("NEXT")}
mad.lo.u32 %u, %slot, 8, %smem;
setp.lt.u32 %p1, %turns, {stages};
@%p1 bra ISSUE;
{{ .reg .pred %done;
WAIT: mbarrier.try_wait.parity.shared.b64 %done, [%u], %par;
@!%done bra.uni WAIT; }}
ISSUE:
mad.lo.u32 %tile, %slot, {tile}, %smem;
add.u32 %tile, %tile, {TILES};
and.b32 %t, %turns, %last;
mad.wide.u32 %rd2, %t, {tile}, %source;
@!%p5 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%u], {tile};
@!%p5 {COPY} [%tile], [%rd2], {tile}, [%u];
add.u32 %turns, %turns, 1;
add.u32 %slot, %slot, 1;
setp.eq.u32 %p2, %slot, {stages};
@%p2 mov.u32 %slot, 0;
setp.gt.u32 %p3, %turns, {stages};
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
setp.eq.u32 %p2, %slot, {stages};
@%p2 mov.u32 %slot, 0;
@%p2 xor.b32 %par, %par, 1;
add.u32 %i, %i, 1;
setp.lt.u32 %p1, %i, {stages};
@%p1 bra DRAIN;
COPIED:
cvt.u64.u32 %rd1, %turns;
setp.ne.u32 %p5, %lane, 0;
@!%p5 st.global.b64 [%out+40], %rd1;
ret;"""


PAIR = BESIDE[-1]
USED = (*((kind, n, PAIR) for kind, n in SHAPES), *(("bf16_ss", 128, op) for op in BESIDE[:-1]))
MODULES = tuple((kernel(KINDS_BY_NAME[kind], n, op),) for kind, n, op in USED)


def quantities() -> tuple[Quantity, ...]:
    found = []
    for kind in sorted({kind for kind, _ in SHAPES}):
        for beside in COPIES:
            what = f"{kind} m64nNk16, two warp groups, between instructions, {beside.what}"
            found.append(Quantity(f"{kind}_{beside.name}", "cycles", what, "N"))
            if beside.copies:
                what = f"copies of 16 KiB {'' if beside.stride else 'that all SMs share '}beside {kind} m64nNk16"
                found.append(Quantity(f"{beside.name}_beside_{kind}", "bytes/clk/SM", what, "N"))
    for op in BESIDE:
        what = f"{op.what}, eight chains a warp, beside bf16_ss m64n128k16 on two other warp groups"
        found.append(Quantity(f"{op.name}_rate", "lanes/clk/SM", what, "warps"))
        found.append(Quantity(f"{op.name}_interval", "cycles", "between the instructions of the wgmma then", "warps"))
    return tuple(found)


def measure(bench: Bench) -> Samples:
    source = random_tiles(bench, bench.sm_count * OWN)
    bench.fill(0x3F003F00)
    found: Samples = {quantity.name: {} for quantity in quantities()}
    turns = range(1 + bench.repeats // 3)
    for kind, n in SHAPES:
        for beside in COPIES:
            samples = [_run(bench, (kind, n, PAIR), source, beside, 0, 400) for _ in turns][1:]
            found[f"{kind}_{beside.name}"][n] = [one.interval for one in samples]
            if beside.copies:
                found[f"{beside.name}_beside_{kind}"][n] = [one.bytes for one in samples]
    for op in BESIDE:
        for groups in (1, 2):
            beside = Beside("", "", groups=groups)
            samples = [_run(bench, ("bf16_ss", 128, op), source, beside, 0, 400) for _ in turns][1:]
            found[f"{op.name}_rate"][4 * groups] = [groups * one.lanes for one in samples]
            found[f"{op.name}_interval"][4 * groups] = [one.interval for one in samples]
    return found


def random_tiles(bench: Bench, count: int) -> int:
    """A pointer to so many tiles of normally distributed bf16; every OWN * sm_count are the same."""
    size, whole = bench.sm_count * OWN * TILE, count * TILE
    source = bench.driver.allocate(whole)
    numbers = np.random.default_rng(0).standard_normal(size // 2, dtype=np.float32)
    halves = (numbers.view(np.uint32) >> 16).astype(np.uint16)
    for at in range(0, whole, size):
        bench.driver.write(source + at, halves[: (whole - at) // 2])
    return source


@dataclass(frozen=True, slots=True)
class Run:
    """Medians over SMs."""

    interval: float  # cycles for each wgmma of the SM
    mhz: float
    lanes: float  # operations of one arithmetic warp group a cycle
    bytes: float  # copied a cycle
    ping_pong: float  # of one arithmetic warp group a cycle


def _run(bench: Bench, code: tuple[str, int, Op], source: int, beside: Beside, pause: int, reps: int) -> Run:
    kind, n, op = code
    return launch(bench, (kind, n, op.name), source, beside, pause, reps)


def launch(
    bench: Bench, code: tuple[str, int, str], source: int, beside: Beside, pause: int, reps: int, tile: int = TILE
) -> Run:
    """One launch on every SM, of the kernel of a kind, N and operation; tiles are of so many bytes."""
    arguments = (
        bench.out, bench.input, u32(reps), u32(pause), u32(beside.groups), u32(beside.copies), source,
        u32(beside.stride), u32(beside.tiles),
    )  # fmt: skip
    out = bench.run(name_of(*code), arguments, WORDS * bench.sm_count, grid=bench.sm_count).reshape(-1, WORDS)
    cycles = [float(row[1] - row[0]) for row in out]
    return Run(
        statistics.median(one / (2 * COUNT * reps) for one in cycles),
        statistics.median(one / float(row[3] - row[2]) * 1000 for one, row in zip(cycles, out, strict=True)),
        statistics.median(float(row[4]) * STEPS * GROUP / one for one, row in zip(cycles, out, strict=True)),
        statistics.median(float(row[5]) * tile / one for one, row in zip(cycles, out, strict=True)),
        statistics.median(float(row[4]) / one for one, row in zip(cycles, out, strict=True)),
    )


TOPIC = Topic(
    "mixed",
    "two warp groups of wgmma in batches of 16, others of arithmetic, and a warp that copies, on every SM",
    MODULES,
    quantities(),
    measure,
)

"""The SM clock under load: clock64 against globaltimer over the second half of a long kernel."""

from __future__ import annotations

from wspec.lab.calibrate.bench import Bench, u32
from wspec.lab.calibrate.ptx import GROUP, IDS, LOAD_TIMED_PARAMS, REGISTERS, TIMED_PARAMS, Kernel, entry, loop
from wspec.lab.calibrate.tensor_cores import FILL, KINDS, SHARED, accumulators, batch, descriptors
from wspec.lab.calibrate.topic import Quantity, Samples, Topic

MILLISECONDS = 400
QUICK_MILLISECONDS = 40
MHZ = 1700
"""About what the clock will be."""
FFMA_THREADS = 512
FFMA, WGMMA = 512, 32  # instructions of a loop
FFMA_CYCLES = FFMA * FFMA_THREADS // 128
WGMMA_CYCLES = WGMMA * 2 * 128


def _kernel(name: str, work: str, setup: str, keep: str, threads: int, shared: int, sass: dict[str, int]) -> Kernel:
    """Works p_reps times, twice; stores clock64 and globaltimer before and after the second time."""
    body = f"""{REGISTERS}
.reg .b32 %d<128>;
{LOAD_TIMED_PARAMS}
{IDS}
mad.wide.u32 %rd8, %thread, 4, %in;
{chr(10).join(f"ld.global.b32 %c{i}, [%rd8+{2048 * i}];" for i in range(8))}
ld.global.b32 %a, [%in];
ld.global.b32 %b, [%in+4];
{setup}
mov.u32 %par, 0;
{loop("HALF")}
mov.u64 %start, %clock64;
mov.u64 %rd10, %globaltimer;
mov.u32 %r31, %reps;
{loop("WORK")}
{work}
sub.u32 %r31, %r31, 1;
setp.ne.u32 %p1, %r31, 0;
@%p1 bra WORK;
add.u32 %par, %par, 1;
setp.lt.u32 %p1, %par, 2;
@%p1 bra HALF;
mov.u64 %end, %clock64;
mov.u64 %rd11, %globaltimer;
setp.eq.u32 %p2, %reps, 0xffffffff;
@%p2 st.global.b32 [%out], {keep};
setp.ne.u32 %p3, %thread, 0;
@%p3 ret;
mov.u32 %t, %ctaid.x;
mad.wide.u32 %rd12, %t, 32, %out;
st.global.v2.b64 [%rd12], {{%start, %end}};
st.global.v2.b64 [%rd12+16], {{%rd10, %rd11}};
ret;"""
    return Kernel(name, entry(name, TIMED_PARAMS, body, threads=threads), threads, shared, sass)


def kernels() -> tuple[Kernel, ...]:
    bf16 = KINDS[0]
    ffma = "\n".join(f"fma.rn.f32 %c{i % 8}, %c{i % 8}, %a, %b;" for i in range(FFMA))
    add = "\n".join(f"xor.b32 %c0, %c0, %c{i};" for i in range(1, 8))
    setup = f"{FILL}\n{descriptors(bf16)}\n{accumulators(256)}"
    wgmma = batch(bf16, 256, WGMMA)
    return (
        _kernel("clock_ffma", f"{ffma}\n{add}", "", "%c0", FFMA_THREADS, 0, {"FFMA": FFMA}),
        _kernel("clock_wgmma", wgmma, setup, "%d0", 2 * GROUP, SHARED, {"HGMMA": WGMMA}),
    )


QUANTITIES = (
    Quantity("light_mhz", "MHz", "one block of FFMA"),
    Quantity("ffma_mhz", "MHz", "every SM with 16 warps of FFMA"),
    Quantity("wgmma_mhz", "MHz", "every SM with two warp groups of bf16 m64n256k16 on random data"),
)


def measure(bench: Bench) -> Samples:
    milliseconds = QUICK_MILLISECONDS if bench.quick else MILLISECONDS
    bench.fill(0x3F800000)
    runs = (("light_mhz", "clock_ffma", 1, FFMA_CYCLES), ("ffma_mhz", "clock_ffma", bench.sm_count, FFMA_CYCLES),
            ("wgmma_mhz", "clock_wgmma", bench.sm_count, WGMMA_CYCLES))  # fmt: skip
    found: Samples = {}
    for quantity, kernel, grid, cycles in runs:
        arguments = (bench.out, bench.input, u32(milliseconds * 1000 * MHZ // 2 // cycles))
        out = bench.run(kernel, arguments, 4 * grid, grid=grid).reshape(-1, 4)
        rates = (out[:, 1] - out[:, 0]) / (out[:, 3] - out[:, 2]) * 1000
        found[quantity] = {0: [float(rate) for rate in rates]}
    return found


TOPIC = Topic(
    "clock",
    f"clock64 against globaltimer over the second half of {MILLISECONDS} ms of work; the spread is over SMs",
    (kernels(),),
    QUANTITIES,
    measure,
)

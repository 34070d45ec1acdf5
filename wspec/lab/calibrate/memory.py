"""Ordinary loads from global memory, one at a time: what TMA adds is seen against these."""

from __future__ import annotations

from wspec.lab.calibrate.bench import Bench, u32
from wspec.lab.calibrate.ptx import IDS, REGISTERS, WARP, Kernel, entry, loop
from wspec.lab.calibrate.statistics import slopes
from wspec.lab.calibrate.topic import Quantity, Samples, Topic

BYTES = 1 << 29
SMALL = 1 << 21  # stays in L2
STEP = 4096 + 128
PARAMS = ".param .u64 p_out, .param .u64 p_in, .param .u32 p_reps, .param .u32 p_first, .param .u32 p_mask"


def chase_kernel() -> Kernel:
    """Loads that need the one before: address + step + loaded zero; clock64 before and after at out."""
    body = f"""{REGISTERS}
ld.param.u64 %out, [p_out];
ld.param.u64 %in, [p_in];
ld.param.u32 %reps, [p_reps];
ld.param.u32 %a, [p_first];
ld.param.u32 %b, [p_mask];
{IDS}
mov.u64 %start, %clock64;
mov.u32 %r31, %reps;
{loop("CHASE")}
cvt.u64.u32 %rd0, %a;
add.u64 %rd0, %rd0, %in;
ld.relaxed.gpu.global.u32 %t, [%rd0];
add.u32 %a, %a, {STEP};
and.b32 %a, %a, %b;
add.u32 %a, %a, %t;
sub.u32 %r31, %r31, 1;
setp.ne.u32 %p1, %r31, 0;
@%p1 bra CHASE;
mov.u64 %end, %clock64;
setp.eq.u32 %p2, %a, 0xffffffff;
@%p2 st.global.b32 [%out], %a;
setp.ne.u32 %p3, %thread, 0;
@%p3 ret;
st.global.v2.b64 [%out], {{%start, %end}};
ret;"""
    name = "global_load_chain"
    return Kernel(name, entry(name, PARAMS, body, threads=WARP), WARP, 0, {"LDG": 1, "CS2R": 2})


QUANTITIES = (
    Quantity("l2_latency", "cycles", "ld.global past L1, from L2, with about 10 cycles of address arithmetic"),
    Quantity("dram_latency", "cycles", "the same from memory, pages in the TLB or not as they come"),
)


def measure(bench: Bench) -> Samples:
    pointer = bench.driver.allocate(BYTES)
    bench.driver.fill(pointer, 0, BYTES // 4)
    few, many = 64, 320
    first = 0
    found: dict[str, list[list[float]]] = {"l2_latency": [[], []], "dram_latency": [[], []]}
    for turn in range(2 + bench.repeats):
        for name, span in (("l2_latency", SMALL), ("dram_latency", BYTES)):
            for at, reps in enumerate((few, many)):
                start = first if name == "dram_latency" else 0
                arguments = (bench.out, pointer, u32(reps), u32(start), u32(span - 128))
                out = bench.run("global_load_chain", arguments, 2, threads=WARP)
                if name == "dram_latency":
                    first = (first + (reps + 1) * STEP) % (BYTES // 2)
                if turn >= 2:
                    found[name][at].append(float(out[1] - out[0]))
    return {name: {0: slopes(short, long, many - few)} for name, (short, long) in found.items()}


TOPIC = Topic(
    "memory",
    f"one warp, every load's address needs the one before, {STEP} bytes apart",
    ((chase_kernel(),),),
    QUANTITIES,
    measure,
)

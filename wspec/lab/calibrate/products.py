"""Two products that a warp group issues one behind the other, as attention does, and who is served first.

The first product has A in shared memory, the second in registers, all of its own; both are HELD instructions of
N = 128, onto accumulators of their own. The warp groups of a block begin together. How long after that they have
issued each product, and how long until each is done, says whether instructions of A in registers wait for the product
before them, and whether the tensor core serves one warp group after the other or takes turns.
"""

from __future__ import annotations

from wspec.lab.calibrate.bench import Bench, u32
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
)  # fmt: skip
from wspec.lab.calibrate.tensor_cores import FILL, HELD, KINDS, SHARED, accumulators, descriptors, wgmma
from wspec.lab.calibrate.topic import Quantity, Samples, Topic

N = 128
GROUPS = (1, 2)  # warp groups at once
POINTS = {
    "first_issued": "the first product is issued",
    "second_issued": "the second product is issued, too",
    "first_done": "the wait for the first product is over",
    "second_done": "the wait for the second product is over",
}
REPS = 64


def _second(step: int) -> str:
    """An instruction of the second product: its own registers of A, its own accumulators."""
    own = ", ".join(f"%c{4 * step + i}" for i in range(4))
    return wgmma(KINDS[1], N, step).replace("%c0, %c1, %c2, %c3", own).replace("%d", "%e")


def kernel(point: str) -> Kernel:
    """%end becomes the start and the sum of the times from the common start of an iteration to the point."""
    commit = "wgmma.commit_group.sync.aligned;"
    stages = {
        "first_issued": [*(wgmma(KINDS[0], N, step) for step in range(HELD)), commit],
        "second_issued": ["wgmma.fence.sync.aligned;", *map(_second, range(HELD)), commit],
        "first_done": ["wgmma.wait_group.sync.aligned 1;"],
        "second_done": ["wgmma.wait_group.sync.aligned 0;"],
    }
    lines = []
    for name, some in stages.items():
        lines += [*some, *(["mov.u64 %after, %clock64;"] if name == point else [])]
    zero = accumulators(N)
    body = f"""{REGISTERS}
.reg .b32 %d<{N // 2}>, %e<{N // 2}>;
.reg .b64 %before, %after;
{LOAD_TIMED_PARAMS}
{IDS}
mad.wide.u32 %rd0, %thread, 4, %in;
{chr(10).join(f"ld.global.b32 %c{i}, [%rd0+{INPUT_ROW * (i + 1)}];" for i in range(32))}
{FILL}
{descriptors(KINDS[0])}
{zero}
{zero.replace("%d", "%e")}
bar.sync 0;
mov.u64 %start, %clock64;
mov.u64 %end, %start;
mov.u32 %r31, %reps;
{loop("LOOP")}
bar.sync 0;
mov.u64 %before, %clock64;
wgmma.fence.sync.aligned;
{chr(10).join(lines)}
sub.u64 %after, %after, %before;
add.u64 %end, %end, %after;
sub.u32 %r31, %r31, 1;
setp.ne.u32 %p14, %r31, 0;
@%p14 bra LOOP;
{keep(("%d0", f"%d{N // 2 - 1}", "%e0", f"%e{N // 2 - 1}"))}
{store_times()}
ret;"""
    text = entry(name_of(point), TIMED_PARAMS, body, threads=GROUPS[-1] * GROUP)
    return Kernel(name_of(point), text, GROUPS[-1] * GROUP, SHARED, {"HGMMA": 2 * HELD, "CS2R": 2})


def name_of(point: str) -> str:
    return f"products_{point}"


QUANTITIES = tuple(
    Quantity(f"{point}_{which}", "cycles", f"from a common start until {what}; the {which} warp group to get there",
             "warp groups")
    for point, what in POINTS.items() for which in ("quickest", "slowest")
)  # fmt: skip


def measure(bench: Bench) -> Samples:
    bench.fill(0x3F003F00)
    found: Samples = {quantity.name: {} for quantity in QUANTITIES}
    for point in POINTS:
        for groups in GROUPS:
            samples = [_times(bench, name_of(point), groups) for _ in range(bench.repeats + 1)][1:]
            found[f"{point}_quickest"][groups] = [min(one) for one in samples]
            found[f"{point}_slowest"][groups] = [max(one) for one in samples]
    return found


def _times(bench: Bench, name: str, groups: int) -> list[float]:
    """Cycles to the point, of each warp group."""
    warps = 4 * groups
    times = bench.run(name, (bench.out, bench.input, u32(REPS)), 2 * warps, threads=groups * GROUP)
    spent = (times[1::2] - times[0::2]) / REPS
    return [float(spent[4 * group : 4 * group + 4].mean()) for group in range(groups)]


TOPIC = Topic(
    "products",
    f"two products of {HELD} m64n{N}k16, issued one behind the other, by warp groups that begin together",
    (tuple(kernel(point) for point in POINTS),),
    QUANTITIES,
    measure,
)

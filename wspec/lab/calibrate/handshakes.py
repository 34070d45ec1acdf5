"""Handshakes between warps: mbarriers, named barriers, the proxy fence.

Two sides hand a turn to and fro; a hand-over is half of a round trip: from the arrival of one side to the other side's
being through its wait. It is measured alone and with the rest of the SM at work.
"""

from __future__ import annotations

from dataclasses import dataclass

from wspec.lab.calibrate import background
from wspec.lab.calibrate.bench import Bench
from wspec.lab.calibrate.ptx import (
    GROUP,
    IDS,
    LOAD_TIMED_PARAMS,
    REGISTERS,
    TIMED_PARAMS,
    WARP,
    Kernel,
    arrive,
    entry,
    loop,
    timed_loop,
    wait,
)  # fmt: skip
from wspec.lab.calibrate.statistics import slopes
from wspec.lab.calibrate.topic import Quantity, Samples, Topic

SHORT, LONG = 8, 24  # operations of a loop
PING, PONG = 0, 8  # mbarriers, offsets in shared memory
SELF = 16


@dataclass(frozen=True, slots=True)
class Sides:
    """Who hands over to whom: warp 0, and `warps` warps from warp 4 on."""

    name: str
    what: str
    warps: int
    arrivals: int  # by them, for each turn


SIDES = (
    Sides("warp", "one warp and another, one arrival each way", 1, 1),
    Sides("group", "one warp and a warp group, which arrives with one thread of each warp", 4, 4),
    Sides("threads", "one warp and a warp group, which arrives with all 128 threads", 4, GROUP),
)
WITH_BACKGROUND = ("warp", "group")


def _frame(name: str, first: str, second: str, kind: str, sass: dict[str, int], prepare: str = "") -> Kernel:
    """`first` runs in warps 0 to 3 and takes the time, `second` in warps 4 to 7, the background in the rest."""
    behind = background.code(kind) if kind != "idle" else "ret;"
    body = f"""{REGISTERS}
{background.DECLARE}
{LOAD_TIMED_PARAMS}
{IDS}
ld.global.b32 %a, [%in];
ld.global.b32 %b, [%in+4];
mad.wide.u32 %rd0, %thread, 4, %in;
{chr(10).join(f"ld.global.b32 %c{i}, [%rd0+{2048 * (i + 1)}];" for i in range(8))}
setp.ne.u32 %p0, %thread, 0;
@%p0 bra READY;
{background.init()}
{prepare}
READY:
bar.sync 0;
mov.u32 %par, 0;
mov.u32 %r31, %reps;
setp.eq.u32 %p1, %lane, 0;
setp.ge.u32 %p2, %warp, {background.FIRST_WARP};
@%p2 bra BEHIND;
setp.ge.u32 %p2, %warp, 4;
@%p2 bra SECOND;
{first}
SECOND:
{second}
BEHIND:
{behind}"""
    threads = background.THREADS if kind != "idle" else 2 * GROUP
    found = {**background.sass(kind), **sass}
    return Kernel(name, entry(name, TIMED_PARAMS, body, threads=threads), threads, background.SHARED, found)


_COUNT = """xor.b32 %par, %par, 1;
sub.u32 %r31, %r31, 1;
setp.ne.u32 %p3, %r31, 0;"""
_FINISH = f"""setp.ne.u32 %p4, %thread, 0;
@%p4 ret;
{background.end()}
st.global.v2.b64 [%out], {{%start, %end}};
ret;"""


def mbarrier_kernel(sides: Sides, kind: str) -> Kernel:
    prepare = f"mbarrier.init.shared::cta.b64 [%smem+{PING}], 1;\n"
    prepare += f"mbarrier.init.shared::cta.b64 [%smem+{PONG}], {sides.arrivals};"
    first = f"""setp.ne.u32 %p2, %warp, 0;
@%p2 ret;
mov.u64 %start, %clock64;
{loop("TURN")}
{arrive(f"%smem+{PING}", "%p1")}
{wait(f"%smem+{PONG}", "%par")}
{_COUNT}
@%p3 bra TURN;
mov.u64 %end, %clock64;
{_FINISH}"""
    by = "" if sides.arrivals == GROUP else "%p1"
    second = f"""setp.ge.u32 %p2, %warp, {4 + sides.warps};
@%p2 ret;
{loop("ANSWER")}
{wait(f"%smem+{PING}", "%par")}
{arrive(f"%smem+{PONG}", by)}
{_COUNT}
@%p3 bra ANSWER;
ret;"""
    return _frame(f"mbarrier_{sides.name}_{kind}", first, second, kind, {"SYNCS": 4, "CS2R": 2}, prepare)


def named_kernel(kind: str) -> Kernel:
    """Two warp groups; each arrives on the other's barrier and synchronizes on its own."""
    first = f"""mov.u64 %start, %clock64;
{loop("TURN")}
bar.arrive 1, {2 * GROUP};
bar.sync 2, {2 * GROUP};
{_COUNT}
@%p3 bra TURN;
mov.u64 %end, %clock64;
{_FINISH}"""
    second = f"""{loop("ANSWER")}
bar.sync 1, {2 * GROUP};
bar.arrive 2, {2 * GROUP};
{_COUNT}
@%p3 bra ANSWER;
ret;"""
    return _frame(f"named_group_{kind}", first, second, kind, {"BAR.SYNC": 3, "BAR.ARV": 2, "CS2R": 2})


@dataclass(frozen=True, slots=True)
class Step:
    """What one side pays by itself: `text`, repeated, in `warps` warps."""

    name: str
    what: str
    text: str
    sass: tuple[str, ...]
    warps: tuple[int, ...] = (1,)


def _init(count: int) -> str:
    return f"""setp.eq.u32 %p1, %lane, 0;
setp.eq.u32 %p2, %thread, 0;
@%p2 mbarrier.init.shared::cta.b64 [%smem+{SELF}], {count};
bar.sync 0;
mov.u32 %par, 0;
mad.lo.u32 %u, %thread, 16, %smem;"""


FENCE = "fence.proxy.async.shared::cta;"
STORE = "st.volatile.shared.v4.b32 [%u+1024], {%a, %a, %b, %b};"
MANY_ARRIVALS = (1 << 20) - 1
STEPS = (
    Step("self", "one warp: arrive, then wait for that phase",
         f"{arrive(f'%smem+{SELF}', '%p1')} {wait(f'%smem+{SELF}', '%par')} xor.b32 %par, %par, 1;", ("SYNCS",)),
    Step("wait_ready", "a wait for a phase that has ended: what a wait that need not wait costs",
         f"mov.u32 %t, 1;\n{wait(f'%smem+{SELF}', '%t')}", ("SYNCS.PHASECHK",)),
    Step("arrive", "an arrival by one thread, issue to issue", arrive(f"%smem+{SELF}", "%p1"), ("SYNCS",)),
    Step("bar_sync", "bar.sync of a whole block, by its warps", "bar.sync 1;", ("BAR.SYNC",), (4, 8, 12)),
    Step("fence", "fence.proxy.async.shared::cta, nothing stored before", FENCE, ("FENCE.VIEW.ASYNC",), (1, 4)),
    Step("store_fence", "st.shared.v4, then the fence", f"{STORE} {FENCE}", ("STS.128", "FENCE.VIEW.ASYNC"), (1, 4)),
)  # fmt: skip


def step_kernels(step: Step) -> list[Kernel]:
    found = []
    for count in (SHORT, LONG):
        arrivals = 1 if step.name == "self" else MANY_ARRIVALS
        body = "\n".join([step.text] * count)
        found.append(
            timed_loop(
                f"{step.name}_{count}", body, threads=WARP * max(step.warps), setup=_init(arrivals),
                alive=("%a", "%par"), shared=16 * 1024, sass=dict.fromkeys(step.sass, count),
            )
        )  # fmt: skip
    return found


KERNELS = (
    *(mbarrier_kernel(sides, "idle") for sides in SIDES),
    *(
        mbarrier_kernel(sides, kind)
        for sides in SIDES if sides.name in WITH_BACKGROUND
        for kind in background.BACKGROUNDS if kind != "idle"
    ),
    *(named_kernel(kind) for kind in background.BACKGROUNDS),
)  # fmt: skip


def quantities() -> tuple[Quantity, ...]:
    found = []
    for sides in SIDES:
        for kind, beside in background.BACKGROUNDS.items():
            if kind == "idle" or sides.name in WITH_BACKGROUND:
                what = f"mbarrier hand-over between {sides.what}; {beside}"
                found.append(Quantity(f"mbarrier_{sides.name}_{kind}", "cycles", what))
    for kind, beside in background.BACKGROUNDS.items():
        what = f"named barrier hand-over between two warp groups, bar.arrive to bar.sync; {beside}"
        found.append(Quantity(f"named_group_{kind}", "cycles", what))
    found += [Quantity(step.name, "cycles", step.what, "warps" if len(step.warps) > 1 else "") for step in STEPS]
    return tuple(found)


def measure(bench: Bench) -> Samples:
    found: Samples = {}
    bench.fill(0x3F800000)
    for kernel in KERNELS:
        found[kernel.name] = {0: [cycles / 2 for cycles in _per_turn(bench, kernel)]}
    for step in STEPS:
        costs = {}
        for warps in step.warps:
            short, long = (bench.per_iteration(f"{step.name}_{count}", warps) for count in (SHORT, LONG))
            costs[warps] = slopes(short, long, LONG - SHORT)
        found[step.name] = costs if len(step.warps) > 1 else {0: costs[step.warps[0]]}
    return found


def _per_turn(bench: Bench, kernel: Kernel) -> list[float]:
    """Cycles of a round trip."""
    few, many = 64, 1024
    samples = []
    for turn in range(1 + bench.repeats):
        times = [bench.loop_time(kernel.name, 1, reps, threads=kernel.threads) for reps in (few, many)]
        if turn:
            samples.append((times[1] - times[0]) / (many - few))
    return samples


TOPIC = Topic(
    "handshakes",
    "turns handed to and fro, halved; repeated operations of one side",
    ((*KERNELS, *(kernel for step in STEPS for kernel in step_kernels(step))),),
    quantities(),
    measure,
)

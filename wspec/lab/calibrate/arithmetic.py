"""Arithmetic in registers: every operation's latency from one dependent chain, its rate from 16 warps of eight chains.

An operation is run in two kernels that differ in how many of them a loop holds, for two trip counts each; the cost is
the difference of the differences, so that neither loop nor clock reads are in it.
"""

from __future__ import annotations

from dataclasses import dataclass

from wspec.lab.calibrate.bench import Bench
from wspec.lab.calibrate.ptx import WARP, Kernel, timed_loop
from wspec.lab.calibrate.statistics import slopes
from wspec.lab.calibrate.topic import Quantity, Samples, Topic

CHAINS = 8
ONE_F32, ONE_BF16X2, WORD = 0x3F800000, 0x3F803F80, 0x9E3779B9
SHORT, LONG = 32, 96  # operations of a loop
WARPS = (1, 2, 4, 8, 16)
SHFL = "shfl.sync.bfly.b32 {0}, {1}, {2}, 0x1f, 0xffffffff;"


@dataclass(frozen=True, slots=True)
class Op:
    """`text` reads and writes {d} ({e} is the next chain's register, {t} scratch); `sass` are its instructions."""

    name: str
    what: str
    text: str
    sass: tuple[str, ...]
    word: int = ONE_F32
    chained: bool = True  # {d} after it depends on {d} before it and on nothing else
    by_warps: bool = False


QUAD = " ".join(
    f"{SHFL.format('{t}', '{d}', distance)} max.f32 {{d}}, {{d}}, {{t}};" for distance in (1, 2)
)  # over the four lanes that share a row of an accumulator
SOFTMAX = (
    "max.f32 %u, %u, {d}; max.f32 %flag, %flag, {e}; fma.rn.f32 {d}, {d}, %a, %b; fma.rn.f32 {e}, {e}, %a, %b; "
    "ex2.approx.ftz.f32 {d}, {d}; ex2.approx.ftz.f32 {e}, {e}; add.f32 %par, %par, {d}; add.f32 %r1, %r1, {e}; "
    "cvt.rn.bf16x2.f32 {t}, {d}, {e}; xor.b32 %r2, %r2, {t};"
)
OPS = (
    Op("ffma", "f32 multiply-add", "fma.rn.f32 {d}, {d}, %a, %b;", ("FFMA",), by_warps=True),
    Op("fmul", "f32 multiplication", "mul.rn.f32 {d}, {d}, %a;", ("FMUL",)),
    Op("fadd", "f32 addition", "add.rn.f32 {d}, {d}, %a;", ("FADD",)),
    Op("fmnmx", "f32 maximum", "max.f32 {d}, {d}, {e};", ("FMNMX",), by_warps=True),
    Op("hfma2_bf16", "bf16x2 multiply-add", "fma.rn.bf16x2 {d}, {d}, %a, %b;", ("HFMA2",), ONE_BF16X2),
    Op("ex2", "2^x, ftz, as Triton's exp2", "ex2.approx.ftz.f32 {d}, {d};", ("MUFU.EX2",), by_warps=True),
    Op("lg2", "log2, ftz", "lg2.approx.ftz.f32 {d}, {d};", ("MUFU.LG2",)),
    Op("rsqrt", "1 / sqrt, ftz", "rsqrt.approx.ftz.f32 {d}, {d};", ("MUFU.RSQ",)),
    Op("cvt_bf16x2", "two f32 to bf16x2", "cvt.rn.bf16x2.f32 {d}, {d}, %b;", ("F2FP.BF16",), by_warps=True),
    Op("cvt_f16x2", "two f32 to f16x2", "cvt.rn.f16x2.f32 {d}, {d}, %b;", ("F2FP.F16",)),
    Op("iadd", "i32 addition", "add.u32 {d}, {d}, {e};", ("IADD3|IMAD.IADD",), WORD),
    Op("imad", "i32 multiply-add", "mad.lo.u32 {d}, {d}, %a, %b;", ("IMAD",), WORD),
    Op("lop3", "i32 logic", "lop3.b32 {d}, {d}, %a, %b, 0x1e;", ("LOP3",), WORD),
    Op("shf", "i32 funnel shift", "shf.l.wrap.b32 {d}, {d}, %a, %b;", ("SHF",), WORD),
    Op("compare_select", "i32 compare, then select: a mask",
       "setp.lt.s32 %p1, {d}, %a; selp.b32 {d}, {d}, %b, %p1;", ("ISETP", "SEL"), WORD),
    Op("shfl", "butterfly shuffle of one word", SHFL.format("{d}", "{d}", 1), ("SHFL",), WORD),
    Op("quad_max", "maximum over four lanes: two shuffles, two maxima", QUAD, ("SHFL", "FMNMX")),
    Op("softmax_pair", "two elements of a softmax: 2 max, 2 ffma, 2 ex2, 2 fadd, a cvt to bf16x2 and a lop3", SOFTMAX,
       ("MUFU.EX2", "FFMA", "FADD", "FMNMX", "F2FP"), chained=False, by_warps=True),
)  # fmt: skip


def body(op: Op, count: int, chains: int) -> str:
    """`count` of them, over `chains` registers in turn."""
    lines = []
    for at in range(count):
        here, there = at % chains, (at + 1) % chains
        lines.append(op.text.format(d=f"%c{here}", e=f"%c{there}", t=f"%c{16 + here}"))
    return "\n".join(lines)


def kernels(op: Op) -> tuple[Kernel, ...]:
    """Latency and rate, short and long each."""
    found = []
    extra = ("%u", "%flag", "%par", "%r1", "%r2")
    for count in (SHORT, LONG):
        least = dict.fromkeys(op.sass, count)
        # {e} is another chain: a fibonacci pair, a + b, b + (a + b), ..., depends on the one before all the same
        two = 2 if "{e}" in op.text else 1
        if op.chained:
            latency = body(op, count, two)
            found.append(timed_loop(f"{op.name}_latency_{count}", latency, threads=WARP, sass=least, alive=_alive(two)))
        setup = "\n".join(f"mov.b32 {name}, %a;" for name in extra)
        rate = body(op, count, CHAINS)
        found.append(
            timed_loop(
                f"{op.name}_rate_{count}", rate, threads=512, sass=least, setup=setup, alive=(*_alive(CHAINS), *extra)
            )
        )
    return tuple(found)


def _alive(chains: int) -> tuple[str, ...]:
    return tuple(f"%c{i}" for i in range(chains))


def quantities() -> tuple[Quantity, ...]:
    found = []
    for op in OPS:
        if op.chained:
            found.append(Quantity(f"{op.name}_latency", "cycles", f"{op.what}: until the next may use it"))
        found.append(Quantity(f"{op.name}_rate", "lanes/clk/SM", f"{op.what}, {WARPS[-1]} warps"))
        if op.by_warps:
            found.append(
                Quantity(f"{op.name}_rate_by_warps", "lanes/clk/SM", f"{op.what}, eight chains a warp", "warps")
            )
    return tuple(found)


def measure(bench: Bench) -> Samples:
    found: Samples = {}
    for op in OPS:
        bench.fill(op.word)
        if op.chained:
            found[f"{op.name}_latency"] = {0: _cost(bench, f"{op.name}_latency", 1)}
        rates = {}
        for warps in WARPS if op.by_warps else WARPS[-1:]:
            rates[warps] = [WARP * warps / cost for cost in _cost(bench, f"{op.name}_rate", warps)]
        found[f"{op.name}_rate"] = {0: rates[WARPS[-1]]}
        if op.by_warps:
            found[f"{op.name}_rate_by_warps"] = rates
    return found


def _cost(bench: Bench, name: str, warps: int) -> list[float]:
    """Cycles of one operation of each warp."""
    short, long = (bench.per_iteration(f"{name}_{count}", warps) for count in (SHORT, LONG))
    return slopes(short, long, LONG - SHORT)


TOPIC = Topic(
    "arithmetic",
    "one warp's dependent chain (latency) and 16 warps of eight chains (rate), in registers",
    (tuple(kernel for op in OPS for kernel in kernels(op)),),
    quantities(),
    measure,
)

"""The arithmetic between two products of attention, as a compiler orders it, by how many warp groups share the SM.

Every thread holds N / 2 scores of two rows: their maxima, in a thread and over four lanes, the exponentials, their
sums, the conversion to bf16, and the scaling of an accumulator of 64 columns. The exponentials are the next scores.
"""

from __future__ import annotations

from wspec.lab.calibrate.bench import Bench
from wspec.lab.calibrate.ptx import Kernel, timed_loop
from wspec.lab.calibrate.topic import Quantity, Samples, Topic

COLUMNS = (64, 128)
WARPS = (4, 8, 12, 16)
OUTPUT = 64  # columns of the accumulator
_SHUFFLE = "shfl.sync.bfly.b32 {0}, {1}, {2}, 0x1f, 0xffffffff;"


def tile(columns: int) -> str:
    """One tile; scores in %s, the accumulator in %o."""
    held = columns // 2
    rows = [[f"%s{i}" for i in range(held) if i // 2 % 2 == row] for row in range(2)]
    lines = []
    for row, scores in enumerate(rows):
        lines.append(f"max.f32 %m{row}, {scores[0]}, {scores[1]};")
        lines += [f"max.f32 %m{row}, %m{row}, {one};" for one in scores[2:]]
    for distance in (2, 1):
        for row in range(2):
            lines += [_SHUFFLE.format(f"%t{row}", f"%m{row}", distance), f"max.f32 %m{row}, %m{row}, %t{row};"]
    for row, scores in enumerate(rows):
        lines += [
            f"mul.f32 %m{row}, %m{row}, %a;",
            f"max.f32 %m{row}, %m{row}, %top{row};",
            f"sub.f32 %t{row}, %top{row}, %m{row};",
            f"ex2.approx.ftz.f32 %t{row}, %t{row};",
            f"mov.b32 %top{row}, %m{row};",
        ]
        lines += [f"neg.f32 %m{row}, %m{row};"]
        lines += [f"fma.rn.f32 {one}, {one}, %a, %m{row};" for one in scores]
        lines += [f"ex2.approx.ftz.f32 {one}, {one};" for one in scores]
        lines.append(f"add.f32 %n{row}, {scores[0]}, {scores[1]};")
        lines += [f"add.f32 %n{row}, %n{row}, {one};" for one in scores[2:]]
        lines += [f"fma.rn.f32 %sum{row}, %sum{row}, %t{row}, %n{row};"]
    lines += [f"mul.f32 %o{i}, %o{i}, %t{i // 2 % 2};" for i in range(OUTPUT // 2)]
    for i in range(0, held, 2):
        lines += [f"cvt.rn.bf16x2.f32 %u, %s{i}, %s{i + 1};", "xor.b32 %r1, %r1, %u;"]
    return "\n".join(lines)


def kernel(columns: int) -> Kernel:
    held = columns // 2
    setup = [f"mov.b32 %s{i}, %c{i % 32};" for i in range(held)]
    setup += [f"mov.b32 %o{i}, %c{i % 32};" for i in range(OUTPUT // 2)]
    setup += [f"mov.b32 %{name}{row}, %a;" for name in ("top", "sum") for row in range(2)] + ["mov.b32 %r1, %a;"]
    return timed_loop(
        f"softmax_{columns}", tile(columns), threads=32 * WARPS[-1], setup="\n".join(setup),
        declare=f".reg .b32 %s<{held}>, %o<{OUTPUT // 2}>, %m<2>, %t<2>, %n<2>, %top<2>, %sum<2>;",
        alive=("%r1", "%sum0", "%sum1", *(f"%o{i}" for i in range(OUTPUT // 2))),
        sass={"MUFU.EX2": held, "SHFL": 4, "FMNMX": held, "F2FP": held // 2},
    )  # fmt: skip


QUANTITIES = tuple(
    Quantity(f"tile_{columns}", "cycles", f"64 x {columns} scores a warp group, until all have done theirs", "warps")
    for columns in COLUMNS
)


def measure(bench: Bench) -> Samples:
    bench.fill(0x3F000000)
    return {
        f"tile_{columns}": {warps: bench.per_iteration(f"softmax_{columns}", warps) for warps in WARPS}
        for columns in COLUMNS
    }


TOPIC = Topic(
    "softmax",
    "a warp group's share of a softmax and the scaling of its accumulator, again and again, no products beside it",
    tuple((kernel(columns),) for columns in COLUMNS),
    QUANTITIES,
    measure,
)

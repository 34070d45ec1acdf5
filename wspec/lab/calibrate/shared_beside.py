"""Shared memory beside wgmma: what loads, stores and waits of other warp groups get, and cost the tensor core.

wgmma reads its operands from shared memory, 16 cycles for the 64 rows of A and a quarter of a cycle for each column of
B (`wgmma.bf16_ss_issue` at small N): all the bandwidth there is at N = 64 with A in shared memory, half of it with A in
registers. The block is that of `mixed`; its arithmetic warps load or store instead, 16 bytes a lane without conflicts,
or wait at an mbarrier. Copies beside them are of 16 KiB, and in quantities with `large` in their names of 64:
the copying warp's few instructions for each tile queue behind those of the warps that load and store, so that small
tiles come slowly then.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

from wspec.lab.calibrate import mixed
from wspec.lab.calibrate.bench import Bench
from wspec.lab.calibrate.ptx import GROUP, Kernel, entry, loop
from wspec.lab.calibrate.shared import LANE, LD, ST, STEP
from wspec.lab.calibrate.tensor_cores import A_BYTES, B_BYTES
from wspec.lab.calibrate.topic import Quantity, Samples, Topic

COUNT = 32  # accesses of a turn
REST = 100_000  # cycles between the batches of warp groups that hardly multiply
SHAPES = (("bf16_ss", 64), ("bf16_ss", 128), ("bf16_rs", 64), ("bf16_rs", 128))
LARGE = 64 * 1024  # bytes of a copy
WITH_COPIES = tuple((kind, n) for kind, n in SHAPES if n == 128)  # these leave something of shared memory to others
AWAY = 1 << 15  # bytes between the accesses of two turns: nothing can leave the loop


@dataclass(frozen=True, slots=True)
class Access:
    name: str
    what: str
    text: str
    sass: str


LOAD, STORE, WAIT = "load", "store", "wait"
ACCESSES = (
    Access(LOAD, "ld.shared.v4", LD, "LDS.128"),
    Access(STORE, "st.shared.v4", ST, "STS.128"),
    Access(
        WAIT, "a wait that need not wait", "mbarrier.try_wait.parity.shared.b64 %p6, [{at}], %par;", "SYNCS.PHASECHK"
    ),
)
MOVES = ACCESSES[:2]


def kernel(kind: str, n: int, access: Access, tile: int = mixed.TILE) -> Kernel:
    name = mixed.name_of(kind, n, _code(access, tile))
    multiplying = mixed.multiplying(mixed.KINDS_BY_NAME[kind], n)
    text = "\n".join((mixed.start(n), multiplying, _moving(access), mixed.copying(tile)))
    sass = {"HGMMA": mixed.COUNT, access.sass: COUNT}
    return Kernel(name, entry(name, mixed.PARAMS, text, threads=mixed.THREADS), mixed.THREADS, mixed.SHARED, sass)


def _code(access: Access, tile: int) -> str:
    """What the name of a kernel says of it."""
    return access.name if tile == mixed.TILE else f"{access.name}_{tile // 1024}k"


def _moving(access: Access) -> str:
    """Warp groups that load, store or wait until the products are done, and count their turns. One wait comes after
    the other, at an mbarrier that nobody uses."""
    begin = f"add.u32 %r1, %smem, {8 * (mixed.STAGES - 1)};" if access.name == WAIT else "mov.b32 %r1, 0;"
    lines = []
    for at in range(COUNT):
        if access.name == WAIT:
            lines += [access.text.format(at="%r1"), "selp.b32 %r1, %r1, %r2, %p6;"]
            continue
        quad = [f"%c{4 * (at % 4) + i}" for i in range(4)]
        lines.append(access.text.format(q="{" + ", ".join(quad) + "}", at=f"%u+{at * STEP}"))
        if access.name == LOAD:  # loads whose values nobody uses are dropped
            lines.append(f"lop3.b32 %r1, {quad[0]}, {quad[1]}, %r1, 0x96;")
            lines.append(f"lop3.b32 %r2, {quad[2]}, {quad[3]}, %r2, 0x96;")
    return f"""ARITHMETIC:
sub.u32 %t, %t, 2;
setp.ge.u32 %p0, %t, %mix;
@%p0 bra COUNTED;
sub.u32 %t, %thread, {2 * GROUP};
mad.lo.u32 %u, %t, {LANE}, %smem;
add.u32 %u, %u, {mixed.TILES};
add.u32 %flag, %u, {AWAY};
xor.b32 %flag, %flag, %u;
{chr(10).join(f"mov.b32 %c{i}, %a;" for i in range(16))}
{begin}
mov.b32 %r2, 0;
mov.u32 %par, 1;
{loop("TURN")}
xor.b32 %u, %u, %flag;
ld.volatile.shared.b32 %t, [%smem+{mixed.FLAG}];
{chr(10).join(lines)}
add.u32 %turns, %turns, 1;
setp.eq.u32 %p1, %t, 0;
@%p1 bra TURN;
xor.b32 %r1, %r1, %r2;
{mixed.turns_stored("%r1")}"""


def quantities() -> tuple[Quantity, ...]:
    found = []
    for kind in dict.fromkeys(kind for kind, _ in SHAPES):
        for access in ACCESSES:
            for warps in (4, 8):
                beside = f"{access.what} of {warps} warps beside {kind} m64nNk16 on two other warp groups"
                name, unit = ("wait", "cycles") if access.name == WAIT else (f"{access.name}_rate", "bytes/clk/SM")
                found.append(Quantity(f"{name}_{kind}_{warps}", unit, beside, "N"))
                interval = f"between the instructions of {kind} m64nNk16 beside {access.what} of {warps} warps"
                found.append(Quantity(f"{kind}_beside_{access.name}_{warps}", "cycles", interval, "N"))
    for access in MOVES:
        what = f"{access.what} beside copies of 16 KiB that all SMs share, no wgmma"
        found.append(Quantity(f"{access.name}_rate_copies", "bytes/clk/SM", what, "warps"))
        found.append(Quantity(f"copies_beside_{access.name}", "bytes/clk/SM", "copied then", "warps"))
    large = "copies of 64 KiB that all SMs share"
    found.append(Quantity("large_copies", "bytes/clk/SM", f"{large}, nothing beside them"))
    for access in MOVES:
        found.append(Quantity(f"{access.name}_rate_large", "bytes/clk/SM", f"{access.what} beside {large}", "warps"))
        found.append(Quantity(f"large_beside_{access.name}", "bytes/clk/SM", "copied then", "warps"))
    for kind in dict.fromkeys(kind for kind, _ in WITH_COPIES):
        what = f"between the instructions of {kind} m64nNk16 beside {large}"
        found.append(Quantity(f"{kind}_beside_large", "cycles", what, "N"))
        found.append(Quantity(f"large_beside_{kind}", "bytes/clk/SM", "copied then", "N"))
    for kind, access, warps in _all_three():
        what = f"{access.what} of {warps} warps beside {kind} m64nNk16 and {large}"
        found.append(Quantity(f"{access.name}_rate_large_{kind}_{warps}", "bytes/clk/SM", what, "N"))
        found.append(Quantity(f"large_beside_{kind}_{access.name}_{warps}", "bytes/clk/SM", "copied then", "N"))
        interval = f"between the instructions of {kind} m64nNk16 then"
        found.append(Quantity(f"{kind}_beside_large_{access.name}_{warps}", "cycles", interval, "N"))
    return tuple(found)


def _all_three() -> Iterator[tuple[str, Access, int]]:
    """(kind of wgmma, access, warps) of what is measured beside wgmma and copies at once."""
    kinds = dict.fromkeys(kind for kind, _ in WITH_COPIES)
    yield from ((kind, access, warps) for kind in kinds for access in MOVES for warps in (4, 8))


def measure(bench: Bench) -> Samples:
    bench.fill(0x3F003F00)
    source = bench.driver.allocate(max(A_BYTES + B_BYTES, mixed.OWN * LARGE))
    turns = range(1 + bench.repeats // 3)
    found: Samples = {quantity.name: {} for quantity in quantities()}
    for kind, n in SHAPES:
        for access in ACCESSES:
            for groups in (1, 2):
                beside = mixed.Beside("", "", groups=groups)
                code = (kind, n, access.name)
                samples = [mixed.launch(bench, code, source, beside, 0, 400) for _ in turns][1:]
                if access.name == WAIT:
                    found[f"wait_{kind}_{4 * groups}"][n] = [1 / (one.ping_pong * COUNT) for one in samples]
                else:
                    found[f"{access.name}_rate_{kind}_{4 * groups}"][n] = [_bytes(one, groups) for one in samples]
                found[f"{kind}_beside_{access.name}_{4 * groups}"][n] = [one.interval for one in samples]
    for access in MOVES:
        for groups in (1, 2):
            beside, code = mixed.Beside("", "", groups=groups, copies=1), (*SHAPES[0], access.name)
            samples = [mixed.launch(bench, code, source, beside, REST, 20) for _ in turns][1:]
            found[f"{access.name}_rate_copies"][4 * groups] = [_bytes(one, groups) for one in samples]
            found[f"copies_beside_{access.name}"][4 * groups] = [one.bytes for one in samples]
    _measure_large(bench, source, turns, found)
    return found


def _measure_large(bench: Bench, source: int, turns: range, found: Samples) -> None:
    """Copies of 64 KiB: alone, beside loads and stores, beside wgmma, and beside both."""

    def runs(kind: str, n: int, access: Access, groups: int, alone: bool = False) -> list[mixed.Run]:
        beside, code = mixed.Beside("", "", groups=groups, copies=1), (kind, n, _code(access, LARGE))
        pause, count = (REST, 20) if alone else (0, 400)
        return [mixed.launch(bench, code, source, beside, pause, count, LARGE) for _ in turns][1:]

    kind, n = WITH_COPIES[0]
    found["large_copies"][0] = [one.bytes for one in runs(kind, n, MOVES[0], 0, alone=True)]
    for access, groups in itertools.product(MOVES, (1, 2)):
        samples = runs(kind, n, access, groups, alone=True)
        found[f"{access.name}_rate_large"][4 * groups] = [_bytes(one, groups) for one in samples]
        found[f"large_beside_{access.name}"][4 * groups] = [one.bytes for one in samples]
    for kind, n in WITH_COPIES:
        samples = runs(kind, n, MOVES[0], 0)
        found[f"{kind}_beside_large"][n] = [one.interval for one in samples]
        found[f"large_beside_{kind}"][n] = [one.bytes for one in samples]
        for access, groups in itertools.product(MOVES, (1, 2)):
            samples = runs(kind, n, access, groups)
            found[f"{access.name}_rate_large_{kind}_{4 * groups}"][n] = [_bytes(one, groups) for one in samples]
            found[f"large_beside_{kind}_{access.name}_{4 * groups}"][n] = [one.bytes for one in samples]
            found[f"{kind}_beside_large_{access.name}_{4 * groups}"][n] = [one.interval for one in samples]


def _bytes(run: mixed.Run, groups: int) -> float:
    """Moved a cycle by all warp groups that load or store."""
    return groups * run.ping_pong * COUNT * GROUP * LANE


TOPIC = Topic(
    "shared_beside",
    "loads and stores of shared memory beside two warp groups of wgmma in batches of 16, or copies, on every SM",
    (
        *((kernel(kind, n, access),) for kind, n in SHAPES for access in ACCESSES),
        *((kernel(kind, n, access, LARGE),) for kind, n in WITH_COPIES for access in MOVES),
    ),
    quantities(),
    measure,
)

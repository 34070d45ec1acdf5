"""Warps that keep the SM busy while others are measured: what a handshake costs beside real work."""

from __future__ import annotations

from wspec.lab.calibrate.ptx import GROUP, loop, wait
from wspec.lab.calibrate.tensor_cores import KINDS, accumulators, descriptors, wgmma

FIRST_WARP = 8
"""Warps from here on are the background; there are 8 of them."""
THREADS = 512
FLAG, IDLE_BARRIER = 512, 520
"""Offsets in shared memory: a word that is 1 once the background may end, and an mbarrier that completes then."""
TILES = 1024
"""Offset of what wgmma reads."""
SHARED = TILES + 64 * 128 + 256 * 128
BACKGROUNDS = {
    "idle": "no other warp on the SM",
    "ffma": "beside 8 warps of FFMA",
    "ex2": "beside 8 warps of MUFU.EX2",
    "spin": "beside 8 warps that wait on another mbarrier",
    "wgmma": "beside two warp groups of wgmma m64n128k16",
}
DECLARE = ".reg .b32 %d<64>;"


def code(kind: str) -> str:
    """What warps FIRST_WARP and on do until the flag is set; they return from it.

    The warps of a group that runs wgmma must agree when to end: they do by the group's own barrier (4 or 5).
    """
    poll = f"""ld.volatile.shared.b32 %flag, [%smem+{FLAG}];
setp.eq.u32 %p13, %flag, 0;
@%p13 bra BACKGROUND;"""
    if kind == "spin":
        return f"mov.u32 %t, 0;\nadd.u32 %u, %smem, {IDLE_BARRIER};\n{wait('%u', '%t')}\nret;"
    if kind == "wgmma":
        bf16 = next(known for known in KINDS if known.name == "bf16_ss")
        steps = "\n".join(wgmma(bf16, 128, step) for step in range(4))
        return f"""add.u32 %r30, %smem, {TILES};
{descriptors(bf16).replace("%smem", "%r30")}
{accumulators(128)}
shr.u32 %u, %warp, 2;
add.u32 %u, %u, 2;
{loop("BACKGROUND")}
wgmma.fence.sync.aligned;
{steps}
wgmma.commit_group.sync.aligned;
wgmma.wait_group.sync.aligned 0;
ld.volatile.shared.b32 %flag, [%smem+{FLAG}];
setp.ne.u32 %p13, %flag, 0;
bar.red.or.pred %p12, %u, {GROUP}, %p13;
@!%p12 bra BACKGROUND;
{_keep("%d0")}"""
    texts = {"ffma": "fma.rn.f32 {0}, {0}, %a, %b;", "ex2": "ex2.approx.ftz.f32 {0}, {0};"}
    body = "\n".join(texts[kind].format(f"%c{i % 8}") for i in range(64))
    sums = "\n".join(f"xor.b32 %c0, %c0, %c{i};" for i in range(1, 8))
    return f"{loop('BACKGROUND')}\n{body}\n{poll}\n{sums}\n{_keep('%c0')}"


def end() -> str:
    """By one thread: let the background end."""
    return f"""mov.u32 %t, 1;
st.volatile.shared.b32 [%smem+{FLAG}], %t;
mbarrier.arrive.shared::cta.b64 _, [%smem+{IDLE_BARRIER}];"""


def init() -> str:
    """By one thread, before the block's first bar.sync."""
    return f"""mov.u32 %t, 0;
st.volatile.shared.b32 [%smem+{FLAG}], %t;
mbarrier.init.shared::cta.b64 [%smem+{IDLE_BARRIER}], 1;"""


def sass(kind: str) -> dict[str, int]:
    """What the background's binary holds."""
    return {"idle": {}, "ffma": {"FFMA": 64}, "ex2": {"MUFU.EX2": 64}, "spin": {}, "wgmma": {"HGMMA": 4}}[kind]


def _keep(register: str) -> str:
    return f"""setp.eq.u32 %p13, %reps, 0xffffffff;
@%p13 st.global.b32 [%out], {register};
ret;"""

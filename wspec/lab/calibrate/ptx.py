"""Text of PTX kernels: the frame that reads the clock, and pieces that several topics use."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

HEADER = """.version 8.7
.target sm_90a
.address_size 64
.extern .shared .align 1024 .b8 smem[];
"""
WARP = 32
GROUP = 128
"""Threads of a warp group."""
INPUT_ROW = 4 * 512
"""Bytes of the input that the threads of a block read for one register."""


@dataclass(frozen=True, slots=True)
class Kernel:
    """One entry of a module.

    `sass`: instructions, by the start of their names (`A|B`: either), and how many of them its binary has at least.
    """

    name: str
    text: str
    threads: int  # at most
    shared: int = 0  # bytes of dynamic shared memory
    sass: Mapping[str, int] = field(default_factory=dict)


def module(kernels: Iterable[Kernel]) -> str:
    """One PTX module of all of them."""
    return HEADER + "\n".join(kernel.text for kernel in kernels)


def entry(name: str, params: str, body: str, *, threads: int, registers: int = 0) -> str:
    """One entry; `registers` caps them at launch, as setmaxnreg needs."""
    cap = f".maxnreg {registers}\n" if registers else ".minnctapersm 1\n"
    return f".visible .entry {name}({params})\n.maxntid {threads}, 1, 1\n{cap}{{\n{body}\n}}\n"


REGISTERS = """.reg .pred %p<16>;
.reg .b32 %r<32>;
.reg .b32 %c<32>;
.reg .b32 %a, %b, %t, %u, %thread, %warp, %lane, %smem, %reps, %flag, %par;
.reg .b64 %rd<16>;
.reg .b64 %out, %in, %start, %end;"""
IDS = """mov.u32 %thread, %tid.x;
shr.u32 %warp, %thread, 5;
and.b32 %lane, %thread, 31;
mov.u32 %smem, smem;"""
TIMED_PARAMS = ".param .u64 p_out, .param .u64 p_in, .param .u32 p_reps"
LOAD_TIMED_PARAMS = """ld.param.u64 %out, [p_out];
ld.param.u64 %in, [p_in];
ld.param.u32 %reps, [p_reps];"""


def store_times() -> str:
    """Lane 0 of every warp stores the clocks in %start and %end at out[16 (block warps + warp)]."""
    return """{ .reg .b32 %w, %n, %k; .reg .b64 %at; .reg .pred %p;
mov.u32 %n, %ntid.x;
shr.u32 %n, %n, 5;
mov.u32 %k, %ctaid.x;
mad.lo.u32 %w, %k, %n, %warp;
mad.wide.u32 %at, %w, 16, %out;
setp.eq.u32 %p, %lane, 0;
@%p st.global.v2.b64 [%at], {%start, %end};
}"""


def loop(label: str) -> str:
    """The head of a loop that is not to be unrolled."""
    return f'{label}:\n.pragma "nounroll";'


def keep(registers: Iterable[str]) -> str:
    """A use of the registers that never happens and that the assembler cannot know not to."""
    names = list(registers)
    xors = "\n".join(f"xor.b32 %t, %t, {name};" for name in names[1:])
    return f"""mov.b32 %t, {names[0]};
{xors}
setp.eq.u32 %p15, %reps, 0xffffffff;
@%p15 st.global.b32 [%out], %t;"""


def timed_loop(
    name: str,
    body: str,
    *,
    threads: int,
    setup: str = "",
    alive: Iterable[str] = ("%r0",),
    declare: str = "",
    shared: int = 0,
    sass: Mapping[str, int] | None = None,
) -> Kernel:
    """`body`, p_reps times between two clock reads, by every warp of the block.

    %a and %b are words 0 and 1 of p_in; %c0 ... %c31 are words of it that differ, for all the assembler knows, from
    thread to thread (it removes shuffles of what is the same in all). `alive` must not be optimized away.
    """
    text = f"""{REGISTERS}
{declare}
{LOAD_TIMED_PARAMS}
{IDS}
ld.global.b32 %a, [%in];
ld.global.b32 %b, [%in+4];
mad.wide.u32 %rd0, %thread, 4, %in;
{chr(10).join(f"ld.global.b32 %c{i}, [%rd0+{INPUT_ROW * (i + 1)}];" for i in range(32))}
mov.b32 %r0, %c0;
{setup}
bar.sync 0;
mov.u64 %start, %clock64;
mov.u32 %r31, %reps;
{loop("LOOP")}
{body}
sub.u32 %r31, %r31, 1;
setp.ne.u32 %p14, %r31, 0;
@%p14 bra LOOP;
mov.u64 %end, %clock64;
{keep(alive)}
{store_times()}
ret;"""
    return Kernel(name, entry(name, TIMED_PARAMS, text, threads=threads), threads, shared, sass or {})


def wait(barrier: str, parity: str) -> str:
    """Wait until the phase of `parity` of an mbarrier has ended, as Triton emits it."""
    return f"""{{ .reg .pred %done;
WAIT: mbarrier.try_wait.parity.shared.b64 %done, [{barrier}], {parity};
@!%done bra.uni WAIT; }}"""


def arrive(barrier: str, predicate: str = "") -> str:
    return f"{'@' + predicate if predicate else ''} mbarrier.arrive.shared::cta.b64 _, [{barrier}];"

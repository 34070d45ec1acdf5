"""Blocks of a kernel that are launched while the kernel before it still runs, and wait for its end.

Between two kernels of a stream a GPU idles for a microsecond or more: the second one is launched when the first has
ended. CUDA's programmatic stream serialization lets blocks of the second one start as soon as those of the first have
said that they may, and an SM has room: their warps begin, their barriers are made, and a thread then waits until all
that came before is done and to be seen.

    @leader mbarrier.init [full], 1;
    griddepcontrol.wait;                 // before it no block reads or writes memory that another kernel may write
    griddepcontrol.launch_dependents;    // the kernel behind this one may start its blocks
    barrier.sync 1;                      // the other tasks begin

Nothing is assumed of the kernels around: one that knows nothing of this is waited for to its end, and waits itself.
Behind a copy, or behind work of another stream, a launch waits as ever. It is safe to say so early that the next kernel
may start, since one that is launched in this way must wait as well, and every block here is at work by then.
"""

from __future__ import annotations

import re

from wspec.ir.assembly import MEMORY_FROM_HERE

WAIT = "griddepcontrol.wait;"
_BOTH = f"\t{WAIT}\n\tgriddepcontrol.launch_dependents;\n"
_MARK = re.compile(rf"^[^\n]*// {MEMORY_FROM_HERE}\n", re.MULTILINE)
_ENTRY = re.compile(r"^\.visible \.entry ", re.MULTILINE)
_MADE = re.compile(r"^\s*@%?\w+\s+mbarrier\.init\.[^\n]*\n\s*// end inline asm\n", re.MULTILINE)
_TASKS_BEGIN = re.compile(r"^\s*barrier\.sync\s+1;", re.MULTILINE)
# What may touch the GPU's memory: accesses that name no other space, copies, prefetches, calls.
_ACCESS = re.compile(
    r"^\s*(@!?%?\w+\s+)?((ld|st|atom|red)\.(?!(\w+\.)*(shared|param|local))|cp\.|multimem|prefetch|tensormap|call\b)",
    re.MULTILINE,
)


def started_early(ptx: str) -> str:
    """The PTX of a kernel of several tasks, with the wait behind the making of its barriers and before its tasks begin.

    Where the tasks are marked (passes/read_tables_early.py), each waits at its mark instead. As it was, where the text
    between is not as expected. The tasks' own warps touch nothing before they are told to begin.
    """
    entry = _ENTRY.search(ptx)
    if entry is None or _ENTRY.search(ptx, entry.end()) is not None:
        return ptx
    made = list(_MADE.finditer(ptx))
    if not made:
        return ptx
    at = made[-1].end()
    begins = _TASKS_BEGIN.search(ptx, made[0].end())
    straight = "\n$L__BB" not in ptx[made[0].start() : at]
    if begins is None or begins.start() < at or not straight or _ACCESS.search(ptx, entry.end(), at):
        return ptx
    if _MARK.search(ptx, begins.end()) is not None:
        return _MARK.sub(_BOTH, ptx)
    return ptx[:at] + _BOTH + ptx[at:]

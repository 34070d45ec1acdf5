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

from collections.abc import Sequence

from wspec.bridge.ptx.code import Lines, line_at
from wspec.ir.assembly import MEMORY_FROM_HERE, WAIT
from wspec.ptx.effects import ACCESSES, space
from wspec.ptx.operands import number_of
from wspec.ptx.syntax import Instruction, Label, Module

_BOTH = f"\t{WAIT}\n\tgriddepcontrol.launch_dependents;\n"
_MARK = f"// {MEMORY_FROM_HERE}"
_ASSEMBLY_ENDS = "// end inline asm"


def start_early(module: Module, body: Sequence[Instruction | Label], lines: Lines) -> None:
    """Put the wait into the lines of a kernel of several tasks: behind the making of its barriers and before its tasks
    begin.

    Where the tasks are marked (passes/read_tables_early.py), each waits at its mark instead. Nothing is done where the
    text between is not as expected. The tasks' own warps touch nothing before they are told to begin. Raises PtxError.
    """
    made = [at for at, one in enumerate(body) if _makes(one)]
    begins = next((at for at in range(made[0], len(body)) if _tasks_begin(body[at])), None) if made else None
    if begins is None or begins < made[-1] or any(isinstance(one, Label) for one in body[made[0] : made[-1]]):
        return
    if any(map(_may_access, body[: made[-1]])):
        return
    marks = [one.start for one in module.comments if one.text == _MARK and one.start > body[begins].start]
    for start, end in [line_at(module.text, at) for at in marks] or [_behind(module, body[made[-1]])]:
        lines.change(start, end, _BOTH)


def _makes(one: Instruction | Label) -> bool:
    """Does one thread make an mbarrier here?"""
    made = isinstance(one, Instruction) and one.opcode.startswith("mbarrier.init.")
    return made and isinstance(one, Instruction) and bool(one.guard)


def _tasks_begin(one: Instruction | Label) -> bool:
    return isinstance(one, Instruction) and one.opcode == "barrier.sync" and number_of(one.operands[0]) == 1


def _may_access(one: Instruction | Label) -> bool:
    """May it touch the GPU's memory? Accesses that name no other space, copies, prefetches, calls."""
    if not isinstance(one, Instruction):
        return False
    if one.name in ACCESSES:
        return space(one) not in ("shared", "param", "local")
    return one.name in ("cp", "multimem", "prefetch", "tensormap", "call")


def _behind(module: Module, one: Instruction | Label) -> tuple[int, int]:
    """The place behind the assembly that an instruction is in."""
    at = line_at(module.text, one.start)[1]
    comments = (comment for comment in module.comments if comment.start >= at)
    following = next(comments, None)
    if following is not None and following.text == _ASSEMBLY_ENDS and not module.text[at : following.start].strip():
        at = line_at(module.text, following.start)[1]
    return at, at

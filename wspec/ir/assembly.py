"""Inline assembly that passes write and that others have to know: what they run, or put in its place."""

AWAIT_WORD = (
    "{ .reg .pred p; WAIT: ld.acquire.gpu.global.b32 $0, [$1]; setp.eq.s32 p, $0, 0; "
    "vote.sync.any.pred p, p, 0xffffffff; @p bra.uni WAIT; mov.b32 $0, 0; st.relaxed.gpu.global.b32 [$1], $0; }"
)
"""Wait until a word of global memory that another block sets is not zero, and clear it; a result, a pointer.

A warp goes on when the words of all its lanes are set.
"""

SET_WORD = "{ mov.b32 $0, 1; st.release.gpu.global.b32 [$1], $0; }"
"""Set such a word, when all that the thread has stored before can be seen; a result, a pointer."""

WAIT = "griddepcontrol.wait;"
"""Wait for the end of the kernels before this one, in one that may start while they run."""

MEMORY_FROM_HERE = "wspec: from here on memory is used that other kernels may have written"
"""The comment that marks such a place in a task, in an instruction that does nothing."""

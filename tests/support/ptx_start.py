"""How the PTX of a kernel of tasks begins: its first warps go one way, the others another, and all meet twice."""

from __future__ import annotations


def start(warps: int, threads: int, other: str = "") -> str:
    """Up to where the first `warps` of so many threads are a task, which goes on; `other`: what the others do."""
    return f"""
.visible .entry kernel(
	.param .u64 kernel_param_0
)
.reqntid {threads}
{{
	.reg .pred %p<9>;
	mov.u32 	%r1, %tid.x;
	shr.u32 	%r2, %r1, 5;
	setp.lt.u32 	%p1, %r2, {warps};
	@%p1 bra 	$L__BB0_9;
	barrier.sync 	1;
	barrier.sync 	1;
{other}	ret;
$L__BB0_9:
	ld.param.b64 	%rd1, [kernel_param_0];
	barrier.sync 	1;
	barrier.sync 	1;
"""

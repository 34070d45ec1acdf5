"""Functions that a kernel calls: they are no kernels of their own, and what a call does is not followed."""

from __future__ import annotations

from tests.check.script import kernel
from wspec.check import check
from wspec.ir import print_module, read

CALLER = """
def kernel(n):
    done = barriers(1)
    with specialize():
        with task(4):
            wait(done[0], 0)
        with task(4):
            arrive(done[0])
"""
HELPER = """
"tt.func"() <{function_type = () -> (), sym_name = "helper", sym_visibility = "private"}> ({
  %c = "arith.constant"() <{value = 0 : i32}> : () -> i32
  %x = "tt.elementwise_inline_asm"(%c) <{asm_string = "bar.sync 8, 256;", constraints = "=r,r",
    packed_element = 1 : i32, pure = false}> : (i32) -> i32
  "tt.return"() : () -> ()
}) : () -> ()
"""
RETURN = '"ttg.warp_return"() : () -> ()'
CALL = f'"tt.call"() <{{callee = @helper}}> : () -> ()\n{RETURN}'


def test_a_helper_is_not_checked_as_if_it_were_launched() -> None:
    """Alone it would wait for 128 threads that never come; whether they do, is the callers' business."""
    text = print_module(kernel(CALLER))
    at = text.index('"tt.func"')
    report = check(read(text[:at] + HELPER + text[at:].replace(RETURN, CALL)))
    assert [(one.kind, one.code) for one in report.findings] == [("undecided", "unknown-operation")]

"""The reasons for which mutants that are accepted are said to be equivalent."""

from __future__ import annotations

from tests.ptx.judge import products_under_way, waits_for_no_product, waits_for_the_same
from tests.ptx.mutants import Mutant, mutants
from tests.support.shipped import offline
from wspec import bridge
from wspec.bridge.backend import emit
from wspec.ptx.parser import read
from wspec.ptx.syntax import Module

MATMUL = ("matmul.py:matmul_descriptor_kernel", "bf16")
OWN = frozenset((0, *range(2, 16)))

PRODUCTS = """.version 8.7
.target sm_90a
.address_size 64
.visible .entry kernel(.param .u32 kernel_param_0)
.reqntid 128
{
	.reg .pred %p<9>;
	@%p1 bra 	$L__BB0_2;
$L__BB0_1:
	wgmma.commit_group.sync.aligned;
	wgmma.wait_group.sync.aligned 1;
	@%p2 bra 	$L__BB0_1;
$L__BB0_2:
	wgmma.wait_group.sync.aligned 0;
	wgmma.wait_group.sync.aligned 0;
	ret;
}
"""


def test_products_that_may_be_under_way() -> None:
    """Two in the loop's second round, one behind it although there is a way past it, and none behind the wait."""
    module = read(PRODUCTS)
    assert list(products_under_way(module).values()) == [2, 1, 0]
    dropped = [one for one in mutants(module) if one.operator == "drop" and "wait_group" in one.what]
    assert [waits_for_no_product(one, module) for one in dropped] == [False, False, True]


def emitted() -> Module:
    """A product whose two rings have barriers of their own."""
    one = offline(*MATMUL, "--shared-barriers", "0")
    text = one.compiler.judge(bridge.lower(one.source)[1]).text
    assert text is not None
    return read(emit(text, one.source).ptx)


def waits(module: Module) -> list[Mutant]:
    return [one for one in mutants(module) if one.operator == "register" and one.what.startswith("mbarrier.try_wait")]


def test_another_register_of_a_wait() -> None:
    """Of two rings of one depth that go round together a phase may stand for the other, but never a place."""
    module = emitted()
    found = [waits_for_the_same(one, module, OWN) for one in waits(module)]
    assert found.count(True) == 1 and len(found) > 10

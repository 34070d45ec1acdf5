"""Every operation has somebody who runs it; errors say where; what is printed and asserted."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from tests.execute.one_op import context, operation, run_all
from wspec.execute.errors import ExecutionError
from wspec.execute.evaluate import evaluate, handles, prepare
from wspec.ir import read
from wspec.ir.loc import UNKNOWN, FileLoc, file_loc
from wspec.ir.ops import known_names
from wspec.ir.types import unescaped

CONTROL = """
builtin.module cf.br cf.cond_br cf.switch llvm.unreachable scf.condition scf.execute_region scf.for scf.if
scf.index_switch scf.while scf.yield tt.func tt.return ttg.mask.return ttg.warp_return ttg.warp_specialize
ttg.warp_specialize.partitions ttg.warp_yield
"""
ENDS_OF_REGIONS = "tt.reduce.return tt.scan.return tt.map_elementwise.return"
SHARED = """
ttg.local_alloc ttg.local_dealloc ttg.local_load ttg.local_store ttg.memdesc_index ttg.memdesc_reinterpret
ttg.memdesc_reshape ttg.memdesc_subslice ttg.memdesc_subview ttg.memdesc_trans
"""
BARRIERS = """
gpu.barrier ttg.barrier ttg.local_barrier ttng.arrive_barrier ttng.barrier_expect ttng.cluster_arrive
ttng.cluster_wait ttng.fence ttng.fence_async_shared ttng.init_barrier ttng.inval_barrier ttng.wait_barrier
"""
ASYNCHRONOUS = """
ttg.async_commit_group ttg.async_copy_global_to_local ttg.async_wait ttng.async_copy_mbarrier_arrive
ttng.async_tma_copy_global_to_local ttng.async_tma_copy_local_to_global ttng.async_tma_gather ttng.async_tma_reduce
ttng.async_tma_scatter ttng.async_tma_store_wait ttng.warp_group_dot ttng.warp_group_dot_wait
"""
OURS = "wspec.member"  # gone before a module is anybody's to run
GROUPS = (CONTROL, ENDS_OF_REGIONS, SHARED, BARRIERS, ASYNCHRONOUS, OURS)
ELSEWHERE = {name for group in GROUPS for name in group.split()}


def test_every_known_operation_has_one_place() -> None:
    names = set(known_names())
    here = {name for name in names if handles(name)}
    assert here | ELSEWHERE == names, "say who runs it"
    assert here & ELSEWHERE == set()


def test_unknown_operations() -> None:
    assert not handles("t.strange")
    op = operation("t.strange", ["i32"], ["i32"])
    op.location = FileLoc("kernel.py", 12, 4)
    with pytest.raises(ExecutionError, match=r"kernel\.py:12.*does not know: t\.strange") as raised:
        evaluate(op, (1,), context())
    assert file_loc(raised.value.location) == op.location


def test_errors_say_where() -> None:
    op = (
        read('%p = "t.make"() : () -> !tt.ptr<f32>\n%x = "tt.load"(%p) : (!tt.ptr<f32>) -> f32')
        .regions[0]
        .block.ops[-1]
    )
    op.location = FileLoc("kernel.py", 3, 8)
    with pytest.raises(ExecutionError, match=r"kernel\.py:3:9: error: an access of 4 bytes at address 0x10"):
        evaluate(op, (16,), context())


def test_errors_gain_location_and_task() -> None:
    bare, place = ExecutionError("wrong", note="look"), FileLoc("a.py", 1, 2)
    assert bare.location == UNKNOWN and "task" not in str(bare)
    full = bare.placed(place, "producer").placed(FileLoc("b.py", 9, 9), "consumer")
    assert (full.message, full.location, full.task, full.note) == ("wrong", place, "producer", "look")
    assert str(full) == "a.py:1:3: error: wrong (in task producer) [execution-error]\nnote: look"


def test_operations_are_decoded_once() -> None:
    here, op = context(), operation("tt.get_program_id", [], ["i32"], "axis = 1 : i32")
    assert evaluate(op, (), here) == (0,) and list(here.prepared) == [op]
    op.properties.clear()
    assert evaluate(op, (), replace(here, program=(1, 2, 3))) == (2,), "contexts share what was decoded"
    assert prepare(op)((), replace(here, program=(1, 2, 3))) == (1,)


def test_printing() -> None:
    here = replace(context(), program=(1, 0, 0))
    props = 'hex = false, isSigned = array<i32: 1, 0, 1>, prefix = " x: "'
    items = (torch.tensor([1, -2], dtype=torch.int32), -1, torch.tensor(0.5))
    assert run_all("tt.print", ["tensor<2xi32>", "i32", "f32"], [], *items, props=props, within=here) == ()
    props = 'hex = true, isSigned = array<i32: 1>, prefix = "mask"'
    run_all("tt.print", ["i32"], [], -1, props=props, within=here)
    assert here.printed == ["pid (1, 0, 0) x: [1, -2], 4294967295, 0.5", "pid (1, 0, 0) mask0xffffffff"]


def test_escapes() -> None:
    assert unescaped(r"a \22b\22 \\ 100% \0A") == 'a "b" \\ 100% \n'
    assert unescaped(r"gr\C3\B6\C3\9Fer?") == "größer?"
    assert unescaped("größer") == "größer"


@pytest.mark.parametrize("name, key", [("tt.assert", "message"), ("cf.assert", "msg")])
def test_assertions(name: str, key: str) -> None:
    here, props = replace(context(), program=(4, 0, 0)), rf'{key} = "x is\09small"'
    run_all(name, ["i1"], [], 1, props=props, within=here)
    run_all(name, ["tensor<2xi1>"], [], torch.tensor([True, True]), props=props, within=here)
    for type, item in (("i1", 0), ("tensor<2xi1>", torch.tensor([True, False]))):
        with pytest.raises(ExecutionError, match=r"assertion failed in program \(4, 0, 0\): x is\tsmall"):
            run_all(name, [type], [], item, props=props, within=here)


def test_assumptions_are_checked() -> None:
    assert run_all("llvm.intr.assume", ["i1"], [], 1) == ()
    with pytest.raises(ExecutionError, match="assumes does not hold"):
        run_all("llvm.intr.assume", ["i1"], [], 0)

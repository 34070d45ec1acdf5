"""How channels are filled: what follows from it for the plan, and which loads through pointers may be copied so."""

from __future__ import annotations

import pytest

from tests.support.cases import odd_cases
from tests.support.compiling import Case, outcome, plain_module
from wspec.ir.core import Operation
from wspec.ir.types import ArrayAttr, DenseAttr, DictAttr, TensorType, i32
from wspec.kernels.matmul import matmul_pointer_kernel
from wspec.plan.contiguity import Runs, neighbours
from wspec.plan.fill import Fill, fill_of, filling_registers, filling_warps
from wspec.plan.plan import Plan
from wspec.plan.pointer_loads import hindrance, mask_of, piece_bytes

ODD = {case.name: case for case in odd_cases()}
SIZES = dict.fromkeys(("m", "n", "k", "stride_am", "stride_bk", "stride_cm"), "i32:16")
STRIDES = {"stride_ak": "i32:1", "stride_bn": "i32:1", "stride_cn": "i32:1"}
POINTERS = dict.fromkeys(("a_ptr", "b_ptr", "c_ptr"), "*bf16:16")
TILE = {"BLOCK_M": 128, "BLOCK_N": 128, "BLOCK_K": 64, "GROUP_M": 8}
MASKED = Case("masked", matmul_pointer_kernel, {**POINTERS, **SIZES, **STRIDES}, TILE)


def loads(case: Case) -> list[Operation]:
    """The loads of whole tiles in the case's loop, in program order."""
    every = [op for op in plain_module(case).walk() if op.name == "tt.load"]
    return [op for op in every if isinstance(op.result.type, TensorType) and len(op.result.type.shape) == 2]


def made(case: Case, **options: object) -> Plan:
    plan = outcome(case, **options).plan
    assert plan is not None
    return plan


def test_facts_of_each_kind() -> None:
    """What the passes ask: one arrival for a box or a value, one for each thread that copies."""
    assert [fill.arrivals(4) for fill in Fill] == [1, 128, 1]
    assert [fill.facts.reader_fences for fill in Fill] == [False, True, False]
    assert [fill.facts.release_fenced for fill in Fill] == [True, False, False]
    names = ("tt.descriptor_load", "tt.load", "arith.addf")
    assert [fill_of(Operation(name)) for name in names] == [Fill.TMA, Fill.CP_ASYNC, None]


def test_what_the_producer_needs() -> None:
    assert filling_warps([Fill.TMA], 1) == 1 and filling_warps([Fill.TMA, Fill.CP_ASYNC], 1) == 4
    assert filling_registers([], 4, 24) == 24, "TMA takes what is asked for"
    assert filling_registers([16384], 4, 24) == 56, "eight pieces of a thread: their addresses, and the rest"
    assert filling_registers([16384, 32768], 4, 24) == 88
    assert filling_registers([16384], 4, 96) == 96


def test_a_product_through_pointers() -> None:
    """Both operands are copied by a producer of a warp group; one task of all the kernel's warps multiplies."""
    plan = made(ODD["pointers"])
    assert [(channel.name, channel.fill) for channel in plan.channels] == [("a", Fill.CP_ASYNC), ("b", Fill.CP_ASYNC)]
    assert (plan.producer.warps, plan.consumer.warps, plan.consumer.replicas) == (4, 8, 1)
    assert all(plan.fill_arrivals(channel) == 128 for channel in plan.channels)
    assert plan.prediction.bound == "copies by threads"


def test_a_product_with_one_operand_through_pointers() -> None:
    """Each tile comes the way it can: A by cp.async, B by TMA, in rings of their own."""
    plan = made(ODD["one_pointer"])
    assert [channel.fill for channel in plan.channels] == [Fill.CP_ASYNC, Fill.TMA]
    assert [plan.fill_arrivals(channel) for channel in plan.channels] == [128, 1]


def test_the_gate_says_what_it_expects() -> None:
    """Left alone, at the load, with the cycles of an iteration of both."""
    (remark,) = outcome(ODD["pointers_gated"]).remarks
    plan = made(ODD["pointers"])
    ours, plain = plan.prediction.iteration_cycles, plan.prediction.plain_iteration_cycles
    assert plain < 0.9 * ours, "on the card 0.64 to 0.87 of the plain kernel's speed: docs/results/products.md"
    assert remark.code == "gate-slower" and "a and b through pointers" in remark.message
    assert f"{ours:.0f} cycles" in remark.message and f"{plain:.0f} as it is" in remark.message


@pytest.mark.parametrize(
    ("options", "code", "why"),
    [
        ({"consumers": 2}, "not-partitionable", "cp.async brings a tile in one piece"),
        ({"chain": "on"}, "no-chain", "loaded through pointers"),
        ({"persistent": True, "coarsening": 2, "consumers": 2}, "not-persistent", "cannot be worked on by a team"),
    ],
)
def test_what_is_asked_for_in_vain(options: dict[str, object], code: str, why: str) -> None:
    (remark,) = outcome(ODD["pointers"], **options).remarks
    assert remark.code == code and why in remark.message


def test_a_producer_with_more_addresses_than_registers(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is left alone with the reason, and no option that nobody has set is wrong."""
    monkeypatch.setattr("wspec.plan.fill.PIECE_REGISTERS", 20)
    (remark,) = outcome(ODD["pointers"]).remarks
    assert (
        remark.code == "registers"
        and "the producer would need" in remark.message
        and "through pointers" in remark.message
    )


# ------------------------------------------------------------------------------------------------- legality


def test_pieces_of_sixteen_bytes() -> None:
    for load in loads(ODD["pointers"]):
        assert hindrance(load) == "" and piece_bytes(load) == 16 and mask_of(load) is None


def test_unaligned_rows_have_no_pieces() -> None:
    """Rows of k elements, k any number: neighbours lie side by side, but nobody knows on how many bytes."""
    a, _ = loads(ODD["pointers_unaligned"])
    assert piece_bytes(a) == 2 and "2 bytes side by side at most, of which cp.async takes 4 or more" in hindrance(a)


def aligned_to(load: Operation, argument: int, bytes: int) -> None:
    """Let the launcher have seen less of an argument of the load's kernel."""
    function = next(op for op in load.ancestors() if op.name == "tt.func")
    given = function.properties["arg_attrs"]
    assert isinstance(given, ArrayAttr)
    items = list(given.items)
    items[argument] = DictAttr((("tt.divisibility", i32(bytes)),))
    function.properties["arg_attrs"] = ArrayAttr(tuple(items))


@pytest.mark.parametrize(("bytes", "size"), [(16, 16), (8, 8), (4, 4), (2, 2), (1, 1)])
def test_a_piece_is_as_wide_as_its_pointer_is_aligned(bytes: int, size: int) -> None:
    """What is aligned to no element has none in a piece; a load of one element is what remains."""
    a, _ = loads(ODD["pointers"])
    aligned_to(a, 0, bytes)
    assert piece_bytes(a) == max(2, size) and bool(hindrance(a)) == (size < 4)


@pytest.mark.parametrize(("multiple", "size"), [(16, 16), (4, 8), (2, 4), (1, 2)])
def test_a_piece_is_as_wide_as_its_mask_is_uniform(multiple: int, size: int) -> None:
    """Columns below k are wanted: of a piece all or none, where k is a multiple of its elements."""
    a, b = loads(MASKED)
    aligned_to(a, 5, multiple)
    assert mask_of(a) is not None and piece_bytes(a) == size
    assert piece_bytes(b) == 16, "the mask of B's rows is that of a whole row"


def test_what_is_put_in_place_must_be_zero() -> None:
    a, _ = loads(MASKED)
    assert hindrance(a) == ""
    constant = a.operands[2].op
    assert constant is not None
    constant.properties["value"] = DenseAttr("1.000000e+00", a.result.type)
    assert "is not zero" in hindrance(a)


def test_a_tile_that_is_computed_with_is_not_copied() -> None:
    """Its threads read it into registers, which a wait would only put off."""
    a, _ = loads(ODD["pointers"])
    assert a.parent is not None
    a.parent.insert(a.parent.ops.index(a) + 1, Operation.create("arith.negf", [a.result], [a.result.type]))
    assert "the tensor core does not read it as it is loaded" in hindrance(a)


def test_neighbours_lie_along_rows() -> None:
    a, _ = loads(ODD["pointers"])
    assert neighbours(a.operands[0], None, 1) == 8 and neighbours(a.operands[0], None, 0) == 1


@pytest.mark.parametrize(("size", "run"), [(64, 64), (48, 16), (40, 8), (7, 1)])
def test_what_wraps_round_counts_up_between_multiples(size: int, run: int) -> None:
    """Offsets modulo a size, as Triton's tutorial on products has them: no run steps over a multiple of the size."""
    type = TensorType((64,), i32(0).type)
    numbers = Operation.create("tt.make_range", [], [type], {"start": i32(0), "end": i32(64)})
    divisor = Operation.create("arith.constant", [], [type], {"value": DenseAttr(str(size), type)})
    wrapped = Operation.create("arith.remsi", [numbers.result, divisor.result], [type])
    assert neighbours(wrapped.result, None, 0) == run


def test_runs_of_shorter_ones_start_at_what_divides_both() -> None:
    assert Runs(64, 64, 1).divisible_at(8) == 8 and Runs(64, 4, 1).divisible_at(8) == 4
    assert Runs(8, 64, 1).meet(Runs(16, 32, 2)) == Runs(8, 8, 1)

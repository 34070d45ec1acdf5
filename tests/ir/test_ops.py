"""The table of operations, and what it lets one conclude of a particular operation."""

from __future__ import annotations

import pytest

from tests.roundtrip.cases import cases
from tests.roundtrip.stages import text_of
from tests.support.pinned import PINNED
from wspec.bridge.versions import INSTALLED
from wspec.ir import Operation, info, is_pure, read
from wspec.ir.ops import is_terminator, is_value_in_shared, known_names, reads, writes

# Calls are unknown effects on purpose.
UNKNOWN = {"tt.call"}


def _op(text: str, name: str) -> Operation:
    return next(op for op in read(text).walk() if op.name == name)


def test_every_operation_of_the_test_kernels_has_a_row() -> None:
    missing = set()
    for case in cases():
        for stage in ("before", "final", "gluon"):
            if stage in case.stages and not (case.name.endswith("_ws") and INSTALLED.release != PINNED):
                missing |= {op.name for op in read(text_of(case, stage)).walk() if info(op.name) is None}
    assert missing <= UNKNOWN


@pytest.mark.parametrize("name", sorted(known_names()))
def test_rows_make_sense(name: str) -> None:
    row = info(name)
    assert row is not None and row.name == name
    if row.terminator or row.writes or row.reads:
        assert not row.pure


def test_no_row_means_unknown() -> None:
    assert info("wspec.acquire") is None
    op = _op('"wspec.acquire"() : () -> ()', "wspec.acquire")
    assert not is_pure(op) and reads(op) is None and writes(op) is None


BRANCH = """
%c, %x = "t.make"() : () -> (i1, f32)
%r = "scf.if"(%c) ({
  %0 = "arith.addf"(%x, %x) : (f32, f32) -> f32
  "scf.yield"(%0) : (f32) -> ()
}, {
  BODY
  "scf.yield"(%x) : (f32) -> ()
}) : (i1) -> f32
"""


@pytest.mark.parametrize(
    "body, pure, written",
    [
        ("", True, frozenset()),
        ('%1 = "arith.divf"(%x, %x) : (f32, f32) -> f32', True, frozenset()),
        ('"tt.store"(%x, %x) : (f32, f32) -> ()', False, frozenset({"global"})),
        ('"tt.load"(%x) : (f32) -> ()', False, frozenset()),
        ('"tt.load"(%x) <{isVolatile = true}> : (f32) -> ()', False, frozenset({"global"})),
        ('"gpu.barrier"() : () -> ()', False, frozenset({"barrier"})),
        ('"t.unknown"() : () -> ()', False, None),
    ],
)
def test_regions(body: str, pure: bool, written: frozenset[str] | None) -> None:
    op = _op(BRANCH.replace("BODY", body), "scf.if")
    assert (is_pure(op), writes(op)) == (pure, written)


@pytest.mark.parametrize("flag, pure", [("true", True), ("false", False)])
def test_inline_assembly_says_itself(flag: str, pure: bool) -> None:
    op = _op(f'"tt.elementwise_inline_asm"() <{{pure = {flag}}}> : () -> ()', "tt.elementwise_inline_asm")
    assert is_pure(op) is pure
    assert (writes(op) == frozenset()) is pure


BUFFERS = """
%x, %i = "t.make"() : () -> (tensor<2x4xf16>, i32)
%a = "ttg.local_alloc"(%x) : (tensor<2x4xf16>) -> !ttg.memdesc<2x4xf16, #ttg.s, #ttg.shared_memory>
%b = "ttg.local_alloc"() : () -> !ttg.memdesc<2x4xf16, #ttg.s, #ttg.shared_memory, mutable>
%v = "ttg.memdesc_trans"(BUFFER) : (!ttg.memdesc<2x4xf16, #ttg.s, #ttg.shared_memoryMUTABLE>) -> \
!ttg.memdesc<4x2xf16, #ttg.s, #ttg.shared_memory>
%r = "ttg.local_load"(%v) : (!ttg.memdesc<4x2xf16, #ttg.s, #ttg.shared_memory>) -> tensor<4x2xf16>
"""


@pytest.mark.parametrize("buffer, mutable, pure", [("%a", "", True), ("%b", ", mutable", False)])
def test_buffers_that_are_values(buffer: str, mutable: str, pure: bool) -> None:
    module = read(BUFFERS.replace("BUFFER", buffer).replace("MUTABLE", mutable))
    load = module.regions[0].block.ops[-1]
    assert is_pure(load) is pure
    assert reads(load) == (frozenset() if pure else frozenset({"shared"}))
    filled, empty = module.regions[0].block.ops[1:3]
    assert is_value_in_shared(filled) and is_pure(filled)
    assert not is_value_in_shared(empty) and writes(empty) == frozenset({"shared"})


def test_terminators() -> None:
    assert is_terminator(_op('"scf.yield"() : () -> ()', "scf.yield"))
    assert not is_terminator(_op('"tt.store"() : () -> ()', "tt.store"))
    assert not is_terminator(_op('"wspec.x"() : () -> ()', "wspec.x"))
    assert is_terminator(_op('"tt.func"() ({\n^a:\n"x.goto"()[^a] : () -> ()\n}) : () -> ()', "x.goto"))


def test_loops_without_a_known_end_are_not_pure() -> None:
    text = '"scf.while"() ({\n"scf.condition"() : () -> ()\n}, {\n"scf.yield"() : () -> ()\n}) : () -> ()'
    assert not is_pure(_op(text, "scf.while"))
    assert is_pure(_op('"scf.for"() ({\n"scf.yield"() : () -> ()\n}) : () -> ()', "scf.for"))

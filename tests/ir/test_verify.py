"""The verifier finds what is wrong, and says it of the right operation.

The `.mlir` files under `invalid/` hold broken modules, divided by `// -----`; `// error: text` stands on the line of an
operation about which the verifier must say `text`, and it must say nothing of other lines.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from wspec.ir import Builder, Operation, Region, read
from wspec.ir.loc import FileLoc
from wspec.ir.verify import InvalidIR, check_valid, verify

FOLDER = Path(__file__).parent / "invalid"


def _chunks() -> list[tuple[str, str]]:
    found = []
    for path in sorted(FOLDER.glob("*.mlir")):
        for number, text in enumerate(path.read_text().split("// -----\n")):
            found.append((f"{path.stem}-{number}", text))
    return found


def _marks(text: str) -> dict[int, str]:
    """line number -> what must be said of it."""
    lines = enumerate(text.split("\n"), start=1)
    found = ((number, re.search(r"// error: (.*)", line)) for number, line in lines)
    return {number: mark.group(1).strip() for number, mark in found if mark is not None}


@pytest.mark.parametrize("text", [pytest.param(text, id=name) for name, text in _chunks()])
def test_problems_are_those_marked(text: str) -> None:
    marks = _marks(text)
    found: dict[int, list[str]] = {}
    for problem in verify(read(text, file="input")):
        assert isinstance(problem.op.location, FileLoc)
        found.setdefault(problem.op.location.line, []).append(problem.message)
    assert set(found) == set(marks)
    for line, wanted in marks.items():
        assert any(wanted in message for message in found[line]), (line, wanted, found[line])


VALID = """
"builtin.module"() ({
  "tt.func"() <{function_type = (i32) -> i32, sym_name = "f"}> ({
  ^bb0(%n: i32):
    "cf.br"(%n)[^bb1] : (i32) -> ()
  ^bb1(%i: i32):
    %0 = "arith.addi"(%i, %n) : (i32, i32) -> i32
    %1 = "arith.cmpi"(%0, %n) <{predicate = 2 : i64}> : (i32, i32) -> i1
    "cf.cond_br"(%1, %0)[^bb1, ^bb2] <{operandSegmentSizes = array<i32: 1, 1, 0>}> : (i1, i32) -> ()
  ^bb2:
    "tt.return"(%0) : (i32) -> ()
  }) : () -> ()
}) : () -> ()
"""


def _adds(module: Operation) -> Operation:
    return next(op for op in module.walk() if op.name == "arith.addi")


def test_a_loop_of_blocks_is_valid() -> None:
    check_valid(read(VALID))


def test_the_exception_shows_place_and_operation() -> None:
    module = read(VALID.replace('"arith.addi"(%i, %n)', '"arith.addi"(%i, %0)'), file="kernel.mlir")
    with pytest.raises(InvalidIR) as caught:
        check_valid(module)
    assert str(caught.value) == (
        "kernel.mlir:7:5: error: arith.addi: operand 1 (%0, i32) is not defined on every way to here\n"
        '    %0 = "arith.addi"(%arg1, %0) : (i32, i32) -> i32'
    )
    assert len(caught.value.problems) == 1


def test_result_index_and_owner() -> None:
    module = read(VALID)
    _adds(module).result.index = 3
    assert [problem.message for problem in verify(module)] == ["result 0 says it is result 3 of arith.addi"]


def test_block_argument_index() -> None:
    module = read(VALID)
    block = module.regions[0].block.ops[0].regions[0].blocks[1]
    block.args[0].index = 1
    assert [problem.message for problem in verify(module)] == ["block argument 0 says it is argument 1 of a block"]


def test_parents() -> None:
    module = read(VALID)
    _adds(module).parent = None
    assert [problem.message for problem in verify(module)] == ["does not know the block it stands in"]
    module = read(VALID)
    module.regions[0].block.ops[0].regions[0].parent = None
    assert "region 0 does not know that it belongs here" in [problem.message for problem in verify(module)]


def test_successors() -> None:
    module = read(VALID)
    blocks = module.regions[0].block.ops[0].regions[0].blocks
    blocks[0].terminator.successors[0] = module.regions[0].block
    assert "successor 0 is not a block of its region" in [problem.message for problem in verify(module)]
    module = read(VALID)
    blocks = module.regions[0].block.ops[0].regions[0].blocks
    blocks[1].terminator.successors[0] = blocks[0]
    assert "successor 0 is the entry block of its region" in [problem.message for problem in verify(module)]


def test_a_value_from_nowhere() -> None:
    module = read(VALID)
    stray = Operation.create("arith.constant", [], [_adds(module).result.type])
    _adds(module).operands[0] = stray.result
    [problem] = verify(module)
    assert "a value that is not in the module" in problem.message


def test_operations_of_our_own_need_no_terminator() -> None:
    module = read(
        '"tt.func"() <{function_type = () -> (), sym_name = "f"}> ({\n"tt.return"() : () -> ()\n}) : () -> ()'
    )
    block = module.regions[0].block.ops[0].regions[0].block
    region = Region()
    Builder(region.add_block()).constant(1)
    Builder(block, at=0).create("wspec.task", regions=[region])
    assert verify(module) == []

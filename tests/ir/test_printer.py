"""Printing: aliases, names, what stays out, and that broken IR still prints."""

from __future__ import annotations

import textwrap

from wspec.ir import Block, Builder, Operation, Region, print_module, read
from wspec.ir.loc import CallSiteLoc, FileLoc, NameLoc
from wspec.ir.types import F32, I32, Layout, TensorType, UnitAttr, i32

PLACE = FileLoc("k.py", 4, 8)
TEXT = """
#blocked = #ttg.blocked<{sizePerThread = [4], threadsPerWarp = [32], warpsPerCTA = [4], order = [0]}>
#mma = #ttg.nvidia_mma<{versionMajor = 3, versionMinor = 0, warpsPerCTA = [4, 1], instrShape = [16, 64, 16]}>
"builtin.module"() ({
  "tt.func"() <{function_type = (i32) -> (), sym_name = "f"}> ({
  ^bb0(%arg0: i32 loc(#loc2)):
    %0 = "arith.constant"() <{value = dense<0xFF800000> : tensor<64xf32, #blocked>}> : () -> tensor<64xf32, #blocked> \
loc(unknown)
    %1:2 = "t.pair"(%0) {flag} : (tensor<64xf32, #blocked>) -> \
(tensor<64xf32, #ttg.slice<{dim = 1, parent = #mma}>>, i32) loc(#loc3)
    "t.use"(%1#1, %arg0) : (i32, i32) -> () loc(#loc4)
    "tt.return"() : () -> () loc(#loc1)
  }) : () -> () loc(#loc)
}) {"ttg.num-warps" = 4 : i32} : () -> () loc(#loc)
#loc = loc("k.py":1:0)
#loc1 = loc("k.py":2:4)
#loc2 = loc("n"(#loc))
#loc3 = loc("pair"(#loc1))
#loc4 = loc(callsite(#loc3 at #loc1))
"""


def test_aliases_follow_first_occurrence_and_the_text_is_stable() -> None:
    text = print_module(read(TEXT))
    assert text.startswith("#blocked = #ttg.blocked<{") and "\n#mma = " in text
    assert "#ttg.slice<{dim = 1, parent = #mma}>" in text
    assert text.endswith("#loc4 = loc(callsite(#loc3 at #loc1))\n") or "callsite(#loc" in text.splitlines()[-1]
    assert print_module(read(text)) == text


def test_without_locations() -> None:
    text = print_module(read(TEXT), locations=False)
    assert "loc(" not in text and "#loc" not in text
    assert '    "t.use"(%1#1, %arg0) : (i32, i32) -> ()\n' in text


def test_names_of_the_source() -> None:
    text = print_module(read(TEXT), locations=False, names=True)
    assert "^bb0(%n: i32):" in text
    assert '%pair:2 = "t.pair"(%0) {flag}' in text
    assert '"t.use"(%pair#1, %n)' in text
    assert print_module(read(text), locations=False) == print_module(read(TEXT), locations=False)


def test_names_do_not_collide() -> None:
    module = _module()
    builder = Builder(module.regions[0].block)
    for name in ("x", "x", "arg0", "0", "größe", ""):
        builder.location = NameLoc(name, PLACE)
        builder.constant(1)
    builder.location = PLACE
    builder.constant(2)
    text = print_module(module, locations=False, names=True)
    assert [line.split()[0] for line in text.splitlines()[1:-1]] == [
        "%x",
        "%x_0",
        "%_arg0",
        "%_0",
        "%gr__e",
        "%_",
        "%0",
    ]
    read(text)


def test_layouts_that_differ_get_numbers_and_equal_ones_share() -> None:
    module = _module()
    layouts = [Layout("ttg.blocked", (("order", (n,)),)) for n in (0, 1, 0)]
    for layout in layouts:
        Builder(module.regions[0].block).create("t.op", [], [TensorType((4,), F32, layout)])
    assert print_module(module, locations=False) == textwrap.dedent(
        """\
        #blocked = #ttg.blocked<{order = [0]}>
        #blocked1 = #ttg.blocked<{order = [1]}>
        "builtin.module"() ({
          %0 = "t.op"() : () -> tensor<4xf32, #blocked>
          %1 = "t.op"() : () -> tensor<4xf32, #blocked1>
          %2 = "t.op"() : () -> tensor<4xf32, #blocked>
        }) : () -> ()
        """
    )


def test_broken_ir_prints() -> None:
    module = _module()
    stray = Operation.create("t.stray", [], [I32])
    use = Builder(module.regions[0].block).create("t.use", [stray.result])
    use.successors.append(Block())
    assert '"t.use"(%undefined0)[^undefined1] : (i32) -> ()' in print_module(module)


def test_attribute_names_are_quoted_when_they_must_be() -> None:
    op = Operation.create(
        "t.op", attributes={"ttg.num-warps": i32(4), '"has space"': UnitAttr(), "plain.name": UnitAttr()}
    )
    said = '"t.op"() {"ttg.num-warps" = 4 : i32, "has space", plain.name} : () -> ()\n'
    assert print_module(op, locations=False) == said


def test_an_inlined_location_is_written_once() -> None:
    module = _module()
    location = CallSiteLoc(NameLoc("x", PLACE), CallSiteLoc(PLACE, PLACE))
    for _ in range(3):
        Builder(module.regions[0].block, location=location).constant(1)
    text = print_module(module)
    assert text.count('"k.py":4:8') == 1 and text.count("callsite") == 2


def _module() -> Operation:
    region = Region()
    region.add_block()
    return Operation.create("builtin.module", regions=[region])

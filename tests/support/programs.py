"""Small functions in TTGIR, written by hand: the types that occur have short names."""

from __future__ import annotations

from pathlib import Path

from wspec.ir import read
from wspec.ir.core import Operation, Value
from wspec.ir.loc import value_name
from wspec.ir.numbering import number
from wspec.ir.verify import check_valid

PROGRAMS = Path(__file__).parents[1] / "passes" / "programs"

TYPES = """
#shared = #ttg.nvmma_shared<{swizzlingByteWidth = 128, transposed = false, elementBitWidth = 16}>
#turned = #ttg.nvmma_shared<{swizzlingByteWidth = 128, transposed = true, elementBitWidth = 16}>
#mma = #ttg.nvidia_mma<{versionMajor = 3, versionMinor = 0, warpsPerCTA = [8, 1], instrShape = [16, 64, 16]}>
#blocked = #ttg.blocked<{sizePerThread = [1, 8], threadsPerWarp = [4, 8], warpsPerCTA = [8, 1], order = [1, 0]}>
#smem = #ttg.shared_memory
!desc = !tt.tensordesc<tensor<128x64xf16, #shared>>
!desc64 = !tt.tensordesc<tensor<64x64xf16, #shared>>
!tile = tensor<128x64xf16, #blocked>
!tile64 = tensor<64x64xf16, #blocked>
!buffer = !ttg.memdesc<128x64xf16, #shared, #smem>
!buffer64 = !ttg.memdesc<64x64xf16, #shared, #smem>
!wide_desc = !tt.tensordesc<tensor<64x128xf16, #shared>>
!wide = tensor<64x128xf16, #blocked>
!wide_buffer = !ttg.memdesc<64x128xf16, #shared, #smem>
!wide_turned = !ttg.memdesc<128x64xf16, #turned, #smem>
!turned = !ttg.memdesc<64x128xf16, #turned, #smem>
!deep_desc = !tt.tensordesc<tensor<1x128x64xf16, #shared>>
!acc = tensor<128x64xf32, #mma>
!acc64 = tensor<64x64xf32, #mma>
!square = tensor<128x128xf32, #mma>
!square_blocked = tensor<128x128xf32, #blocked>
!thin = tensor<128x1xf32, #mma>
!row = tensor<128xf32, #ttg.slice<{dim = 1, parent = #mma}>>
!column = tensor<64xf32, #ttg.slice<{dim = 0, parent = #mma}>>
!operand = tensor<128x64xf16, #ttg.dot_op<{opIdx = 0, parent = #mma, kWidth = 2}>>
"""
LOAD = "<{cache = 1 : i32, evict = 1 : i32}>"
DOT = "<{inputPrecision = 0 : i32, isAsync = false, maxNumImpreciseAcc = 0 : i32}>"
READ = (
    "<{boundaryCheck = array<i32>, cache = 1 : i32, evict = 1 : i32, isVolatile = false, "
    "operandSegmentSizes = array<i32: 1, 0, 0>}>"
)
WRITE = "<{boundaryCheck = array<i32>, cache = 1 : i32, evict = 1 : i32}>"
FAST = "<{fastmath = #arith.fastmath<none>}>"
# Values every function has.
CONSTANTS = """
    %c0 = "arith.constant"() <{value = 0 : i32}> : () -> i32 loc("c0")
    %c64 = "arith.constant"() <{value = 64 : i32}> : () -> i32 loc("c64")
    %zero = "arith.constant"() <{value = dense<0.000000e+00> : !acc}> : () -> !acc loc("zero")
"""


def function(body: str, arguments: str = "%a: !desc; %b: !desc64; %n: i32", warps: int = 8) -> Operation:
    """A numbered function; `@LOAD`, `@DOT`, `@READ`, `@WRITE` and `@FAST` stand for properties that never differ.

    Values are told apart by their location, `loc("name")`; arguments, parted by semicolons, get one of their own.
    """
    named = [part.strip() for part in arguments.split("; ")]
    types = ", ".join(part.partition(": ")[2] for part in named)
    places = ", ".join(f'{part} loc("{part.partition(":")[0][1:]}")' for part in named)
    text = f"""{TYPES}
"builtin.module"() ({{
  "tt.func"() <{{function_type = ({types}) -> (), sym_name = "f", sym_visibility = "public"}}> ({{
  ^bb0({places}):{CONSTANTS}{body}
    "tt.return"() : () -> ()
  }}) {{noinline = false}} : () -> ()
}}) {{"ttg.num-ctas" = 1 : i32, "ttg.num-warps" = {warps} : i32, ttg.target = "cuda:90"}} : () -> ()
"""
    for name, value in (("@LOAD", LOAD), ("@DOT", DOT), ("@READ", READ), ("@WRITE", WRITE), ("@FAST", FAST)):
        text = text.replace(name, value)
    module = read(text)
    check_valid(module)
    return numbered(module)


def program(name: str) -> Operation:
    """The numbered function of one of the programs of the passes' tests."""
    return numbered(read((PROGRAMS / name / "input.ttgir").read_text()))


def numbered(module: Operation) -> Operation:
    """The module's function, its operations numbered."""
    found = next(op for op in module.walk() if op.name == "tt.func")
    number(found)
    return found


def op_at(root: Operation, name: str) -> Operation:
    """The first operation whose location says `name`."""
    return next(op for op in root.walk() if value_name(op.location) == name)


def value_at(root: Operation, name: str) -> Value:
    """The first value, result or block argument, whose location says `name`."""
    for op in root.walk():
        if value_name(op.location) == name and op.results:
            return op.results[0]
        for region in op.regions:
            for block in region.blocks:
                for arg in block.args:
                    if value_name(arg.location) == name:
                        return arg
    raise AssertionError(f"no value called {name}")


def op_named(root: Operation, name: str) -> Operation:
    """The first operation of that kind."""
    return next(op for op in root.walk() if op.name == name)

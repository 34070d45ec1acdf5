"""Triton's own shared memory allocator, asked about a module: offsets of allocations and of scratch.

Two allocations that Triton takes for done with one after the other get the same bytes, and so does the scratch of
layout conversions and reductions. What is still in flight it does not know of; whether that is right, the checker says.
"""

from __future__ import annotations

import math
import re
import time
from collections.abc import Iterator
from functools import lru_cache, partial
from typing import Any

from wspec.bridge.text import BridgeError, reparse, run_passes
from wspec.bridge.versions import INSTALLED
from wspec.ir import print_module
from wspec.ir import warp_specialize as ws
from wspec.ir.core import Block, Operation, Region
from wspec.ir.shared_memory import Area, Placement, size_bytes
from wspec.ir.types import FunctionType, IntegerAttr, MemDescType, ScalarType, StringAttr, TensorType, TypeAttr, i32
from wspec.target.hopper import ARCH

_ALLOC, _FENCE, _FUNCTION = "ttg.local_alloc", "ttng.fence_async_shared", "tt.func"
_NUMBER = "ttg.wspec_number"  # an attribute by which operations are found again; of a dialect that libtriton knows
_DEFAULTS = {"ttg.num-warps": i32(4), "ttg.num-ctas": i32(1), "ttg.threads-per-warp": i32(32)}
_PLACED = re.compile(r"allocation\.offset = (\d+) : i32")
_NUMBERED = re.compile(_NUMBER.replace(".", r"\.") + r" = (\d+) : i32")
_TOTAL = re.compile(r"ttg\.shared = (\d+) : i32")
_REGISTERS = re.compile(r"actualRegisters = array<i32: ([-\d, ]+)>")
_BRACES = re.compile(r"\{[^{}]*\}")


def placement(module: Operation, *, limit_s: float = math.inf) -> Placement:
    """Where the installed Triton puts everything. The module is not changed. Raises BridgeError when it refuses it,
    and after `limit_s` of processor time; libtriton itself is not interrupted.

    An assertion inside libtriton ends the process. The command line asks about modules from outside in another one.
    """
    deadline = time.thread_time() + limit_s
    ops = list(module.walk())
    text = _lowered(_numbered(module))
    offsets, fences = _offsets(text), _fences(text)
    areas: dict[Operation, Area] = {}
    guesses: dict[Operation, Area] = {}
    for number, offset in offsets.items():
        op = ops[number]
        known = _known_bytes(op)
        if known is not None:
            areas[op] = Area(offset, offset + known)
        elif op.name != _FUNCTION:  # a byte for each warp, there from beginning to end
            guesses[op] = Area(offset, offset + _most_bytes(op))
    for op, guess in guesses.items():
        if time.thread_time() > deadline:
            raise BridgeError("that takes too long")
        apart = (one for other, one in (areas | guesses).items() if other is not op and not _takes_turns(op, other))
        if any(guess.overlaps(one) for one in apart):
            guess = Area(guess.start, guess.start + _asked_bytes(_alone(op, _warps(op, module))))
        areas[op] = guess
    total, given = _TOTAL.search(text), _REGISTERS.findall(text)
    registers = tuple(int(one) for one in given[0].split(",")) if len(given) == 1 else ()
    bytes = int(total[1]) if total is not None else 0
    return Placement(areas, frozenset(ops[number] for number in fences), bytes, registers)


def _numbered(module: Operation) -> str:
    """The text of the module, with a number at all that may be placed or fenced."""
    copy = module.clone({})
    for name, value in _DEFAULTS.items():
        if copy.attr(name) is None:
            copy.attributes[f'"{name}"'] = value
    if copy.attr("ttg.target") is None:
        copy.attributes["ttg.target"] = StringAttr(f"cuda:{ARCH}")
    for number, op in enumerate(copy.walk()):
        if op.name.startswith(("ttg.", "ttng.", "tt.")) and op.name.rpartition(".")[2] not in _PLAIN:
            op.attributes[_NUMBER] = i32(number)
    return print_module(copy)


_PLAIN = frozenset(("return", "warp_yield", "warp_return", "partitions", "splat", "broadcast", "expand_dims"))


@lru_cache(maxsize=4)  # of one kernel the checker asks, and who looks at its PTX
def _lowered(text: str) -> str:
    module: Any = reparse(text)
    run_passes(module, partial(INSTALLED.add_memory_passes, arch=ARCH), "wspec_shared_memory")
    return str(module.str())


def _offsets(text: str) -> dict[int, int]:
    found: dict[int, int] = {}
    for braces in _BRACES.findall(text):
        placed = _PLACED.search(braces)
        if placed is None:
            continue
        numbered = _NUMBERED.search(braces)
        if numbered is None:
            raise BridgeError("libtriton placed an operation that has no number")
        number, offset = int(numbered[1]), int(placed[1])
        if found.setdefault(number, offset) != offset:
            raise BridgeError("libtriton placed an operation twice: a function is called")
    return found


def _fences(text: str) -> Iterator[int]:
    """The operations before which there is a fence that was not there."""
    waiting = False
    for line in text.splitlines():
        numbered = _NUMBERED.search(line)
        if _FENCE in line:
            waiting |= numbered is None
        elif waiting and numbered is not None:
            yield int(numbered[1])
            waiting = False


def _known_bytes(op: Operation) -> int | None:
    if op.name == ws.NAME:
        return _captured_bytes(op)
    if op.name != _ALLOC:
        return None
    type = op.result.type
    assert isinstance(type, MemDescType)
    return None if "padded" in str(type.encoding) else size_bytes(type)


def _captured_bytes(op: Operation) -> int:
    """What the tasks are handed, packed without gaps: a buffer as its address and an offset for each dimension."""
    total = 0
    for value in op.operands:
        size = 8
        if isinstance(value.type, MemDescType):
            size += 4 * len(value.type.shape)
        elif isinstance(value.type, ScalarType):
            size = max(value.type.bits, 8) // 8
        total += size
    return total


def _most_bytes(op: Operation) -> int:
    """More than an operation can need: Triton stages at most all its operands or results, padded."""
    total = 1024
    for value in (*op.operands, *op.results):
        element = getattr(value.type, "element", value.type)
        bits = element.bits if isinstance(element, ScalarType) else 64
        shape = value.type.shape if isinstance(value.type, TensorType | MemDescType) else ()
        total += 2 * math.prod(shape) * max(bits, 8) // 8
    return total


def _takes_turns(one: Operation, other: Operation) -> bool:
    """Is the memory of both scratch that is used one after the other, by the same threads or around their tasks?"""
    if _ALLOC in (one.name, other.name):
        return False
    around = ws.NAME in (one.name, other.name) and (one.is_inside(other) or other.is_inside(one))
    return around or _threads(one) is _threads(other)


def _threads(op: Operation) -> Region | None:
    """The partition around an operation; None in the code around and in default regions."""
    child = op
    for around in op.ancestors():
        if around.name == "ttg.warp_specialize.partitions":
            assert child.parent is not None
            return child.parent.parent
        child = around
    return None


def _warps(op: Operation, module: Operation) -> int:
    region = _threads(op)
    if region is not None:
        owner = region.parent.parent_op if region.parent is not None else None
        counts = getattr(owner.attr("partitionNumWarps"), "values", ()) if owner is not None else ()
        for block, count in zip(ws.partition_blocks(owner) if owner is not None else (), counts, strict=False):
            if block.parent is region:
                return int(count)
    return module.int_attr("ttg.num-warps") or 4


def _alone(op: Operation, warps: int) -> str:
    """The text of a module in which nothing but the operation needs shared memory."""
    block = Block()
    values = {value: block.add_arg(value.type) for value in dict.fromkeys(op.operands)}
    copy = block.append(op.clone(dict(values)))
    copy.attributes.pop(_NUMBER, None)
    block.append(Operation.create("tt.return", copy.results))
    region = Region()
    region.add_block(block)
    type = TypeAttr(FunctionType(tuple(arg.type for arg in block.args), tuple(one.type for one in copy.results)))
    properties = {"function_type": type, "sym_name": StringAttr("alone"), "sym_visibility": StringAttr("public")}
    function = Operation.create("tt.func", properties=properties, regions=[region])
    outer = Region()
    outer.add_block().append(function)
    attributes = {f'"{name}"': value for name, value in _DEFAULTS.items()} | {"ttg.target": StringAttr(f"cuda:{ARCH}")}
    attributes['"ttg.num-warps"'] = IntegerAttr(warps, ScalarType("i32"))
    module = Operation.create("builtin.module", attributes=attributes, regions=[outer])
    return print_module(module, locations=False)


@lru_cache(maxsize=256)
def _asked_bytes(text: str) -> int:
    found = _TOTAL.search(_lowered(text))
    if found is None:
        raise BridgeError("libtriton does not say how much shared memory an operation takes")
    return int(found[1])

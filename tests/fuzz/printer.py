"""A program as the source of a Triton kernel."""

from __future__ import annotations

import math
from collections.abc import Iterator

from tests.fuzz.program import (
    Arange,
    Assign,
    Bin,
    Buffer,
    Cast,
    Dot,
    Expand,
    Expr,
    For,
    Full,
    If,
    Lit,
    Pid,
    Program,
    Programs,
    PtrLoad,
    PtrStore,
    Reduce,
    Stmt,
    TileLoad,
    TileStore,
    Trans,
    Un,
    Var,
    Where,
)

DTYPES = {
    "fp32": "tl.float32",
    "fp16": "tl.float16",
    "bf16": "tl.bfloat16",
    "fp8e4nv": "tl.float8e4nv",
    "fp8e5": "tl.float8e5",
    "i32": "tl.int32",
    "i8": "tl.int8",
    "i1": "tl.int1",
}
INDENT = "    "
HEAD = "import triton\nimport triton.language as tl\n\n\n@triton.jit\n"


def source(program: Program) -> str:
    """The text of a module with the kernel, which is called `kernel`."""
    lines = [*_descriptors(program), *_whole(program)]
    body = "\n".join(INDENT + line for line in lines)
    return f"{HEAD}def kernel({', '.join(parameters(program))}):\n{body}\n"


def parameters(program: Program) -> list[str]:
    """The kernel's parameters, in order."""
    names = [argument(buffer) for buffer in program.buffers]
    names += [size for buffer in program.buffers if buffer.access == "device" for size in sizes(buffer)]
    return names + [scalar.name for scalar in program.scalars]


def argument(buffer: Buffer) -> str:
    """The parameter a tensor comes in through."""
    return buffer.name + ("_desc" if buffer.access == "host" else "_ptr")


def sizes(buffer: Buffer) -> list[str]:
    """The parameters with the extents of a tensor whose descriptor the kernel makes."""
    return [f"{buffer.name}_{dim}" for dim in range(len(buffer.dims))]


def _descriptors(program: Program) -> Iterator[str]:
    for buffer in program.buffers:
        if buffer.access == "device":
            names = sizes(buffer)
            strides = [" * ".join(names[dim + 1 :]) or "1" for dim in range(len(names))]
            shape, box = ", ".join(names), ", ".join(map(str, buffer.box))
            made = f"tl.make_tensor_descriptor({argument(buffer)}, [{shape}], [{', '.join(strides)}], [{box}])"
            yield f"{buffer.name}_desc = {made}"


# ------------------------------------------------------------------------------------------------ statements


def _whole(program: Program) -> Iterator[str]:
    """The kernel's statements; a condition around the last ones may be a return before them."""
    last = program.body[-1] if program.body else None
    if not isinstance(last, If) or not last.returns or last.orelse:
        yield from _block(program, program.body)
        return
    yield from _block(program, program.body[:-1])
    yield f"if not ({_top(program, last.condition)}):"
    yield f"{INDENT}return"
    yield from _block(program, last.then)


def _block(program: Program, body: tuple[Stmt, ...]) -> Iterator[str]:
    for statement in body:
        yield from _statement(program, statement)


def _nested(program: Program, body: tuple[Stmt, ...]) -> Iterator[str]:
    lines = list(_block(program, body)) or ["pass"]
    return (INDENT + line for line in lines)


def _statement(program: Program, statement: Stmt) -> Iterator[str]:
    match statement:
        case Assign(name, value):
            yield f"{name} = {_top(program, value)}"
        case For(name, low, high, step, body, hints):
            parts = [_top(program, bound) for bound in (low, high, step)]
            parts += [f"{hint}={value}" for hint, value in hints]
            yield f"for {name} in tl.range({', '.join(parts)}):"
            yield from _nested(program, body)
        case If(condition, then, orelse, _):
            yield f"if {_top(program, condition)}:"
            yield from _nested(program, then)
            if orelse:
                yield "else:"
                yield from _nested(program, orelse)
        case TileStore(name, offsets, value):
            box = program.buffer(name).box
            text = _text(program, value)
            text = f"{text}.reshape({_list(box)})" if box != value.type.shape else text
            yield f"{name}_desc.store([{', '.join(_top(program, o) for o in offsets)}], {text})"
        case PtrStore(name, index, value, mask):
            tail = "" if mask is None else f", mask={_top(program, mask)}"
            yield f"tl.store({name}_ptr + {_text(program, index)}, {_top(program, value)}{tail})"
        case _:
            raise TypeError(f"no statement: {statement}")


# ----------------------------------------------------------------------------------------------- expressions


def _top(program: Program, value: Expr) -> str:
    """The text where nothing binds tighter."""
    text = _text(program, value)
    return text[1:-1] if isinstance(value, Bin) and text.startswith("(") else text


def _text(program: Program, value: Expr) -> str:
    """The text of an expression that can stand in any other."""

    def text(part: Expr) -> str:
        return _text(program, part)

    def top(part: Expr) -> str:
        return _top(program, part)

    match value:
        case Lit(number, dtype):
            return _number(number, dtype)
        case Var(name, _):
            return name
        case Un("neg", x):
            return f"(-{text(x)})"
        case Un(op, x):
            return f"tl.{op}({top(x)})"
        case Bin("max" | "min" as op, a, b):
            return f"tl.{op}imum({top(a)}, {top(b)})"
        case Bin("and", a, b):
            return f"({text(a)} & {text(b)})"
        case Bin(op, a, b):
            return f"({text(a)} {op} {text(b)})"
        case Where(condition, a, b):
            return f"tl.where({top(condition)}, {top(a)}, {top(b)})"
        case Cast(x, dtype):
            return f"{text(x)}.to({DTYPES[dtype]})"
        case Full(shape, number, dtype):
            return f"tl.full({_list(shape)}, {_number(number, dtype)}, {DTYPES[dtype]})"
        case Arange(count):
            return f"tl.arange(0, {count})"
        case Expand(x, axis):
            return f"{text(x)}[{'None, :' if axis == 0 else ':, None'}]"
        case Trans(x):
            return f"{text(x)}.T"
        case Reduce(op, x, axis):
            return f"tl.{op}({top(x)}, {axis})"
        case Dot():
            return _dot(program, value)
        case Pid(axis):
            return f"tl.program_id({axis})"
        case Programs(axis):
            return f"tl.num_programs({axis})"
        case TileLoad(name, offsets, of):
            box = program.buffer(name).box
            tail = f".reshape({_list(of.shape)})" if box != of.shape else ""
            return f"{name}_desc.load([{', '.join(map(top, offsets))}]){tail}"
        case PtrLoad(name, index, dtype, mask, other):
            tail = "" if mask is None else f", mask={top(mask)}, other={_number(other, dtype)}"
            return f"tl.load({name}_ptr + {text(index)}{tail})"
    raise TypeError(f"no expression: {value}")


def _dot(program: Program, dot: Dot) -> str:
    parts = [_top(program, dot.a), _top(program, dot.b)]
    parts += [] if dot.acc is None else [_top(program, dot.acc)]
    parts += ["out_dtype=tl.int32"] if dot.type.dtype == "i32" else []
    return f"tl.dot({', '.join(parts)})"


def _list(shape: tuple[int, ...]) -> str:
    return f"[{', '.join(map(str, shape))}]"


def _number(number: float, dtype: str) -> str:
    if dtype in ("i32", "i8"):
        return str(int(number))
    if math.isinf(number):
        return 'float("inf")' if number > 0 else 'float("-inf")'
    return repr(float(number))

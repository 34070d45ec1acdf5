"""PTX instructions on registers, as far as inline assembly in kernels uses them.

A register is a tensor of integers of its size (a predicate: of bools), one element for each time the assembly runs. An
instruction reads registers as its type says. `.ftz`, `.approx` and `.full` change nothing: functions are torch's.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence

import torch

from wspec.execute.bits import count_ones, leading_zeros
from wspec.execute.elements import raw, wrap
from wspec.execute.errors import ExecutionError
from wspec.execute.floats import fma, saturate
from wspec.execute.integers import BINARY, high_part
from wspec.execute.minmax import maximum, maximum_number, minimum, minimum_number, unsigned_less
from wspec.execute.rounding import (
    RTNE,
    RTZ,
    float_to_signed,
    float_to_unsigned,
    round_tf32,
    round_to,
    signed_to_float,
    unsigned_to_float,
)

Registers = Sequence[torch.Tensor]
Special = Callable[[Sequence[str], str, Registers], torch.Tensor]  # (modifiers, type, operands)
Pair = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
_FLOATS = {
    "f16": torch.float16,
    "bf16": torch.bfloat16,
    "f32": torch.float32,
    "f64": torch.float64,
    "tf32": torch.float32,
    "f16x2": torch.float16,
    "bf16x2": torch.bfloat16,
    "e4m3x2": torch.float8_e4m3fn,
    "e5m2x2": torch.float8_e5m2,
}
_INTEGERS = {8: torch.int8, 16: torch.int16, 32: torch.int32, 64: torch.int64}


def dtype_of(type: str) -> torch.dtype:
    """The torch type of the numbers in a register of a PTX type, such as `f32`, `u64`, `b16`, `f16x2`."""
    if type == "pred":
        return torch.bool
    if type in _FLOATS:
        return _FLOATS[type]
    if type[:1] in ("b", "u", "s") and type[1:].isdigit() and int(type[1:]) in _INTEGERS:
        return _INTEGERS[int(type[1:])]
    raise ExecutionError(f"inline assembly with the type .{type}")


def size_of(type: str) -> int:
    """Bytes of a register of that type."""
    return dtype_of(type).itemsize * (2 if type.endswith("x2") else 1)


def read(register: torch.Tensor, type: str) -> torch.Tensor:
    """The numbers in a register. Two packed ones become neighbours."""
    if register.element_size() != size_of(type):
        raise ExecutionError(f"inline assembly reads {register.element_size()} bytes as .{type}")
    return register if register.dtype == torch.bool else register.view(dtype_of(type))


def write(values: torch.Tensor, type: str) -> torch.Tensor:
    """The register that holds the numbers."""
    if values.dtype == torch.bool:
        return values
    return raw(values).contiguous().view(_INTEGERS[8 * size_of(type)])


def immediate(text: str, type: str, count: int) -> torch.Tensor:
    """A register of a number in the source. Floats may be decimal or bits (`0f3F800000`, `0d...`)."""
    lowered = text.lower()
    if type in ("f32", "f64", "f16", "bf16"):
        if lowered.startswith(("0f", "0d")):
            code = ">f" if lowered[1] == "f" else ">d"
            value = struct.unpack(code, bytes.fromhex(lowered[2:]))[0]
        else:
            value = float(text)
        return write(torch.full((count,), value, dtype=torch.float64).to(dtype_of(type)), type)
    bits = 8 * size_of(type)
    if type == "pred":
        return torch.full((count,), int(text) != 0)
    if lowered.startswith("0f"):
        number = int(lowered[2:], 16)
    else:
        number = int(lowered.rstrip("u"), 0)
    return torch.full((count,), wrap(number, bits), dtype=_INTEGERS[bits])


# ------------------------------------------------------------------------------------------ instructions


def is_float(type: str) -> bool:
    return type in _FLOATS


def knows(name: str) -> bool:
    """Is there an instruction of that name?"""
    return name in ("cvt", "setp") or name in _SPECIAL or name in _ON_FLOATS or name in _ON_INTEGERS


def source_type(opcode: Sequence[str], index: int) -> str:
    """How an instruction reads its operand `index`, from 0: what an immediate there means."""
    name, type = opcode[0], opcode[-1]
    if name in ("shl", "shr", "lop3", "prmt") and index >= {"lop3": 3, "prmt": 2}.get(name, 1):
        return "u32"
    if (name in ("selp", "setp")) and index == 2:
        return "pred"
    if name == "mad" and "wide" in opcode and index == 2:
        return f"{type[0]}{2 * int(type[1:])}"
    return type


def execute(opcode: Sequence[str], operands: Registers) -> list[torch.Tensor]:
    """The registers an instruction writes. `opcode` is its name and modifiers: `mul`, `wide`, `s32`."""
    name, modifiers, type = opcode[0], opcode[1:-1], opcode[-1]
    if name == "cvt":
        return [_convert(modifiers[:-1], modifiers[-1], type, operands)]
    if name == "setp":
        return _set_predicate(modifiers, type, operands)
    if name in _SPECIAL:
        return [_SPECIAL[name](modifiers, type, operands)]
    compute = (_ON_FLOATS if is_float(type) else _ON_INTEGERS).get(name)
    if compute is None:
        raise ExecutionError(f"inline assembly with {'.'.join(opcode)}")
    found = compute(*(read(register, type) for register in operands))
    if "sat" in modifiers and is_float(type):
        found = saturate(found)
    return [write(found, type)]


_ON_FLOATS: dict[str, Callable[..., torch.Tensor]] = {
    "mov": lambda a: a,
    "add": torch.add,
    "sub": torch.sub,
    "mul": torch.mul,
    "div": torch.div,
    "fma": fma,
    "mad": fma,
    "neg": torch.neg,
    "abs": torch.abs,
    "rcp": torch.reciprocal,
    "sqrt": torch.sqrt,
    "rsqrt": torch.rsqrt,
    "ex2": torch.exp2,
    "lg2": torch.log2,
    "sin": torch.sin,
    "cos": torch.cos,
    "tanh": torch.tanh,
    "copysign": lambda sign, value: value.copysign(sign),
}
_ON_INTEGERS: dict[str, Callable[..., torch.Tensor]] = {
    "mov": lambda a: a,
    "add": torch.add,
    "sub": torch.sub,
    "neg": torch.neg,
    "abs": torch.abs,
    "and": torch.bitwise_and,
    "or": torch.bitwise_or,
    "xor": torch.bitwise_xor,
    "not": torch.bitwise_not,
}


def _multiply(modifiers: Sequence[str], type: str, operands: Registers) -> torch.Tensor:
    """mul and mad of integers: the lower half, the upper half or the whole of a product."""
    if is_float(type):
        values = [read(register, type) for register in operands]
        return write(fma(*values) if len(values) == 3 else values[0] * values[1], type)
    a, b = (read(register, type) for register in operands[:2])
    bits, is_unsigned = int(type[1:]), type[0] == "u"
    if "wide" in modifiers and bits < 64:
        found = (_extended(a, is_unsigned) * _extended(b, is_unsigned)).to(_INTEGERS[2 * bits])
    elif "hi" in modifiers:
        found = high_part(a, b, bits, is_unsigned)
    else:
        found = a * b
    return found + operands[2] if len(operands) == 3 else found


def _extended(values: torch.Tensor, is_unsigned: bool) -> torch.Tensor:
    """Integers as i64."""
    wide = values.to(torch.int64)
    return wide & ((1 << (8 * values.element_size())) - 1) if is_unsigned and values.element_size() < 8 else wide


def _signed(name: str, type: str) -> str:
    """The name of the operation on MLIR's integers."""
    return f"{name}{'ui' if type[0] in 'ub' else 'si'}"


def _divide(name: str) -> Special:
    def run(modifiers: Sequence[str], type: str, operands: Registers) -> torch.Tensor:
        a, b = (read(register, type) for register in operands)
        if is_float(type):
            return write(a / b, type)
        return BINARY[_signed(name, type)].tensor(a, b)

    return run


def _extreme(name: str, keeps_nan: Pair, of_numbers: Pair) -> Special:
    def run(modifiers: Sequence[str], type: str, operands: Registers) -> torch.Tensor:
        a, b = (read(register, type) for register in operands)
        if is_float(type):
            return write((keeps_nan if "NaN" in modifiers else of_numbers)(a, b), type)
        return BINARY[_signed(name, type)].tensor(a, b)

    return run


def _shift(name: str) -> Special:
    def run(modifiers: Sequence[str], type: str, operands: Registers) -> torch.Tensor:
        value, amount = read(operands[0], type), operands[1]
        bits = 8 * value.element_size()
        amount = torch.where((amount < 0) | (amount > bits), torch.full_like(amount, bits), amount).to(value.dtype)
        return BINARY["shli" if name == "shl" else _signed("shr", type)].tensor(value, amount)

    return run


def _lop3(modifiers: Sequence[str], type: str, operands: Registers) -> torch.Tensor:
    """Any function of three bits: bit i of the table is its value where the three, as a number, are i."""
    (a, b, c), table = operands[:3], int(operands[3].reshape(-1)[0])
    found = torch.zeros_like(a)
    for place in range(8):
        if table >> place & 1:
            bits = (a if place & 4 else ~a) & (b if place & 2 else ~b) & (c if place & 1 else ~c)
            found = found | bits
    return found


def _prmt(modifiers: Sequence[str], type: str, operands: Registers) -> torch.Tensor:
    """Four bytes out of eight; with the upper bit of its choice set, a byte is copies of the chosen one's sign."""
    low, high, choice = (_extended(register, True) for register in operands)
    both, found = low | (high << 32), torch.zeros_like(low)
    for place in range(4):
        pick = choice >> (4 * place)
        byte = (both >> (8 * (pick & 7))) & 255
        byte = torch.where((pick & 8) != 0, torch.where(byte >= 128, 255, 0), byte)
        found = found | (byte << (8 * place))
    return found.to(torch.int32)


def _count(compute: Callable[[torch.Tensor, int], torch.Tensor]) -> Special:
    return lambda modifiers, type, operands: compute(operands[0], 8 * operands[0].element_size()).to(torch.int32)


def _choose(modifiers: Sequence[str], type: str, operands: Registers) -> torch.Tensor:
    first, second, condition = operands
    return torch.where(condition, first, second)


_SPECIAL: dict[str, Special] = {
    "mul": _multiply,
    "mad": _multiply,
    "div": _divide("div"),
    "rem": _divide("rem"),
    "max": _extreme("max", maximum, maximum_number),
    "min": _extreme("min", minimum, minimum_number),
    "shl": _shift("shl"),
    "shr": _shift("shr"),
    "lop3": _lop3,
    "prmt": _prmt,
    "popc": _count(count_ones),
    "clz": _count(leading_zeros),
    "selp": _choose,
}

# ------------------------------------------------------------------------------------------- comparisons

_ORDERED: dict[str, Pair] = {
    "eq": torch.eq,
    "ne": lambda a, b: (a < b) | (a > b),
    "lt": torch.lt,
    "le": torch.le,
    "gt": torch.gt,
    "ge": torch.ge,
    "num": lambda a, b: ~(a.isnan() | b.isnan()),
    "nan": lambda a, b: a.isnan() | b.isnan(),
}
_UNSIGNED: dict[str, Pair] = {
    "lt": unsigned_less,
    "le": lambda a, b: ~unsigned_less(b, a),
    "gt": lambda a, b: unsigned_less(b, a),
    "ge": lambda a, b: ~unsigned_less(a, b),
}
_SAME = {"lo": "lt", "ls": "le", "hi": "gt", "hs": "ge"}


def _compared(how: str, type: str, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    if is_float(type) and how in _ORDERED:
        return _ORDERED[how](a, b)
    if is_float(type) and how[:-1] in _ORDERED and how.endswith("u"):  # or unordered
        return _ORDERED[how[:-1]](a, b) | a.isnan() | b.isnan()
    if not is_float(type) and how == "ne":
        return a != b
    relation = _SAME.get(how, how)
    if relation in _UNSIGNED and (how in _SAME or type[0] == "u"):
        return _UNSIGNED[relation](a, b)
    if is_float(type) or relation not in ("eq", *_UNSIGNED):
        raise ExecutionError(f"inline assembly with setp.{how}.{type}")
    return _ORDERED[relation](a, b)


def _set_predicate(modifiers: Sequence[str], type: str, operands: Registers) -> list[torch.Tensor]:
    """The comparison and its contrary, each combined with a third operand where the instruction says how."""
    a, b = (read(register, type) for register in operands[:2])
    found = _compared(modifiers[0], type, a, b)
    logic = {"and": torch.logical_and, "or": torch.logical_or, "xor": torch.logical_xor}
    combine = next((logic[word] for word in modifiers[1:] if word in logic), None)
    if combine is None:
        return [found, ~found]
    return [combine(found, operands[2]), combine(~found, operands[2])]


# ------------------------------------------------------------------------------------------- conversions

_TO_INTEGRAL: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "rni": torch.round,
    "rzi": torch.trunc,
    "rmi": torch.floor,
    "rpi": torch.ceil,
}


def _convert(modifiers: Sequence[str], target: str, source: str, operands: Registers) -> torch.Tensor:
    if target.endswith("x2") and len(operands) == 2:  # the first operand is the upper half
        upper, lower = (_to_float(modifiers, target, read(register, source)) for register in operands)
        return write(torch.stack((lower, upper), -1).reshape(-1), target)
    register = operands[0]
    if not is_float(source) and register.element_size() > size_of(source):
        register = register.to(dtype_of(source))
    values = read(register, source)
    integral = next((_TO_INTEGRAL[word] for word in modifiers if word in _TO_INTEGRAL), None)
    if is_float(target):
        if is_float(source):
            return write(_to_float(modifiers, target, values if integral is None else integral(values)), target)
        return write((unsigned_to_float if source[0] == "u" else signed_to_float)(values, dtype_of(target)), target)
    if is_float(source):
        whole = values if integral is None else integral(values)
        return (float_to_unsigned if target[0] == "u" else float_to_signed)(whole, dtype_of(target))
    return _extended(values, source[0] != "s").to(dtype_of(target))


def _to_float(modifiers: Sequence[str], target: str, values: torch.Tensor) -> torch.Tensor:
    if "relu" in modifiers:
        values = torch.where(values < 0, torch.zeros_like(values), values)
    if target == "tf32":
        return round_tf32(values)
    found = round_to(values, dtype_of(target), RTZ if "rz" in modifiers else RTNE)
    return saturate(found) if "sat" in modifiers else found

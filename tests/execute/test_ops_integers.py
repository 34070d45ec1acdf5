"""Integer arithmetic against Python's integers, on scalars and on tensors."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest
import torch

from tests.execute.one_op import run, run_all, same

DTYPES = {1: torch.bool, 8: torch.int8, 16: torch.int16, 32: torch.int32, 64: torch.int64}


def edges(bits: int) -> list[int]:
    """Numbers where something happens, as the scalars of that width."""
    if bits == 1:
        return [0, 1]
    top = 1 << (bits - 1)
    odd = {0x55555555_55555555 % top, 1000003 % top, 77 % top}
    return sorted({-top, 1 - top, -7, -2, -1, 0, 1, 2, 3, 7, bits - 1, bits, bits + 1, top - 2, top - 1} | odd)


def cut(value: int, bits: int) -> int:
    """Modulo 2^bits, as a scalar of that width."""
    value %= 1 << bits
    return value - (1 << bits) if bits > 1 and value >> (bits - 1) else value


def s(value: int, bits: int) -> int:
    """The value in signed arithmetic."""
    return -value if bits == 1 else value


def u(value: int, bits: int) -> int:
    """The value in unsigned arithmetic."""
    return value % (1 << bits)


def toward_zero(a: int, b: int) -> int:
    return (abs(a) // abs(b)) * (-1 if (a < 0) != (b < 0) else 1)


Truth = Callable[[int, int, int], int]
BINARY: dict[str, Truth] = {
    "addi": lambda a, b, n: a + b,
    "subi": lambda a, b, n: a - b,
    "muli": lambda a, b, n: a * b,
    "andi": lambda a, b, n: a & b,
    "ori": lambda a, b, n: a | b,
    "xori": lambda a, b, n: a ^ b,
    "divsi": lambda a, b, n: toward_zero(s(a, n), s(b, n)) if b else -1,
    "remsi": lambda a, b, n: s(a, n) - s(b, n) * toward_zero(s(a, n), s(b, n)) if b else a,
    "floordivsi": lambda a, b, n: s(a, n) // s(b, n) if b else -1,
    "ceildivsi": lambda a, b, n: -(-s(a, n) // s(b, n)) if b else -1,
    "divui": lambda a, b, n: u(a, n) // u(b, n) if b else -1,
    "remui": lambda a, b, n: u(a, n) % u(b, n) if b else a,
    "ceildivui": lambda a, b, n: -(-u(a, n) // u(b, n)) if b else -1,
    "shli": lambda a, b, n: a << u(b, min(n, 32)) if u(b, min(n, 32)) < n else 0,
    "shrsi": lambda a, b, n: s(a, n) >> min(u(b, min(n, 32)), n),
    "shrui": lambda a, b, n: u(a, n) >> min(u(b, min(n, 32)), n),
    "maxsi": lambda a, b, n: max(s(a, n), s(b, n)),
    "minsi": lambda a, b, n: min(s(a, n), s(b, n)),
    "maxui": lambda a, b, n: max(u(a, n), u(b, n)),
    "minui": lambda a, b, n: min(u(a, n), u(b, n)),
}
SHIFTS = ("shli", "shrsi", "shrui")


@pytest.mark.parametrize("bits", DTYPES)
@pytest.mark.parametrize("name", BINARY)
def test_two_integers(name: str, bits: int) -> None:
    pairs = list(itertools.product(edges(bits), repeat=2))
    if bits == 1 and name in SHIFTS:
        pairs = [(0, 0), (1, 0)]
    truth = [cut(BINARY[name](a, b, bits), bits) for a, b in pairs]
    type, op = f"i{bits}", f"arith.{name}"
    few = pairs[:: max(1, len(pairs) // 40)]
    assert [run(op, [type, type], type, a, b) for a, b in few] == truth[:: max(1, len(pairs) // 40)]
    a, b = (torch.tensor(column, dtype=DTYPES[bits]) for column in zip(*pairs, strict=True))
    tensors = f"tensor<{len(pairs)}x{type}>"
    assert same(run(op, [tensors, tensors], tensors, a, b), torch.tensor(truth, dtype=DTYPES[bits]))


def test_by_hand() -> None:
    def of(name: str, a: int, b: int, type: str = "i32") -> int:
        return int(run(f"arith.{name}", [type, type], type, a, b))

    assert of("addi", 2**31 - 1, 1) == -(2**31)
    assert of("muli", 2**62, 4, "i64") == 0
    assert of("divsi", -7, 2) == -3 and of("remsi", -7, 2) == -1 and of("remsi", 7, -2) == 1
    assert of("floordivsi", -7, 2) == -4 and of("ceildivsi", -7, 2) == -3 and of("ceildivsi", 7, 2) == 4
    assert of("divsi", -(2**31), -1) == -(2**31) and of("remsi", -(2**31), -1) == 0
    assert of("divui", -1, 2) == 2**31 - 1
    assert of("shrui", -1, 28) == 15 and of("shrsi", -1, 28) == -1 and of("shli", 1, 32) == 0
    assert of("addi", 1, 1, "i1") == 0


# arith's numbers of the predicates
PREDICATES: list[Truth] = [
    lambda a, b, n: a == b,
    lambda a, b, n: a != b,
    lambda a, b, n: s(a, n) < s(b, n),
    lambda a, b, n: s(a, n) <= s(b, n),
    lambda a, b, n: s(a, n) > s(b, n),
    lambda a, b, n: s(a, n) >= s(b, n),
    lambda a, b, n: u(a, n) < u(b, n),
    lambda a, b, n: u(a, n) <= u(b, n),
    lambda a, b, n: u(a, n) > u(b, n),
    lambda a, b, n: u(a, n) >= u(b, n),
]


@pytest.mark.parametrize("bits", DTYPES)
@pytest.mark.parametrize("predicate", range(10))
def test_comparisons(predicate: int, bits: int) -> None:
    pairs = list(itertools.product(edges(bits), repeat=2))
    truth = [bool(PREDICATES[predicate](a, b, bits)) for a, b in pairs]
    type, props = f"i{bits}", f"predicate = {predicate} : i64"
    found = [run("arith.cmpi", [type, type], "i1", a, b, props=props) for a, b in pairs[::5]]
    assert found == truth[::5] and all(isinstance(item, int) for item in found)
    a, b = (torch.tensor(column, dtype=DTYPES[bits]) for column in zip(*pairs, strict=True))
    tensors = f"tensor<{len(pairs)}x{type}>"
    result = run("arith.cmpi", [tensors, tensors], f"tensor<{len(pairs)}xi1>", a, b, props=props)
    assert same(result, torch.tensor(truth))


@pytest.mark.parametrize("bits", [8, 16, 32, 64])
def test_products_in_two_parts(bits: int) -> None:
    pairs = list(itertools.product(edges(bits), repeat=2))
    a, b = (torch.tensor(column, dtype=DTYPES[bits]) for column in zip(*pairs, strict=True))
    type, tensors = f"i{bits}", f"tensor<{len(pairs)}xi{bits}>"
    for name, read in (("arith.mulsi_extended", s), ("arith.mului_extended", u)):
        low, high = run_all(name, [tensors, tensors], [tensors, tensors], a, b)
        truth = [read(x, bits) * read(y, bits) for x, y in pairs]
        assert low.tolist() == [cut(value, bits) for value in truth]
        assert high.tolist() == [cut(value >> bits, bits) for value in truth]
        for (x, y), value in list(zip(pairs, truth, strict=True))[::17]:
            assert run_all(name, [type, type], [type, type], x, y) == (cut(value, bits), cut(value >> bits, bits))
    highs = run("tt.mulhiui", [tensors, tensors], tensors, a, b).tolist()
    assert highs == [cut(u(x, bits) * u(y, bits) >> bits, bits) for x, y in pairs]


def test_sums_with_carry() -> None:
    values = torch.tensor([-1, -1, 5, 2**31 - 1], dtype=torch.int32), torch.tensor([1, 0, 6, 1], dtype=torch.int32)
    types = ["tensor<4xi32>", "tensor<4xi1>"]
    total, carry = run_all("arith.addui_extended", [types[0]] * 2, types, *values)
    assert total.tolist() == [0, -1, 11, -(2**31)] and carry.tolist() == [True, False, False, False]
    assert run_all("arith.addui_extended", ["i32", "i32"], ["i32", "i1"], -1, 1) == (0, 1)


@pytest.mark.parametrize("bits", [8, 16, 32, 64])
def test_counting_bits(bits: int) -> None:
    values = edges(bits)
    tensors = torch.tensor(values, dtype=DTYPES[bits])
    type = f"tensor<{len(values)}xi{bits}>"
    texts = [format(u(value, bits), f"0{bits}b") for value in values]
    truth = {
        "ctpop": [text.count("1") for text in texts],
        "ctlz": [len(text) - len(text.lstrip("0")) for text in texts],
        "cttz": [len(text) - len(text.rstrip("0")) for text in texts],
        "absi": [cut(abs(value), bits) for value in values],
    }
    for name, expected in truth.items():
        assert run(f"math.{name}", [type], type, tensors).tolist() == expected, name
        assert [run(f"math.{name}", [f"i{bits}"], f"i{bits}", value) for value in values] == expected, name


def test_powers() -> None:
    base = torch.tensor([2, -3, 7, 1, -1, -1, 5, 10, 0], dtype=torch.int32)
    exponent = torch.tensor([10, 3, 0, -4, -3, -4, -1, 20, 3], dtype=torch.int32)
    type = "tensor<9xi32>"
    found = run("math.ipowi", [type, type], type, base, exponent)
    assert found.tolist() == [1024, -27, 1, 1, -1, 1, 0, cut(10**20, 32), 0]
    assert run("math.ipowi", ["i64", "i64"], "i64", 3, 5) == 243


def test_widths() -> None:
    def of(name: str, source: str, target: str, value: int) -> int:
        return int(run(f"arith.{name}", [source], target, value))

    assert of("extsi", "i8", "i32", -3) == -3 and of("extui", "i8", "i32", -3) == 253
    assert of("extsi", "i1", "i32", 1) == -1 and of("extui", "i1", "i32", 1) == 1
    assert of("trunci", "i32", "i8", 0x1FF) == -1 and of("trunci", "i32", "i1", 2) == 0
    assert of("index_cast", "i32", "index", -5) == -5 and of("index_castui", "i32", "index", -5) == 2**32 - 5
    bools, bytes = torch.tensor([True, False]), torch.tensor([-3, 127], dtype=torch.int8)
    assert run("arith.extsi", ["tensor<2xi1>"], "tensor<2xi32>", bools).tolist() == [-1, 0]
    assert run("arith.extui", ["tensor<2xi1>"], "tensor<2xi64>", bools).tolist() == [1, 0]
    assert run("arith.extui", ["tensor<2xi8>"], "tensor<2xi64>", bytes).tolist() == [253, 127]
    assert run("arith.extsi", ["tensor<2xi8>"], "tensor<2xi64>", bytes).tolist() == [-3, 127]
    wide = torch.tensor([0x1FF, 2, -(2**31)], dtype=torch.int32)
    assert run("arith.trunci", ["tensor<3xi32>"], "tensor<3xi8>", wide).tolist() == [-1, 2, 0]
    assert run("arith.trunci", ["tensor<3xi32>"], "tensor<3xi1>", wide).tolist() == [True, False, False]

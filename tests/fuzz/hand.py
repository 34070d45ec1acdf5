"""Programs written by hand, for the fuzzer's own tests."""

from __future__ import annotations

from tests.fuzz.case import Case, Launch
from tests.fuzz.program import (
    Arange,
    Assign,
    Bin,
    Buffer,
    Cast,
    Dot,
    Expand,
    Expr,
    Extent,
    For,
    Full,
    If,
    Knob,
    Lit,
    Pid,
    Program,
    PtrStore,
    Reduce,
    Scalar,
    TileLoad,
    TileStore,
    Trans,
    Type,
    Un,
    Var,
)

M, N, K = 128, 64, 64  # the tile
I32, F32 = Type("i32"), Type("fp32", (M, N))
ROW, STEP, ACC = Var("row", I32), Var("i", I32), Var("acc", F32)
HIGH, DEEP = Extent((("high", M),)), Extent((("trips", K),), 0, K)


def whole(value: int) -> Lit:
    return Lit(value, "i32")


def tile(buffer: str, row: Expr, column: Expr, rows: int, columns: int, dtype: str = "fp16") -> TileLoad:
    return TileLoad(buffer, (row, column), Type(dtype, (rows, columns)))


def product(update: Expr | None = None, dtype: str = "fp16") -> Program:
    """A [high * M, trips * K] times B [trips * K, N]. `update` is the accumulator's next value, instead of a dot."""
    a, b = tile("a", ROW, STEP, M, K, dtype), tile("b", STEP, whole(0), K, N, dtype)
    body = (
        Assign("row", Bin("*", Pid(0), whole(M))),
        Assign("acc", Full((M, N), 0.0, "fp32")),
        For("i", whole(0), Var("k", I32), whole(K), (Assign("acc", update or Dot(a, b, ACC)),)),
        TileStore("c", (ROW, whole(0)), ACC),
    )
    buffers = (
        Buffer("a", dtype, (HIGH, DEEP), "host", (M, K)),
        Buffer("b", dtype, (DEEP, Extent(constant=N)), "host", (K, N)),
        Buffer("c", "fp32", (HIGH, Extent(constant=N)), "host", (M, N), output=True),
    )
    knobs = Knob("high", (1, 2)), Knob("trips", (1, 0, 2, 5))
    return Program(knobs, (Extent((("high", 1),)),), (Scalar("k", "i32", Extent((("trips", K),))),), buffers, body)


def attention() -> Program:
    """Q [high * M, K] meets keys and values [trips * K, K] with an online softmax; row sums go through pointers."""
    vector = Type("fp32", (M,))
    q, s, p = (Var(name, Type(dtype, (M, K))) for name, dtype in (("q", "bf16"), ("s", "fp32"), ("p", "fp32")))
    top, total, new, decay = (Var(name, vector) for name in ("top", "total", "new", "decay"))
    keys, values = tile("keys", STEP, whole(0), K, K, "bf16"), tile("values", STEP, whole(0), K, N, "bf16")
    loop = (
        Assign("s", Dot(q, Trans(keys))),
        Assign("new", Bin("max", top, Reduce("max", s, 1))),
        Assign("p", Un("exp2", Bin("-", s, Expand(new, 1)))),
        Assign("decay", Un("exp2", Bin("-", top, new))),
        Assign("total", Bin("+", Bin("*", total, decay), Reduce("sum", p, 1))),
        Assign("acc", Dot(Cast(p, "bf16"), values, Bin("*", ACC, Expand(decay, 1)))),
        Assign("top", new),
    )
    body = (
        Assign("row", Bin("*", Pid(0), whole(M))),
        Assign("q", tile("q", ROW, whole(0), M, K, "bf16")),
        Assign("top", Full((M,), -1024.0, "fp32")),
        Assign("total", Full((M,), 0.0, "fp32")),
        Assign("acc", Full((M, N), 0.0, "fp32")),
        For("i", whole(0), Var("k", I32), whole(K), loop),
        If(Bin(">", Var("k", I32), whole(0)), (Assign("acc", Bin("/", ACC, Expand(total, 1))),)),
        TileStore("out", (ROW, whole(0)), ACC),
        PtrStore("sums", Bin("+", ROW, Arange(M)), total),
    )
    buffers = (
        Buffer("q", "bf16", (HIGH, Extent(constant=K)), "host", (M, K)),
        Buffer("keys", "bf16", (DEEP, Extent(constant=K)), "host", (K, K)),
        Buffer("values", "bf16", (DEEP, Extent(constant=N)), "host", (K, N)),
        Buffer("out", "fp32", (HIGH, Extent(constant=N)), "host", (M, N), output=True),
        Buffer("sums", "fp32", (HIGH,), "pointer", output=True),
    )
    knobs = Knob("high", (1, 2)), Knob("trips", (1, 0, 2, 5))
    return Program(knobs, (Extent((("high", 1),)),), (Scalar("k", "i32", Extent((("trips", K),))),), buffers, body)


def case(program: Program, *trips: int, normal: bool = False, thorough: bool = False, **options: object) -> Case:
    """The program with one launch for each number of iterations."""
    launches = tuple(Launch({"high": 2, "trips": count}, count, not normal) for count in trips or (0, 1, 2, 5))
    return Case(program, 8, 3, {"gate": "off", **options}, launches, thorough)

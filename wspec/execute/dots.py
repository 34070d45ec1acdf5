"""Matrix products, as tensor cores are taken to make them.

A product goes along K in steps of one instruction, which takes 32 bytes of a row (16 numbers of 16 bits). The sum of a
step and what came before is made in float64, as good as exact for operands of 16 and 8 bits, and rounded to the
result's type. So it is the same however a tile is sliced, and however K is divided between dots. A card rounds (or
truncates) within a step too, with fp8 operands to fewer bits (`maxNumImpreciseAcc`); nobody documents how, so results
agree within that error and not bit by bit. Integers are exact and wrap.
"""

from __future__ import annotations

import torch

from wspec.execute.context import Item, Prepare, typed
from wspec.execute.elements import dtype_of
from wspec.execute.errors import ExecutionError
from wspec.execute.rounding import double, round_to, truncate_tf32
from wspec.ir.core import Operation

TF32, TF32X3, IEEE, BF16X3, BF16X6 = range(5)  # inputPrecision
STEP_BYTES = 32  # of a row of A, which one instruction multiplies


def dot(
    a: torch.Tensor,
    b: torch.Tensor,
    acc: torch.Tensor | None,
    *,
    input_precision: int = IEEE,
    dtype: torch.dtype | None = None,
) -> torch.Tensor:
    """a @ b + acc, of type `dtype` (acc's when not given); without `acc` it is zero.

    a: (..., M, K), b: (..., K, N), acc: (..., M, N). `input_precision`, the attribute of that name, matters to f32
    operands only.
    """
    result = dtype if dtype is not None else None if acc is None else acc.dtype
    if result is None:
        raise ExecutionError("a dot without an accumulator needs the type of its result")
    if not a.dtype.is_floating_point:
        return _integers(a, b, acc, result)
    depth, step = a.shape[-1], STEP_BYTES // a.element_size()
    single = a.dtype == torch.float32 and b.dtype == torch.float32
    left, right = (a, b) if single else (double(a), double(b))
    total = acc
    for k in range(0, max(depth, 1), step):
        one, other = left[..., k : k + step], right[..., k : k + step, :]
        product = _single(one, other, input_precision) if single else one @ other
        total = round_to(product if total is None else product.add_(total), result)
    assert total is not None
    return total


def _integers(a: torch.Tensor, b: torch.Tensor, acc: torch.Tensor | None, dtype: torch.dtype) -> torch.Tensor:
    """8-bit products in float64 are exact up to a K of 2^39."""
    if a.dtype != torch.int8 or b.dtype != torch.int8:
        raise ExecutionError(f"tensor cores multiply 8-bit integers, not {a.dtype} and {b.dtype}")
    total = (a.to(torch.float64) @ b.to(torch.float64)).to(torch.int64)
    return (total if acc is None else total + acc).to(dtype)


def _single(a: torch.Tensor, b: torch.Tensor, precision: int) -> torch.Tensor:
    """The product of f32 operands, in float64.

    tf32: the tensor cores read the upper 19 bits of the registers. tf32x3, bf16x3, bf16x6: sums of products of parts,
    the smallest products left out.
    """
    if precision == TF32:
        return double(truncate_tf32(a)) @ double(truncate_tf32(b))
    if precision == TF32X3:
        return _of_parts(_parts(a, 2, torch.float32), _parts(b, 2, torch.float32), 1)
    if precision in (BF16X3, BF16X6):
        parts = 2 if precision == BF16X3 else 3
        return _of_parts(_parts(a, parts, torch.bfloat16), _parts(b, parts, torch.bfloat16), parts - 1)
    if precision == IEEE:
        return double(a) @ double(b)
    raise ExecutionError(f"an input precision that the executor does not know: {precision}")


def _parts(values: torch.Tensor, count: int, dtype: torch.dtype) -> list[torch.Tensor]:
    """`values` as a sum of short floats, the largest first."""
    found, rest = [], values
    for _ in range(count):
        short = truncate_tf32(rest) if dtype == torch.float32 else rest.to(dtype).to(torch.float32)
        found.append(double(short))
        rest = rest - short
    return found


def _of_parts(a: list[torch.Tensor], b: list[torch.Tensor], rank: int) -> torch.Tensor:
    """The products of parts i and j with i + j <= rank, the smallest first."""
    pairs = [(i, j) for i in range(len(a)) for j in range(len(b)) if i + j <= rank]
    products = [a[i] @ b[j] for i, j in sorted(pairs, key=lambda pair: -sum(pair))]
    total = products[0]
    for product in products[1:]:
        total = total + product
    return total


def _dot(op: Operation) -> Item:
    given, result = op.int_attr("inputPrecision"), dtype_of(op.result.type)
    precision = IEEE if given is None else given
    return lambda a, b, acc: dot(a, b, acc, input_precision=precision, dtype=result)


HANDLERS: dict[str, Prepare] = {"tt.dot": typed(_dot)}

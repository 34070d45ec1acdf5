"""The named barriers of inline assembly as steps of a task: how often a thread runs it hangs on the layout."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from wspec.check import code as c
from wspec.check.assembly import meaning, text_of
from wspec.ir.core import Operation
from wspec.ir.types import Layout, TensorType, Type

_MOST = 64  # meetings of one assembly in a thread


def steps(op: Operation, alone: int) -> Iterator[c.Step]:
    """What a task does there. `alone`: how many threads the block has where no others are, else 0."""
    found = meaning(text_of(op))
    runs = _runs(op) if found.meetings else 1
    pure = op.attr("pure") is not None and str(op.attr("pure")) not in ("0 : i1", "false")
    why = found.unknown
    if found.meetings and pure:
        why = "inline assembly that synchronizes is marked as pure: it may be left out, or run more often"
    elif runs is None or runs * len(found.meetings) > _MOST:
        why = "how often this assembly, which synchronizes, runs in a thread is not followed"
    elif any(one.threads is None for one in found.meetings) and not alone:
        why = "a barrier of all threads of the block among tasks is not followed"
    if why:
        yield c.Stuck(op, "unknown-operation", why)
        return
    for one in found.meetings * (runs or 1):
        yield c.Named(op, one.number, alone if one.threads is None else one.threads, one.waits)


def _runs(op: Operation) -> int | None:
    """How often a thread runs the assembly; None where that is not known."""
    types = {value.type for value in (*op.results, *op.operands)}
    tensors = [type for type in types if isinstance(type, TensorType)]
    if not tensors:
        return 1
    packed = op.int_attr("packed_element") or 1
    counts = {_elements(type) for type in tensors}
    count = counts.pop() if len(counts) == 1 else None
    return None if count is None or count % packed else count // packed


def _elements(type: Type) -> int | None:
    """Elements of a tensor that a thread holds, where its layout covers it an even number of times."""
    if not isinstance(type, TensorType) or not isinstance(type.encoding, Layout):
        return None
    if type.encoding.name != "ttg.blocked":
        return None
    sizes, threads, warps = (type.encoding.ints(f) for f in ("sizePerThread", "threadsPerWarp", "warpsPerCTA"))
    return _product(type.shape, sizes, threads, warps)


def _product(shape: Sequence[int], *layout: Sequence[int]) -> int | None:
    count = 1
    for size, *parts in zip(shape, *layout, strict=True):
        each, threads, warps = parts
        if size % (each * threads * warps):
            return None
        count *= size // (threads * warps)
    return count

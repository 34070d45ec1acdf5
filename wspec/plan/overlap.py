"""Which arguments of a kernel must not share memory when its tasks run beside each other.

A kernel loads and stores in one order, that of its program. Once it is divided, a producer loads ahead of stores, two
groups of warps load the same scalar at different times, and a store waits for its turn in shared memory. Where both go
through one argument the kernel is left alone (partition.py). Where they go through different ones nothing happens
unless a caller passes memory that overlaps: that is compared at each launch, and the plain kernel runs where it does.
"""

from __future__ import annotations

from collections.abc import Sequence

from wspec.ir.core import Block, Operation, Value
from wspec.ir.disjoint import Disjoint, Pair
from wspec.ir.loc import value_name
from wspec.plan.graph import LOADS, STORES, memory_base


def disjoint_arguments(function: Operation) -> Disjoint:
    """What a specialized form of the kernel, before anything is done to it, takes for granted of its arguments.

    Each argument that is stored through, with every other one that is loaded or stored through. Arguments that the
    compiler adds behind those of the kernel are the launcher's own.
    """
    args = function.regions[0].block.args
    loaded = _bases(function, LOADS)
    stored = _bases(function, STORES)
    pairs = {_pair(one, other) for one in stored for other in loaded | stored if one != other}
    return Disjoint(frozenset(pairs), own=len(args))


def in_words(function: Operation, compared: Sequence[Pair]) -> str:
    """What is compared at a launch, as a sentence with the arguments' names in the source; empty where nothing is."""
    if not compared:
        return ""
    names = [value_name(arg.location) or f"argument {at}" for at, arg in enumerate(function.regions[0].block.args)]
    pairs = ", ".join(f"{names[one]} and {names[other]}" for one, other in compared)
    return f"a launch compares where these arguments lie, and runs the plain kernel if two share memory: {pairs}"


def _pair(one: int, other: int) -> Pair:
    return min(one, other), max(one, other)


def _bases(function: Operation, names: frozenset[str]) -> set[int]:
    """The arguments that operations of these names go through."""
    found = [memory_base(op) for op in function.walk() if op.name in names]
    return {value.index for value in found if value is not None and _is_argument(value, function)}


def _is_argument(value: Value, function: Operation) -> bool:
    return isinstance(value.owner, Block) and value.owner is function.regions[0].block

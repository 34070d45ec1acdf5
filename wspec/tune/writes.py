"""Which arguments a kernel writes through: what must be copied before the kernel may be run on trial."""

from __future__ import annotations

from wspec.ir.core import Operation
from wspec.ir.loc import value_name
from wspec.ir.ops import info, is_pure
from wspec.plan.graph import LOADS, STORES, memory_base


def written_arguments(function: Operation) -> frozenset[str] | None:
    """The names of the parameters; None where it cannot be told: a pointer from memory, an operation not known."""
    arguments = set(function.regions[0].block.args)
    found: set[str] = set()
    for op in function.walk():
        if op.name in STORES:
            base = memory_base(op)
            name = value_name(base.location) if base is not None and base in arguments else None
            if name is None:
                return None
            found.add(name)
        elif _unknown(op):
            return None
    return frozenset(found)


def _unknown(op: Operation) -> bool:
    """May the operation write what it does not say?"""
    if op.name == "tt.elementwise_inline_asm":
        return not is_pure(op)
    return info(op.name) is None and op.name not in _KNOWN and not op.regions


_KNOWN = LOADS | {"tt.return", "scf.yield", "tt.reduce.return", "tt.scan.return"}

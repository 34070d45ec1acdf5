"""Every mutant of a specialized module: copies of its IR with one change each.

It reads the IR and nothing else: not the plan, not the passes. `mutants(module)` enumerates, `Mutant.build()` makes the
module, which may turn out not to be valid IR; `built` says so.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from tests.mutants import drops, numbers, places, positions, swaps
from tests.mutants.edits import Mutant, Operator
from tests.mutants.facts import Kernel
from wspec.ir.core import Operation
from wspec.ir.verify import verify

OPERATORS: tuple[Operator, ...] = (
    *drops.OPERATORS,
    *numbers.OPERATORS,
    *positions.OPERATORS,
    *swaps.OPERATORS,
    *places.OPERATORS,
)
BY_NAME = {operator.name: operator for operator in OPERATORS}


def mutants(module: Operation, operators: Collection[str] = ()) -> Iterator[Mutant]:
    """All mutants by these operators, by all when none are named. Raises KeyError for an operator that is not there."""
    kernel = Kernel(module)
    for operator in [BY_NAME[name] for name in operators] or OPERATORS:
        for number, edit in enumerate(operator.find(kernel)):
            yield Mutant(operator.name, module, edit, number)


def built(mutant: Mutant) -> Operation | None:
    """The mutant's module; None when the change leaves no valid IR."""
    module = mutant.build()
    return None if verify(module) else module

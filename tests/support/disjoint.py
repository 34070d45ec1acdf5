"""What tests take for granted of arguments: no two overlap, and nothing else reaches the launcher's own memory."""

from __future__ import annotations

from wspec.ir.core import Operation
from wspec.ir.disjoint import Disjoint
from wspec.ir.loc import value_name
from wspec.tile_scheduler import PARTIALS, TABLE


def all_apart(module: Operation) -> Disjoint:
    """For the arguments of the module's function."""
    function = next(op for op in module.walk() if op.name == "tt.func")
    names = [value_name(argument.location) for argument in function.regions[0].blocks[0].args]
    own = next((at for at, name in enumerate(names) if name in (TABLE, PARTIALS)), None)
    return Disjoint(own=own, every=True)

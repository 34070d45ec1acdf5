"""What a mutation is: one change to a copy of a module, with a name that says what was changed where."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from tests.mutants.facts import Kernel
from wspec.ir.builder import Builder
from wspec.ir.core import Operation, Value, replace_uses
from wspec.ir.loc import file_loc


class Twin:
    """A copy of a module; operations and values are spoken of by those of the original."""

    def __init__(self, module: Operation) -> None:
        self._values: dict[Value, Value] = {}
        self.module = module.clone(self._values)
        self._ops = dict(zip(module.walk(), self.module.walk(), strict=True))

    def op(self, op: Operation) -> Operation:
        """The copy's counterpart of an operation of the original."""
        return self._ops[op]

    def value(self, value: Value) -> Value:
        """The copy's counterpart of a value of the original."""
        return self._values[value]

    def before(self, op: Operation) -> Builder:
        """A builder right before the counterpart of `op`."""
        found = self._ops[op]
        assert found.parent is not None
        return Builder(found.parent, found.parent.ops.index(found), found.location)

    def behind(self, op: Operation) -> Builder:
        """A builder right behind it."""
        build = self.before(op)
        assert build.at is not None
        build.at += 1
        return build

    def replace(self, old: Value, new: Value) -> None:
        """Every use of `old`, a value of the original, becomes `new`, a value of the copy."""
        replace_uses(self.module, {self._values[old]: new})

    def set_operand(self, op: Operation, index: int, new: Value) -> None:
        """Operand `index` of the counterpart of `op` becomes `new`, a value of the copy."""
        self._ops[op].operands[index] = new

    def move_before(self, ops: Iterable[Operation], place: Operation) -> None:
        """The counterparts of `ops`, in their order, to right before that of `place`."""
        for op in ops:
            moved = self._ops[op]
            moved.erase()
            self.before(place).add(moved)

    def move_behind(self, op: Operation, place: Operation) -> None:
        """The counterpart of `op` to right behind that of `place`."""
        moved = self._ops[op]
        moved.erase()
        self.behind(place).add(moved)


@dataclass(frozen=True, slots=True)
class Edit:
    """A change to be made: `change(twin, op, *arguments)`, where operations and values are those of the original."""

    op: Operation
    what: str  # tells it from the other changes its operator makes to `op`; may be empty
    change: Callable[..., None]
    arguments: tuple[Any, ...] = ()

    def make(self, twin: Twin) -> None:
        self.change(twin, self.op, *self.arguments)


def edit(op: Operation, what: str, change: Callable[..., None], *arguments: Any) -> Edit:
    """An edit, with the arguments one by one."""
    return Edit(op, what, change, arguments)


@dataclass(frozen=True, slots=True)
class Operator:
    """A kind of change. `find` enumerates all changes of the kind that a kernel allows."""

    name: str
    about: str
    find: Callable[[Kernel], Iterator[Edit]]
    about_order: bool = True  # what it breaks shows in the order of accesses, not in values or resources alone


@dataclass(frozen=True, slots=True)
class Mutant:
    """One change to one kernel. `build` makes it; the original stays as it is."""

    operator: str
    original: Operation
    edit: Edit
    number: int  # among those of its operator and kernel, from 0

    @property
    def name(self) -> str:
        """Unique within the kernel: `early-release.7`."""
        return f"{self.operator}.{self.number}"

    @property
    def line(self) -> int:
        """The line of the user's source that the change is about; 0 where there is none."""
        place = file_loc(self.edit.op.location)
        return place.line if place is not None else 0

    def build(self) -> Operation:
        """A fresh module with the change made. It may be invalid IR."""
        twin = Twin(self.original)
        self.edit.make(twin)
        return twin.module

    def __str__(self) -> str:
        what = f" ({self.edit.what})" if self.edit.what else ""
        return f"{self.name}: {self.edit.op.name}{what}, line {self.line}"

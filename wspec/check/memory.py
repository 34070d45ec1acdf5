"""Allocations and views as bytes: which of them share memory, and at which address a barrier stands.

Scratch of an operation is an allocation too, as far as its bytes are another's. Within an allocation, parts are told
apart by the indices taken of it and by boxes; between allocations, and for what is seen as something else, by bytes.
"""

from __future__ import annotations

import math

from wspec.check import code as c
from wspec.check.clock import Once, look
from wspec.check.names import Names
from wspec.ir.core import Operation, Value
from wspec.ir.shared_memory import Area, size_bytes
from wspec.ir.types import MemDescType, ScalarType

BARRIER_BYTES = 8
_PRECISE = ("ttg.memdesc_index", "ttg.memdesc_subslice")


class Memory:
    """Of one program. Without a placement every allocation has memory of its own."""

    def __init__(self, program: c.Program, names: Names) -> None:
        self.program, self.names = program, names
        areas = program.placement.areas if program.placement is not None else {}
        self._areas = [areas.get(op) for op in program.roots]
        self._barriers: dict[c.View, c.View | None] = {}  # what `barrier` said
        roots = range(len(program.roots))
        self.beside = [tuple(other for other in roots if other != root and self._share(root, other)) for root in roots]
        filled = {root for code in program.codes for step in code.steps for root in _data(step, names)}
        self.mixed = frozenset(root for root in names.barriers if self.beside[root] or root in filled)
        self.under = [  # of each allocation: those with barriers that may be among its bytes
            tuple(other for other in (root, *self.beside[root]) if other in self.mixed) for root in roots
        ]

    def _share(self, root: int, other: int) -> bool:
        look()
        one, two = self._areas[root], self._areas[other]
        return one is not None and two is not None and one.overlaps(two)

    def area(self, view: c.View) -> Area:
        """Its bytes, or more: of the block when the placement is known, else of the allocation."""
        base = self._areas[view.root] or Area(0, self._size(view.root))
        part = self._part(view)
        return base if part is None else Area(base.start + part.start, base.start + part.stop)

    def share_bytes(self, view: c.View, other: c.View) -> bool:
        """May two views of different allocations share bytes?"""
        look()
        return self.area(view).overlaps(self.area(other))

    def covers(self, view: c.View, other: c.View) -> bool:
        """Are all the bytes of another allocation's view among those of this one?"""
        one, two = self.area(view), self.area(other)
        exact = not view.box and not view.whole
        return exact and one.start <= two.start and two.stop <= one.stop

    def barrier(self, view: c.View) -> c.View | None:
        """The barrier at the beginning of a view, however it is seen: its number among the words; None: unknown."""
        if view not in self._barriers:
            self._barriers[view] = self._beginning(view)
        return self._barriers[view]

    def _beginning(self, view: c.View) -> c.View | None:
        part = self._part(view)
        if part is None or view.offset is None:
            return None
        start = part.start + view.offset
        if view.box:
            shape = self._shape(view.root)[len(view.path) :]
            if len(shape) != len(view.box) or self._bits(view.root) != 8 * BARRIER_BYTES:
                return None
            start += sum(at * math.prod(shape[i + 1 :]) for i, (at, _) in enumerate(view.box)) * BARRIER_BYTES
        return None if start % BARRIER_BYTES else c.View(view.root, (start // BARRIER_BYTES,))

    def barrier_area(self, key: c.View) -> Area:
        """The bytes of a barrier by its number."""
        base = self._areas[key.root] or Area(0, self._size(key.root))
        start = base.start + BARRIER_BYTES * key.path[0]
        return Area(start, start + BARRIER_BYTES)

    def overlaps_barrier(self, view: c.View, key: c.View) -> bool:
        """May a view share bytes with a barrier? Those of different allocations without a placement do not."""
        if view.root != key.root and key.root not in self.beside[view.root]:
            return False
        return self.area(view).overlaps(self.barrier_area(key))

    def is_words(self, root: int) -> bool:
        """Is an allocation one of barriers, or of integers of their size?"""
        return self._type(root) is not None and self._bits(root) == 8 * BARRIER_BYTES

    # ---- sizes

    def _type(self, root: int) -> MemDescType | None:
        op = self.program.roots[root]
        type = op.results[0].type if op.results else None
        return type if op.name == "ttg.local_alloc" and isinstance(type, MemDescType) else None

    def _shape(self, root: int) -> tuple[int, ...]:
        type = self._type(root)
        return type.shape if type is not None else ()

    def _bits(self, root: int) -> int:
        type = self._type(root)
        return type.element.bits if type is not None and isinstance(type.element, ScalarType) else 64

    def _size(self, root: int) -> int:
        type = self._type(root)
        return size_bytes(type) if type is not None else 0

    def _part(self, view: c.View) -> Area | None:
        """The bytes of the allocation that the indices of a view leave; None: the allocation is not of that kind."""
        shape, bits = self._shape(view.root), self._bits(view.root)
        if len(view.path) > len(shape) or (view.path and self._padded(view.root)):
            return None
        start = sum(at * math.prod(shape[i + 1 :]) for i, at in enumerate(view.path)) * bits // 8
        return Area(start, start + math.prod(shape[len(view.path) :]) * bits // 8) if shape else None

    def _padded(self, root: int) -> bool:
        type = self._type(root)
        return type is not None and "padded" in str(type.encoding)


def narrowed(op: Operation, names: Names) -> bool:
    """Does an operation touch a part of what is seen as something else, or what is seen as something else of a part, so
    that which bytes it is about is a guess?"""
    pending = Once((value, False, False) for value in op.operands if isinstance(value.type, MemDescType))
    for value, part, other in pending:
        maker = value.op
        if maker is not None and maker.name.startswith("ttg.memdesc_"):
            smaller = size_bytes(_memdesc(maker.result)) < size_bytes(_memdesc(maker.operands[0]))
            same = maker.name in _PRECISE
            guessed = smaller or part if not same else smaller and other and maker.name == "ttg.memdesc_subslice"
            if guessed:
                return True
            pending.add([(maker.operands[0], part or smaller, other or not same)])
        elif maker is None or maker.name != "ttg.local_alloc":
            pending.add((source, part, other) for source in names.flow.sources(value))
    return False


def _memdesc(value: Value) -> MemDescType:
    assert isinstance(value.type, MemDescType)
    return value.type


def _data(step: c.Step, names: Names) -> frozenset[int]:
    """The allocations that a step uses for something else than barriers."""
    found: frozenset[int] = frozenset()
    if isinstance(step, c.Access | c.StoreTile | c.CopyElements | c.Dot | c.Copy):
        buffers = [value for value in step.op.operands if isinstance(value.type, MemDescType)]
        for value in buffers[1:] if isinstance(step, c.Copy) else buffers:
            found |= names.may_be(value)
    return found

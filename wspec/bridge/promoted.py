"""Launching a kernel whose pointers became tensor descriptors: they are made here, of the arguments a launch has.

For each grid and set of integers the compiler's `Promotion` says once what extents and strides are, or why the kernel
must run as its author wrote it. After that a launch looks at addresses alone: a descriptor's must be a multiple of 16.
Where the tiles alone that go to products can be boxes in a launch, it has a binary in which no others are.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from triton.runtime.driver import driver
from triton.tools.tensor_descriptor import TensorDescriptor

from wspec.bridge.files import kernel_location
from wspec.bridge.frontend import KernelSource
from wspec.bridge.ground import Grounds, grounds
from wspec.bridge.launch import Run, around
from wspec.bridge.launcher import AtAddress, keep
from wspec.bridge.overlap_guard import Plain, Tell, places
from wspec.bridge.recording import Derived, recording
from wspec.bridge.slots import BEFORE, reader, slots_of
from wspec.diagnostics import Remark
from wspec.host_descriptors import ALIGNMENT, Ground, Made, Promotion

MOST = 4096  # launches that are remembered
Load = Callable[[KernelSource, str], Any | None]  # it is given why a launch needs it
_WHY = "not-promoted"


def with_descriptors(source: KernelSource, promotion: Promotion | None) -> KernelSource:
    """The source with the arguments that the launch adds."""
    if promotion is None:
        return source
    ast = copy.copy(source.ast)
    ast.signature = {**source.ast.signature, **{one.name: one.type for one in promotion.descriptors}}
    return replace(source, ast=ast)


def promoted(
    kernel: Any, source: KernelSource, promotion: Promotion | None, tell: Tell, fewer: Load | None = None
) -> Any:
    """The kernel, which is given its descriptors, or has the plain one launched where they would be others.

    `tell` is given a remark the first time; what it raises, the launch raises. `fewer`: what is launched where only
    those of tiles that go to products would not.
    """
    if promotion is None:
        return kernel
    made, plain = Descriptors(source, promotion), Plain(source, tell)
    others = Fewer(source, tell, fewer)
    return around(kernel, lambda launch: _with_descriptors(launch, made, plain, others))


def _with_descriptors(launch: Run, made: Descriptors, plain: Plain, fewer: Fewer) -> Run:
    def run(x: int, y: int, z: int, stream: int, function: Any, packed: Any, *rest: Any) -> None:
        found = made.of((x, y, z), rest)
        if recording.count and (now := recording.now) is not None:
            now.derived = made.derived(found, (x, y, z), rest)
            now.once |= now.derived is None
            now.alone = True
        if isinstance(found, _OfOthers) and fewer.is_there(found):
            fewer.start((x, y, z), stream, rest)
        elif isinstance(found, str):
            plain.launch(_WHY, lambda: made.remark(found), (x, y, z), stream, rest)  # told once, whatever the numbers
        else:
            launch(x, y, z, stream, function, packed, *rest, *found)

    return run


class _OfOthers(str):
    """Why a launch cannot have descriptors of tiles that go to no product; it can have the others."""

    __slots__ = ()


class Fewer(Plain):
    """The binary in which only tiles that go to products are boxes, compiled when it is first needed."""

    def __init__(self, source: KernelSource, tell: Tell, load: Load | None) -> None:
        super().__init__(source, tell)
        self._load = load

    def is_there(self, why: str) -> bool:
        """Has the kernel such a binary? It is looked for once, for a launch that needs it, which says why."""
        with self.lock:
            if self.kernel is None and self._load is not None:
                self.kernel, self._load = self._load(self.source, why), None
        return self.kernel is not None


_Shape = tuple[int, dict[str, Any], Ground | None]
"""Bytes from the argument's address to the descriptor's, the descriptor without its address, and whether it must begin
in memory."""


class Descriptors:
    """What a kernel's launches pass."""

    def __init__(self, source: KernelSource, promotion: Promotion) -> None:
        self.source, self.promotion = source, promotion
        slots, at = slots_of(source.ast.signature), places(source.ast.signature)
        self._slots = [(position, slots[position]) for position in promotion.parameters]
        self._read = reader([slot for _, slot in self._slots], BEFORE)
        self._pointers = [BEFORE + at[one.argument][1][0] for one in promotion.descriptors]
        self._made: dict[tuple[int, ...], Sequence[_Shape] | str] = {}

    def of(self, grid: tuple[int, int, int], rest: Sequence[Any]) -> list[Any] | str:
        """The descriptors of a launch with what comes behind its packed metadata; or why there are none."""
        key = (*grid, *self._read(rest))
        shapes = self._made.get(key)
        if shapes is None:
            shapes = self._shapes(grid, key[3:])
            keep(self._made, key, shapes, MOST)
        if isinstance(shapes, str):
            return shapes
        found = []
        for at, (offset, fields, ground) in zip(self._pointers, shapes, strict=True):
            given, address = rest[at], _address(rest[at])
            if address <= 0 or (address + offset) % ALIGNMENT:
                return f"an address is no multiple of {ALIGNMENT}"
            if address + offset <= 0:
                return "a descriptor would begin before the first address"
            descriptor = object.__new__(TensorDescriptor)
            descriptor.__dict__.update(fields)
            if ground is not None:
                steps = _grounds().steps(address + offset, ground)
                if steps is None:
                    return "there is no memory so far before a tensor that a descriptor could begin in"
                descriptor.shape = [*fields["shape"]]
                descriptor.shape[ground.dim] += 2 * steps
                offset -= steps * ground.step
            descriptor.base = AtAddress(address + offset) if offset or given is address else given
            found.append(descriptor)
        return found

    def derived(self, found: list[Any] | str, grid: tuple[int, int, int], rest: Sequence[Any]) -> list[Derived] | None:
        """What such a launch, of which `of` found that, made; nothing where it is the plain kernel's. None where that
        is because of addresses.

        What an address is a multiple of is the same for all: Triton makes other binaries for others.
        """
        shapes = self._made.get((*grid, *self._read(rest)))
        if shapes is None or isinstance(found, str):
            return [] if isinstance(shapes, str) else None
        behind = enumerate(zip(self._pointers, found, shapes, strict=True), len(rest) - BEFORE)
        made = []
        for place, (at, descriptor, (_, _, ground)) in behind:
            offset = descriptor.base.data_ptr() - _address(rest[at])
            begins = _grounds().is_there if ground is not None else None
            made.append(Derived(place, at - BEFORE, offset, begins))
        return made

    def _shapes(self, grid: tuple[int, int, int], numbers: Sequence[int]) -> Sequence[_Shape] | str:
        values = {position: number for (position, _), number in zip(self._slots, numbers, strict=True)}
        made = self.promotion.of(grid, values)
        if isinstance(made, str):
            return _OfOthers(made) if self.promotion.has_operands(grid, values) else made
        blocks = [descriptor.block for descriptor in self.promotion.descriptors]
        return [_fields(one, block) for one, block in zip(made, blocks, strict=True)]

    def remark(self, why: str) -> Remark:
        """For a launch that runs the plain kernel."""
        message = f"{self.source.name} runs as it was written in this launch: {why}"
        note = "the specialized kernel loads its tiles through tensor descriptors, which are not the same there"
        return Remark(_WHY, message, kernel_location(self.source), note=note)


def _address(given: Any) -> int:
    """Of a tensor, or what is one; 0 of what is neither."""
    return given if type(given) is int else getattr(given, "data_ptr", int)()


def _grounds() -> Grounds:
    return grounds(driver.active.get_current_device())


def _fields(made: Made, block: tuple[int, ...]) -> _Shape:
    whole = TensorDescriptor.__dataclass_fields__
    known: dict[str, Any] = {"shape": list(made.shape), "strides": list(made.strides), "block_shape": list(block)}
    others = {name: field.default for name, field in whole.items() if name not in known and name != "base"}
    return made.offset, {**others, **known}, made.ground

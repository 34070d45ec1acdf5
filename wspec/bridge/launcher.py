"""The last step of a launch: a kernel's arguments in memory as the driver takes them, and one call of the driver.

Triton's launcher takes a list of Python objects apart at every launch and encodes each descriptor anew. Here memory
for the arguments is laid out once for a compiled kernel. A descriptor's tensor map stays as long as its shape and
strides do, and its address alone is written: it is the first eight bytes of a map, which is looked at before it is
relied on. What is out of the ordinary (hooks, clusters, memory of a profiler, a launcher that is not known) goes
Triton's way.
"""

from __future__ import annotations

import ctypes
import dataclasses
import functools
import inspect
import itertools
import struct
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from triton.backends.nvidia import driver as nvidia
from triton.knobs import HookChain
from triton.tools.tensor_descriptor import TensorDescriptor

from wspec.bridge import cuda
from wspec.bridge.cuda import MAP_ALIGNMENT, MAP_BYTES
from wspec.bridge.recording import recording
from wspec.bridge.slots import rank_of
from wspec.bridge.tensor_maps import Layout, TensorMaps, Unlike, legal_strides
from wspec.bridge.versions.internals import internal

_allocation = internal("triton.runtime", "_allocation")
Run = Callable[..., None]
_SCALARS = {
    "i1": "b", "i8": "b", "i16": "h", "i32": "i", "i64": "q", "u1": "B", "u8": "B", "u16": "H", "u32": "I", "u64": "Q",
    "fp16": "e", "fp32": "f", "f32": "f", "fp64": "d",
}  # fmt: skip
"""Of a type in a kernel's signature, how `struct` writes it."""

_CONFIG = "7I4xQQI4x"  # cuda.Config
_SHAPE = [field.name for field in dataclasses.fields(TensorDescriptor) if field.name not in ("base", "block_shape")]
"""What a tensor map is made of beside the address and what the kernel's type says."""


@dataclasses.dataclass(frozen=True, slots=True)
class Starts:
    """What launches a kernel, by when its blocks start."""

    early: Run  # while the kernels before them in the stream may still run
    behind: Run  # when those are over, and what they wrote is there to be read
    block: Block | None = None  # in which both lay the arguments out, if it is ours that launches


def starts(theirs: Any, kernel: Any) -> Starts:
    """For Triton's launcher of the compiled kernel, whatever that launcher says of early starts."""
    return _quick(theirs, kernel) or _their_way(theirs)


def quick(theirs: Any, kernel: Any) -> Run | None:
    """What launches like `theirs`, Triton's launcher of the compiled kernel; None where that cannot be had."""
    early = bool(getattr(theirs, "launch_pdl", False))
    found = _quick(theirs, kernel)
    if found is None:
        return None
    return found.early if early else found.behind


def _quick(theirs: Any, kernel: Any) -> Starts | None:
    call = cuda.launch_call()
    metadata = kernel.metadata
    known: Any = getattr(nvidia, "CudaLauncher", None)
    if call is None or known is None or type(theirs) is not known:
        return None
    if theirs.num_ctas != 1 or theirs.launch_cooperative_grid or getattr(theirs, "gsan_enabled", False):
        return None
    if theirs.profile_scratch_size:
        return None
    try:
        return made(theirs, kernel.src.signature, getattr(metadata, "tensordesc_meta", None), call)
    except NotKnown:
        return None


def has_hooks(chain: Any) -> bool:
    """Of what stands in Triton's `knobs.runtime` for those that want to hear of launches."""
    return chain is not None and (type(chain) is not HookChain or bool(chain.calls))


class NotKnown(Exception):
    """An argument or a launcher that only Triton knows how to pass."""


def made(
    theirs: Any, signature: Mapping[str, Any], maps: Sequence[Any] | None, call: Callable[[int, int, int, None], int]
) -> Starts:
    """The same, for arguments of these types; `maps` is what Triton notes of each descriptor. Raises NotKnown."""
    return _Layout(tuple(signature.values()), maps or ()).launcher(theirs, call)


class _Layout:
    """Where in a block of memory the arguments of one kernel lie, and the function that writes them there."""

    def __init__(self, kinds: Sequence[Any], maps: Sequence[Any]) -> None:
        self.kinds = kinds
        scalars: list[tuple[str, int, str]] = []  # format, argument, what is written; then where
        addresses: dict[tuple[int, int], int] = {}  # (argument, part of it) -> offset
        descriptors = [at for at, kind in enumerate(kinds) if isinstance(kind, str) and kind.startswith("tensordesc")]
        if len(maps) != len(descriptors) or any(one is None for one in maps):
            raise NotKnown
        for at, kind in enumerate(kinds):
            if kind == "constexpr" or at in descriptors:
                continue
            if not isinstance(kind, str):
                raise NotKnown
            if kind.startswith("*"):
                scalars.append(("Q", at, _POINTER.format(at)))
            elif kind in _SCALARS:
                scalars.append((_SCALARS[kind], at, f"a{at}"))
            else:
                raise NotKnown
        scalars.sort(key=lambda one: -struct.calcsize(one[0]))
        offset = struct.calcsize(f"<{_CONFIG}")
        for form, at, _ in scalars:
            addresses[at, 0] = offset
            offset += struct.calcsize(form)
        self.scalars = scalars
        self.first = addresses
        offset += -offset % MAP_BYTES
        self.descriptors: list[tuple[int, int, int, Any]] = []  # argument, offset, rank, what Triton notes of it
        for at, noted in zip(descriptors, maps, strict=True):
            rank = rank_of(kinds[at])
            self.descriptors.append((at, offset, rank, noted))
            addresses[at, 0] = offset
            for axis in range(rank):
                addresses[at, 1 + axis] = offset + MAP_BYTES + 8 * rank + 4 * axis
                addresses[at, 1 + rank + axis] = offset + MAP_BYTES + 8 * axis
            offset += MAP_BYTES + 12 * rank
            offset += -offset % MAP_BYTES
        self.scratch = offset  # the kernel's; behind it a profiler's, which is none
        self.addresses = [addresses[one] for one in sorted(addresses)] + [offset, offset + 8]
        self.size = offset + 16
        self.slots: list[tuple[int, int, Slot]] = []  # of each descriptor its argument and offset

    def launcher(self, theirs: Any, call: Callable[[int, int, int, None], int]) -> Starts:
        block = Block(self.size, self.addresses)
        sizes = "".join(form for form, _, _ in self.scalars)
        names = [f"a{at}" for at in range(len(self.kinds))]
        slow = _their_way(theirs)
        lines, space = [], {
            "call": call, "their_early": slow.early, "their_behind": slow.behind,
            "lock": threading.Lock(), "Tensor": torch.Tensor, "address": address_of,
            "hooked": has_hooks, "recording": recording, "block": block, "buffer": block.memory, "Unlike": Unlike,
            "pack": struct.Struct(f"<{_CONFIG}{sizes}").pack_into,
            "base": block.base, "config": block.address, "params": block.parameters, "attribute": block.attribute,
            "struct_error": struct.error, "places": self.places(), "refused": _refused,
        }  # fmt: skip
        alike: list[tuple[Any, int, _Known]] = []  # what Triton notes, rank, and what is known of shapes
        for index, (at, offset, rank, noted) in enumerate(self.descriptors):
            known = next((found for one, other, found in alike if (one, other) == (noted, rank)), None)
            if known is None:
                known = _Known()
                alike.append((noted, rank, known))
            slot = space[f"d{index}"] = Slot(block, offset, rank, noted, known)
            self.slots.append((at, offset, slot))
            lines += [
                f"shape = {key_of(f'a{at}')}",
                f"if shape != d{index}.shape: d{index}.fill(a{at}, shape)",
                f"d{index}.address.value = a{at}.base.data_ptr()",
            ]
        size, noted = getattr(theirs, "global_scratch_size", 0), "None"
        if size:
            noted = f"Scratch({self.scratch}, x * y * z * {size}, {theirs.global_scratch_align}, stream)"
            space |= {"Scratch": Scratch, "scratch": block.slot(self.scratch)}
            lines += [f"needed = {noted}", "memory = needed.memory()", "scratch.value = memory.data_ptr()"]
            noted = "needed"
        written = "".join(f", {value}" for _, _, value in self.scalars)
        arguments, descriptors = ", ".join(names), "\n            ".join(lines) or "pass"
        source = "".join(
            _TEMPLATE.format(
                when=when, early=early, arguments=arguments, descriptors=descriptors, written=written, scratch=noted
            )
            for when, early in (("early", 1), ("behind", 0))
        )
        exec(compile(source, "<wspec launcher>", "exec"), space)
        found: Any = space
        block.layout = self
        return Starts(found["early"], found["behind"], block)

    def places(self) -> list[int]:
        """Where in the block the address of each tensor and descriptor is written; -1 of other arguments."""
        found = [-1] * len(self.kinds)
        for at, kind in enumerate(self.kinds):
            if isinstance(kind, str) and kind.startswith(("*", "tensordesc")):
                found[at] = self.first[at, 0]
        return found


_POINTER = "a{0}.data_ptr() if type(a{0}) is Tensor and a{0}.is_cuda else address(a{0})"
_TEMPLATE = """
def {when}(x, y, z, stream, function, packed, metadata, enter, leave, {arguments}):
    if x * y * z <= 0 or block.given_up or hooked(enter) or hooked(leave):
        their_{when}(x, y, z, stream, function, packed, metadata, enter, leave, {arguments})
        return
    with lock:
        try:
            {descriptors}
            pack(buffer, base, x, y, z, 32 * packed[0], 1, 1, packed[2], stream, attribute, {early}{written})
            status = call(config, function, params, None)
        except (TypeError, AttributeError, struct_error, Unlike):
            status = -1
        if status == 0 and recording.count:
            recording.note(block, function, places, {scratch})
    if status:
        refused(status)
        their_{when}(x, y, z, stream, function, packed, metadata, enter, leave, {arguments})
"""


def _their_way(theirs: Any) -> Starts:
    """Triton's launcher says of itself when blocks start: it is told at each launch, one launch at a time."""
    lock = threading.RLock()  # of one thread, whose hooks may launch, too

    def launch(early: bool, *args: Any) -> None:
        with lock:
            theirs.launch_pdl = early
            theirs(*args)

    return Starts(functools.partial(launch, True), functools.partial(launch, False))


def _refused(status: int) -> None:
    """Raises what the driver says; not where Triton's launcher is to be asked."""
    if status not in (-1, cuda.NO_CONTEXT):
        raise cuda.error(status)


def address_of(argument: Any) -> int:
    """Of an argument that is no ordinary tensor of the card."""
    if argument is None:
        return 0
    if type(argument) is int:
        return argument
    if isinstance(argument, torch.Tensor) and argument.is_cuda:
        return argument.data_ptr()
    raise Unlike


class Scratch(NamedTuple):
    """Memory that a launch takes for itself, as where a kernel builds descriptors."""

    place: int  # in the block
    size: int  # bytes
    alignment: int
    stream: int

    def memory(self) -> Any:
        """From the allocator that Triton was told of in this thread, or from torch's: what has a `data_ptr`, for as
        long as it is held and in the stream. None where it is another thing, that Triton may know."""
        told = _allocation._allocator.get()
        allocate = torch_memory if told is _allocation._NULL_ALLOCATOR else told
        found = allocate(self.size, self.alignment, self.stream)
        return found if hasattr(found, "data_ptr") else None


def torch_memory(size: int, alignment: int, stream: int | None) -> torch.Tensor:
    """From torch's caching allocator, which aligns to 512 bytes and is ordered by the current stream."""
    return torch.empty(size, dtype=torch.int8, device="cuda")


class Block:
    """Memory for the arguments of one kernel: how it is launched, the arguments, and the addresses of these."""

    def __init__(self, size: int, offsets: Sequence[int]) -> None:
        self.size = size
        self.given_up = False  # for good
        self.layout: Any = None  # `_Layout`, where the arguments lie
        self.starts_early: Callable[[int], bool] | None = None  # do launches of so many blocks?
        self.memory = ctypes.create_string_buffer(size + MAP_BYTES)
        start = ctypes.addressof(self.memory)
        self.base = -start % MAP_BYTES  # where in the memory the block begins
        self.address = start + self.base
        self.offsets = tuple(offsets)
        self._pointers = (ctypes.c_uint64 * len(offsets))(*(self.address + offset for offset in offsets))
        self._attributes = (cuda.Attribute * 1)(cuda.Attribute(cuda.PROGRAMMATIC_START))
        self._attributes[0].value[0] = 1
        self.parameters = ctypes.addressof(self._pointers)
        self.attribute = ctypes.addressof(self._attributes)

    def contents(self) -> bytearray:
        """How the kernel was launched last, and its arguments. Good as long as the block is there."""
        return bytearray(ctypes.string_at(self.address, self.size))

    def slot(self, offset: int) -> ctypes.c_uint64:
        """An address in it. Raises IndexError outside of the arguments."""
        if not ctypes.sizeof(cuda.Config) <= offset <= self.size - 8:
            raise IndexError(offset)
        return ctypes.c_uint64.from_buffer(self.memory, self.base + offset)


EARLY: int = cuda.Config.attribute_count.offset
"""Where what a block held says whether blocks start while the kernels before them may still run: a byte, 0 or 1."""


@dataclasses.dataclass(slots=True)
class _Known:
    """What was found out of descriptors of one type."""

    shapes: dict[tuple[Any, ...], bytes] = dataclasses.field(default_factory=dict)  # by all that a map is made of
    looked: bool = False
    maps: tuple[TensorMaps, tuple[Any, ...]] | None = None  # what encodes without Triton, and beside which `others`


class Slot:
    """A descriptor's place in a block: the tensor map, and shape and strides as the kernel takes them.

    `known` is that of all places of descriptors of the same type.
    """

    def __init__(self, block: Block, offset: int, rank: int, noted: Any, known: _Known) -> None:
        self.block, self.offset, self.noted, self.rank = block, offset, noted, rank
        self.address = block.slot(offset)
        self.layout = struct.Struct(f"<{MAP_BYTES}s{rank}q{rank}i")
        self.known = known
        self.others: tuple[Any, ...] = ()  # of a descriptor's fields those that are in a map beside shape and strides
        self.shape: tuple[Any, ...] = ()  # what was written last was made for

    def fill(self, descriptor: Any, shape: tuple[Any, ...]) -> None:
        """Write it for a descriptor of another shape. Raises Unlike where a map is not laid out as expected."""
        data = self.known.shapes.get(shape) or self.data(descriptor, shape)
        self.others = shape[2 * self.rank :]
        ctypes.memmove(self.block.address + self.offset, data, len(data))
        self.shape = shape

    def layout_of(self, tensor: torch.Tensor, shape: Sequence[int], strides: Sequence[int]) -> Layout | None:
        """What stands where in maps of whole tensors of the type of that one, if that is known, and right for it.
        Raises Unlike where there is no map of it.
        """
        maps, size, address = self.known.maps, tensor.element_size(), tensor.data_ptr()
        legal = legal_strides(shape, strides, size)
        if legal is None or address % 16:
            raise Unlike
        if maps is None or maps[1] != self.others or maps[0].size != size:
            return None
        found, there = maps[0].at(address), maps[0].encode(address, *shape, *legal)
        if found is None or there is None:
            return None
        numbers = [*(one - 1 for one in shape), *(one * size // 16 for one in legal[:-1])]
        return found if found.of(address, numbers).to_bytes(MAP_BYTES, "little") == there else None

    def data(self, descriptor: Any, shape: tuple[Any, ...]) -> bytes:
        """What is written, of a shape that was not seen yet. Raises Unlike, too."""
        data = self._encoded(descriptor, shape)
        keep(self.known.shapes, shape, data, _MOST)
        return data

    def _encoded(self, descriptor: Any, shape: tuple[Any, ...]) -> bytes:
        rank = self.rank
        numbers, others = shape[: 2 * rank], shape[2 * rank :]
        if self.known.maps is not None and self.known.maps[1] == others and numbers[-1] == 1:
            found = self.known.maps[0].encode(descriptor.base.data_ptr(), *numbers)
            if found is not None:
                return self.layout.pack(found, *numbers[rank:], *numbers[:rank])
        encoded, *given = _encode(descriptor, self.noted)
        found = _map_bytes(encoded)
        if not self.known.looked:
            self._look(descriptor, found)
            maps = _maps(self.noted)
            if maps is not None and maps.encode(descriptor.base.data_ptr(), *numbers) == found:
                self.known.maps = maps, others
        return self.layout.pack(found, *given[rank:], *given[:rank])

    def _look(self, descriptor: Any, found: bytes) -> None:
        """Is the address what a map begins with, and is nothing else made of it?"""
        address = descriptor.base.data_ptr()
        other = _elsewhere(descriptor, address ^ 0x5A5A5A00)
        expected = struct.pack("<Q", address), struct.pack("<Q", address ^ 0x5A5A5A00)
        try:
            elsewhere = _map_bytes(_encode(other, self.noted)[0])
        except RuntimeError:  # of the driver, which may want to know the address
            elsewhere = b""
        if (found[:8], elsewhere[:8]) != expected or found[8:] != elsewhere[8:]:
            self.block.given_up = True
            raise Unlike
        self.known.looked = True


_MOST = 4096  # shapes a descriptor is remembered with


def key_of(descriptor: str) -> str:
    """The text of what a tensor map is made of, of an argument of that name."""
    lists = ("shape", "strides")
    return f"({', '.join(f'*{descriptor}.{name}' if name in lists else f'{descriptor}.{name}' for name in _SHAPE)},)"


def keep(known: dict[Any, Any], key: Any, value: Any, most: int) -> None:
    """Remember at most so many: the oldest go, a few at a time, as those after them will be asked for again."""
    if len(known) >= most:
        for old in list(itertools.islice(known, max(1, most // 16))):
            known.pop(old, None)  # another thread may have done so
    known[key] = value


@dataclasses.dataclass(frozen=True, slots=True)
class AtAddress:
    """Stands for a tensor at an address."""

    address: int

    def data_ptr(self) -> int:
        return self.address


def _elsewhere(descriptor: Any, address: int) -> Any:
    new = object.__new__(type(descriptor))
    new.__dict__.update(descriptor.__dict__)
    new.base = AtAddress(address)
    return new


def _encode(descriptor: Any, noted: Any) -> list[Any]:
    """The tensor map, the shape and the strides, as Triton's launcher makes them of a descriptor."""
    make: Any = getattr(nvidia, "make_tensordesc_arg", None)
    if make is None:
        raise Unlike
    found: list[Any] = make(descriptor, noted, *_more(make))
    return found


@functools.cache
def _more(make: Callable[..., Any]) -> tuple[None, ...]:
    """What Triton's function takes behind the two arguments that matter, which versions add."""
    return (None,) * (len(inspect.signature(make).parameters) - 2)


def _maps(noted: Any) -> TensorMaps | None:
    """What encodes maps of which Triton notes that, if it should be as simple as that."""
    kinds = getattr(nvidia, "TMA_DTYPE_DEVICE_TO_HOST", {})
    try:
        kind, size, box, swizzle = (noted[name] for name in ("elem_type", "elem_size", "block_size", "swizzle"))
        return TensorMaps(kinds[kind], size, box, swizzle)
    except (OSError, AttributeError, KeyError, TypeError):
        return None


def _map_bytes(encoded: Any) -> bytes:
    """The map in Triton's object, which ends with it: behind the head of a Python object and as much as aligns it."""
    size = type(encoded).__basicsize__
    start = id(encoded) + size - MAP_BYTES
    if size not in (MAP_BYTES + MAP_ALIGNMENT, 2 * MAP_BYTES) or start % MAP_ALIGNMENT:
        raise Unlike
    return ctypes.string_at(start, MAP_BYTES)

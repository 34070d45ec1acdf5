"""A launch that is made again with other addresses: nothing is looked up, checked or laid out a second time.

Everything that decided the first one (kernel, grid, sizes, stream) has to be the same; who asks keeps it as a key. What
remains is to see that arguments do not overlap that must not, to write addresses, and to call the driver.
"""

from __future__ import annotations

import functools
import inspect
import itertools
import threading
from collections.abc import Hashable, Mapping, Sequence
from ctypes import memmove
from typing import Any

import torch
import triton
from triton.compiler import CompiledKernel

from wspec.bridge import cuda
from wspec.bridge.launch import WspecFunction, is_hooked
from wspec.bridge.launcher import Block, keep, quick
from wspec.bridge.recording import Recorded, recording
from wspec.bridge.versions.internals import internal
from wspec.bridge.workspace import PER_THREAD

JITFunction = internal("triton.runtime.jit", "JITFunction")

MOST = 4096  # launches that are remembered of one function


class _Block:
    """Memory for the arguments of a kernel's launches that are made again, one at a time."""

    def __init__(self, of: Block, places: Sequence[int]) -> None:
        self.of = of  # which says how launches start
        self.block = block = Block(of.size, of.offsets)
        self.address, self.parameters, self.size = block.address, block.parameters, block.size
        self.slots = [block.slot(place) for place in places]
        self.lock = threading.Lock()
        self.last: Ready | None = None  # whose launch stands there


class Ready:
    """Called with an address for each of the arguments that have one, in their order."""

    __slots__ = ("_apart", "_call", "_contents", "_function", "_kept", "_kernel", "_memory", "_relied")

    def __init__(self, kernel: Any, recorded: Recorded, arguments: Sequence[Any]) -> None:
        self._kernel, self._kept, self._relied = kernel, recorded.kept, recorded.relied
        places, block = recorded.places[: len(arguments)], recorded.block
        if block.again is None:
            block.again = _Block(block, [place for place in places if place >= 0])
        self._memory, self._contents, self._function = block.again, bytes(recorded.contents), recorded.function
        self._call = cuda.launch_call()
        order = list(itertools.accumulate([place >= 0 for place in places], initial=0))
        self._apart = [(order[one], size, order[other], more) for one, size, other, more in recorded.apart]

    def __call__(self, *addresses: int) -> bool:
        """Launch. False where an ordinary launch has to be made, because of hooks or of arguments that overlap."""
        for one, size, other, other_size in self._apart:
            start, end = addresses[one], addresses[other]
            if start < end + other_size and end < start + size:
                return False
        if is_hooked() or self._kernel.pre_run_hooks:
            return False
        held = [one() for one in self._relied]  # until the launch is made
        if None in held or ((held or self._kept) and _is_capturing()):
            return False  # it was given back; or a graph would have to keep it, too
        memory, call = self._memory, self._call
        assert call is not None
        with memory.lock:
            if memory.last is not self:
                memory.last = None  # until it is
                memmove(memory.address, self._contents, memory.size)
                memory.last = self
            for slot, address in zip(memory.slots, addresses):  # noqa: B905  # every call counts
                slot.value = address
            status = call(memory.address, self._function, memory.parameters, None)
        if status == cuda.NO_CONTEXT:
            return False
        if status:
            raise cuda.error(status)
        return True


def launch(
    kernel: Any,
    grid: Sequence[int],
    arguments: Sequence[Any],
    meta: Mapping[str, Any],
    like: tuple[Hashable, ...] | None = None,
) -> Ready | None:
    """Launch as `kernel[grid](*arguments, **meta)`; what makes the launch again, where that can be had.

    like: of launches that have it in common Triton makes one binary: types, blocks of descriptors, alignments, numbers
    that it specializes on and `meta` are the same. It is not asked about the second one.
    """
    if not isinstance(kernel, JITFunction) or _is_capturing():
        kernel[grid](*arguments, **meta)
        return None
    with recording.on() as now:
        if isinstance(kernel, WspecFunction):
            if like is None or not _launched_alike(kernel, grid, arguments, meta, like):
                kernel[grid](*arguments, **meta)
        elif not _launched_quickly(kernel, grid, arguments, meta):
            kernel[grid](*arguments, **meta)
    return Ready(kernel, now, arguments) if now.launches == 1 and not now.once else None


def _launched_alike(
    kernel: Any, grid: Sequence[int], arguments: Sequence[Any], meta: Mapping[str, Any], like: tuple[Hashable, ...]
) -> bool:
    """Launch the binary of a launch that was like it; of the first one, remember which it has."""
    active = triton.runtime.driver.active
    device = active.get_current_device()
    known = kernel.__dict__.setdefault("wspec_alike", Memo())
    found = known.get((device, like))
    if found is None:
        compiled = kernel[grid](*arguments, **meta)
        constants = [meta.get(parameter.name, parameter.default) for parameter in kernel.params[len(arguments) :]]
        if isinstance(compiled, CompiledKernel) and inspect.Parameter.empty not in constants:
            known.keep((device, like), (compiled, constants))
        return True
    if is_hooked() or kernel.pre_run_hooks:
        return False
    compiled, constants = found
    stream, (x, y, z) = active.get_current_stream(device), (*grid, 1, 1)[:3]
    run = compiled.run
    run(x, y, z, stream, compiled.function, compiled.packed_metadata, None, None, None, *arguments, *constants)
    return True


def _launched_quickly(kernel: Any, grid: Sequence[int], arguments: Sequence[Any], meta: Mapping[str, Any]) -> bool:
    """Launch a kernel of Triton's own through our launcher, if that can be."""
    if is_hooked() or kernel.pre_run_hooks:
        return False
    compiled = kernel.warmup(*arguments, grid=grid, **meta)
    if not isinstance(compiled, CompiledKernel):
        return False
    if not hasattr(compiled, "wspec_quick"):
        compiled.wspec_quick = quick(compiled.run, compiled)
    run = compiled.wspec_quick
    if run is None:
        return False
    values = {**dict(zip(kernel.arg_names, arguments, strict=False)), **meta}
    bound = [values.get(parameter.name, parameter.default) for parameter in kernel.params]
    active = triton.runtime.driver.active
    stream = active.get_current_stream(active.get_current_device())
    x, y, z = (*grid, 1, 1)[:3]
    run(x, y, z, stream, compiled.function, compiled.packed_metadata, None, None, None, *bound)
    return True


def _is_capturing() -> bool:
    """A graph keeps memory of its own."""
    return _has_card() and torch.cuda.is_current_stream_capturing()


@functools.cache
def _has_card() -> bool:
    return torch.cuda.is_available()


def are_alike(tensors: Sequence[Any]) -> bool:
    """Ordinary tensors on one card that autograd does not follow: what the rest of a key says is all that matters."""
    follows = torch.is_grad_enabled()
    for tensor in tensors:
        if type(tensor) is not torch.Tensor or not tensor.is_cuda or (follows and tensor.requires_grad):
            return False
    return True


class Memo(dict[Hashable, Any]):
    """What was made for a key; the oldest go when there is too much."""

    def keep(self, key: Hashable, value: Any) -> None:
        keep(self, key, value, MOST)


def current_stream(device: int) -> int:
    """The current stream of the device as the driver takes it.

    -1 where the device is not the current one, and of a stream whose handle is that of others in other threads.
    """
    active = triton.runtime.driver.active
    if active.get_current_device() != device:
        return -1
    stream: int = active.get_current_stream(device)
    return -1 if stream == PER_THREAD else stream

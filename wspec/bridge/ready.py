"""A launch that is made again with other addresses: nothing is looked up, checked or laid out a second time.

Everything that decided the first one (kernel, grid, sizes, stream) has to be the same; who asks keeps it as a key. What
remains is to see that arguments do not overlap that must not, to write addresses, and to call the driver.
"""

from __future__ import annotations

import inspect
from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import torch
import triton
from triton.compiler import CompiledKernel

from wspec.bridge.again import Ready, is_capturing
from wspec.bridge.alike import Alike
from wspec.bridge.launch import JITFunction, WspecFunction, is_hooked
from wspec.bridge.launcher import keep, quick
from wspec.bridge.recording import recording
from wspec.bridge.workspace import PER_THREAD

MOST = 4096  # launches that are remembered of one function


def launch(
    kernel: Any,
    grid: Sequence[int],
    arguments: Sequence[Any],
    meta: Mapping[str, Any],
    like: tuple[Hashable, ...] | None = None,
    *,
    own: bool = False,
) -> Ready | None:
    """Launch as `kernel[grid](*arguments, **meta)`; what makes the launch again, where that can be had.

    like: of launches that have it in common Triton makes one binary: types, blocks of descriptors, alignments, numbers
    that it specializes on and `meta` are the same. It is not asked about the second one, and `like_before` gives what
    launches others. Of a kernel that is not under `wspec.compile` that is believed where it is one's `own`.
    """
    if not isinstance(kernel, JITFunction) or is_capturing():
        kernel[grid](*arguments, **meta)
        return None
    if like is not None and (own or isinstance(kernel, WspecFunction)):
        return _launched_alike(kernel, grid, arguments, meta, like)
    with recording.on() as now:
        if isinstance(kernel, WspecFunction) or _launched_quickly(kernel, grid, arguments, meta) is None:
            kernel[grid](*arguments, **meta)
    return Ready.of(kernel, now, len(arguments)) if now.launches == 1 and not now.once else None


def like_before(kernel: Any, like: tuple[Hashable, ...], place: tuple[int, int]) -> Alike | None:
    """What launches, of any size, as a launch was made on a device and a stream that had that in common."""
    known = kernel.__dict__.get("wspec_alike")
    return known.get((place, like)) if known is not None else None


def _launched_alike(
    kernel: Any, grid: Sequence[int], arguments: Sequence[Any], meta: Mapping[str, Any], like: tuple[Hashable, ...]
) -> Ready | None:
    """Launch the binary of a launch that was like it; of the first one, remember which it has and what it came to."""
    active = triton.runtime.driver.active
    device = active.get_current_device()
    stream = active.get_current_stream(device)
    known = kernel.__dict__.setdefault("wspec_alike", Memo())
    found = known.get(((device, stream), like))
    with recording.on() as now:
        if found is None:
            found = _first_of(kernel, _compiled(kernel, grid, arguments, meta), arguments, meta)
            if found is not None and stream != PER_THREAD:
                known.keep(((device, stream), like), found)
        elif is_hooked() or kernel.pre_run_hooks:
            kernel[grid](*arguments, **meta)
        else:
            found.run(grid, arguments, stream)
    if now.launches != 1 or now.once:
        return None
    if found is not None:
        found.learn(now)
    return Ready.of(kernel, now, len(arguments))


def _first_of(kernel: Any, compiled: Any, arguments: Sequence[Any], meta: Mapping[str, Any]) -> Alike | None:
    constants = [meta.get(parameter.name, parameter.default) for parameter in kernel.params[len(arguments) :]]
    if not isinstance(compiled, CompiledKernel) or inspect.Parameter.empty in constants:
        return None
    return Alike(kernel, compiled, constants)


def _compiled(kernel: Any, grid: Sequence[int], arguments: Sequence[Any], meta: Mapping[str, Any]) -> Any:
    """What was launched."""
    if isinstance(kernel, WspecFunction):
        return kernel[grid](*arguments, **meta)
    return _launched_quickly(kernel, grid, arguments, meta) or kernel[grid](*arguments, **meta)


def _launched_quickly(kernel: Any, grid: Sequence[int], arguments: Sequence[Any], meta: Mapping[str, Any]) -> Any:
    """Launch a kernel of Triton's own through our launcher; what was compiled, None where that cannot be."""
    if is_hooked() or kernel.pre_run_hooks:
        return None
    active = triton.runtime.driver.active
    compiled = kernel.warmup(*arguments, grid=grid, **meta)
    if not isinstance(compiled, CompiledKernel):
        return None
    if not hasattr(compiled, "wspec_quick"):
        compiled.wspec_quick = quick(compiled.run, compiled)
    run = compiled.wspec_quick
    if run is None:
        return None
    values = {**dict(zip(kernel.arg_names, arguments, strict=False)), **meta}
    bound = [values.get(parameter.name, parameter.default) for parameter in kernel.params]
    stream, (x, y, z) = active.get_current_stream(active.get_current_device()), (*grid, 1, 1)[:3]
    run(x, y, z, stream, compiled.function, compiled.packed_metadata, None, None, None, *bound)
    return compiled


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

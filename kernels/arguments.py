"""Checks of tensor arguments shared by the torch-facing functions; every error names the argument it is about."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from triton.tools.tensor_descriptor import TensorDescriptor

from wspec.bridge.tensor_maps import legal_strides

TMA_ALIGNMENT_BYTES = 16
"""What the tensor map asks of a base address and of every stride but the last (CUDA driver API, cuTensorMapEncode)."""

MAX_GRID_YZ = 65535
"""Most blocks along the second and third grid axis (CUDA programming guide, compute capabilities)."""

SHARED_MEMORY_BYTES = 232448
"""Shared memory one block may use on sm_90: 227 KiB (CUDA programming guide, compute capabilities)."""

HALF_DTYPES = (torch.float16, torch.bfloat16)


def ceil_div(number: int, by: int) -> int:
    """The quotient, rounded up: `triton.cdiv` asks first whether it is compiled."""
    return -(-number // by)


def special(*numbers: int) -> tuple[int, ...]:
    """What Triton makes of whole numbers beside their values: those that agree in it have one binary.

    Whether it is 1, whether 16 divides it, and its type.
    """
    return tuple([1 if number == 1 else 4 * (number >> 31) + 2 * (not number & 15) for number in numbers])


def on_device(device: torch.device) -> AbstractContextManager[Any]:
    """With the device the current one; nothing is done where it is."""
    same = device.type == "cuda" and torch.cuda.is_available() and device.index == torch.cuda.current_device()
    return nullcontext() if same else torch.cuda.device(device)


def check_tensor(name: str, value: object, rank: int, dtypes: Iterable[torch.dtype]) -> torch.Tensor:
    """`value` if it is a tensor of `rank` dimensions and one of `dtypes`.

    Raises TypeError for another type or dtype and ValueError for another rank, naming the argument `name`.
    """
    if not isinstance(value, torch.Tensor):
        raise TypeError(f"{name}: expected a torch.Tensor, got {type(value).__name__}")
    allowed = tuple(dtypes)
    if value.dtype not in allowed:
        raise TypeError(f"{name}: expected dtype {_one_of(allowed)}, got {value.dtype}")
    if value.ndim != rank:
        raise ValueError(f"{name}: expected {rank} dimensions, got {value.ndim}: shape {tuple(value.shape)}")
    return value


def check_cuda(name: str, tensor: torch.Tensor) -> None:
    """Raises ValueError unless the tensor lives on a CUDA device."""
    if tensor.device.type != "cuda":
        raise ValueError(f"{name}: expected a CUDA tensor, got one on {tensor.device}")


def check_same(name: str, tensor: torch.Tensor, other_name: str, other: torch.Tensor) -> None:
    """Raises TypeError or ValueError unless two tensors share dtype and device."""
    if tensor.dtype != other.dtype:
        raise TypeError(f"{name}: dtype {tensor.dtype} differs from {other_name}, which is {other.dtype}")
    if tensor.device != other.device:
        raise ValueError(f"{name}: is on {tensor.device}, but {other_name} is on {other.device}")


def check_no_grad(name: str, tensor: torch.Tensor) -> None:
    """Raises ValueError for a tensor that autograd follows: these kernels have no backward to offer it."""
    if tensor.requires_grad and torch.is_grad_enabled():
        raise ValueError(f"{name}: requires grad, but this function has no backward; call it under torch.no_grad()")


def tma_strides(name: str, tensor: torch.Tensor) -> list[int]:
    """The tensor's strides in elements as a TMA descriptor takes them.

    Those of dimensions of length 1 are replaced by legal ones. Raises ValueError naming the argument if the last
    dimension is not contiguous, or if the base address or another stride is not a positive multiple of 16 bytes below
    2**40.
    """
    size, shape, strides = tensor.element_size(), tensor.shape, tensor.stride()
    found = legal_strides(shape, strides, size)
    if found is None or tensor.data_ptr() % TMA_ALIGNMENT_BYTES:
        raise ValueError(f"{name}: {_wrong(name, tensor)}")
    return found


def _wrong(name: str, tensor: torch.Tensor) -> str:
    """Why a tensor map cannot take it."""
    size, shape, (*strides, last) = tensor.element_size(), tensor.shape, tensor.stride()
    if last != 1 and shape[-1] > 1:
        return f"last dimension must be contiguous, got stride {last}; pass {name}.contiguous()"
    if tensor.data_ptr() % TMA_ALIGNMENT_BYTES:
        return f"first element must be at a multiple of {TMA_ALIGNMENT_BYTES} bytes; pass a copy"
    wrong = [
        stride for stride in enumerate(strides) if legal_strides((shape[stride[0]], 1), (stride[1], 1), size) is None
    ]
    dim, stride = wrong[0]
    return (
        f"stride of dimension {dim} must be a positive multiple of {TMA_ALIGNMENT_BYTES} bytes below 2**40, "
        f"got {stride * size}; {_remedy(name, tensor)}"
    )


def tma_descriptors(*given: tuple[str, torch.Tensor, Sequence[int]]) -> list[TensorDescriptor]:
    """The whole of each tensor, none empty, to be moved in blocks: (name, tensor, block) of each.

    Raises ValueError as `tma_strides` does.
    """
    found, seen, strides = [], None, [0]
    for name, tensor, block in given:
        shape, dtype = tensor.shape, tensor.dtype
        form = shape, tensor.stride(), dtype
        if form != seen or tensor.data_ptr() % TMA_ALIGNMENT_BYTES:
            strides, seen = tma_strides(name, tensor), form
        known = _blocks.get((*block, dtype))
        if known is None:
            made = TensorDescriptor(tensor, shape, strides, list(block))
            if set(vars(made)) <= _FIELDS:  # nothing is computed of the others
                _blocks[*block, dtype] = {name: value for name, value in vars(made).items() if name in _COMMON}
        else:
            made = object.__new__(TensorDescriptor)  # all that its own checks look at is known
            made.base, made.shape, made.strides = tensor, shape, strides
            made.__dict__.update(known)
        found.append(made)
    return found


_FIELDS = {field.name for field in dataclasses.fields(TensorDescriptor)}
_COMMON = _FIELDS - {"base", "shape", "strides"}
_blocks: dict[tuple[Any, ...], dict[str, Any]] = {}
"""What descriptors have in common whose blocks and types were looked at."""


def _remedy(name: str, tensor: torch.Tensor) -> str:
    unit = TMA_ALIGNMENT_BYTES // tensor.element_size()
    return f"pad its last dimension to a multiple of {unit}" if tensor.is_contiguous() else f"pass {name}.contiguous()"


def _one_of(dtypes: tuple[torch.dtype, ...]) -> str:
    return " or ".join(str(dtype) for dtype in dtypes)

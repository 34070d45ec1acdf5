"""Arguments of a launch with the memory that a kernel writes copied, so that running it on trial changes nothing."""

from __future__ import annotations

import copy
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from triton.tools.tensor_descriptor import TensorDescriptor


class CannotCopy(Exception):
    """The message says which argument, and why."""


@dataclass(frozen=True, slots=True)
class Copies:
    """Arguments to launch with on trial."""

    arguments: tuple[Any, ...]
    restore: Callable[[], None]  # gives the copies the values of the user's memory again


def copied(names: Sequence[str], arguments: Sequence[Any], written: Collection[str]) -> Copies:
    """The arguments with whole storages copied under those that are `written`, for all views of them alike.

    So arguments that share memory share it among the copies too. Raises CannotCopy for what is written and no tensor,
    and where there is no memory for the copies.
    """
    made: dict[int, tuple[torch.UntypedStorage, torch.UntypedStorage]] = {}
    for name, argument in zip(names, arguments, strict=True):
        if name not in written:
            continue
        tensor = _tensor(argument)
        if tensor is None:
            raise CannotCopy(f"{name} is written and is no tensor")
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in made:
            try:
                made[storage.data_ptr()] = storage, _clone(storage)
            except torch.OutOfMemoryError:
                raise CannotCopy(f"there is no memory for a copy of {name}") from None

    def restore() -> None:
        for own, other in made.values():
            other.copy_(own)

    return Copies(tuple(_on_copy(argument, made) for argument in arguments), restore)


def _tensor(argument: Any) -> torch.Tensor | None:
    if isinstance(argument, TensorDescriptor):
        argument = argument.base
    return argument if isinstance(argument, torch.Tensor) else None


def _clone(storage: torch.UntypedStorage) -> torch.UntypedStorage:
    make: Any = torch.UntypedStorage
    twin: torch.UntypedStorage = make(storage.nbytes(), device=storage.device)
    twin.copy_(storage)
    return twin


def _on_copy(argument: Any, made: dict[int, tuple[torch.UntypedStorage, torch.UntypedStorage]]) -> Any:
    tensor = _tensor(argument)
    if tensor is None or tensor.untyped_storage().data_ptr() not in made:
        return argument
    _, storage = made[tensor.untyped_storage().data_ptr()]
    twin = torch.empty(0, dtype=tensor.dtype, device=tensor.device)
    twin.set_(storage, tensor.storage_offset(), tensor.size(), tensor.stride())
    if not isinstance(argument, TensorDescriptor):
        return twin
    descriptor = copy.copy(argument)
    descriptor.base = twin
    return descriptor

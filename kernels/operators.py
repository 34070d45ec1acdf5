"""The functions here as operators of torch (`torch.ops.wspec`), so that what traces them sees one node.

`torch.compile`, `torch.export` and fake tensors meet an operator with a fake implementation, which checks what does not
need memory and says what comes out. An ordinary call goes past the dispatcher.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

_NAMESPACE = "wspec"
_library: Any = None


def operator(schema: str, compute: Callable[..., Any], fake: Callable[..., Any]) -> Callable[..., Any]:
    """The operator of a schema (`name(Tensor a, ...) -> ...`), defined when the first of its modules is imported.

    `compute` runs it on tensors, `fake` says what comes out of tensors without memory. There is no backward: `compute`
    raises for tensors that autograd follows.
    """
    global _library
    name = schema.partition("(")[0]
    namespace: Any = getattr(torch.ops, _NAMESPACE)
    if not hasattr(namespace, name):
        if _library is None:
            made: Any = torch.library.Library
            _library = made(_NAMESPACE, "FRAGMENT")
        tags = (torch.Tag.pt2_compliant_tag, torch.Tag.needs_fixed_stride_order)
        _library.define(schema, tags=tags)
        _library.impl(name, compute, "CompositeExplicitAutograd")
        torch.library.register_fake(f"{_NAMESPACE}::{name}", fake, lib=_library)
    found: Callable[..., Any] = getattr(namespace, name)
    return found


def is_traced(*tensors: Any) -> bool:
    """Is somebody following the call who has to see an operator: a compiler, a mode, a tensor of a kind of its own?"""
    if torch.compiler.is_compiling() or torch._C._len_torch_dispatch_stack():
        return True
    for tensor in tensors:  # noqa: SIM110  # a generator takes longer, and every call counts
        if type(tensor) not in _ORDINARY and isinstance(tensor, torch.Tensor):
            return True
    return False


_ORDINARY = (torch.Tensor, torch.nn.Parameter)

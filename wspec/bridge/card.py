"""Which card this is, by its name. Nothing begins by asking, so any process can ask, those that compile as well."""

from __future__ import annotations

import ctypes
import functools
import os
import sys

_NAME_BYTES = 96  # NVML_DEVICE_NAME_V2_BUFFER_SIZE


def card_name() -> str:
    """What the driver calls the current card, or the first one where CUDA has not begun; "" where there is none."""
    torch = sys.modules.get("torch")  # a process that only compiles needs none
    if torch is not None and torch.cuda.is_initialized():
        return str(torch.cuda.get_device_name())
    return _first_card()


@functools.cache
def _first_card() -> str:
    """By NVML, which does without CUDA: of those that CUDA_VISIBLE_DEVICES leaves, where it gives numbers."""
    try:
        nvml = ctypes.CDLL("libnvidia-ml.so.1")
        if nvml.nvmlInit_v2():
            return ""
    except (OSError, AttributeError):
        return ""
    first = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")[0].strip()
    card, name = ctypes.c_void_p(), ctypes.create_string_buffer(_NAME_BYTES)
    wrong = nvml.nvmlDeviceGetHandleByIndex_v2(int(first) if first.isdecimal() else 0, ctypes.byref(card))
    wrong = wrong or nvml.nvmlDeviceGetName(card, name, _NAME_BYTES)
    nvml.nvmlShutdown()
    return "" if wrong else name.value.decode(errors="replace")

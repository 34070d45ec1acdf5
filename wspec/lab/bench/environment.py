"""What a measurement was made on: card, driver, clocks and versions. Goes into every result file."""

from __future__ import annotations

import datetime
import importlib.metadata
import platform
import subprocess
from typing import Any

import torch

from wspec.version import VERSION

CARD_FIELDS = (
    "name",
    "driver_version",
    "clocks.max.sm",
    "clocks.sm",
    "clocks.mem",
    "power.limit",
    "power.draw",
    "temperature.gpu",
)
"""Of `nvidia-smi --query-gpu`."""


class NoGpu(Exception):
    """There is no GPU here that could run the kernels."""


def require_hopper() -> torch.device:
    """The current CUDA device; raises NoGpu when there is none, or when it is not of compute capability 9.0."""
    if not torch.cuda.is_available():
        raise NoGpu("no CUDA GPU is visible; measuring needs one of compute capability 9.0 (H100, H200)")
    device = torch.device("cuda", torch.cuda.current_device())
    capability = torch.cuda.get_device_capability(device)
    if capability != (9, 0):
        name = torch.cuda.get_device_name(device)
        raise NoGpu(f"{name} has compute capability {capability[0]}.{capability[1]}; these kernels need 9.0")
    return device


def environment() -> dict[str, Any]:
    """Card, driver, clocks and versions as a JSON-ready value; on a machine without a GPU the versions alone."""
    from wspec.bridge.digest import wspec_digest
    from wspec.bridge.sass.resources import ptxas_version

    found: dict[str, Any] = {
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "wspec": VERSION,
        "sources": wspec_digest()[:12],
        "python": platform.python_version(),
        "torch": torch.__version__,
        "torch_cuda": torch.version.cuda,
        "triton": importlib.metadata.version("triton"),
        "ptxas": ptxas_version(),
    }
    if torch.cuda.is_available():
        properties = torch.cuda.get_device_properties(torch.cuda.current_device())
        found["card"] = properties.name
        found["multiprocessors"] = properties.multi_processor_count
        found["l2_bytes"] = properties.L2_cache_size
        found["cudnn"] = torch.backends.cudnn.version()  # type: ignore[no-untyped-call]  # torch
        found["nvidia_smi"] = card_state()
    return found


def card_state() -> dict[str, str]:
    """What nvidia-smi says of the card now, by field; empty where it cannot be asked."""
    command = ["nvidia-smi", f"--query-gpu={','.join(CARD_FIELDS)}", "--format=csv,noheader"]
    command += [f"--id={current_uuid()}"]
    try:
        text = subprocess.run(command, capture_output=True, text=True, check=True, timeout=20).stdout
    except (OSError, subprocess.SubprocessError):
        return {}
    lines = text.strip().splitlines()
    return dict(zip(CARD_FIELDS, (value.strip() for value in lines[0].split(",")), strict=False)) if lines else {}


def current_uuid() -> str:
    """The card's name for nvidia-smi."""
    return f"GPU-{torch.cuda.get_device_properties(torch.cuda.current_device()).uuid}"

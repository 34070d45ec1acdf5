"""What a calibration was made on, for the file it writes."""

from __future__ import annotations

from wspec.lab.bench.environment import environment
from wspec.lab.calibrate.driver import Driver


def require_gpu() -> str:
    """The card's name. Raises NoGpu when there is no Hopper GPU."""
    return Driver().name


def l2_bytes() -> int:
    """Of the card's L2."""
    return int(environment()["l2_bytes"])


def about(command: str) -> dict[str, str]:
    """Card, clocks, versions, date and command, as text."""
    found = environment()
    card = found.get("nvidia_smi", {})
    return {
        "date": str(found["date"])[:10],
        "card": str(found.get("card", "unknown")),
        "multiprocessors": str(found.get("multiprocessors", "unknown")),
        "driver": card.get("driver_version", "unknown"),
        "sm_clock_max": card.get("clocks.max.sm", "unknown"),
        "memory_clock": card.get("clocks.mem", "unknown"),
        "power_limit": card.get("power.limit", "unknown"),
        "triton": str(found["triton"]),
        "ptxas": str(found["ptxas"]),
        "command": command,
    }

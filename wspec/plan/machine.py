"""The machine description: rates, latencies and budgets of one GPU, read from a data file."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files


@dataclass(frozen=True, slots=True)
class Machine:
    """One GPU. Rates are per clock and SM, latencies in cycles, sizes in bytes."""

    name: str
    target: str
    sm_count: int
    registers: int
    smem_bytes: int
    max_registers_thread: int
    mma_flop_16bit: float
    mma_flop_8bit: float
    fma: float
    exp2: float
    convert: float
    smem_rate: float
    tma_rate: float
    mma_latency: float
    smem_latency: float
    l2_latency: float
    dram_latency: float
    tma_extra_latency: float
    mbarrier_latency: float
    shuffle_latency: float
    setup_latency: float
    plain_k_major: float  # time of the plain accumulating loop over the specialized one's, B stored [N, K]
    plain_mn_major: float  # B stored [K, N]


class MachineError(ValueError):
    """No such machine description, or one with a field missing."""


def available() -> list[str]:
    """The names of the machine descriptions that come with wspec."""
    names = (item.name for item in files(__package__).iterdir())
    return sorted(name.removesuffix(".toml") for name in names if name.endswith(".toml"))


@lru_cache(maxsize=8)
def load_machine(name: str) -> Machine:
    """The description `name`.toml. Raises MachineError."""
    if name not in available():
        raise MachineError(f"no machine description {name!r}; there are: {', '.join(available())}")
    data = tomllib.loads((files(__package__) / f"{name}.toml").read_text(encoding="utf-8"))
    sm, rate, latency = data["sm"], data["rate"], data["latency"]
    try:
        return Machine(
            name=data["name"],
            target=data["target"],
            sm_count=sm["count"],
            registers=sm["registers"],
            smem_bytes=sm["smem_bytes"],
            max_registers_thread=sm["max_registers_thread"],
            mma_flop_16bit=rate["mma_flop_16bit"],
            mma_flop_8bit=rate["mma_flop_8bit"],
            fma=rate["fma"],
            exp2=rate["exp2"],
            convert=rate["convert"],
            smem_rate=rate["smem_bytes"],
            tma_rate=rate["tma_bytes"],
            mma_latency=latency["mma"],
            smem_latency=latency["smem"],
            l2_latency=latency["l2"],
            dram_latency=latency["dram"],
            tma_extra_latency=latency["tma_extra"],
            mbarrier_latency=latency["mbarrier"],
            shuffle_latency=latency["shuffle"],
            setup_latency=latency["setup"],
            plain_k_major=data["plain"]["k_major"],
            plain_mn_major=data["plain"]["mn_major"],
        )
    except KeyError as error:
        raise MachineError(f"machine description {name!r} lacks {error}") from None

"""The machine description: rates, latencies and budgets of one GPU, read from a data file.

`load_machine` reads what the planner decides by: `[measured]`, which `wspec calibrate` wrote, what the vendor says of
an SM, and the few numbers in `[fitted]`. All of `[measured]` is read by wspec/lab/measurements.py.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from typing import Any

AUTO = "auto"
"""In place of a description's name: that of the card at hand."""
USUAL = "h200"
"""The description that is taken where nobody has one of the card, or there is none."""
LINES_PITCH = 2048  # bytes from row to row in the calibration whose rows begin at lines of L2


@dataclass(frozen=True, slots=True)
class Machine:
    """One GPU. Rates are per clock and SM, latencies in cycles, sizes in bytes."""

    name: str
    target: str
    sm_count: int
    registers: int
    smem_bytes: int
    max_registers_thread: int
    l2_bytes: int
    l2_kept_bytes: float  # of data that SMs everywhere read, which both halves of L2 keep
    mma_flop_16bit: float
    mma_flop_8bit: float
    fma: float
    exp2: float
    convert: float  # conversions, an instruction each; the planner counts one that packs two as two
    smem_rate: float
    tma_rate: float  # of tiles as in a product, which a dozen SMs want, not in step; rows of 128 bytes or more
    short_tma_rate: float  # likewise, of rows of 64 bytes
    apart_tma_rate: float  # likewise, where two thirds of what a block loads no other wants at that time
    tma_alone_rate: float  # of tiles that one SM loads, the others idle
    store_rate: float  # of TMA stores
    hand_on_rate: float  # of sums that a block leaves to another one, and takes up itself
    mma_latency: float  # from the end of a product to the warp that waited
    smem_latency: float
    l2_latency: float
    tma_latency: float  # of a small tile that L2 has
    tma_dram_latency: float  # of one that comes from memory
    issue_latency: float  # of a warp that loads a tile: waits for a place, expects, issues
    mbarrier_latency: float  # beside warps that multiply
    busy_mbarrier_latency: float  # beside warps that compute, as those of a third task do
    ready_latency: float
    meeting_latency: float  # bar.sync of two warp groups
    shuffle_latency: float
    block_start: float  # from a block's end to the first instruction of the next
    fork_latency: float  # from a specialized kernel's start to its tasks' first instructions
    handed_latency: float  # beside what moving the sums takes
    setup_latency: float


class MachineError(ValueError):
    """No such machine description, or one with a field missing."""


def available() -> list[str]:
    """The names of the machine descriptions that come with wspec."""
    names = (item.name for item in files(__package__).iterdir())
    return sorted(name.removesuffix(".toml") for name in names if name.endswith(".toml"))


def description_of(card: str) -> str:
    """The description of a card, by the name that the driver gives it ("NVIDIA H100 80GB HBM3")."""
    return next((name for name in available() if name.upper() in card.upper()), USUAL)


@lru_cache(maxsize=8)
def load_machine(name: str) -> Machine:
    """The description `name`.toml, the usual one of AUTO. Raises MachineError."""
    name = USUAL if name == AUTO else name
    return read_machine(text_of(name), name)


def text_of(name: str) -> str:
    """The description as it is written. Raises MachineError."""
    if name not in available():
        raise MachineError(f"no machine description {name!r}; there are: {', '.join(available())}")
    return (files(__package__) / f"{name}.toml").read_text(encoding="utf-8")


def read_machine(text: str, name: str) -> Machine:
    """What the planner needs. Raises MachineError; `name` is for its message."""
    data = parse(text, name)
    try:
        return _machine(data)
    except KeyError as error:
        raise MachineError(f"machine description {name!r} lacks {error}") from None


@lru_cache(maxsize=8)
def parse(text: str, name: str) -> dict[str, Any]:
    """Read twice for each machine, and 0.02 s long. Nobody changes what it returns."""
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise MachineError(f"machine description {name!r}: {error}") from None


def _machine(data: dict[str, Any]) -> Machine:
    """What is measured is read from `[measured]`; formulas are those of its topics (docs/results)."""
    sm, set_by_hand, measured = data["sm"], data["fitted"], data["measured"]

    def one(topic: str, name: str) -> float:
        return float(measured[topic][name]["value"])

    def row(topic: str, name: str, at: int) -> float:
        return float(measured[topic][name][str(at)]["value"])

    def flop(kind: str, depth: int) -> float:
        return 2 * 64 * 128 * depth / row("wgmma", f"{kind}_issue", 128)  # of m64n128, of that depth

    return Machine(
        name=data["name"],
        target=data["target"],
        sm_count=sm["count"],
        registers=sm["registers"],
        smem_bytes=sm["smem_bytes"],
        max_registers_thread=sm["max_registers_thread"],
        l2_bytes=data["l2"]["bytes"],
        l2_kept_bytes=data["l2"]["bytes"] / data["l2"]["copies"],
        mma_flop_16bit=flop("bf16_ss", 16),
        mma_flop_8bit=flop("s8_ss", 32),
        fma=one("arithmetic", "ffma_rate"),
        exp2=one("arithmetic", "ex2_rate"),
        convert=one("arithmetic", "cvt_bf16x2_rate"),
        smem_rate=row("shared", "load_rate", 16),
        tma_rate=row("tma_pitch", "product_128x64", LINES_PITCH),
        short_tma_rate=row("tma_pitch", "product_128x32", LINES_PITCH),
        apart_tma_rate=row("tma_product", "staggered_rate", 67),
        tma_alone_rate=row("tma_load", "alone_rate", 32),
        store_rate=row("tma_store", "alone_rate", 32),
        hand_on_rate=set_by_hand["hand_on_bytes"],
        mma_latency=row("wgmma", "bf16_ss_latency", 256) - row("wgmma", "bf16_ss_issue", 256),
        smem_latency=one("shared", "load_latency"),
        l2_latency=one("memory", "l2_latency"),
        tma_latency=row("tma_load", "l2_latency", 2),
        tma_dram_latency=row("tma_load", "dram_latency", 2),
        issue_latency=one("tma_load", "issue"),
        mbarrier_latency=one("handshakes", "mbarrier_group_wgmma"),
        busy_mbarrier_latency=one("handshakes", "mbarrier_group_ffma"),
        ready_latency=set_by_hand["wait_ready"],
        meeting_latency=row("handshakes", "bar_sync", 8),
        shuffle_latency=one("arithmetic", "shfl_latency"),
        block_start=row("blocks", "turnover", 384),
        fork_latency=2 * row("handshakes", "bar_sync", 12)
        + one("shared", "store_load_latency")
        + one("blocks", "setmaxnreg_inc"),
        handed_latency=set_by_hand["handed"],
        setup_latency=set_by_hand["setup"],
    )

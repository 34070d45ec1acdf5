"""How many instructions of the kinds that tell a specialized kernel, counted in the binary itself."""

from __future__ import annotations

import struct
from dataclasses import dataclass

from wspec.bridge.sass.cubin import kernel_code
from wspec.bridge.sass.decode import decoded
from wspec.bridge.sass.encodings import LINES
from wspec.bridge.sass.skeleton import Unknown, label_of

_NAMES = {int(code, 16): name for name, code, *_ in LINES}  # of an opcode


@dataclass(frozen=True, slots=True)
class Counts:
    """Of a kernel's instructions, wherever they stand."""

    hgmma: int  # products of tensor cores, of any type
    usetmaxreg: tuple[int, ...]  # the register counts asked for, in program order
    bar: int  # named barriers: BAR.SYNC and BAR.ARV
    syncs: int  # operations of mbarriers
    tma_loads: int
    tma_stores: int


def counts_of(cubin: bytes) -> Counts | None:
    """Those of a cubin; None where anything in it is not known, and nvdisasm is to be asked. Never raises."""
    try:
        kernel = kernel_code(cubin)
        if kernel is None or decoded(cubin) is None:
            return None
        words = list(struct.iter_unpack("<QQ", kernel.code))
        named = [(_NAMES.get(low & 0xFFF, ""), low, high) for low, high in words]
        labels = [label_of(low, high) for name, low, high in named if name in ("BAR", "USETMAXREG")]
    except (Unknown, struct.error, IndexError, ValueError):
        return None
    names = [name for name, _, _ in named]
    registers = tuple(one.first for one in labels if one is not None and one.name in ("fewer", "more"))
    return Counts(
        hgmma=names.count("HGMMA") + names.count("QGMMA"),
        usetmaxreg=registers,
        bar=names.count("BAR"),
        syncs=names.count("SYNCS"),
        tma_loads=names.count("UTMALDG"),
        tma_stores=names.count("UTMASTG") + names.count("UTMAREDG"),
    )

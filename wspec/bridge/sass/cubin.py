"""A kernel's code and its tables of jumps, as they lie in a cubin (an ELF file of 64 bits, little endian).

Of `.nv.info` one record is read: EIATTR_INDIRECT_BRANCH_TARGETS, which nvdisasm prints behind a BRX.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

INSTRUCTION_BYTES = 16

_HEADER = struct.Struct("<40xQ10xHHH")  # offset of the section headers; bytes of one, how many, which has the names
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_PROGBITS, _SYMTAB, _RELA, _REL = 1, 2, 4, 9
_FUNCTION = 2  # of a symbol's type
_RECORD = struct.Struct("<BBH")  # format, attribute, size or value
_SIZED = 4  # a record of that format is followed by its bytes
_JUMPS = 0x34
_TABLE = struct.Struct("<III")  # the jump's address, 0, how many targets follow


class _Section(NamedTuple):
    name: str
    kind: int
    data: bytes


@dataclass(frozen=True, slots=True)
class KernelCode:
    """The only section of code in a cubin: a kernel, and what ptxas put behind it."""

    code: bytes
    jumps: Mapping[int, tuple[int, ...]]  # address of an indirect jump -> the addresses it may go to


def kernel_code(cubin: bytes) -> KernelCode | None:
    """That of a cubin; None where there are several sections of code, or relocations of it."""
    sections = list(_sections(cubin))
    code = [one for one in sections if one.name.startswith(".text.") and one.kind == _PROGBITS]
    functions = [
        symbol
        for one in sections
        if one.kind == _SYMTAB
        for symbol in _SYMBOL.iter_unpack(one.data)
        if symbol[1] & 15 == _FUNCTION
    ]
    if len(code) != 1 or len(code[0].data) % INSTRUCTION_BYTES:
        return None
    starts = sorted(symbol[4] for symbol in functions)
    if starts[:1] != [0] or 0 in starts[1:]:  # the kernel comes first
        return None
    name = code[0].name.removeprefix(".text.")
    if any(one.data for one in sections if one.kind in (_REL, _RELA) and one.name.endswith(f".text.{name}")):
        return None
    info = next((one.data for one in sections if one.name == f".nv.info.{name}"), b"")
    return KernelCode(code[0].data, dict(_jumps(info)))


def _sections(cubin: bytes) -> Iterator[_Section]:
    start, size, count, named = _HEADER.unpack_from(cubin)
    headers = [_SECTION.unpack_from(cubin, start + place * size) for place in range(count)]
    names = headers[named][4]
    for header in headers:
        begin = names + header[0]
        kind, offset, length = header[1], header[4], header[5]
        yield _Section(cubin[begin : cubin.index(b"\0", begin)].decode(), kind, cubin[offset : offset + length])


def _jumps(info: bytes) -> Iterator[tuple[int, tuple[int, ...]]]:
    at = 0
    while at < len(info):
        form, attribute, size = _RECORD.unpack_from(info, at)
        at += _RECORD.size
        if form != _SIZED:
            continue
        end = at + size
        while attribute == _JUMPS and at < end:
            address, _, count = _TABLE.unpack_from(info, at)
            at += _TABLE.size
            yield address, struct.unpack_from(f"<{count}I", info, at)
            at += 4 * count
        at = end

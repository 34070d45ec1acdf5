"""Does ptxas compute the rows of a tile one after the other, exponentials and all?"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence

from wspec.bridge.sass.cubin import kernel_code
from wspec.bridge.sass.decode import JUMPS, registers_of
from wspec.bridge.sass.encodings import LINES
from wspec.bridge.sass.reaching import single

_EXPONENTIALS = {int(code, 16) for name, code, *_ in LINES if name == "MUFU"}
_EXCHANGES = {int(code, 16) for name, code, *_ in LINES if name == "SHFL"}
FEWEST = 16  # exponentials of straight code that is looked at
IN_TURN = 0.45
"""The part of them that comes before the last value that any of them needs from other threads: of two rows that are
computed in turn 0.47 to 0.5, of rows beside each other up to 0.41 (attention, head dimensions 64 to 256)."""


def rows_in_turn(cubin: bytes) -> bool:
    """In some straight code of it. Registers of instructions that are not known do not count."""
    kernel = kernel_code(cubin)
    if kernel is None:
        return False
    words = list(struct.iter_unpack("<QQ", kernel.code))
    return any(_waiting(code) >= IN_TURN for code in _straight(words))


def _straight(words: Sequence[tuple[int, int]]) -> Iterator[list[tuple[int, int]]]:
    """Instructions that follow each other on every way."""
    code: list[tuple[int, int]] = []
    for low, high in words:
        if low & 0xFFF in JUMPS:
            yield code
            code = []
        else:
            code.append((low, high))
    yield code


def _waiting(code: Sequence[tuple[int, int]]) -> float:
    """The part of its exponentials that comes before the last exchange which another one needs."""
    opcodes = [low & 0xFFF for low, _ in code]
    exponentials = [place for place, opcode in enumerate(opcodes) if opcode in _EXPONENTIALS]
    if len(exponentials) < FEWEST or _EXCHANGES.isdisjoint(opcodes):
        return 0.0
    came: dict[int, int] = {}  # a register's bit -> the last exchange that it depends on
    last = -1
    for place, (low, high) in enumerate(code):
        reads, writes = registers_of(low, high) or (0, 0)
        found = max((came[bit] for bit in single(reads) if bit in came), default=-1)
        if opcodes[place] in _EXCHANGES:
            found = place
        elif opcodes[place] in _EXPONENTIALS:
            last = max(last, found)
        came.update(dict.fromkeys(single(writes), found))
    return sum(place < last for place in exponentials) / len(exponentials)

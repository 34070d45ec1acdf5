"""What a kernel does to registers, read from its binary without a disassembler.

nvdisasm takes 0.3 to 0.6 s, 0.2 of them before it looks at its input; this takes 0.02. What it knows of the encodings
stands in encodings.py. An instruction that is not found there ends it, and nvdisasm is asked: nothing is guessed.
"""

from __future__ import annotations

import functools
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from wspec.bridge.sass.cubin import INSTRUCTION_BYTES, kernel_code
from wspec.bridge.sass.encodings import LINES
from wspec.bridge.sass.machine_code import UPDATES, UPPER_HALVES, WGMMA, Flow, registers
from wspec.bridge.sass.program import Program

_BITS = {"R": 8, "UR": 6, "P": 3, "UP": 3}  # of a field that names a register; all of them set: none
_GUARD = 12  # the guard's first bit
_ALWAYS = 7 << _GUARD
_BRA, _BRX, _EXIT = 0x947, 0x949, 0x94D
JUMPS = frozenset({_BRA, _BRX, _EXIT})
_PLAIN_JUMP = 0x3800000  # the upper half of a jump without its distance: no further predicate, not BRA.DIV, not BRA.U
_TILE = 31 << 53  # the columns of a tile of tensor cores, in eights, less one
_TILES = [(number << 53, 8 * (number + 1)) for number in range(32)]  # (that field, columns)
_NO_TILE = [(0, 0)]
_SCHEDULING = 105  # from this bit on: what to wait for, how long to pause, which operands to keep

Field = tuple[int, int, tuple[int, ...]]  # first bit, mask, the set of registers that each value stands for


@dataclass(frozen=True, slots=True)
class _Form:
    """What instructions of one form do."""

    reads: tuple[Field, ...]
    writes: tuple[Field, ...]
    updates: bool  # what it writes it need not read, as machine_code.py has it
    product: bool


_Forms = tuple[tuple[int, dict[int, _Form]], ...]  # (mask, its bits in the instruction -> form), to be tried in order


def decoded(cubin: bytes) -> Program | None:
    """The program of a cubin; None where anything in it is not known."""
    kernel = kernel_code(cubin)
    if kernel is None:
        return None
    table = _table()
    reads: list[int] = []
    writes: list[int] = []
    turns: dict[int, Flow] = {}
    guarded: set[int] = set()
    halves: dict[int, int] = {}
    guards = _sets("P", 1, 0)
    for place, (low, high) in enumerate(struct.iter_unpack("<QQ", kernel.code)):
        opcode = low & 0xFFF
        word = low | high << 64
        if low & _ALWAYS != _ALWAYS:
            guarded.add(place)
        for mask, values in table.get(opcode, ()):
            form = values.get(word & mask)
            if form is not None:
                break
        else:
            turn = turn_of(place * INSTRUCTION_BYTES, low, high, kernel.jumps)
            if turn is None:
                return None
            way, read = turn
            if way.targets or not way.falls:
                turns[place] = way
            reads.append(read | guards[low >> _GUARD & 7])
            writes.append(0)
            continue
        written = read = 0
        for shift, bits, sets in form.writes:
            written |= sets[word >> shift & bits]
        for shift, bits, sets in form.reads[1:]:
            read |= sets[word >> shift & bits]
        if form.updates:
            read &= ~written
        if form.product:
            halves[place] = read & UPPER_HALVES
        shift, bits, sets = form.reads[0]  # the guard
        reads.append(read | sets[word >> shift & bits])
        writes.append(written)
    size = len(reads)
    labels = {label: int(label, 16) // INSTRUCTION_BYTES for turn in turns.values() for label in turn.targets}
    if any(place >= size for place in labels.values()):
        return None
    return Program(reads, writes, turns, labels, guarded, halves)


def turn_of(address: int, low: int, high: int, jumps: Mapping[int, tuple[int, ...]]) -> tuple[Flow, int] | None:
    """(where a jump or an exit leads, what it reads besides its guard); None for what is not known."""
    opcode, sometimes = low & 0xFFF, low & _ALWAYS != _ALWAYS
    if high & ((1 << _SCHEDULING - 64) - 1) >> 18 << 18 != _PLAIN_JUMP:
        return None
    if opcode == _EXIT and not (low >> 16 or high & 0x3FFFF):
        return Flow(falls=sometimes), 0
    if opcode == _BRA and not low >> 24 & 0x3FF:
        target = jump_target(address, low, high)
        return (Flow(falls=sometimes, targets=(f"{target:#x}",)), 0) if target >= 0 else None
    if opcode == _BRX and address in jumps:
        first = _sets("R", 2, 0)[low >> 24 & 0xFF]
        return Flow(falls=sometimes, targets=tuple(f"{target:#x}" for target in jumps[address])), first
    return None


def jump_target(address: int, low: int, high: int) -> int:
    """Where a jump, call or return at an address leads that has a distance."""
    distance = low >> 34 | (high & 0x3FFFF) << 30
    distance -= (distance & 1 << 47) << 1
    return address + INSTRUCTION_BYTES + ((distance << 8 | low >> 16 & 0xFF) << 2)


def registers_of(low: int, high: int) -> tuple[int, int] | None:
    """(the set of registers that an instruction reads, its guard among them, and the set that it writes); None of one
    that is not known, jumps among them."""
    word = low | high << 64
    for mask, values in _table().get(low & 0xFFF, ()):
        form = values.get(word & mask)
        if form is not None:
            return _union(form.reads, word), _union(form.writes, word)
    return None


def written(low: int, high: int) -> int | None:
    """The set of registers that an instruction writes; None of one that is not known, jumps among them."""
    found = registers_of(low, high)
    return None if found is None else found[1]


def _union(fields: Sequence[Field], word: int) -> int:
    found = 0
    for shift, bits, sets in fields:
        found |= sets[word >> shift & bits]
    return found


# ------------------------------------------------------------------------------------------------------ the table


@functools.lru_cache(maxsize=1)
def _table() -> dict[int, _Forms]:
    """Opcode -> its forms."""
    found: dict[int, dict[int, dict[int, _Form]]] = {}
    for name, code, guard, written, read, *masked in LINES:
        mask, *values = (int(number, 16) << _GUARD for number in masked)
        forms = found.setdefault(int(code, 16), {})
        for tile, columns in _TILES if "xN" in written else _NO_TILE:
            fields = [(guard, *_listed(read)), _listed(written)]
            reads, writes = (tuple(_field(one.replace("N", str(columns // 2))) for one in part) for part in fields)
            form = _Form(reads, writes, name in UPDATES, name in WGMMA)
            of_mask = forms.setdefault(mask | (_TILE if columns else 0), {})
            for value in values:
                of_mask.setdefault(value | tile, form)
    return {opcode: tuple(forms.items()) for opcode, forms in found.items()}


def _listed(fields: str) -> list[str]:
    return [] if fields == "-" else fields.split(",")


@functools.lru_cache(maxsize=256)
def _field(text: str) -> Field:
    """`R24x4+2`: at bit 24 a number of R; four registers, from the second behind that one on."""
    text, _, behind = text.partition("+")
    text, _, count = text.partition("x")
    kind = text.rstrip("0123456789")
    return int(text[len(kind) :]), (1 << _BITS[kind]) - 1, _sets(kind, int(count or 1), int(behind or 0))


@functools.lru_cache(maxsize=64)
def _sets(kind: str, count: int, behind: int) -> tuple[int, ...]:
    none = (1 << _BITS[kind]) - 1
    return (*(registers(kind, number + behind, count) for number in range(none)), 0)

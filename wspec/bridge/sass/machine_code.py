"""The disassembly of a cubin as data: instructions, where each goes on, which registers it reads and writes.

Where it is not certain how many registers an operand stands for, only the one that is named counts as read, and all
that it may stand for count as written. Sets of registers are sets of bits of an integer.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache

_LINE = re.compile(
    r"^\s*(?:/\*([0-9a-f]{4,})\*/\s+(?:@(!?U?P[T\d])\s+)?([A-Z][\w.]*)\s*([^;]*);"  # an instruction
    r'|//## File "([^"]*)", line (\d+)'  # the source line of those that follow
    r"|\.section\s+\.text\.([^,\s]+)|\.other\s.*(STO_CUDA_ENTRY)|([^\s:]+):\s*$)",  # a section of code, a label
    re.MULTILINE,
)
_REGISTER = re.compile(r"(?<![\w.$])(gdesc\[|desc\[|cx\[)?(U?)(R|P)(\d+)((?:\.\w+)*)", re.ASCII)
_PLAIN = re.compile(r"(U?)(R|P)(\d+|Z|T)((?:\.\w+)*)", re.ASCII)
_LABEL = re.compile(r"`\(([^)]+)\)")
_TABLE = re.compile(r'"BRANCH_TARGETS ([^"]+)"')
_SHAPE = re.compile(r"\.(\d+)x(\d+)x(\d+)")

_BASE = {"R": 0, "UR": 256, "P": 320, "UP": 328}
_SIZE = {"R": 255, "UR": 63, "P": 7, "UP": 7}
EVERYTHING = (1 << 336) - 1
PREDICATES = ((1 << 16) - 1) << 320

# All operands are read, the first as well.
_READERS = frozenset({
    "BAR", "BMOV", "BPT", "BRA", "BREAK", "BRX", "BRXU", "BSSY", "BSYNC", "CALL", "CCTL", "DEPBAR", "ENDCOLLECTIVE",
    "ERRBAR", "EXIT", "FENCE", "JMP", "JMX", "JMXU", "KILL", "LDGDEPBAR", "MEMBAR", "NANOSLEEP", "NOP", "RET", "R2B",
    "R2P", "UTMACMDFLUSH", "WARPGROUP", "WARPSYNC", "YIELD",
})  # fmt: skip
_STORES = frozenset({"ST", "STG", "STS", "RED", "REDG"})
# These keep a part of their destination: a half, some bits (predicates put aside), all of it under a predicate. Whether
# it was assigned is not asked: often this is the first part.
UPDATES = frozenset({"FSEL", "LOP3", "PRMT", "SEL", "ULOP3", "UPRMT", "USEL"})
_CONVERSIONS = frozenset({"F2F", "F2I", "I2F", "FRND"})
_DOUBLES = frozenset({"DADD", "DFMA", "DMUL", "DMNMX", "DSETP", "DSET"})
_MMA = frozenset({"HMMA", "IMMA", "DMMA", "QMMA", "BMMA"})
WGMMA = frozenset({"HGMMA", "IGMMA", "QGMMA", "BGMMA"})


def registers(kind: str, first: int, count: int = 1) -> int:
    """The set of `count` registers from R`first` (or UR, P, UP) on."""
    count = max(0, min(count, _SIZE[kind] - first))
    return ((1 << count) - 1) << (_BASE[kind] + first)


UPPER_HALVES = sum(registers("UR", number) for number in range(1, 63, 2))
"""Registers that hold the upper half of a matrix descriptor, where a product reads them."""


def names(found: int) -> Iterator[str]:
    """The registers of a set, in order."""
    for kind, base in _BASE.items():
        yield from (f"{kind}{n}" for n in range(_SIZE[kind]) if found >> (base + n) & 1)


@dataclass(frozen=True, slots=True)
class Instruction:
    """One line of the disassembly."""

    address: int
    guard: str  # P0, !P0, UP0; empty when it is always executed
    name: str  # with its modifiers: UIADD3.X
    operands: str
    file: str = ""  # of the source, where the cubin has lines
    line: int = 0

    @property
    def root(self) -> str:
        """Its name without modifiers."""
        return self.name.partition(".")[0]

    @property
    def is_certain(self) -> bool:
        """Is it executed whenever its turn comes?"""
        return self.guard in ("", "PT", "UPT")

    @property
    def is_copy(self) -> bool:
        """Does it only bring a register's value, or a number, into another register?"""
        return self.root in ("MOV", "UMOV", "R2UR") or (self.root == "IMAD" and ", RZ, RZ, " in self.operands)

    def __str__(self) -> str:
        guard = f"@{self.guard} " if self.guard else ""
        return f"{guard}{self.name} {self.operands}".rstrip()


@dataclass(slots=True)
class Code:
    """A section of code: a kernel, or a function in a section of its own."""

    name: str
    kernel: bool
    instructions: list[Instruction] = field(default_factory=list)
    labels: dict[str, int] = field(default_factory=dict)  # -> place in `instructions`


def read_sass(text: str) -> list[Code]:
    """What `nvdisasm -c`, with or without `-g`, says; one Code a section."""
    found: list[Code] = []
    file, line = "", 0
    for match in _LINE.finditer(text):
        address, guard, name, operands, new_file, new_line, section, kernel, label = match.groups()
        if section:
            found.append(Code(section, False))
            file, line = "", 0
        elif new_file:
            file, line = new_file, int(new_line)
        elif not found:  # an excerpt without its header
            found.append(Code("", True))
        if address:
            instruction = Instruction(int(address, 16), guard or "", name, operands.strip(), file, line)
            found[-1].instructions.append(instruction)
        elif label:
            found[-1].labels[label] = len(found[-1].instructions)
        elif kernel:
            found[-1].kernel = True
    return found


# ------------------------------------------------------------------------------------------- where it goes on


@dataclass(frozen=True, slots=True)
class Flow:
    """How the thread goes on after an instruction."""

    falls: bool = True  # the next one may follow
    targets: tuple[str, ...] = ()  # labels that it may jump to
    calls: str = ""  # a function's label; "?" for one that is elsewhere. It returns to the next instruction
    returns: bool = False


def flow(instruction: Instruction) -> Flow:
    """Where the instruction leads; an indirect jump without its table leads nowhere.

    BSYNC stands right before the label that its BSSY names, and the label of WARPSYNC.COLLECTIVE right behind the few
    instructions between: both go on with the next one.
    """
    root, text, sometimes = instruction.root, instruction.operands, not instruction.is_certain
    match root:
        case "BRA" | "JMP":
            always = instruction.name == root and text.startswith("`")  # no BRA.DIV, no predicate before the label
            return Flow(falls=sometimes or not always, targets=tuple(_LABEL.findall(text)))
        case "BRX" | "BRXU" | "JMX" | "JMXU":
            table = _TABLE.search(text)
            return Flow(falls=sometimes, targets=tuple(table[1].split(",")) if table else ())
        case "CALL":
            label = _LABEL.search(text)
            return Flow(calls=label[1] if label else "?")
        case "RET":
            return Flow(falls=sometimes, returns=True)
        case "EXIT" | "KILL":
            return Flow(falls=sometimes)
    return Flow()


# ---------------------------------------------------------------------------------------- what it does to registers


@dataclass(frozen=True, slots=True)
class Effects:
    """Sets of registers."""

    reads: int
    writes: int


def effects(instruction: Instruction) -> Effects:
    """What the instruction reads, its guard included, and what it may write."""
    found = _effects(instruction.name, instruction.operands)
    guard = _PLAIN.fullmatch(instruction.guard.removeprefix("!"))
    if guard is None or guard[3] == "T":
        return found
    return Effects(found.reads | registers(guard[1] + "P", int(guard[3])), found.writes)


@lru_cache(maxsize=1 << 15)
def _effects(name: str, text: str) -> Effects:
    root, *modifiers = name.split(".")
    operands = [part.strip() for part in _LABEL.sub("", _TABLE.sub("", text)).split(",")] if text else []
    count = _destinations(root, operands)
    writes = 0
    for operand in operands[:count]:
        match = _PLAIN.fullmatch(operand)
        if match is not None and match[3].isdigit():
            wide = 1 if match[2] == "P" else _written(root, name, modifiers)
            writes |= registers(match[1] + match[2], int(match[3]), wide)
    if root == "R2P":
        writes |= PREDICATES
    if root in WGMMA:
        return Effects(_wgmma_reads(name, operands), writes)
    reads = 0
    for place, operand in enumerate(operands[count:], start=count):
        reads |= _operand_reads(name, operand, place - count, place == len(operands) - 1)
    return Effects(reads & ~writes if root in UPDATES else reads, writes)


def _destinations(root: str, operands: list[str]) -> int:
    """How many of the first operands are written: predicates, a register, the carries behind it."""
    if root in _READERS:
        return 0
    count, last = 0, len(operands) - 1
    while count < last and _is_plain(operands[count], "P"):
        count += 1
    if root in ("PLOP3", "UPLOP3", "FCHK") or "SETP" in root:
        return min(count, 2)  # predicates alone
    if count <= last and _is_plain(operands[count], "R"):
        count += 1
        while count < last and _is_plain(operands[count], "P"):
            count += 1
    return count


def _is_plain(operand: str, kind: str) -> bool:
    match = _PLAIN.fullmatch(operand)
    return match is not None and match[2] == kind


def _written(root: str, name: str, modifiers: list[str]) -> int:
    """How many registers the destination stands for, at most."""
    if root in WGMMA:
        return _accumulators(name)
    if root in _MMA:
        return 4
    if root == "LEPC":
        return 2
    if root == "CS2R":
        return 1 if "32" in modifiers else 2
    if root == "LDSM":
        return _matrices(modifiers)
    if root == "I2F":  # of 64 bits, but to a float of 32: the type of the result is left out then
        return 2 if "F64" in modifiers else 1
    if root in _CONVERSIONS:
        return 2 if {"F64", "S64", "U64"} & set(modifiers) else 1
    if root in _DOUBLES or "WIDE" in modifiers:
        return 2
    return _size(modifiers)


def _size(modifiers: list[str]) -> int:
    return 4 if "128" in modifiers else 2 if "64" in modifiers else 1


def _matrices(modifiers: list[str]) -> int:
    return 4 if "4" in modifiers else 2 if "2" in modifiers else 1


def _operand_reads(name: str, operand: str, source: int, last: bool) -> int:
    """What one operand reads that is not written; `source` counts those from 0."""
    root, *modifiers = name.split(".")
    if root == "STL" and last:
        return 0  # a function saves what its caller may or may not need
    reads = 0
    for match in _REGISTER.finditer(operand):
        inside, uniform, kind, number, suffix = match.groups()
        if kind == "P":
            wide = 1
        elif inside or ".64" in suffix:
            wide = 2  # a descriptor or an address of 64 bits
        elif operand.startswith("["):
            wide = _tma_reads(root, name, source)
        else:
            wide = _source_size(root, modifiers, source, last)
        reads |= registers(uniform + kind, int(number), wide)
    return reads


def _source_size(root: str, modifiers: list[str], source: int, last: bool) -> int:
    """How many registers an operand stands for that is no address."""
    if root in _STORES and last:
        return _size(modifiers)
    if root == "STSM" and last:
        return _matrices(modifiers)
    if root == "HMMA" and modifiers[:2] == ["16816", "F32"]:
        return (4, 2, 4)[min(source, 2)]
    addend = "WIDE" in modifiers and source == 2
    pairs = root == "UIADD3" and "64" in modifiers
    swapped = root == "SYNCS" and modifiers[:2] == ["EXCH", "64"]
    return 2 if addend or pairs or swapped or root in _DOUBLES or root in ("BRX", "JMX", "RET") else 1


def _tma_reads(root: str, name: str, source: int) -> int:
    """Registers behind a bracket: the tile in shared memory, of a load its barrier, the coordinates; the descriptor."""
    if root not in ("UTMALDG", "UTMASTG", "UTMAREDG"):
        return 1
    if source == 1:
        return 2
    dimensions = re.search(r"\.(\d)D", name)
    return (2 if root == "UTMALDG" else 1) + int(dimensions[1] if dimensions else 0)


def _wgmma_reads(name: str, operands: list[str]) -> int:
    """`D, [A in registers,] gdesc[two descriptors], D or RZ[, whether to add][, gsb0]`."""
    place = next((place for place, operand in enumerate(operands) if operand.startswith("gdesc[")), 0)
    reads = 0
    for operand in operands[1:place]:
        reads |= _range(operand, 4)
    match = re.match(r"gdesc\[UR(\d+)\]", operands[place])
    if match is not None:  # of A there is none when it is in registers
        reads |= registers("UR", int(match[1]), 4) if place == 1 else registers("UR", int(match[1]) + 2, 2)
    added, *rest = operands[place + 1 :] or [""]
    whether = [operand for operand in rest if _is_plain(operand.removeprefix("!"), "P")]
    for operand in whether:
        reads |= _range(operand.removeprefix("!"), 1)
    return reads if whether else reads | _range(added, _accumulators(name))


def _accumulators(name: str) -> int:
    """Registers of a tile of 64 rows, 32 or 16 bits an element."""
    shape = _SHAPE.search(name)
    if shape is None:
        return 1
    return int(shape[2]) // (4 if name[shape.end() :].startswith(".F16") else 2)


def _range(operand: str, count: int) -> int:
    match = _PLAIN.fullmatch(operand)
    return registers(match[1] + match[2], int(match[3]), count) if match and match[3].isdigit() else 0

"""Which left operands of products, in registers, a loop of the PTX needs again: nothing in it writes them, or copies
alone, of registers that it does not write (LLVM makes such copies from Triton 3.8 on).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import networkx as nx

from wspec.ptx.effects import writes as written_by
from wspec.ptx.errors import PtxError
from wspec.ptx.flow import blocks_of, loop_of
from wspec.ptx.operands import Register, Several, registers
from wspec.ptx.parser import read
from wspec.ptx.syntax import Function, Instruction, Module

_SHAPE = re.compile(r"(\d+)[xnk](\d+)[xk](\d+)")


@dataclass(frozen=True, slots=True)
class Kind:
    """What a product is in both texts."""

    shape: tuple[str, ...]  # rows, columns, depth
    in_registers: bool  # its left operand


Products = tuple[tuple[Kind, bool], ...]
"""(kind, does its left operand stay the same in the innermost loop around it?) of each wgmma, in order."""


def products_of(text: str, module: Module | None = None) -> Products:
    """Those of a text; none where every left operand is made anew, or where the text cannot be read.

    `module`: what has been read of the text.
    """
    if _are_made_beside(text):
        return ()
    try:
        return tuple(_products((module or read(text)).entry()))
    except PtxError:
        return ()


def _are_made_beside(ptx: str) -> bool:
    """Is every left operand in registers computed between the label before its product and the product? Then none
    stays. Told from the text, which takes a tenth of the time that reading it does; mostly it is so."""
    made: set[str] = set()
    for line in ptx.splitlines():
        text = line.strip()
        if text.startswith("$"):
            made.clear()
        elif text.startswith("wgmma.mma_async"):
            _, inside, left = text.partition("}, {")
            if inside and not made.issuperset(left.partition("}")[0].replace(" ", "").split(",")):
                return False
        else:
            operands = text.partition("\t")[2] or text.partition(" ")[2]
            first, _, others = (
                operands.lstrip().removeprefix("{").partition("}" if operands.lstrip().startswith("{") else ",")
            )
            if not text.startswith("mov.b32") or others.strip(" ;") in made or "%" not in others:
                made.update(first.replace(" ", "").split(","))
    return True


def _products(function: Function) -> Iterator[tuple[Kind, bool]]:
    parts = blocks_of(function)
    products = [(part, one) for part in parts for one in part.instructions if one.opcode.startswith("wgmma.mma_async")]
    lefts = [one.operands[1] for _, one in products]
    wanted = {name for left in lefts if isinstance(left, Several) for name in registers(left)}
    writers: dict[str, list[tuple[int, str]]] = {}  # register -> (block, the register that is copied or "")
    around = innermost({part.number: part.follow for part in parts}, 0)
    written = [(part.number, _copied(one), _targets(one)) for part in parts for one in part.instructions]
    sources = {copied for _, copied, targets in written if copied and targets & wanted}
    for block, copied, targets in written:
        for name in targets & (wanted | sources):
            writers.setdefault(name, []).append((block, copied))

    def stays(name: str, loop: frozenset[int], through: bool = True) -> bool:
        inside = [copied for block, copied in writers.get(name, ()) if block in loop]
        return all(through and copied and stays(copied, loop, False) for copied in inside)

    for (part, one), left in zip(products, lefts, strict=True):
        inside, loop = isinstance(left, Several), around.get(part.number)
        kept = inside and loop is not None and all(stays(name, loop) for name in registers(left))
        yield Kind(shape_of(one.opcode.replace(".m", ".")), inside), kept


def _copied(one: Instruction) -> str:
    """The register that the instruction copies; "" where it does something else."""
    if not one.opcode.startswith("mov.b32") or one.guard or len(one.operands) != 2:
        return ""
    source = one.operands[1]
    return source.name if isinstance(source, Register) else ""


def _targets(one: Instruction) -> set[str]:
    """The registers of an instruction's first operand: those that it writes, if it writes any."""
    if one.declared:
        return set(written_by(one))
    text = one.text.strip()
    first = text[1:].partition("}")[0] if text.startswith("{") else text.partition(",")[0].partition("|")[0]
    return {name.strip() for name in first.split(",")}


def shape_of(name: str) -> tuple[str, ...]:
    found = _SHAPE.search(name)
    return found.groups() if found is not None else ()


def innermost(follow: Mapping[int, Iterable[int]], entry: int) -> dict[int, frozenset[int]]:
    """The smallest loop around each block that is in one: those from whose end the block that dominates it follows."""
    graph = nx.DiGraph([(one, other) for one, others in follow.items() for other in others])
    if entry not in graph:
        return {}
    above: dict[int, int | None] = {**nx.immediate_dominators(graph, entry), entry: None}  # some versions lack it
    loops: dict[int, set[int]] = {}

    def before(one: int) -> list[int]:
        return [other for other in graph.predecessors(one) if other in above]

    for last, first in graph.edges:
        if last in above and _dominates(first, last, above):
            loops.setdefault(first, set()).update(loop_of(first, last, before))
    found: dict[int, frozenset[int]] = {}
    for inside in sorted(loops.values(), key=len, reverse=True):
        found.update(dict.fromkeys(inside, frozenset(inside)))
    return found


def _dominates(first: int, last: int, above: Mapping[int, int | None]) -> bool:
    one: int | None = last
    while one is not None and one != first:
        one = above[one]
    return one == first
